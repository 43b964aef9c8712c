//! Which hours of which sensors this process has changed in the store, and when: what is remembered of
//! an hour counts only as long as it has not changed since.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use rapidhash::fast::RandomState;

use crate::faults::{self, Bug};
use crate::reading::Hour;

/// How many hours are told apart. Hours that share a slot change together, which costs a read and
/// nothing else: a thousand hours that change make one in 260 of all others be read again.
const SLOTS: usize = 1 << 18;

/// The order of all changes, and the latest change of each hour.
///
/// Whoever changes an hour in the store notes it before its readings stop counting as unflushed. Whoever
/// remembers an hour takes [`Changes::now`] before reading it: a change that the read did not see is
/// noted later than that. Whoever recalls one asks what is unflushed first: an hour that has nothing
/// there, and no change since, is in the store as it is remembered.
#[derive(Debug)]
pub struct Changes {
    count: AtomicU64,
    /// Per slot, the number of its latest change.
    latest: Box<[AtomicU64]>,
    /// The number of the latest change of everything.
    everything: AtomicU64,
    hasher: RandomState,
}

/// A sensor of a database, as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(u64);

impl Place {
    /// As evenly spread as a hash is, in this process.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            count: AtomicU64::new(0),
            latest: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            everything: AtomicU64::new(0),
            hasher: RandomState::new(),
        }
    }
}

impl Changes {
    /// The place of a sensor.
    #[must_use]
    pub fn place(&self, database: &str, sensor: &str) -> Place {
        Place(self.hasher.hash_one((database, sensor)))
    }

    /// How many changes there were.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// An hour of a sensor has changed in the store, or may have.
    pub fn note(&self, place: Place, hour: Hour) {
        if faults::has(Bug::CacheForgetsToInvalidate) {
            return;
        }
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        self.latest[slot(place, hour)].fetch_max(number, Ordering::SeqCst);
    }

    /// Anything may have changed.
    pub fn note_everything(&self) {
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        self.everything.fetch_max(number, Ordering::SeqCst);
    }

    /// Whether an hour is as it was at some [`Changes::now`].
    #[must_use]
    pub fn is_unchanged(&self, place: Place, hour: Hour, since: u64) -> bool {
        self.everything.load(Ordering::SeqCst) <= since
            && self.latest[slot(place, hour)].load(Ordering::SeqCst) <= since
    }
}

/// Hours of one sensor lie far apart.
fn slot(place: Place, hour: Hour) -> usize {
    let mixed = place.0 ^ (hour.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 7) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_unchanged_until_a_change_of_it_is_noted() {
        let changes = Changes::default();
        let (one, other) = (changes.place("d", "one"), changes.place("d", "other"));
        assert_ne!(one, changes.place("e", "one"));
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
        let changes = Changes::default();
        let mut used = std::collections::HashSet::new();
        for sensor in 0..1000 {
            let place = changes.place("d", &format!("s{sensor}"));
            used.extend((490_000..490_024).map(|hour| slot(place, Hour(hour))));
        }
        // Of 24,000 thrown at random, about 22,900 slots are hit.
        assert!(used.len() > 22_500, "{}", used.len());
    }
}
