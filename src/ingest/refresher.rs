//! Sets the copies of metadata in pages and days as the sensors' documents say now. Twice for each change: at once in the
//! latest pages, and in all documents once every write is over that may have read older metadata. Both are updates of what
//! differs, so that they may be repeated, in any order, by any number of instances.
//!
//! What is known only here would be lost with the process: a sensor's document says for which change its copies are done, and
//! a walk at the start and every hour finds those for which it does not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::refreshing::{NextCopies, Refreshing};
use crate::bucket::store::MongoExtras;
use crate::bucket::{CopyScope, StorageError};
use crate::clock::now_ns;
use crate::faults;
use crate::reading::Hour;

/// How often it is looked for changed metadata.
const PAUSE: Duration = Duration::from_millis(500);
/// The wait between two walks through all sensors, and before a failed one is tried again.
const WALK: Duration = Duration::from_secs(3600);
const RETRY: Duration = Duration::from_secs(30);
/// Sensors that are looked at together.
const EXAMINED: usize = 2000;
/// Sensors that are refreshed together: at least and at most, and how long that shall take. A step waits twice for MongoDB's
/// journal, whatever is in them: fewer sensors than these would not make it shorter under load, and all of them take for ever.
const TOGETHER: (usize, usize) = (64, 1024);
const STEP: Duration = Duration::from_millis(500);
/// The longest rest after a step.
const REST_MAX: Duration = Duration::from_secs(5);
/// The latest pages begin in the hour before the current one, or later.
const LATEST_HOURS: i64 = 1;

pub struct Refresher {
    /// Without masks: what is deleted and not removed yet may be refreshed too.
    pub store: Arc<dyn MongoExtras>,
    pub refreshing: Refreshing,
    /// How long after a change its copies are set for good.
    pub settle: Duration,
}

impl Refresher {
    /// Runs until it is aborted.
    pub async fn run(self) {
        let (mut next_walk, mut together) = (Instant::now(), 32);
        loop {
            if next_walk <= Instant::now() || self.refreshing.take_incomplete() {
                let walked = self.walk().await;
                next_walk = Instant::now() + if walked.is_ok() { WALK } else { RETRY };
                self.note(walked);
            }
            let began = Instant::now();
            match self.refreshing.next(together, self.settle, began) {
                None => tokio::time::sleep(PAUSE).await,
                Some(next) => {
                    let refreshed = self.refresh(&next, began).await;
                    let took = began.elapsed();
                    let grown = if took < STEP { 2 * together } else { together / 2 };
                    together = grown.clamp(TOGETHER.0, TOGETHER.1);
                    // Flushes and queries have the store for as long as this had it.
                    let rest = if refreshed.is_err() { RETRY } else { took.min(REST_MAX) };
                    self.note(refreshed);
                    tokio::time::sleep(rest).await;
                }
            }
        }
    }

    /// A store that is away is reported by those who need it.
    fn note(&self, tried: Result<(), StorageError>) {
        if let Err(error) = tried {
            if !error.is_away() {
                tracing::warn!(%error, "copies of metadata could not be refreshed; it is tried again");
            }
            self.refreshing.failed(&error);
        }
    }

    async fn refresh(&self, next: &NextCopies, began: Instant) -> Result<(), StorageError> {
        let sensors: Vec<&str> = next.sensors.iter().map(|sensor| &**sensor).collect();
        let latest = Hour(Hour::of(now_ns()).0 - LATEST_HOURS);
        let scope = if next.is_settled { CopyScope::All } else { CopyScope::Since(latest) };
        if next.is_settled {
            faults::point("before_copies");
        }
        let done = self.store.refresh_copies(&next.database, &sensors, scope).await?;
        self.refreshing.refreshed(next, began, done.documents, done.is_complete);
        Ok(())
    }

    /// Finds sensors whose documents do not say that their copies are done.
    async fn walk(&self) -> Result<(), StorageError> {
        for database in self.store.databases().await? {
            let mut after = Some(String::new());
            while let Some(from) = after.take() {
                let began = Instant::now();
                let (stale, last) = self.store.next_stale_copies(&database, &from, EXAMINED).await?;
                stale.iter().for_each(|sensor| self.refreshing.note_found(&database, sensor));
                after = last;
                tokio::time::sleep(began.elapsed().min(REST_MAX)).await;
            }
        }
        self.refreshing.walked();
        Ok(())
    }
}
