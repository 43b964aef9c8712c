//! Meeting sensors for the first time: the store is asked what it knows of them. While it is away
//! nobody waits for it: they are taken as new, and what their documents say is learnt at the flush.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::catalog::{Catalog, Database};
use super::reads::read_sensors_each;
use crate::access::Allowance;
use crate::bucket::{SensorDocument, StorageError, Store};
use crate::reading::Sensor;
use crate::telemetry::Metrics;

/// Whether the store answered when it was last asked. A hint, so that requests need not find out
/// one after the other that it is away.
#[derive(Debug, Clone, Default)]
pub struct Presence(Arc<Asked>);

#[derive(Debug, Default)]
struct Asked {
    away: AtomicBool,
    /// Databases of which the store was asked in vain, and until when it is not asked again. A few at most, since
    /// those whose time is over are taken out.
    silent: Mutex<HashMap<Box<str>, Instant>>,
}

/// How long a database is not asked about that the store just failed on.
const SILENT: Duration = Duration::from_secs(2);

impl Presence {
    /// Whether it did not.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.0.away.load(Ordering::Relaxed)
    }

    /// Whether it makes no sense at present to ask it about a database.
    #[must_use]
    pub fn is_silent(&self, database: &str, now: Instant) -> bool {
        let is_silent = |until: &Instant| now < *until;
        self.is_away() || self.silent().get(database).is_some_and(is_silent)
    }

    /// Notes that it was asked about a database in vain: whether all of it is away depends on why.
    pub fn missed(&self, database: &str, error: &StorageError, now: Instant) {
        if error.is_of_store() {
            return self.note(false);
        }
        let mut silent = self.silent();
        silent.retain(|_, until| now < *until);
        if error.is_away() {
            silent.insert(database.into(), now + SILENT);
        }
    }

    fn silent(&self) -> MutexGuard<'_, HashMap<Box<str>, Instant>> {
        self.0.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether it answered.
    pub fn note(&self, answers: bool) {
        self.0.away.store(!answers, Ordering::Relaxed);
    }
}

/// A sensor that is to become known.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Which.
    pub sensor: Sensor,
    /// Whose quota it counts against, should it be new.
    pub payer: Allowance,
}

/// What the store said of sensors.
#[derive(Debug, Default)]
pub struct Found {
    /// The documents of those that have one.
    pub documents: Vec<SensorDocument>,
    /// How many deletions the database had seen before it was asked.
    pub deletions: u64,
    /// Whether sensors without a document count as new. They do not while the store is away, when nobody can tell.
    pub counts: bool,
}

/// Sensors of a database that requests wait to have made known. They are bounded as the requests' bytes are: those of
/// whoever no longer waits are not kept.
#[derive(Debug, Default)]
pub struct Unmet {
    /// By the number of who waits.
    waiting: Mutex<HashMap<u64, Vec<Wanted>>>,
    next: AtomicU64,
    turn: tokio::sync::Mutex<()>,
}

impl Unmet {
    /// Leaves sensors for whoever has the turn next, as long as somebody waits for them.
    fn wait_for(&self, sensors: Vec<Wanted>) -> Waiting<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.waiting().insert(number, sensors);
        Waiting { unmet: self, number }
    }

    /// Waits for the turn to ask.
    async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    fn take(&self) -> Vec<Wanted> {
        std::mem::take(&mut *self.waiting()).into_values().flatten().collect()
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Vec<Wanted>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who waits for sensors to become known.
struct Waiting<'a> {
    unmet: &'a Unmet,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.unmet.waiting().remove(&self.number);
    }
}

/// Makes sensors known to the catalog. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Learner {
    /// Where their documents are.
    pub store: Arc<dyn Store>,
    /// Where they become known.
    pub catalog: Arc<Catalog>,
    /// Whether the store is worth asking.
    pub presence: Presence,
    /// Counters.
    pub metrics: Metrics,
}

impl Learner {
    /// Makes sensors known, as far as the limit goes.
    ///
    /// A fleet whose devices each send their first reading at the same time is asked about in few questions: what comes
    /// while the store is asked is part of the next one.
    pub async fn learn(&self, database: &Database, sensors: Vec<Sensor>, payer: &Allowance) {
        /// A request with more is a question by itself.
        const FEW: usize = 100;
        let max = self.catalog.sensors_max();
        let wanted = |sensor: Sensor| Wanted { sensor, payer: payer.clone() };
        let mut unknown: Vec<Wanted> = sensors.into_iter().map(wanted).collect();
        if unknown.len() > FEW {
            return self.learn_up_to(database, unknown, max).await;
        }
        let _waiting = database.unmet.wait_for(unknown.clone());
        let _turn = database.unmet.turn().await;
        // Whoever had the turn before has mostly asked about these too, unless its client left meanwhile.
        unknown.extend(database.unmet.take());
        unknown.sort_by(|a, b| a.sensor.key.cmp(&b.sensor.key));
        unknown.dedup_by(|a, b| a.sensor.key == b.sensor.key);
        unknown.retain(|wanted| self.catalog.sensor(database, &wanted.sensor.key).is_none());
        if !unknown.is_empty() {
            self.learn_up_to(database, unknown, max).await;
        }
    }

