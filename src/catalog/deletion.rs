//! Deletions: WAL records that take effect at their place among the readings. A deletion removes everything logged
//! before it and nothing logged after it, so a replay has the same result.
//!
//! A deletion has the stamp of its record. Cells with a smaller stamp are deleted, regardless of when and by which
//! instance they are stored. The registry therefore remembers the deletion before anything is removed, until no older
//! reading can arrive.
//!
//! A deletion blocks its database. Each shard that takes the deletion from its inbox stops starting flush tasks for
//! that database, waits for the running ones, and drops the deleted readings from its memtable. When all shards have
//! done so, the `Deleter` hides the readings of a time range, the shards continue, and the readings are then removed
//! from the store. A dropped database and single cells are removed before the shards continue. Other databases are not
//! affected.

use std::ops::Range;
use std::sync::Arc;

use crate::reading::time::{TIMESTAMP_MAX, TIMESTAMP_MIN};
use crate::reading::{Hour, Sensor, Stamp};

/// All valid timestamps of readings, in nanoseconds since the epoch.
pub const ALWAYS: Range<i64> = TIMESTAMP_MIN..TIMESTAMP_MAX + 1;

/// The hours of [`ALWAYS`].
pub const ALL_HOURS: Range<Hour> = Hour::from_ns(TIMESTAMP_MIN)..Hour(Hour::from_ns(TIMESTAMP_MAX).0 + 1);

/// A deletion request as the WAL has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Deletion {
    /// The time at which the request was received, in nanoseconds since the epoch.
    pub received: i64,
    pub database: String,
    pub scope: Scope,
}

/// The part of a database that a deletion removes.
#[derive(Debug, Clone, PartialEq)]
pub enum Scope {
    /// The database with everything in it.
    Database,
    /// The readings of these sensors in a time range. Sensors without remaining readings are deleted too.
    Readings {
        sensors: Vec<Sensor>,
        /// In nanoseconds since the epoch, half open.
        range: Range<i64>,
        /// The client's statement, from which other instances determine the sensors. If a deletion takes several
        /// records, only the last one has it.
        statement: Option<String>,
    },
    /// Nothing. Later deletions by value remove what is older than this record's stamp: see `members::marks`.
    Mark,
    /// A part of a deletion by value: the cells older than a mark at exactly these times. Everything older than the
    /// mark was in the store when the part was resolved, so the registry need not remember it.
    Cells {
        sensors: Vec<DeletedTimes>,
        /// The mark's stamp.
        mark: Stamp,
    },
}

/// The times at which the cells of a sensor are deleted, in ascending order.
#[derive(Debug, Clone, PartialEq)]
pub struct DeletedTimes {
    pub sensor: Sensor,
    pub times: Arc<[i64]>,
}

impl Deletion {
    /// Returns the deleted time range, in nanoseconds since the epoch, half open.
    pub fn range(&self) -> Range<i64> {
        match &self.scope {
            Scope::Database => ALWAYS,
            Scope::Readings { range, .. } => range.clone(),
            Scope::Mark => 0..0,
            Scope::Cells { sensors, .. } => {
                let first = sensors.iter().filter_map(|deleted| deleted.times.first()).min();
                let last = sensors.iter().filter_map(|deleted| deleted.times.last()).max();
                first.zip(last).map_or(0..0, |(first, last)| *first..last.saturating_add(1))
            }
        }
    }

    /// Describes the deletion in messages, with at most the first 200 characters of its statement.
    pub fn description(&self) -> String {
        match &self.scope {
            Scope::Database => "DROP DATABASE".to_owned(),
            Scope::Readings { statement: Some(statement), .. } => statement.chars().take(200).collect(),
            Scope::Readings { statement: None, .. } => "a part of a longer deletion".to_owned(),
            Scope::Mark | Scope::Cells { .. } => "a part of a deletion by value".to_owned(),
        }
    }

    /// Returns the size of the statement in bytes. The registry's document holds it.
    pub fn statement_bytes(&self) -> usize {
        match &self.scope {
            Scope::Database | Scope::Mark | Scope::Cells { .. } => 0,
            Scope::Readings { statement, .. } => statement.as_ref().map_or(0, String::len),
        }
    }

    /// Returns true if the deletion covers all times, so that its sensors are deleted with their readings.
    pub fn covers_all_times(&self) -> bool {
        let range = self.range();
        let is_by_value = matches!(self.scope, Scope::Mark | Scope::Cells { .. });
        !is_by_value && range.start <= ALWAYS.start && range.end == ALWAYS.end
    }

    /// Returns the hours that the deletion touches.
    pub fn hours(&self) -> Range<Hour> {
        let range = self.range();
        if range.is_empty() {
            Hour(0)..Hour(0)
        } else {
            Hour::from_ns(range.start)..Hour::from_ns(range.end - 1).next()
        }
    }
}
