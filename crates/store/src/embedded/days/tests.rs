//! Stored summaries agree with the readings of a part, for any fields and hours. Damage is reported with the part's id,
//! and a scan of summaries does not check the readings.

use proptest::prelude::*;
use redb::backends::InMemoryBackend;
use redb::{Database, ReadableTable};

use super::*;
use crate::bucket::columns::Cell;
use crate::bucket::store::{Extent, Projection, ScanResult};
use crate::bucket::summary::distribution::FieldBounds;
use crate::embedded::tables::{begin, prepare};
use crate::reading::time::MILLI_NS;
use crate::reading::{Sensor, Value};

const DB: &str = "plant";
const DAY: Day = Day(20_464);
const FLOOR: Stamp = 77 << 20;
const NAMES: [&str; 3] = ["temp", "$where.", "température\0"];

/// The cells of three fields by minute of the day.
type Rows = std::collections::BTreeMap<i64, [Cell; 3]>;

fn cell() -> impl Strategy<Value = Cell> {
    prop_oneof![
        2 => Just(None),
        4 => (any::<i16>(), 0..3_i32).prop_map(|(number, places)| Some(Value::Float(f64::from(number) / 10_f64.powi(places)))),
        1 => (prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO).prop_map(|v| Some(Value::Float(v))),
        2 => any::<i64>().prop_map(|v| Some(Value::Integer(v))),
        1 => (1 << 63..=u64::MAX).prop_map(|v| Some(Value::Unsigned(v))),
        1 => any::<bool>().prop_map(|v| Some(Value::Boolean(v))),
        1 => ".{0,5}".prop_map(|text| Some(Value::String(text.into()))),
    ]
}

fn rows() -> impl Strategy<Value = Rows> {
    prop::collection::btree_map(0..1440_i64, [cell(), cell(), cell()], 1..60)
}

fn readings(rows: &Rows) -> Readings {
    let times = rows.keys().map(|minute| DAY.hours().start.start_ns() + minute * 60_000 * MILLI_NS).collect();
    let column = |index: usize| rows.values().map(|cells| cells[index].clone()).collect();
    let columns = NAMES.iter().enumerate().map(|(index, name)| (Arc::from(*name), column(index)));
    let mut readings = Readings::from_columns(times, columns).expect("times in order");
    if rows.len() % 2 == 1 {
        readings.set_bounds(&FieldBounds::new([(NAMES[0].into(), [-3.0, 0.0, 1e3].into())]));
    }
    readings.raise_floor(FLOOR);
    readings
}

/// Adds a text that makes a part too large for the plain form.
fn padded(readings: &Readings) -> Readings {
    let pad: Vec<Cell> = vec![Some(Value::String("x".repeat(20_000).into())); readings.len()];
    let columns = readings.columns().map(|(name, cells)| {
        (name.clone(), cells.iter().cloned().chain(std::iter::repeat(None)).take(readings.len()).collect())
    });
    let columns: Vec<(Arc<str>, Vec<Cell>)> = columns.chain([("pad".into(), pad)]).collect();
    let mut padded = Readings::from_columns(readings.times().to_vec(), columns).expect("times in order");
    padded.set_bounds(readings.bounds());
    padded.raise_floor(FLOOR);
    padded
}

fn id() -> DayId {
    let sensor = Sensor::new("my climate", [("room", "a=1, b"), ("sensor", "s1\\")]).expect("distinct tags");
    DayId { sensor: Arc::new(sensor), day: DAY, part: DayPart::Whole }
}

fn encode_readings(key: &[u8], id: &DayId, rev: u64, readings: &Readings) -> Vec<u8> {
    super::encode_readings(key, id, rev, readings, is_plain(readings))
}

fn key(id: &DayId) -> Vec<u8> {
    Keys::new(DB).day(id.day, &id.sensor.key, id.part)
}

