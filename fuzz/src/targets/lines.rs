//! Line protocol: both parsers must agree on every line, and a printed line must parse again.

use hourglass::reading::value::RawValue;
use hourglass::reading::{Limits, Precision, Sensor, Value};
use hourglass::wire::Points;
use hourglass::wire::line_protocol::{Lines, write_line};

use crate::second;

/// The first byte of the data selects one.
const PRECISIONS: [Precision; 7] = [
    Precision::Nanoseconds,
    Precision::Microseconds,
    Precision::Milliseconds,
    Precision::Seconds,
    Precision::Minutes,
    Precision::Hours,
    Precision::Auto,
];

/// The first byte selects precision and limits, the rest is the body.
///
/// # Panics
/// If the parsers disagree, or if a printed line does not parse to the same reading.
pub fn check(data: &[u8]) {
    let Some((first, body)) = data.split_first() else { return };
    let precision = PRECISIONS[usize::from(*first & 0x7f) % PRECISIONS.len()];
    let tight = Limits { line_bytes: 60, tags: 3, fields: 4, name_bytes: 12 };
    let limits = if *first & 0x80 == 0 { Limits::default() } else { tight };
    let expected = second::read(body, precision, &limits);
    let found = parse_lines(body, precision, &limits);
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected, "the parsers read a line differently");
    }
    assert_eq!(found.len(), expected.len(), "the parsers find different numbers of lines: {found:?} {expected:?}");
    for point in found.iter().filter_map(|(_, point)| point.as_ref()) {
        assert_round_trip(point);
    }
}

/// The outcomes of the parser under test.
fn parse_lines(body: &[u8], precision: Precision, limits: &Limits) -> Vec<second::Outcome> {
    let mut lines = Lines::new(body, precision, *limits);
    let mut outcomes = Vec::new();
    while let Some(line) = lines.next() {
        let line = match line {
            Ok(line) => line,
            Err(rejection) => {
                assert!(rejection.column <= body.len() + 1 && !rejection.message().is_empty());
                outcomes.push((rejection.line, None));
                continue;
            }
        };
        let point = match line.sensor(limits) {
            Ok(sensor) => Some(point(&sensor, line.fields, line.timestamp)),
            Err(rejection) => {
                assert_eq!(rejection.line, line.number);
                None
            }
        };
        outcomes.push((line.number, point));
    }
    outcomes
}

fn point(
    sensor: &Sensor,
    fields: &[(std::borrow::Cow<'_, str>, RawValue<'_>)],
    timestamp: Option<i64>,
) -> second::Point {
    let value = |value: &RawValue<'_>| match value {
        RawValue::Float(v) => second::Value::Float(v.to_bits()),
        RawValue::Integer(v) => second::Value::Integer(*v),
        RawValue::Unsigned(v) => second::Value::Unsigned(*v),
        RawValue::Boolean(v) => second::Value::Boolean(*v),
        RawValue::String(v) => second::Value::Text(v.to_string()),
    };
    second::Point {
        measurement: sensor.measurement.to_string(),
        tags: sensor.tags.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        fields: fields.iter().map(|(key, field)| (key.to_string(), value(field))).collect(),
        timestamp,
    }
}

/// Prints the line as for dead letters, and checks that it parses to the same reading.
fn assert_round_trip(point: &second::Point) {
    let sensor = Sensor::new(&point.measurement, point.tags.iter().cloned()).expect("the keys are distinct");
    let stored_value = |value: &second::Value| match value.clone() {
        second::Value::Float(bits) => Value::Float(f64::from_bits(bits)),
        second::Value::Integer(v) => Value::Integer(v),
        second::Value::Unsigned(v) => RawValue::Unsigned(v).into_value(),
        second::Value::Boolean(v) => Value::Boolean(v),
        second::Value::Text(v) => Value::String(v.into()),
    };
    let fields: Vec<(String, Value)> =
        point.fields.iter().map(|(key, value)| (key.clone(), stored_value(value))).collect();
    let time = point.timestamp.unwrap_or(-7);
    let mut printed = String::new();
    write_line(&mut printed, &sensor.key, fields.iter().map(|(key, value)| (&**key, value)), time);
    let roomy = Limits { line_bytes: usize::MAX, ..Limits::default() };
    let mut lines = Lines::new(printed.as_bytes(), Precision::Nanoseconds, roomy);
    let line = lines.next().expect("a line").unwrap_or_else(|error| panic!("{printed}: {}", error.message()));
    assert_eq!(line.sensor(&roomy).as_deref(), Ok(&sensor), "{printed}");
    assert_eq!(line.spelling(), &*sensor.key, "{printed}");
    let reparsed: Vec<(String, Value)> =
        line.fields.iter().map(|(key, value)| (key.to_string(), value.clone().into_value())).collect();
    assert_eq!((reparsed, line.timestamp), (fields, Some(time)), "{printed}");
    assert!(lines.next().is_none(), "{printed}");
}
