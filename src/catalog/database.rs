//! A known database: its sensors, and the sensor lookups that requests wait for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use super::charge::Account;
use super::meta::NewMeta;
use super::sensor::KnownSensor;
use super::spellings::Spellings;
use crate::access::{Allowance, Quota, Usage};
use crate::bucket::Renames;
use crate::reading::Sensor;

/// One database and its sensors.
#[derive(Debug)]
pub struct Database {
    pub name: Box<str>,
    /// Unique within this process. A database that is dropped and created again gets a new number.
    pub number: u64,
    pub(crate) sensors: RwLock<Spellings>,
    /// The number of sensors with unflushed readings.
    pub(crate) unflushed_sensors: AtomicUsize,
    /// Incremented when sensor documents that were read before may be outdated.
    pub(crate) deletions: AtomicU64,
    /// Incremented before sensors are added, under the write lock of `sensors`. If two reads return the same value, no
    /// sensor was added in between.
    pub(crate) additions: AtomicU64,
    /// The number of times that another instance may have deleted documents of any sensor, or dropped the database.
    pub(crate) doubts: AtomicU64,
    /// Set when the database is dropped. Holders of this `Arc` must then get the current database from the catalog.
    pub(crate) superseded: AtomicBool,
    /// Sensors that requests wait for.
    pub pending_lookups: PendingLookups,
    /// Metadata that earlier lists of sensors may lack.
    pub meta: NewMeta,
    /// The number of known sensors.
    pub(crate) sensor_count: AtomicUsize,
    /// The use of the catalog by the database and its policies.
    pub(crate) account: Arc<Account>,
    /// True if the store did not have the database when it was added.
    pub(crate) is_new: bool,
    pub usage: Usage,
    /// The original, if this is a copy for a dry run.
    pub(crate) original: Option<Arc<Self>>,
}

/// Sensors that are listed under one lock.
const SENSORS_PER_LOCK: usize = 1000;

/// A read guard on a database's sensors by spelling.
pub type SensorsRead<'a> = RwLockReadGuard<'a, Spellings>;

