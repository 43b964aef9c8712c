//! The sensors of a database, as queries choose among them: what the store lists, at most a few
//! seconds old, and what this instance has met since.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Engine;
use crate::bucket::MetVersion;
use crate::bucket::store::{Extent, Projection, SensorFilter};
use crate::query::QueryError;
use crate::reading::{Family, Hour, Sensor, Value};

/// A sensor, and its fields in name order.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Whose.
    pub sensor: Arc<Sensor>,
    /// Their names and the family of their values.
    pub fields: Arc<[(Arc<str>, Family)]>,
}

impl Entry {
    /// The family of a field's values, if the sensor has it.
    #[must_use]
    pub fn family(&self, field: &str) -> Option<Family> {
        let at = self.fields.binary_search_by(|(name, _)| (**name).cmp(field)).ok()?;
        Some(self.fields[at].1)
    }
}

/// All sensors of one database, in key order.
pub type Sensors = Arc<Vec<Entry>>;

/// What was read of each database, and when.
#[derive(Debug, Default)]
pub struct Directory {
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Debug, Clone)]
struct Known {
    sensors: Sensors,
    /// The store's part was read then.
    read: Instant,
    /// What this instance had met before that.
    since: MetVersion,
    /// And what by the time of all this.
    version: MetVersion,
    stored: Arc<Vec<Entry>>,
}

/// How many documents are read at a time.
const LOT: usize = 10_000;

impl Engine {
    /// The sensors of a database: those that this instance has met, and those that the store listed
    /// within `max_age`.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn directory(&self, database: &str, max_age: Duration) -> Result<Sensors, QueryError> {
        // Before anything is read: what is met meanwhile is then looked at again.
        let version = self.hot.met_version(Some(database))?;
        let known = self.directory.get(database);
        let is_fresh = |known: &Known| known.read.elapsed() < max_age && known.since.deletions == version.deletions;
        let fresh = known.filter(is_fresh);
        if let Some(known) = fresh.as_ref().filter(|known| known.version == version) {
            return Ok(known.sensors.clone());
        }
        let (read, since, stored) = match fresh {
            Some(known) => (known.read, known.since, known.stored),
            None => (Instant::now(), version, Arc::new(self.stored_sensors(database).await?)),
        };
        let sensors = Arc::new(united(&stored, self.hot.met(database, since)));
        // Names that nobody has are not kept: there are many of them.
        if sensors.is_empty() {
            self.directory.forget(database);
            return Ok(sensors);
        }
        self.directory.put(database, Known { sensors: sensors.clone(), read, since, version, stored });
        Ok(sensors)
    }

    async fn stored_sensors(&self, database: &str) -> Result<Vec<Entry>, QueryError> {
        let mut filter = SensorFilter { limit: LOT, ..SensorFilter::default() };
        let mut entries = Vec::new();
        loop {
            let lot = self.store.list_sensors(database, &filter).await?;
            let is_last = lot.len() < LOT;
            filter.after = lot.last().map(|last| last.sensor.key.to_string());
            entries.extend(lot.into_iter().map(|document| entry(document.sensor, document.fields)));
            if is_last {
                return Ok(entries);
            }
        }
    }
}

impl Directory {
    fn get(&self, database: &str) -> Option<Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(database).cloned()
    }

    fn forget(&self, database: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(database);
    }

    fn put(&self, database: &str, known: Known) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(database.to_owned(), known);
    }
}

/// A sensor with its fields, put into name order.
pub(super) fn entry(sensor: Arc<Sensor>, mut fields: Vec<(Arc<str>, Family)>) -> Entry {
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    Entry { sensor, fields: fields.into() }
}

