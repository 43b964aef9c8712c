//! Sensor documents with planted errors, checked against pages.

use super::*;
use crate::bucket::{Meta, Reading, StorageError};
use crate::reading::{Hour, Value};
use crate::verify::finding::Difference;

const START: i64 = 1_768_140_000_000_000_000;

fn sensor() -> Arc<Sensor> {
    Arc::new(Sensor::new("m", [("s", "1")]).expect("distinct tags"))
}

fn reading(second: i64, field: &str, value: Value) -> Reading {
    Reading { time: START + second * 1_000_000_000 + 5, fields: vec![(Arc::from(field), value)] }
}

fn page(readings: Vec<Reading>) -> RawPage {
    let sensor = sensor();
    let hour = Hour::from_ns(START);
    RawPage {
        key: "key".into(),
        in_overflow: None,
        id: "key".into(),
        own_id: "key".into(),
        sensor_key: sensor.key.clone(),
        sensor,
        start_ms: hour.start_ms(),
        end_ms: hour.next().start_ms(),
        number: 0,
        rev: 1,
        closed: false,
        has_overflow: false,
        count: None,
        first_ms: None,
        last_ms: None,
        readings,
        summary: Vec::new(),
        order: Err("not looked at".to_owned()),
    }
}

fn seen() -> SeenSensors {
    let mut seen = SeenSensors::default();
    seen.add(&page(vec![reading(3, "n", Value::Integer(1)), reading(9, "n", Value::Integer(2))]));
    seen.add(&page(vec![reading(1, "t", Value::String("x".into())), reading(2, "n", Value::Float(2.0))]));
    seen
}

/// A document that agrees with the pages.
fn document() -> SensorDocument {
    SensorDocument {
        sensor: sensor(),
        rev: 1,
        fields: vec![(Arc::from("t"), Family::String), (Arc::from("n"), Family::Number)],
        first_seen: Some(START + 1_000_000_000),
        last_seen: Some(START + 9_000_000_000),
        recent: vec![reading(9, "n", Value::Integer(2))],
        outlier: None,
        lifetime: None,
        meta: Meta::default(),
    }
}

fn check(change: impl FnOnce(&mut SensorDocument)) -> Findings {
    let mut document = document();
    change(&mut document);
    let kept = RawSensor { key: "m,s=1".into(), document: Ok(document) };
    check_sensor(&kept, seen().take("m,s=1").as_ref())
}

#[test]
fn a_document_that_agrees_with_its_pages_is_right() {
    assert_eq!(check(|_| {}), Findings::default());
    assert_eq!(check(|document| document.fields.push((Arc::from("old"), Family::Boolean))), Findings::default());
    // Deleted readings may have been earlier or later than the remaining ones.
    assert_eq!(check(|document| document.first_seen = Some(0)), Findings::default());
    assert_eq!(check(|document| document.last_seen = Some(START + 99_000_000_000)), Findings::default());
    let alone = RawSensor { key: "m,s=1".into(), document: Ok(document()) };
    assert_eq!(check_sensor(&alone, None), Findings::default(), "a document is stored before its first page");
}

#[test]
fn fields_that_are_missing_are_named() {
    let findings = check(|document| drop(document.fields.remove(0)));
    let [Difference { kind: FindingKind::Fields, expected, found, .. }] = &findings.differences[..] else {
        panic!("{findings:?}")
    };
    assert_eq!((&**expected, &**found), ("all fields of its pages, including t", "n"));
}

#[test]
fn a_document_under_another_sensors_key_is_found() {
    let kept = RawSensor { key: "m,s=2".into(), document: Ok(document()) };
    let findings = check_sensor(&kept, None);
    assert_eq!(findings.differences.iter().map(|d| d.kind).collect::<Vec<_>>(), [FindingKind::Identity]);
}

#[test]
fn lagging_is_a_note() {
    let notes = |findings: Findings| {
        assert_eq!(findings.differences, []);
        findings.notes.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(notes(check(|document| document.first_seen = None)), [Note::SeenLags]);
    assert_eq!(notes(check(|document| document.first_seen = Some(START + 1_001_000_000))), [Note::SeenLags]);
    assert_eq!(notes(check(|document| document.last_seen = Some(START + 8_999_000_000))), [Note::SeenLags]);
    assert_eq!(notes(check(|document| document.recent.clear())), [Note::RecentLags]);
    assert_eq!(notes(check(|document| document.recent[0].time -= 1)), [Note::RecentLags]);
    assert_eq!(notes(check(|document| document.fields[0].1 = Family::Number)), [Note::Family]);
}

#[test]
fn sensors_without_a_document_are_left_over() {
    let mut seen = seen();
    assert!(seen.take("m,s=2").is_none());
    let rest = seen.into_rest();
    assert_eq!(rest.len(), 1);
    assert_eq!(no_document(&rest[0]).differences[0].kind, FindingKind::NoSensor);
    // A page whose sensor is contradictory is ignored.
    let mut unsure = page(Vec::new());
    unsure.sensor_key = "m,s=2".into();
    let mut seen = SeenSensors::default();
    seen.add(&unsure);
    assert_eq!(seen.into_rest().len(), 0);
}

#[test]
fn a_document_that_cannot_be_read_is_named_by_its_key() {
    let error = StorageError::Unreadable { id: "m,s=1".into(), detail: "no rev".into() };
    let findings = check_sensor(&RawSensor { key: "m,s=1".into(), document: Err(error) }, None);
    let Difference { document, kind, found, .. } = &findings.differences[0];
    assert_eq!((&**document, *kind, &**found), ("m,s=1", FindingKind::Unreadable, "no rev"));
}
