//! Deletions: WAL records, applied at their place among the readings. A deletion removes what was logged before it and
//! leaves what is logged after it; a replay of both has the same result.
//!
//! A deletion's stamp is that of its record: cells with a smaller stamp are deleted, whichever instance stores them and
//! however late. So that all instances know this, the registry remembers the deletion before anything is removed, and
//! until no older reading can arrive any more.
//!
//! A deletion blocks its database. Every shard that takes the deletion from its inbox starts no further flush task for
//! that database, waits for those under way, and drops the readings in its memtable that are deleted. When all shards
//! have done so, the `Deleter` removes the readings from the store, and the shards continue. Other databases are not
//! affected.

use std::ops::Range;
use std::sync::Arc;

use crate::reading::time::{TIMESTAMP_MAX, TIMESTAMP_MIN};
use crate::reading::{Hour, Sensor, Stamp};

/// All times that a reading can have, in nanoseconds.
pub const ALWAYS: Range<i64> = TIMESTAMP_MIN..TIMESTAMP_MAX + 1;

/// The hours of [`ALWAYS`].
pub const ALL_HOURS: Range<Hour> = Hour::of(TIMESTAMP_MIN)..Hour(Hour::of(TIMESTAMP_MAX).0 + 1);

#[derive(Debug, Clone, PartialEq)]
pub struct Deletion {
    /// When the request was received, in nanoseconds since the epoch.
    pub received: i64,
    pub database: String,
    pub scope: Scope,
}

/// What is deleted of a database.
#[derive(Debug, Clone, PartialEq)]
pub enum Scope {
    /// The database with everything in it.
    Database,
    /// The readings of these sensors in a range of times. A sensor without any remaining reading is deleted too.
    Readings {
        sensors: Vec<Sensor>,
        /// In nanoseconds since the epoch, half open.
        range: Range<i64>,
        /// The client's statement, from which other instances determine the sensors. A deletion that takes several
        /// records has it in the last one.
        statement: Option<String>,
    },
    /// Deletes nothing by itself. Its stamp is what deletions by value that are logged later cover: see `marks`.
    Mark,
    /// A part of a deletion by value: cells that are older than a mark, at exactly these times. It has been resolved when
    /// everything older than the mark was in the store, so it need not be remembered.
    Cells {
        sensors: Vec<DeletedTimes>,
        /// The mark's stamp.
        before: Stamp,
    },
}

/// Times at which a sensor loses its cells, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct DeletedTimes {
    pub sensor: Sensor,
    pub times: Arc<[i64]>,
}

impl Deletion {
    /// The times that are deleted, in nanoseconds since the epoch, half open.
    pub fn range(&self) -> Range<i64> {
        match &self.scope {
            Scope::Database => ALWAYS,
            Scope::Readings { range, .. } => range.clone(),
            Scope::Mark => 0..0,
            Scope::Cells { sensors, .. } => {
                let first = sensors.iter().filter_map(|of| of.times.first()).min();
                let last = sensors.iter().filter_map(|of| of.times.last()).max();
                first.zip(last).map_or(0..0, |(first, last)| *first..last.saturating_add(1))
            }
        }
    }

    /// What it deletes, for messages: at most the first 200 characters of its statement.
    pub fn shown(&self) -> String {
        match &self.scope {
            Scope::Database => "DROP DATABASE".to_owned(),
            Scope::Readings { statement: Some(statement), .. } => statement.chars().take(200).collect(),
            Scope::Readings { statement: None, .. } => "a part of a longer deletion".to_owned(),
            Scope::Mark | Scope::Cells { .. } => "a part of a deletion by value".to_owned(),
        }
    }

    /// Bytes of its statement, which the registry's document holds.
    pub fn statement_bytes(&self) -> usize {
        match &self.scope {
            Scope::Database | Scope::Mark | Scope::Cells { .. } => 0,
            Scope::Readings { statement, .. } => statement.as_ref().map_or(0, String::len),
        }
    }

    /// Whether it covers all times, so that its sensors are deleted with their readings.
    pub fn is_of_all_times(&self) -> bool {
        let range = self.range();
        let is_of_times = matches!(self.scope, Scope::Mark | Scope::Cells { .. });
        !is_of_times && range.start <= ALWAYS.start && range.end == ALWAYS.end
    }

    /// The hours that the deletion touches.
    pub fn hours(&self) -> Range<Hour> {
        let range = self.range();
        if range.is_empty() { Hour(0)..Hour(0) } else { Hour::of(range.start)..Hour::of(range.end - 1).next() }
    }
}
