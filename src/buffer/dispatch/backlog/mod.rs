//! The backlog: the sensors and hours of the records that the WAL has and the shards do not have yet. During a replay,
//! queries for other sensors and hours are answered. The backlog is bounded. Beyond the bound, it covers whole
//! databases.

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

/// Maximum number of tracked sensors in all databases.
const SENSORS_MAX: usize = 250_000;
/// Estimated memory of a tracked sensor, in bytes.
const SENSOR_BYTES: usize = 300;

/// Returns the maximum number of tracked sensors, which may take an eighth of the memory for unflushed readings.
#[must_use]
pub fn sensors_max(memtable_bytes: usize) -> usize {
    (memtable_bytes / 8 / SENSOR_BYTES).min(SENSORS_MAX)
}

/// The backlog of all databases.
#[derive(Debug)]
pub struct Backlog {
    /// The last dispatched record.
    dispatched: AtomicU64,
    state: Mutex<BacklogState>,
    sensors_max: usize,
}

#[derive(Debug, Default)]
struct BacklogState {
    /// The last record that has not been scanned yet. Unscanned records may concern any sensor.
    unscanned: Sequence,
    databases: HashMap<Box<str>, BacklogPart>,
    /// The number of tracked sensors.
    sensors: usize,
    /// Entries that the replay task frees. The WAL's thread notes records and would delay acks by freeing them.
    removed: Vec<BacklogEntries>,
}

/// Entries by sensor key.
type BacklogEntries = HashMap<Box<str>, BacklogEntry, RandomState>;

/// The backlog of a database.
#[derive(Debug)]
enum BacklogPart {
    /// The sensors with readings in the backlog, and the last record with readings of any of them.
    Sensors(BacklogEntries, Sequence),
    /// Records up to this one may concern any sensor, because there are too many sensors, a deletion or metadata.
    Anything(Sequence),
}

/// The backlog of a sensor.
#[derive(Debug)]
struct BacklogEntry {
    sensor: Arc<Sensor>,
    spans: HourSpans,
    /// Fields from scanned records.
    scanned: Vec<(Arc<str>, Family)>,
    /// The known fields when admission last logged a request with this sensor.
    known: Option<Arc<SensorFields>>,
}

