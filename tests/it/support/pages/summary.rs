//! The summary of a page, computed from its readings by independent code and compared bit for bit.

use std::collections::BTreeMap;

use bson::raw::{RawBsonRef, RawDocument};
use hourglass::reading::Value;

use super::{Reading, get, keys, name_of, whole};
use crate::support::exact::Exact;

const KEYS: [&str; 7] = ["count", "min", "max", "sum", "avg", "first", "last"];

/// Checks the stored summaries of a page's numeric fields.
pub fn check(stored: &RawDocument, readings: &[Reading], id: &str) {
    let mut numbers: BTreeMap<&str, Vec<Number>> = BTreeMap::new();
    for (name, value) in readings.iter().flat_map(|reading| &reading.fields) {
        if let Some(number) = Number::from_value(value) {
            numbers.entry(name).or_default().push(number);
        }
    }
    let mut seen = 0;
    for element in stored {
        let (name, summary) = element.expect("BSON");
        let name = name_of(name.as_str());
        let summary = summary.as_document().unwrap_or_else(|| panic!("{id}: the summary of {name} is a document"));
        let numbers = numbers.get(&*name).unwrap_or_else(|| panic!("{id}: a summary of {name}, which has no number"));
        let has_rest = matches!(get(summary, "sum"), RawBsonRef::Double(_));
        let expected = KEYS.into_iter().chain(has_rest.then_some("rest")).collect();
        assert_eq!(keys(summary), expected, "{id}: the summary of {name}");
        if has_rest {
            check_rest(summary, numbers, &format!("{id}: {name}"));
        }
        assert_eq!(whole(summary, "count"), i64::try_from(numbers.len()).expect("few"), "{id}: count of {name}");
        for (part, expected) in fold(numbers) {
            let found = get(summary, part);
            assert!(expected.is(found), "{id}: {part} of {name} is {found:?}, the fold says {expected:?}");
        }
        seen += 1;
    }
    assert_eq!(seen, numbers.len(), "{id}: summaries of {:?}", numbers.keys());
}

/// A number of a fold, exact or as a double.
#[derive(Debug, Clone, Copy)]
enum Number {
    Whole(i128),
    Double(f64),
}

impl Number {
    fn from_value(value: &Value) -> Option<Number> {
        match value {
            Value::Float(v) => Some(Number::Double(*v)),
            Value::Integer(v) => Some(Number::Whole(i128::from(*v))),
            Value::Unsigned(v) => Some(Number::Whole(i128::from(*v))),
            Value::Boolean(_) | Value::String(_) => None,
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "the nearest double is what the law asks for")]
    fn double(self) -> f64 {
        match self {
            Number::Whole(v) => v as f64,
            Number::Double(v) => v,
        }
    }

    /// Compares bit for bit. An integer beyond Int64 may be a Decimal128, or for a sum a double.
    fn is(self, stored: RawBsonRef<'_>) -> bool {
        match (self, stored) {
            (Number::Whole(v), RawBsonRef::Int64(stored)) => v == i128::from(stored),
            (Number::Whole(v), RawBsonRef::Decimal128(stored)) => {
                i64::try_from(v).is_err() && stored.to_string() == v.to_string()
            }
            (Number::Whole(v), RawBsonRef::Double(stored)) => {
                i64::try_from(v).is_err() && self.double().to_bits() == stored.to_bits()
            }
            (Number::Double(v), RawBsonRef::Double(stored)) => v.to_bits() == stored.to_bits(),
            _ => false,
        }
    }
}

/// Folds numbers in time order, exactly; with any double among them, all but the sum are rounded to doubles.
fn fold(numbers: &[Number]) -> [(&'static str, Number); 6] {
    let wholes: Option<Vec<i128>> =
        numbers.iter().map(|n| if let Number::Whole(v) = n { Some(*v) } else { None }).collect();
    #[allow(clippy::cast_precision_loss, reason = "a page's count is small")]
    let count = numbers.len() as f64;
    if let Some(wholes) = wholes {
        let min = wholes.iter().min().expect("some");
        let max = wholes.iter().max().expect("some");
        let sum: i128 = wholes.iter().sum();
        let avg = Number::Double(Number::Whole(sum).double() / count);
        let [min, max, sum] = [*min, *max, sum].map(Number::Whole);
        return parts(min, max, sum, avg, numbers[0], numbers[numbers.len() - 1]);
    }
    let doubles: Vec<f64> = numbers.iter().map(|number| number.double()).collect();
    // Negative zero is less than zero.
    let least = doubles.iter().copied().min_by(f64::total_cmp).expect("some");
    let greatest = doubles.iter().copied().max_by(f64::total_cmp).expect("some");
    let sum = exact(numbers).rounded();
    let [min, max, sum, avg, first, last] =
        [least, greatest, sum, sum / count, doubles[0], doubles[doubles.len() - 1]].map(Number::Double);
    parts(min, max, sum, avg, first, last)
}

fn exact(numbers: &[Number]) -> Exact {
    let value = |number: &Number| match number {
        Number::Whole(v) => {
            i64::try_from(*v).map_or_else(|_| Value::Unsigned((*v).try_into().expect("64 bits")), Value::Integer)
        }
        Number::Double(v) => Value::Float(*v),
    };
    Exact::sum(numbers.iter().map(value).collect::<Vec<_>>().iter())
}

/// Checks the residue beside a sum that is a double.
fn check_rest(stored: &RawDocument, numbers: &[Number], place: &str) {
    let doubles: Vec<f64> = match get(stored, "rest") {
        RawBsonRef::Double(0.0) => Vec::new(),
        RawBsonRef::Double(one) => vec![one],
        RawBsonRef::Array(parts) => parts.into_iter().map(|part| part.unwrap().as_f64().expect("a double")).collect(),
        other => panic!("{place}: the rest is {other:?}"),
    };
    if get(stored, "sum").as_f64().is_some_and(f64::is_infinite) {
        return assert!(!doubles.is_empty(), "{place}: the whole sum is left");
    }
    let left: Vec<f64> = exact(numbers).parts().into_iter().skip(1).collect();
    assert_eq!(doubles, left, "{place}: what rounding left");
}

fn parts(
    min: Number,
    max: Number,
    sum: Number,
    avg: Number,
    first: Number,
    last: Number,
) -> [(&'static str, Number); 6] {
    [("min", min), ("max", max), ("sum", sum), ("avg", avg), ("first", first), ("last", last)]
}
