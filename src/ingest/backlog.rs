//! What the log holds and the shards were not given yet, by sensor and hour: queries about anything else are answered
//! while it is read back. Bounded; beyond the bound it tells databases apart and nothing finer. Knows no file, no shard
//! and no query.

mod scan;
mod spans;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rapidhash::fast::RandomState;

pub use self::scan::BacklogScan;

use self::spans::Spans;
use super::catalog::Fields;
use crate::bucket::Met;
use crate::log::Sequence;
use crate::reading::{Family, Hour, Sensor};

/// Most sensors that are told apart, of all databases. Each takes about 300 bytes.
pub const SENSORS_MAX: usize = 250_000;

/// What is logged and not given to the shards yet.
#[derive(Debug)]
pub struct Backlog {
    /// Every record up to here was given to the shards.
    given: AtomicU64,
    state: Mutex<State>,
    sensors_max: usize,
}

#[derive(Debug, Default)]
struct State {
    /// Nobody has looked yet what the records up to here are about.
    unknown: Sequence,
    databases: HashMap<Box<str>, Waiting>,
    /// How many sensors are told apart.
    sensors: usize,
    /// Of no use any more: whoever reads the log back frees it, since acks wait for those who note what is logged.
    gone: Vec<Entries>,
}

/// By the sensors' keys.
type Entries = HashMap<Box<str>, Entry, RandomState>;

/// What of a database is not given yet.
#[derive(Debug)]
enum Waiting {
    /// Readings of these sensors, and the last record that has any.
    Sensors(Entries, Sequence),
    /// Whatever the records up to here are about: too many sensors, or something is deleted.
    Anything(Sequence),
}

#[derive(Debug)]
struct Entry {
    sensor: Arc<Sensor>,
    spans: Spans,
    /// As its records name them.
    named: Vec<(Arc<str>, Family)>,
    /// As admission knew them when the last of its requests was logged.
    known: Option<Arc<Fields>>,
}

