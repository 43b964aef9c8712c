//! A plain map of readings, and its expected answers, windows and sensor documents.

use hourglass::reading::Value;

use crate::support::prelude::*;

/// Readings of a sensor by time.
pub type Series = BTreeMap<i64, BTreeMap<String, Value>>;

/// Expected state after all readings sent so far.
#[derive(Debug, Default)]
pub struct Model {
    sensors: BTreeMap<String, Series>,
}

/// Outcomes of readings.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    /// New times.
    pub new: usize,
    /// Readings that changed nothing.
    pub duplicate: usize,
    /// Readings that changed or added a field.
    pub overwritten: usize,
}

/// Default number of readings in a sensor document.
const RECENT: usize = 10;

impl Model {
    /// Merges a reading: the later one wins, field by field.
    pub fn merge(&mut self, sensor: &str, time: i64, fields: &[(&'static str, Value)], tally: &mut Tally) {
        let series = self.sensors.entry(sensor.to_owned()).or_default();
        let is_new = !series.contains_key(&time);
        let reading = series.entry(time).or_default();
        let before = reading.clone();
        reading.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        if is_new {
            tally.new += 1;
        } else if *reading == before {
            tally.duplicate += 1;
        } else {
            tally.overwritten += 1;
        }
    }

    /// Returns every sensor's readings.
    pub fn series(&self) -> impl Iterator<Item = (&str, &Series)> {
        self.sensors.iter().map(|(sensor, series)| (&**sensor, series))
    }

    pub fn times(&self, sensor: &str) -> Vec<i64> {
        self.sensors.get(sensor).map(|series| series.keys().copied().collect()).unwrap_or_default()
    }

    pub fn buckets(&self) -> usize {
        let of_sensor = |series: &Series| {
            let mut hours: Vec<i64> = series.keys().map(|time| time.div_euclid(HOUR)).collect();
            hours.dedup();
            hours.len()
        };
        self.sensors.values().map(of_sensor).sum()
    }

    /// Compares readings, whole and in parts, and windows of all kinds.
    pub fn check_answers(&self, server: &Server, database: &str) {
        for (sensor, series) in self.series() {
            check_readings(server, database, sensor, series, None, 100_000);
            let first = first(series);
            let last = last(series);
            let ragged = (first + 1, last - 7 * MINUTE);
            check_readings(server, database, sensor, series, Some(ragged), 97);
            for (name, step) in [("1h", HOUR), ("1d", 24 * HOUR), ("30m", HOUR / 2)] {
                check_windows(server, database, sensor, series, None, name, step);
            }
            for (name, step) in [("1h", HOUR), ("7m", 7 * MINUTE)] {
                check_windows(server, database, sensor, series, Some(ragged), name, step);
            }
        }
    }
}

fn first(series: &Series) -> i64 {
    *series.first_key_value().expect("a series has readings").0
}

fn last(series: &Series) -> i64 {
    *series.last_key_value().expect("a series has readings").0
}

/// Panics with the first difference.
#[track_caller]
pub fn assert_same(sensor: &str, found: &Series, expected: &Series) {
    for (time, fields) in expected {
        assert_eq!(found.get(time), Some(fields), "{sensor} at {time}");
    }
    let surplus: Vec<&i64> = found.keys().filter(|time| !expected.contains_key(time)).collect();
    assert!(surplus.is_empty(), "{sensor}: never sent: {surplus:?}");
}

fn check_readings(
    server: &Server,
    database: &str,
    sensor: &str,
    series: &Series,
    range: Option<(i64, i64)>,
    limit: usize,
) {
    let found = readings(server, database, sensor, range, limit);
    let expected: Vec<_> = select_range(series, range).collect();
    let times = |times: &mut dyn Iterator<Item = i64>| times.collect::<Vec<i64>>();
    assert_eq!(
        times(&mut found.iter().map(|(time, _)| *time)),
        times(&mut expected.iter().map(|(time, _)| **time)),
        "{sensor}: times in {range:?}"
    );
    for ((time, found), (_, expected)) in found.iter().zip(expected) {
        assert!(found.keys().eq(expected.keys()), "{sensor} at {time}: {found:?}, expected {expected:?}");
        for (name, value) in expected {
            assert!(is_text_of(value, &found[name]), "{sensor} at {time}: {name} is {}, not {value:?}", found[name]);
        }
    }
}

fn select_range(series: &Series, range: Option<(i64, i64)>) -> impl Iterator<Item = (&i64, &BTreeMap<String, Value>)> {
    series.iter().filter(move |(time, _)| range.is_none_or(|(from, to)| (from..to).contains(*time)))
}

/// Returns true if a JSON text equals this value.
fn is_text_of(value: &Value, text: &str) -> bool {
    match value {
        Value::Float(v) => text.parse::<f64>().is_ok_and(|found| found.to_bits() == v.to_bits()),
        Value::Integer(v) => text == v.to_string(),
        Value::Unsigned(v) => text == v.to_string(),
        Value::Boolean(v) => text == v.to_string(),
        Value::String(v) => serde_json::from_str::<String>(text).is_ok_and(|found| *found == **v),
    }
}

fn check_windows(
    server: &Server,
    database: &str,
    sensor: &str,
    series: &Series,
    range: Option<(i64, i64)>,
    step_name: &str,
    step: i64,
) {
    let mut expected: BTreeMap<(i64, i64), BTreeMap<&str, Vec<&Value>>> = BTreeMap::new();
    let cut = |time: i64| range.map_or(time, |(from, to)| time.clamp(from, to));
    for (time, fields) in select_range(series, range) {
        let number = time.div_euclid(step);
        let numbers = fields.iter().filter(|(_, value)| !matches!(value, Value::Boolean(_) | Value::String(_)));
        for (name, value) in numbers {
            let window = expected.entry((cut(number * step), cut((number + 1) * step))).or_default();
            window.entry(name).or_default().push(value);
        }
    }
    let found = windows(server, database, sensor, range, step_name);
    assert!(found.keys().eq(expected.keys()), "{sensor}: windows of {step_name} in {range:?}");
    for ((span, fields), found) in expected.into_iter().zip(found.values()) {
        assert!(found.keys().eq(fields.keys()), "{sensor}: fields of {span:?} by {step_name}");
        for (name, values) in fields {
            check_window(&found[name], &values, &format!("{sensor}: {name} in {span:?} by {step_name}"));
        }
    }
}

fn check_window(window: &Window, values: &[&Value], place: &str) {
    let numbers: Vec<f64> = values.iter().map(|value| nearest(value)).collect();
    assert_eq!(window.count, u64::try_from(numbers.len()).expect("few"), "{place}: count");
    let [min, max, sum, avg] = [&window.min, &window.max, &window.sum, &window.avg].map(|text| text.get());
    let wholes: Option<Vec<i128>> = values.iter().map(|value| whole(value)).collect();
    if let Some(wholes) = &wholes {
        let least = wholes.iter().min().expect("some");
        let greatest = wholes.iter().max().expect("some");
        assert_eq!([min, max], [&*least.to_string(), &*greatest.to_string()], "{place}: min and max");
        assert_eq!(sum, wholes.iter().sum::<i128>().to_string(), "{place}: sum");
    } else {
        let least = numbers.iter().copied().reduce(f64::min);
        let greatest = numbers.iter().copied().reduce(f64::max);
        assert_eq!([min, max].map(|text| text.parse().ok()), [least, greatest], "{place}: min and max");
    }
    let expected = Exact::sum(values.iter().copied()).rounded();
    #[allow(clippy::cast_precision_loss, reason = "few")]
    let count = numbers.len() as f64;
    let found = [sum, avg].map(|text| text.parse::<f64>().expect("a number").to_bits());
    assert_eq!(found, [expected, expected / count].map(f64::to_bits), "{place}: {sum} and {avg}, or {expected}");
}

fn whole(value: &Value) -> Option<i128> {
    match value {
        Value::Integer(v) => Some(i128::from(*v)),
        Value::Unsigned(v) => Some(i128::from(*v)),
        Value::Float(_) | Value::Boolean(_) | Value::String(_) => None,
    }
}

#[allow(clippy::cast_precision_loss, reason = "the nearest double is what a window with floats counts with")]
fn nearest(value: &Value) -> f64 {
    match (value, whole(value)) {
        (Value::Float(v), _) => *v,
        (_, Some(v)) => v as f64,
        (other, None) => panic!("{other:?} is no number"),
    }
}

/// Compares the fields of a sensor document; if up to date, also first and last seen and the latest readings.
pub fn check_sensor(document: &Sensor, series: &Series, up_to_date: bool) {
    let key = &document.key;
    let fields = series.values().flatten().map(|(name, value)| (name.clone(), value.family().name().to_owned()));
    assert_eq!(document.fields, fields.collect::<BTreeMap<_, _>>(), "{key}: fields");
    if !up_to_date {
        return;
    }
    assert_eq!(document.first_seen, Some(millis(first(series))), "{key}: firstSeen");
    assert_eq!(document.last_seen, Some(millis(last(series))), "{key}: lastSeen");
    let recent: Series = document.recent.iter().map(|r| (r.time, r.fields.iter().cloned().collect())).collect();
    let expected: Series = series.iter().rev().take(RECENT).map(|(time, fields)| (*time, fields.clone())).collect();
    assert_same(&format!("{key}: recent"), &recent, &expected);
}
