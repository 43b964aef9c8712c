//! Aggregates: functions that make one value of all of a field's values in a window. A row of the table here is all that
//! one needs: InfluxQL and our own API know it by its name.

use std::cmp::Ordering;

use super::filter::{number, order};
use crate::reading::{Family, Value};

/// A time in nanoseconds, and a value.
pub type Timed = (i64, Value);

/// A function of all values of a window.
#[derive(Debug)]
pub struct Aggregate {
    /// What it is called, in small letters.
    pub name: &'static str,
    /// Whether it is for values of a family.
    pub takes: fn(Family) -> bool,
    /// What it makes of a window's values, which come by time, and those of one time in the order of their sensors.
    pub of: fn(&mut [Timed]) -> Option<Value>,
}

/// All of them.
pub static AGGREGATES: &[Aggregate] = &[
    Aggregate { name: "median", takes: is_number, of: median },
    Aggregate { name: "mode", takes: |_| true, of: mode },
];

/// The aggregate of that name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Aggregate> {
    AGGREGATES.iter().find(|aggregate| aggregate.name == name)
}

/// Whether there is one of that name.
#[must_use]
pub fn is_known(name: &str) -> bool {
    named(name).is_some()
}

impl PartialEq for Aggregate {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

fn is_number(family: Family) -> bool {
    family == Family::Number
}

fn sort(values: &mut [Timed]) {
    values.sort_by(|a, b| order(&a.1, &b.1).unwrap_or(Ordering::Equal));
}

fn median(values: &mut [Timed]) -> Option<Value> {
    sort(values);
    let middle = values.len() / 2;
    let value = |at: usize| values.get(at).and_then(|(_, value)| number(value));
    if values.len() % 2 == 1 {
        return value(middle).map(Value::Float);
    }
    let (low, high) = (value(middle.checked_sub(1)?)?, value(middle)?);
    Some(Value::Float(low + (high - low) / 2.0))
}

/// The most frequent value. Of values as frequent the one counts that InfluxDB finds: going by value, a later run takes
/// the place of the one held when it starts no later than that one ends.
fn mode(values: &mut [Timed]) -> Option<Value> {
    sort(values);
    let mut best: Option<(usize, i64, &Value)> = None;
    for run in values.chunk_by(|a, b| a.1 == b.1) {
        let is_better = best.is_none_or(|(count, ends, _)| {
            run.len() > count || (run.len() == count && run.len() > 1 && run[0].0 <= ends)
        });
        if is_better {
            best = Some((run.len(), run[run.len() - 1].0, &run[0].1));
        }
    }
    best.map(|(.., value)| value.clone())
}
