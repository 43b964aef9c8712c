//! One window of one call, filled reading by reading or hour by hour.

use std::cmp::Ordering;
use std::collections::HashSet;

use super::kept::{DistinctValues, Kept};
use super::number::{Arithmetic, arithmetic, number, order};
use super::plan::Function;
use crate::bucket::Summary;
use crate::bucket::summary::Fold;
use crate::bucket::summary::distribution::Distribution;
use crate::query::engine::memory::text_bytes;
use crate::reading::{Hour, Value};

/// A value that a function picked or computed.
#[derive(Debug, Clone, PartialEq)]
pub struct Pick {
    /// The reading's time, if the value is that of one reading.
    pub time: Option<i64>,
    pub value: Value,
    /// The reading's [`Plan::beside`](super::plan::Plan::beside) parts; for `top` and `bottom` by tags, followed by the
    /// values of those tags.
    pub beside: Vec<Option<Value>>,
}

impl Pick {
    /// The memory that it takes in a list.
    fn bytes(&self) -> usize {
        2 * size_of::<Self>() + self.beside.len() * size_of::<Option<Value>>() + self.texts()
    }

    fn texts(&self) -> usize {
        std::iter::once(&self.value).chain(self.beside.iter().flatten()).map(text_bytes).sum()
    }
}

/// A window that is being filled.
#[derive(Debug)]
pub enum OpenWindow {
    /// Count, sum, minimum and maximum: what summaries also hold.
    Summed(Box<Summed>),
    /// One reading.
    Picked(Option<Pick>),
    /// Count, mean and sum of squared deviations (Welford's algorithm).
    Spread { count: f64, mean: f64, squares: f64 },
    /// Counts by range, and the number of values that are in no count.
    Counted { distribution: Distribution, unplaced: u64 },
    /// Every value.
    Kept(Kept),
    /// Every value once.
    Distinct(DistinctValues),
    /// The best readings so far, and some that are not.
    Ranked(Vec<Pick>),
    /// The result of a function that kept values.
    Settled(Option<Pick>),
}

/// What summaries hold.
#[derive(Debug, Default)]
pub struct Summed {
    count: u64,
    /// Integers and other numbers by themselves, because a minimum or maximum of both is the nearest double.
    integers: Option<Summary>,
    floats: Option<Summary>,
    /// Minimum and maximum of booleans and strings.
    least: Option<Value>,
    greatest: Option<Value>,
}

impl OpenWindow {
    /// An empty window for this function. With `picks`, the reading of a minimum or maximum is wanted, not only its
    /// value.
    pub fn new(function: &Function, picks: bool) -> Self {
        match function {
            Function::Min | Function::Max if picks => Self::Picked(None),
            Function::Count | Function::Sum | Function::Mean | Function::Min | Function::Max | Function::Spread => {
                Self::Summed(Box::default())
            }
            Function::First | Function::Last => Self::Picked(None),
            Function::Stddev => Self::Spread { count: 0.0, mean: 0.0, squares: 0.0 },
            Function::Histogram(bounds) => {
                Self::Counted { distribution: Distribution::new(bounds.clone()), unplaced: 0 }
            }
            Function::Distinct | Function::CountDistinct | Function::Mode => Self::Distinct(DistinctValues::default()),
            Function::Percentile(_) => Self::Kept(Kept::new(picks)),
            Function::Top(..) | Function::Bottom(..) => Self::Ranked(Vec::new()),
            _ => Self::Kept(Kept::new(false)),
        }
    }

    /// A window with a result.
    pub fn total(value: f64) -> Self {
        Self::Picked(Some(Pick { time: None, value: Value::Float(value), beside: Vec::new() }))
    }

