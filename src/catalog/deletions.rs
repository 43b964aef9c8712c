//! Deletions from the catalog, in three steps. The request looks up the targets before it logs the deletion. The WAL's
//! thread marks the targets as deleted at the deletion's place in the WAL. The `Deleter` removes them later.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::spellings::Spellings;
use super::{Catalog, Database, KnownSensor};
use crate::catalog::deletion::{Deletion, Scope};
use crate::reading::Stamp;

/// The targets of a deletion in the catalog.
#[derive(Debug, Default)]
pub struct DeletedSensors {
    /// The database at the time of the lookup; `None` if it was unknown.
    pub database: Option<Arc<Database>>,
    /// Ids of the named sensors; empty if the whole database is deleted.
    pub ids: HashSet<u32>,
    /// The deleted times of each sensor id, in ascending order, if single cells are deleted.
    pub times: HashMap<u32, Arc<[i64]>>,
    sensors: Vec<Arc<KnownSensor>>,
    /// [`Database::additions`] before the lookup.
    additions: u64,
}

/// The number of deletions in progress in a database.
#[derive(Debug, Default)]
pub(crate) struct InProgress {
    all: usize,
    /// The deletions that drop the database.
    drops: usize,
}

impl Catalog {
    /// Looks up the targets of a deletion.
    pub fn deleted_sensors(&self, deletion: &Deletion) -> DeletedSensors {
        let Some(database) = self.database(&deletion.database) else { return DeletedSensors::default() };
        // Load `additions` before the sensors, to notice a sensor that is added in between.
        let additions = database.additions.load(Ordering::SeqCst);
        let mut times = HashMap::new();
        let sensors: Vec<Arc<KnownSensor>> = match &deletion.scope {
            Scope::Database | Scope::Mark => Vec::new(),
            Scope::Cells { sensors, .. } => {
                let known = database.sensors();
                let mut found = Vec::new();
                for deleted in sensors {
                    let Some(known) = known.get(&deleted.sensor.key) else { continue };
                    times.insert(known.id, deleted.times.clone());
                    found.push(known.clone());
                }
                found
            }
            Scope::Readings { sensors, .. } => {
                let known = database.sensors();
                sensors.iter().filter_map(|sensor| known.get(&sensor.key).cloned()).collect()
            }
        };
        let ids = sensors.iter().map(|known| known.id).collect();
        DeletedSensors { database: Some(database), ids, times, sensors, additions }
    }

