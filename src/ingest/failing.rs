//! Databases that the store fails on although it takes those of others: which, why, since when, and what waits of each.
//! Shards note it, health and status tell it, and admission asks whether there is room for more. Knows no store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::bucket::StorageError;
use crate::log::Sequence;

/// What a shard has of a database that waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    /// Bytes of memory of its readings.
    pub bytes: usize,
    /// The first record of them.
    pub first: Option<Sequence>,
}

/// A database that the store fails on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingDatabase {
    /// Its name.
    pub name: Box<str>,
    /// What the store said last.
    pub cause: String,
    /// The class of that, as in the metrics.
    pub class: &'static str,
    /// Since when, in nanoseconds.
    pub since: i64,
    /// Bytes of memory of its readings that wait.
    pub unflushed_bytes: usize,
    /// The first record of them in the log.
    pub first: Option<Sequence>,
    /// Bytes of the log that stay because of them.
    pub wal_bytes: u64,
}

/// How much what waits of one database may take.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// All of the log.
    pub log_bytes: u64,
    /// All memory for hot buckets and unflushed readings.
    pub hot_bytes: usize,
    /// Of each, in percent.
    pub percent: usize,
}

impl Share {
    /// Whether more of the database may be taken in.
    pub fn has_room(&self, failing: &FailingDatabase) -> bool {
        let in_memory = failing.unflushed_bytes < self.hot_bytes / 100 * self.percent;
        let in_log = failing.wal_bytes < self.log_bytes / 100 * self.percent as u64;
        in_memory && in_log
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Failing {
    databases: Mutex<BTreeMap<Box<str>, Entry>>,
    /// How many, so that those who ask about others need no lock.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Entry {
    error: StorageError,
    since: i64,
    /// By the shard's number.
    waits: BTreeMap<usize, Waits>,
}

impl Failing {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Entry>> {
        self.databases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a shard could not store readings of a database, and what it has of them now; whether that is news.
    pub fn note(&self, shard: usize, database: &str, error: &StorageError, waits: Waits, now: i64) -> bool {
        let mut databases = self.lock();
        let is_new = databases.get(database).is_none_or(|entry| entry.error.class() != error.class());
        let new = || Entry { error: error.clone(), since: now, waits: BTreeMap::new() };
        let entry = databases.entry(database.into()).or_insert_with(new);
        entry.error = error.clone();
        entry.waits.insert(shard, waits);
        self.count.store(databases.len(), Ordering::Relaxed);
        is_new
    }

    /// Notes what a shard has of a database on which the store failed there.
    pub fn note_waits(&self, shard: usize, database: &str, waits: Waits) {
        if let Some(there) = self.lock().get_mut(database).and_then(|entry| entry.waits.get_mut(&shard)) {
            *there = waits;
        }
    }

    /// The store takes what a shard has of a database; whether it does so of all shards now, and did not before.
    pub fn clear(&self, shard: usize, database: &str) -> bool {
        let mut databases = self.lock();
        let Some(entry) = databases.get_mut(database) else { return false };
        entry.waits.remove(&shard);
        let is_over = entry.waits.is_empty();
        if is_over {
            databases.remove(database);
        }
        self.count.store(databases.len(), Ordering::Relaxed);
        is_over
    }

    /// What is known of a database on which the store fails, and on it alone.
    pub fn get(&self, database: &str) -> Option<FailingDatabase> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let databases = self.lock();
        let (name, entry) = databases.get_key_value(database)?;
        Some(entry.describe(name)).filter(|_| !entry.error.is_of_store())
    }

    /// All databases on which the store fails; none of those that only wait for the store to be back.
    pub fn list(&self) -> Vec<FailingDatabase> {
        let databases = self.lock();
        let own = databases.iter().filter(|(_, entry)| !entry.error.is_of_store());
        own.map(|(name, entry)| entry.describe(name)).collect()
    }
}

impl Entry {
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
        StorageError::Denied { detail: "not authorized on one".to_owned() }
    }

    #[test]
    fn a_database_fails_until_every_shard_has_stored_it() {
        let failing = Failing::default();
        assert!(failing.get("one").is_none());
        let waits = |bytes, first| Waits { bytes, first: Some(first) };
        assert!(failing.note(0, "one", &denied(), waits(10, 7), 1));
        assert!(!failing.note(1, "one", &denied(), waits(20, 5), 2), "it is told once");
        let one = failing.get("one").expect("it fails");
        assert_eq!((one.unflushed_bytes, one.first, one.since, one.class), (30, Some(5), 1, "denied"));
        assert!(one.cause.contains("not authorized on one"), "{}", one.cause);
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
        let failing = Failing::default();
        failing.note(0, "one", &StorageError::Unavailable { detail: "no primary".to_owned() }, Waits::default(), 1);
        assert!(failing.list().is_empty() && failing.get("one").is_none());
        assert!(failing.note(0, "one", &denied(), Waits::default(), 2), "another class is news");
        assert_eq!(failing.list().len(), 1);
    }

    #[test]
    fn a_share_is_of_memory_and_of_the_log() {
        let share = Share { log_bytes: 1000, hot_bytes: 400, percent: 25 };
        let failing = Failing::default();
        failing.note(0, "one", &denied(), Waits { bytes: 99, first: Some(1) }, 1);
        let one = failing.get("one").expect("it fails");
        assert!(share.has_room(&FailingDatabase { wal_bytes: 249, ..one.clone() }));
        assert!(!share.has_room(&FailingDatabase { wal_bytes: 250, ..one.clone() }));
        assert!(!share.has_room(&FailingDatabase { unflushed_bytes: 100, ..one }));
    }
}
