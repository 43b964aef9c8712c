//! Contents, by the query API and from the documents. A failed check is recorded as a violation.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hourglass::reading::Value;

use super::Violation;
use crate::proof::{CAPS, DATABASE};
use crate::support::prelude::*;

/// Fields by sensor and time.
pub type Found = BTreeMap<String, Series>;
/// Fields by time. All values of the oracle are exact doubles.
pub type Series = BTreeMap<i64, BTreeMap<String, f64>>;

/// Maximum readings per answer.
const LIMIT: usize = 100_000;

pub fn by_query(server: &Server, sensors: &[String]) -> Result<Found, Violation> {
    let number = |text: String| text.parse::<f64>().expect("all fields are numbers");
    let of_sensor = |sensor: &String| {
        let rows = readings(server, DATABASE, sensor, None, LIMIT).into_iter();
        let fields =
            |fields: BTreeMap<String, String>| fields.into_iter().map(|(name, text)| (name, number(text))).collect();
        (sensor.clone(), rows.map(|(time, row)| (time, fields(row))).collect())
    };
    catch_panic(|| sensors.iter().map(of_sensor).collect()).map_err(Violation::Answers)
}

/// Reads the documents and checks each document and bucket.
pub fn in_store(stored: &Stored) -> Result<Found, Violation> {
    let scanned = catch_panic(|| {
        let mut found = Found::new();
        stored.each_bucket(&CAPS, |pages| {
            let series = found.entry(pages[0].sensor.clone()).or_default();
            for reading in pages.iter().flat_map(|page| &page.readings) {
                let fields = reading.fields.iter().map(|(name, value)| (name.clone(), number(name, value)));
                series.insert(reading.time, fields.collect());
            }
        });
        found
    });
    scanned.map_err(Violation::Documents)
}

/// Compares the windows of a sensor with its readings.
pub fn check_windows(server: &Server, sensor: &str, series: &Series) -> Vec<Violation> {
    let Some(((first, _), (last, _))) = series.first_key_value().zip(series.last_key_value()) else {
        return Vec::new();
    };
    let ragged = (first + MINUTE + 1, last - MINUTE);
    let hour = |time: &i64| time.div_euclid(60 * MINUTE) * 60 * MINUTE;
    // Whole hours, which may be cached from the last time.
    let whole = (hour(first), hour(last) + 60 * MINUTE);
    let mut violations = Vec::new();
    for (range, name, step) in
        [(None, "1h", 60 * MINUTE), (Some(whole), "1h", 60 * MINUTE), (Some(ragged), "7m", 7 * MINUTE)]
    {
        if range.is_some_and(|(from, to)| from >= to) {
            continue;
        }
        let found = match catch_panic(|| windows(server, DATABASE, sensor, range, name)) {
            Ok(found) => found,
            Err(why) => return vec![Violation::Answers(why)],
        };
        let mut expected: BTreeMap<(i64, &str), Vec<f64>> = BTreeMap::new();
        let is_in_range = |time: i64| range.is_none_or(|(from, to)| (from..to).contains(&time));
        for (time, fields) in series.iter().filter(|(time, _)| is_in_range(**time)) {
            for (field, value) in fields {
                expected.entry((time.div_euclid(step), field)).or_default().push(*value);
            }
        }
        let mut surplus: usize = found.values().map(BTreeMap::len).sum();
        for ((number, field), values) in expected {
            let start = (number * step).max(range.map_or(i64::MIN, |(from, _)| from));
            let window = found.range((start, i64::MIN)..=(start, i64::MAX)).next();
            let window = window.and_then(|(_, fields)| fields.get(field));
            surplus -= usize::from(window.is_some());
            if window.is_none_or(|window| !is_fold(window, &values)) {
                let place = format!("{sensor}: {field} by {name} from {start}");
                violations.push(Violation::Window { place, found: format!("{window:?}"), readings: values.len() });
            }
        }
        if surplus > 0 {
            let place = format!("{sensor} by {name}");
            violations.push(Violation::Window { place, found: format!("{surplus} more"), readings: 0 });
        }
    }
    violations
}

fn is_fold(window: &Window, values: &[f64]) -> bool {
    let [min, max, sum, avg] = [&window.min, &window.max, &window.sum, &window.avg].map(|text| number_of(text.get()));
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let expected = Exact::sum_of_doubles(values.iter().copied()).rounded();
    #[allow(clippy::cast_precision_loss, reason = "few")]
    let count = values.len() as f64;
    usize::try_from(window.count) == Ok(values.len())
        && [min, max] == [least, greatest]
        && [sum, avg] == [expected, expected / count]
}

fn number_of(text: &str) -> f64 {
    text.parse().expect("a number")
}

#[allow(clippy::cast_precision_loss, reason = "the numbers are below 2^53")]
fn number(name: &str, value: &Value) -> f64 {
    match (name, value) {
        ("v", Value::Integer(v)) => *v as f64,
        ("f", Value::Float(v)) => *v,
        _ => panic!("{name} is {value:?}"),
    }
}

/// Runs a check; a panic becomes the error.
fn catch_panic<T>(check: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(check)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}
