//! Deletions that are remembered: what they cover is gone, whoever brings it to the store once more.
//!
//! A deletion covers every cell of the sensors and times that it names whose stamp is smaller than its own. It is
//! remembered from before it is carried out until no log has anything older, and the store neither.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use super::readings::Readings;
use crate::reading::{Hour, Sensor, Stamp};

/// A deletion as all members of a store know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    /// What is older is deleted.
    pub stamp: Stamp,
    /// In which database.
    pub database: String,
    /// Which sensors, as a statement that was asked; `None` for all of the database, which goes itself.
    pub statement: Option<String>,
    /// Which times, in nanoseconds.
    pub range: Range<i64>,
    /// What was there has been removed once. What comes later and is older is hidden, and removed before it is forgotten.
    pub done: bool,
}

impl Remembered {
    /// Whether it is the same deletion, be it done or not.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let key = |of: &Self| (of.stamp, of.range.start, of.range.end);
        key(self) == key(other) && (&self.database, &self.statement) == (&other.database, &other.statement)
    }
}

/// Whether a deletion is about a sensor.
pub type SensorTest = Arc<dyn Fn(&Sensor) -> bool + Send + Sync>;

/// Makes a test of a statement. One that it does not understand is about no sensor, which is said where it is made.
pub type Understand = Arc<dyn Fn(&str) -> Option<SensorTest> + Send + Sync>;

/// All deletions that are remembered at a moment.
#[derive(Clone, Default)]
pub struct Deletions {
    /// By database, in the order of their stamps.
    by_database: HashMap<String, Vec<Known>>,
}

#[derive(Clone)]
struct Known {
    deletion: Remembered,
    test: Option<SensorTest>,
}

impl std::fmt::Debug for Deletions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = self.by_database.values().flatten().map(|known| &known.deletion);
        f.debug_list().entries(all).finish()
    }
}

/// The deletions that are remembered now, shared by whoever reads and writes.
#[derive(Debug, Clone, Default)]
pub struct Masks(Arc<RwLock<Arc<Deletions>>>);

impl Masks {
    /// As they are now.
    #[must_use]
    pub fn now(&self) -> Arc<Deletions> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Others from now on.
    pub fn set(&self, deletions: Deletions) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(deletions);
    }
}

/// What is deleted of one sensor: ranges of times, each with the stamp below which it is.
pub type Covers = Vec<(Range<i64>, Stamp)>;

impl Deletions {
    /// These.
    #[must_use]
    pub fn new(all: &[Remembered], understand: &Understand) -> Self {
        let mut by_database: HashMap<String, Vec<Known>> = HashMap::new();
        for deletion in all {
            let test = deletion.statement.as_deref().map(|statement| understand(statement));
            let test = match test {
                None => None,
                Some(Some(test)) => Some(test),
                Some(None) => continue,
            };
            let known = Known { deletion: deletion.clone(), test };
            by_database.entry(deletion.database.clone()).or_default().push(known);
        }
        Self { by_database }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_database.is_empty()
    }

    /// Whether there is one of a database.
    #[must_use]
    pub fn is_about(&self, database: &str) -> bool {
        !self.by_database.is_empty() && self.by_database.contains_key(database)
    }

    /// What is deleted of a sensor's hours.
    #[must_use]
    pub fn of(&self, database: &str, sensor: &Sensor, hours: &Range<Hour>) -> Covers {
        let Some(known) = self.by_database.get(database) else { return Covers::new() };
        let range = hours.start.start_ns()..hours.end.start_ns();
        let is_about = |known: &&Known| {
            let times = &known.deletion.range;
            times.start < range.end && range.start < times.end && known.test.as_ref().is_none_or(|test| test(sensor))
        };
        let covers = known.iter().filter(is_about);
        covers.map(|known| (known.deletion.range.clone(), known.deletion.stamp)).collect()
    }
}

/// Whether a reading that comes with a stamp is deleted.
#[must_use]
pub fn covers(covers: &Covers, time: i64, stamp: Stamp) -> bool {
    covers.iter().any(|(range, before)| stamp < *before && range.contains(&time))
}

/// Takes what is deleted out of a set; whether there was anything.
pub fn cut(readings: &mut Readings, covers: &Covers) -> bool {
    covers.iter().fold(false, |cut, (range, before)| readings.delete(range, *before) > 0 || cut)
}
