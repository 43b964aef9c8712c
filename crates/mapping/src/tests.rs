//! Tests of whole mappings.

use hourglass_model::reading::Limits;
use hourglass_wire::Points;

use super::*;

/// The arrival of the messages: 2026-01-15T14:00:00Z.
const ARRIVAL: i64 = 1_768_485_600_000_000_000;

/// The readings and rejections of a body as lines.
fn lines(mapping: &Mapping, topic: Option<&str>, body: &str) -> Vec<String> {
    let mut points = apply(mapping, topic, body.as_bytes(), Limits::default(), ARRIVAL);
    let mut lines = Vec::new();
    while let Some(point) = points.next() {
        lines.push(match point {
            Ok(point) => {
                let fields: Vec<String> = point.fields.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
                let time =
                    point.timestamp.map_or_else(|| "arrival".to_owned(), hourglass_model::reading::time::rfc3339);
                format!("{} {} {time}", point.spelling(), fields.join(","))
            }
            Err(rejection) => rejection.message(),
        });
    }
    lines
}

#[test]
fn one_message_becomes_one_reading() {
    let mapping = builtin::get("tasmota-sensor").expect("built in");
    let body = r#"{"Time":"2026-01-15T15:00:00","ENERGY":{"Power":5}}"#;
    assert_eq!(
        lines(&mapping, Some("tele/plug/SENSOR"), body),
        ["tasmota,device=plug ENERGY_Power=Integer(5) arrival"]
    );
}
