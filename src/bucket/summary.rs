//! The running summary of one numeric field: a fold over its values in time order.

use crate::reading::Value;

/// Count, min, max, sum, first and last of the numbers a field holds on one page.
///
/// The fold is defined so that it can be repeated bit for bit: integers alone are folded exactly
/// (in `i128`), and as soon as one float is among the values all of them are folded as `f64`,
/// left to right in time order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Summary {
    /// Every value was an integer.
    Integers(Fold<i128>),
    /// At least one value was a float.
    Floats(Fold<f64>),
}

/// One fold, in the kind of number it was made with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fold<T> {
    /// How many values.
    pub count: u64,
    /// The least value.
    pub min: T,
    /// The greatest value.
    pub max: T,
    /// The values added up, in time order.
    pub sum: T,
    /// The earliest value.
    pub first: T,
    /// The latest value.
    pub last: T,
}

impl<T: Copy + PartialOrd + std::ops::AddAssign> Fold<T> {
    fn of(value: T) -> Self {
        Self { count: 1, min: value, max: value, sum: value, first: value, last: value }
    }

    fn push(&mut self, value: T) {
        self.count += 1;
        if value < self.min {
            self.min = value;
        }
        if value > self.max {
            self.max = value;
        }
        self.sum += value;
        self.last = value;
    }
}

/// A summary as documents hold it. Two are equal when they are in every bit.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// How many values.
    pub count: u64,
    /// The least value.
    pub min: Value,
    /// The greatest value.
    pub max: Value,
    /// The values added up; integers beyond 64 bits as the nearest double.
    pub sum: Value,
    /// The mean.
    pub avg: Value,
    /// The earliest value.
    pub first: Value,
    /// The latest value.
    pub last: Value,
}

impl Figures {
    /// These figures, with the mean that they make.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the mean is a double, and a page's count is far below 2^53")]
    pub fn with_mean(count: u64, min: Value, max: Value, sum: Value, first: Value, last: Value) -> Self {
        let whole = match &sum {
            Value::Float(v) => *v,
            Value::Integer(v) => *v as f64,
            Value::Unsigned(v) => *v as f64,
            Value::Boolean(_) | Value::String(_) => f64::NAN,
        };
        Self { avg: Value::Float(whole / count as f64), count, min, max, sum, first, last }
    }
}

enum Number {
    Integer(i128),
    Float(f64),
}

fn number(value: &Value) -> Option<Number> {
    match value {
        Value::Float(v) => Some(Number::Float(*v)),
        Value::Integer(v) => Some(Number::Integer(i128::from(*v))),
        Value::Unsigned(v) => Some(Number::Integer(i128::from(*v))),
        Value::Boolean(_) | Value::String(_) => None,
    }
}

/// An integer as the `f64` nearest to it: what a fold with a float among its values counts with.
#[expect(clippy::cast_precision_loss, reason = "the nearest double is what the law asks for")]
fn as_float(integer: i128) -> f64 {
    integer as f64
}

/// An integer in the kind of value that readings have it in.
fn whole_value(integer: i128) -> Value {
    match (i64::try_from(integer), u64::try_from(integer)) {
        (Ok(v), _) => Value::Integer(v),
        (Err(_), Ok(v)) => Value::Unsigned(v),
        // No reading holds such a one.
        (Err(_), Err(_)) => Value::Float(as_float(integer)),
    }
}

