//! Tests the write path with an invented format.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::access::Caller;
use crate::bucket::UnflushedReadings;
use crate::clock::{ClockBounds, StampClock};
use crate::ingest::{Arrival, Ingest};
use crate::reading::value::RawValue;
use crate::reading::{Hour, Precision, Reason, Rejection, Sensor, Value};
use crate::store::{EmbeddedStore, MergedView};
use crate::telemetry::Metrics;
use crate::wal::{self, Folder, Wal};
use crate::wire::{Point, PointSeries, Points};

/// An invented format: `measurement;field;number;nanoseconds`, one reading per line.
struct Semicolons<'a> {
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
    sensor: Option<Sensor>,
    fields: Vec<(Cow<'a, str>, RawValue<'a>)>,
}

impl<'a> Semicolons<'a> {
    fn new(body: &'a str) -> Self {
        Self { lines: body.lines().enumerate(), sensor: None, fields: Vec::new() }
    }
}

impl<'a> Points<'a> for Semicolons<'a> {
    fn next(&mut self) -> Option<Result<Point<'_, 'a>, Rejection>> {
        let (index, line) = self.lines.next()?;
        let rejection = || Some(Err(Rejection::new(index + 1, 0, line.as_bytes(), Reason::MissingFields)));
        let parts: Vec<&str> = line.split(';').collect();
        let [measurement, field, value, time] = parts[..] else { return rejection() };
        let Ok(value) = value.parse() else { return rejection() };
        let Ok(time) = time.parse() else { return rejection() };
        self.fields = vec![(Cow::Borrowed(field), RawValue::Float(value))];
        let no_tags: [(&str, &str); 0] = [];
        let sensor = self.sensor.insert(Sensor::new(measurement, no_tags).expect("no tag is there twice"));
        Some(Ok(Point {
            number: index + 1,
            text: line.as_bytes(),
            series: PointSeries::Read(sensor),
            fields: &self.fields,
            timestamp: Some(time),
            has_unit: true,
        }))
    }
}

fn ingest(folder: &std::path::Path) -> Ingest {
    let store = EmbeddedStore::open(folder, 1 << 20).expect("a store in a new folder");
    let store = Arc::new(MergedView::new(Arc::new(store)));
    let disk = Folder::new(folder.join("log")).expect("a folder");
    let (log, recovery) = Wal::open(disk, wal::WalOptions::new("toy")).expect("a log in a new folder");
    let bounds = ClockBounds { tolerance: Duration::from_millis(250), max_offset: Duration::from_secs(60) };
    let clock = Arc::new(StampClock::new(bounds, false));
    let settings = Arc::new(crate::config::small());
    let metrics = Metrics::new("toy", "embedded").expect("metrics");
    Ingest::start(settings, store, Arc::new(|_: &str| None), log, &recovery, clock, metrics).0
}

/// A new format needs only a parser; validation and storage work unchanged.
#[tokio::test]
async fn a_format_is_a_type_that_yields_points() {
    let folder = tempfile::tempdir().expect("a folder");
    let ingest = ingest(folder.path());
    ingest.join(Duration::from_secs(5)).await;
    let body = "climate;t;22.5;1768485600000000000\nclimate;t;warm;1\nclimate;h;45;1768485600000000000\n";
    let arrival = Arrival {
        database: "plant",
        precision: Precision::Nanoseconds,
        is_precision_declared: true,
        received: 1_768_485_600_000_000_000,
        is_partial: true,
        ack: None,
        retry: None,
        is_patient: false,
        turn: None,
        caller: &Caller::Anybody,
        address: None,
        mapping: None,
        topic: None,
    };
    let ack = ingest.take(arrival, |_| Semicolons::new(body), ingest.admission(&Caller::Anybody)).await.expect("acked");
    assert_eq!((ack.accepted, ack.rejected.count, ack.rejected.reported[0].line), (2, 1, 2));
    let hour = Hour::from_ns(arrival.received);
    let unflushed = ingest.unflushed("plant", &["climate"], hour..hour.next()).await.expect("all is fed");
    let set = unflushed[0][0].readings();
    let read: Vec<(String, Value)> = set.fields(0).map(|(name, value)| (name.to_string(), value.clone())).collect();
    assert_eq!(read, [("t", 22.5), ("h", 45.0)].map(|(name, value)| (name.to_owned(), Value::Float(value))));
}
