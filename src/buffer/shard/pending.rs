//! Deletions that are dispatched to the shards and not done yet.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::memtables::Memtable;
use crate::bucket::cache::CachedDatabase;
use crate::bucket::deletions::RememberedDeletion;
use crate::buffer::flush::document_writer::DatabaseDocuments;
use crate::catalog::deletion::{Deletion, Scope};
use crate::catalog::deletions::DeletedSensors;
use crate::members::positions::{PendingAck, QueuedBatches, Tracked, WalPin};
use crate::wal::Sequence;

/// A deletion that is logged and dispatched, and not done yet.
#[derive(Debug)]
pub struct PendingDeletion {
    pub deletion: Deletion,
    /// The database and the sensor ids that it covers.
    pub targets: DeletedSensors,
    /// One permit for each shard that has no flush of the database under way and has dropped the deleted readings.
    pub arrived: Semaphore,
    /// What the shards had in memory of a dropped database.
    taken: Mutex<Vec<DroppedData>>,
    /// Held until the deletion is done.
    pub pending_ack: Arc<PendingAck>,
    /// Counts against the same memory budget as readings queued for the shards.
    _queued: Arc<QueuedBatches>,
    /// Of a part of a deletion by value: see `marks`.
    _mark: Option<Arc<WalPin>>,
}

impl PendingDeletion {
    pub fn new(
        deletion: Deletion,
        targets: DeletedSensors,
        (pending_ack, queued): Tracked,
        mark: Option<Arc<WalPin>>,
    ) -> Self {
        let (arrived, taken) = (Semaphore::new(0), Mutex::default());
        Self { deletion, targets, arrived, taken, pending_ack, _queued: queued, _mark: mark }
    }

    /// Whether it deletes an unflushed reading of one of its sensors.
    pub fn covers(&self, id: u32, time: i64, sequence: Sequence) -> bool {
        match &self.deletion.scope {
            Scope::Database => true,
            Scope::Readings { range, .. } => range.contains(&time) && sequence < self.sequence(),
            Scope::Mark => false,
            Scope::Cells { before, .. } => {
                let is_listed = |times: &Arc<[i64]>| times.binary_search(&time).is_ok();
                sequence < *before && self.targets.times.get(&id).is_some_and(is_listed)
            }
        }
    }

    /// Takes what a shard had of a dropped database. Freeing it takes long, so the deleter does it.
    pub fn take_over(&self, taken: DroppedData) {
        self.taken.lock().push(taken);
    }

    /// Removes and returns what shards have handed over so far.
    pub fn taken(&self) -> Vec<DroppedData> {
        std::mem::take(&mut *self.taken.lock())
    }

    /// Its entry in the registry; `None` if a later record has the statement (see [`Scope::Readings`]).
    pub fn remembered(&self) -> Option<RememberedDeletion> {
        let statement = match &self.deletion.scope {
            Scope::Database => None,
            Scope::Readings { statement, .. } => Some(statement.clone()?),
            Scope::Mark | Scope::Cells { .. } => return None,
        };
        let (stamp, database) = (self.sequence(), self.deletion.database.clone());
        Some(RememberedDeletion { stamp, database, statement, range: self.deletion.range(), done: false })
    }

    /// Its WAL position: earlier records are deleted.
    pub fn sequence(&self) -> Sequence {
        self.pending_ack.sequence()
    }
}

/// What a shard had in memory of a dropped database.
#[derive(Debug)]
pub struct DroppedData {
    pub(crate) unflushed: Option<Memtable>,
    pub(crate) _hot: Option<CachedDatabase>,
    pub(crate) _document_writer: Option<DatabaseDocuments>,
}

impl DroppedData {
    /// How many of its readings were unflushed.
    pub fn readings(&self) -> usize {
        self.unflushed.as_ref().map_or(0, |memtable| memtable.unflushed.readings())
    }
}
