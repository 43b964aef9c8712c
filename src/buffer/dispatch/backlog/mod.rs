//! The backlog: what the WAL holds and the shards do not have yet, by sensor and hour, so that queries about anything
//! else are answered during a replay. Bounded: beyond the bound it only tells databases apart. Knows no file, no shard
//! and no query.

pub mod scan;
mod spans;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rapidhash::fast::RandomState;

use super::backlog::spans::HourSpans;
use crate::bucket::CatalogSensor;
use crate::catalog::SensorFields;
use crate::reading::{Family, Hour, Sensor};
use crate::wal::Sequence;

/// Most sensors that are tracked, over all databases.
const SENSORS_MAX: usize = 250_000;
/// What each of them takes, about.
const SENSOR_BYTES: usize = 300;

/// How many sensors are tracked at most, with this much memory for unflushed readings: an eighth of it.
#[must_use]
pub fn sensors_max(memtable_bytes: usize) -> usize {
    (memtable_bytes / 8 / SENSOR_BYTES).min(SENSORS_MAX)
}

#[derive(Debug)]
pub struct Backlog {
    /// Every record up to this one was dispatched.
    given: AtomicU64,
    state: Mutex<BacklogState>,
    sensors_max: usize,
}

#[derive(Debug, Default)]
struct BacklogState {
    /// Records up to this one have not been scanned yet: they may be about anything.
    unknown: Sequence,
    databases: HashMap<Box<str>, BacklogPart>,
    /// How many sensors are tracked.
    sensors: usize,
    /// Entries to be freed by the replay task: the WAL's thread, which notes records, would delay acks by freeing them.
    gone: Vec<BacklogEntries>,
}

/// By the sensors' keys.
type BacklogEntries = HashMap<Box<str>, BacklogEntry, RandomState>;

/// The backlog of a database.
#[derive(Debug)]
enum BacklogPart {
    /// The sensors with readings in the backlog, and the last record that has any of them.
    Sensors(BacklogEntries, Sequence),
    /// Records up to this one may be about anything: there are too many sensors, or there was a deletion or metadata.
    Anything(Sequence),
}

#[derive(Debug)]
struct BacklogEntry {
    sensor: Arc<Sensor>,
    spans: HourSpans,
    /// Fields that scanned records name.
    named: Vec<(Arc<str>, Family)>,
    /// Fields that admission knew when it last logged a request with this sensor.
    known: Option<Arc<SensorFields>>,
}

