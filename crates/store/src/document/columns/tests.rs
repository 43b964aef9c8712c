//! All forms of a part decode to the same readings, and damaged columns are rejected.

use bson::{Bson, Document, RawDocumentBuf, doc};
use proptest::prelude::*;

use super::*;
use crate::bucket::store::{PageSummaries, Projection};
use crate::bucket::summary::distribution::FieldBounds;
use crate::bucket::{DayId, DayPart, DayWrite, SealForm, StorageError};
use crate::document::{day_document, day_update, decode_day, decode_day_scanned, decode_raw_day};
use crate::reading::time::TIMESTAMP_MIN;
use crate::reading::{Day, Hour, Sensor, Value};

const FLOOR: Stamp = 77 << 20;
const DAY: Day = Day(20_464);
const NAMES: [&str; 4] = ["temp", "$where.", "ts", "température\0"];
/// Nanoseconds of a day.
const DAY_NS: i64 = 24 * 3_600_000 * MILLI_NS;

/// Cells by nanosecond of the day.
type Rows = std::collections::BTreeMap<i64, [Cell; 4]>;

fn cell() -> impl Strategy<Value = Cell> {
    prop_oneof![
        3 => Just(None),
        2 => (prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO).prop_map(|v| Some(Value::Float(v))),
        2 => any::<i64>().prop_map(|v| Some(Value::Integer(v))),
        1 => (1 << 63..=u64::MAX).prop_map(|v| Some(Value::Unsigned(v))),
        1 => any::<bool>().prop_map(|v| Some(Value::Boolean(v))),
        1 => ".{0,5}".prop_map(|text| Some(Value::String(text.into()))),
    ]
}

/// Rows, half of them with times in whole milliseconds only.
fn rows() -> impl Strategy<Value = Rows> {
    let cells = [cell(), cell(), cell(), cell()];
    let rows = prop::collection::btree_map(0..DAY_NS, cells, 0..60);
    (rows, prop_oneof![Just(1), Just(MILLI_NS)])
        .prop_map(|(rows, unit)| rows.into_iter().map(|(at, cells)| (at / unit * unit, cells)).collect())
}

fn readings(rows: &Rows) -> Readings {
    let times = rows.keys().map(|at| DAY.hours().start.start_ns() + at).collect();
    let column = |index: usize| rows.values().map(|cells| cells[index].clone()).collect();
    let columns = NAMES.iter().enumerate().map(|(index, name)| (Arc::from(*name), column(index)));
    set(times, columns.collect())
}

/// Adds a text that makes a part too large for the plain form.
fn padded(readings: &Readings) -> Readings {
    let pad: Vec<Cell> = vec![Some(Value::String("x".repeat(20_000).into())); readings.len()];
    let columns = readings.columns().map(|(name, cells)| {
        (name.clone(), cells.iter().cloned().chain(std::iter::repeat(None)).take(readings.len()).collect())
    });
    set(readings.times().to_vec(), columns.chain([("pad".into(), pad)]).collect())
}

fn set(times: Vec<i64>, columns: Vec<(Arc<str>, Vec<Cell>)>) -> Readings {
    let mut readings = Readings::from_columns(times, columns).expect("times in order");
    if readings.len() % 2 == 1 {
        readings.set_bounds(&FieldBounds::new([(NAMES[0].into(), [-3.0, 0.0, 1e3].into())]));
    }
    readings.raise_floor(FLOOR);
    readings
}

fn id(part: DayPart) -> DayId {
    DayId { sensor: Arc::new(Sensor::new("climate", [("s", "1")]).expect("distinct tags")), day: DAY, part }
}

fn write<'a>(id: &'a DayId, readings: &'a Readings) -> DayWrite<'a> {
    DayWrite { id, rev: 1, next_rev: 2, readings: Some(readings), expired: None }
}

fn encoded(write: &DayWrite<'_>, form: SealForm) -> RawDocumentBuf {
    RawDocumentBuf::from_bytes(day_document(write, form)).expect("BSON")
}

