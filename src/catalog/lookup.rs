//! Sensor lookup: reads the documents of unknown sensors from the store and adds the sensors to the catalog.
//!
//! While the store is away, requests do not wait for it. The sensors are then added without a document, which the flush
//! reads later.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::database::{Database, WantedSensor};
use super::reads::read_sensors_each;
use super::{Catalog, LookupResult};
use crate::access::Allowance;
use crate::bucket::StorageError;
use crate::reading::Sensor;
use crate::store::MergedView;
use crate::telemetry::Metrics;

/// A hint whether the store answers, so that requests do not wait for a store that is away.
#[derive(Debug, Clone, Default)]
pub struct StorePresence(Arc<LookupState>);

#[derive(Debug, Default)]
struct LookupState {
    away: AtomicBool,
    /// Databases whose last lookup failed, with the time before which they are not looked up again. Every failure
    /// removes the expired entries, so the map stays small.
    silent: Mutex<HashMap<Box<str>, Instant>>,
}

/// The time for which a database is not looked up after a failure.
const SILENCE: Duration = Duration::from_secs(2);

impl StorePresence {
    /// Returns true if the store did not answer its last request.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.0.away.load(Ordering::Relaxed)
    }

    /// Returns true if lookups in this database are to be skipped for now.
    #[must_use]
    pub fn is_silent(&self, database: &str, now: Instant) -> bool {
        let is_silent = |silence_end: &Instant| now < *silence_end;
        self.is_away() || self.0.silent.lock().get(database).is_some_and(is_silent)
    }

    /// Notes a failed lookup. Depending on the error, the whole store counts as away, lookups in this database are
    /// skipped for a while, or nothing changes.
    pub fn note_failure(&self, database: &str, error: &StorageError, now: Instant) {
        if error.is_store_unreachable() {
            return self.note(false);
        }
        let mut silent = self.0.silent.lock();
        silent.retain(|_, silence_end| now < *silence_end);
        if error.is_away() {
            silent.insert(database.into(), now + SILENCE);
        }
    }

    /// Notes whether the store answered.
    pub fn note(&self, answers: bool) {
        self.0.away.store(!answers, Ordering::Relaxed);
    }
}

/// Looks up sensors and adds them to the catalog. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SensorLookup {
    pub store: Arc<MergedView>,
    pub catalog: Arc<Catalog>,
    pub presence: StorePresence,
    pub metrics: Metrics,
}

impl SensorLookup {
    /// Looks up sensors and adds them to the catalog, up to the limit on sensors.
    ///
    /// Small requests share lookups: sensors that arrive while a lookup runs are part of the next one. So a fleet of
    /// devices that all send their first reading at once causes few reads of the store.
    pub async fn look_up(&self, database: &Database, sensors: Vec<Sensor>, allowance: &Allowance) {
        /// Maximum number of sensors of a request that shares a lookup.
        const SHARED_MAX: usize = 100;
        let max = self.catalog.sensors_max();
        let wanted = |sensor: Sensor| WantedSensor { sensor, allowance: allowance.clone() };
        let mut unknown: Vec<WantedSensor> = sensors.into_iter().map(wanted).collect();
        if unknown.len() > SHARED_MAX {
            return self.look_up_to(database, unknown, max).await;
        }
        let _waiting = database.pending_lookups.wait_for(unknown.clone());
        let _turn = database.pending_lookups.turn().await;
        // The previous lookup has usually covered these sensors, unless its request was cancelled.
        unknown.extend(database.pending_lookups.take());
        unknown.sort_by(|a, b| a.sensor.key.cmp(&b.sensor.key));
        unknown.dedup_by(|a, b| a.sensor.key == b.sensor.key);
        unknown.retain(|wanted| self.catalog.sensor(database, &wanted.sensor.key).is_none());
        if !unknown.is_empty() {
            self.look_up_to(database, unknown, max).await;
        }
    }

    /// Looks up the sensors of a WAL record and adds them to the catalog. No limit applies, because the record was
    /// admitted before.
    pub async fn enlist(&self, database: &Database, sensors: &[Sensor]) {
        let is_unknown = |sensor: &&Sensor| self.catalog.sensor(database, &sensor.key).is_none();
        let wanted = |sensor: &Sensor| WantedSensor { sensor: sensor.clone(), allowance: Allowance::default() };
        let unknown: Vec<WantedSensor> = sensors.iter().filter(is_unknown).map(wanted).collect();
        if !unknown.is_empty() {
            self.look_up_to(database, unknown, usize::MAX).await;
        }
    }

