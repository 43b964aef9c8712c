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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Allowance;
    use crate::ingest::Options;
    use crate::ingest::deletion::ALWAYS;
    use crate::ingest::learn::{Found, Wanted};
    use crate::reading::Sensor;

    fn sensor(number: usize) -> Sensor {
        Sensor::new("m", [("s".to_owned(), number.to_string())]).expect("distinct keys")
    }

    fn learn(catalog: &Catalog, database: &Database, numbers: std::ops::Range<usize>) {
        let wanted = |number| Wanted { sensor: sensor(number), payer: Allowance::default() };
        let found = Found { deletions: database.deletions(), ..Found::default() };
        catalog.learn(database, numbers.map(wanted).collect(), found, usize::MAX);
    }

    fn deletion(scope: Scope) -> Deletion {
        Deletion { received: 0, database: "d".to_owned(), scope }
    }

    /// What is deleted is looked up before it is logged: a sensor that others had written to in between would have kept
    /// its number and its fields.
    #[test]
    fn what_became_known_since_it_was_looked_up_is_looked_up_anew() {
        let catalog = Catalog::new(&Options::small());
        let database = catalog.enlist_database("d");
        learn(&catalog, &database, 0..2);
        let scope = Scope::Readings { sensors: vec![sensor(0), sensor(2)], range: ALWAYS, statement: None };
        let deletion = deletion(scope);
        let doomed = catalog.doomed(&deletion);
        learn(&catalog, &database, 2..3);
        assert!(!catalog.begin_deletion(&deletion, &doomed) && !catalog.is_deleting("d"));
        let is_known = |number: usize| catalog.sensor(&database, &sensor(number).key).is_some();
        assert!(is_known(0) && is_known(2));
        let doomed = catalog.begin_deletion_read_back(&deletion);
        assert!(doomed.ids.len() == 2 && catalog.is_deleting("d"));
        assert_eq!([0, 1, 2].map(is_known), [false, true, false]);
        // One is met anew before the other is taken out.
        learn(&catalog, &database, 0..1);
        let anew = catalog.sensor(&database, &sensor(0).key).expect("it is met anew");
        assert!(!doomed.ids.contains(&anew.id));
        drop(catalog.forget_deleted(&deletion, &doomed));
        assert_eq!([0, 1, 2].map(is_known), [true, true, false]);
        assert_eq!((catalog.len(), database.known()), (2, 2));
    }

    #[test]
    fn a_dropped_database_is_another_one_at_once_and_is_counted_off_later() {
        let catalog = Catalog::new(&Options::small());
        let before = catalog.enlist_database("d");
        learn(&catalog, &before, 0..3);
        let deletion = deletion(Scope::Database);
        let doomed = catalog.doomed(&deletion);
        assert!(catalog.begin_deletion(&deletion, &doomed));
        assert!(before.is_superseded() && catalog.database("d").is_none());
        let since = catalog.enlist_database("d");
        assert_ne!(since.number, before.number);
        learn(&catalog, &since, 0..2);
        // Whoever was about to write to the one that is gone.
        learn(&catalog, &before, 3..4);
        assert_eq!(catalog.len(), 5);
        drop(catalog.forget_deleted(&deletion, &doomed));
        assert_eq!((catalog.len(), since.known(), before.known()), (2, 2, 0));
    }
}