/// The fields of a sensor, from either source.
#[derive(Debug, Clone, Copy)]
pub enum Named<'a> {
    /// From the scanned record.
    Record(&'a [(Arc<str>, Family)]),
    /// From admission.
    Known(&'a Arc<SensorFields>),
}

impl Backlog {
    /// A backlog of unscanned records behind `given` and up to `last`.
    pub fn new(given: Sequence, last: Sequence, sensors_max: usize) -> Self {
        let state = BacklogState { unknown: last, ..BacklogState::default() };
        Self { given: AtomicU64::new(given), state: Mutex::new(state), sensors_max }
    }

    /// The last record that was dispatched, as far as records were read back.
    pub fn given(&self) -> Sequence {
        self.given.load(Ordering::Acquire)
    }

    /// Notes that every record up to this one was dispatched: shards that are asked from now on have it.
    pub fn give(&self, sequence: Sequence) {
        self.given.fetch_max(sequence, Ordering::AcqRel);
    }

    /// As [`Backlog::give`], and forgets what was noted of these records.
    pub fn give_all(&self, sequence: Sequence) {
        self.give(sequence);
        let gone = {
            let mut state = self.state.lock();
            state.forget_given(self.given());
            std::mem::take(&mut state.gone)
        };
        drop(gone);
    }

    /// Notes that the scan is complete.
    pub fn scanned(&self) {
        self.state.lock().unknown = 0;
    }

    /// Begins to note what a record is about.
    pub fn noting<'a>(&'a self, database: &'a str, sequence: Sequence) -> Noting<'a> {
        let mut state = self.state.lock();
        let given = self.given();
        if state.sensors >= self.sensors_max {
            state.shrink(given, self.sensors_max / 4 * 3);
        }
        Noting { state, database, sequence, given, is_new: false }
    }

    /// Notes a deletion, or metadata: what was noted of the database's sensors no longer holds for records behind it.
    pub fn note_change(&self, database: &str, sequence: Sequence) {
        let mut state = self.state.lock();
        let through = state.databases.get(database).map_or(0, |waiting| waiting.extent().1).max(sequence);
        let before = state.databases.insert(database.into(), BacklogPart::Anything(through));
        if let Some(BacklogPart::Sensors(entries, _)) = before {
            state.sensors -= entries.len();
            state.gone.push(entries);
        }
    }

    /// Whether readings of these sensors in these hours are in the backlog.
    pub fn has(&self, database: &str, keys: &[&str], hours: &Range<Hour>) -> bool {
        self.has_open(database, |entries, given| {
            keys.iter().any(|key| entries.get(*key).is_some_and(|entry| entry.spans.are_open(hours, given)))
        })
    }

    /// Whether readings of any `wanted` sensor are in the backlog.
    pub fn has_any(&self, database: &str, wanted: impl Fn(&str) -> bool) -> bool {
        self.has_open(database, |entries, given| {
            entries.iter().any(|(key, entry)| entry.spans.through() > given && wanted(key))
        })
    }

    /// Whether a test finds an open entry of a database, or its sensors are not told apart.
    fn has_open(&self, database: &str, is_open: impl FnOnce(&BacklogEntries, Sequence) -> bool) -> bool {
        let state = self.state.lock();
        let given = self.given();
        match state.databases.get(database) {
            _ if given < state.unknown => true,
            None => false,
            Some(BacklogPart::Anything(through)) => *through > given,
            Some(BacklogPart::Sensors(entries, _)) => is_open(entries, given),
        }
    }

    /// Whether it is unknown which sensors a database has, or with `None` which databases there are.
    pub fn is_unlisted(&self, database: Option<&str>) -> bool {
        let state = self.state.lock();
        let given = self.given();
        let waiting = database.and_then(|database| state.databases.get(database));
        given < state.unknown || matches!(waiting, Some(BacklogPart::Anything(through)) if *through > given)
    }

    /// The databases that are in the backlog.
    pub fn databases(&self) -> Vec<String> {
        let state = self.state.lock();
        let given = self.given();
        let open = state.databases.iter().filter(|(_, waiting)| waiting.extent().1 > given);
        open.map(|(name, _)| name.to_string()).collect()
    }

    /// The sensors of a database that have readings in the backlog, with their known fields.
    pub fn catalog_sensors(&self, database: &str, wanted: impl Fn(&str) -> bool) -> Vec<CatalogSensor> {
        let state = self.state.lock();
        let given = self.given();
        let Some(BacklogPart::Sensors(entries, _)) = state.databases.get(database) else { return Vec::new() };
        let is_open = |entry: &&BacklogEntry| wanted(&entry.sensor.key) && entry.spans.through() > given;
        let catalog_sensor = |entry: &BacklogEntry| CatalogSensor {
            sensor: entry.sensor.clone(),
            fields: entry.fields(),
            is_stored: false,
            meta: None,
            has_more_meta: false,
        };
        entries.values().filter(is_open).map(catalog_sensor).collect()
    }
}

impl BacklogEntry {
    fn fields(&self) -> Vec<(Arc<str>, Family)> {
        let mut fields = self.named.clone();
        if let Some(known) = &self.known {
            let known = known.firm().map(|(name, family)| (name.clone(), *family));
            let others: Vec<_> = known.filter(|(name, _)| !fields.iter().any(|(other, _)| other == name)).collect();
            fields.extend(others);
        }
        fields
    }

    /// Adds fields; returns whether any of them was new.
    fn add_fields(&mut self, fields: Named<'_>) -> bool {
        match fields {
            Named::Record(named) => {
                let is_new = |(name, _): &&(Arc<str>, Family)| !self.named.iter().any(|(known, _)| known == name);
                let new: Vec<_> = named.iter().filter(is_new).cloned().collect();
                let is_new = !new.is_empty();
                self.named.extend(new);
                is_new
            }
            Named::Known(fields) if self.known.as_ref().is_some_and(|known| Arc::ptr_eq(known, fields)) => false,
            Named::Known(fields) => {
                self.known = Some(fields.clone());
                true
            }
        }
    }
}

impl BacklogPart {
    /// How many sensors are tracked, and the last record that is about the database.
    fn extent(&self) -> (usize, Sequence) {
        match self {
            Self::Anything(through) => (0, *through),
            Self::Sensors(entries, through) => (entries.len(), *through),
        }
    }
}

impl BacklogState {
    fn forget_given(&mut self, given: Sequence) {
        self.databases.retain(|_, waiting| match waiting {
            BacklogPart::Anything(through) => *through > given,
            BacklogPart::Sensors(entries, _) => {
                entries.retain(|_, entry| entry.spans.through() > given);
                !entries.is_empty()
            }
        });
        self.sensors = self.databases.values().map(|waiting| waiting.extent().0).sum();
    }

    /// Makes room: forgets what was dispatched, then stops tracking sensors in the databases that have most.
    fn shrink(&mut self, given: Sequence, sensors: usize) {
        self.forget_given(given);
        while self.sensors > sensors {
            let widest = self.databases.values_mut().max_by_key(|waiting| waiting.extent().0);
            let Some(waiting) = widest else { return };
            let (count, through) = waiting.extent();
            *waiting = BacklogPart::Anything(through);
            self.sensors -= count;
        }
    }
}

/// A record being noted, under the backlog's lock.
#[derive(Debug)]
pub struct Noting<'a> {
    state: MutexGuard<'a, BacklogState>,
    database: &'a str,
    sequence: Sequence,
    given: Sequence,
    is_new: bool,
}

