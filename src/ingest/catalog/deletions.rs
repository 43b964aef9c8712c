//! What the catalog makes of deletions.
//!
//! What a deletion is about is looked up before it is logged, by whoever asks for it. At its place in the log that is only
//! marked as gone, which is all that the log's thread does; whoever carries the deletion out takes it out of the catalog.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::spellings::Spellings;
use super::{Catalog, Database, KnownSensor};
use crate::ingest::deletion::{Deletion, Scope};

/// What of the catalog a deletion is about.
#[derive(Debug, Default)]
pub struct Doomed {
    /// The database, as it is known to those who wrote to it before.
    pub database: Option<Arc<Database>>,
    /// The numbers of its sensors that are named; none where all of it goes.
    pub ids: HashSet<u32>,
    sensors: Vec<Arc<KnownSensor>>,
    learnt: u64,
}

impl Catalog {
    /// Looks up what a deletion is about.
    pub fn doomed(&self, deletion: &Deletion) -> Doomed {
        let Some(database) = self.database(&deletion.database) else { return Doomed::default() };
        // Before the sensors: what becomes known meanwhile is noticed.
        let learnt = database.learnt.load(Ordering::SeqCst);
        let sensors: Vec<Arc<KnownSensor>> = match &deletion.scope {
            Scope::Database => Vec::new(),
            Scope::Readings { sensors, .. } => {
                let known = database.sensors();
                sensors.iter().filter_map(|sensor| known.get(&sensor.key).cloned()).collect()
            }
        };
        let ids = sensors.iter().map(|known| known.id).collect();
        Doomed { database: Some(database), ids, sensors, learnt }
    }

    /// Takes notice of a deletion at its place in the log: what is deleted as a whole is to be met anew. No more work than
    /// its record is long, and no lock that others hold while they look at sensors. `false`, and nothing is done, when
    /// something became known since it was looked up what it is about.
    pub fn begin_deletion(&self, deletion: &Deletion, doomed: &Doomed) -> bool {
        *self.deleting.lock().unwrap_or_else(PoisonError::into_inner).entry(deletion.database.clone()).or_default() +=
            1;
        if !self.is_still(deletion, doomed) {
            self.end_deletion(&deletion.database);
            return false;
        }
        if let Some(database) = &doomed.database {
            database.deletions.fetch_add(1, Ordering::Relaxed);
            if deletion.scope == Scope::Database {
                database.superseded.store(true, Ordering::Release);
                self.databases.write().unwrap_or_else(PoisonError::into_inner).remove(&database.name);
            } else if deletion.is_of_all_times() {
                doomed.sensors.iter().for_each(|known| known.superseded.store(true, Ordering::Release));
            }
        }
        self.met.version.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn is_still(&self, deletion: &Deletion, doomed: &Doomed) -> bool {
        match (self.database(&deletion.database), &doomed.database) {
            (None, None) => true,
            (Some(now), Some(then)) if Arc::ptr_eq(&now, then) => {
                deletion.scope == Scope::Database || then.learnt.load(Ordering::SeqCst) == doomed.learnt
            }
            _ => false,
        }
    }

    /// The same for a deletion that is read back: nothing behind it is met before.
    pub fn begin_deletion_read_back(&self, deletion: &Deletion) -> Doomed {
        loop {
            let doomed = self.doomed(deletion);
            if self.begin_deletion(deletion, &doomed) {
                return doomed;
            }
        }
    }

    /// Takes out what a deletion that has begun is about as a whole. A database's sensors are returned, so that they may be
    /// freed where nobody waits for it.
    pub fn forget_deleted(&self, deletion: &Deletion, doomed: &Doomed) -> Spellings {
        let Some(database) = &doomed.database else { return Spellings::default() };
        let mut sensors = database.sensors.write().unwrap_or_else(PoisonError::into_inner);
        if deletion.scope == Scope::Database {
            self.count.fetch_sub(database.known.swap(0, Ordering::Relaxed), Ordering::Relaxed);
            return std::mem::take(&mut *sensors);
        }
        if deletion.is_of_all_times() {
            doomed.sensors.iter().for_each(|known| self.take_out(database, &mut sensors, known));
        }
        Spellings::default()
    }

    /// Takes notice that a deletion is done, or given up.
    pub fn end_deletion(&self, database: &str) {
        let mut deleting = self.deleting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = deleting.get_mut(database) {
            *count -= 1;
            if *count == 0 {
                deleting.remove(database);
            }
        }
    }

    /// Whether something of a database is being deleted.
    pub fn is_deleting(&self, database: &str) -> bool {
        self.deleting.lock().unwrap_or_else(PoisonError::into_inner).contains_key(database)
    }

    /// Takes notice that what documents said of these sensors of a database, or of all of them, may not be so any more.
    pub fn doubt(&self, database: &str, keys: Option<&[&str]>) {
        self.deletions.fetch_add(1, Ordering::Relaxed);
        let Some(database) = self.database(database) else { return };
        let sensors = database.sensors.write().unwrap_or_else(PoisonError::into_inner);
        database.deletions.fetch_add(1, Ordering::Relaxed);
        match keys {
            Some(keys) => keys.iter().filter_map(|key| sensors.get(key)).for_each(|known| known.unsave()),
            None => {
                database.doubted.store(true, Ordering::Relaxed);
                sensors.values().for_each(|known| known.unsave());
            }
        }
    }
}