impl Summary {
    /// The fold over `values` in the given order; `None` when there is no number among them.
    pub fn fold<'a>(values: impl Iterator<Item = &'a Value> + Clone) -> Option<Self> {
        let floats = values.clone().any(|v| matches!(v, Value::Float(_)));
        let mut summary: Option<Self> = None;
        for value in values.filter_map(number) {
            let value = match value {
                Number::Integer(v) if floats => Number::Float(as_float(v)),
                other => other,
            };
            match (&mut summary, value) {
                (None, Number::Integer(v)) => summary = Some(Self::Integers(Fold::of(v))),
                (None, Number::Float(v)) => summary = Some(Self::Floats(Fold::of(v))),
                (Some(Self::Integers(fold)), Number::Integer(v)) => fold.push(v),
                (Some(Self::Floats(fold)), Number::Float(v)) => fold.push(v),
                // `floats` made every value of one kind.
                (Some(_), _) => {}
            }
        }
        summary
    }

    /// Folds one later value in. `false` when that cannot be done from here, because a float came
    /// to integers: the whole fold is then to be made anew.
    #[must_use]
    pub fn push(&mut self, value: &Value) -> bool {
        match (self, number(value)) {
            (_, None) => {}
            (Self::Integers(fold), Some(Number::Integer(v))) => fold.push(v),
            (Self::Integers(_), Some(Number::Float(_))) => return false,
            (Self::Floats(fold), Some(Number::Integer(v))) => fold.push(as_float(v)),
            (Self::Floats(fold), Some(Number::Float(v))) => fold.push(v),
        }
        true
    }

    /// How many numbers were folded.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self {
            Self::Integers(fold) => fold.count,
            Self::Floats(fold) => fold.count,
        }
    }

    /// The mean: sum over count, as `f64`.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a page's count is far below 2^53")]
    pub fn avg(&self) -> f64 {
        match self {
            Self::Integers(fold) => as_float(fold.sum) / fold.count as f64,
            Self::Floats(fold) => fold.sum / fold.count as f64,
        }
    }

    /// What a document says of it.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let (count, avg) = (self.count(), Value::Float(self.avg()));
        match self {
            Self::Integers(f) => {
                let [min, max, first, last] = [f.min, f.max, f.first, f.last].map(whole_value);
                // A sum stays an integer only while it is a signed one, as most readers of documents know no other.
                let sum = i64::try_from(f.sum).map_or_else(|_| Value::Float(as_float(f.sum)), Value::Integer);
                Figures { count, min, max, sum, avg, first, last }
            }
            Self::Floats(f) => {
                let [min, max, sum, first, last] = [f.min, f.max, f.sum, f.first, f.last].map(Value::Float);
                Figures { count, min, max, sum, avg, first, last }
            }
        }
    }

    /// The summary of two disjoint sets, of which `later` is taken to lie after `self`. Exact for
    /// integers; for floats the sum is that of two partial sums, so its last bits may differ from
    /// one fold over all.
    #[must_use]
    pub fn union(self, later: Self) -> Self {
        match (self, later) {
            (Self::Integers(a), Self::Integers(b)) => Self::Integers(unite(a, b)),
            (a, b) => Self::Floats(unite(a.floats(), b.floats())),
        }
    }

    fn floats(self) -> Fold<f64> {
        match self {
            Self::Floats(fold) => fold,
            Self::Integers(f) => Fold {
                count: f.count,
                min: as_float(f.min),
                max: as_float(f.max),
                sum: as_float(f.sum),
                first: as_float(f.first),
                last: as_float(f.last),
            },
        }
    }
}

