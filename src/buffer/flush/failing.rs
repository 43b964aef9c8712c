//! Databases that the store fails on although it accepts others. Shards report them, health and status show them, and
//! admission checks whether there is room for more of their readings.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::bucket::StorageError;
use crate::wal::Sequence;

/// The waiting readings of a database in one shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitingReadings {
    /// Their memory in bytes.
    pub bytes: usize,
    /// Their first WAL record.
    pub first: Option<Sequence>,
}

/// A database that the store fails on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingDatabase {
    pub name: Box<str>,
    /// The store's last error.
    pub cause: String,
    /// The class of that error, as in the metrics.
    pub class: &'static str,
    /// The time of the first failure, in nanoseconds since the epoch.
    pub since: i64,
    /// The memory of its waiting readings, in bytes.
    pub unflushed_bytes: usize,
    /// The first WAL record of its waiting readings.
    pub first: Option<Sequence>,
    /// The part of the WAL that cannot be truncated because of them, in bytes.
    pub wal_bytes: u64,
}

impl FailingDatabase {
    /// Returns true if it takes less than `percent` of the WAL and of the memory for unflushed readings.
    pub fn has_room(&self, wal_bytes: u64, memtable_bytes: usize, percent: usize) -> bool {
        let in_memory = self.unflushed_bytes < memtable_bytes / 100 * percent;
        let in_wal = self.wal_bytes < wal_bytes / 100 * percent as u64;
        in_memory && in_wal
    }
}

/// All failing databases.
#[derive(Debug, Default)]
pub struct FailingDatabases {
    databases: Mutex<BTreeMap<Box<str>, FailingEntry>>,
    /// The number of failing databases. The usual case, none, needs no lock.
    count: AtomicUsize,
}

#[derive(Debug)]
struct FailingEntry {
    error: StorageError,
    since: i64,
    /// Waiting readings by shard number.
    waits: BTreeMap<usize, WaitingReadings>,
}

impl FailingDatabases {
    /// Notes that a shard could not store readings of a database. Returns true if the database or its error class is
    /// new.
    pub fn note(&self, shard: usize, database: &str, error: &StorageError, waits: WaitingReadings, now: i64) -> bool {
        let mut databases = self.databases.lock();
        let is_new = databases.get(database).is_none_or(|entry| entry.error.class() != error.class());
        let new = || FailingEntry { error: error.clone(), since: now, waits: BTreeMap::new() };
        let entry = databases.entry(database.into()).or_insert_with(new);
        entry.error = error.clone();
        entry.waits.insert(shard, waits);
        self.count.store(databases.len(), Ordering::Relaxed);
        is_new
    }

    /// Updates the waiting readings of a shard, if the shard has reported the database.
    pub fn note_waits(&self, shard: usize, database: &str, waits: WaitingReadings) {
        if let Some(known) = self.databases.lock().get_mut(database).and_then(|entry| entry.waits.get_mut(&shard)) {
            *known = waits;
        }
    }

    /// Notes that the store accepts a shard's readings of a database. Returns true if the database no longer fails in
    /// any shard.
    pub fn clear(&self, shard: usize, database: &str) -> bool {
        let mut databases = self.databases.lock();
        let Some(entry) = databases.get_mut(database) else { return false };
        entry.waits.remove(&shard);
        let is_over = entry.waits.is_empty();
        if is_over {
            databases.remove(database);
        }
        self.count.store(databases.len(), Ordering::Relaxed);
        is_over
    }

    /// Returns a failing database; `None` if it does not fail or the whole store is unavailable.
    pub fn get(&self, database: &str) -> Option<FailingDatabase> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let databases = self.databases.lock();
        let (name, entry) = databases.get_key_value(database)?;
        Some(entry.describe(name)).filter(|_| !entry.error.is_store_unreachable())
    }

    /// Returns all failing databases, without those that wait for the whole store.
    pub fn list(&self) -> Vec<FailingDatabase> {
        let databases = self.databases.lock();
        let own = databases.iter().filter(|(_, entry)| !entry.error.is_store_unreachable());
        own.map(|(name, entry)| entry.describe(name)).collect()
    }
}

impl FailingEntry {
    fn describe(&self, name: &str) -> FailingDatabase {
        FailingDatabase {
            name: name.into(),
            cause: self.error.to_string(),
            class: self.error.class(),
            since: self.since,
            unflushed_bytes: self.waits.values().map(|waits| waits.bytes).sum(),
            first: self.waits.values().filter_map(|waits| waits.first).min(),
            wal_bytes: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied() -> StorageError {
        StorageError::Unusable {
            cause: crate::bucket::Unusable::NotAuthorised,
            detail: "not authorized on one".to_owned(),
        }
    }

    #[test]
    fn a_database_fails_until_every_shard_has_stored_it() {
        let failing = FailingDatabases::default();
        assert!(failing.get("one").is_none());
        let waits = |bytes, first| WaitingReadings { bytes, first: Some(first) };
        assert!(failing.note(0, "one", &denied(), waits(10, 7), 1));
        assert!(!failing.note(1, "one", &denied(), waits(20, 5), 2), "it is reported once");
        let one = failing.get("one").expect("it fails");
        assert_eq!((one.unflushed_bytes, one.first, one.since, one.class), (30, Some(5), 1, "denied"));
        assert!(one.cause.contains("store: not authorised"), "{}", one.cause);
        assert!(failing.get("two").is_none());
        failing.note_waits(0, "one", waits(100, 7));
        failing.note_waits(2, "one", waits(1000, 1));
        assert_eq!(
            failing.get("one").expect("it fails").unflushed_bytes,
            120,
            "a shard where it did not fail is left out"
        );
        assert!(!failing.clear(1, "one"));
        assert!(failing.clear(0, "one") && failing.list().is_empty() && !failing.clear(0, "one"));
    }

    #[test]
    fn a_store_that_is_away_is_no_databases_own_failure() {
        let failing = FailingDatabases::default();
        failing.note(0, "one", &StorageError::Unavailable("no primary".to_owned()), WaitingReadings::default(), 1);
        assert!(failing.list().is_empty() && failing.get("one").is_none());
        assert!(failing.note(0, "one", &denied(), WaitingReadings::default(), 2), "another class is news");
        assert_eq!(failing.list().len(), 1);
    }

    #[test]
    fn a_share_is_of_memory_and_of_the_log() {
        let has_room = |failing: FailingDatabase| failing.has_room(1000, 400, 25);
        let failing = FailingDatabases::default();
        failing.note(0, "one", &denied(), WaitingReadings { bytes: 99, first: Some(1) }, 1);
        let one = failing.get("one").expect("it fails");
        assert!(has_room(FailingDatabase { wal_bytes: 249, ..one.clone() }));
        assert!(!has_room(FailingDatabase { wal_bytes: 250, ..one.clone() }));
        assert!(!has_room(FailingDatabase { unflushed_bytes: 100, ..one }));
    }
}
