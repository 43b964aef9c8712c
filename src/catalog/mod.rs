//! The known sensors of each database, kept in memory so that admission can validate a line without reading the store.

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
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

pub use self::claims::Claims;
pub use self::copy::CatalogCopy;
pub use self::database::{Database, SensorsRead, WantedSensor};
pub use self::fields::SensorFields;
pub use self::meta::memory_of_meta;
pub use self::sensor::KnownSensor;

use self::charge::Account;
use self::deletions::InProgress;
use self::sensor::{CatalogState, SensorIds};
use self::spellings::Spellings;
use crate::access::{Caller, Exhausted, Quota, Usage, share};
use crate::bucket::settings::owner;
use crate::bucket::{CatalogSensor, CatalogVersion, Meta, Renames, SensorDocument};
use crate::config::{Settings, bound};
use crate::reading::{Sensor, Stamp};

/// Maximum number of alternative spellings (the same tags in another order) kept per sensor.
const SPELLINGS_MAX: u8 = 4;

/// All known databases and sensors.
#[derive(Debug)]
pub struct Catalog {
    databases: RwLock<HashMap<Box<str>, Arc<Database>>>,
    /// The number of known sensors.
    count: AtomicUsize,
    /// The id of the next sensor. Ids are never reused, while `count` falls when sensors are deleted.
    next_id: AtomicU32,
    /// The number of the next database.
    next_database: AtomicU64,
    state: Arc<CatalogState>,
    /// Incremented by every deletion in any database after which stored documents may be gone.
    deletions: AtomicU64,
    /// Deletions in progress, by database. Stored documents of these databases are ignored, as they may be about to go.
    deleting: Mutex<HashMap<String, InProgress>>,
    sensors_max: usize,
    /// The account of new metadata of all databases.
    meta_account: Arc<Account>,
    /// True once a second database was seen.
    has_others: AtomicBool,
    /// Maximum age of a sensor list that was read from the store.
    list_age: Duration,
    shards: usize,
    /// The quota of each database.
    quota: Quota,
}

/// The result of looking up sensors in the store.
#[derive(Debug, Default)]
pub struct LookupResult {
    /// The documents that were found.
    pub documents: Vec<SensorDocument>,
    /// [`Database::deletions`] before the store was read.
    pub deletions: u64,
    /// True if sensors without a document count as new. False while the store is away, since they may have a document.
    pub counts: bool,
}

/// The limits on adding a database on behalf of a caller.
#[derive(Clone, Copy)]
pub struct DatabaseTerms<'a> {
    /// Maximum number of databases (`limits.databases`).
    pub max: usize,
    pub caller: &'a Caller,
    /// Maximum number of databases of a caller whose token sets none (`quota.token_databases`).
    pub caller_max: Option<u32>,
}

/// The limit that a new database would exceed.
#[derive(Debug)]
pub enum DatabaseRefusal {
    /// The maximum number of databases.
    TooMany,
    /// The caller's quota.
    CallerQuota(Exhausted),
}

impl Catalog {
    pub fn new(options: &Settings) -> Self {
        let state = Arc::new(CatalogState::new(options.catalog.max_bytes, options.kinds.clone()));
        Self {
            databases: RwLock::default(),
            count: AtomicUsize::new(0),
            next_id: AtomicU32::new(0),
            next_database: AtomicU64::new(0),
            meta_account: state.bytes.account(None),
            state,
            deletions: AtomicU64::new(0),
            deleting: Mutex::default(),
            sensors_max: options.limits.sensors,
            has_others: AtomicBool::new(false),
            list_age: options.query.cache_max_age,
            shards: options.ingest.shards,
            quota: database_quota(options),
        }
    }