fn unite<T: Copy + PartialOrd + std::ops::Add<Output = T>>(a: Fold<T>, b: Fold<T>) -> Fold<T> {
    Fold {
        count: a.count + b.count,
        min: if b.min < a.min { b.min } else { a.min },
        max: if b.max > a.max { b.max } else { a.max },
        sum: a.sum + b.sum,
        first: a.first,
        last: b.last,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX: i128 = i64::MAX as i128;

    fn fold(values: &[Value]) -> Option<Summary> {
        Summary::fold(values.iter())
    }

    fn integers(values: &[Value]) -> Fold<i128> {
        match fold(values) {
            Some(Summary::Integers(fold)) => fold,
            other => panic!("integers are folded exactly: {other:?}"),
        }
    }

    fn floats(values: &[Value]) -> Fold<f64> {
        match fold(values) {
            Some(Summary::Floats(fold)) => fold,
            other => panic!("a float makes all of them floats: {other:?}"),
        }
    }

    /// All bits of it, so that `0.0` and `-0.0` differ.
    fn bits(summary: Option<Summary>) -> String {
        match summary {
            Some(Summary::Floats(f)) => {
                format!("{} {:?}", f.count, [f.min, f.max, f.sum, f.first, f.last].map(f64::to_bits))
            }
            other => format!("{other:?}"),
        }
    }

    fn values() -> impl Strategy<Value = Vec<Value>> {
        let finite = prop::num::f64::NORMAL | prop::num::f64::ZERO | prop::num::f64::SUBNORMAL;
        let value = prop_oneof![
            2 => finite.prop_map(|v| Value::Float(v / 1e10)),
            4 => any::<i64>().prop_map(Value::Integer),
            1 => (1 << 63..=u64::MAX).prop_map(Value::Unsigned),
            1 => any::<bool>().prop_map(Value::Boolean),
            1 => Just(Value::String("text".into())),
        ];
        prop::collection::vec(value, 0..12)
    }

    #[test]
    fn integers_are_summed_exactly() {
        let sum = integers(&[Value::Integer(i64::MAX), Value::Integer(i64::MAX), Value::Unsigned(u64::MAX)]);
        assert_eq!(sum.sum, 2 * MAX + i128::from(u64::MAX));
        assert_eq!((sum.min, sum.max, sum.first, sum.last), (MAX, i128::from(u64::MAX), MAX, i128::from(u64::MAX)));
        let back = integers(&[Value::Integer(i64::MAX), Value::Integer(1), Value::Integer(i64::MIN)]);
        assert_eq!((back.sum, back.min, back.max), (0, i128::from(i64::MIN), MAX));
    }

    #[test]
    fn floats_are_summed_from_left_to_right() {
        let [tenth, fifth, large] = [0.1, 0.2, 1e16].map(Value::Float);
        let forth = floats(&[tenth.clone(), fifth.clone(), large.clone(), Value::Float(-1e16)]);
        let back = floats(&[large, Value::Float(-1e16), fifth, tenth]);
        assert_eq!((forth.sum, back.sum), (0.1 + 0.2 + 1e16 - 1e16, 0.2 + 0.1));
        assert_ne!(forth.sum.to_bits(), back.sum.to_bits(), "the order tells");
    }

    #[test]
    fn one_float_makes_every_integer_the_nearest_double() {
        let odd = Value::Integer((1 << 53) + 1);
        let nearest = 9_007_199_254_740_992.0;
        for values in [[odd.clone(), Value::Float(0.0)], [Value::Float(0.0), odd.clone()]] {
            let fold = floats(&values);
            assert_eq!((fold.max, fold.sum, fold.min), (nearest, nearest, 0.0));
        }
        // Each is rounded by itself: no exact partial sum goes before the float.
        let fold = floats(&[odd.clone(), odd, Value::Float(0.0)]);
        assert_eq!(fold.sum, nearest + nearest);
        assert_eq!(floats(&[Value::Unsigned(u64::MAX), Value::Float(1.0)]).max, 18_446_744_073_709_551_616.0);
    }

    #[test]
    fn what_is_no_number_is_passed_over() {
        assert_eq!(fold(&[]), None);
        assert_eq!(fold(&[Value::Boolean(true), Value::String("7".into())]), None);
        let mixed = integers(&[Value::Boolean(true), Value::Integer(4), Value::String("9".into())]);
        assert_eq!((mixed.count, mixed.sum, mixed.first, mixed.last), (1, 4, 4, 4));
    }

    #[test]
    fn the_mean_is_sum_over_count() {
        let mean = |values: &[Value]| fold(values).map(|summary| summary.avg());
        assert_eq!(mean(&[Value::Integer(1), Value::Integer(2)]), Some(1.5));
        assert_eq!(mean(&[Value::Integer(i64::MAX), Value::Integer(i64::MAX)]), Some(9_223_372_036_854_775_807.0));
        assert_eq!(mean(&[Value::Float(0.5), Value::Integer(1)]), Some(0.75));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_fold_is_continued_by_push(values in values(), cut in 0..12_usize) {
            let (now, later) = values.split_at(cut.min(values.len()));
            let Some(mut continued) = fold(now) else { return Ok(()) };
            let integers = matches!(continued, Summary::Integers(_));
            let float_comes = later.iter().any(|value| matches!(value, Value::Float(_)));
            let went = later.iter().all(|value| continued.push(value));
            prop_assert_eq!(went, !(integers && float_comes), "only a float that comes to integers stops it");
            if went {
                prop_assert_eq!(bits(Some(continued)), bits(fold(&values)));
            }
        }

        #[test]
        fn the_union_of_two_is_the_fold_over_both(values in values(), cut in 0..12_usize) {
            let (now, later) = values.split_at(cut.min(values.len()));
            let (Some(a), Some(b)) = (fold(now), fold(later)) else { return Ok(()) };
            prop_assert_eq!(a.count() + b.count(), a.union(b).count());
            match (a.union(b), fold(&values)) {
                (Summary::Floats(united), Some(Summary::Floats(whole))) => {
                    let magnitude: f64 = values.iter().filter_map(number).map(|n| match n {
                        Number::Integer(v) => as_float(v).abs(),
                        Number::Float(v) => v.abs(),
                    }).sum();
                    prop_assert!((united.sum - whole.sum).abs() <= magnitude * 1e-14, "{} {}", united.sum, whole.sum);
                    let sum = whole.sum;
                    prop_assert_eq!(Summary::Floats(Fold { sum, ..united }), Summary::Floats(whole));
                }
                (united, whole) => prop_assert_eq!(Some(united), whole, "integers exactly"),
            }
        }
    }
}
