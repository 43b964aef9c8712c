//! The ingest path from the bytes of a body to its ack and into the shards, without sockets and flushes. It runs on one
//! thread, besides that of the WAL.

use std::sync::Arc;
use std::time::Duration;

use hourglass::access::Caller;
use hourglass::clock::{ClockBounds, StampClock};
use hourglass::config::Settings;
use hourglass::ingest::{Ack, AckLevel, Arrival, Ingest, IngestError};
use hourglass::query::influx::sensor_test;
use hourglass::reading::Precision;
use hourglass::store::{EmbeddedStore, MergedView};
use hourglass::telemetry::Metrics;
use hourglass::wal::{self, Recovery, Wal};
use hourglass::wire::line_protocol::Lines;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::{Fleet, MemoryDisk};

/// A duration that no benchmark reaches.
const NEVER: Duration = Duration::from_secs(30 * 24 * 3600);
/// Lines per body when all sensors of a fleet are introduced.
const LINES: usize = 5000;

/// An ingest path with a WAL in memory, and a store that serves sensor lookups but gets no writes.
#[derive(Debug)]
pub struct Path {
    runtime: Runtime,
    ingest: Ingest,
    folder: TempDir,
}

impl Path {
    /// Creates an ingest path.
    ///
    /// # Panics
    /// If there is no folder for temporary files.
    #[must_use]
    pub fn new() -> Self {
        Self::with_disk(MemoryDisk::default())
    }

    fn with_disk(disk: MemoryDisk) -> Self {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let folder = tempfile::tempdir().expect("a folder");
        let store = EmbeddedStore::open(folder.path(), 1 << 20).expect("a store in a new folder");
        let metrics = Metrics::new("bench", "embedded").expect("metrics");
        let ingest = {
            let _entered = runtime.enter();
            start(disk, folder.path(), merged_view(store), metrics)
        };
        Self { runtime, ingest, folder }
    }

    /// Creates an ingest path that knows all sensors of the fleet.
    #[must_use]
    pub fn with_fleet(fleet: &mut Fleet) -> Self {
        let path = Self::new();
        path.ingest_all(&fleet.bodies(fleet.sensors(), LINES));
        path
    }

    /// Ingests a body and waits for its ack.
    ///
    /// # Panics
    /// If a line is rejected.
    pub fn ingest(&self, body: &str) -> usize {
        let ack = self.runtime.block_on(self.write_lines(body, true)).expect("an ack");
        assert_eq!(ack.rejected.count, 0, "every line is valid");
        ack.accepted
    }

    /// Ingests bodies one after the other, and waits until the shards have them.
    ///
    /// # Panics
    /// If a line is rejected.
    pub fn ingest_all(&self, bodies: &[String]) -> usize {
        let ingested = bodies.iter().map(|body| self.ingest(body)).sum();
        // The shards were woken before the ack; run their tasks.
        self.runtime.block_on(async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        });
        ingested
    }

    /// Only parses and validates a body: partial acceptance is off, and the last line is invalid, so nothing is logged.
    ///
    /// # Panics
    /// If more lines than that are rejected.
    pub fn validate(&self, body: &str) {
        let ack = self.runtime.block_on(self.write_lines(body, false)).expect("an answer");
        assert_eq!((ack.accepted, ack.rejected.count), (0, 1), "only the last line is invalid");
    }

    /// Ends the process without freeing the memory, which would take time proportional to what was ingested.
    pub fn exit(self) -> ! {
        let _ = self.folder.close();
        std::process::exit(0)
    }

    async fn write_lines(&self, body: &str, is_partial: bool) -> Result<Ack, IngestError> {
        let precision = Precision::Nanoseconds;
        let ack = Some(AckLevel::Log);
        let arrival = Arrival {
            database: "bench",
            precision,
            is_precision_declared: true,
            received: 0,
            is_partial,
            ack,
            retry: None,
            is_patient: false,
            turn: None,
            caller: &Caller::Anybody,
            address: None,
            mapping: None,
            topic: None,
        };
        let mut admission = self.ingest.admission(&Caller::Anybody);
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

/// Returns the WAL record of a body, as read back.
///
/// # Panics
/// If a line is rejected.
#[must_use]
pub fn record(body: &str) -> Vec<u8> {
    let disk = MemoryDisk::default();
    Path::with_disk(disk.clone()).ingest(body);
    let (wal, _) = open_wal(disk);
    let record = wal.reader(1).next().expect("a readable WAL");
    record.expect("a record").payload
}

/// Starts an ingest path in the current runtime. All files except those of the WAL are in a folder.
pub(crate) fn start(disk: MemoryDisk, folder: &std::path::Path, store: Arc<MergedView>, metrics: Metrics) -> Ingest {
    let (wal, recovery) = open_wal(disk);
    let bounds = ClockBounds { tolerance: Duration::from_millis(250), max_offset: Duration::from_secs(60) };
    let clock = Arc::new(StampClock::new(bounds, false));
    Ingest::start(Arc::new(default_settings(folder)), store, Arc::new(sensor_test), wal, &recovery, clock, metrics).0
}

fn open_wal(disk: MemoryDisk) -> (Wal, Recovery) {
    Wal::open(disk, wal::WalOptions::new("bench")).expect("a WAL in memory")
}

pub(crate) fn merged_view(store: EmbeddedStore) -> Arc<MergedView> {
    Arc::new(MergedView::new(Arc::new(store)))
}

/// Returns the default settings with more memory, and without flushes.
fn default_settings(folder: &std::path::Path) -> Settings {
    let mut settings = Settings::default();
    settings.server.data_dir = folder.to_owned();
    settings.ingest.bytes_in_flight = 128 << 20;
    settings.ingest.ack_timeout = NEVER;
    settings.page.max_readings = usize::MAX;
    settings.page.max_bytes = usize::MAX;
    settings.page.hard_bytes = usize::MAX;
    settings.memtable.max_bytes = 16 << 30;
    settings.flush.interval = NEVER;
    settings.flush.quiet = NEVER;
    settings.seal.after = Duration::ZERO;
    settings.sensors.write_interval = NEVER;
    settings.limits.sensor_fields = 256;
    settings.catalog.max_bytes = 1 << 30;
    settings
}
