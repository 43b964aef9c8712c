//! The sensors of a database, as queries choose among them: what the store lists, at most a few
//! seconds old, and what this instance has met since.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Engine;
use super::choose::{CHOOSE, NAME_BYTES};
use crate::bucket::store::{Extent, Projection, SensorFilter};
use crate::bucket::{MetVersion, SensorDocument};
use crate::query::native::readings::memory_of;
use crate::query::{Budget, Held, QueryError};
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

/// How many documents are read at a time, at first and at most. One may have a megabyte of recent readings.
const LOT: (usize, usize) = (16, 512);
/// How many bytes of them are to be.
const LOT_BYTES: usize = 1 << 20;

/// The first documents that are read of a list.
#[must_use]
pub fn first_lot() -> SensorFilter {
    SensorFilter { limit: LOT.0, ..SensorFilter::default() }
}

/// How many documents are to be read behind a lot of this length, by what those in it take.
#[must_use]
pub fn next_lot(lot: usize, documents: &[SensorDocument]) -> usize {
    let each = documents.iter().map(document_bytes).sum::<usize>() / documents.len().max(1);
    (LOT_BYTES / each.max(1)).clamp(1, (2 * lot).min(LOT.1))
}

/// The memory that a sensor's document takes.
#[must_use]
pub fn document_bytes(SensorDocument { sensor, fields, recent, .. }: &SensorDocument) -> usize {
    let tags = 2 * sensor.key.len() + size_of_val(&*sensor.tags);
    let fields = size_of_val(&**fields) + fields.iter().map(|(name, _)| name.len()).sum::<usize>();
    size_of::<(SensorDocument, Sensor)>() + tags + fields + recent.iter().map(memory_of).sum::<usize>()
}

impl Engine {
    /// The sensors of a database: those that this instance has met, and those that the store listed
    /// within `max_age`.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn directory(&self, budget: &Budget, database: &str, max_age: Duration) -> Result<Sensors, QueryError> {
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
            None => (Instant::now(), version, Arc::new(self.stored_sensors(budget, database).await?)),
        };
        let met = self.hot.met(database, since);
        let sensors = Arc::new(budget.at_length(stored.len() + met.len(), || united(&stored, met)));
        // Names that nobody has are not kept: there are many of them.
        if sensors.is_empty() {
            self.directory.forget(database);
            return Ok(sensors);
        }
        self.directory.put(database, Known { sensors: sensors.clone(), read, since, version, stored });
        Ok(sensors)
    }

    async fn stored_sensors(&self, budget: &Budget, database: &str) -> Result<Vec<Entry>, QueryError> {
        let mut filter = first_lot();
        let mut entries = Vec::new();
        loop {
            let lot = budget.waiting(self.store.list_sensors(database, &filter)).await?;
            let is_last = lot.len() < filter.limit;
            filter.after = lot.last().map(|last| last.sensor.key.to_string());
            filter.limit = next_lot(filter.limit, &lot);
            budget.pause().await?;
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
#[derive(Debug)]
pub struct Kinds {
    floats: HashSet<(String, String)>,
    wholes: HashSet<(String, String)>,
    held: Held,
}

impl Kinds {
    fn note(&mut self, measurement: &str, field: &str, value: &Value) -> Result<(), QueryError> {
        let known = match value {
            Value::Float(_) => &mut self.floats,
            Value::Integer(_) | Value::Unsigned(_) => &mut self.wholes,
            Value::Boolean(_) | Value::String(_) => return Ok(()),
        };
        let is_new = known.insert((measurement.to_owned(), field.to_owned()));
        self.held.grow(if is_new { measurement.len() + field.len() + NAME_BYTES } else { 0 })
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
    /// When the store does not answer, or the budget is spent.
    pub async fn field_kinds(&self, budget: &Budget, database: &str, entries: &[Entry]) -> Result<Kinds, QueryError> {
        let mut kinds = Kinds { floats: HashSet::new(), wholes: HashSet::new(), held: budget.hold(0)? };
        let all = Hour::of(i64::MIN)..Hour::of(i64::MAX).next();
        for (number, entry) in entries.iter().enumerate() {
            if number % CHOOSE == 0 {
                budget.pause().await?;
            }
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
                    let values = || readings.cells(name).into_iter().flatten().flatten();
                    let first = |float: bool| values().find(|value| matches!(value, Value::Float(_)) == float);
                    let mut firsts = [true, false].into_iter().filter_map(first);
                    firsts.try_for_each(|value| kinds.note(measurement, name, value))?;
                }
            }
            let pages = self.store.scan(database, key, all.clone(), &Projection::SUMMARIES, Extent::pages(1));
            for page in budget.waiting(pages).await?.pages {
                let mut summaries = page.summary.iter();
                summaries.try_for_each(|(name, one)| kinds.note(measurement, name, &one.figures().first))?;
            }
            budget.pause().await?;
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
