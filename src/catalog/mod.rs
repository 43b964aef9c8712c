//! The sensors that this process knows, by database: what admission needs to validate a line without the store.

mod charge;
mod claims;
mod copy;
mod database;
pub(crate) mod deletion;
pub mod deletions;
mod fields;
pub mod lookup;
mod meta;
pub mod reads;
mod sensor;
pub mod silence;
mod spellings;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

pub use self::claims::Claims;
pub use self::copy::CatalogCopy;
pub use self::database::{Database, SensorsRead, WantedSensor};
pub use self::fields::SensorFields;
pub use self::sensor::KnownSensor;

use self::deletions::InProgress;
use self::sensor::CatalogState;
use self::spellings::Spellings;
use crate::access::{Caller, Exhausted, Quota};
use crate::bucket::{CatalogSensor, CatalogVersion, Meta, Renames, SensorDocument};
use crate::config::{Settings, bound};
use crate::reading::Sensor;

/// Most other spellings (tags in another order) that are remembered for one sensor.
const SPELLINGS_MAX: u8 = 4;

/// All known databases and sensors.
#[derive(Debug)]
pub struct Catalog {
    databases: RwLock<HashMap<Box<str>, Arc<Database>>>,
    count: AtomicUsize,
    /// Ids are never reused, so this is not `count`, which falls when sensors are deleted.
    next_id: AtomicU32,
    /// The number of the next database.
    next_database: AtomicU64,
    state: Arc<CatalogState>,
    /// Incremented by every deletion that makes stored documents doubtful, in any database.
    deletions: AtomicU64,
    /// Deletions in progress, by database: documents there are about to be deleted and do not count.
    deleting: Mutex<HashMap<String, InProgress>>,
    sensors_max: usize,
    /// How old a list of sensors may be that was read from the store.
    list_age: Duration,
    shards: usize,
    /// The quota of each database.
    quota: Quota,
}

/// What the store has of sensors.
#[derive(Debug, Default)]
pub struct LookupResult {
    /// The documents of those sensors that have one.
    pub documents: Vec<SensorDocument>,
    /// [`Database::deletions`] before the store was read.
    pub deletions: u64,
    /// Whether sensors without a document count as new. `false` while the store is away, since they may have one.
    pub counts: bool,
}

/// Why a database does not become known.
#[derive(Debug)]
pub enum NoRoom {
    /// There are as many as there may be.
    OfAll,
    /// The sender has as many as it may have.
    OfCaller(Exhausted),
}

impl Catalog {
    pub fn new(options: &Settings) -> Self {
        Self {
            databases: RwLock::default(),
            count: AtomicUsize::new(0),
            next_id: AtomicU32::new(0),
            next_database: AtomicU64::new(0),
            state: Arc::new(CatalogState::new(options.catalog.max_bytes, options.kinds.clone())),
            deletions: AtomicU64::new(0),
            deleting: Mutex::default(),
            sensors_max: options.limits.sensors,
            list_age: options.query.cache_max_age,
            shards: options.ingest.shards,
            quota: database_quota(options),
        }
    }

