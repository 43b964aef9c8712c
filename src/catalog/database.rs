//! A database as this process knows it: its sensors, and the sensor lookups that requests wait for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

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
    /// Unique within this process: a database that is dropped and created again gets a new number.
    pub number: u64,
    pub(crate) sensors: RwLock<Spellings>,
    /// How many sensors have unflushed readings.
    pub(crate) waiting: AtomicUsize,
    /// Incremented when sensor documents that were read before may be outdated.
    pub(crate) deletions: AtomicU64,
    /// Incremented before any sensor becomes known, under the write lock of `sensors`. Two equal values prove that
    /// no sensor became known in between.
    pub(crate) additions: AtomicU64,
    /// How often another instance may have deleted documents of any of its sensors, or dropped it.
    pub(crate) doubts: AtomicU64,
    /// The database was dropped: holders of this `Arc` must get the current one from the catalog.
    pub(crate) superseded: AtomicBool,
    /// Sensors that requests wait for.
    pub pending_lookups: PendingLookups,
    /// Metadata that lists of its sensors may lack.
    pub meta: NewMeta,
    /// How many sensors are known.
    pub(crate) known: AtomicUsize,
    /// Whether the store did not have it when it became known.
    pub(crate) is_new: bool,
    pub usage: Usage,
    /// The database that this one is a copy of, for a dry run.
    pub(crate) original: Option<Arc<Self>>,
}

/// A read guard on a database's sensors by spelling.
pub type SensorsRead<'a> = RwLockReadGuard<'a, Spellings>;

impl Database {
    pub(crate) fn new((name, number): (&str, u64), is_new: bool, quota: Quota) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            number,
            sensors: RwLock::default(),
            waiting: AtomicUsize::new(0),
            deletions: AtomicU64::new(0),
            additions: AtomicU64::new(0),
            doubts: AtomicU64::new(0),
            superseded: AtomicBool::new(false),
            pending_lookups: PendingLookups::default(),
            meta: NewMeta::default(),
            known: AtomicUsize::new(0),
            is_new,
            usage: Usage::new("database", name, quota),
            original: None,
        })
    }

    /// How often another instance may have deleted documents of any of its sensors.
    pub fn doubts(&self) -> u64 {
        self.doubts.load(Ordering::Relaxed)
    }

    /// Notes that changes of a sensor's metadata are stored.
    pub fn note_meta_stored(&self, known: &KnownSensor, changes: usize) {
        self.meta.stored(&known.sensor.key, changes);
        let left = |unstored: u32| Some(unstored.saturating_sub(u32::try_from(changes).unwrap_or(u32::MAX)));
        let _ = known.unstored_meta.fetch_update(Ordering::AcqRel, Ordering::Acquire, left);
    }

    pub fn known(&self) -> usize {
        self.known.load(Ordering::Relaxed)
    }

    /// Charges the database's and the sender's quotas for one more sensor, which has no document; `false` if one of
    /// them is used up. The quotas of new sensors are charged only if the sensor is known to be new (`is_new`).
    pub(crate) fn admits(&self, sensor: &Sensor, allowance: &Allowance, is_new: bool, now: Instant) -> bool {
        if is_new && !self.takes_new(allowance, now) {
            return false;
        }
        // Last, because `admit_sensor` cannot be undone.
        let admitted = allowance.as_ref().is_none_or(|usage| usage.admit_sensor(&sensor.key).is_ok());
        if is_new && !admitted {
            self.give_back_new(allowance);
        }
        admitted
    }

    /// Charges one new sensor to both quotas, or to none of them.
    pub(crate) fn takes_new(&self, allowance: &Allowance, now: Instant) -> bool {
        if self.usage.too_many(self.known()).is_some() || self.usage.take_new_sensor(now).is_err() {
            return false;
        }
        let paid = allowance.as_ref().is_none_or(|usage| usage.take_new_sensor(now).is_ok());
        if !paid {
            self.usage.give_back();
        }
        paid
    }

    pub(crate) fn give_back_new(&self, allowance: &Allowance) {
        self.usage.give_back();
        allowance.iter().for_each(|usage| usage.give_back());
    }

    /// The sensors by key and by other spellings. Call no catalog function that locks them while the guard is held.
    pub fn sensors(&self) -> SensorsRead<'_> {
        self.sensors.read()
    }

    /// Follows the database's renames: the spellings of sensors that others gave are forgotten.
    pub fn follow_renames(&self, renames: Option<&Renames>) {
        if self.sensors().renames() != renames {
            self.sensors.write().set_renames(renames.cloned());
        }
    }

    /// The database whose sensors tell what its measurements look like: itself, unless it is a copy.
    pub fn original(&self) -> &Self {
        self.original.as_deref().unwrap_or(self)
    }

    /// Notes whether a sensor has unflushed readings.
    pub fn note_waiting(&self, known: &KnownSensor, waiting: bool) {
        // Load before swap: many threads call this and the value rarely changes.
        if known.waiting.load(Ordering::Relaxed) == waiting || known.waiting.swap(waiting, Ordering::Relaxed) == waiting
        {
            return;
        }
        if !waiting {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        known.note_waits();
    }

    /// Whether any sensor has unflushed readings.
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// How many deletions this process has noted for it.
    pub fn deletions(&self) -> u64 {
        self.deletions.load(Ordering::Relaxed)
    }

    /// Whether it was dropped after the caller got it from the catalog.
    pub fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Acquire)
    }
}

/// A sensor to look up.
#[derive(Debug, Clone)]
pub struct WantedSensor {
    pub sensor: Sensor,
    /// The quota it counts against if it is new.
    pub allowance: Allowance,
}

/// Sensors that requests wait for. Their memory is bounded by the requests' bytes in flight: a request that stops
/// waiting removes its sensors.
#[derive(Debug, Default)]
pub struct PendingLookups {
    /// By the number of the waiting request.
    waiting: Mutex<HashMap<u64, Vec<WantedSensor>>>,
    next: AtomicU64,
    turn: tokio::sync::Mutex<()>,
}

impl PendingLookups {
    /// Adds sensors to the next lookup; dropping the returned waiter removes them.
    pub(crate) fn wait_for(&self, sensors: Vec<WantedSensor>) -> LookupWaiter<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.waiting.lock().insert(number, sensors);
        LookupWaiter { pending_lookups: self, number }
    }

    /// Waits until no other lookup runs in this database.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

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
