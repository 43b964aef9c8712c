//! Pages survive encoding and decoding unchanged. Damaged bytes cause an error that names the page.

use proptest::prelude::*;

use super::*;
use crate::bucket::{Bucket, Caps, MergeOptions, Row};
use crate::document::page_document;

const HOUR: Hour = Hour(491_150);

type Rows = Vec<(i64, Vec<(u16, Value)>)>;

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => (any::<i32>(), 0..4_i32).prop_map(|(number, places)| Value::Float(f64::from(number) / 10_f64.powi(places))),
        1 => (prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO).prop_map(Value::Float),
        2 => any::<i64>().prop_map(Value::Integer),
        1 => (1 << 63..=u64::MAX).prop_map(Value::Unsigned),
        1 => any::<bool>().prop_map(Value::Boolean),
        1 => ".{0,12}".prop_map(|text| Value::String(text.into())),
    ]
}

fn rows() -> impl Strategy<Value = Rows> {
    let cells = prop::collection::btree_map(0..4_u16, values(), 1..4).prop_map(|cells| cells.into_iter().collect());
    let times = prop_oneof![0..3_600_000_000_000_i64, (0..3600_i64).prop_map(|second| second * 1_000_000_000)];
    prop::collection::btree_map(times, cells, 1..30).prop_map(|rows| rows.into_iter().collect())
}

fn id() -> BucketId {
    let sensor = Sensor::new("my climate", [("room", "a=1, b"), ("sensor", "s1\\")]).expect("distinct tags");
    BucketId { sensor: Arc::new(sensor), hour: HOUR }
}

/// Returns a bucket of one page. Half of its readings are settled.
fn bucket(rows: &Rows) -> Bucket {
    let caps = Caps { max_readings: 3600, max_bytes: 1 << 20, hard_bytes: 4 << 20 };
    let names = ["temp", "$where.", "", "température\0"].map(Arc::from);
    let mut bucket = Bucket::default();
    for (part, floor) in rows.chunks(rows.len().div_ceil(2)).zip([0, 5]) {
        let row = |(time, cells): &'_ (i64, Vec<(u16, Value)>)| (HOUR.start_ns() + time, cells.clone());
        let part: Vec<_> = part.iter().map(row).collect();
        let rows = part.iter().map(|(time, cells)| Row { time: *time, stamp: 7, names: &names, cells });
        bucket.apply(rows, &MergeOptions { caps: &caps, floor, restamps: false });
    }
    if rows.len() % 2 == 1 {
        bucket.set_bounds(&FieldBounds::new([("temp".into(), [-3.0, 0.0, 1e3].into())]));
    }
    bucket
}

fn key(id: &BucketId) -> PageKey<'_> {
    PageKey { sensor: &id.sensor.key, hour: id.hour, number: 0 }
}

