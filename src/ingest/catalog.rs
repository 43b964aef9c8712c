//! The sensors this process has met, by database: what the door needs to know to judge a line
//! without asking the store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rapidhash::fast::RandomState;

use super::Options;
use crate::bucket::{Met, SensorDocument};
use crate::reading::{Family, Sensor};

/// How many spellings of one sensor (tags in another order) are remembered beside its key.
const SPELLINGS_MAX: u8 = 4;

/// All databases and sensors met.
#[derive(Debug)]
pub struct Catalog {
    databases: RwLock<HashMap<Box<str>, Arc<Database>>>,
    count: AtomicUsize,
    /// Grows with every sensor and field that is met.
    version: Arc<AtomicU64>,
    sensors_max: usize,
    shards: usize,
}

/// One database's sensors.
#[derive(Debug)]
pub struct Database {
    /// Its name, as clients use it.
    pub name: Box<str>,
    /// By canonical key, and by other spellings of it.
    sensors: RwLock<HashMap<Box<str>, Arc<KnownSensor>, RandomState>>,
}

/// A sensor, and what this process knows of its stored document.
#[derive(Debug)]
pub struct KnownSensor {
    /// Its number within this process.
    pub id: u32,
    /// Its identity.
    pub sensor: Arc<Sensor>,
    /// The shard that owns its buckets.
    pub shard: usize,
    fields: RwLock<Arc<Fields>>,
    /// The rev of its document that this process made last; 0 while it made none.
    pub written_rev: AtomicU64,
    /// The time last given to an undated reading.
    stamped: AtomicI64,
    spellings: AtomicU8,
    /// The catalog's.
    version: Arc<AtomicU64>,
}

/// A sensor's fields, in the order this process met them. Only ever grows.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    /// Their names; a cell names its field by index.
    pub names: Vec<Arc<str>>,
    /// The family of each.
    pub families: Vec<Family>,
    /// How many of them the stored document is known to have: all before this index.
    pub saved: usize,
    /// Whether the sensor's document is known to be stored.
    pub stored: bool,
}

impl Fields {
    /// The index of a field; `hint` is where it is most likely to be.
    pub fn find(&self, name: &str, hint: usize) -> Option<usize> {
        if self.names.get(hint).is_some_and(|n| **n == *name) {
            return Some(hint);
        }
        self.names.iter().position(|n| **n == *name)
    }

    /// These fields and one more, unless it is among them; `None` when there are `max` others.
    pub fn with(self: &Arc<Self>, name: &str, family: Family, max: usize) -> Option<Arc<Self>> {
        if self.find(name, usize::MAX).is_some() {
            return Some(self.clone());
        }
        if self.names.len() >= max {
            return None;
        }
        let mut grown = Self::clone(self);
        grown.names.push(Arc::from(name));
        grown.families.push(family);
        Some(Arc::new(grown))
    }

    /// Whether the stored document lacks something that pages are about to need.
    pub fn unsaved(&self) -> bool {
        !self.stored || self.saved < self.names.len()
    }
}

impl KnownSensor {
    /// The fields as they are now.
    pub fn fields(&self) -> Arc<Fields> {
        self.fields.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds a field, unless another request just did; `None` when there are `max` others.
    pub fn add_field(&self, name: &str, family: Family, max: usize) -> Option<Arc<Fields>> {
        let mut fields = self.fields.write().unwrap_or_else(PoisonError::into_inner);
        *fields = fields.with(name, family, max)?;
        self.version.fetch_add(1, Ordering::Relaxed);
        Some(fields.clone())
    }

    /// Takes over what a stored document says of the fields: its families win.
    pub fn adopt(&self, document: &SensorDocument) {
        let mut fields = self.fields.write().unwrap_or_else(PoisonError::into_inner);
        let grown = Arc::make_mut(&mut fields);
        for (name, family) in &document.fields {
            match grown.find(name, usize::MAX) {
                Some(index) => grown.families[index] = *family,
                None => {
                    grown.names.push(name.clone());
                    grown.families.push(*family);
                }
            }
        }
        grown.stored = true;
        let in_document = |name: &Arc<str>| document.fields.iter().any(|(n, _)| n == name);
        grown.saved = grown.names.iter().take_while(|name| in_document(name)).count();
    }

    /// A time for an undated reading: the given one, or just after the last one given. A clock
    /// that was set back by more than a second is believed.
    pub fn stamp(&self, received: i64) -> i64 {
        let next = |last: i64| match last.saturating_sub(received) {
            0..1_000_000_000 => last + 1,
            _ => received,
        };
        let last = self.stamped.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        last.map_or(received, next)
    }
}

impl Catalog {
    /// Nothing met yet.
    pub fn new(options: &Options) -> Self {
        Self {
            databases: RwLock::default(),
            count: AtomicUsize::new(0),
            version: Arc::default(),
            sensors_max: options.sensors,
            shards: options.shards,
        }
    }

