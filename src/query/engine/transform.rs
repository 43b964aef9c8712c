//! Functions from value to value: differences, rates, moving averages, and the area under the line. Values come in
//! display order, which may be descending.

use super::number::{Arithmetic, arithmetic, number};
use super::plan::Function;
use super::windows::Windows;
use crate::reading::Value;

/// Applies a transformation. `every` is the width of the windows, if the values are results of windows.
#[must_use]
pub fn transform(function: &Function, values: &[(i64, Value)], every: Option<i64>) -> Vec<(i64, Value)> {
    const SECOND: i64 = 1_000_000_000;
    match function {
        Function::Derivative(unit, non_negative) => {
            let unit = unit.or(every).unwrap_or(SECOND);
            let rate = |(before, a): &(i64, Value), (time, b): &(i64, Value)| {
                let change = number(b)? - number(a)?;
                let rate = change / (ratio(time.saturating_sub(*before), unit).abs());
                (!(*non_negative && rate < 0.0)).then_some(Value::Float(rate))
            };
            pairs(values, rate)
        }
        Function::Difference(non_negative) => pairs(values, |(_, a), (_, b)| {
            let change = arithmetic(Arithmetic::Sub, b, a)?;
            (!(*non_negative && number(&change)? < 0.0)).then_some(change)
        }),
        Function::Elapsed(unit) => {
            let elapsed =
                |pair: &[(i64, Value)]| (pair[1].0, Value::Integer(pair[1].0.saturating_sub(pair[0].0) / unit));
            values.windows(2).map(elapsed).collect()
        }
        Function::MovingAverage(count) => {
            let (count, value) = ((*count).max(1), |(_, value): &(i64, Value)| number(value).unwrap_or_default());
            // How often the sum is computed anew: for up to 64 values always.
            let (mut sum, anew) = (0.0, if count <= 64 { 1 } else { count / 16 });
            let average = |(place, window): (usize, &[(i64, Value)])| {
                let [.., (last, _)] = window else { return None };
                // A running sum, computed anew now and then to keep rounding errors small.
                sum = match values.get(place.wrapping_sub(1)).filter(|_| place % anew != 0) {
                    Some(before) => sum - value(before) + value(&window[window.len() - 1]),
                    None => window.iter().map(value).sum(),
                };
                Some((*last, Value::Float(sum / ratio_of(count))))
            };
            values.windows(count).enumerate().filter_map(average).collect()
        }
        Function::CumulativeSum => {
            let mut sum: Option<Value> = None;
            let mut added = Vec::with_capacity(values.len());
            for (time, value) in values {
                let next = match &sum {
                    Some(sum) => arithmetic(Arithmetic::Add, sum, value),
                    None => Some(value.clone()),
                };
                if let Some(next) = next {
                    added.push((*time, next.clone()));
                    sum = Some(next);
                }
            }
            added
        }
        _ => values.to_vec(),
    }
}

/// Of several values at one time only the first counts: series in a group have no order among each other.
fn pairs(values: &[(i64, Value)], change: impl Fn(&(i64, Value), &(i64, Value)) -> Option<Value>) -> Vec<(i64, Value)> {
    let mut made = Vec::new();
    let mut before: Option<&(i64, Value)> = None;
    for value in values {
        match before {
            Some(last) if last.0 == value.0 => continue,
            Some(last) => made.extend(change(last, value).map(|change| (value.0, change))),
            None => {}
        }
        before = Some(value);
    }
    made
}

/// The area under the line through the values, in time order, per window. A segment that crosses windows is split in two:
/// the part in its first window counts there, and all the rest in the window in which it ends, windows between included.
#[must_use]
pub fn integral(values: &[(i64, Value)], unit: i64, windows: Option<&Windows>) -> Vec<(i64, f64)> {
    let around = |time: i64| windows.map_or(i64::MIN..i64::MAX, |windows| windows.around(time));
    let mut areas: Vec<(i64, f64)> = Vec::new();
    let mut add = |window: i64, area: f64| match areas.last_mut() {
        Some((last, sum)) if *last == window => *sum += area,
        _ => areas.push((window, area)),
    };
    let mut before: Option<(i64, f64)> = None;
    for (time, value) in values {
        let Some(value) = number(value) else { continue };
        let here = around(*time);
        match before {
            Some((last, _)) if last == *time => {}
            Some((last, height)) => {
                let at = |moment: i64| {
                    height + (value - height) * ratio(moment.saturating_sub(last), time.saturating_sub(last))
                };
                let area = |from: i64, to: i64| (at(from) + at(to)) / 2.0 * ratio(to.saturating_sub(from), unit);
                let there = around(last);
                if there == here {
                    add(here.start, area(last, *time));
                } else {
                    add(there.start, area(last, there.end));
                    add(here.start, area(there.end, *time));
                }
            }
            None => add(here.start, 0.0),
        }
        before = Some((*time, value));
    }
    // A last reading at the very start of its window adds no area to it.
    if let Some((time, _)) = before.filter(|(time, _)| around(*time).start == *time) {
        areas.pop_if(|(window, area)| *window == time && *area == 0.0);
    }
    areas
}

#[expect(clippy::cast_precision_loss, reason = "InfluxDB computes with doubles, too")]
fn ratio(a: i64, b: i64) -> f64 {
    a as f64 / b as f64
}

#[expect(clippy::cast_precision_loss, reason = "a small count")]
fn ratio_of(count: usize) -> f64 {
    count as f64
}
