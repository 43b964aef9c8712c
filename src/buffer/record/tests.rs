//! Tests of encoded and decoded records, and of malformed payloads.

use proptest::prelude::*;

use super::*;
use crate::access::Allowance;
use crate::catalog::{Catalog, LookupResult, WantedSensor};
use crate::reading::Family;

/// A generated row: the sensor's number, the timestamp, and the cells by field number.
type GivenRow = (usize, i64, Vec<(usize, Value)>);

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<f64>().prop_filter("finite", |v| v.is_finite()).prop_map(Value::Float),
        any::<i64>().prop_map(Value::Integer),
        (1 << 63..=u64::MAX).prop_map(Value::Unsigned),
        any::<bool>().prop_map(Value::Boolean),
        ".{0,12}".prop_map(|text| Value::String(text.into())),
    ]
}

fn rows() -> impl Strategy<Value = Vec<GivenRow>> {
    let cells = prop::collection::vec((0..4_usize, values()), 1..4);
    prop::collection::vec((0..5_usize, any::<i64>(), cells), 0..30)
}

fn sensor(number: usize) -> Sensor {
    let tags = [("s,=", number.to_string()), ("empty room", "\n\u{1f321}".to_owned())];
    Sensor::new("my climate", tags.map(|(key, value)| (key.to_owned(), value))).expect("distinct keys")
}

/// Makes the batches, one per shard, as admission does.
fn batches(rows: &[GivenRow], shards: usize) -> Vec<Batch> {
    let mut settings = crate::config::small();
    settings.ingest.shards = shards;
    let catalog = Catalog::new(&settings);
    let database = catalog.enlist_database("d");
    let wanted = |number| WantedSensor { sensor: sensor(number), allowance: Allowance::default() };
    catalog.add_sensors(&database, (0..5).map(wanted).collect(), LookupResult::default(), usize::MAX);
    let mut batches: Vec<Batch> = (0..shards).map(|_| Batch::default()).collect();
    let mut places: HashMap<usize, u32> = HashMap::new();
    for (number, time, cells) in rows {
        let known = catalog.sensor(&database, &sensor(*number).key).expect("learnt");
        let batch = &mut batches[known.shard];
        let start = batch.cells();
        for (field, value) in cells {
            let fields = known.add_field(&format!("f{field}"), Family::Number, 100).expect("room");
            let index = fields.find(&format!("f{field}"), 0).expect("added");
            batch.push_cell(u16::try_from(index).expect("few"), value.clone());
        }
        let place = *places.entry(*number).or_insert_with(|| {
            batch.sensors.push(known.clone());
            u32::try_from(batch.sensors.len() - 1).expect("few")
        });
        batch.push_row(place, *time, start);
    }
    batches
}

/// Formats rows, sensor by sensor in the order in which they were accepted.
fn row_texts(rows: impl Iterator<Item = (String, i64, Vec<(String, Value)>)>) -> Vec<String> {
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows.into_iter().map(|row| format!("{row:?}")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn accepted_readings_are_read_back(rows in rows(), shards in 1..4_usize, received in any::<i64>()) {
        let payload = encode("my \"db\"", received, &batches(&rows, shards));
        let request = decode(KIND_READINGS, &payload).expect("a record");
        prop_assert_eq!((&*request.database, request.received), ("my \"db\"", received));
        let read = request.rows.iter().map(|row| {
            let cells = row.cells.iter().map(|(name, value)| (request.names[*name].to_string(), value.clone()));
            (request.sensors[row.sensor].key.to_string(), row.time, cells.collect())
        });
        let given = rows.iter().map(|(number, time, cells)| {
            let cells = cells.iter().map(|(field, value)| (format!("f{field}"), value.clone()));
            (sensor(*number).key.to_string(), *time, cells.collect())
        });
        prop_assert_eq!(row_texts(read), row_texts(given));
    }

    #[test]
    fn an_outline_has_every_sensor_hour_and_field_and_no_other(rows in rows(), shards in 1..4_usize) {
        let payload = encode("my \"db\"", 7, &batches(&rows, shards));
        let outline = outline::outline(KIND_READINGS, &payload).expect("a record");
        prop_assert_eq!(&*outline.database, "my \"db\"");
        let mut read: Vec<String> = Vec::new();
        for outlined in &outline.sensors {
            let key = &outlined.sensor.key;
            let hours = outlined.hours.iter().flat_map(|hours| hours.start.0..hours.end.0);
            read.extend(hours.map(|hour| format!("{key} {hour}")));
            read.extend(outlined.fields.iter().map(|(name, _)| format!("{key} {name}")));
        }
        let mut given: Vec<String> = Vec::new();
        for (number, time, cells) in &rows {
            let key = sensor(*number).key;
            given.push(format!("{key} {}", crate::reading::Hour::from_ns(*time).0));
            given.extend(cells.iter().map(|(field, _)| format!("{key} f{field}")));
        }
        for list in [&mut read, &mut given] {
            list.sort();
            list.dedup();
        }
        prop_assert_eq!(read, given);
    }

    #[test]
    fn arbitrary_bytes_cause_no_panic_or_large_allocation(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let payload = [&[VERSION], &bytes[..]].concat();
        let record = decode(KIND_READINGS, &payload);
        let outline = outline::outline(KIND_READINGS, &payload);
        prop_assert!(record.is_err() || outline.is_ok());
    }

    #[test]
    fn a_cut_record_is_malformed(rows in rows(), cut in any::<prop::sample::Index>()) {
        let payload = encode("d", 0, &batches(&rows, 2));
        let cut = cut.index(payload.len() - 1) + 1;
        let is_malformed = matches!(decode(KIND_READINGS, &payload[..cut]), Err(RecordError::Malformed { .. }));
        prop_assert!(is_malformed, "cut at {}", cut);
    }
}

#[test]
fn unknown_kinds_and_versions_are_rejected() {
    assert_eq!(decode(9, &[VERSION]), Err(RecordError::Unknown { kind: 9, version: VERSION }));
    assert_eq!(decode(KIND_READINGS, &[2]), Err(RecordError::Unknown { kind: KIND_READINGS, version: 2 }));
}

/// The bytes of version 1 must not change, because WAL files hold them.
#[test]
fn the_bytes_of_version_1_stay() {
    let rows = vec![(0, 5, vec![(0, Value::Integer(-1)), (1, Value::Boolean(true))])];
    let payload = encode("d", 1, &batches(&rows, 1));
    let expected = [
        &[1, 0, 2, 1, b'd'][..],
        &[2, 2, b'f', b'0', 2, b'f', b'1'],
        &[1, 10],
        b"my climate",
        &[2, 10],
        b"empty room",
        &[5],
        "\n\u{1f321}".as_bytes(),
        &[3],
        b"s,=",
        &[1, b'0'],
        &[1, 0, 10, 2, 1, 1, 1 << 3 | 4],
    ];
    assert_eq!(payload, expected.concat());
}
