//! Updates the copies of metadata in pages and days from the sensors' documents. Each change is applied twice: at once
//! to the latest pages, and to all documents once no write with older metadata can follow. Both update only
//! differences, so any number of instances can repeat them in any order.
//!
//! Changed sensors are noted in memory. A sensor's document also names the last change that all its copies have. A
//! walk at the start and every hour compares the two, and finds changes whose note was lost with a process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::{Job, JobError, Run};
use crate::bucket::store::MongoExtras;
use crate::bucket::{CopyScope, StorageError};
use crate::buffer::flush::stale_copies::{NextCopies, StaleCopies};
use crate::clock::now_ns;
use crate::faults;
use crate::reading::Hour;

/// The interval of walks through all sensors.
const WALK_INTERVAL: Duration = Duration::from_secs(3600);
/// Number of sensors per step of a walk.
const WALK_SENSORS: usize = 2000;
/// Minimum number of sensors per refresh. A refresh waits twice for MongoDB's journal in any case, so fewer sensors
/// would not make it shorter.
const BATCH_SENSORS_MIN: usize = 64;
/// Maximum number of sensors per refresh.
const BATCH_SENSORS_MAX: usize = 1024;
/// The intended duration of a refresh, to which the number of sensors adapts.
const STEP: Duration = Duration::from_millis(500);
/// Maximum number of sensors that the job's note names.
const LISTED_MAX: usize = 20;
/// The number of hours before the current one in which the latest pages begin.
const LATEST_HOURS: i64 = 1;

/// The job that updates copies of metadata.
pub struct Refresh {
    store: Arc<dyn MongoExtras>,
    stale: StaleCopies,
    /// The time after a change at which its copies can be updated for good.
    settle: Duration,
    next_walk: Instant,
    /// The number of sensors in the next refresh.
    batch_sensors: usize,
}

impl Refresh {
    #[must_use]
    pub fn new(store: Arc<dyn MongoExtras>, stale: StaleCopies, settle: Duration) -> Self {
        Self { store, stale, settle, next_walk: Instant::now(), batch_sensors: BATCH_SENSORS_MIN }
    }

    /// Finds sensors whose copies are not complete according to their documents.
    async fn walk(&self, run: &Run) -> Result<(), StorageError> {
        for database in self.store.databases().await? {
            let mut after = Some(String::new());
            while let Some(sensor) = after {
                let began = Instant::now();
                let step = self.store.next_stale_copies(&database, &sensor, WALK_SENSORS).await?;
                step.sensors.iter().for_each(|sensor| self.stale.note_found(&database, sensor));
                run.set_left(Some(self.stale.count()));
                after = step.last_key;
                run.pause(began).await;
            }
        }
        Ok(())
    }

    async fn refresh(&mut self, next: &NextCopies, began: Instant, run: &Run) -> Result<(), StorageError> {
        let sensors: Vec<&str> = next.sensors.iter().map(|sensor| &**sensor).collect();
        let latest = Hour(Hour::from_ns(now_ns()).0 - LATEST_HOURS);
        let scope = if next.is_settled { CopyScope::All } else { CopyScope::Since(latest) };
        if next.is_settled {
            faults::point("before_copies");
        }
        let done = self.store.refresh_copies(&next.database, &sensors, scope).await?;
        run.count("documents", done.documents);
        // If the time limit was reached, the sensors stay due for another step.
        if done.is_complete {
            run.count("sensors", self.stale.note_refreshed(next, began));
        }
        let adapted = if began.elapsed() < STEP { 2 * self.batch_sensors } else { self.batch_sensors / 2 };
        self.batch_sensors = adapted.clamp(BATCH_SENSORS_MIN, BATCH_SENSORS_MAX);
        Ok(())
    }
}

impl Job for Refresh {
    const NAME: &'static str = "refresh";

    fn interval(&self) -> Option<Duration> {
        Some(WALK_INTERVAL)
    }

    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        self.next_walk <= now || self.stale.is_incomplete() || self.stale.next(1, self.settle, now).is_some()
    }

    async fn run(&mut self, run: &Run) -> Result<Option<Duration>, JobError> {
        let began = Instant::now();
        if run.is_asked || self.next_walk <= began || self.stale.take_incomplete() {
            self.next_walk = began + WALK_INTERVAL;
            self.walk(run).await.inspect_err(|_| self.next_walk = began)?;
        }
        loop {
            let began = Instant::now();
            run.set_left(Some(self.stale.count()));
            let outdated = self.stale.some(LISTED_MAX);
            run.note((!outdated.is_empty()).then(|| format!("outdated copies of: {}", outdated.join("; "))));
            let Some(next) = self.stale.next(self.batch_sensors, self.settle, began) else { return Ok(None) };
            self.refresh(&next, began, run).await?;
            run.pause(began).await;
        }
    }
}