/// Returns the results of all decoders.
fn read(bytes: &[u8], key: PageKey<'_>) -> [Result<String>; 4] {
    [
        rev(bytes, || key.id()).map(|rev| rev.to_string()),
        decode(bytes, key).map(|page| format!("{page:?}")),
        decode_for_scan(bytes, key, &Projection::ALL).map(|page| format!("{page:?}")),
        decode_for_walk(bytes, key).map(|page| format!("{page:?}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_forms_of_a_page_decode_equally(rows in rows()) {
        let id = id();
        let bucket = bucket(&rows);
        let page = &bucket.pages()[0];
        let packed = encode(&id, page);
        let document = page_document(&id, page);
        prop_assert!(packed.len() < document.len());
        let ours = decode(&packed, key(&id)).expect("a page");
        let theirs = decode(&document, key(&id)).expect("a page");
        prop_assert_eq!(&ours.readings, &page.readings);
        prop_assert_eq!(ours.readings.bytes(), page.readings.bytes());
        prop_assert_eq!((ours.number, ours.rev, ours.closed), (theirs.number, theirs.rev, theirs.closed));
        prop_assert_eq!(ours.has_overflow, theirs.has_overflow);
        prop_assert_eq!(rev(&packed, || id.sensor.key.to_string()), Ok(page.next_rev()));
        for projection in [Projection::ALL, Projection::SUMMARIES] {
            let [ours, theirs] = [&packed, &document].map(|bytes| {
                let scanned = decode_for_scan(bytes, key(&id), &projection).expect("a page").expect("wanted");
                // The debug output of a float is exact.
                (scanned.hour, scanned.number, format!("{:?}", scanned.summary), scanned.readings)
            });
            prop_assert_eq!(ours, theirs);
        }
        let [ours, theirs] = [&packed, &document].map(|bytes| format!("{:?}", decode_for_walk(bytes, key(&id)).expect("a page")));
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn damaged_bytes_are_an_error_that_names_the_page(rows in rows(), other in any::<u8>()) {
        let id = id();
        let packed = encode(&id, &bucket(&rows).pages()[0]);
        let mut damaged: Vec<Vec<u8>> = (0..packed.len()).map(|length| packed[..length].to_vec()).collect();
        damaged.extend((0..packed.len()).map(|at| {
            let mut changed = packed.clone();
            changed[at] = other;
            changed
        }));
        for bytes in damaged {
            for result in read(&bytes, key(&id)) {
                // Some changes produce another valid page, which only the checksum detects.
                let Err(error) = result else { continue };
                // An unknown version is reported as a later one.
                let (StorageError::Unreadable { id: named, .. } | StorageError::Newer { id: named, .. }) = &error else {
                    panic!("{error}")
                };
                prop_assert_eq!(named, &key(&id).id());
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        bytes.push(PACKED);
        let _ = read(&bytes, key(&id()));
    }
}

#[test]
fn a_page_with_very_many_cells_is_a_document() {
    let mut bucket = Bucket::default();
    let caps = Caps { max_readings: 3600, max_bytes: 64 << 20, hard_bytes: 64 << 20 };
    let names: Vec<Arc<str>> = (0..1100).map(|n| Arc::from(format!("f{n}"))).collect();
    let cells: Vec<[(u16, Value); 1]> = (0..1100).map(|n| [(n, Value::Integer(i64::from(n)))]).collect();
    let rows = (0..).zip(&cells).map(|(n, cells)| Row { time: HOUR.start_ns() + n, stamp: 1, names: &names, cells });
    bucket.apply(rows, &MergeOptions { caps: &caps, floor: 0, restamps: false });
    let page = &bucket.pages()[0];
    assert!(page.readings.cell_count() > CELLS_MAX);
    let bytes = encode(&id(), page);
    assert_eq!(bytes.last(), Some(&DOCUMENT));
    assert_eq!(decode(&bytes, key(&id())).expect("a page").readings, page.readings);
}

#[test]
fn a_later_version_is_reported_as_such() {
    let id = id();
    let mut bytes = encode(&id, &bucket(&vec![(0, vec![(0, Value::Integer(1))])]).pages()[0]);
    *bytes.last_mut().expect("a version") = 2;
    for result in read(&bytes, key(&id)) {
        let error = result.expect_err("an unknown form").to_string();
        assert!(error.contains("it has version 2, this program knows only 1"), "{error}");
    }
}

#[test]
fn a_page_of_sixty_readings_takes_a_tenth_of_its_document() {
    let value = |n: u16| {
        [(0, Value::Float(20.0 + f64::from(n * 37 % 100) / 100.0)), (1, Value::Float(45.0 + f64::from(n % 7) / 10.0))]
    };
    let rows = (0..60).map(|n| (i64::from(n) * 60_000_000_000, value(n).to_vec())).collect();
    let id = id();
    let bucket = bucket(&rows);
    let packed = encode(&id, &bucket.pages()[0]).len();
    let document = page_document(&id, &bucket.pages()[0]).len();
    assert!(packed * 10 < document, "{packed} bytes, its document {document}");
    let rest = |summary: &Summary| {
        let figures = summary.figures();
        let Value::Float(sum) = figures.sum else { panic!("floats") };
        let mut bytes = Vec::new();
        put_rest(&mut bytes, sum, &figures.rest);
        bytes.len()
    };
    let rests: Vec<usize> = bucket.pages()[0].readings.summaries().map(|(_, summary)| rest(summary)).collect();
    assert!(rests.iter().all(|bytes| *bytes <= 3), "the rest of a sum takes at most three bytes: {rests:?}");
}
