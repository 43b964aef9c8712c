//! The sensors this process has met, by database: what the door needs to know to judge a line
//! without asking the store.

mod claims;
mod deletions;
mod fields;
mod spellings;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use self::claims::Claimed;
pub use self::claims::Claims;
pub use self::deletions::Doomed;
pub use self::fields::Fields;
use self::fields::Shapes;
use self::spellings::Spellings;
use super::Options;
use super::learn::{Found, Unmet, Wanted};
use crate::access::{Allowance, Quota, Usage};
use crate::bucket::{Met, MetVersion, SensorDocument};
use crate::reading::{Family, Sensor};

/// How many spellings of one sensor (tags in another order) are remembered beside its key.
const SPELLINGS_MAX: u8 = 4;

/// All databases and sensors met.
#[derive(Debug)]
pub struct Catalog {
    databases: RwLock<HashMap<Box<str>, Arc<Database>>>,
    count: AtomicUsize,
    /// Numbers are given once; counts fall when sensors are deleted.
    next_id: AtomicU32,
    /// Of databases, too.
    next_database: AtomicU64,
    met: Arc<AllMet>,
    /// Grows when something of any database was deleted.
    deletions: AtomicU64,
    /// Databases of which something is being deleted, and how many deletions: their documents say what is about to go.
    deleting: Mutex<HashMap<String, usize>>,
    sensors_max: usize,
    shards: usize,
    /// Of each database.
    quota: Quota,
}

/// What all sensors share.
#[derive(Debug, Default)]
struct AllMet {
    /// Grows with every sensor and field that is met.
    version: AtomicU64,
    shapes: Shapes,
    claimed: Claimed,
}

impl AllMet {
    /// Lists of sensors and fields made before may lack something.
    fn note_news(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }
}

/// One database's sensors.
#[derive(Debug)]
pub struct Database {
    /// Its name, as clients use it.
    pub name: Box<str>,
    /// Its number within this process: one that is made anew after it was dropped has another.
    pub number: u64,
    sensors: RwLock<Spellings>,
    /// How many sensors have readings on their way to the store.
    waiting: AtomicUsize,
    /// Grows when what documents said of sensors may not be so any more.
    deletions: AtomicU64,
    /// Grows before any sensor becomes known, under the sensors' lock: until then nobody has readings of it.
    learnt: AtomicU64,
    /// Another instance may have dropped it since it was met.
    doubted: AtomicBool,
    /// It was dropped: whoever still has it looks for the one that is there now.
    superseded: AtomicBool,
    /// Sensors that requests wait to have made known.
    pub unmet: Unmet,
    /// How many sensors of it are known.
    known: AtomicUsize,
    /// What has been used of its quota.
    pub usage: Usage,
}

/// A database's sensors by their spellings, which do not change while this is held.
pub type SensorsRead<'a> = RwLockReadGuard<'a, Spellings>;

/// A sensor, and what this process knows of its stored document.
#[derive(Debug)]
pub struct KnownSensor {
    /// Its number within this process.
    pub id: u32,
    /// Its identity.
    pub sensor: Arc<Sensor>,
    /// The shard that owns its buckets.
    pub shard: usize,
    /// Its place among its database's sensors, and that of the one that last came behind it in a request.
    place: u32,
    behind: AtomicU32,
    fields: RwLock<Arc<Fields>>,
    /// The rev of its document that this process made last; 0 while it made none.
    pub written_rev: AtomicU64,
    /// Whether readings of it are on their way from the log to the store.
    waiting: AtomicBool,
    /// The catalog's version when its document was last found to be stored.
    adopted: AtomicU64,
    /// It was deleted: whoever still has it looks for the one that is there now.
    superseded: AtomicBool,
    /// The time last given to an undated reading.
    stamped: AtomicI64,
    spellings: AtomicU8,
    /// The catalog's.
    met: Arc<AllMet>,
}

