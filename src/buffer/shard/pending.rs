//! Deletions that are dispatched to the shards and not done.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::memtables::Memtable;
use crate::bucket::cache::CachedDatabase;
use crate::bucket::deletions::RememberedDeletion;
use crate::buffer::deleter::cells::{Choice, DeletedCells};
use crate::buffer::flush::document_writer::DatabaseDocuments;
use crate::catalog::deletion::{Deletion, Scope};
use crate::catalog::deletions::DeletedSensors;
use crate::members::positions::{PendingAck, QueuedBatches, RequestGuards, WalPin};
use crate::wal::Sequence;

/// A dispatched deletion that is not done.
#[derive(Debug)]
pub struct PendingDeletion {
    pub deletion: Deletion,
    /// The database and the sensors that it covers.
    pub targets: DeletedSensors,
    /// One permit for each shard that has dropped the deleted readings and has no running flush of the database.
    pub arrived: Semaphore,
    /// The shards' memory of a dropped database.
    dropped: Mutex<Vec<DroppedData>>,
    /// Held until the deletion is done.
    pub pending_ack: Arc<PendingAck>,
    /// Counts against the memory budget of readings queued for the shards.
    _queued: Arc<QueuedBatches>,
    /// The pin of the mark, if this is a part of a deletion by value.
    _mark: Option<Arc<WalPin>>,
}

impl PendingDeletion {
    pub fn new(deletion: Deletion, targets: DeletedSensors, guards: RequestGuards, mark: Option<Arc<WalPin>>) -> Self {
        Self {
            deletion,
            targets,
            arrived: Semaphore::new(0),
            dropped: Mutex::default(),
            pending_ack: guards.pending_ack,
            _queued: guards.queued,
            _mark: mark,
        }
    }

    /// Returns true if it deletes an unflushed reading of one of its sensors.
    pub fn covers(&self, id: u32, time: i64, sequence: Sequence) -> bool {
        match &self.deletion.scope {
            Scope::Database => true,
            Scope::Readings { range, .. } => range.contains(&time) && sequence < self.sequence(),
            Scope::Mark => false,
            Scope::Cells { mark, .. } => {
                let is_listed = |times: &Arc<[i64]>| times.binary_search(&time).is_ok();
                sequence < *mark && self.targets.times.get(&id).is_some_and(is_listed)
            }
        }
    }

    /// Adds a shard's memory of a dropped database. The deleter frees it, because that takes long.
    pub fn hand_over(&self, data: DroppedData) {
        self.dropped.lock().push(data);
    }

    /// Takes the memory that shards have handed over so far.
    pub fn take_dropped(&self) -> Vec<DroppedData> {
        std::mem::take(&mut *self.dropped.lock())
    }

    /// Returns the deletion's entry in the registry; `None` if a later record has the statement (see
    /// [`Scope::Readings`]).
    pub fn registry_entry(&self) -> Option<RememberedDeletion> {
        let statement = match &self.deletion.scope {
            Scope::Database => None,
            Scope::Readings { statement, .. } => Some(statement.clone()?),
            Scope::Mark | Scope::Cells { .. } => return None,
        };
        Some(RememberedDeletion {
            stamp: self.sequence(),
            database: self.deletion.database.clone(),
            statement,
            range: self.deletion.range(),
            done: false,
        })
    }

    /// Returns the cells of a deletion of a range of times.
    pub fn cells(&self) -> DeletedCells<'_> {
        let choice = Choice::Range(self.deletion.range());
        DeletedCells { database: &self.deletion.database, choice, before: self.sequence() }
    }

    /// Returns true if later records complete the deletion.
    pub fn is_part(&self) -> bool {
        matches!(self.deletion.scope, Scope::Readings { statement: None, .. })
    }

    /// Returns the deletion's WAL record. It deletes readings of earlier records.
    pub fn sequence(&self) -> Sequence {
        self.pending_ack.sequence()
    }
}

/// A shard's memory of a dropped database.
#[derive(Debug)]
pub struct DroppedData {
    pub(crate) unflushed: Option<Memtable>,
    pub(crate) _cache: Option<CachedDatabase>,
    pub(crate) _documents: Option<DatabaseDocuments>,
}

impl DroppedData {
    /// Returns the number of unflushed readings.
    pub fn readings(&self) -> usize {
        self.unflushed.as_ref().map_or(0, |memtable| memtable.unflushed.readings())
    }
}
