//! Selects the sensors that a query covers, with their fields.

use std::time::Instant;

use super::Engine;
use super::directory::{DirectoryEntry, stored_entry};
use super::memory::CHOOSE;
use crate::query::selector::Selector;
use crate::query::{Budget, HeldBytes, QueryError};
use crate::reading::Sensor;

/// Selected sensors, in key order.
#[derive(Debug)]
pub struct Chosen {
    pub entries: Vec<DirectoryEntry>,
    _held: HeldBytes,
}

impl Chosen {
    /// Returns the sensors that pass a test, in order. A test takes about `steps` comparisons.
    ///
    /// # Errors
    /// If the budget is exhausted.
    pub async fn of(
        budget: &Budget,
        sensors: &[DirectoryEntry],
        steps: usize,
        mut passes: impl FnMut(&DirectoryEntry) -> bool,
    ) -> Result<Self, QueryError> {
        let (mut entries, mut held) = (Vec::new(), budget.hold(0)?);
        for some in sensors.chunks((CHOOSE / steps).max(1)) {
            let before = entries.len();
            entries.extend(some.iter().filter(|entry| passes(entry)).cloned());
            held.grow((entries.len() - before) * 2 * size_of::<DirectoryEntry>())?;
            budget.pause().await?;
        }
        Ok(Self { entries, _held: held })
    }
}

impl Engine {
    /// The sensors that a selector selects, in key order.
    ///
    /// # Errors
    /// If the store does not answer, or acked readings that may add sensors are still being read back.
    pub async fn choose(&self, budget: &Budget, database: &str, selector: &Selector) -> Result<Chosen, QueryError> {
        match selector {
            Selector::Sensor(sensor) => {
                let entries = Vec::from_iter(self.named(database, &sensor.key).await?);
                Ok(Chosen { entries, _held: budget.hold(0)? })
            }
            Selector::Matching { .. } => {
                let chooser = selector.compile(budget)?;
                let sensors = self.directory(budget, database, self.options.cache_max_age).await?;
                let by_meta = chooser.meta_tests(budget, &sensors).await?;
                let mut place = 0;
                let takes = |entry: &DirectoryEntry| {
                    place += 1;
                    let may_pass = by_meta.iter().all(|passing| passing.has(place - 1));
                    may_pass && chooser.selects(&entry.sensor, entry.meta.as_deref())
                };
                Chosen::of(budget, &sensors, chooser.filters().max(1), takes).await
            }
        }
    }

    /// Checks the number of sensors.
    ///
    /// # Errors
    /// If there are too many.
    pub fn check_sensors(&self, count: usize) -> Result<(), QueryError> {
        let limit = self.options.series_max;
        if count > limit { Err(QueryError::TooManySensors { count, limit }) } else { Ok(()) }
    }

    /// The sensor that is shown under a key. Reads no other one: its database may have a million of them.
    ///
    /// # Errors
    /// If the store does not answer, or acked readings that may add the sensor are still being read back.
    pub async fn named(&self, database: &str, key: &str) -> Result<Option<DirectoryEntry>, QueryError> {
        let asked = self.renames(database).zip(Sensor::from_key(key).filter(|sensor| *sensor.key == *key));
        let Some((renames, asked)) = asked else { return self.one_stored(database, key).await };
        for stored in renames.stored_sensors(&asked) {
            if let Some(entry) = self.one_stored(database, &stored.key).await? {
                return Ok(Some(entry.shown_by(&renames)));
            }
        }
        Ok(None)
    }

    /// A sensor as it is stored.
    async fn one_stored(&self, database: &str, key: &str) -> Result<Option<DirectoryEntry>, QueryError> {
        // Both are read before the store: a sensor that is flushed in between is then found there. The version is read
        // first: if the catalog became complete between the two reads, a sensor that it lacked before would otherwise
        // seem not to exist.
        let listed = self.memtables.catalog_version(Some(database));
        let known = self.memtables.catalog_sensor(database, key).filter(|known| !known.fields.is_empty());
        let is_all = known.as_ref().is_some_and(|known| known.is_stored && !known.has_more_meta)
            && !self.store.raw().has_other_writers();
        let deletions = listed.as_ref().ok().map(|version| version.deletions);
        let stored = if is_all { None } else { self.stored_sensor(database, key, deletions).await? };
        if known.is_none() && stored.is_none() {
            // A sensor that the store does not have may still be read back from the WAL.
            listed?;
        }
        Ok(self.unite(stored.as_slice(), Vec::from_iter(known)).pop())
    }

    /// A sensor as stored, or from the cache if no deletion has happened since. Without `deletions` the cache is not
    /// used.
    async fn stored_sensor(
        &self,
        database: &str,
        key: &str,
        deletions: Option<u64>,
    ) -> Result<Option<DirectoryEntry>, QueryError> {
        let cached = deletions.and_then(|deletions| self.sensors.get(database, key, deletions));
        if cached.is_some() {
            return Ok(cached);
        }
        let at = Instant::now();
        let document = self.store.read_sensors(database, &[key]).await?.pop();
        let read = document.and_then(stored_entry);
        if let (Some(entry), Some(deletions)) = (&read, deletions) {
            self.sensors.put(database, entry, at, deletions);
        }
        Ok(read)
    }
}