    /// How many sensors are known.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub fn database(&self, name: &str) -> Option<Arc<Database>> {
        self.databases.read().get(name).cloned()
    }

    /// A database, which becomes known if it is not.
    ///
    /// # Errors
    /// When it would be more than `max` together with those that the store has, or than `by` may have.
    pub fn add_database(
        &self,
        name: &str,
        stored: &[String],
        (max, by, default): (usize, &Caller, Option<u32>),
    ) -> Result<Arc<Database>, NoRoom> {
        let mut databases = self.databases.write();
        let is_new = Self::check_room(&databases, name, stored, (max, by, default))?;
        Ok(databases.entry(name.into()).or_insert_with(|| self.new_database(name, is_new)).clone())
    }

    /// Whether a database would be new, and might become known: as [`Catalog::add_database`], which it would not.
    ///
    /// # Errors
    /// The same.
    pub fn would_add_database(
        &self,
        name: &str,
        stored: &[String],
        terms: (usize, &Caller, Option<u32>),
    ) -> Result<bool, NoRoom> {
        Self::check_room(&self.databases.read(), name, stored, terms)
    }

    fn check_room(
        databases: &HashMap<Box<str>, Arc<Database>>,
        name: &str,
        stored: &[String],
        (max, by, default): (usize, &Caller, Option<u32>),
    ) -> Result<bool, NoRoom> {
        let is_new = !databases.contains_key(name) && !stored.iter().any(|known| known == name);
        if is_new {
            let is_stored = |name: &str| stored.iter().any(|stored| *stored == *name);
            let may_be_there = |known: &Database| known.is_waiting() || known.doubts() == 0;
            let unstored = databases.values().filter(|known| may_be_there(known) && !is_stored(&known.name));
            let unstored: Vec<&str> = unstored.map(|known| &*known.name).collect();
            let existing = stored.iter().map(String::as_str).chain(unstored.iter().copied());
            by.admits_database(existing, default).map_err(NoRoom::OfCaller)?;
            if stored.len() + unstored.len() >= max {
                return Err(NoRoom::OfAll);
            }
        }
        Ok(is_new)
    }

    /// Forgets a database that became known by a request of which nothing was accepted, once no other request uses it.
    pub fn forget_unused(&self, database: Arc<Database>) {
        if !database.is_new || database.known() > 0 || database.is_waiting() {
            return;
        }
        let mut databases = self.databases.write();
        // Besides the map's and this one, everybody who may make it more holds one.
        let is_unused = Arc::strong_count(&database) == 2 && database.known() == 0 && !database.is_waiting();
        if is_unused && databases.get(&database.name).is_some_and(|known| Arc::ptr_eq(known, &database)) {
            databases.remove(&database.name);
        }
    }

    /// A database of a WAL record, which becomes known without a limit: it was admitted before.
    pub fn enlist_database(&self, name: &str) -> Arc<Database> {
        let mut databases = self.databases.write();
        databases.entry(name.into()).or_insert_with(|| self.new_database(name, false)).clone()
    }

    fn new_database(&self, name: &str, is_new: bool) -> Arc<Database> {
        Database::new((name, self.next_database.fetch_add(1, Ordering::Relaxed)), is_new, self.quota)
    }

    pub fn databases(&self) -> Vec<Arc<Database>> {
        self.databases.read().values().cloned().collect()
    }

    pub fn sensors_max(&self) -> usize {
        self.sensors_max
    }

    /// How many more sensors may become known.
    pub fn room(&self) -> usize {
        self.sensors_max - self.len().min(self.sensors_max)
    }

    /// The limit that keeps a new sensor out, in words, if one does.
    pub fn full(&self, new: &Sensor) -> Option<String> {
        if self.room() == 0 {
            return Some(format!("the limit of {} sensors (limits.sensors)", self.sensors_max));
        }
        let too_large = || format!("the limit of {} bytes for all sensors (catalog.max_bytes)", self.state.bytes.max);
        (!self.state.bytes.fits(sensor::memory(new))).then(too_large)
    }

    /// `catalog.max_bytes`, if it leaves no memory for a new field.
    pub fn full_for_field(&self, name: &str) -> Option<usize> {
        let fits = self.state.bytes.fits(SensorFields::memory_of_field(name));
        (!fits).then_some(self.state.bytes.max)
    }

    /// A known sensor, by its key or another spelling of it.
    pub fn sensor(&self, database: &Database, spelling: &str) -> Option<Arc<KnownSensor>> {
        database.sensors().get(spelling).cloned()
    }

    /// The sensors whose key is `wanted` and whose document was not known to be stored when the catalog had the version
    /// `since`.
    pub fn unstored(&self, database: &Database, since: u64, wanted: impl Fn(&str) -> bool) -> Vec<Arc<KnownSensor>> {
        let sensors = database.sensors();
        // A sensor is also in the map under its other spellings, which are skipped.
        let is_key = |spelling: &str, known: &KnownSensor| *spelling == *known.sensor.key && wanted(spelling);
        let is_new = |known: &KnownSensor| !known.fields().stored || known.adopted.load(Ordering::Relaxed) > since;
        let unstored = sensors.iter().filter(|(spelling, known)| is_key(spelling, known) && is_new(known));
        unstored.map(|(_, known)| known.clone()).collect()
    }

    /// Remembers another spelling of a sensor's key, or a shown name that these renames translate to it, if there is room
    /// for it.
    pub fn add_spelling(
        &self,
        database: &Database,
        spelling: &str,
        sensor: &Arc<KnownSensor>,
        renames: Option<&Renames>,
    ) {
        let below = |n: u8| (n < SPELLINGS_MAX).then_some(n + 1);
        if sensor.spellings.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below).is_ok() {
            let mut sensors = database.sensors.write();
            let is_free = sensors.get_even_deleted(spelling).is_none() && sensors.renames() == renames;
            if !sensor.is_superseded() && is_free && self.state.bytes.fits(spelling.len()) {
                sensors.add_spelling(spelling, sensor);
                sensor.charge.grow(sensor::memory_of_spelling(spelling));
            }
        }
    }

    /// Makes sensors known, with their documents as far as found: at most `max` in all, and new ones as far as quotas
    /// allow.
    pub fn add_sensors(&self, database: &Database, unknown: Vec<WantedSensor>, found: LookupResult, max: usize) {
        let LookupResult { documents, deletions, counts } = found;
        let mut stored: HashMap<Box<str>, SensorDocument> =
            documents.into_iter().map(|document| (document.sensor.key.clone(), document)).collect();
        let mut sensors = database.sensors.write();
        // A writer and a deletion each set their own mark before they read the other's (here `additions`, in
        // `begin_deletion` the deletion), so that at least one of them sees the other.
        database.additions.fetch_add(1, Ordering::SeqCst);
        if database.deletions() != deletions || self.is_deleting(&database.name) {
            stored.clear();
        }
        let now = Instant::now();
        for WantedSensor { sensor, allowance } in unknown {
            match sensors.get_even_deleted(&sensor.key).cloned() {
                Some(known) if !known.is_superseded() => continue,
                Some(deleted) => self.take_out(database, &mut sensors, &deleted),
                None => {}
            }
            // A WAL record's sensors were admitted before, as `max` says.
            if max != usize::MAX && !self.state.bytes.fits(sensor::memory(&sensor)) {
                continue;
            }
            let document = stored.remove(&sensor.key);
            let is_new = document.is_none();
            if is_new && !database.admits(&sensor, &allowance, counts, now) {
                continue;
            }
            let below = |n: usize| (n < max).then_some(n + 1);
            // Sensors of a database that was dropped meanwhile do not count: the request looks them up again in the
            // current one.
            let counts_here = !database.is_superseded();
            if counts_here && self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below).is_err() {
                if is_new && counts {
                    database.give_back_new(&allowance);
                }
                return;
            }
            let below = |n: u32| n.checked_add(1);
            let Ok(id) = self.next_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below) else { return };
            let key = sensor.key.clone();
            sensors.add(key, |place| {
                let known = KnownSensor::new(sensor, (id, place, id as usize % self.shards), self.state.clone());
                if let Some(document) = document {
                    known.adopt(&document);
                }
                known
            });
            database.known.fetch_add(usize::from(counts_here), Ordering::Relaxed);
            self.state.version.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes a deleted sensor unless it has been removed already.
    fn take_out(&self, database: &Database, sensors: &mut Spellings, deleted: &KnownSensor) {
        // `forget_deleted` subtracts the sensors of a dropped database all at once.
        if sensors.remove(deleted) && !database.is_superseded() {
            self.count.fetch_sub(1, Ordering::Relaxed);
            database.known.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Notes that lists of sensors and fields made before may lack something that the WAL has.
    pub fn note_news(&self) {
        self.state.note_news();
    }

    /// Two counters that grow: with what becomes known, and with deletions.
    pub fn version(&self) -> CatalogVersion {
        CatalogVersion {
            additions: self.state.version.load(Ordering::Relaxed),
            deletions: self.deletions.load(Ordering::Relaxed),
        }
    }

    /// Notes a change of metadata that is in the WAL.
    pub fn note_meta(&self, database: &Database, known: &KnownSensor, change: &Meta) {
        known.note_meta();
        // First, so that an older document that is read meanwhile does not undo the kind.
        known.unstored_meta.fetch_add(1, Ordering::AcqRel);
        known.note_kind(change);
        database.meta.note(&known.sensor.key, change, self.list_age);
        self.note_news();
    }

    /// The sensors that have unflushed readings, those whose documents were found in the store after the catalog
    /// had the version `since`, and those with new metadata.
    pub fn catalog_sensors(&self, database: &Database, since: u64) -> Vec<CatalogSensor> {
        let new_meta = database.meta.all();
        let sensors = database.sensors();
        let is_listed = |known: &KnownSensor| {
            known.waiting.load(Ordering::Relaxed)
                || known.adopted.load(Ordering::Relaxed) > since
                || new_meta.contains_key(&known.sensor.key)
        };
        let keys = sensors.iter().filter(|(spelling, known)| **spelling == *known.sensor.key && is_listed(known));
        let with_meta = |known: &KnownSensor| CatalogSensor {
            meta: new_meta.get(&known.sensor.key).cloned(),
            ..known.catalog_sensor()
        };
        keys.map(|(_, known)| with_meta(known)).collect()
    }

    /// A sensor, if it has unflushed readings or its document is known to be stored.
    pub fn catalog_sensor(&self, database: &Database, key: &str) -> Option<CatalogSensor> {
        // A spelling may be a name that a rename no longer shows: only the stored key finds the sensor.
        let known = self.sensor(database, key).filter(|known| *known.sensor.key == *key)?;
        known.is_listed().then(|| CatalogSensor { meta: database.meta.of(key), ..known.catalog_sensor() })
    }
}

/// Returns the quota of each database.
fn database_quota(settings: &Settings) -> Quota {
    Quota {
        readings_per_second: bound(settings.quota.database_readings),
        new_sensors_per_hour: bound(settings.quota.database_new_sensors),
        sensors: bound(settings.quota.database_sensors),
        databases: None,
    }
}