/// Returns the document as version 1 had it, with the readings under another name.
fn version_1(document: &RawDocument, name: &str) -> RawDocumentBuf {
    let mut old = Document::try_from(document).expect("a document");
    old.insert("schemaVersion", 1);
    let form = old.remove("form").expect("a form");
    old.insert("kind", form);
    let readings = old.remove(name).expect("readings");
    old.insert("readings", readings);
    RawDocumentBuf::try_from(&old).expect("BSON")
}

/// Hours, oldest stamps, summaries and readings.
type Scanned = Vec<(Hour, Stamp, PageSummaries, Option<Readings>)>;

fn scanned(document: &RawDocument, projection: &Projection) -> Scanned {
    let pages = decode_day_scanned(document, &DAY.hours(), projection).expect("pages");
    pages.into_iter().map(|page| (page.hour, page.oldest, page.summary, page.readings)).collect()
}

proptest! {
    #[test]
    fn all_forms_decode_to_the_same_readings(rows in rows()) {
        let plain = readings(&rows);
        let readings = padded(&plain);
        let hours = readings.clone().parts(Hour::from_ns);
        let of_hours = hours.iter().map(|(hour, readings)| {
            (id(DayPart::Hour(u8::try_from(hour.0 - DAY.hours().start.0).expect("an hour"))), readings)
        });
        for (id, readings) in std::iter::once((id(DayPart::Whole), &readings)).chain(of_hours) {
            let write = write(&id, readings);
            let [columns, packed] = [SealForm::Columns, SealForm::Packed].map(|form| encoded(&write, form));
            let plain = plain.clone().parts(Hour::from_ns).into_iter().filter(|(hour, _)| id.hours().contains(hour));
            let plain = plain.fold(Readings::default(), |mut all, (_, part)| { all.unite(&part); all });
            let plain_write = self::write(&id, &plain);
            let plain_document = encoded(&plain_write, SealForm::Columns);
            prop_assert_eq!(plain_document.get_str("form").ok(), Some("plain"));
            prop_assert!(decode_day(&plain_document).expect("a day").readings == plain);
            prop_assert_eq!(decode_raw_day(&plain_document).expect("a day").mismatches.len(), 0);
            if readings.is_empty() {
                continue;
            }
            for (document, name) in [(&columns, "columns"), (&packed, "sealed")] {
                let old = version_1(document, name);
                prop_assert_eq!(&decode_day(&old).expect("a day").readings, readings);
                prop_assert_eq!(scanned(&old, &Projection::SUMMARIES), scanned(document, &Projection::SUMMARIES));
                prop_assert_eq!(decode_raw_day(&old).expect("a day").mismatches.len(), 0);
            }
            let forms = [&columns, &packed].map(|document| document.get_str("form").unwrap_or_default());
            prop_assert_eq!(forms, ["columns", "packed"]);
            let day = decode_day(&columns).expect("a day");
            let of_packed = decode_day(&packed).expect("a day");
            prop_assert_eq!((day.rev, &day.readings), (of_packed.rev, &of_packed.readings));
            prop_assert!(day.readings == *readings && day.expired.is_none());
            prop_assert!(day.readings.stamps().floor() == FLOOR && day.readings.stamps().is_settled());
            for projection in [Projection::ALL, Projection::SUMMARIES] {
                prop_assert_eq!(scanned(&columns, &projection), scanned(&packed, &projection));
            }
            let raw = decode_raw_day(&columns).expect("a day");
            prop_assert_eq!((&raw.id, raw.mismatches.len(), &raw.day.readings), (&id, 0, readings));
            // An update to this form leaves no field of the other form.
            let forms = [(&packed, &write, SealForm::Columns), (&columns, &write, SealForm::Packed)];
            let to_plain = [(&packed, &plain_write, SealForm::Packed), (&columns, &plain_write, SealForm::Packed)];
            let from_plain = [(&plain_document, &write, SealForm::Packed), (&plain_document, &write, SealForm::Columns)];
            let old = [version_1(&columns, "columns"), version_1(&packed, "sealed")];
            let from_old = old.iter().map(|document| (document, &write, SealForm::Packed));
            for (before, write, form) in from_old.chain(forms).chain(to_plain).chain(from_plain) {
                let mut updated: Document = Document::try_from(&**before).expect("a document");
                let update = Document::from_reader(&*day_update(write, form, None)).expect("an update");
                updated.extend(update.get_document("$set").expect("$set").clone());
                for name in update.get_document("$unset").expect("$unset").keys() {
                    updated.remove(name);
                }
                let by_name = |document: Document| document.into_iter().collect::<std::collections::BTreeMap<_, _>>();
                prop_assert_eq!(by_name(updated), by_name(Document::try_from(encoded(write, form)).expect("a document")));
            }
        }
    }
}