    /// Adds a reading; `beside` makes its other columns. Returns how many more bytes the window takes.
    pub fn push(
        &mut self,
        function: &Function,
        time: i64,
        value: &Value,
        beside: impl FnOnce() -> Vec<Option<Value>>,
    ) -> usize {
        match self {
            Self::Summed(summed) => summed.push(value),
            Self::Picked(picked) => {
                if picked.as_ref().is_none_or(|held| is_better(function, (time, value), held)) {
                    let before = picked.as_ref().map_or(0, Pick::bytes);
                    let pick = Pick { time: Some(time), value: value.clone(), beside: beside() };
                    let more = pick.bytes().saturating_sub(before);
                    *picked = Some(pick);
                    return more;
                }
            }
            Self::Spread { count, mean, squares } => {
                let Some(value) = number(value) else { return 0 };
                *count += 1.0;
                let distance = value - *mean;
                *mean += distance / *count;
                *squares += distance * (value - *mean);
            }
            Self::Counted { distribution, .. } => number(value).into_iter().for_each(|value| distribution.push(value)),
            Self::Kept(kept) => return kept.push(time, value, beside),
            Self::Distinct(values) => return values.push(time, value),
            Self::Ranked(ranked) => {
                let pick = Pick { time: Some(time), value: value.clone(), beside: beside() };
                let bytes = pick.bytes();
                ranked.push(pick);
                return match function {
                    Function::Top(count, _) | Function::Bottom(count, _)
                        if ranked.len() > count.saturating_mul(2).saturating_add(RANKED) =>
                    {
                        let before = ranked.iter().map(Pick::bytes).sum::<usize>() - bytes;
                        rank(ranked, function);
                        ranked.iter().map(Pick::bytes).sum::<usize>().saturating_sub(before)
                    }
                    _ => bytes,
                };
            }
            Self::Settled(_) => debug_assert!(false, "a settled window has all its readings"),
        }
        0
    }

    /// Replaces the values of a window that has all its readings by their result. Returns the bytes freed.
    pub fn settle(&mut self, function: &Function) -> usize {
        let before = match self {
            Self::Kept(kept) => kept.bytes() + kept.texts(),
            Self::Distinct(values) if *function != Function::Distinct => values.bytes(),
            Self::Ranked(ranked) => {
                let before = ranked.iter().map(Pick::bytes).sum::<usize>();
                rank(ranked, function);
                return before.saturating_sub(ranked.iter().map(Pick::bytes).sum());
            }
            _ => return 0,
        };
        let mut result = None;
        self.finish(function, false, |pick| result = Some(pick));
        let after = result.as_ref().map_or(0, |pick| pick.bytes());
        *self = Self::Settled(result);
        before.saturating_sub(after)
    }

    /// Adds an hour by its summary. For a function that picks an end, no other sensor may have given the same hour;
    /// several summaries of one hour come in the order of their readings.
    pub fn absorb(&mut self, function: &Function, hour: Hour, summary: &Summary) {
        match self {
            Self::Summed(summed) => {
                summed.count += summary.count();
                let is_integers = matches!(summary, Summary::Integers(_));
                match if is_integers { &mut summed.integers } else { &mut summed.floats } {
                    Some(held) => held.unite(summary),
                    none => *none = Some(summary.clone()),
                }
            }
            Self::Picked(picked) if function.is_end() => {
                let (time, is_first) = (Some(hour.start_ns()), *function == Function::First);
                let is_further = |held: &Pick| if is_first { time < held.time } else { time >= held.time };
                if picked.as_ref().is_none_or(is_further) {
                    let (first, last) = summary.ends();
                    *picked = Some(Pick { time, value: if is_first { first } else { last }, beside: Vec::new() });
                }
            }
            Self::Counted { distribution, unplaced } => {
                let is_counted = summary.distribution().is_some_and(|counts| distribution.unite(counts));
                *unplaced += if is_counted { summary.unplaced() } else { summary.count() };
            }
            _ => {}
        }
    }

    /// The memory of its counts.
    pub fn count_bytes(function: &Function) -> usize {
        if let Function::Histogram(bounds) = function { 4 * size_of_val(&**bounds) + 64 } else { 0 }
    }

