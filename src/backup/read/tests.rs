//! Readings that expire while they are read.

use super::*;
use crate::backup::{Fill, FillOptions};
use crate::bucket::settings::ExpiredReadings;
use crate::bucket::store::WriteOutcome;
use crate::bucket::{Caps, DatabaseSettings, DayId, DayWrite, Reading, SealForm};
use crate::reading::{Sensor, Value};
use crate::store::embedded::EmbeddedStore;

const STAMP: u64 = 1 << 40;
const BOUNDS: ReadBounds = ReadBounds { batch_bytes: 4 << 10, hour_bytes: 4 << 10 };

/// Writes hour pages of one sensor: `readings` readings in each of the first `hours` hours.
async fn filled(store: &MergedView, hours: i64, readings: i64) -> (Arc<Sensor>, Readings) {
    let caps = Caps { max_readings: 50, max_bytes: 1 << 16, hard_bytes: 1 << 20 };
    let options = FillOptions { caps, stamp: STAMP, seals: false, seal_form: SealForm::default(), recent: 1 };
    let sensor = Arc::new(Sensor::from_key("m,s=1").expect("a key"));
    let length = Hour(1).start_ns() / readings;
    let reading = |n: i64| Reading {
        time: n / readings * Hour(1).start_ns() + n % readings * length,
        fields: vec![(Arc::from("v"), Value::Float((n * 7919 % 1009) as f64 / 7.0))],
    };
    let set: Readings = (0..hours * readings).map(reading).collect();
    let mut fill = Fill::begin(store, "d", options).await.expect("a database");
    let document = Arc::new(SensorDocument::new(sensor.clone()));
    let part = Part { document, readings: set.clone(), times: None };
    fill.write(Piece::Readings(part)).await.expect("taken");
    fill.finish().await.expect("written");
    (sensor, set)
}

/// Lets the readings of the day expire: replaces them by summaries.
async fn expire(store: &MergedView, sensor: &Arc<Sensor>, readings: &Readings) {
    let gone = ExpiredReadings { before: Day(1).hours().start.start_ns(), stamp: STAMP, done: TIMESTAMP_MIN };
    let settings = DatabaseSettings { expired_readings: Some(gone), ..DatabaseSettings::default() };
    assert!(matches!(store.raw().write_settings("d", 0, Some(&settings)).await, WriteOutcome::Applied));
    let id = DayId { sensor: sensor.clone(), day: Day(0), part: DayPart::Whole };
    let expired = ExpiredDay::from_readings(readings);
    let none = Readings::default();
    let write = DayWrite { id: &id, rev: 0, next_rev: 1, readings: Some(&none), expired: Some(&expired) };
    assert!(matches!(&store.write_days("d", &[write]).await[..], [WriteOutcome::Applied]));
    store.raw().remove_buckets("d", &[&sensor.key], Day(0).hours(), u64::MAX).await.expect("removed");
}

/// Regression: readings of an hour or a day that expired during the read were followed by their summaries. A backup
/// then had both, and could not be restored.
#[tokio::test]
async fn readings_and_summaries_of_one_part_are_never_both_given() {
    // One hour that is read in parts, and several hours that are read one after the other.
    for (hours, count) in [(1, 2000), (3, 400)] {
        let folder = tempfile::tempdir().expect("a folder");
        let store = EmbeddedStore::open(folder.path(), 1 << 20).expect("a new store");
        let store = MergedView::new(Arc::new(store));
        let (sensor, readings) = filled(&store, hours, count).await;
        let mut whole = SetDigest::default();
        let mut parts = Parts::new(&store, "d", Day(0).hours(), BOUNDS);
        let mut pieces = 0;
        let mut most = 0;
        while let Some(piece) = parts.next().await.expect("read") {
            whole += piece.digest();
            pieces += 1;
            most = most.max(piece.readings().expect("readings").readings.len());
        }
        assert_eq!(whole, SetDigest::from_readings(&sensor.key, &readings));
        assert!(pieces > 1 && most < readings.len(), "{hours}: {pieces} pieces");
        let mut parts = Parts::new(&store, "d", Day(0).hours(), BOUNDS);
        let first = parts.next().await.expect("read").expect("a piece");
        assert!(first.readings().is_some());
        expire(&store, &sensor, &readings).await;
        let failed = loop {
            match parts.next().await {
                Ok(Some(piece)) => assert!(piece.readings().is_some(), "{hours}: both"),
                Ok(None) => panic!("{hours}: a part is taken for the whole"),
                Err(error) => break error,
            }
        };
        assert!(matches!(failed, StorageError::ReadAgain { .. }), "{failed}");
        let mut again = Parts::new(&store, "d", Day(0).hours(), BOUNDS);
        let piece = again.next().await.expect("read").expect("a piece");
        assert_eq!(piece.digest(), SetDigest::from_expired(&sensor.key, &ExpiredDay::from_readings(&readings)));
        assert!(again.next().await.expect("read").is_none());
    }
}