impl KnownSensor {
    fn new(sensor: Sensor, (id, place, shard): (u32, u32, usize), met: Arc<AllMet>) -> Self {
        Self {
            id,
            sensor: Arc::new(sensor),
            shard,
            place,
            behind: AtomicU32::new(u32::MAX),
            fields: RwLock::default(),
            written_rev: AtomicU64::new(0),
            waiting: AtomicBool::new(false),
            adopted: AtomicU64::new(0),
            superseded: AtomicBool::new(false),
            stamped: AtomicI64::new(i64::MIN),
            spellings: AtomicU8::new(0),
            met,
        }
    }

    fn met(&self) -> Met {
        let fields = self.fields();
        let firm = fields.firm().map(|(name, family)| (name.clone(), *family)).collect();
        Met { sensor: self.sensor.clone(), fields: firm, is_stored: fields.stored }
    }

    /// Remembers who came behind it.
    pub fn is_before(&self, other: &Self) {
        // Looked at first, since requests of several clients may do so at once.
        if self.behind.load(Ordering::Relaxed) != other.place {
            self.behind.store(other.place, Ordering::Relaxed);
        }
    }

    /// The fields as they are now.
    pub fn fields(&self) -> Arc<Fields> {
        self.fields.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn write_fields(&self) -> RwLockWriteGuard<'_, Arc<Fields>> {
        self.fields.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a field that a record has, unless it is there; `None` when there are `max` others.
    pub fn add_field(&self, name: &str, family: Family, max: usize) -> Option<Arc<Fields>> {
        let mut fields = self.write_fields();
        let mut grown = fields.with(name, family, max)?;
        let firm = grown.find(name, usize::MAX).map_or(0, |at| at + 1).max(fields.firm);
        self.met.claimed.settle(self.id, fields.firm, firm);
        grown.firm = firm;
        *fields = self.met.shapes.shared(grown);
        self.met.note_news();
        Some(fields.clone())
    }

    /// Takes over what a stored document says of the fields: its families win.
    pub fn adopt(&self, document: &SensorDocument) {
        let mut fields = self.write_fields();
        let mut grown = Fields::clone(&fields);
        let mut firm = grown.firm;
        for (name, family) in &document.fields {
            match grown.find(name, usize::MAX) {
                Some(index) => {
                    grown.families[index] = *family;
                    firm = firm.max(index + 1);
                }
                None => {
                    grown.names.push(name.clone());
                    grown.families.push(*family);
                    firm = grown.names.len();
                }
            }
        }
        self.met.claimed.settle(self.id, fields.firm, firm);
        grown.firm = firm;
        grown.stored = true;
        self.adopted.store(self.met.version.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        let in_document = |name: &Arc<str>| document.fields.iter().any(|(n, _)| n == name);
        grown.saved = grown.names.iter().take_while(|name| in_document(name)).count();
        *fields = self.met.shapes.shared(grown);
    }

    /// Its document may not be in the store any more.
    pub fn unsave(&self) {
        let mut fields = self.write_fields();
        *fields = self.met.shapes.shared(Fields { stored: false, saved: 0, ..Fields::clone(&fields) });
        self.written_rev.store(0, Ordering::Relaxed);
        self.adopted.store(0, Ordering::Relaxed);
    }

    /// Notes whether readings of it are on their way to the store.
    pub fn note_waiting(&self, database: &Database, waiting: bool) {
        // Looked at first, since it is written to by many and changes seldom.
        if self.waiting.load(Ordering::Relaxed) == waiting || self.waiting.swap(waiting, Ordering::Relaxed) == waiting {
            return;
        }
        if !waiting {
            database.waiting.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        database.waiting.fetch_add(1, Ordering::Relaxed);
        // The store lists the others.
        if self.adopted.load(Ordering::Relaxed) == 0 {
            self.met.version.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether it was deleted since it was found in the catalog.
    pub fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Acquire)
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
            next_id: AtomicU32::new(0),
            next_database: AtomicU64::new(0),
            met: Arc::default(),
            deletions: AtomicU64::new(0),
            deleting: Mutex::default(),
            sensors_max: options.sensors,
            shards: options.shards,
            quota: options.database_quota,
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
            let is_stored = |name: &str| stored.iter().any(|stored| *stored == *name);
            let may_be_there = |known: &Database| known.is_waiting() || !known.doubted.load(Ordering::Relaxed);
            let unstored = databases.values().filter(|known| may_be_there(known) && !is_stored(&known.name));
            if stored.len() + unstored.count() >= max {
                return None;
            }
        }
        Some(databases.entry(name.into()).or_insert_with(|| self.new_database(name)).clone())
    }

    /// A database met in the log, whatever the limit says: it was let in before.
    pub fn enlist_database(&self, name: &str) -> Arc<Database> {
        let mut databases = self.databases.write().unwrap_or_else(PoisonError::into_inner);
        databases.entry(name.into()).or_insert_with(|| self.new_database(name)).clone()
    }

    fn new_database(&self, name: &str) -> Arc<Database> {
        Database::new((name, self.next_database.fetch_add(1, Ordering::Relaxed)), self.quota)
    }

    /// The databases met so far.
    pub fn databases(&self) -> Vec<Arc<Database>> {
        self.databases.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
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

    /// The sensors with these keys that were not known to have a document in the store when the catalog had this
    /// version.
    pub fn unstored(&self, database: &Database, since: u64, wanted: impl Fn(&str) -> bool) -> Vec<Arc<KnownSensor>> {
        let sensors = database.sensors.read().unwrap_or_else(PoisonError::into_inner);
        // Under its other spellings a sensor is passed over.
        let is_key = |spelling: &str, known: &KnownSensor| *spelling == *known.sensor.key && wanted(spelling);
        let is_new = |known: &KnownSensor| !known.fields().stored || known.adopted.load(Ordering::Relaxed) > since;
        let unstored = sensors.iter().filter(|(spelling, known)| is_key(spelling, known) && is_new(known));
        unstored.map(|(_, known)| known.clone()).collect()
    }

    /// Remembers another spelling of a sensor's key, if there is room for it.
    pub fn add_spelling(&self, database: &Database, spelling: &str, sensor: &Arc<KnownSensor>) {
        let below = |n: u8| (n < SPELLINGS_MAX).then_some(n + 1);
        if sensor.spellings.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below).is_ok() {
            let mut sensors = database.sensors.write().unwrap_or_else(PoisonError::into_inner);
            if !sensor.is_superseded() {
                sensors.add_spelling(spelling, sensor);
            }
        }
    }

    /// Makes sensors known, with what was found of them: at most so many in all, and of new ones what quotas allow.
    pub fn learn(&self, database: &Database, unknown: Vec<Wanted>, found: Found, max: usize) {
        let Found { documents, deletions, counts } = found;
        let mut stored: HashMap<Box<str>, SensorDocument> =
            documents.into_iter().map(|document| (document.sensor.key.clone(), document)).collect();
        let mut sensors = database.sensors.write().unwrap_or_else(PoisonError::into_inner);
        // Before it is asked whether something is being deleted: whoever begins to delete asks in the other order.
        database.learnt.fetch_add(1, Ordering::SeqCst);
        if database.deletions() != deletions || self.is_deleting(&database.name) {
            stored.clear();
        }
        let now = Instant::now();
        for Wanted { sensor, payer } in unknown {
            match sensors.get_even_deleted(&sensor.key).cloned() {
                Some(known) if !known.is_superseded() => continue,
                Some(deleted) => self.take_out(database, &mut sensors, &deleted),
                None => {}
            }
            let document = stored.remove(&sensor.key);
            let is_new = document.is_none();
            if is_new && !database.admits(&sensor, &payer, counts, now) {
                continue;
            }
            let below = |n: usize| (n < max).then_some(n + 1);
            // What is met in a database that was dropped meanwhile is met once more in the one that is there now.
            let counts_here = !database.is_superseded();
            if counts_here && self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below).is_err() {
                if is_new && counts {
                    database.give_back_new(&payer);
                }
                return;
            }
            let below = |n: u32| n.checked_add(1);
            let Ok(id) = self.next_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below) else { return };
            let key = sensor.key.clone();
            sensors.add(key, |place| {
                let known = KnownSensor::new(sensor, (id, place, id as usize % self.shards), self.met.clone());
                if let Some(document) = document {
                    known.adopt(&document);
                }
                known
            });
            database.known.fetch_add(usize::from(counts_here), Ordering::Relaxed);
            self.met.version.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes a sensor out that was deleted, unless somebody has done so.
    fn take_out(&self, database: &Database, sensors: &mut Spellings, deleted: &KnownSensor) {
        // Those of a database that was dropped are counted off together.
        if sensors.remove(deleted) && !database.is_superseded() {
            self.count.fetch_sub(1, Ordering::Relaxed);
            database.known.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Lists of sensors and fields made before may lack something that the log holds.
    pub fn note_news(&self) {
        self.met.note_news();
    }

    /// Which sensors and fields are met, and what was deleted.
    pub fn version(&self) -> MetVersion {
        MetVersion { met: self.met.version.load(Ordering::Relaxed), deletions: self.deletions.load(Ordering::Relaxed) }
    }

    /// The sensors that have readings on their way to the store, and those whose documents were found to be there
    /// since the catalog had this version; with their fields.
    pub fn met(&self, database: &Database, since: u64) -> Vec<Met> {
        let sensors = database.sensors.read().unwrap_or_else(PoisonError::into_inner);
        let is_met = |known: &KnownSensor| {
            known.waiting.load(Ordering::Relaxed) || known.adopted.load(Ordering::Relaxed) > since
        };
        let keys = sensors.iter().filter(|(spelling, known)| **spelling == *known.sensor.key && is_met(known));
        keys.map(|(_, known)| known.met()).collect()
    }

    /// A sensor that has readings on their way to the store, or whose document is known to be there.
    pub fn met_one(&self, database: &Database, key: &str) -> Option<Met> {
        let known = self.sensor(database, key)?;
        let is_waiting = known.waiting.load(Ordering::Relaxed);
        Some(known.met()).filter(|met| is_waiting || met.is_stored)
    }
}

impl Database {
    fn new((name, number): (&str, u64), quota: Quota) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            number,
            sensors: RwLock::default(),
            waiting: AtomicUsize::new(0),
            deletions: AtomicU64::new(0),
            learnt: AtomicU64::new(0),
            doubted: AtomicBool::new(false),
            superseded: AtomicBool::new(false),
            unmet: Unmet::default(),
            known: AtomicUsize::new(0),
            usage: Usage::new("database", name, quota),
        })
    }

    /// How many sensors of it are known.
    pub fn known(&self) -> usize {
        self.known.load(Ordering::Relaxed)
    }

    /// Whether its quota and its sender's have room for one more sensor that has no document, which then counts; against
    /// quotas of new ones only where it is known to be new.
    fn admits(&self, sensor: &Sensor, payer: &Allowance, is_new: bool, now: Instant) -> bool {
        if is_new && !self.takes_new(payer, now) {
            return false;
        }
        // Last, since it counts for good.
        let admitted = payer.usage().is_none_or(|usage| usage.admit_sensor(&sensor.key).is_ok());
        if is_new && !admitted {
            self.give_back_new(payer);
        }
        admitted
    }

    /// Takes a new sensor from the quotas of both, or from none.
    fn takes_new(&self, payer: &Allowance, now: Instant) -> bool {
        if self.usage.too_many(self.known()).is_some() || self.usage.take_new_sensor(now).is_err() {
            return false;
        }
        let paid = payer.usage().is_none_or(|usage| usage.take_new_sensor(now).is_ok());
        if !paid {
            self.usage.give_back();
        }
        paid
    }

    fn give_back_new(&self, payer: &Allowance) {
        self.usage.give_back();
        payer.usage().into_iter().for_each(Usage::give_back);
    }

    /// Its sensors by key, and by other spellings. Nothing else may be asked of the catalog about them meanwhile.
    pub fn sensors(&self) -> SensorsRead<'_> {
        self.sensors.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether readings of it are on their way to the store.
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// How many deletions it has seen.
    pub fn deletions(&self) -> u64 {
        self.deletions.load(Ordering::Relaxed)
    }

    /// Whether it was dropped since it was found in the catalog.
    pub fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Acquire)
    }
}