    async fn look_up_to(&self, database: &Database, unknown: Vec<WantedSensor>, max: usize) {
        let keys: Vec<&str> = unknown.iter().map(|wanted| &*wanted.sensor.key).collect();
        let found = self.find(database, &keys, max).await;
        self.catalog.add_sensors(database, unknown, found, max);
        self.metrics.sensors.set(u32::try_from(self.catalog.len()).unwrap_or(u32::MAX));
    }

    /// Reads the documents of sensors from the store. `max` is `usize::MAX` for sensors of a WAL record.
    pub async fn find(&self, database: &Database, keys: &[&str], max: usize) -> LookupResult {
        // Load the deletions before the read, because documents of sensors that are deleted in between are outdated.
        let mut found = LookupResult { deletions: database.deletions(), ..LookupResult::default() };
        // Sensors of a WAL record were admitted before and are not charged again.
        let counts = max != usize::MAX;
        if self.catalog.is_deleting(&database.name) {
            // The documents may be about to be deleted, so do not wait for a store that is busy deleting.
            found.counts = counts;
        } else if !self.presence.is_silent(&database.name, Instant::now()) {
            match read_sensors_each(&self.store, &database.name, keys).await {
                // Sensors with unreadable documents are added too. Only their own readings fail, at the flush.
                Ok(documents) => {
                    found.documents = documents.into_values().flatten().collect();
                    found.counts = counts;
                }
                Err(error) => self.note_failure(&database.name, &error),
            }
        }
        found
    }

    /// Notes, counts and logs a failed lookup.
    pub fn note_failure(&self, database: &str, error: &StorageError) {
        self.presence.note_failure(database, error, Instant::now());
        self.metrics.store_error(error.class());
        tracing::warn!(%database, %error, "cannot read databases or sensor documents from the store; treating those of this write as new");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::EmbeddedStore;

    fn sensors(numbers: std::ops::Range<usize>) -> Vec<Sensor> {
        let sensor = |number: usize| Sensor::new("m", [("s".to_owned(), number.to_string())]).expect("distinct keys");
        numbers.map(sensor).collect()
    }

    /// A lookup also covers the sensors of other waiting requests. If its request is cancelled, those sensors must not
    /// be rejected as if the limit were reached.
    #[tokio::test]
    async fn sensors_of_a_cancelled_shared_lookup_are_looked_up_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let catalog = Arc::new(Catalog::new(&crate::config::small()));
        let metrics = Metrics::new("", "embedded").expect("fixed bounds");
        let store = Arc::new(EmbeddedStore::open(folder.path(), 1 << 20).expect("a new file"));
        let store = Arc::new(MergedView::new(store));
        let lookup = SensorLookup { store, catalog: catalog.clone(), presence: StorePresence::default(), metrics };
        let database = catalog.enlist_database("d");
        let request = |numbers: std::ops::Range<usize>| {
            let lookup = lookup.clone();
            let database = database.clone();
            tokio::spawn(async move { lookup.look_up(&database, sensors(numbers), &Allowance::default()).await })
        };
        let turn = database.pending_lookups.turn().await;
        let first = request(0..3);
        let one = request(2..5);
        let other = request(4..8);
        let cancelled = request(8..20);
        tokio::task::yield_now().await;
        // Regression: with a slow store, the sensors of cancelled requests stayed in memory, without a bound.
        cancelled.abort();
        assert!(cancelled.await.is_err_and(|error| error.is_cancelled()));
        // As if the first request got its turn, took all waiting sensors, and was cancelled.
        assert_eq!(database.pending_lookups.take().len(), 10);
        first.abort();
        drop(turn);
        one.await.expect("no panic");
        other.await.expect("no panic");
        let known = (0..8).filter(|number| catalog.sensor(&database, &format!("m,s={number}")).is_some());
        assert_eq!(known.collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7]);
        assert!(database.pending_lookups.take().is_empty(), "no sensors stay behind");
    }
}