    /// The memory of its text values.
    pub fn text_bytes(&self) -> usize {
        match self {
            Self::Picked(pick) => pick.iter().map(Pick::texts).sum(),
            Self::Kept(kept) => kept.texts(),
            Self::Distinct(values) => values.texts(),
            Self::Ranked(ranked) => ranked.iter().map(Pick::texts).sum(),
            Self::Settled(pick) => pick.iter().map(Pick::texts).sum(),
            Self::Summed(_) | Self::Spread { .. } | Self::Counted { .. } => 0,
        }
    }

    /// Upper bound on the number of values it yields.
    pub fn len(&self) -> usize {
        match self {
            Self::Ranked(ranked) => ranked.len(),
            Self::Distinct(values) => values.len(),
            _ => 1,
        }
    }

    /// The exact integer sum, if it exceeds `i64`.
    pub fn wide_sum(&self) -> Option<i128> {
        match self {
            Self::Summed(summed) => match (&summed.integers, &summed.floats) {
                (Some(Summary::Integers(Fold { sum, .. })), None) => {
                    Some(*sum).filter(|sum| i64::try_from(*sum).is_err())
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Passes the function's values to `give`, in order. Readings are moved out of the window; what summaries hold
    /// stays, since several functions may share it.
    pub fn finish(&mut self, function: &Function, descending: bool, give: impl FnMut(Pick)) {
        let made = |value: Option<Value>| value.map(|value| Pick { time: None, value, beside: Vec::new() });
        match self {
            Self::Summed(summed) => made(summed.finish(function)).into_iter().for_each(give),
            Self::Picked(pick) | Self::Settled(pick) => pick.take().into_iter().for_each(give),
            Self::Spread { count, squares, .. } => {
                // The deviation of a single reading is NaN, which is shown as null.
                let deviation = (*count > 0.0).then(|| Value::Float((*squares / (*count - 1.0)).sqrt()));
                made(deviation).into_iter().for_each(give);
            }
            Self::Counted { distribution, unplaced } => {
                let count = |count: u64| Value::Integer(i64::try_from(count).unwrap_or(i64::MAX));
                let value = count(distribution.total().saturating_add(*unplaced));
                let parts = distribution.counts().iter().chain([&*unplaced]).map(|part| Some(count(*part)));
                made(Some(value)).map(|pick| Pick { beside: parts.collect(), ..pick }).into_iter().for_each(give);
            }
            Self::Kept(kept) => {
                let kept = std::mem::replace(kept, Kept::new(false));
                match function {
                    Function::Percentile(percent) => kept.percentile(*percent).into_iter().for_each(give),
                    _ => made(kept.median()).into_iter().for_each(give),
                }
            }
            Self::Distinct(values) => {
                let values = std::mem::take(values);
                match function {
                    Function::Mode => made(values.mode()).into_iter().for_each(give),
                    Function::CountDistinct => {
                        let count = i64::try_from(values.len()).unwrap_or(i64::MAX);
                        made(Some(Value::Integer(count))).into_iter().for_each(give);
                    }
                    _ => {
                        let pick = |(time, value)| Pick { time: Some(time), value, beside: Vec::new() };
                        values.values(descending).into_iter().map(pick).for_each(give);
                    }
                }
            }
            Self::Ranked(ranked) => {
                let mut ranked = std::mem::take(ranked);
                rank(&mut ranked, function);
                ranked.sort_by_key(|pick| pick.time);
                ranked.into_iter().for_each(give);
            }
        }
    }
}

impl Summed {
    fn push(&mut self, value: &Value) {
        self.count += 1;
        let numbers = match value {
            Value::Boolean(_) | Value::String(_) => {
                if self.least.as_ref().is_none_or(|held| order(value, held) == Some(Ordering::Less)) {
                    self.least = Some(value.clone());
                }
                if self.greatest.as_ref().is_none_or(|held| order(value, held) == Some(Ordering::Greater)) {
                    self.greatest = Some(value.clone());
                }
                return;
            }
            Value::Integer(_) | Value::Unsigned(_) => &mut self.integers,
            Value::Float(_) => &mut self.floats,
        };
        match numbers {
            Some(numbers) => numbers.push(value),
            none => *none = Summary::fold(std::iter::once(value)),
        }
    }

    /// The summary of all numbers.
    fn numbers(&self) -> Option<Summary> {
        match (&self.integers, &self.floats) {
            (Some(integers), Some(floats)) => {
                let mut all = integers.clone();
                all.unite(floats);
                Some(all)
            }
            (one, other) => one.as_ref().or(other.as_ref()).cloned(),
        }
    }

    fn extreme(&self, wanted: Ordering) -> Option<Value> {
        let text = if wanted == Ordering::Less { &self.least } else { &self.greatest };
        let of_numbers = |summary: &Summary| {
            let (least, greatest) = summary.extremes();
            if wanted == Ordering::Less { least } else { greatest }
        };
        let numbers = self.integers.iter().chain(&self.floats).map(of_numbers);
        numbers.chain(text.clone()).reduce(|held, next| if order(&next, &held) == Some(wanted) { next } else { held })
    }

    fn finish(&self, function: &Function) -> Option<Value> {
        match function {
            Function::Count => (self.count > 0).then(|| Value::Integer(i64::try_from(self.count).unwrap_or(i64::MAX))),
            Function::Sum => self.numbers().map(|numbers| numbers.figures().sum),
            Function::Mean => self.numbers().map(|numbers| numbers.figures().avg),
            Function::Min => self.extreme(Ordering::Less),
            Function::Max => self.extreme(Ordering::Greater),
            Function::Spread => {
                let least = self.extreme(Ordering::Less)?;
                let greatest = self.extreme(Ordering::Greater)?;
                arithmetic(Arithmetic::Sub, &greatest, &least)
            }
            _ => None,
        }
    }
}

/// Whether a reading replaces the held one. Of equal values the earlier wins; of values at one time the greater, except
/// that `first()` of booleans takes false, as in InfluxDB.
fn is_better(function: &Function, (time, value): (i64, &Value), held: &Pick) -> bool {
    let order = order(value, &held.value);
    let earlier = Some(time) < held.time;
    let first = if matches!(value, Value::Boolean(_)) { Ordering::Less } else { Ordering::Greater };
    match function {
        Function::Min => order == Some(Ordering::Less) || (order == Some(Ordering::Equal) && earlier),
        Function::Max => order == Some(Ordering::Greater) || (order == Some(Ordering::Equal) && earlier),
        Function::First => earlier || (Some(time) == held.time && order == Some(first)),
        Function::Last => Some(time) > held.time || (Some(time) == held.time && order == Some(Ordering::Greater)),
        _ => false,
    }
}

/// The number of readings that a ranking holds, beyond twice its own number, before it drops the lesser ones.
const RANKED: usize = 256;

/// Keeps the best readings, the best one first; of equal values the earlier one. With tags, whose values are the last
/// ones in `beside`, only the best of each combination.
fn rank(readings: &mut Vec<Pick>, function: &Function) {
    let (Function::Top(count, tags) | Function::Bottom(count, tags)) = function else { return };
    let is_top = matches!(function, Function::Top(..));
    // Readings of one time stay in the order of their sensors.
    readings.sort_by_key(|pick| pick.time);
    readings.sort_by(|a, b| {
        let order = order(&a.value, &b.value).unwrap_or(Ordering::Equal);
        if is_top { order.reverse() } else { order }
    });
    if !tags.is_empty() {
        let mut seen: HashSet<Vec<Option<Box<str>>>> = HashSet::new();
        readings.retain(|pick| {
            let tag = |tag: &Option<Value>| if let Some(Value::String(tag)) = tag { Some(tag.clone()) } else { None };
            seen.insert(pick.beside[pick.beside.len() - tags.len()..].iter().map(tag).collect())
        });
    }
    readings.truncate(*count);
}