    /// How many sensors were met.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// A database met before.
    pub fn database(&self, name: &str) -> Option<Arc<Database>> {
        self.databases.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// A database, met now at the latest, beside those that the store has; `None` when there is
    /// no room for another.
    pub fn add_database(&self, name: &str, stored: &[String], max: usize) -> Option<Arc<Database>> {
        let mut databases = self.databases.write().unwrap_or_else(PoisonError::into_inner);
        if !databases.contains_key(name) && !stored.iter().any(|known| known == name) {
            let unstored = databases.keys().filter(|known| !stored.iter().any(|stored| **stored == ***known));
            if stored.len() + unstored.count() >= max {
                return None;
            }
        }
        let new = || Arc::new(Database { name: name.into(), sensors: RwLock::default() });
        Some(databases.entry(name.into()).or_insert_with(new).clone())
    }

    /// A database met in the log, whatever the limit says: it was let in before.
    pub fn enlist_database(&self, name: &str) -> Arc<Database> {
        let mut databases = self.databases.write().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Database { name: name.into(), sensors: RwLock::default() });
        databases.entry(name.into()).or_insert_with(new).clone()
    }

    /// The names of the databases met so far.
    pub fn database_names(&self) -> Vec<String> {
        self.databases.read().unwrap_or_else(PoisonError::into_inner).keys().map(ToString::to_string).collect()
    }

    /// Most sensors.
    pub fn sensors_max(&self) -> usize {
        self.sensors_max
    }

    /// How many more sensors may become known.
    pub fn room(&self) -> usize {
        self.sensors_max - self.len().min(self.sensors_max)
    }

    /// A sensor met before, by its key or another spelling of it.
    pub fn sensor(&self, database: &Database, spelling: &str) -> Option<Arc<KnownSensor>> {
        database.sensors.read().unwrap_or_else(PoisonError::into_inner).get(spelling).cloned()
    }

    /// The sensors with these keys that are not known to have a document in the store.
    pub fn unstored(&self, database: &Database, wanted: impl Fn(&str) -> bool) -> Vec<Arc<KnownSensor>> {
        let sensors = database.sensors.read().unwrap_or_else(PoisonError::into_inner);
        // Under its other spellings a sensor is passed over.
        let is_key = |spelling: &str, known: &KnownSensor| *spelling == *known.sensor.key && wanted(spelling);
        let unstored = sensors.iter().filter(|(spelling, known)| is_key(spelling, known) && !known.fields().stored);
        unstored.map(|(_, known)| known.clone()).collect()
    }

    /// Remembers another spelling of a sensor's key, if there is room for it.
    pub fn add_spelling(&self, database: &Database, spelling: &str, sensor: &Arc<KnownSensor>) {
        let below = |n: u8| (n < SPELLINGS_MAX).then_some(n + 1);
        if sensor.spellings.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below).is_ok() {
            let mut sensors = database.sensors.write().unwrap_or_else(PoisonError::into_inner);
            sensors.insert(spelling.into(), sensor.clone());
        }
    }

    /// Makes sensors known, with what their documents say: at most so many in all.
    pub fn learn(&self, database: &Database, unknown: Vec<Sensor>, documents: Vec<SensorDocument>, max: usize) {
        let mut stored: HashMap<Box<str>, SensorDocument> =
            documents.into_iter().map(|document| (document.sensor.key.clone(), document)).collect();
        let mut sensors = database.sensors.write().unwrap_or_else(PoisonError::into_inner);
        for sensor in unknown {
            if sensors.contains_key(&*sensor.key) {
                continue;
            }
            let below = |n: usize| (n < max).then_some(n + 1);
            let Ok(number) = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below) else { return };
            let Ok(id) = u32::try_from(number) else { return };
            let document = stored.remove(&sensor.key);
            let key = sensor.key.clone();
            let known = Arc::new(KnownSensor {
                id,
                shard: number % self.shards,
                sensor: Arc::new(sensor),
                fields: RwLock::default(),
                written_rev: AtomicU64::new(0),
                stamped: AtomicI64::new(i64::MIN),
                spellings: AtomicU8::new(0),
                version: self.version.clone(),
            });
            if let Some(document) = document {
                known.adopt(&document);
            }
            sensors.insert(key, known);
            self.version.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Grows with every sensor and field that is met.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// All sensors met, with their fields.
    pub fn met(&self, database: &Database) -> Vec<Met> {
        let sensors = database.sensors.read().unwrap_or_else(PoisonError::into_inner);
        let keys = sensors.iter().filter(|(spelling, known)| *spelling == &known.sensor.key);
        let met = |known: &KnownSensor| {
            let fields = known.fields();
            let fields = fields.names.iter().cloned().zip(fields.families.iter().copied()).collect();
            Met { sensor: known.sensor.clone(), fields }
        };
        keys.map(|(_, known)| met(known)).collect()
    }
}