#[test]
fn chunks_and_oversized_parts_are_packed() {
    let text = |place: i64| Some(Value::String(format!("{place}{}", "x".repeat(9_000)).into()));
    let large = set((0..1_000).collect(), vec![("text".into(), (0..1_000).map(text).collect())]);
    let plain = set(vec![TIMESTAMP_MIN, -1, 0], vec![("n".into(), vec![None, Some(Value::Integer(1)), None])]);
    let small = padded(&plain);
    let number = |field: i64| vec![Some(Value::Integer(field)); 2];
    let wide = set(vec![0, 1], (0..1100).map(|field| (format!("field-{field}").into(), number(field))).collect());
    let chunk = id(DayPart::Chunk { stamp: 7, hour: 0 });
    let whole = id(DayPart::Whole);
    let hour = id(DayPart::Hour(3));
    for (id, readings, form) in [
        (&chunk, &small, "chunk"),
        (&whole, &large, "packed"),
        (&hour, &large, "packed"),
        (&whole, &small, "columns"),
        (&hour, &small, "columns"),
        (&chunk, &plain, "chunk"),
        (&whole, &wide, "wide"),
        (&whole, &plain, "plain"),
    ] {
        let document = encoded(&write(id, readings), SealForm::Columns);
        assert_eq!(document.get_str("form").ok(), Some(form), "{:?}", id.part);
        assert_eq!(&decode_day(&document).expect("a day").readings, readings, "{:?}", id.part);
        assert_eq!(decode_raw_day(&document).expect("a day").mismatches.len(), 0);
    }
}

#[test]
fn damaged_columns_are_unreadable_and_newer_ones_are_newer() {
    let readings = set(vec![1, MILLI_NS, 5 * MILLI_NS + 3], vec![("n".into(), vec![Some(Value::Integer(1)); 3])]);
    let readings = padded(&readings);
    let id = id(DayPart::Whole);
    let sound = Document::try_from(encoded(&write(&id, &readings), SealForm::Columns)).expect("a document");
    let dates = |times: &[i64]| times.iter().map(|ms| bson::DateTime::from_millis(*ms)).map(Bson::from).collect();
    for (path, value, why) in [
        ("at", Bson::Array(dates(&[0, 1])), "differ in length"),
        ("at", Bson::Array(dates(&[0, 5, 1])), "order"),
        ("at", Bson::Array(dates(&[0, 1, i64::MAX / 2])), "out of range"),
        ("at", Bson::Array(vec![Bson::Int64(1); 3]), "unexpected type"),
        ("ns", Bson::Array(vec![Bson::Int32(1_000_000); 3]), "unexpected type"),
        ("ns", Bson::Array(vec![Bson::Int32(0)]), "differ in length"),
        ("fields", Bson::Document(doc! { "n": [1_i64, 2_i64] }), "differ in length"),
        ("fields", Bson::Document(doc! { "n": [1_i64, 2_i64, [3_i64]] }), "unexpected type"),
        ("fields", Bson::Int32(1), "not a document"),
    ] {
        let mut damaged = sound.clone();
        damaged.get_document_mut("columns").expect("columns").insert(path, value.clone());
        let damaged = RawDocumentBuf::try_from(&damaged).expect("BSON");
        match decode_day(&damaged) {
            Err(StorageError::Unreadable { detail, .. }) => assert!(detail.contains(why), "{path} {value}: {detail}"),
            other => panic!("{path} {value}: {other:?}"),
        }
    }
    let mut newer = sound;
    newer.insert("schemaVersion", 3);
    let newer = RawDocumentBuf::try_from(&newer).expect("BSON");
    assert!(matches!(decode_day(&newer), Err(StorageError::Newer { .. })));
}
