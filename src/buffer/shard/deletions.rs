//! The shard's part of a deletion: dropping readings from memory while no flush of the database is running.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Shard;
use super::pending::{DroppedData, PendingDeletion};
use crate::catalog::Database;
use crate::catalog::deletion::Scope;

/// Pending deletions of one database, in WAL order. No flush of the database starts while there is one.
#[derive(Default)]
pub(super) struct PendingDeletions {
    pub(super) waiting: VecDeque<Arc<PendingDeletion>>,
    /// True if this shard has done its part of the first one.
    has_arrived: bool,
}

impl Shard {
    /// Does this shard's part of a database's first pending deletion, unless a flush of the database is running.
    pub(super) fn arrive(&mut self, name: &str) {
        let Some(deletions) = self.deletions.get_mut(name).filter(|deletions| !deletions.has_arrived) else { return };
        if self.in_progress.by_name.contains_key(name) {
            return;
        }
        let Some(pending) = deletions.waiting.front().cloned() else { return };
        deletions.has_arrived = true;
        if let Some(database) = pending.targets.database.clone() {
            match &pending.deletion.scope {
                Scope::Database => self.drop_all(&database, &pending),
                _ => self.drop_some(&database, &pending),
            }
        }
        pending.arrived.add_permits(1);
    }

    /// Continues with the next pending deletion of a database. If there is none, allows flushes again.
    pub(super) fn end_deletion(&mut self, name: &str) {
        let Some(deletions) = self.deletions.get_mut(name) else { return };
        deletions.waiting.pop_front();
        deletions.has_arrived = false;
        if deletions.waiting.is_empty() {
            self.deletions.remove(name);
            self.unflushed.resume(name);
        }
        self.arrive(name);
    }

    /// Drops the readings in memory that a deletion covers.
    fn drop_some(&mut self, database: &Arc<Database>, pending: &PendingDeletion) {
        let ids = &pending.targets.ids;
        let is_deleted = |id, time, sequence| pending.covers(id, time, sequence);
        let deleted = self.unflushed.update_buckets(database, |unflushed| unflushed.delete(ids, is_deleted));
        self.note_unflushed();
        self.positions.count_deleted(deleted as u64);
        self.cache.forget(database.number, ids, &pending.deletion.hours());
        let unflushed = self.unflushed.get(database);
        let has_readings = |key| unflushed.is_some_and(|unflushed| unflushed.has(key));
        self.context.blocked.retain(database, |key| !ids.contains(&key.0) || has_readings(key));
        self.document_writer.forget(database, ids, pending.deletion.covers_all_times());
        // The readings that the store rejected may be deleted now.
        self.note_health(database, None);
    }

    /// Drops a whole database. Passes its memory to the deleter, because freeing it takes long.
    fn drop_all(&mut self, database: &Arc<Database>, pending: &PendingDeletion) {
        let unflushed = self.unflushed.remove(database);
        self.note_unflushed();
        let is_reported = unflushed.as_ref().is_some_and(|memtable| memtable.is_reported);
        if is_reported && self.context.failing.clear(self.number, &database.name) {
            tracing::info!(database = &*database.name, "dropped a database with readings that the store had rejected");
        }
        self.context.blocked.retain(database, |_| false);
        pending.hand_over(DroppedData {
            unflushed,
            _cache: self.cache.remove(database.number),
            _documents: self.document_writer.remove(database),
        });
    }
}
