//! What the catalog makes of deletions.

use std::collections::HashSet;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::Catalog;
use crate::ingest::deletion::{Deletion, Scope};

impl Catalog {
    /// Takes notice of a deletion at its place in the log: sensors that are deleted as a whole are to be met anew.
    /// Returns the numbers of all sensors that it is about.
    pub fn begin_deletion(&self, deletion: &Deletion) -> HashSet<u32> {
        *self.deleting.lock().unwrap_or_else(PoisonError::into_inner).entry(deletion.database.clone()).or_default() +=
            1;
        let Some(database) = self.database(&deletion.database) else { return HashSet::new() };
        let mut sensors = database.sensors.write().unwrap_or_else(PoisonError::into_inner);
        database.deletions.fetch_add(1, Ordering::Relaxed);
        let ids: HashSet<u32> = match &deletion.scope {
            Scope::Database => {
                database.superseded.store(true, Ordering::Release);
                self.databases.write().unwrap_or_else(PoisonError::into_inner).remove(&database.name);
                sensors.values().map(|known| known.id).collect()
            }
            Scope::Readings { sensors: named, .. } => {
                named.iter().filter_map(|sensor| Some(sensors.get(&sensor.key)?.id)).collect()
            }
        };
        if deletion.is_of_all_times() {
            sensors.retain(|known| {
                let goes = ids.contains(&known.id);
                known.superseded.fetch_or(goes, Ordering::AcqRel);
                !goes
            });
            self.count.fetch_sub(ids.len(), Ordering::Relaxed);
            database.known.fetch_sub(ids.len(), Ordering::Relaxed);
        }
        self.met.version.fetch_add(1, Ordering::Relaxed);
        ids
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