    /// Marks the targets as deleted, at the deletion's place in the WAL. Later requests look the sensors up again.
    /// Returns false and marks nothing if the targets are outdated, because a sensor was added since the lookup.
    ///
    /// Runs on the WAL's thread: takes time linear in the record's length, and no lock that readers of sensors hold.
    pub fn begin_deletion(&self, deletion: &Deletion, targets: &DeletedSensors) -> bool {
        let mut deleting = self.deleting.lock();
        let counts = deleting.entry(deletion.database.clone()).or_default();
        counts.all += 1;
        counts.drops += usize::from(deletion.scope == Scope::Database);
        drop(deleting);
        if !self.are_current(deletion, targets) {
            self.end_deletion(deletion);
            return false;
        }
        if let Some(database) = &targets.database {
            database.deletions.fetch_add(1, Ordering::Relaxed);
            if deletion.scope == Scope::Database {
                database.superseded.store(true, Ordering::Release);
                self.databases.write().remove(&database.name);
            } else if deletion.covers_all_times() {
                targets.sensors.iter().for_each(|known| known.superseded.store(true, Ordering::Release));
            }
        }
        self.state.version.fetch_add(1, Ordering::Relaxed);
        // Invalidate lists even without targets: the deletion may remove sensors that have only metadata.
        self.deletions.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Returns true if nothing was added since the targets were looked up.
    fn are_current(&self, deletion: &Deletion, targets: &DeletedSensors) -> bool {
        match (self.database(&deletion.database), &targets.database) {
            (None, None) => true,
            (Some(now), Some(then)) if Arc::ptr_eq(&now, then) => {
                deletion.scope == Scope::Database || then.additions.load(Ordering::SeqCst) == targets.additions
            }
            _ => false,
        }
    }

    /// As [`Catalog::begin_deletion`], for a deletion that is read from the WAL. Repeats the lookup until the targets
    /// are current.
    pub fn begin_replayed_deletion(&self, deletion: &Deletion) -> DeletedSensors {
        loop {
            let targets = self.deleted_sensors(deletion);
            if self.begin_deletion(deletion, &targets) {
                return targets;
            }
        }
    }

    /// Removes the sensors of a deletion that covers all times. Returns the sensors of a dropped database, so that the
    /// caller can free them without blocking others.
    pub fn forget_deleted(&self, deletion: &Deletion, before: Stamp, targets: &DeletedSensors) -> Spellings {
        let Some(database) = &targets.database else { return Spellings::default() };
        let mut sensors = database.sensors.write();
        if deletion.scope == Scope::Database {
            let count = database.sensor_count();
            database.subtract_sensors(count);
            self.count.fetch_sub(count, Ordering::Relaxed);
            return std::mem::take(&mut *sensors);
        }
        if deletion.covers_all_times() {
            for known in &targets.sensors {
                database.meta.cut(&known.sensor.key, before);
                self.take_out(database, &mut sensors, known);
            }
        }
        Spellings::default()
    }

    /// Ends a deletion that [`Catalog::begin_deletion`] began, completed or not.
    pub fn end_deletion(&self, deletion: &Deletion) {
        self.deletions.fetch_add(1, Ordering::Relaxed);
        let mut deleting = self.deleting.lock();
        if let Some(counts) = deleting.get_mut(&deletion.database) {
            counts.all -= 1;
            counts.drops -= usize::from(deletion.scope == Scope::Database);
            if counts.all == 0 {
                deleting.remove(&deletion.database);
            }
        }
    }

    /// Returns true while the database is being dropped.
    pub fn is_dropping(&self, database: &str) -> bool {
        let deleting = self.deleting.lock();
        deleting.get(database).is_some_and(|counts| counts.drops > 0)
    }

    /// Returns the number of deletions in progress in all databases.
    pub fn deletions_in_progress(&self) -> usize {
        self.deleting.lock().values().map(|counts| counts.all).sum()
    }

    /// Returns true while a deletion in the database is in progress.
    pub fn is_deleting(&self, database: &str) -> bool {
        self.deleting.lock().contains_key(database)
    }

    /// Notes that the documents of these sensors may no longer be stored. `None` stands for all sensors of the
    /// database.
    pub fn doubt(&self, database: &str, keys: Option<&[&str]>) {
        self.deletions.fetch_add(1, Ordering::Relaxed);
        let Some(database) = self.database(database) else { return };
        let sensors = database.sensors.write();
        database.deletions.fetch_add(1, Ordering::Relaxed);
        match keys {
            Some(keys) => keys.iter().filter_map(|key| sensors.get(key)).for_each(|known| known.unsave()),
            None => {
                database.doubts.fetch_add(1, Ordering::Relaxed);
                sensors.values().for_each(|known| known.unsave());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Allowance;
    use crate::catalog::LookupResult;
    use crate::catalog::WantedSensor;
    use crate::catalog::deletion::ALWAYS;
    use crate::reading::Sensor;

    fn sensor(number: usize) -> Sensor {
        Sensor::new("m", [("s".to_owned(), number.to_string())]).expect("distinct keys")
    }

    fn add_sensors(catalog: &Catalog, database: &Database, numbers: std::ops::Range<usize>) {
        let wanted = |number| WantedSensor { sensor: sensor(number), allowance: Allowance::default() };
        let found = LookupResult { deletions: database.deletions(), ..LookupResult::default() };
        catalog.add_sensors(database, numbers.map(wanted).collect(), found, usize::MAX);
    }

    fn deletion(scope: Scope) -> Deletion {
        Deletion { received: 0, database: "d".to_owned(), scope }
    }

    /// Targets are looked up before the deletion is logged. A sensor that a write adds in between must not keep its id
    /// and its fields.
    #[test]
    fn a_sensor_added_after_the_lookup_makes_the_targets_outdated() {
        let catalog = Catalog::new(&crate::config::small());
        let database = catalog.enlist_database("d");
        add_sensors(&catalog, &database, 0..2);
        let scope = Scope::Readings { sensors: vec![sensor(0), sensor(2)], range: ALWAYS, statement: None };
        let deletion = deletion(scope);
        let targets = catalog.deleted_sensors(&deletion);
        add_sensors(&catalog, &database, 2..3);
        assert!(!catalog.begin_deletion(&deletion, &targets) && !catalog.is_deleting("d"));
        let is_known = |number: usize| catalog.sensor(&database, &sensor(number).key).is_some();
        assert!(is_known(0) && is_known(2));
        let targets = catalog.begin_replayed_deletion(&deletion);
        assert!(targets.ids.len() == 2 && catalog.is_deleting("d"));
        assert_eq!([0, 1, 2].map(is_known), [false, true, false]);
        // Sensor 0 is added again before the deleted one is removed.
        add_sensors(&catalog, &database, 0..1);
        let added = catalog.sensor(&database, &sensor(0).key).expect("added again");
        assert!(!targets.ids.contains(&added.id));
        drop(catalog.forget_deleted(&deletion, 1, &targets));
        assert_eq!([0, 1, 2].map(is_known), [true, true, false]);
        assert_eq!((catalog.len(), database.sensor_count()), (2, 2));
    }

    #[test]
    fn a_dropped_database_is_replaced_at_once_and_subtracted_later() {
        let catalog = Catalog::new(&crate::config::small());
        let before = catalog.enlist_database("d");
        add_sensors(&catalog, &before, 0..3);
        let deletion = deletion(Scope::Database);
        let targets = catalog.deleted_sensors(&deletion);
        assert!(catalog.begin_deletion(&deletion, &targets));
        assert!(before.is_superseded() && catalog.database("d").is_none());
        let since = catalog.enlist_database("d");
        assert_ne!(since.number, before.number);
        add_sensors(&catalog, &since, 0..2);
        // A request that still holds the dropped database.
        add_sensors(&catalog, &before, 3..4);
        assert_eq!(catalog.len(), 5);
        drop(catalog.forget_deleted(&deletion, 1, &targets));
        assert_eq!((catalog.len(), since.sensor_count(), before.sensor_count()), (2, 2, 0));
    }
}
