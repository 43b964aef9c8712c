//! Selects the sensors that a query covers, with their fields.

use std::time::Instant;

use super::Engine;
use super::directory::{DirectoryEntry, stored_entry, united};
use super::memory::CHOOSE;
use super::present::united as united_entry;
use super::united::sensor_of;
use crate::query::selector::Selector;
use crate::query::{Budget, HeldBytes, QueryError};

/// Selected sensors, in key order.
#[derive(Debug)]
pub struct Chosen {
    pub entries: Vec<DirectoryEntry>,
    _held: HeldBytes,
}

impl Chosen {
    /// Those sensors that pass a test; each test takes about `steps` comparisons.
    ///
    /// # Errors
    /// If the budget is exhausted.
    pub async fn of(
        budget: &Budget,
        sensors: &[DirectoryEntry],
        steps: usize,
        passes: impl Fn(&DirectoryEntry) -> bool,
    ) -> Result<Self, QueryError> {
        Self::at(budget, sensors, steps, |_, entry| passes(entry)).await
    }

    /// As [`Chosen::of`], by a test that also takes a sensor's place.
    async fn at(
        budget: &Budget,
        sensors: &[DirectoryEntry],
        steps: usize,
        passes: impl Fn(usize, &DirectoryEntry) -> bool,
    ) -> Result<Self, QueryError> {
        let (mut entries, mut held, mut place) = (Vec::new(), budget.hold(0)?, 0);
        for some in sensors.chunks((CHOOSE / steps).max(1)) {
            let before = entries.len();
            entries.extend(
                (place..).zip(some).filter(|(place, entry)| passes(*place, entry)).map(|(_, entry)| entry.clone()),
            );
            place += some.len();
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
                let entries = self.named(database, &sensor.key).await?;
                Ok(Chosen { entries, _held: budget.hold(0)? })
            }
            Selector::Matching { .. } => {
                let chooser = selector.compile(budget)?;
                let sensors = self.directory(budget, database, self.options.cache_max_age).await?;
                let by_meta = chooser.by_meta(budget, &sensors)?;
                // Another name that stands for a sensor may pass where its present one does not.
                let may_pass = |place, entry: &DirectoryEntry| {
                    entry.others.is_some() || by_meta.iter().all(|passing| passing.has(place))
                };
                let takes = |place, entry: &DirectoryEntry| may_pass(place, entry) && chooser.takes_entry(entry);
                Chosen::at(budget, &sensors, 1, takes).await
            }
        }
    }

    /// What is read under a name, alone: its database may have a million others. A sensor that has other names from a time on is given
    /// by each.
    async fn named(&self, database: &str, key: &str) -> Result<Vec<DirectoryEntry>, QueryError> {
        let asked = self.relabels(database).zip(sensor_of(key));
        let Some((relabels, asked)) = asked else { return Ok(Vec::from_iter(self.one_stored(database, key).await?)) };
        let mut entries: Vec<DirectoryEntry> = Vec::new();
        for (_, name) in relabels.names_of(&asked) {
            if entries.iter().any(|entry| entry.sensor.key == name.key) {
                continue;
            }
            let Some(parts) = relabels.parts_of(&name) else {
                entries.extend(self.one_stored(database, &name.key).await?);
                continue;
            };
            let mut stored = Vec::new();
            for part in &parts {
                stored.extend(self.one_stored(database, &part.sensor.key).await?);
            }
            if !stored.is_empty() {
                entries.push(united_entry(name, &stored, &relabels));
            }
        }
        entries.sort_unstable_by(|a, b| a.sensor.key.cmp(&b.sensor.key));
        Ok(entries)
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
        Ok(united(stored.as_slice(), Vec::from_iter(known)).pop())
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

    /// Whether the sensor exists, in the store or unflushed.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn is_known(&self, database: &str, key: &str) -> Result<bool, QueryError> {
        Ok(!self.named(database, key).await?.is_empty())
    }
}