/// Both together, in key order. What was met has every field that this instance knows of; another
/// instance may have stored others.
pub(super) fn united(stored: &[Entry], met: Vec<crate::bucket::Met>) -> Vec<Entry> {
    let met = met.into_iter().filter(|met| !met.fields.is_empty());
    let mut by_key: HashMap<Box<str>, Entry> =
        met.map(|met| (met.sensor.key.clone(), entry(met.sensor, met.fields))).collect();
    for entry in stored {
        let Some(here) = by_key.get_mut(&entry.sensor.key) else {
            by_key.insert(entry.sensor.key.clone(), entry.clone());
            continue;
        };
        let is_new = |(name, _): &&(Arc<str>, Family)| here.family(name).is_none();
        let new: Vec<_> = entry.fields.iter().filter(is_new).cloned().collect();
        if !new.is_empty() {
            *here = self::entry(here.sensor.clone(), here.fields.iter().cloned().chain(new).collect());
        }
    }
    let mut entries: Vec<Entry> = by_key.into_values().collect();
    entries.sort_unstable_by(|a, b| a.sensor.key.cmp(&b.sensor.key));
    entries
}

/// Whether the numbers of a measurement's fields are whole, as far as some of them tell.
#[derive(Debug, Default)]
pub struct Kinds {
    floats: std::collections::HashSet<(String, String)>,
    wholes: std::collections::HashSet<(String, String)>,
}

impl Kinds {
    fn note(&mut self, measurement: &str, field: &str, value: &Value) {
        let key = || (measurement.to_owned(), field.to_owned());
        match value {
            Value::Float(_) => drop(self.floats.insert(key())),
            Value::Integer(_) | Value::Unsigned(_) => drop(self.wholes.insert(key())),
            Value::Boolean(_) | Value::String(_) => {}
        }
    }

    fn knows(&self, measurement: &str, field: &str) -> bool {
        let key = (measurement.to_owned(), field.to_owned());
        self.floats.contains(&key) || self.wholes.contains(&key)
    }

    /// The name that InfluxDB has for a field's type.
    #[must_use]
    pub fn of(&self, measurement: &str, field: &str, family: Family) -> &'static str {
        let key = (measurement.to_owned(), field.to_owned());
        match family {
            Family::Boolean => "boolean",
            Family::String => "string",
            Family::Number if self.wholes.contains(&key) && !self.floats.contains(&key) => "integer",
            Family::Number => "float",
        }
    }
}

impl Engine {
    /// What kind of numbers these sensors' fields hold: by what is not flushed yet, and else by the
    /// summary of the first page of a sensor that has the field.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn field_kinds(&self, database: &str, entries: &[Entry]) -> Result<Kinds, QueryError> {
        let mut kinds = Kinds::default();
        let all = Hour::of(i64::MIN)..Hour::of(i64::MAX).next();
        for entry in entries {
            let measurement = &entry.sensor.measurement;
            let is_open =
                |(name, family): &&(Arc<str>, Family)| *family == Family::Number && !kinds.knows(measurement, name);
            let open: Vec<Arc<str>> = entry.fields.iter().filter(is_open).map(|(name, _)| name.clone()).collect();
            if open.is_empty() {
                continue;
            }
            let key: &str = &entry.sensor.key;
            for hour in self.unflushed_of(database, key, &all).await?.into_values() {
                let readings = hour.readings();
                for name in &open {
                    let values = readings.cells(name).into_iter().flatten().flatten();
                    values.for_each(|value| kinds.note(measurement, name, value));
                }
            }
            for page in
                self.store.scan(database, key, all.clone(), &Projection::SUMMARIES, Extent::pages(1)).await?.pages
            {
                for (name, summary) in &page.summary {
                    kinds.note(measurement, name, &summary.figures().first);
                }
            }
        }
        Ok(kinds)
    }

    /// Whether there is a database of that name.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn has_database(&self, name: &str) -> Result<bool, QueryError> {
        Ok(self.all_databases().await?.iter().any(|known| known == name))
    }

    /// All databases, in the store or met by this instance, in name order.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn all_databases(&self) -> Result<Vec<String>, QueryError> {
        self.hot.met_version(None)?;
        // Before the store is asked: what reaches it in between is then named twice, and never missed.
        let mut names = self.hot.databases();
        names.extend(self.store.databases().await?);
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }
}
