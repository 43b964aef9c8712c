//! The sensors that a question is about, with their fields.

use std::sync::Arc;

use super::Engine;
use super::directory::Entry;
use crate::bucket::Readings;
use crate::query::choice::Choice;
use crate::query::{Budget, Held, QueryError};
use crate::reading::{Hour, Sensor};

/// Sensors chosen, in key order.
#[derive(Debug)]
pub struct Chosen {
    /// Each with its fields.
    pub entries: Vec<Entry>,
    _held: Held,
}

/// How many sensors are looked at between pauses.
pub(crate) const CHOOSE: usize = 4096;
/// All of time.
const ALL: std::ops::Range<Hour> = Hour(i64::MIN)..Hour(i64::MAX);

impl Engine {
    /// The sensors chosen, in key order.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn choose(&self, budget: &Budget, database: &str, choice: &Choice) -> Result<Chosen, QueryError> {
        let mut held = budget.hold(0)?;
        let entries = match choice {
            Choice::Sensor(sensor) => self.one(database, sensor).await?.into_iter().collect(),
            Choice::Matching { .. } => {
                let chooser = choice.compile(budget)?;
                let sensors = self.directory(database, self.options.cache_max_age).await?;
                let mut entries = Vec::new();
                for some in sensors.chunks(CHOOSE) {
                    let chosen = some.iter().filter(|entry| chooser.takes(&entry.sensor));
                    let before = entries.len();
                    entries.extend(chosen.cloned());
                    held.grow((entries.len() - before) * 2 * size_of::<Entry>())?;
                    budget.pause().await?;
                }
                entries
            }
        };
        Ok(Chosen { entries, _held: held })
    }

    /// One sensor, by what is not flushed of it and by its document: a database may have a million others.
    async fn one(&self, database: &str, sensor: &Arc<Sensor>) -> Result<Option<Entry>, QueryError> {
        let unflushed = self.unflushed_of(database, &sensor.key, &ALL).await;
        let document = self.store.read_sensors(database, &[&sensor.key]).await?.pop();
        // Of hours that nobody asked about something may still be read back: that matters to a sensor alone which the
        // store does not know.
        let unflushed = if document.is_some() { unflushed.unwrap_or_default() } else { unflushed? };
        if document.is_none() && unflushed.is_empty() {
            return Ok(None);
        }
        let mut fields = document.map(|document| document.fields).unwrap_or_default();
        for (name, cells) in unflushed.values().flat_map(Readings::columns) {
            fields.extend(cells.iter().flatten().next().map(|value| (name.clone(), value.family())));
        }
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        fields.dedup_by(|a, b| a.0 == b.0);
        Ok(Some(Entry { sensor: sensor.clone(), fields: fields.into() }))
    }

    /// Whether there is anything of a sensor.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn is_known(&self, database: &str, key: &str) -> Result<bool, QueryError> {
        // Before the store is asked: what is flushed in between is then found there.
        let unflushed = self.unflushed_of(database, key, &ALL).await;
        let is_unflushed = unflushed.as_ref().is_ok_and(|unflushed| !unflushed.is_empty());
        if is_unflushed || !self.store.read_sensors(database, &[key]).await?.is_empty() {
            return Ok(true);
        }
        // Of hours that nobody asked about something may still be read back: where the store knows the sensor it does
        // not matter.
        Ok(unflushed.map(|_| false)?)
    }
}
