//! Remembered deletions: cells that a deletion covers stay deleted, even if an instance stores them again later.
//!
//! A deletion covers every cell of its sensors and times with a stamp below its own. It is remembered before it is
//! executed, and forgotten once neither a WAL nor the store can have a covered cell.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::readings::Readings;
use super::snapshot::Snapshot;
use crate::reading::{Hour, Sensor, Stamp};

/// A deletion, as listed in the member registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedDeletion {
    /// Cells with a stamp below this are deleted.
    pub stamp: Stamp,
    /// The database.
    pub database: String,
    /// The `InfluxQL` statement that selects the sensors; `None` if the database itself is dropped.
    pub statement: Option<String>,
    /// The range of times, in nanoseconds.
    pub range: Range<i64>,
    /// True if the deletion was executed once. Covered cells that are stored later are hidden from queries, and removed
    /// before the deletion is forgotten.
    pub done: bool,
}

impl RememberedDeletion {
    /// Returns true if both are the same deletion, regardless of `done`.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let key = |one: &Self| (one.stamp, one.range.start, one.range.end);
        key(self) == key(other) && self.has_same_target(other)
    }

    /// Returns true if this deletion covers every cell that the other one covers.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let is_wider = self.range.start <= other.range.start && other.range.end <= self.range.end;
        self.has_same_target(other) && is_wider && other.stamp <= self.stamp
    }

    fn has_same_target(&self, other: &Self) -> bool {
        self.database == other.database && self.statement == other.statement
    }
}

/// A test that returns true for the sensors that a deletion selects.
pub type SensorTest = Arc<dyn Fn(&Sensor) -> bool + Send + Sync>;

/// A function that compiles a statement into a test. For an invalid statement it reports the error and returns `None`,
/// and the deletion then selects no sensor.
pub type StatementCompiler = Arc<dyn Fn(&str) -> Option<SensorTest> + Send + Sync>;

/// A snapshot of all remembered deletions.
#[derive(Clone, Default)]
pub struct Deletions {
    /// Keyed by database; ordered as given, which is by stamp.
    by_database: HashMap<String, Vec<KnownDeletion>>,
}

#[derive(Clone)]
struct KnownDeletion {
    deletion: RememberedDeletion,
    test: Option<SensorTest>,
}

impl std::fmt::Debug for Deletions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = self.by_database.values().flatten().map(|known| &known.deletion);
        f.debug_list().entries(all).finish()
    }
}

/// The current remembered deletions, shared by readers and writers of the store.
pub type Masks = Snapshot<Deletions>;

/// The deleted parts of one sensor: ranges of times in nanoseconds, each with the stamp below which cells are deleted.
pub type Covers = Vec<(Range<i64>, Stamp)>;

impl Deletions {
    /// A snapshot of these deletions.
    #[must_use]
    pub fn new(all: &[RememberedDeletion], compile: &StatementCompiler) -> Self {
        let mut by_database: HashMap<String, Vec<KnownDeletion>> = HashMap::new();
        for deletion in all {
            let test = match deletion.statement.as_deref() {
                None => None,
                Some(statement) => {
                    let Some(test) = compile(statement) else { continue };
                    Some(test)
                }
            };
            let known = KnownDeletion { deletion: deletion.clone(), test };
            by_database.entry(deletion.database.clone()).or_default().push(known);
        }
        Self { by_database }
    }

    /// Returns true if there are deletions in a database.
    #[must_use]
    pub fn has_database(&self, database: &str) -> bool {
        self.by_database.contains_key(database)
    }

    /// Returns true if any deletion in a database overlaps these hours.
    #[must_use]
    pub fn has_hours(&self, database: &str, hours: &Range<Hour>) -> bool {
        let range = hours.start.start_ns()..hours.end.start_ns();
        let overlaps =
            |known: &KnownDeletion| known.deletion.range.start < range.end && range.start < known.deletion.range.end;
        self.by_database.get(database).is_some_and(|known| known.iter().any(overlaps))
    }

    /// The stamp below which all data of a sensor is deleted, including metadata: the greatest stamp of the deletions
    /// that cover the whole range `always`. 0 if there are none.
    #[must_use]
    pub fn sensor_deleted_below(&self, database: &str, sensor: &Sensor, always: &Range<i64>) -> Stamp {
        let is_whole = |known: &&KnownDeletion| {
            let times = &known.deletion.range;
            times.start <= always.start
                && always.end <= times.end
                && known.test.as_ref().is_none_or(|test| test(sensor))
        };
        let whole = self.by_database.get(database).into_iter().flatten().filter(is_whole);
        whole.map(|known| known.deletion.stamp).max().unwrap_or_default()
    }

    /// The deletions that select a sensor and overlap these hours.
    #[must_use]
    pub fn covers_for(&self, database: &str, sensor: &Sensor, hours: &Range<Hour>) -> Covers {
        let Some(known) = self.by_database.get(database) else { return Covers::new() };
        let range = hours.start.start_ns()..hours.end.start_ns();
        let applies = |known: &&KnownDeletion| {
            let times = &known.deletion.range;
            times.start < range.end && range.start < times.end && known.test.as_ref().is_none_or(|test| test(sensor))
        };
        let covers = known.iter().filter(applies);
        covers.map(|known| (known.deletion.range.clone(), known.deletion.stamp)).collect()
    }
}

/// Returns true if a cell with this time and stamp is deleted.
#[must_use]
pub fn covers(covers: &Covers, time: i64, stamp: Stamp) -> bool {
    covers.iter().any(|(range, before)| stamp < *before && range.contains(&time))
}

/// Removes the deleted cells from a set. Returns true if there were any.
pub fn cut(readings: &mut Readings, covers: &Covers) -> bool {
    covers.iter().fold(false, |cut, (range, before)| readings.delete(range, *before) > 0 || cut)
}