/// The fields of a sensor in a record.
#[derive(Debug, Clone, Copy)]
pub enum NotedFields<'a> {
    /// The fields of a scanned record.
    Scanned(&'a [(Arc<str>, Family)]),
    /// The known fields at admission.
    Known(&'a Arc<SensorFields>),
}

impl Backlog {
    /// Creates a backlog of the unscanned records after `dispatched` and up to `last`.
    pub fn new(dispatched: Sequence, last: Sequence, sensors_max: usize) -> Self {
        let state = BacklogState { unscanned: last, ..BacklogState::default() };
        Self { dispatched: AtomicU64::new(dispatched), state: Mutex::new(state), sensors_max }
    }

    /// Returns the last record that the replay has dispatched.
    pub fn last_dispatched(&self) -> Sequence {
        self.dispatched.load(Ordering::Acquire)
    }

    /// Notes that every record up to this one was dispatched, so that queries find its readings in the shards.
    pub fn note_dispatched(&self, sequence: Sequence) {
        self.dispatched.fetch_max(sequence, Ordering::AcqRel);
    }

    /// As [`Backlog::note_dispatched`], and removes the entries of these records.
    pub fn forget_dispatched(&self, sequence: Sequence) {
        self.note_dispatched(sequence);
        // Free the entries after the lock is released.
        let _removed = {
            let mut state = self.state.lock();
            state.forget_dispatched(self.last_dispatched());
            std::mem::take(&mut state.removed)
        };
    }

    /// Notes that the scan is complete.
    pub fn note_scanned(&self) {
        self.state.lock().unscanned = 0;
    }

    /// Begins a note of the sensors and hours of a record.
    pub fn begin_note<'a>(&'a self, database: &'a str, sequence: Sequence) -> BacklogNote<'a> {
        let mut state = self.state.lock();
        let dispatched = self.last_dispatched();
        if state.sensors >= self.sensors_max {
            state.shrink(dispatched, self.sensors_max / 4 * 3);
        }
        BacklogNote { state, database, sequence, dispatched, is_new: false }
    }

    /// Notes a deletion or a change of metadata. The database's entries do not apply to later records, because such a
    /// record can change the known sensors.
    pub fn note_change(&self, database: &str, sequence: Sequence) {
        let mut state = self.state.lock();
        let through = state.databases.get(database).map_or(0, BacklogPart::through).max(sequence);
        let before = state.databases.insert(database.into(), BacklogPart::Anything(through));
        if let Some(BacklogPart::Sensors(entries, _)) = before {
            state.sensors -= entries.len();
            state.removed.push(entries);
        }
    }

    /// Returns true if readings of these sensors in these hours may be in the backlog.
    pub fn has(&self, database: &str, keys: &[&str], hours: &Range<Hour>) -> bool {
        self.has_open(database, |entries, dispatched| {
            keys.iter().any(|key| entries.get(*key).is_some_and(|entry| entry.spans.are_open(hours, dispatched)))
        })
    }

    /// Returns true if readings of any `wanted` sensor may be in the backlog.
    pub fn has_any(&self, database: &str, wanted: impl Fn(&str) -> bool) -> bool {
        self.has_open(database, |entries, dispatched| {
            entries.iter().any(|(key, entry)| entry.spans.through() > dispatched && wanted(key))
        })
    }

    /// Returns true if `is_open` does for the entries of a database, or if its sensors are not tracked.
    fn has_open(&self, database: &str, is_open: impl FnOnce(&BacklogEntries, Sequence) -> bool) -> bool {
        let state = self.state.lock();
        let dispatched = self.last_dispatched();
        if dispatched < state.unscanned {
            return true;
        }
        match state.databases.get(database) {
            None => false,
            Some(BacklogPart::Anything(through)) => *through > dispatched,
            Some(BacklogPart::Sensors(entries, _)) => is_open(entries, dispatched),
        }
    }

    /// Returns true if the sensors of a database are not all known yet, or with `None` the databases.
    pub fn is_unlisted(&self, database: Option<&str>) -> bool {
        let state = self.state.lock();
        let dispatched = self.last_dispatched();
        let part = database.and_then(|database| state.databases.get(database));
        dispatched < state.unscanned || matches!(part, Some(BacklogPart::Anything(through)) if *through > dispatched)
    }

    /// Returns the databases that are in the backlog.
    pub fn databases(&self) -> Vec<String> {
        let state = self.state.lock();
        let dispatched = self.last_dispatched();
        let open = state.databases.iter().filter(|(_, part)| part.through() > dispatched);
        open.map(|(name, _)| name.to_string()).collect()
    }

    /// Returns the `wanted` sensors of a database with readings in the backlog, with their known fields.
    pub fn catalog_sensors(&self, database: &str, wanted: impl Fn(&str) -> bool) -> Vec<CatalogSensor> {
        let state = self.state.lock();
        let dispatched = self.last_dispatched();
        let Some(BacklogPart::Sensors(entries, _)) = state.databases.get(database) else { return Vec::new() };
        let is_open = |entry: &&BacklogEntry| wanted(&entry.sensor.key) && entry.spans.through() > dispatched;
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
        let mut fields = self.scanned.clone();
        if let Some(known) = &self.known {
            let known = known.firm().map(|(name, family)| (name.clone(), *family));
            let others: Vec<_> = known.filter(|(name, _)| !fields.iter().any(|(other, _)| other == name)).collect();
            fields.extend(others);
        }
        fields
    }

    /// Adds fields. Returns true if any of them may be new.
    fn add_fields(&mut self, fields: NotedFields<'_>) -> bool {
        match fields {
            NotedFields::Scanned(fields) => {
                let is_new = |(name, _): &&(Arc<str>, Family)| !self.scanned.iter().any(|(known, _)| known == name);
                let new: Vec<_> = fields.iter().filter(is_new).cloned().collect();
                let has_new = !new.is_empty();
                self.scanned.extend(new);
                has_new
            }
            NotedFields::Known(fields) if self.known.as_ref().is_some_and(|known| Arc::ptr_eq(known, fields)) => false,
            NotedFields::Known(fields) => {
                self.known = Some(fields.clone());
                true
            }
        }
    }
}

impl BacklogPart {
    /// Returns the number of tracked sensors.
    fn sensors(&self) -> usize {
        match self {
            Self::Anything(_) => 0,
            Self::Sensors(entries, _) => entries.len(),
        }
    }

    /// Returns the last record that concerns the database.
    fn through(&self) -> Sequence {
        match self {
            Self::Anything(through) | Self::Sensors(_, through) => *through,
        }
    }
}

impl BacklogState {
    fn forget_dispatched(&mut self, dispatched: Sequence) {
        self.databases.retain(|_, part| match part {
            BacklogPart::Anything(through) => *through > dispatched,
            BacklogPart::Sensors(entries, _) => {
                entries.retain(|_, entry| entry.spans.through() > dispatched);
                !entries.is_empty()
            }
        });
        self.sensors = self.databases.values().map(BacklogPart::sensors).sum();
    }

    /// Removes dispatched entries. Then, until at most `sensors` are left, stops tracking the database with most
    /// sensors.
    fn shrink(&mut self, dispatched: Sequence, sensors: usize) {
        self.forget_dispatched(dispatched);
        while self.sensors > sensors {
            let Some(largest) = self.databases.values_mut().max_by_key(|part| part.sensors()) else { return };
            self.sensors -= largest.sensors();
            *largest = BacklogPart::Anything(largest.through());
        }
    }
}

/// A note of one record. Holds the backlog's lock.
#[derive(Debug)]
pub struct BacklogNote<'a> {
    state: MutexGuard<'a, BacklogState>,
    database: &'a str,
    sequence: Sequence,
    dispatched: Sequence,
    /// True if earlier lists of sensors and fields may lack something of the record.
    is_new: bool,
}