impl Database {
    pub(crate) fn new(name: &str, number: u64, is_new: bool, quota: Quota, account: Arc<Account>) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            number,
            sensors: RwLock::default(),
            unflushed_sensors: AtomicUsize::new(0),
            deletions: AtomicU64::new(0),
            additions: AtomicU64::new(0),
            doubts: AtomicU64::new(0),
            superseded: AtomicBool::new(false),
            pending_lookups: PendingLookups::default(),
            meta: NewMeta::default(),
            sensor_count: AtomicUsize::new(0),
            account,
            is_new,
            usage: Usage::new("database", name, quota),
            original: None,
        })
    }

    /// Returns the number of times that another instance may have deleted documents of any sensor.
    pub fn doubts(&self) -> u64 {
        self.doubts.load(Ordering::Relaxed)
    }

    /// Notes that this many changes of a sensor's metadata are stored.
    pub fn note_meta_stored(&self, known: &KnownSensor, changes: usize) {
        self.meta.note_stored(&known.sensor.key, changes);
        let remaining = |unstored: u32| Some(unstored.saturating_sub(u32::try_from(changes).unwrap_or(u32::MAX)));
        let _ = known.unstored_meta.fetch_update(Ordering::AcqRel, Ordering::Acquire, remaining);
    }

    /// Counts a sensor that was added.
    pub(crate) fn count_sensor(&self) {
        self.sensor_count.fetch_add(1, Ordering::Relaxed);
        self.account.sensors.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts sensors that were removed.
    pub(crate) fn subtract_sensors(&self, count: usize) {
        self.sensor_count.fetch_sub(count, Ordering::Relaxed);
        self.account.sensors.fetch_sub(count, Ordering::Relaxed);
    }

    /// Returns the number of known sensors.
    pub fn sensor_count(&self) -> usize {
        self.sensor_count.load(Ordering::Relaxed)
    }

    /// Charges one more sensor without a document to the quotas of the database and the sender. Returns false if one of
    /// them is used up. The quotas of new sensors are charged only if the sensor is known to be new (`is_new`).
    pub(crate) fn try_charge_sensor(&self, sensor: &Sensor, allowance: &Allowance, is_new: bool, now: Instant) -> bool {
        if is_new && !self.try_charge_new_sensor(allowance, now) {
            return false;
        }
        // `admit_sensor` comes last, because it cannot be undone.
        let is_admitted = allowance.as_ref().is_none_or(|usage| usage.admit_sensor(&sensor.key).is_ok());
        if is_new && !is_admitted {
            self.refund_new_sensor(allowance);
        }
        is_admitted
    }

    /// Charges one new sensor to both quotas. Returns false and charges nothing if one of them is used up.
    pub(crate) fn try_charge_new_sensor(&self, allowance: &Allowance, now: Instant) -> bool {
        if self.usage.too_many(self.sensor_count()).is_some() || self.usage.take_new_sensor(now).is_err() {
            return false;
        }
        let is_charged = allowance.as_ref().is_none_or(|usage| usage.take_new_sensor(now).is_ok());
        if !is_charged {
            self.usage.refund_new_sensor();
        }
        is_charged
    }

    /// Reverses [`Database::try_charge_new_sensor`].
    pub(crate) fn refund_new_sensor(&self, allowance: &Allowance) {
        self.usage.refund_new_sensor();
        allowance.iter().for_each(|usage| usage.refund_new_sensor());
    }

    /// Locks the map of sensors for reading. While the guard is held, do not call catalog functions that lock the map.
    pub fn sensors(&self) -> SensorsRead<'_> {
        self.sensors.read()
    }

    /// Lists what `pick` makes of the sensors, each once. A sensor that is deleted and added again meanwhile may be
    /// listed twice.
    pub fn list<T>(&self, pick: impl Fn(&Arc<KnownSensor>) -> Option<T>) -> Vec<T> {
        let mut picked = Vec::new();
        let mut start = 0;
        loop {
            // Writes wait for this lock, and small bodies for them.
            let sensors = self.sensors();
            let end = start + SENSORS_PER_LOCK;
            picked.extend(sensors.range(start..end).filter(|known| !known.is_superseded()).filter_map(&pick));
            if end >= sensors.slots() {
                return picked;
            }
            start = end;
        }
    }

    /// Adopts the database's renames. Spellings that depend on other renames are removed.
    pub fn follow_renames(&self, renames: Option<&Renames>) {
        if self.sensors().renames() != renames {
            self.sensors.write().set_renames(renames.cloned());
        }
    }

    /// Returns the database itself, or the original of a copy. A copy lacks most sensors, so the fields of a
    /// measurement must be taken from the original.
    pub fn original(&self) -> &Self {
        self.original.as_deref().unwrap_or(self)
    }

    /// Notes whether a sensor has unflushed readings.
    pub fn note_unflushed(&self, known: &KnownSensor, has_unflushed: bool) {
        let flag = &known.has_unflushed;
        // Load before swap: many threads call this, and the value rarely changes.
        if flag.load(Ordering::Relaxed) == has_unflushed || flag.swap(has_unflushed, Ordering::Relaxed) == has_unflushed
        {
            return;
        }
        if !has_unflushed {
            self.unflushed_sensors.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.unflushed_sensors.fetch_add(1, Ordering::Relaxed);
        known.note_unflushed();
    }

    /// Returns true if any sensor has unflushed readings.
    pub fn has_unflushed(&self) -> bool {
        self.unflushed_sensors.load(Ordering::Relaxed) > 0
    }

    /// Returns the number of deletions in this database that this process knows of.
    pub fn deletions(&self) -> u64 {
        self.deletions.load(Ordering::Relaxed)
    }

    /// Returns true if the database was dropped after the caller got it from the catalog.
    pub fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Acquire)
    }
}

/// A sensor to look up.
#[derive(Debug, Clone)]
pub struct WantedSensor {
    pub sensor: Sensor,
    /// The quota that is charged if the sensor is new.
    pub allowance: Allowance,
}

/// Sensors that requests wait for. A request that stops waiting removes its sensors, so their memory is bounded by that
/// of the requests in flight.
#[derive(Debug, Default)]
pub struct PendingLookups {
    /// The sensors of each waiting request, by its number.
    waiting: Mutex<HashMap<u64, Vec<WantedSensor>>>,
    next: AtomicU64,
    turn: tokio::sync::Mutex<()>,
}

impl PendingLookups {
    /// Adds sensors to the next lookup. A drop of the returned waiter removes them.
    pub(crate) fn wait_for(&self, sensors: Vec<WantedSensor>) -> LookupWaiter<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.waiting.lock().insert(number, sensors);
        LookupWaiter { pending_lookups: self, number }
    }

    /// Waits until no other lookup runs in this database.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Takes the sensors of all waiting requests.
    pub(crate) fn take(&self) -> Vec<WantedSensor> {
        std::mem::take(&mut *self.waiting.lock()).into_values().flatten().collect()
    }
}

/// A request that waits for a sensor lookup.
pub struct LookupWaiter<'a> {
    pending_lookups: &'a PendingLookups,
    number: u64,
}

impl Drop for LookupWaiter<'_> {
    fn drop(&mut self) {
        self.pending_lookups.waiting.lock().remove(&self.number);
    }
}
