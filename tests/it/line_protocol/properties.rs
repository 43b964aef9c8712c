//! Properties of all bodies: printed lines parse to the same readings, and no bytes cause a panic.

use hourglass::reading::value::RawValue;
use hourglass::reading::{Limits, Precision, Sensor};
use hourglass::wire::line_protocol::Lines;
use hourglass::wire::{PointSeries, Points};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

type Fields = Vec<(String, RawValue<'static>)>;

/// Generates names of special and arbitrary characters that do not end in a backslash.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![r##"[a-c,= \\"#é]{0,5}[a-c,= "#é]"##, r"\PC{0,7}[a-zß°=]"]
}

fn value() -> impl Strategy<Value = RawValue<'static>> {
    prop_oneof![
        any::<f64>().prop_filter("finite", |v| v.is_finite()).prop_map(RawValue::Float),
        any::<i64>().prop_map(RawValue::Integer),
        any::<u64>().prop_map(RawValue::Unsigned),
        any::<bool>().prop_map(RawValue::Boolean),
        r#"[a, =\\"\n\r\PC]{0,8}"#.prop_map(|text| RawValue::String(text.into())),
    ]
}

fn line() -> impl Strategy<Value = (Sensor, Fields, Option<i64>)> {
    let measurement = name().prop_filter("a comment", |name| !name.starts_with('#'));
    let timestamp = proptest::option::of(i64::MIN + 2..i64::MAX);
    (measurement, btree_map(name(), name(), 0..4), btree_map(name(), value(), 1..24), timestamp).prop_map(
        |(measurement, tags, fields, timestamp)| {
            (Sensor::new(&measurement, tags).expect("distinct keys"), fields.into_iter().collect(), timestamp)
        },
    )
}

fn write(out: &mut String, (sensor, fields, timestamp): &(Sensor, Fields, Option<i64>)) {
    let escaped = |name: &str| name.replace(',', r"\,").replace('=', r"\=").replace(' ', r"\ ");
    out.push_str(&sensor.key);
    for (n, (key, value)) in fields.iter().enumerate() {
        out.push(if n == 0 { ' ' } else { ',' });
        out.push_str(&escaped(key));
        out.push('=');
        out.push_str(&match value {
            RawValue::Float(v) => format!("{v:?}"),
            RawValue::Integer(v) => format!("{v}i"),
            RawValue::Unsigned(v) => format!("{v}u"),
            RawValue::Boolean(v) => v.to_string(),
            RawValue::String(v) => format!("\"{}\"", v.replace('\\', r"\\").replace('"', r#"\""#)),
        });
    }
    if let Some(timestamp) = timestamp {
        out.push_str(&format!(" {timestamp}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printed_lines_parse_to_the_same_readings(written in vec(line(), 0..6), end in prop_oneof![Just("\n"), Just("\r\n")]) {
        let mut body = String::new();
        let mut numbers = Vec::new();
        for line in &written {
            numbers.push(1 + body.matches('\n').count());
            write(&mut body, line);
            body.push_str(end);
        }
        let limits = Limits::default();
        let mut lines = Lines::new(body.as_bytes(), Precision::Nanoseconds, limits);
        for (line, number) in written.iter().zip(numbers) {
            let read = lines.next().expect("a line").map_err(|rejection| TestCaseError::fail(rejection.message()))?;
            let sensor = read.sensor(&limits).map_err(|rejection| TestCaseError::fail(rejection.message()))?;
            prop_assert_eq!(&*sensor, &line.0);
            let fields: Fields = read.fields.iter().map(|(k, v)| (k.to_string(), owned(v))).collect();
            prop_assert_eq!(&fields, &line.1);
            prop_assert_eq!((read.timestamp, read.number), (line.2, number));
        }
        prop_assert!(lines.next().is_none());
    }

    /// Bodies of significant bytes, so that many lines are almost valid.
    #[test]
    fn arbitrary_bytes_never_panic(body in vec(prop_oneof![
        10 => proptest::sample::select(&b"mf,= \\\"\n\r#1i.-\t\xc2\x85\xff"[..]),
        1 => any::<u8>(),
    ], 0..120)) {
        let newlines = body.iter().filter(|&&byte| byte == b'\n').count();
        let physical: Vec<&[u8]> = body.split(|&byte| byte == b'\n').collect();
        let limits = Limits { line_bytes: 60, ..Limits::default() };
        let mut lines = Lines::new(&body, Precision::Auto, limits);
        let mut before = 0;
        while let Some(line) = lines.next() {
            let (number, columns) = match line {
                Ok(line) => {
                    prop_assert!(line.text.starts_with(physical[line.number - 1].strip_suffix(b"\r").unwrap_or(physical[line.number - 1])));
                    let PointSeries::Text { text, column } = line.series else { panic!("{line:?}") };
                    prop_assert!(line.text[column - 1..].starts_with(text.as_bytes()));
                    prop_assert!(!line.fields.is_empty());
                    if let Err(rejection) = line.sensor(&limits) {
                        prop_assert!(rejection.column <= column + text.len());
                    }
                    (line.number, 0)
                }
                Err(rejection) => (rejection.line, rejection.column),
            };
            prop_assert!(before < number && number <= newlines + 1, "{number} after {before}");
            prop_assert!(columns <= body.len() + 1);
            before = number;
        }
    }

    /// Overwrites one line of valid lines without strings; the others stay valid.
    #[test]
    fn a_bad_line_rejects_only_itself(bad in vec(proptest::sample::select(&b"mf,= \\\"\r#1i.-\t\xc2\x85\xff"[..]), 0..30)) {
        let mut body = b"m f=1\n".to_vec();
        body.extend_from_slice(&bad);
        body.extend_from_slice(b"\nm f=2\nm f=3\n");
        let mut lines = Lines::new(&body, Precision::Nanoseconds, Limits::default());
        let mut good = Vec::new();
        while let Some(line) = lines.next() {
            good.extend(line.ok().map(|line| line.number));
        }
        good.retain(|&number| number != 2);
        prop_assert_eq!(good, [1, 3, 4]);
    }
}

fn owned(value: &RawValue<'_>) -> RawValue<'static> {
    match value {
        RawValue::Float(v) => RawValue::Float(*v),
        RawValue::Integer(v) => RawValue::Integer(*v),
        RawValue::Unsigned(v) => RawValue::Unsigned(*v),
        RawValue::Boolean(v) => RawValue::Boolean(*v),
        RawValue::String(v) => RawValue::String(v.to_string().into()),
    }
}
