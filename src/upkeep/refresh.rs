//! Sets the copies of metadata in pages and days as the sensors' documents say now. Twice for each change: at once in the
//! latest pages, and in all documents once every write is over that may have read older metadata. Both are updates of what
//! differs, so that they may be repeated, in any order, by any number of instances.
//!
//! What is known only here would be lost with the process: a sensor's document says for which change its copies are done, and
//! a walk at the start and every hour finds those for which it does not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::{Job, JobError, Run};
use crate::bucket::store::MongoExtras;
use crate::bucket::{CopyScope, StorageError};
use crate::buffer::flush::stale_copies::{NextCopies, StaleCopies};
use crate::clock::now_ns;
use crate::faults;
use crate::reading::Hour;

/// The wait between two walks through all sensors.
const WALK: Duration = Duration::from_secs(3600);
/// Sensors that are looked at together.
const EXAMINED: usize = 2000;
/// Sensors that are refreshed together: at least and at most, and how long that shall take. A step waits twice for MongoDB's
/// journal, whatever is in them: fewer sensors than these would not make it shorter under load, and all of them take for ever.
const TOGETHER: (usize, usize) = (64, 1024);
const STEP: Duration = Duration::from_millis(500);
/// The latest pages begin in the hour before the current one, or later.
const LATEST_HOURS: i64 = 1;

/// The job that sets copies of metadata.
pub struct Refresh {
    store: Arc<dyn MongoExtras>,
    stale: StaleCopies,
    /// How long after a change its copies are set for good.
    settle: Duration,
    next_walk: Instant,
    together: usize,
}

impl Refresh {
    #[must_use]
    pub fn new(store: Arc<dyn MongoExtras>, stale: StaleCopies, settle: Duration) -> Self {
        Self { store, stale, settle, next_walk: Instant::now(), together: TOGETHER.0 }
    }

    /// Finds sensors whose documents do not say that their copies are done.
    async fn find(&self, run: &Run) -> Result<(), StorageError> {
        for database in self.store.databases().await? {
            let mut after = Some(String::new());
            while let Some(sensor) = after {
                let began = Instant::now();
                let (stale, last) = self.store.next_stale_copies(&database, &sensor, EXAMINED).await?;
                stale.iter().for_each(|sensor| self.stale.note_found(&database, sensor));
                run.set_left(Some(self.stale.count()));
                after = last;
                run.rest(began).await;
            }
        }
        Ok(())
    }

    async fn refresh(&mut self, next: &NextCopies, began: Instant, run: &Run) -> Result<(), StorageError> {
        let sensors: Vec<&str> = next.sensors.iter().map(|sensor| &**sensor).collect();
        let latest = Hour(Hour::of(now_ns()).0 - LATEST_HOURS);
        let scope = if next.is_settled { CopyScope::All } else { CopyScope::Since(latest) };
        if next.is_settled {
            faults::point("before_copies");
        }
        let done = self.store.refresh_copies(&next.database, &sensors, scope).await?;
        run.count("documents", done.documents);
        // What was not done within the time limit is done in another step.
        if done.is_complete {
            run.count("sensors", self.stale.refreshed(next, began));
        }
        let grown = if began.elapsed() < STEP { 2 * self.together } else { self.together / 2 };
        self.together = grown.clamp(TOGETHER.0, TOGETHER.1);
        Ok(())
    }
}

impl Job for Refresh {
    const NAME: &'static str = "refresh";

    fn interval(&self) -> Option<Duration> {
        Some(WALK)
    }

    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        self.next_walk <= now || self.stale.is_incomplete() || self.stale.next(1, self.settle, now).is_some()
    }

    async fn run(&mut self, run: &Run) -> Result<Option<Duration>, JobError> {
        let began = Instant::now();
        if run.is_asked || self.next_walk <= began || self.stale.take_incomplete() {
            self.next_walk = began + WALK;
            self.find(run).await.inspect_err(|_| self.next_walk = began)?;
        }
        loop {
            let began = Instant::now();
            run.set_left(Some(self.stale.count()));
            let Some(next) = self.stale.next(self.together, self.settle, began) else { return Ok(None) };
            self.refresh(&next, began, run).await?;
            run.rest(began).await;
        }
    }
}