    /// Makes sensors known that were let in before, whatever the limit says.
    pub async fn enlist(&self, database: &Database, sensors: &[Sensor]) {
        let is_unknown = |sensor: &&Sensor| self.catalog.sensor(database, &sensor.key).is_none();
        let wanted = |sensor: &Sensor| Wanted { sensor: sensor.clone(), payer: Allowance::default() };
        let unknown: Vec<Wanted> = sensors.iter().filter(is_unknown).map(wanted).collect();
        if !unknown.is_empty() {
            self.learn_up_to(database, unknown, usize::MAX).await;
        }
    }

    async fn learn_up_to(&self, database: &Database, unknown: Vec<Wanted>, max: usize) {
        let keys: Vec<&str> = unknown.iter().map(|wanted| &*wanted.sensor.key).collect();
        // Before the store is asked: what it says of sensors that are deleted meanwhile does not count.
        let mut found = Found { deletions: database.deletions(), ..Found::default() };
        if self.catalog.is_deleting(&database.name) {
            // Its documents are about to go, and count for nothing: nobody waits for a store that deletes.
            found.counts = max != usize::MAX;
        } else if !self.presence.is_silent(&database.name, Instant::now()) {
            match read_sensors_each(&*self.store, &database.name, &keys).await {
                // A sensor whose document cannot be read becomes known too; its readings fail when
                // they come to be stored, and nobody else's.
                Ok(documents) => {
                    found.documents = documents.into_values().flatten().collect();
                    // What was let in before is not judged again.
                    found.counts = max != usize::MAX;
                }
                Err(error) => self.missed(&database.name, &error),
            }
        }
        self.catalog.learn(database, unknown, found, max);
        self.metrics.sensors.set(u32::try_from(self.catalog.len()).unwrap_or(u32::MAX));
    }

    /// Notes that the store was asked in vain, and goes on without it.
    pub fn missed(&self, database: &str, error: &StorageError) {
        self.presence.missed(database, error, Instant::now());
        self.metrics.store_error(error.class());
        tracing::warn!(%database, %error, "the store was asked in vain; writes go on without its answer");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::options::Options;
    use crate::store::EmbeddedStore;

    fn sensors(numbers: std::ops::Range<usize>) -> Vec<Sensor> {
        let sensor = |number: usize| Sensor::new("m", [("s".to_owned(), number.to_string())]).expect("distinct keys");
        numbers.map(sensor).collect()
    }

    /// Who asks for others takes their sensors along; when its client leaves meanwhile, they must not be refused as if
    /// there were no room for them.
    #[tokio::test]
    async fn what_somebody_else_was_to_ask_about_is_known_also_when_that_one_leaves() {
        let folder = tempfile::tempdir().expect("a folder");
        let (catalog, metrics) =
            (Arc::new(Catalog::new(&Options::small())), Metrics::new("", "embedded").expect("fixed bounds"));
        let store = Arc::new(EmbeddedStore::open(folder.path(), 1 << 20).expect("a new file"));
        let learner = Learner { store, catalog: catalog.clone(), presence: Presence::default(), metrics };
        let database = catalog.enlist_database("d");
        let asking = |numbers: std::ops::Range<usize>| {
            let (learner, database) = (learner.clone(), database.clone());
            tokio::spawn(async move { learner.learn(&database, sensors(numbers), &Allowance::default()).await })
        };
        let turn = database.unmet.turn().await;
        let (leaves, one, other) = (asking(0..3), asking(2..5), asking(4..8));
        let gone = asking(8..20);
        tokio::task::yield_now().await;
        // Where a store was slow, what clients had asked for who came and left meanwhile was kept, without a bound.
        gone.abort();
        assert!(gone.await.is_err_and(|error| error.is_cancelled()));
        // As if the first had its turn, took what all were waiting for, and its client left.
        assert_eq!(database.unmet.take().len(), 10);
        leaves.abort();
        drop(turn);
        one.await.expect("no panic");
        other.await.expect("no panic");
        let known = (0..8).filter(|number| catalog.sensor(&database, &format!("m,s={number}")).is_some());
        assert_eq!(known.collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7]);
        assert!(database.unmet.take().is_empty(), "nothing is left for nobody");
    }
}
