//! Functions from value to value: differences, rates, moving averages, and the area under the line. Values come in
//! display order, which may be descending.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;

use super::evaluate::WINDOW_BYTES;
use super::fold::OpenWindow;
use super::number::{Arithmetic, arithmetic, number, order};
use super::plan::Function;
use super::windows::Windows;
use crate::reading::Value;

const SECOND: i64 = 1_000_000_000;

/// Applies a transformation. `every` is the width of the windows, if the values are results of windows.
#[must_use]
pub fn transform(function: &Function, values: &[(i64, Value)], every: Option<i64>) -> Vec<(i64, Value)> {
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

/// The counters of a group's sensors, and what they add to the group's windows.
#[derive(Debug, Default)]
pub struct Counters {
    /// By the sensor's tags.
    sensors: BTreeMap<Vec<(String, String)>, Counter>,
    /// The total of the finished windows, by their start.
    totals: BTreeMap<i64, f64>,
}

/// A counter of one sensor.
#[derive(Debug)]
struct Counter {
    last: (i64, Value),
    window: Range<i64>,
    /// The time since which the window's increase is counted: that of the last reading before it, if there is one.
    since: i64,
    /// The value at that time, or zero after a reset.
    base: Value,
    /// The increase up to the last reset in the window.
    before_reset: f64,
}

impl Counter {
    fn new(time: i64, value: &Value, window: Range<i64>) -> Self {
        Self { last: (time, value.clone()), window, since: time, base: value.clone(), before_reset: 0.0 }
    }

    fn push(&mut self, time: i64, value: &Value) {
        if order(value, &self.last.1) == Some(Ordering::Less) {
            self.before_reset += self.since_base();
            self.base = Value::Integer(0);
        }
        self.last = (time, value.clone());
    }

    fn since_base(&self) -> f64 {
        arithmetic(Arithmetic::Sub, &self.last.1, &self.base).as_ref().and_then(number).unwrap_or_default()
    }

    /// Begins a window with the first reading in it.
    fn begin(&mut self, window: Range<i64>) {
        self.window = window;
        self.since = self.last.0;
        self.base = self.last.1.clone();
        self.before_reset = 0.0;
    }

    /// Returns the start and the result of the window. A first reading alone has none.
    fn result(&self, is_rate: bool) -> Option<(i64, f64)> {
        let length = self.last.0.saturating_sub(self.since);
        let increase = self.before_reset + self.since_base();
        let result = if is_rate { increase / ratio(length, SECOND) } else { increase };
        (length > 0).then_some((self.window.start, result))
    }
}

impl Counters {
    /// Adds readings of one sensor, in order of time. A value below the one before means that the counter was reset to
    /// zero in between. Returns how many more bytes are held.
    pub fn push<'a>(
        &mut self,
        tags: &[(String, String)],
        readings: impl Iterator<Item = (i64, &'a Value)>,
        function: &Function,
        windows: Option<&Windows>,
    ) -> usize {
        let around = |time: i64| windows.map_or(i64::MIN..i64::MAX, |windows| windows.around(time));
        let mut readings = readings.peekable();
        let Some((time, value)) = readings.peek().copied() else { return 0 };
        let mut bytes = 0;
        if !self.sensors.contains_key(tags) {
            let texts = tags.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
            bytes += 2 * size_of::<(Vec<(String, String)>, Counter)>() + size_of_val(tags) + texts;
            self.sensors.insert(tags.to_vec(), Counter::new(time, value, around(time)));
            readings.next();
        }
        let Some(counter) = self.sensors.get_mut(tags) else { return bytes };
        for (time, value) in readings {
            if !counter.window.contains(&time) {
                bytes += add(&mut self.totals, counter.result(*function == Function::Rate));
                counter.begin(around(time));
            }
            counter.push(time, value);
        }
        bytes
    }

    /// Upper bound on the number of windows.
    pub fn len(&self) -> usize {
        self.totals.len() + self.sensors.len()
    }

    /// Returns the start of the first window, if there is one.
    pub fn first(&self) -> Option<i64> {
        let open = self.sensors.values().map(|counter| counter.window.start);
        self.totals.keys().next().copied().into_iter().chain(open).min()
    }

    /// Returns all windows.
    pub fn finish(mut self, function: &Function) -> impl Iterator<Item = (i64, OpenWindow)> {
        for counter in self.sensors.values() {
            add(&mut self.totals, counter.result(*function == Function::Rate));
        }
        self.totals.into_iter().map(|(start, total)| (start, OpenWindow::total(total)))
    }
}

/// Adds to the total of a window. Returns how many more bytes are held.
fn add(totals: &mut BTreeMap<i64, f64>, total: Option<(i64, f64)>) -> usize {
    let Some((window, value)) = total else { return 0 };
    let before = totals.len();
    *totals.entry(window).or_default() += value;
    (totals.len() - before) * WINDOW_BYTES
}

#[expect(clippy::cast_precision_loss, reason = "InfluxDB computes with doubles, too")]
fn ratio(a: i64, b: i64) -> f64 {
    a as f64 / b as f64
}

#[expect(clippy::cast_precision_loss, reason = "a small count")]
fn ratio_of(count: usize) -> f64 {
    count as f64
}