    /// Returns the number of known sensors.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub fn database(&self, name: &str) -> Option<Arc<Database>> {
        self.databases.read().get(name).cloned()
    }

    /// Returns a database, and adds it if it is unknown. `stored` lists the databases of the store.
    ///
    /// # Errors
    /// If a new database would exceed the limits of `terms`.
    pub fn add_database(
        &self,
        name: &str,
        stored: &[String],
        terms: DatabaseTerms<'_>,
    ) -> Result<Arc<Database>, DatabaseRefusal> {
        let mut databases = self.databases.write();
        let is_new = Self::check_database(&databases, name, stored, terms)?;
        if stored.iter().any(|stored| owner(stored) != owner(name)) {
            self.has_others.store(true, Ordering::Relaxed);
        }
        let account = self.account_of(&databases, name);
        Ok(databases.entry(name.into()).or_insert_with(|| self.new_database(name, is_new, account)).clone())
    }

    /// Returns true if [`Catalog::add_database`] would create the database, without adding it.
    ///
    /// # Errors
    /// As [`Catalog::add_database`].
    pub fn would_add_database(
        &self,
        name: &str,
        stored: &[String],
        terms: DatabaseTerms<'_>,
    ) -> Result<bool, DatabaseRefusal> {
        Self::check_database(&self.databases.read(), name, stored, terms)
    }

    /// Returns true if the database is new and within the limits.
    fn check_database(
        databases: &HashMap<Box<str>, Arc<Database>>,
        name: &str,
        stored: &[String],
        terms: DatabaseTerms<'_>,
    ) -> Result<bool, DatabaseRefusal> {
        let is_stored = |name: &str| stored.iter().any(|stored| *stored == *name);
        if databases.contains_key(name) || is_stored(name) {
            return Ok(false);
        }
        // Another instance may have dropped a database with doubts, unless it has unflushed readings.
        let may_exist = |known: &Database| known.has_unflushed() || known.doubts() == 0;
        let unstored = databases.values().filter(|known| may_exist(known) && !is_stored(&known.name));
        let unstored: Vec<&str> = unstored.map(|known| &*known.name).collect();
        let existing = stored.iter().map(String::as_str).chain(unstored.iter().copied());
        terms.caller.admits_database(existing, terms.caller_max).map_err(DatabaseRefusal::CallerQuota)?;
        if stored.len() + unstored.len() >= terms.max {
            return Err(DatabaseRefusal::TooMany);
        }
        Ok(true)
    }

    /// Removes a database that a request added and then stored nothing in, unless another request uses it.
    pub fn forget_unused(&self, database: Arc<Database>) {
        if !database.is_new || database.sensor_count() > 0 || database.has_unflushed() {
            return;
        }
        let mut databases = self.databases.write();
        // Two references, the map's and the caller's: nobody else can add anything to the database.
        let is_unused = Arc::strong_count(&database) == 2 && database.sensor_count() == 0 && !database.has_unflushed();
        if is_unused && databases.get(&database.name).is_some_and(|known| Arc::ptr_eq(known, &database)) {
            databases.remove(&database.name);
        }
    }

    /// Returns a database of a WAL record, and adds it if it is unknown. No limit applies, because the record was
    /// admitted before.
    pub fn enlist_database(&self, name: &str) -> Arc<Database> {
        let mut databases = self.databases.write();
        if let Some(known) = databases.get(name) {
            return known.clone();
        }
        let database = self.new_database(name, false, self.account_of(&databases, name));
        databases.insert(name.into(), database.clone());
        database
    }

    fn new_database(&self, name: &str, is_new: bool, account: Arc<Account>) -> Arc<Database> {
        Database::new(name, self.next_database.fetch_add(1, Ordering::Relaxed), is_new, self.quota, account)
    }

    /// Returns the account of a database, which its policies share.
    fn account_of(&self, databases: &HashMap<Box<str>, Arc<Database>>, name: &str) -> Arc<Account> {
        let known = databases.values().find(|known| owner(&known.name) == owner(name));
        if databases.values().any(|known| owner(&known.name) != owner(name)) {
            self.has_others.store(true, Ordering::Relaxed);
        }
        known.map_or_else(|| self.state.bytes.account(None), |known| known.account.clone())
    }

    /// Returns the sensors and the bytes of the whole catalog up to which a database and a token may add some.
    fn shares(&self, account: Option<&Account>, allowance: Option<&Usage>) -> (usize, usize) {
        let has_others = allowance.is_some() || self.has_others.load(Ordering::Relaxed);
        let (sensors, bytes) = allowance.map_or((0, 0), Usage::created);
        let sensors = sensors.max(account.map_or(0, Account::sensors));
        let bytes = bytes.max(account.map_or(0, Account::bytes));
        (share(self.sensors_max, sensors, has_others), share(self.state.bytes.max, bytes, has_others))
    }

    pub fn databases(&self) -> Vec<Arc<Database>> {
        self.databases.read().values().cloned().collect()
    }

    pub fn sensors_max(&self) -> usize {
        self.sensors_max
    }

    /// Returns how many sensors can still be added.
    pub fn room(&self) -> usize {
        self.sensors_max - self.len().min(self.sensors_max)
    }

    /// Returns a description of the limit that a new sensor would exceed, if any.
    pub fn limit_for_sensor(
        &self,
        database: Option<&Database>,
        allowance: Option<&Usage>,
        new: &Sensor,
    ) -> Option<String> {
        let (sensors_max, bytes_max) = self.shares(database.map(|database| &*database.account), allowance);
        if self.len() >= sensors_max {
            return Some(format!("the limit of {sensors_max} sensors (limits.sensors)"));
        }
        if self.state.bytes.fits(sensor::memory(new), bytes_max) {
            return None;
        }
        Some(format!("the limit of {bytes_max} bytes for all sensors (catalog.max_bytes)"))
    }

    /// Returns the share of `catalog.max_bytes` if a new field of a sensor would exceed it.
    pub fn limit_for_field(&self, known: &KnownSensor, allowance: Option<&Usage>, name: &str) -> Option<usize> {
        let account = known.charge.account()?;
        let (_, bytes_max) = self.shares(Some(account), allowance);
        let bytes = SensorFields::memory_of_field(name);
        if !self.state.bytes.fits(bytes, bytes_max) {
            return Some(bytes_max);
        }
        if let Some(usage) = allowance {
            usage.note_created(0, bytes);
        }
        None
    }

    /// Returns a known sensor by its key or another spelling.
    pub fn sensor(&self, database: &Database, spelling: &str) -> Option<Arc<KnownSensor>> {
        database.sensors().get(spelling).cloned()
    }

    /// Returns the sensors with a `wanted` key whose document was not known to be stored at the catalog version
    /// `version`.
    pub fn list_unstored(
        &self,
        database: &Database,
        version: u64,
        wanted: impl Fn(&str) -> bool,
    ) -> Vec<Arc<KnownSensor>> {
        let is_new = |known: &KnownSensor| !known.fields().is_stored || known.adopted.load(Ordering::Relaxed) > version;
        database.list(|known| (wanted(&known.sensor.key) && is_new(known)).then(|| known.clone()))
    }

    /// Remembers another spelling of a sensor's key, or a name that `renames` translates to it. Does nothing if there
    /// is no room.
    pub fn add_spelling(
        &self,
        database: &Database,
        spelling: &str,
        sensor: &Arc<KnownSensor>,
        renames: Option<&Renames>,
    ) {
        let increment = |n: u8| (n < SPELLINGS_MAX).then_some(n + 1);
        if sensor.spellings.fetch_update(Ordering::Relaxed, Ordering::Relaxed, increment).is_ok() {
            let mut sensors = database.sensors.write();
            let is_free = sensors.get_even_deleted(spelling).is_none() && sensors.renames() == renames;
            if !sensor.is_superseded()
                && is_free
                && self.state.bytes.fits(spelling.len(), self.shares(Some(&database.account), None).1)
            {
                sensors.add_spelling(spelling, sensor);
                sensor.charge.grow(sensor::memory_of_spelling(spelling));
            }
        }
    }

    /// Adds sensors with the documents that were found. Stops at `max` sensors in all, and skips new sensors that
    /// exceed a quota.
    pub fn add_sensors(&self, database: &Database, unknown: Vec<WantedSensor>, found: LookupResult, max: usize) {
        let LookupResult { documents, deletions, counts } = found;
        let mut stored: HashMap<Box<str>, SensorDocument> =
            documents.into_iter().map(|document| (document.sensor.key.clone(), document)).collect();
        let mut sensors = database.sensors.write();
        // This function increments `additions` before it reads the deletions. `begin_deletion` notes its deletion
        // before it reads `additions`. So at least one of the two sees the other.
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
            let bytes = sensor::memory(&sensor);
            // Sensors of a WAL record (`max` is `usize::MAX`) were admitted before.
            let (sensors_max, bytes_max) = match max {
                usize::MAX => (usize::MAX, usize::MAX),
                _ => self.shares(Some(&database.account), allowance.as_deref()),
            };
            if !self.state.bytes.fits(bytes, bytes_max) {
                continue;
            }
            let document = stored.remove(&sensor.key);
            let is_new = document.is_none();
            if is_new && !database.try_charge_sensor(&sensor, &allowance, counts, now) {
                continue;
            }
            let increment = |n: usize| (n < max.min(sensors_max)).then_some(n + 1);
            // If the database was dropped meanwhile, its sensors do not count: the request looks them up again in the
            // current database.
            let counts_here = !database.is_superseded();
            if counts_here && self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, increment).is_err() {
                if is_new && counts {
                    database.refund_new_sensor(&allowance);
                }
                continue;
            }
            if let Some(usage) = allowance.filter(|_| is_new) {
                usage.note_created(1, bytes);
            }
            let increment = |n: u32| n.checked_add(1);
            let Ok(id) = self.next_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, increment) else { return };
            let key = sensor.key.clone();
            sensors.add(key, |slot| {
                let ids = SensorIds { id, slot, shard: id as usize % self.shards };
                let known = KnownSensor::new(sensor, ids, self.state.clone(), &database.account);
                if let Some(document) = document {
                    known.adopt(&document);
                }
                known
            });
            if counts_here {
                database.count_sensor();
            }
            self.state.version.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes a deleted sensor, if it is still there.
    fn take_out(&self, database: &Database, sensors: &mut Spellings, deleted: &KnownSensor) {
        // `forget_deleted` has subtracted the sensors of a dropped database.
        if sensors.remove(deleted) && !database.is_superseded() {
            self.count.fetch_sub(1, Ordering::Relaxed);
            database.subtract_sensors(1);
        }
    }

    /// Marks earlier lists of sensors and fields as outdated, because the WAL has something that they may lack.
    pub fn note_news(&self) {
        self.state.note_news();
    }

    /// Returns the catalog's version: a counter of additions and a counter of deletions.
    pub fn version(&self) -> CatalogVersion {
        CatalogVersion {
            additions: self.state.version.load(Ordering::Relaxed),
            deletions: self.deletions.load(Ordering::Relaxed),
        }
    }

    /// Notes a metadata change that is in the WAL.
    pub fn note_meta(&self, database: &Database, known: &KnownSensor, change: &Meta) {
        known.note_meta();
        // Count the change before its kind is set, so that an older document that is read meanwhile does not reset the
        // kind.
        known.unstored_meta.fetch_add(1, Ordering::AcqRel);
        known.note_kind(change);
        database.meta.note(&self.meta_account, &known.sensor.key, change, self.list_age);
        self.note_news();
    }

    /// Returns `catalog.max_bytes` if `bytes` of new metadata would exceed it. Beside sensors that fill it, all new metadata
    /// has a sixteenth, and new metadata that is alone always has room.
    pub fn limit_for_meta(&self, database: &Database, bytes: usize) -> Option<usize> {
        let max = self.state.bytes.max;
        let has_room = || {
            let others = self.meta_account.bytes();
            others == 0 || others + bytes <= max / 16 || self.state.bytes.fits(bytes, max)
        };
        if has_room() {
            return None;
        }
        database.meta.prune();
        (!has_room()).then_some(max)
    }

    /// Returns the memory of sensors, fields and new metadata.
    pub fn used_bytes(&self) -> usize {
        self.state.bytes.used_bytes()
    }

    /// Removes the new metadata of a database that is older than `before`, the last deletion that covers a sensor.
    pub fn cut_meta(&self, database: &str, before: impl Fn(&Sensor) -> Stamp) {
        let Some(database) = self.database(database) else { return };
        for key in database.meta.all().into_keys() {
            if let Some(known) = self.sensor(&database, &key) {
                database.meta.cut(&key, before(&known.sensor));
            }
        }
    }

    /// Returns the sensors that a list read at the catalog version `version` may lack: those with unflushed readings,
    /// those whose documents were found later, and those with new metadata.
    pub fn catalog_sensors(&self, database: &Database, version: u64) -> Vec<CatalogSensor> {
        let new_meta = database.meta.all();
        let is_listed = |known: &KnownSensor| {
            known.has_unflushed.load(Ordering::Relaxed)
                || known.adopted.load(Ordering::Relaxed) > version
                || new_meta.contains_key(&known.sensor.key)
        };
        let with_meta = |known: &KnownSensor| CatalogSensor {
            meta: new_meta.get(&known.sensor.key).cloned(),
            ..known.catalog_sensor()
        };
        database.list(|known| is_listed(known).then(|| with_meta(known)))
    }

    /// Returns the sensors of which other instances may not know, because their documents are not stored as they are here,
    /// or were found after the catalog version `version`.
    pub fn news(&self, database: &Database, version: u64) -> Vec<CatalogSensor> {
        let is_new = |known: &KnownSensor| {
            let fields = known.fields();
            fields.is_unsaved() || known.adopted.load(Ordering::Relaxed) > version
        };
        database.list(|known| is_new(known).then(|| known.catalog_sensor()))
    }

    /// Returns a sensor if it has unflushed readings or its document is known to be stored.
    pub fn catalog_sensor(&self, database: &Database, key: &str) -> Option<CatalogSensor> {
        // Other spellings do not count: one may be a shown name that is no longer in use.
        let known = self.sensor(database, key).filter(|known| *known.sensor.key == *key)?;
        known.is_listed().then(|| CatalogSensor { meta: database.meta.get(key), ..known.catalog_sensor() })
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
