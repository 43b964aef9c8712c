//! The sensors that a question is about, with their fields.

use super::Engine;
use super::directory::{Entry, entry, united};
use crate::query::choice::Choice;
use crate::query::{Budget, Held, QueryError};

/// Sensors chosen, in key order.
#[derive(Debug)]
pub struct Chosen {
    /// Each with its fields.
    pub entries: Vec<Entry>,
    _held: Held,
}

/// How many sensors are looked at between pauses.
pub(crate) const CHOOSE: usize = 4096;
/// What a name takes where those of many sensors are gathered, its letters aside.
pub(crate) const NAME_BYTES: usize = 128;

impl Chosen {
    /// Those of many that pass a test, which takes so many steps each time.
    ///
    /// # Errors
    /// When the budget is spent.
    pub async fn of(
        budget: &Budget,
        sensors: &[Entry],
        steps: usize,
        passes: impl Fn(&Entry) -> bool,
    ) -> Result<Self, QueryError> {
        let (mut entries, mut held) = (Vec::new(), budget.hold(0)?);
        for some in sensors.chunks((CHOOSE / steps).max(1)) {
            let before = entries.len();
            entries.extend(some.iter().filter(|entry| passes(entry)).cloned());
            held.grow((entries.len() - before) * 2 * size_of::<Entry>())?;
            budget.pause().await?;
        }
        Ok(Self { entries, _held: held })
    }
}

impl Engine {
    /// The sensors chosen, in key order.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn choose(&self, budget: &Budget, database: &str, choice: &Choice) -> Result<Chosen, QueryError> {
        match choice {
            Choice::Sensor(sensor) => {
                let entries = self.one(database, &sensor.key).await?.into_iter().collect();
                Ok(Chosen { entries, _held: budget.hold(0)? })
            }
            Choice::Matching { .. } => {
                let chooser = choice.compile(budget)?;
                let sensors = self.directory(budget, database, self.options.cache_max_age).await?;
                Chosen::of(budget, &sensors, 1, |entry| chooser.takes(&entry.sensor)).await
            }
        }
    }

    /// One sensor: a database may have a million others.
    async fn one(&self, database: &str, key: &str) -> Result<Option<Entry>, QueryError> {
        // Both before the store is asked: what is flushed in between is then found there. And what is still being
        // listed at the first question may be missing at the second.
        let listed = self.hot.met_version(Some(database));
        let met = self.hot.met_one(database, key).filter(|met| !met.fields.is_empty());
        let is_all = met.as_ref().is_some_and(|met| met.is_stored) && !self.store.is_shared();
        let stored = if is_all { None } else { self.store.read_sensors(database, &[key]).await?.pop() };
        if met.is_none() && stored.is_none() {
            // Of a sensor that the store does not know something may still be read back from the log.
            listed?;
        }
        let stored = stored.map(|document| entry(document.sensor, document.fields));
        Ok(united(stored.as_slice(), Vec::from_iter(met)).pop())
    }

    /// Whether there is anything of a sensor.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn is_known(&self, database: &str, key: &str) -> Result<bool, QueryError> {
        Ok(self.one(database, key).await?.is_some())
    }
}
