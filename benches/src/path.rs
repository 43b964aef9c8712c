//! The way of a body from its bytes to its ack and into the shards, on one thread beside the log's: no socket before it,
//! and no flush behind it.

use std::sync::Arc;
use std::time::Duration;

use hourglass::access::{Caller, Quota};
use hourglass::bucket::deletions::Masks;
use hourglass::bucket::{Caps, Store};
use hourglass::clock::{ClockBounds, StampClock};
use hourglass::ingest::{Ack, AckLevel, Arrival, Ingest, IngestError, Options, Stores, Window};
use hourglass::log::{self, Log, Recovery};
use hourglass::query::influx::sensors_of;
use hourglass::reading::{Limits, Precision};
use hourglass::store::{EmbeddedStore, Masked};
use hourglass::telemetry::Metrics;
use hourglass::wire::line_protocol::Lines;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::{Fleet, MemoryDisk};

/// Longer than anything here runs.
const NEVER: Duration = Duration::from_secs(30 * 24 * 3600);
/// Lines of a body by which a fleet is made known.
const LINES: usize = 5000;

/// An ingest path with a log in memory, and with a store that is asked for sensors and given nothing.
#[derive(Debug)]
pub struct Path {
    runtime: Runtime,
    ingest: Ingest,
    folder: TempDir,
}

impl Path {
    /// A new one.
    ///
    /// # Panics
    /// Where there is no folder for temporary files.
    #[must_use]
    pub fn new() -> Self {
        Self::over(MemoryDisk::default())
    }

    fn over(disk: MemoryDisk) -> Self {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let folder = tempfile::tempdir().expect("a folder");
        let store = EmbeddedStore::open(folder.path(), 1 << 20).expect("a store in a new folder");
        let (log, recovery) = open(disk);
        let metrics = Metrics::new("bench", "embedded").expect("metrics");
        let (ingest, _) = {
            let _entered = runtime.enter();
            let bounds = ClockBounds { tolerance: Duration::from_millis(250), max_offset: Duration::from_secs(60) };
            let clock = Arc::new(StampClock::new(bounds));
            let opened = (log, &recovery, clock);
            Ingest::start(options(folder.path().join("dead-letters.lp")), stores(store), opened, metrics)
        };
        Self { runtime, ingest, folder }
    }

    /// A new one that has had the first tick of a fleet.
    #[must_use]
    pub fn knowing(fleet: &mut Fleet) -> Self {
        let path = Self::new();
        path.take_all(&fleet.bodies(fleet.sensors(), LINES));
        path
    }

    /// Takes a body to its ack.
    ///
    /// # Panics
    /// When a line of it is not kept.
    pub fn take(&self, body: &str) -> usize {
        let ack = self.runtime.block_on(self.lines(body, true)).expect("an ack");
        assert_eq!(ack.rejected.count, 0, "all lines are good");
        ack.accepted
    }

    /// Takes bodies, one after the other, and waits until the shards have them.
    ///
    /// # Panics
    /// When a line of them is not kept.
    pub fn take_all(&self, bodies: &[String]) -> usize {
        let taken = bodies.iter().map(|body| self.take(body)).sum();
        // The shards' own tasks; each is woken before the ack is sent.
        self.runtime.block_on(async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        });
        taken
    }

    /// Parses and judges a body and no more: it is to be kept whole or not at all, and its last line is bad.
    ///
    /// # Panics
    /// When more lines than that are refused.
    pub fn judge(&self, body: &str) {
        let ack = self.runtime.block_on(self.lines(body, false)).expect("an answer");
        assert_eq!((ack.accepted, ack.rejected.count), (0, 1), "only the last line is bad");
    }

    /// Ends the process. What was taken is not taken apart, which would cost as much as there is of it.
    pub fn end(self) -> ! {
        let _ = self.folder.close();
        std::process::exit(0)
    }

    async fn lines(&self, body: &str, partial: bool) -> Result<Ack, IngestError> {
        let (precision, ack) = (Precision::Nanoseconds, Some(AckLevel::Log));
        let arrival =
            Arrival { database: "bench", precision, received: 0, partial, ack, patient: false, by: &Caller::Anybody };
        let mut admission = self.ingest.admission();
        admission.grow(body.len())?;
        let read = |limits| Lines::new(body.as_bytes(), arrival.precision, limits);
        self.ingest.take(arrival, read, admission).await
    }
}

impl Default for Path {
    fn default() -> Self {
        Self::new()
    }
}

/// The record that a body becomes, as it is read back.
///
/// # Panics
/// When a line of it is not kept.
#[must_use]
pub fn record(body: &str) -> Vec<u8> {
    let disk = MemoryDisk::default();
    Path::over(disk.clone()).take(body);
    let (log, _) = open(disk);
    let record = log.reader(1).next().expect("a log that can be read");
    record.expect("a record").payload
}

fn open(disk: MemoryDisk) -> (Log, Recovery) {
    Log::open(disk, log::Options::new("bench")).expect("a log in memory")
}

fn stores(store: EmbeddedStore) -> Stores {
    let (raw, masks): (Arc<dyn Store>, _) = (Arc::new(store), Masks::default());
    let store = Arc::new(Masked::new(raw.clone(), masks.clone()));
    Stores { store, raw, masks, understand: Arc::new(sensors_of) }
}

/// The defaults of the config, but that nothing is ever due.
fn options(dead_letters: std::path::PathBuf) -> Options {
    Options {
        shards: 2,
        bytes_in_flight: 128 << 20,
        ack: AckLevel::Log,
        ack_timeout: NEVER,
        caps: Caps { max_readings: usize::MAX, max_bytes: usize::MAX, hard_bytes: usize::MAX },
        hot_bytes: 16 << 30,
        flush_interval: NEVER,
        flush_quiet: NEVER,
        flights: 2,
        log_dir: std::path::PathBuf::new(),
        horizon: NEVER,
        deletions: 1_000,
        log_bytes: 10 << 30,
        dead_letters,
        recent: 10,
        sensor_interval: NEVER,
        outlier_ttl: NEVER,
        limits: Limits::default(),
        sensor_fields: 256,
        sensors: 1_000_000,
        databases: 10,
        database_share: 25,
        database_quota: Quota::default(),
        window: Window::default(),
    }
}
