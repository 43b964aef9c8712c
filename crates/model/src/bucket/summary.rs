//! The summary of one numeric field: a fold over its values. The sum is exact, so neither the order of the values nor
//! their division into pages changes a single bit of it.

pub mod distribution;
pub mod lifetime;

use std::sync::Arc;

use self::distribution::Distribution;
use super::exact::{ExactSum, SumRest};
use crate::reading::Value;

/// Count, min, max, sum, first and last of the numbers that a field has on one page.
///
/// Integers are folded in `i128`. If at least one value is a float, min, max, first and last use the nearest `f64` of
/// each value. Rounding preserves order, so the minimum of the rounded values is the rounded minimum. The sum is the
/// exact sum of the unrounded values, rounded once.
#[derive(Debug, Clone, PartialEq)]
pub enum Summary {
    /// Every value was an integer.
    Integers(Fold<i128>),
    /// At least one value was a float.
    Floats(Fold<f64, ExactSum>),
}

/// The fold's figures; `T` is the type of the values and `S` that of the sum.
#[derive(Debug, Clone, PartialEq)]
pub struct Fold<T, S = T> {
    /// The number of values.
    pub count: u64,
    /// The least value.
    pub min: T,
    /// The greatest value.
    pub max: T,
    /// The sum.
    pub sum: S,
    /// The earliest value.
    pub first: T,
    /// The latest value.
    pub last: T,
    /// The counts by range, for a field with bounds. A union of different bounds, or of values some of which have none,
    /// counts fewer values than `count`.
    pub distribution: Option<Box<Distribution>>,
}

/// Adds the counts of a later summary to those of an earlier one. Of different bounds, the earlier ones stay.
fn unite_distributions(held: &mut Option<Box<Distribution>>, later: &Option<Box<Distribution>>) {
    if let Some(later) = later {
        match held {
            Some(held) => _ = held.unite(later),
            None => *held = Some(later.clone()),
        }
    }
}

impl Fold<i128> {
    fn new(value: i128) -> Self {
        Self { count: 1, min: value, max: value, sum: value, first: value, last: value, distribution: None }
    }

    fn push(&mut self, value: i128) {
        if let Some(distribution) = &mut self.distribution {
            distribution.push(as_float(value));
        }
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum = self.sum.saturating_add(value);
        self.last = value;
    }

    fn unite(&mut self, later: &Self) {
        self.count = self.count.saturating_add(later.count);
        self.min = self.min.min(later.min);
        self.max = self.max.max(later.max);
        // Readings cannot overflow an i128, but a damaged document can.
        self.sum = self.sum.saturating_add(later.sum);
        self.last = later.last;
        unite_distributions(&mut self.distribution, &later.distribution);
    }

    fn floats(&self) -> Fold<f64, ExactSum> {
        let mut sum = ExactSum::default();
        sum.add_integer(self.sum);
        let [min, max, first, last] = [self.min, self.max, self.first, self.last].map(as_float);
        Fold { count: self.count, min, max, sum, first, last, distribution: self.distribution.clone() }
    }
}

impl Fold<f64, ExactSum> {
    fn new(value: f64) -> Self {
        let mut sum = ExactSum::default();
        sum.add(value);
        Self { count: 1, min: value, max: value, sum, first: value, last: value, distribution: None }
    }

    #[inline]
    fn push(&mut self, value: f64) {
        self.sum.add(value);
        self.push_without_sum(value);
    }

    fn push_integer(&mut self, value: i128) {
        self.sum.add_integer(value);
        self.push_without_sum(as_float(value));
    }

    /// Folds a value into all figures except the sum.
    #[inline]
    fn push_without_sum(&mut self, value: f64) {
        if let Some(distribution) = &mut self.distribution {
            distribution.push(value);
        }
        self.count += 1;
        self.min = least(self.min, value);
        self.max = greatest(self.max, value);
        self.last = value;
    }

