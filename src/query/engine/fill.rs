//! Fills empty windows as `fill()` says.

use super::filter::{arithmetic, number};
use crate::influxql::{Fill, Operator};
use crate::reading::Value;

/// A window's start and the value shown.
pub type Filled = (i64, Option<Value>);

/// Every window in `starts`, filled if `values` has none. Both are in display order. A value before the current window
/// takes that window's place; values after the last one are appended.
#[must_use]
pub fn fill(fill: Fill, starts: &[i64], values: Vec<(i64, Value)>, counts: bool, descending: bool) -> Vec<Filled> {
    if fill == Fill::None {
        return values.into_iter().map(|(time, value)| (time, Some(value))).collect();
    }
    let mut filled = Vec::with_capacity(starts.len());
    let mut before: Option<(i64, Value)> = None;
    let mut values = values.into_iter().peekable();
    let every = starts.windows(2).next().map_or(1, |pair| (pair[1] - pair[0]).abs());
    for start in starts {
        if let Some((time, value)) = values.next_if(|(time, _)| time == start || (time < start) != descending) {
            before = Some((time, value.clone()));
            filled.push((time, Some(value)));
            continue;
        }
        let shown = match fill {
            Fill::Null if counts => Some(Value::Integer(0)),
            Fill::Null | Fill::None => None,
            Fill::Previous => before.as_ref().map(|(_, value)| value.clone()),
            Fill::Linear => match (&before, values.peek()) {
                (Some(before), Some(after)) => between(before, after, *start, every),
                _ => None,
            },
            Fill::Integer(_) | Fill::Float(_) => {
                let like = values.peek().or(before.as_ref()).map(|(_, value)| value);
                constant(fill, like)
            }
        };
        filled.push((*start, shown));
    }
    filled.extend(values.map(|(time, value)| (time, Some(value))));
    filled
}

/// A constant fill, converted to the type of a neighbouring value.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a fill is converted to the type of the column"
)]
pub fn constant(fill: Fill, like: Option<&Value>) -> Option<Value> {
    let (whole, float) = match fill {
        Fill::Integer(v) => (v, v as f64),
        Fill::Float(v) => (v as i64, v),
        _ => return None,
    };
    Some(match like {
        Some(Value::Integer(_) | Value::Unsigned(_)) => Value::Integer(whole),
        Some(Value::String(_)) => Value::String("".into()),
        Some(Value::Boolean(_)) => Value::Boolean(false),
        Some(Value::Float(_)) => Value::Float(float),
        None => match fill {
            Fill::Integer(v) => Value::Integer(v),
            _ => Value::Float(float),
        },
    })
}

/// Linear interpolation; the distance is counted in windows.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "InfluxDB computes with doubles, too")]
fn between((from, a): &(i64, Value), (to, b): &(i64, Value), at: i64, every: i64) -> Option<Value> {
    let rise = number(&arithmetic(Operator::Sub, b, a)?)?;
    let slope = rise / (to / every - from / every) as f64;
    let value = slope * (at / every - from / every) as f64 + number(a)?;
    Some(match a {
        Value::Integer(_) => Value::Integer(value as i64),
        _ => Value::Float(value),
    })
}