/// The fields of a sensor, as whoever notes a record knows them.
#[derive(Debug, Clone, Copy)]
pub enum Named<'a> {
    /// By the record itself.
    Record(&'a [(Arc<str>, Family)]),
    /// By admission.
    Known(&'a Arc<Fields>),
}

impl Backlog {
    /// Nothing given behind `given`, and nothing known of the records up to `last`.
    pub fn new(given: Sequence, last: Sequence, sensors_max: usize) -> Self {
        let state = State { unknown: last, ..State::default() };
        Self { given: AtomicU64::new(given), state: Mutex::new(state), sensors_max }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last record that the shards were given, as far as records were read back.
    pub fn given(&self) -> Sequence {
        self.given.load(Ordering::Acquire)
    }

    /// The shards were given everything up to this record: whoever asks them from now on meets it.
    pub fn give(&self, sequence: Sequence) {
        self.given.fetch_max(sequence, Ordering::AcqRel);
    }

    /// The shards were given everything up to this record, and what was noted of that is of no use any more.
    pub fn give_all(&self, sequence: Sequence) {
        self.give(sequence);
        let gone = {
            let mut state = self.lock();
            state.forget_given(self.given());
            std::mem::take(&mut state.gone)
        };
        drop(gone);
    }

    /// All records that nobody had looked at are noted.
    pub fn scanned(&self) {
        self.lock().unknown = 0;
    }

    /// Begins to note what a record is about.
    pub fn noting<'a>(&'a self, database: &'a str, sequence: Sequence) -> Noting<'a> {
        let mut state = self.lock();
        let given = self.given();
        if state.sensors >= self.sensors_max {
            state.shrink(given, self.sensors_max / 4 * 3);
        }
        Noting { state, database, sequence, given, is_new: false }
    }

    /// Notes a record after which nothing that is known of a database's sensors need be so any more.
    pub fn note_deletion(&self, database: &str, sequence: Sequence) {
        let mut state = self.lock();
        let through = state.databases.get(database).map_or(0, |waiting| waiting.extent().1).max(sequence);
        let before = state.databases.insert(database.into(), Waiting::Anything(through));
        if let Some(Waiting::Sensors(entries, _)) = before {
            state.sensors -= entries.len();
            state.gone.push(entries);
        }
    }

    /// Whether readings of these sensors in these hours are still to be given.
    pub fn has(&self, database: &str, keys: &[&str], hours: &Range<Hour>) -> bool {
        let state = self.lock();
        let given = self.given();
        match state.databases.get(database) {
            _ if given < state.unknown => true,
            None => false,
            Some(Waiting::Anything(through)) => *through > given,
            Some(Waiting::Sensors(entries, _)) => {
                keys.iter().any(|key| entries.get(*key).is_some_and(|entry| entry.spans.are_open(hours, given)))
            }
        }
    }

    /// Whether readings of any sensor with such a key are still to be given.
    pub fn has_any(&self, database: &str, wanted: impl Fn(&str) -> bool) -> bool {
        let state = self.lock();
        let given = self.given();
        match state.databases.get(database) {
            _ if given < state.unknown => true,
            None => false,
            Some(Waiting::Anything(through)) => *through > given,
            Some(Waiting::Sensors(entries, _)) => {
                entries.iter().any(|(key, entry)| entry.spans.through() > given && wanted(key))
            }
        }
    }

    /// Whether nobody can tell which sensors a database has, or with `None` which databases there are.
    pub fn is_unlisted(&self, database: Option<&str>) -> bool {
        let state = self.lock();
        let given = self.given();
        let waiting = database.and_then(|database| state.databases.get(database));
        given < state.unknown || matches!(waiting, Some(Waiting::Anything(through)) if *through > given)
    }

    /// The databases of which something is still to be given.
    pub fn databases(&self) -> Vec<String> {
        let state = self.lock();
        let given = self.given();
        let open = state.databases.iter().filter(|(_, waiting)| waiting.extent().1 > given);
        open.map(|(name, _)| name.to_string()).collect()
    }

    /// The sensors of a database that have readings still to be given, with the fields that are known of them.
    pub fn met(&self, database: &str, wanted: impl Fn(&str) -> bool) -> Vec<Met> {
        let state = self.lock();
        let given = self.given();
        let Some(Waiting::Sensors(entries, _)) = state.databases.get(database) else { return Vec::new() };
        let is_open = |entry: &&Entry| wanted(&entry.sensor.key) && entry.spans.through() > given;
        let met = |entry: &Entry| Met { sensor: entry.sensor.clone(), fields: entry.fields(), is_stored: false };
        entries.values().filter(is_open).map(met).collect()
    }
}

impl Entry {
    fn fields(&self) -> Vec<(Arc<str>, Family)> {
        let mut fields = self.named.clone();
        if let Some(known) = &self.known {
            let known = known.firm().map(|(name, family)| (name.clone(), *family));
            let others: Vec<_> = known.filter(|(name, _)| !fields.iter().any(|(other, _)| other == name)).collect();
            fields.extend(others);
        }
        fields
    }

    /// Whether any of them was new.
    fn learn(&mut self, fields: Named<'_>) -> bool {
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

impl Waiting {
    /// How many sensors are told apart, and the last record that is about any of it.
    fn extent(&self) -> (usize, Sequence) {
        match self {
            Self::Anything(through) => (0, *through),
            Self::Sensors(entries, through) => (entries.len(), *through),
        }
    }
}

impl State {
    fn forget_given(&mut self, given: Sequence) {
        self.databases.retain(|_, waiting| match waiting {
            Waiting::Anything(through) => *through > given,
            Waiting::Sensors(entries, _) => {
                entries.retain(|_, entry| entry.spans.through() > given);
                !entries.is_empty()
            }
        });
        self.sensors = self.databases.values().map(|waiting| waiting.extent().0).sum();
    }

    /// Makes room: what is given goes, then the databases with most sensors are not told apart any more.
    fn shrink(&mut self, given: Sequence, sensors: usize) {
        self.forget_given(given);
        while self.sensors > sensors {
            let widest = self.databases.values_mut().max_by_key(|waiting| waiting.extent().0);
            let Some(waiting) = widest else { return };
            let (count, through) = waiting.extent();
            *waiting = Waiting::Anything(through);
            self.sensors -= count;
        }
    }
}

/// What a record is about, while it is noted.
#[derive(Debug)]
pub struct Noting<'a> {
    state: MutexGuard<'a, State>,
    database: &'a str,
    sequence: Sequence,
    given: Sequence,
    is_new: bool,
}

impl Noting<'_> {
    /// Notes that the record has readings of a sensor in these hours.
    pub fn sensor(&mut self, key: &str, hours: Range<Hour>, fields: Named<'_>, sensor: impl FnOnce() -> Arc<Sensor>) {
        let State { databases, sensors, .. } = &mut *self.state;
        if !databases.contains_key(self.database) {
            databases.insert(self.database.into(), Waiting::Sensors(HashMap::default(), self.sequence));
        }
        let Some(waiting) = databases.get_mut(self.database) else { return };
        if let Waiting::Anything(through) = waiting
            && *through <= self.given
        {
            *waiting = Waiting::Sensors(HashMap::default(), self.sequence);
        }
        let entries = match waiting {
            Waiting::Sensors(entries, through) => {
                *through = (*through).max(self.sequence);
                entries
            }
            Waiting::Anything(through) => {
                *through = (*through).max(self.sequence);
                return;
            }
        };
        if let Some(entry) = entries.get_mut(key) {
            // What was given went to the catalog, from where others look it up, until now.
            self.is_new |= entry.spans.through() <= self.given;
            entry.spans.add(hours, self.sequence, self.given);
            self.is_new |= entry.learn(fields);
            return;
        }
        let mut entry = Entry { sensor: sensor(), spans: Spans::default(), named: Vec::new(), known: None };
        entry.spans.add(hours, self.sequence, self.given);
        entry.learn(fields);
        entries.insert(key.into(), entry);
        *sensors += 1;
        self.is_new = true;
    }

    /// All of it is noted: whether lists of sensors and fields that were made before may lack something of it.
    pub fn finish(self) -> bool {
        self.is_new
    }
}

#[cfg(test)]
mod tests;