    fn unite(&mut self, later: &Self) {
        self.count = self.count.saturating_add(later.count);
        self.min = least(self.min, later.min);
        self.max = greatest(self.max, later.max);
        self.sum.add_sum(&later.sum);
        self.last = later.last;
        unite_distributions(&mut self.distribution, &later.distribution);
    }
}

/// The lesser value. Treats -0.0 as less than 0.0, so that the order of the values does not matter.
#[inline]
fn least(held: f64, value: f64) -> f64 {
    if value <= held && (value < held || value.is_sign_negative()) { value } else { held }
}

/// The greater value. Treats 0.0 as greater than -0.0, so that the order of the values does not matter.
#[inline]
fn greatest(held: f64, value: f64) -> f64 {
    if value >= held && (value > held || value.is_sign_positive()) { value } else { held }
}

/// A summary as stored in documents. Equality compares all bits.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// The number of values.
    pub count: u64,
    /// The least value.
    pub min: Value,
    /// The greatest value.
    pub max: Value,
    /// The sum; an integer sum beyond 64 bits is the nearest double.
    pub sum: Value,
    /// The rounding error of the sum; empty if the sum is an integer.
    pub rest: SumRest,
    /// The mean.
    pub avg: Value,
    /// The earliest value.
    pub first: Value,
    /// The latest value.
    pub last: Value,
    /// The counts by range, for a field with bounds.
    pub distribution: Option<Box<Distribution>>,
}

impl Figures {
    /// Figures with the mean computed from sum and count.
    #[must_use]
    pub fn with_mean(count: u64, [min, max, first, last]: [Value; 4], sum: Value, rest: SumRest) -> Self {
        let avg = Value::Float(mean(Number::from_value(&sum).float(), count));
        Self { count, min, max, sum, rest, avg, first, last, distribution: None }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count is far below 2^53")]
fn mean(sum: f64, count: u64) -> f64 {
    sum / count as f64
}

/// The `f64` nearest to an integer.
#[expect(clippy::cast_precision_loss, reason = "rounding to the nearest double is intended")]
fn as_float(integer: i128) -> f64 {
    integer as f64
}

/// A stored number of a [`Summary`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A double.
    Float(f64),
    /// A signed 64-bit integer.
    Integer(i64),
    /// An integer above `i64::MAX`.
    Unsigned(u64),
}

impl Default for Number {
    fn default() -> Self {
        Self::Integer(0)
    }
}

impl Number {
    /// The number of a value; NaN for booleans and texts.
    #[must_use]
    pub fn from_value(value: &Value) -> Self {
        match value {
            Value::Integer(v) => Self::Integer(*v),
            Value::Unsigned(v) => Self::Unsigned(*v),
            Value::Float(v) => Self::Float(*v),
            Value::Boolean(_) | Value::String(_) => Self::Float(f64::NAN),
        }
    }

    /// The nearest double.
    fn float(self) -> f64 {
        match self {
            Self::Float(v) => v,
            Self::Integer(v) => as_float(v.into()),
            Self::Unsigned(v) => as_float(v.into()),
        }
    }

    fn integer(self) -> Option<i128> {
        match self {
            Self::Float(_) => None,
            Self::Integer(v) => Some(v.into()),
            Self::Unsigned(v) => Some(v.into()),
        }
    }
}

/// An integer as the [`Value`] variant that readings use for it.
fn whole_value(integer: i128) -> Value {
    match (i64::try_from(integer), u64::try_from(integer)) {
        (Ok(v), _) => Value::Integer(v),
        (Err(_), Ok(v)) => Value::Unsigned(v),
        // No reading has such a value.
        (Err(_), Err(_)) => Value::Float(as_float(integer)),
    }
}

/// Restores an integer sum from its nearest double and the rounding error.
#[expect(clippy::cast_possible_truncation, reason = "a sum of integers is a whole number within i128")]
fn whole_sum(sum: f64, rest: &SumRest) -> i128 {
    let whole = |part: f64| part as i128;
    rest.doubles(sum).fold(whole(sum), |sum, part| sum.saturating_add(whole(part)))
}

impl Summary {
    /// Folds `values` in the given order; `None` if there is no number among them.
    pub fn fold<'a>(values: impl Iterator<Item = &'a Value>) -> Option<Self> {
        let mut summary: Option<Self> = None;
        for value in values {
            match &mut summary {
                Some(summary) => summary.push(value),
                None => summary = Self::from_value(value),
            }
        }
        summary
    }

