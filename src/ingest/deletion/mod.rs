//! Deletions: records of the log, applied in their place among the readings. What was logged before one
//! is deleted, what is logged after it stays, and a restart that replays both does the same again.
//!
//! A deletion's stamp is that of its record: what is older goes, whoever brings it to the store, and however late. So that
//! all know, the registry remembers it before anything is removed, and until nothing older can come any more.
//!
//! A deletion has its database to itself. Every shard that meets one in its inbox starts no flight of that database any more
//! and lets those under way land; what it holds of what is to go, it drops. When all shards have come that far
//! the [`Deleter`] removes it from the store, and the shards go on. Other databases notice nothing of it.

mod deleter;
mod record;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

pub use self::deleter::{Deleter, Turns};
pub use self::record::{KIND_DELETION, decode, encode};

use super::catalog::Doomed;
use super::progress::{Queued, Ticket, Tracked};
use super::shard::Taken;
use crate::bucket::deletions::Remembered;
use crate::log::Sequence;
use crate::reading::time::{TIMESTAMP_MAX, TIMESTAMP_MIN};
use crate::reading::{Hour, Sensor};

/// All times that a reading can have.
pub const ALWAYS: Range<i64> = TIMESTAMP_MIN..TIMESTAMP_MAX + 1;

/// And all hours.
pub const ALL_HOURS: Range<Hour> = Hour::of(TIMESTAMP_MIN)..Hour(Hour::of(TIMESTAMP_MAX).0 + 1);

/// What is to be deleted.
#[derive(Debug, Clone, PartialEq)]
pub struct Deletion {
    /// When it was received, in nanoseconds.
    pub received: i64,
    /// The database's name.
    pub database: String,
    /// What of it.
    pub scope: Scope,
}

/// What of a database.
#[derive(Debug, Clone, PartialEq)]
pub enum Scope {
    /// All of it.
    Database,
    /// The readings of these sensors in a range of times, in nanoseconds. A sensor that has none left goes too.
    Readings {
        /// Whose.
        sensors: Vec<Sensor>,
        /// Half open.
        range: Range<i64>,
        /// What was asked, by which other members know which sensors it is about. Of a deletion in several records the
        /// last one has it.
        statement: Option<String>,
    },
}

impl Deletion {
    /// The times that are deleted.
    pub fn range(&self) -> Range<i64> {
        match &self.scope {
            Scope::Database => ALWAYS,
            Scope::Readings { range, .. } => range.clone(),
        }
    }

    /// The bytes by which the others are told of it.
    pub fn statement_bytes(&self) -> usize {
        match &self.scope {
            Scope::Database => 0,
            Scope::Readings { statement, .. } => statement.as_ref().map_or(0, String::len),
        }
    }

    /// Whether nothing is left of the sensors that it is about.
    pub fn is_of_all_times(&self) -> bool {
        let range = self.range();
        range.start <= ALWAYS.start && range.end == ALWAYS.end
    }

    /// The hours of which something is deleted.
    pub fn hours(&self) -> Range<Hour> {
        let range = self.range();
        if range.is_empty() { Hour(0)..Hour(0) } else { Hour::of(range.start)..Hour::of(range.end - 1).next() }
    }
}

/// A deletion that is logged and fed, and not done yet.
#[derive(Debug)]
pub struct Pending {
    /// What is deleted.
    pub deletion: Deletion,
    /// What that is to shards.
    pub doomed: Doomed,
    /// How many shards have nothing under way any more, and nothing left of it.
    pub arrived: Semaphore,
    /// What shards had of a database that goes as a whole.
    taken: Mutex<Vec<Taken>>,
    /// Given back when it is done.
    pub ticket: Arc<Ticket>,
    /// What waits to be deleted is bounded like readings that wait before the shards.
    _queued: Arc<Queued>,
}

impl Pending {
    /// A deletion that no shard has met yet.
    pub fn new(deletion: Deletion, doomed: Doomed, (ticket, queued): Tracked) -> Self {
        Self { deletion, doomed, arrived: Semaphore::new(0), taken: Mutex::default(), ticket, _queued: queued }
    }

    /// Takes over what a shard had of a database that goes as a whole: freeing it takes a while.
    pub fn take_over(&self, taken: Taken) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).push(taken);
    }

    /// What was taken over so far.
    pub fn taken(&self) -> Vec<Taken> {
        std::mem::take(&mut *self.taken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As all members are to know it; `None` for what another record says.
    pub fn remembered(&self) -> Option<Remembered> {
        let statement = match &self.deletion.scope {
            Scope::Database => None,
            Scope::Readings { statement, .. } => Some(statement.clone()?),
        };
        let (stamp, database) = (self.sequence(), self.deletion.database.clone());
        Some(Remembered { stamp, database, statement, range: self.deletion.range(), done: false })
    }

    /// Its place in the log: what is before is deleted.
    pub fn sequence(&self) -> Sequence {
        self.ticket.sequence()
    }
}
