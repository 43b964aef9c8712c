//! Aggregates: functions that compute one value from all of a field's values in a window. To add one, add a row to the
//! table here, where the native API finds it, and its name to the checks of `influxql`.

use std::cmp::Ordering;

use super::filter::{number, order};
use super::plan::Function;
use crate::reading::{Family, Value};

/// A time in nanoseconds, and a value.
pub type Timed = (i64, Value);

/// A function of all values of a window.
#[derive(Debug)]
pub struct Aggregate {
    /// In lower case.
    pub name: &'static str,
    /// Whether it accepts values of a family.
    pub takes: fn(Family) -> bool,
    /// Computes the result. The values come by time; those of one time in the order of their sensors.
    pub of: fn(&mut [Timed]) -> Option<Value>,
}

static AGGREGATES: &[Aggregate] = &[
    Aggregate { name: "median", takes: is_number, of: median },
    Aggregate { name: "mode", takes: |_| true, of: mode },
];

#[must_use]
pub fn named(name: &str) -> Option<&'static Aggregate> {
    AGGREGATES.iter().find(|aggregate| aggregate.name == name)
}

/// The function of one field, without further arguments, that both languages know by a name.
#[must_use]
pub fn function(name: &str) -> Option<Function> {
    Some(match name {
        "count" => Function::Count,
        "sum" => Function::Sum,
        "mean" => Function::Mean,
        "min" => Function::Min,
        "max" => Function::Max,
        "first" => Function::First,
        "last" => Function::Last,
        "stddev" => Function::Stddev,
        other => Function::Aggregate(named(other)?),
    })
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

/// The most frequent value. Ties as InfluxDB breaks them: of two equally frequent values the greater one wins if it occurs
/// more than once and its first occurrence is not after the other's last; if not, the lesser one.
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
