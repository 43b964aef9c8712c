//! Fills empty windows.

use super::number::{number, whole};
use crate::reading::Value;

/// The content of windows without readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fill {
    /// No row.
    None,
    Null,
    /// The value of the window before.
    Previous,
    /// A value on the line between the values beside, counted in windows.
    Linear,
    Integer(i64),
    Float(f64),
}

impl Fill {
    /// Returns true if missing values of single readings are filled, too.
    #[must_use]
    pub fn fills_rows(self) -> bool {
        matches!(self, Self::Previous | Self::Integer(_) | Self::Float(_))
    }

    /// Returns the same fill, with null in place of a number.
    #[must_use]
    pub fn without_constant(self) -> Self {
        if matches!(self, Self::Integer(_) | Self::Float(_)) { Self::Null } else { self }
    }
}

/// A window's start and the value shown.
pub type Filled = (i64, Option<Value>);

/// The windows to fill.
#[derive(Debug, Clone, Copy)]
pub struct Grid<'a> {
    /// Their starts in display order. With a limit, there may be values behind them.
    pub starts: &'a [i64],
    /// The usual length of a window.
    pub every: i64,
    pub descending: bool,
}

impl Grid<'_> {
    /// Returns the number of the window that starts at a time, counted from the first one.
    fn number(&self, time: i64) -> i64 {
        let place = self.starts.partition_point(|start| if self.descending { *start > time } else { *start < time });
        if self.starts.get(place) == Some(&time) {
            return i64::try_from(place).unwrap_or(i64::MAX);
        }
        let beside = self.starts.get(place.saturating_sub(1)).copied().unwrap_or(time);
        let distance = (i128::from(time) - i128::from(beside)) * if self.descending { -1 } else { 1 };
        let every = i128::from(self.every.max(1));
        let windows = (distance * 2 + every).div_euclid(every * 2) + place.saturating_sub(1) as i128;
        i64::try_from(windows).unwrap_or(i64::MAX)
    }
}

/// Every window of the grid, filled if `values`, which are in display order, has none. A value before the current window
/// takes that window's place; values after the last one are appended.
#[must_use]
pub fn fill(fill: Fill, grid: &Grid<'_>, values: Vec<(i64, Value)>, counts: bool) -> Vec<Filled> {
    if fill == Fill::None {
        return values.into_iter().map(|(time, value)| (time, Some(value))).collect();
    }
    let mut filled: Vec<Filled> = Vec::with_capacity(grid.starts.len());
    // The last window with a value, by its place in `filled`.
    let mut before: Option<usize> = None;
    let mut values = values.into_iter().peekable();
    for start in grid.starts {
        if let Some((time, value)) = values.next_if(|(time, _)| time == start || (time < start) != grid.descending) {
            before = Some(filled.len());
            filled.push((time, Some(value)));
            continue;
        }
        let held = before.and_then(|place| Some((filled[place].0, filled[place].1.as_ref()?)));
        let shown = match fill {
            Fill::Null if counts => Some(Value::Integer(0)),
            Fill::Null | Fill::None => None,
            Fill::Previous => held.map(|(_, value)| value.clone()),
            Fill::Linear => match (held, values.peek()) {
                (Some((time, value)), Some((next_time, next))) => {
                    let from = grid.number(time);
                    between(value, next, grid.number(*start) - from, grid.number(*next_time) - from)
                }
                _ => None,
            },
            Fill::Integer(_) | Fill::Float(_) => {
                let like = values.peek().map(|(_, value)| value).or(held.map(|(_, value)| value));
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

/// The value on the line from `a` to `b`, `at` windows after `a`, of the `windows` between both.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "InfluxDB computes with doubles, too")]
fn between(a: &Value, b: &Value, at: i64, windows: i64) -> Option<Value> {
    let rise = match (whole(a), whole(b)) {
        (Some(a), Some(b)) => (b - a) as f64,
        _ => number(b)? - number(a)?,
    };
    let value = rise / windows as f64 * at as f64 + number(a)?;
    Some(match a {
        Value::Integer(_) => Value::Integer(value as i64),
        _ => Value::Float(value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the difference of two integers wrapped around.
    #[test]
    fn a_line_between_distant_integers_does_not_wrap() {
        let values = vec![(0, Value::Integer(-(1 << 62))), (2, Value::Integer(i64::MAX))];
        let grid = Grid { starts: &[0, 1, 2], every: 1, descending: false };
        let filled = fill(Fill::Linear, &grid, values, false);
        assert_eq!(filled[1], (1, Some(Value::Integer(1 << 61))));
    }

    /// Regression: windows were counted by the length of the first one, which is 25 hours where clocks change.
    #[test]
    fn a_line_counts_windows_of_any_length() {
        for descending in [false, true] {
            let mut starts = vec![0, 25, 49, 72, 96];
            let mut values = vec![(0, Value::Float(0.0)), (96, Value::Float(4.0))];
            if descending {
                starts.reverse();
                values.reverse();
            }
            let filled = fill(Fill::Linear, &Grid { starts: &starts, every: 24, descending }, values, false);
            let mut shown: Vec<_> = filled.into_iter().map(|(_, value)| value).collect();
            if descending {
                shown.reverse();
            }
            assert_eq!(shown, [0.0, 1.0, 2.0, 3.0, 4.0].map(|value| Some(Value::Float(value))));
        }
    }

    /// The grid ends at the limit of rows, and a window of a subquery can start before it.
    #[test]
    fn a_line_reaches_beyond_the_grid() {
        let grid = Grid { starts: &[15, 20, 25], every: 5, descending: false };
        let values = vec![(0, Value::Float(0.0)), (60, Value::Float(12.0))];
        let filled = fill(Fill::Linear, &grid, values, false);
        let shown: Vec<_> = filled[..3].iter().map(|(_, value)| value.clone()).collect();
        assert_eq!(shown, [0.0, 4.0, 5.0].map(|value| Some(Value::Float(value))));
    }
}