    /// As [`Self::fold`], with a distribution if there are bounds.
    pub fn fold_within<'a>(values: impl Iterator<Item = &'a Value>, bounds: Option<&Arc<[f64]>>) -> Option<Self> {
        let Some(bounds) = bounds else { return Self::fold(values) };
        let mut values = values.skip_while(|value| matches!(value, Value::Boolean(_) | Value::String(_)));
        let first = values.next()?;
        let mut distribution = Distribution::new(bounds.clone());
        distribution.push(Number::from_value(first).float());
        let mut summary = Self::from_value(first)?.with_distribution(Some(distribution));
        values.for_each(|value| summary.push(value));
        Some(summary)
    }

    /// Replaces the counts by range.
    #[must_use]
    pub fn with_distribution(mut self, distribution: Option<Distribution>) -> Self {
        self.set_distribution(distribution.map(Box::new));
        self
    }

    fn set_distribution(&mut self, distribution: Option<Box<Distribution>>) {
        match self {
            Self::Integers(fold) => fold.distribution = distribution,
            Self::Floats(fold) => fold.distribution = distribution,
        }
    }

    /// Returns true if the distribution has these bounds and counts every value.
    #[must_use]
    pub fn is_counted_by(&self, bounds: &[f64]) -> bool {
        self.distribution().is_some_and(|held| **held.bounds() == *bounds) && self.unplaced() == 0
    }

    /// The counts by range, for a field with bounds.
    #[must_use]
    pub fn distribution(&self) -> Option<&Distribution> {
        match self {
            Self::Integers(fold) => fold.distribution.as_deref(),
            Self::Floats(fold) => fold.distribution.as_deref(),
        }
    }

    /// The number of values that the distribution does not count: all of them without one.
    #[must_use]
    pub fn unplaced(&self) -> u64 {
        self.count().saturating_sub(self.distribution().map_or(0, Distribution::total))
    }

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Float(v) => Some(Self::Floats(Fold::<f64, ExactSum>::new(*v))),
            other => Some(Self::Integers(Fold::<i128>::new(Number::from_value(other).integer()?))),
        }
    }

    /// Restores a summary from its figures.
    #[must_use]
    pub fn from_figures(figures: &Figures) -> Self {
        let Figures { count, min, max, sum, rest, first, last, avg: _, distribution } = figures;
        let values = [min, max, first, last].map(Number::from_value);
        let mut summary = Self::from_numbers(*count, values, Number::from_value(sum), rest);
        summary.set_distribution(distribution.clone());
        summary
    }

    /// As [`Self::from_figures`]; `values` are the minimum, maximum, first and last value.
    #[must_use]
    #[inline]
    pub fn from_numbers(count: u64, values: [Number; 4], sum: Number, rest: &SumRest) -> Self {
        // Nearly all stored summaries are of floats.
        if let (
            [Number::Float(min), Number::Float(max), Number::Float(first), Number::Float(last)],
            Number::Float(sum),
        ) = (values, sum)
        {
            return Self::Floats(Fold {
                count,
                min,
                max,
                sum: ExactSum::from_rounded(sum, rest),
                first,
                last,
                distribution: None,
            });
        }
        let has_float = values.iter().any(|number| matches!(number, Number::Float(_)));
        if !has_float && let [Some(min), Some(max), Some(first), Some(last)] = values.map(Number::integer) {
            let sum = sum.integer().unwrap_or_else(|| whole_sum(sum.float(), rest));
            return Self::Integers(Fold { count, min, max, sum, first, last, distribution: None });
        }
        let [min, max, first, last] = values.map(Number::float);
        let sum = ExactSum::from_rounded(sum.float(), rest);
        Self::Floats(Fold { count, min, max, sum, first, last, distribution: None })
    }

    /// Folds one later value in.
    pub fn push(&mut self, value: &Value) {
        match (&mut *self, value) {
            (Self::Floats(fold), Value::Float(v)) => fold.push(*v),
            (Self::Integers(fold), Value::Float(v)) => {
                let mut floats = fold.floats();
                floats.push(*v);
                *self = Self::Floats(floats);
            }
            (Self::Integers(fold), value) => Number::from_value(value).integer().into_iter().for_each(|v| fold.push(v)),
            (Self::Floats(fold), value) => {
                Number::from_value(value).integer().into_iter().for_each(|v| fold.push_integer(v))
            }
        }
    }

    /// The number of numbers folded.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self {
            Self::Integers(fold) => fold.count,
            Self::Floats(fold) => fold.count,
        }
    }

    /// The mean: the sum, rounded once, divided by the count.
    #[must_use]
    pub fn avg(&self) -> f64 {
        match self {
            Self::Integers(fold) => mean(as_float(fold.sum), fold.count),
            Self::Floats(fold) => mean(fold.sum.rounded(), fold.count),
        }
    }

    /// The figures to store in a document.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let mut figures = self.plain_figures();
        figures.distribution = self.distribution().map(|distribution| Box::new(distribution.clone()));
        figures
    }

    fn plain_figures(&self) -> Figures {
        match self {
            Self::Integers(f) => {
                let values = [f.min, f.max, f.first, f.last].map(whole_value);
                // Many clients support only signed 64-bit integers, so a larger sum is stored as a double.
                if let Ok(sum) = i64::try_from(f.sum) {
                    return Figures::with_mean(f.count, values, Value::Integer(sum), SumRest::default());
                }
                let (sum, rest) = f.floats().sum.parts();
                Figures::with_mean(f.count, values, Value::Float(sum), rest)
            }
            Self::Floats(f) => {
                let (sum, rest) = f.sum.parts();
                let values = [f.min, f.max, f.first, f.last].map(Value::Float);
                Figures::with_mean(f.count, values, Value::Float(sum), rest)
            }
        }
    }

    /// The least and the greatest value.
    #[must_use]
    pub fn extremes(&self) -> (Value, Value) {
        match self {
            Self::Integers(f) => (whole_value(f.min), whole_value(f.max)),
            Self::Floats(f) => (Value::Float(f.min), Value::Float(f.max)),
        }
    }

    /// The first and the last value.
    #[must_use]
    pub fn ends(&self) -> (Value, Value) {
        match self {
            Self::Integers(f) => (whole_value(f.first), whole_value(f.last)),
            Self::Floats(f) => (Value::Float(f.first), Value::Float(f.last)),
        }
    }

    /// Merges the summary of a disjoint, later set into this one: `last` becomes that of `later`.
    pub fn unite(&mut self, later: &Self) {
        match (&mut *self, later) {
            (Self::Integers(fold), Self::Integers(later)) => fold.unite(later),
            (Self::Floats(fold), Self::Floats(later)) => fold.unite(later),
            (Self::Floats(fold), Self::Integers(later)) => fold.unite(&later.floats()),
            (Self::Integers(fold), Self::Floats(later)) => {
                let mut floats = fold.floats();
                floats.unite(later);
                *self = Self::Floats(floats);
            }
        }
    }

    /// Like [`Summary::unite`], by value.
    #[must_use]
    pub fn union(mut self, later: &Self) -> Self {
        self.unite(later);
        self
    }

    /// Bytes of memory beyond `size_of::<Self>()`.
    #[must_use]
    pub fn memory(&self) -> usize {
        let sum = if let Self::Floats(fold) = self { fold.sum.memory() } else { 0 };
        sum + self.distribution().map_or(0, Distribution::memory)
    }
}

#[cfg(test)]
mod tests;
