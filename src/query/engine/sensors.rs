//! Lists of sensors and databases: the store's, merged with what this instance has added since.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Engine;
use super::directory::both;
use super::directory::{DirectoryEntry, KnownSensors, Sensors, first_batch, next_batch, stored_entry, united};
use crate::bucket::settings::owner;
use crate::bucket::{CatalogSensor, Meta, Renames};
use crate::kinds::KIND;
use crate::query::{Budget, QueryError};
use crate::reading::Stamp;

impl Engine {
    /// The sensors of a database: those that the store listed within the last `max_age`, and those that this instance
    /// has added since.
    ///
    /// # Errors
    /// If the store does not answer, or the WAL is still being read back.
    pub async fn directory(&self, budget: &Budget, database: &str, max_age: Duration) -> Result<Sensors, QueryError> {
        let asked = Instant::now();
        let mut turn = None;
        let (version, renames, known, is_fresh) = loop {
            // Read before anything else: the next call sees a newer version if sensors are added meanwhile, and merges
            // again.
            let version = self.memtables.catalog_version(Some(database))?;
            let renames = self.renames(database);
            let known = self.directory.lock().get(database).cloned();
            let is_fresh = known.as_ref().is_some_and(|known| {
                (known.read.elapsed() < max_age || known.read >= asked) && known.since.deletions == version.deletions
            });
            let is_same = |known: &&KnownSensors| is_fresh && known.version == version && known.renames == renames;
            if let Some(known) = known.as_ref().filter(is_same) {
                return Ok(known.sensors.clone());
            }
            if turn.is_some() {
                break (version, renames, known, is_fresh);
            }
            // Lists take much memory, so those who wait take that of the one before them.
            turn = Some(budget.waiting(self.directory_turns.wait(database)).await);
        };
        let (read, since, stored) = match known {
            Some(known) if is_fresh => (known.read, known.since, known.stored),
            known => {
                let earlier = known.map(|known| known.stored).unwrap_or_default();
                (Instant::now(), version, Arc::new(self.stored_sensors(budget, database, &earlier).await?))
            }
        };
        let unflushed = self.memtables.catalog_sensors(database, since);
        budget.pause().await?;
        let named = |sensors| match &renames {
            Some(renames) => shown_by(renames, sensors),
            None => sensors,
        };
        let sensors = budget.run_unpaused(stored.len() + unflushed.len(), || named(self.unite(&stored, unflushed)));
        let sensors: Sensors = Arc::new(sensors.into());
        // Databases without sensors are not cached: clients can ask for any number of names.
        if sensors.is_empty() {
            self.directory.lock().remove(database);
            return Ok(sensors);
        }
        let known = KnownSensors { sensors: sensors.clone(), read, since, version, renames, stored };
        self.directory.lock().insert(database.to_owned(), known);
        Ok(sensors)
    }

    /// Merges both lists, in key order. The metadata `kind` of a sensor is that of its measurement, unless it is set.
    pub(super) fn unite(&self, stored: &[DirectoryEntry], unflushed: Vec<CatalogSensor>) -> Vec<DirectoryEntry> {
        let mut entries = united(stored, unflushed);
        if self.sensor_kinds.is_empty() {
            return entries;
        }
        let mut shared: HashMap<String, Arc<Meta>> = HashMap::new();
        for entry in &mut entries {
            let meta = entry.meta.clone().unwrap_or_default();
            let Some(kind) = self.sensor_kinds.kind_of(&entry.stored, &meta).filter(|_| meta.get(KIND).is_none())
            else {
                continue;
            };
            let of_kind = shared.entry(kind.name.clone()).or_insert_with(|| {
                let json = serde_json::Value::from(kind.name.as_str()).to_string();
                // Newer than any replacement of the metadata.
                Arc::new(Meta::change(Stamp::MAX, false, [(KIND.into(), Some(json.into()))]))
            });
            entry.meta = both(entry.meta.as_ref(), Some(of_kind));
        }
        entries
    }

    /// The renames of a database, if it has some.
    #[must_use]
    pub fn renames(&self, database: &str) -> Option<Renames> {
        self.settings.now().renames(database).cloned()
    }

    /// The sensors of a database under their stored names, listed now.
    ///
    /// # Errors
    /// If the store does not answer, or the WAL is still being read back.
    pub async fn as_stored(&self, budget: &Budget, database: &str) -> Result<Vec<DirectoryEntry>, QueryError> {
        let version = self.memtables.catalog_version(Some(database))?;
        let stored = self.stored_sensors(budget, database, &[]).await?;
        Ok(united(&stored, self.memtables.catalog_sensors(database, version)))
    }

    /// Lists the stored sensors. The entries of an `earlier` list that have not changed are the same in memory.
    async fn stored_sensors(
        &self,
        budget: &Budget,
        database: &str,
        earlier: &[DirectoryEntry],
    ) -> Result<Vec<DirectoryEntry>, QueryError> {
        let mut filter = first_batch();
        let mut entries: Vec<DirectoryEntry> = Vec::new();
        let mut texts = HashSet::new();
        let mut field_sets = HashSet::new();
        loop {
            let mut batch = budget.waiting(self.store.list_sensors(database, &filter)).await?;
            let is_last = batch.len() < filter.limit;
            filter.after = batch.last().map(|last| last.sensor.key.to_string());
            filter.limit = next_batch(filter.limit, batch.iter());
            budget.pause().await?;
            batch.iter_mut().for_each(|document| document.meta.share(&mut texts));
            for mut entry in batch.into_iter().filter_map(stored_entry) {
                let place = earlier.binary_search_by(|earlier| earlier.stored.key.cmp(&entry.stored.key));
                match place.ok().map(|place| &earlier[place]).filter(|earlier| earlier.is_same(&entry)) {
                    Some(same) => entry = same.clone(),
                    None => entry.share_fields(&mut field_sets),
                }
                entries.push(entry);
            }
            if is_last {
                return Ok(entries);
            }
        }
    }

    /// # Errors
    /// If the store does not answer, or the WAL is still being read back.
    pub async fn has_database(&self, name: &str) -> Result<bool, QueryError> {
        // A database may have nothing but policies.
        Ok(self.all_databases().await?.iter().any(|known| known == name || owner(known) == name))
    }

    /// All databases, in the store or known to this instance, in name order.
    ///
    /// # Errors
    /// If the store does not answer, or the WAL is still being read back.
    pub async fn all_databases(&self) -> Result<Vec<String>, QueryError> {
        self.memtables.catalog_version(None)?;
        // Before the store is read: a database that reaches it in between is then listed twice, never missed.
        let mut names = self.memtables.databases();
        names.extend(self.store.raw().databases().await?);
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }
}

/// The entries under their shown names, in key order.
fn shown_by(renames: &Renames, entries: Vec<DirectoryEntry>) -> Vec<DirectoryEntry> {
    let mut shown: Vec<DirectoryEntry> = entries.into_iter().map(|entry| entry.shown_by(renames)).collect();
    shown.sort_unstable_by(|a, b| a.sensor.key.cmp(&b.sensor.key));
    shown
}