/// Returns a file with one part of these bytes.
fn file(id: &DayId, bytes: Vec<u8>) -> Database {
    let database = Database::builder().create_with_backend(InMemoryBackend::new()).expect("a new database");
    prepare(&database).expect("tables").expect("a known format");
    let put = Put::new(key(id), 0, bytes);
    let transaction = begin(&database).expect("begin");
    put.put(&mut transaction.open_table(DAYS).expect("a table")).expect("an insert");
    transaction.commit().expect("commit");
    database
}

fn stored_days(database: &Database) -> DocumentRows {
    database.begin_read().expect("a snapshot").open_table(DAYS).expect("a table")
}

fn scanned(
    database: &Database,
    id: &DayId,
    hours: &Range<Hour>,
    order: Order,
    projection: &Projection,
) -> Result<String, String> {
    let scanned = scan(&Keys::new(DB), &stored_days(database), &id.sensor.key, hours, order, projection, Extent::ALL);
    scanned.map(|scan| format!("{:?}", scan.scanned)).map_err(|error| format!("{error:?}"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn stored_summaries_agree_with_the_readings(
        rows in rows(),
        from in 0..24_i64,
        length in 1..30_i64,
        fields in 0..4_usize,
        is_plain in any::<bool>(),
    ) {
        let id = id();
        let readings = if is_plain { readings(&rows) } else { padded(&readings(&rows)) };
        let start = DAY.hours().start.0 + from;
        let hours = Hour(start)..Hour(start + length);
        let by_column = file(&id, encode_readings(&key(&id), &id, 9, &readings));
        let fields: Arc<[Arc<str>]> = NAMES[..fields].iter().map(|field| Arc::from(*field)).collect();
        for projection in [Projection::SUMMARIES, Projection::ALL] {
            let projection = Projection { fields: Some(fields.clone()), ..projection };
            let found = scanned(&by_column, &id, &hours, Order::Ascending, &projection).expect("a scan");
            let pages = projection.hour_pages(readings.clone(), &hours);
            let shown = pages.iter().map(|page| format!("{page:?}")).collect::<Vec<_>>().join(", ");
            prop_assert!(found.contains(&format!("[{shown}]")), "{found} {shown}");
        }
        let summaries = scanned(&by_column, &id, &DAY.hours(), Order::Ascending, &Projection::SUMMARIES);
        let pages = Projection::SUMMARIES.hour_pages(readings, &DAY.hours());
        let whole = ScanResult { pages, rest: DAY.next().hours().start..DAY.hours().end };
        prop_assert_eq!(summaries, Ok(format!("{whole:?}")));
    }
}

fn some_rows() -> Rows {
    let row = |minute: i64| {
        let number = f64::from(i32::try_from(minute).expect("small"));
        (minute, [Some(Value::Float(number / 7.0)), Some(Value::Integer(minute)), None])
    };
    (0..24).map(|hour| row(hour * 60 + hour)).collect()
}

/// A scan of summaries detects damage in the head. Reads of readings detect damage anywhere.
#[test]
fn reads_detect_damage_in_the_bytes_that_they_use() {
    let id = id();
    let readings = padded(&readings(&some_rows()));
    let whole = encode_readings(&key(&id), &id, 9, &readings);
    let sealed = whole.len() - sealed::pack(&readings).len();
    for at in 0..whole.len() {
        let database = file(&id, whole.clone());
        let transaction = begin(&database).expect("begin");
        {
            let mut days = transaction.open_table(DAYS).expect("a table");
            let mut value = days.get(&*key(&id)).expect("a read").expect("a part").value().to_vec();
            value[at] ^= 0x10;
            days.insert(&*key(&id), &*value).expect("an insert");
        }
        transaction.commit().expect("commit");
        let scanned = |projection| scanned(&database, &id, &DAY.hours(), Order::Ascending, projection);
        assert_eq!(scanned(&Projection::SUMMARIES).is_ok(), at >= sealed, "byte {at} of {sealed}");
        assert!(scanned(&Projection::ALL).is_err(), "byte {at}");
        assert!(read(&Keys::new(DB), &stored_days(&database), std::slice::from_ref(&id)).is_err(), "byte {at}");
    }
}

/// Invalid bytes are reported even if their checksum matches.
#[test]
fn invalid_parts_with_a_valid_checksum_are_reported() {
    let id = id();
    let readings = padded(&readings(&some_rows()));
    let key = key(&id);
    let whole = encode_readings(&key, &id, 9, &readings);
    let head = whole.len() - sealed::pack(&readings).len() - CHECKSUM_BYTES;
    let mut reported = 0;
    for at in 0..head {
        let mut changed = whole.clone();
        changed[at] ^= 0x81;
        let sum = checksum(&key, &changed[..head]).to_le_bytes();
        changed[head..head + CHECKSUM_BYTES].copy_from_slice(&sum);
        let database = file(&id, changed);
        let found = scanned(&database, &id, &DAY.hours(), Order::Ascending, &Projection::SUMMARIES);
        reported += usize::from(found.is_err_and(|error| error.contains("Unreadable")));
    }
    assert!(reported > head / 8, "{reported} of {head} bytes");
}

/// A row that version 1 wrote: 24 readings of `m,s=000` in the database `d`.
const VERSION_1: &str = include_str!("version_1.hex");

/// Version 1 kept summaries of few readings, too. Such rows are read, pass the checks, and are found by the migration.
#[test]
fn small_days_of_version_1_are_outdated() {
    let id = DayId {
        sensor: Arc::new(Sensor::new("m", [("s", "000")]).expect("distinct tags")),
        day: Day(20_468),
        part: DayPart::Whole,
    };
    let key = Keys::new("d").day(id.day, &id.sensor.key, id.part);
    let times = (0..24).map(|hour| id.day.hours().start.start_ns() + hour * 3_600_000 * MILLI_NS).collect();
    let floats = (0..24).map(|hour| Some(Value::Float(f64::from(hour) / 2.0))).collect();
    let integers = (0..24).map(|hour| Some(Value::Integer(hour))).collect();
    let mut few = Readings::from_columns(times, vec![("v".into(), floats), ("n".into(), integers)]).expect("in order");
    few.raise_floor(FLOOR);
    let parse = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).expect("ASCII"), 16).expect("hex");
    let stored: Vec<u8> = VERSION_1.trim().as_bytes().chunks(2).map(parse).collect();
    let row = |bytes: &[u8]| [bytes, &checksum(&key, bytes).to_le_bytes()].concat();
    let outdated = |bytes: &[u8]| {
        let mut found = Vec::new();
        add_outdated(&mut found, &key, &row(bytes));
        found.pop().map(|part| part.document)
    };
    assert_eq!(stored[..2], [VERSION, READINGS]);
    let old = outdated(&stored).expect("outdated").expect("readable");
    assert_eq!((&old.id, old.day.rev, &old.day.readings, old.mismatches.len()), (&id, 9, &few, 0));
    // The forms of this version are left alone: plain, with summaries of many readings, and chunks.
    let chunk = DayId { part: DayPart::Chunk { stamp: 7, hour: 0 }, ..id.clone() };
    for bytes in [
        encode_readings(&key, &id, 9, &few),
        encode_readings(&key, &id, 9, &padded(&few)),
        encode_readings(&key, &chunk, 9, &few),
    ] {
        assert!(outdated(&bytes).is_none());
    }
    let newer = outdated(&[&[PLAIN_VERSION + 1], &stored[1..]].concat()).expect("reported");
    assert!(matches!(newer, Err(StorageError::Newer { .. })), "{newer:?}");
    let damaged = outdated(&stored[..stored.len() - 1]).expect("reported");
    assert!(matches!(damaged, Err(StorageError::Unreadable { .. })), "{damaged:?}");
}
