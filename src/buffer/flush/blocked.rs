//! Buckets whose readings wait because of one document: it is unreadable, a newer version wrote it, or the store
//! rejects it. Health, metrics and log report them, and the shard retries them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::bucket::StorageError;
use crate::bucket::cache::CacheKey;
use crate::buffer::memtable::Load;
use crate::catalog::{Database, KnownSensor};
use crate::telemetry::Metrics;

/// The waiting buckets with their causes. Their number is bounded, because each of them has unflushed readings.
#[derive(Debug, Default)]
pub struct BlockedBuckets(Mutex<HashMap<CacheKey, Cause>>);

#[derive(Debug)]
struct Cause {
    database: Arc<Database>,
    known: Arc<KnownSensor>,
    error: StorageError,
    since: Instant,
    /// The number of consecutive failures before this one.
    failures: u32,
}

/// The number of conflicts with other writers after which a bucket is reported.
const TRANSIENT_FAILURES: u32 = 8;

impl Cause {
    fn is_reported(&self) -> bool {
        !self.error.is_transient() || self.failures >= TRANSIENT_FAILURES
    }
}

impl BlockedBuckets {
    /// Notes that a bucket's readings wait, and logs it if that is new.
    pub fn note(&self, load: &Load, error: &StorageError) {
        let key = (load.known.id, load.hour);
        let mut blocked = self.0.lock();
        let before = blocked.get(&key);
        let cause = Cause {
            database: load.database.clone(),
            known: load.known.clone(),
            error: error.clone(),
            since: before.map_or_else(Instant::now, |cause| cause.since),
            failures: load.failures,
        };
        let was_reported = before.is_some_and(|before| before.is_reported() && before.error.class() == error.class());
        if cause.is_reported() && !was_reported {
            tracing::error!(
                database = &*load.database.name, sensor = %load.known.sensor.key, %error,
                "cannot flush the bucket of one sensor and hour; its readings stay in the WAL; retrying"
            );
        }
        blocked.insert(key, cause);
    }

    /// Notes that a bucket no longer waits.
    pub fn clear(&self, key: CacheKey) {
        let mut blocked = self.0.lock();
        if blocked.is_empty() {
            return;
        }
        if let Some(cause) = blocked.remove(&key).filter(Cause::is_reported) {
            tracing::info!(database = &*cause.database.name, sensor = %cause.known.sensor.key, "bucket no longer blocked");
        }
    }

    /// Removes the buckets of a database, except those for which `waits` returns true.
    pub fn retain(&self, database: &Arc<Database>, mut waits: impl FnMut(CacheKey) -> bool) {
        self.0.lock().retain(|key, cause| !Arc::ptr_eq(&cause.database, database) || waits(*key));
    }

    /// Describes the number of waiting buckets and the cause of the oldest one. Leaves out buckets with only a few
    /// conflicts.
    #[must_use]
    pub fn summary(&self) -> Option<String> {
        let blocked = self.0.lock();
        let lasting = blocked.values().filter(|cause| cause.is_reported());
        let count = lasting.clone().count();
        let first = lasting.min_by_key(|cause| cause.since)?;
        Some(format!(
            "{count} buckets cannot be stored; the oldest waits {} s: database {:?}, sensor {}: {}",
            first.since.elapsed().as_secs(),
            first.database.name,
            first.known.sensor.key,
            first.error
        ))
    }

    /// Sets the metric of waiting buckets, by error class.
    pub fn measure(&self, metrics: &Metrics) {
        const CLASSES: [&str; 6] = ["contended", "busy", "failing", "refused", "unreadable", "newer"];
        let blocked = self.0.lock();
        for class in CLASSES {
            metrics.buckets_blocked(class, blocked.values().filter(|cause| cause.error.class() == class).count());
        }
    }
}
