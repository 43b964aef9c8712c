//! Deletions that a shard carries out in its memory, once no flush of their database is under way.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Shard;
use super::pending::{DroppedData, PendingDeletion};
use crate::catalog::Database;
use crate::catalog::deletion::Scope;

/// Pending deletions of one database, in WAL order. While there is any, no flush of the database starts.
#[derive(Default)]
pub(super) struct PendingDeletions {
    pub(super) waiting: VecDeque<Arc<PendingDeletion>>,
    /// Whether this shard has done its part of the first one.
    has_arrived: bool,
}

impl Shard {
    /// When no flush of a database is under way, drops what its first pending deletion covers and reports this shard
    /// done.
    pub(super) fn arrive(&mut self, name: &str) {
        let Some(deletions) = self.deletions.get_mut(name).filter(|deletions| !deletions.has_arrived) else { return };
        let Some(pending) = deletions.waiting.front().filter(|_| !self.in_progress.by_name.contains_key(name)).cloned()
        else {
            return;
        };
        deletions.has_arrived = true;
        match (pending.targets.database.clone(), &pending.deletion.scope) {
            (None, _) => {}
            (Some(database), Scope::Database) => self.drop_all(&database, &pending),
            (Some(database), _) => self.drop_some(&database, &pending),
        }
        pending.arrived.add_permits(1);
    }

    /// Goes on with a database's next pending deletion, or lets its flushes start again.
    pub(super) fn go_on(&mut self, name: &str) {
        let Some(deletions) = self.deletions.get_mut(name) else { return };
        deletions.waiting.pop_front();
        deletions.has_arrived = false;
        if deletions.waiting.is_empty() {
            self.deletions.remove(name);
            self.unflushed.resume(name);
        }
        self.arrive(name);
    }

    /// Drops the readings in memory that a deletion of some sensors covers.
    fn drop_some(&mut self, database: &Arc<Database>, pending: &PendingDeletion) {
        let ids = &pending.targets.ids;
        let goes = |id, time, sequence| pending.covers(id, time, sequence);
        let deleted = self.unflushed.with(database, |unflushed| unflushed.delete_at(ids, goes));
        self.note_unflushed();
        self.positions.count_deleted(deleted as u64);
        self.cache.forget(database.number, ids, &pending.deletion.hours());
        let unflushed = self.unflushed.get(database);
        let is_left = |key| unflushed.is_some_and(|unflushed| unflushed.has(key));
        self.context.blocked.retain(database, |key| !ids.contains(&key.0) || is_left(key));
        self.document_writer.forget(database, ids, pending.deletion.covers_all_times());
        // The readings that the store did not accept may have been deleted.
        self.note_health(database, None);
    }

    /// Drops a whole database. Freeing it takes long, so the deleter does it.
    fn drop_all(&mut self, database: &Arc<Database>, pending: &PendingDeletion) {
        let unflushed = self.unflushed.remove(database);
        self.note_unflushed();
        let is_reported = unflushed.as_ref().is_some_and(|memtable| memtable.is_reported);
        if is_reported && self.context.failing.clear(self.number, &database.name) {
            tracing::info!(
                database = &*database.name,
                "dropped a database, and its readings that the store had rejected"
            );
        }
        self.context.blocked.retain(database, |_| false);
        let (cache, document_writer) = (self.cache.remove(database.number), self.document_writer.remove(database));
        pending.take_over(DroppedData { unflushed, _hot: cache, _document_writer: document_writer });
    }
}
