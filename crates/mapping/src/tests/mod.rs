//! Tests of whole mappings.

mod hostile;
mod makers;
mod rules;

use hourglass_model::reading::value::RawValue;
use hourglass_model::reading::{Limits, time};
use hourglass_wire::Points;

use super::*;

/// The arrival of the messages: 2026-01-15T14:00:00Z.
const ARRIVAL: i64 = 1_768_485_600_000_000_000;

/// The readings of a body in the form of line protocol, and its rejections.
fn lines(mapping: &Mapping, topic: Option<&str>, body: &[u8]) -> Vec<String> {
    let mut points = apply(mapping, topic, body, Limits::default(), ARRIVAL);
    let mut lines = Vec::new();
    loop {
        let Some(point) = points.next() else {
            if points.is_paused() {
                continue;
            }
            break;
        };
        lines.push(match point {
            Ok(point) => {
                let fields: Vec<String> = point.fields.iter().map(|(key, value)| field(key, value)).collect();
                let time = point.timestamp.map_or_else(|| "arrival".to_owned(), time::rfc3339);
                format!("{} {} {time}", point.spelling(), fields.join(","))
            }
            Err(rejection) => rejection.message(),
        });
    }
    lines
}

/// The ingest path takes points across awaits.
#[test]
fn points_can_change_threads() {
    fn check<T: Send>() {}
    check::<MappedPoints<'_, '_>>();
}

fn field(key: &str, value: &RawValue<'_>) -> String {
    match value {
        RawValue::Float(v) => format!("{key}={v:?}"),
        RawValue::Integer(v) => format!("{key}={v}i"),
        RawValue::Unsigned(v) => format!("{key}={v}u"),
        RawValue::Boolean(v) => format!("{key}={v}"),
        RawValue::String(v) => format!("{key}={v:?}"),
    }
}

fn mapping(toml: &str) -> Mapping {
    Mapping::from_toml(toml).expect("a valid mapping")
}

/// The lines of a body that is mapped by a mapping with these keys.
fn mapped(keys: &str, body: &str) -> Vec<String> {
    lines(&mapping(&format!("name = \"m\"\nmeasurement = \"m\"\n{keys}")), None, body.as_bytes())
}
