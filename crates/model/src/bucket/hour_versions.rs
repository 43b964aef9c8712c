//! Hour versions: for each hour of a sensor, the last change that this process made in the store. A cached query result
//! of an hour is valid only until the hour changes.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use rapidhash::fast::RandomState;

use crate::reading::Hour;

/// The number of slots that hours are hashed to. Hours that share a slot change together, which only costs a read. A
/// thousand changed hours invalidate one in 260 of all other hours.
const SLOTS: usize = 1 << 18;

/// A counter of all changes, with the number of the latest change of each hour.
///
/// The protocol: a flush notes a change of an hour before the hour's readings leave the memtable. A query takes
/// [`HourVersions::now`] before it reads an hour that it caches, so any change that the read missed gets a greater
/// number. Before a query uses a cached hour, it reads the memtable: an hour without unflushed readings and without a
/// later change is in the store as cached.
#[derive(Debug)]
pub struct HourVersions {
    count: AtomicU64,
    /// The number of the latest change, per slot.
    latest: Box<[AtomicU64]>,
    /// The number of the latest change that affects all hours.
    everything: AtomicU64,
    hasher: RandomState,
}

/// A hash of a database and a sensor's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SensorHash(u64);

impl SensorHash {
    /// The hash; valid within this process only.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

impl Default for HourVersions {
    fn default() -> Self {
        Self {
            count: AtomicU64::new(0),
            latest: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            everything: AtomicU64::new(0),
            hasher: RandomState::new(),
        }
    }
}

impl HourVersions {
    /// Hashes a database and a sensor's key.
    #[must_use]
    pub fn hash(&self, database: &str, sensor: &str) -> SensorHash {
        SensorHash(self.hasher.hash_one((database, sensor)))
    }

    /// The number of changes so far.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Notes that an hour of a sensor has changed in the store, or may have.
    pub fn note(&self, sensor: SensorHash, hour: Hour) {
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        self.latest[slot(sensor, hour)].fetch_max(number, Ordering::SeqCst);
    }

    /// Notes that any hour may have changed.
    pub fn note_everything(&self) {
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        self.everything.fetch_max(number, Ordering::SeqCst);
    }

    /// Returns true if an hour has not changed since [`HourVersions::now`] returned `version`.
    #[must_use]
    pub fn is_unchanged(&self, sensor: SensorHash, hour: Hour, version: u64) -> bool {
        self.everything.load(Ordering::SeqCst) <= version
            && self.latest[slot(sensor, hour)].load(Ordering::SeqCst) <= version
    }
}

/// The slot of an hour; spreads the hours of one sensor.
fn slot(sensor: SensorHash, hour: Hour) -> usize {
    let mixed = sensor.0 ^ (hour.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 7) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_unchanged_until_a_change_is_noted() {
        let changes = HourVersions::default();
        let one = changes.hash("d", "one");
        let other = changes.hash("d", "other");
        assert_ne!(one, changes.hash("e", "one"));
        let before = changes.now();
        changes.note(one, Hour(5));
        let after = changes.now();
        assert!(!changes.is_unchanged(one, Hour(5), before));
        assert!(changes.is_unchanged(one, Hour(5), after));
        assert!(changes.is_unchanged(one, Hour(6), before) || slot(one, Hour(6)) == slot(one, Hour(5)));
        assert!(changes.is_unchanged(other, Hour(5), before) || slot(other, Hour(5)) == slot(one, Hour(5)));
        changes.note_everything();
        assert!(!changes.is_unchanged(one, Hour(5), after) && !changes.is_unchanged(other, Hour(-9), after));
        assert!(changes.is_unchanged(one, Hour(5), changes.now()));
    }

    #[test]
    fn hours_of_many_sensors_are_spread_over_the_slots() {
        let changes = HourVersions::default();
        let mut used = std::collections::HashSet::new();
        for sensor in 0..1000 {
            let sensor = changes.hash("d", &format!("s{sensor}"));
            used.extend((490_000..490_024).map(|hour| slot(sensor, Hour(hour))));
        }
        // 24,000 random hours are expected to hit about 22,900 slots.
        assert!(used.len() > 22_500, "{}", used.len());
    }
}