impl BacklogNote<'_> {
    /// Adds a sensor with readings in these hours.
    pub fn add_sensor(
        &mut self,
        key: &str,
        hours: Range<Hour>,
        fields: NotedFields<'_>,
        sensor: impl FnOnce() -> Arc<Sensor>,
    ) {
        let BacklogState { databases, sensors, .. } = &mut *self.state;
        if !databases.contains_key(self.database) {
            databases.insert(self.database.into(), BacklogPart::Sensors(HashMap::default(), self.sequence));
        }
        let Some(part) = databases.get_mut(self.database) else { return };
        if let BacklogPart::Anything(through) = part
            && *through <= self.dispatched
        {
            *part = BacklogPart::Sensors(HashMap::default(), self.sequence);
        }
        let entries = match part {
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
            // The catalog lists dispatched sensors. From now on, the backlog lists this one again.
            self.is_new |= entry.spans.through() <= self.dispatched;
            entry.spans.add(hours, self.sequence, self.dispatched);
            self.is_new |= entry.add_fields(fields);
            return;
        }
        let mut entry =
            BacklogEntry { sensor: sensor(), spans: HourSpans::default(), scanned: Vec::new(), known: None };
        entry.spans.add(hours, self.sequence, self.dispatched);
        entry.add_fields(fields);
        entries.insert(key.into(), entry);
        *sensors += 1;
        self.is_new = true;
    }

    /// Ends the note. Returns true if earlier lists of sensors and fields may lack something of the record.
    pub fn finish(self) -> bool {
        self.is_new
    }
}

#[cfg(test)]
mod tests;
