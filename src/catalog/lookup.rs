//! Sensor lookup: unknown sensors become known with what the store has of them. While the store is away, requests do
//! not wait for it: sensors become known without a document, and the flush reads it.

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

/// Whether the store answered its last request. A hint that spares requests from waiting for a store that is away.
#[derive(Debug, Clone, Default)]
pub struct StorePresence(Arc<LookupState>);

#[derive(Debug, Default)]
struct LookupState {
    away: AtomicBool,
    /// Databases whose last lookup failed, and until when they are not looked up again. Small, since every failure
    /// removes the expired entries.
    silent: Mutex<HashMap<Box<str>, Instant>>,
}

/// For how long a database is not looked up after the store failed on it.
const SILENT: Duration = Duration::from_secs(2);

impl StorePresence {
    /// Whether the store did not answer its last request.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.0.away.load(Ordering::Relaxed)
    }

    /// Whether a lookup in this database is pointless at present.
    #[must_use]
    pub fn is_silent(&self, database: &str, now: Instant) -> bool {
        let is_silent = |until: &Instant| now < *until;
        self.is_away() || self.0.silent.lock().get(database).is_some_and(is_silent)
    }

    /// Notes that a lookup failed: the whole store is away, or this database is not looked up for a while, or neither,
    /// depending on the error.
    pub fn missed(&self, database: &str, error: &StorageError, now: Instant) {
        if error.is_store_unreachable() {
            return self.note(false);
        }
        let mut silent = self.0.silent.lock();
        silent.retain(|_, until| now < *until);
        if error.is_away() {
            silent.insert(database.into(), now + SILENT);
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
    /// Where the sensors' documents are.
    pub store: Arc<MergedView>,
    pub catalog: Arc<Catalog>,
    pub presence: StorePresence,
    pub metrics: Metrics,
}

impl SensorLookup {
    /// Makes sensors known, up to the limit on sensors.
    ///
    /// Small requests share lookups: sensors that come while a lookup runs are part of the next one. A fleet whose
    /// devices all send their first reading at once thus causes few reads of the store.
    pub async fn look_up(&self, database: &Database, sensors: Vec<Sensor>, allowance: &Allowance) {
        /// A request with more sensors does its own lookup.
        const FEW: usize = 100;
        let max = self.catalog.sensors_max();
        let wanted = |sensor: Sensor| WantedSensor { sensor, allowance: allowance.clone() };
        let mut unknown: Vec<WantedSensor> = sensors.into_iter().map(wanted).collect();
        if unknown.len() > FEW {
            return self.look_up_to(database, unknown, max).await;
        }
        let _waiting = database.pending_lookups.wait_for(unknown.clone());
        let _turn = database.pending_lookups.turn().await;
        // The lookup before this one has usually covered these sensors, unless its request was cancelled.
        unknown.extend(database.pending_lookups.take());
        unknown.sort_by(|a, b| a.sensor.key.cmp(&b.sensor.key));
        unknown.dedup_by(|a, b| a.sensor.key == b.sensor.key);
        unknown.retain(|wanted| self.catalog.sensor(database, &wanted.sensor.key).is_none());
        if !unknown.is_empty() {
            self.look_up_to(database, unknown, max).await;
        }
    }

    /// Makes sensors known without a limit: they were admitted before, and are read back from the WAL.
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

    /// What the store has of sensors.
    pub async fn find(&self, database: &Database, keys: &[&str], max: usize) -> LookupResult {
        // Read before the store is: documents of sensors that are deleted in between do not count.
        let mut found = LookupResult { deletions: database.deletions(), ..LookupResult::default() };
        if self.catalog.is_deleting(&database.name) {
            // The documents are about to be deleted and do not count: do not wait for a store that is busy deleting.
            found.counts = max != usize::MAX;
        } else if !self.presence.is_silent(&database.name, Instant::now()) {
            match read_sensors_each(&self.store, &database.name, keys).await {
                // A sensor whose document cannot be read becomes known too: only its own readings fail, at the flush.
                Ok(documents) => {
                    found.documents = documents.into_values().flatten().collect();
                    // Sensors from the WAL were admitted before and are not charged again.
                    found.counts = max != usize::MAX;
                }
                Err(error) => self.missed(&database.name, &error),
            }
        }
        found
    }

    /// Notes, counts and logs that a lookup failed.
    pub fn missed(&self, database: &str, error: &StorageError) {
        self.presence.missed(database, error, Instant::now());
        self.metrics.store_error(error.class());
        tracing::warn!(%database, %error, "could not read database names or sensor documents from the store; treating those of this write as new");
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

    /// A lookup covers the sensors of other waiting requests too. When its request is cancelled, those sensors must not
    /// be refused as if the limit were reached.
    #[tokio::test]
    async fn what_somebody_else_was_to_ask_about_is_known_also_when_that_one_leaves() {
        let folder = tempfile::tempdir().expect("a folder");
        let (catalog, metrics) =
            (Arc::new(Catalog::new(&crate::config::small())), Metrics::new("", "embedded").expect("fixed bounds"));
        let store = Arc::new(EmbeddedStore::open(folder.path(), 1 << 20).expect("a new file"));
        let store = Arc::new(MergedView::new(store));
        let lookup = SensorLookup { store, catalog: catalog.clone(), presence: StorePresence::default(), metrics };
        let database = catalog.enlist_database("d");
        let asking = |numbers: std::ops::Range<usize>| {
            let (lookup, database) = (lookup.clone(), database.clone());
            tokio::spawn(async move { lookup.look_up(&database, sensors(numbers), &Allowance::default()).await })
        };
        let turn = database.pending_lookups.turn().await;
        let (leaves, one, other) = (asking(0..3), asking(2..5), asking(4..8));
        let gone = asking(8..20);
        tokio::task::yield_now().await;
        // With a slow store, sensors of requests that came and were cancelled meanwhile once stayed here, without a
        // bound.
        gone.abort();
        assert!(gone.await.is_err_and(|error| error.is_cancelled()));
        // As if the first request got its turn, took all waiting sensors, and was cancelled.
        assert_eq!(database.pending_lookups.take().len(), 10);
        leaves.abort();
        drop(turn);
        one.await.expect("no panic");
        other.await.expect("no panic");
        let known = (0..8).filter(|number| catalog.sensor(&database, &format!("m,s={number}")).is_some());
        assert_eq!(known.collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7]);
        assert!(database.pending_lookups.take().is_empty(), "nothing is left for nobody");
    }
}
