//! Buckets whose readings wait because of a document of their own: one that cannot be read, that a newer
//! program wrote, or that the store does not take. Told to people by name; retried by whoever notes them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::catalog::{Database, KnownSensor};
use super::flight::Run;
use crate::bucket::StorageError;
use crate::bucket::hot::HotKey;
use crate::telemetry::Metrics;

/// Which buckets wait, and why. Cheap to clone. As bounded as unflushed readings are, of which each has some.
#[derive(Debug, Clone, Default)]
pub struct Blocked(Arc<Mutex<HashMap<HotKey, Cause>>>);

#[derive(Debug)]
struct Cause {
    database: Arc<Database>,
    known: Arc<KnownSensor>,
    error: StorageError,
    since: Instant,
    /// How often it failed before.
    failures: u32,
}

/// How often other writers may be in the way before people are told.
const TRANSIENT_FAILURES: u32 = 8;

impl Cause {
    fn is_told(&self) -> bool {
        !self.error.is_transient() || self.failures >= TRANSIENT_FAILURES
    }
}

impl Blocked {
    /// Notes that a run's bucket waits, and says so where nobody was told.
    pub fn note(&self, run: &Run, error: &StorageError) {
        let (key, load) = (run.key(), &run.load);
        let mut blocked = self.locked();
        let before = blocked.get(&key);
        let cause = Cause {
            database: load.database.clone(),
            known: run.known.clone(),
            error: error.clone(),
            since: before.map_or_else(Instant::now, |cause| cause.since),
            failures: load.failures,
        };
        let was_told = before.is_some_and(|before| before.is_told() && before.error.class() == error.class());
        if cause.is_told() && !was_told {
            tracing::error!(
                database = &*load.database.name, sensor = %run.known.sensor.key, %error,
                "a bucket's readings wait for its document; they are in the log and tried again"
            );
        }
        blocked.insert(key, cause);
    }

    /// Notes that a bucket waits no more.
    pub fn clear(&self, key: HotKey) {
        let mut blocked = self.locked();
        if blocked.is_empty() {
            return;
        }
        if let Some(cause) = blocked.remove(&key).filter(Cause::is_told) {
            tracing::info!(database = &*cause.database.name, sensor = %cause.known.sensor.key, "a bucket waits no more");
        }
    }

    /// Notes that what a database had waiting was deleted, but for the buckets that still wait.
    pub fn retain(&self, database: &Arc<Database>, mut waits: impl FnMut(HotKey) -> bool) {
        self.locked().retain(|key, cause| !Arc::ptr_eq(&cause.database, database) || waits(*key));
    }

    /// For people: how many buckets wait, and what for one of them does, the one that has waited longest. Those that
    /// have waited for other writers a few times only are not told.
    #[must_use]
    pub fn told(&self) -> Option<String> {
        let blocked = self.locked();
        let lasting = blocked.values().filter(|cause| cause.is_told());
        let count = lasting.clone().count();
        let first = lasting.min_by_key(|cause| cause.since)?;
        Some(format!(
            "the readings of {count} buckets wait, one in database {:?} of sensor {} for {} s: {}",
            first.database.name,
            first.known.sensor.key,
            first.since.elapsed().as_secs(),
            first.error
        ))
    }

    /// Sets the metric of how many buckets wait, by class.
    pub fn measure(&self, metrics: &Metrics) {
        const CLASSES: [&str; 5] = ["contended", "busy", "failing", "refused", "unreadable"];
        let blocked = self.locked();
        for class in CLASSES {
            metrics.buckets_blocked(class, blocked.values().filter(|cause| cause.error.class() == class).count());
        }
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<HotKey, Cause>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