impl Noting<'_> {
    /// Notes that the record has readings of a sensor in these hours.
    pub fn sensor(&mut self, key: &str, hours: Range<Hour>, fields: Named<'_>, sensor: impl FnOnce() -> Arc<Sensor>) {
        let BacklogState { databases, sensors, .. } = &mut *self.state;
        if !databases.contains_key(self.database) {
            databases.insert(self.database.into(), BacklogPart::Sensors(HashMap::default(), self.sequence));
        }
        let Some(waiting) = databases.get_mut(self.database) else { return };
        if let BacklogPart::Anything(through) = waiting
            && *through <= self.given
        {
            *waiting = BacklogPart::Sensors(HashMap::default(), self.sequence);
        }
        let entries = match waiting {
            BacklogPart::Sensors(entries, through) => {
                *through = (*through).max(self.sequence);
                entries
            }
            BacklogPart::Anything(through) => {
                *through = (*through).max(self.sequence);
                return;
            }
        };
        if let Some(entry) = entries.get_mut(key) {
            // Dispatched sensors are listed by the catalog; from now on this one is listed here again.
            self.is_new |= entry.spans.through() <= self.given;
            entry.spans.add(hours, self.sequence, self.given);
            self.is_new |= entry.add_fields(fields);
            return;
        }
        let mut entry = BacklogEntry { sensor: sensor(), spans: HourSpans::default(), named: Vec::new(), known: None };
        entry.spans.add(hours, self.sequence, self.given);
        entry.add_fields(fields);
        entries.insert(key.into(), entry);
        *sensors += 1;
        self.is_new = true;
    }

    /// Ends the note. Returns whether lists of sensors and fields made before may lack something of the record.
    pub fn finish(self) -> bool {
        self.is_new
    }
}

#[cfg(test)]
mod tests;
