//! The tasks that write a shard's outdated sensor documents.

use std::sync::Arc;

use super::{Completed, Shard};
use crate::buffer::flush::documents::{Documents, SensorUpdates, StoredUpdates};
use crate::catalog::{Database, KnownSensor};
use crate::config::FLUSHES_MAX;
use crate::reading::Hour;

impl Shard {
    /// Returns the state of a sensor that its document lacks.
    pub(crate) fn latest(&self, database: &Database, known: &Arc<KnownSensor>) -> SensorUpdates {
        let all = Hour(i64::MIN)..Hour(i64::MAX);
        let unflushed = self.unflushed.get(database);
        let unflushed = unflushed.map(|unflushed| unflushed.sensor_hours(known.id, &all, &self.context.registry_view));
        let outdated = self.document_writer.find_outdated(database, known, &self.cache, &self.context.registry_view);
        SensorUpdates { outdated, unflushed: unflushed.unwrap_or_default() }
    }

    /// Starts tasks that write outdated documents, at most one at a time per database.
    pub(crate) fn write_documents(&mut self) {
        while self.in_progress.documents < FLUSHES_MAX {
            let can_write = |database: &Database| !self.unflushed.is_stopped(&database.name);
            let Some((database, outdated)) =
                self.document_writer.next(&self.cache, &self.context.registry_view, can_write)
            else {
                return;
            };
            self.start_writing(database, outdated);
        }
    }

    /// Starts a task that writes the documents of new outliers, so that lists show them.
    pub(crate) fn write_urgent_documents(&mut self, database: &Database) {
        if let Some((database, outdated)) =
            self.document_writer.next_urgent(database, &self.cache, &self.context.registry_view)
        {
            self.start_writing(database, outdated);
        }
    }

    fn start_writing(&mut self, database: Arc<Database>, outdated: Vec<StoredUpdates>) {
        let context = self.context.clone();
        self.in_progress.documents += 1;
        self.in_progress.start(&database);
        self.flushes.spawn(async move {
            let outcome = Documents { context: &context, database: &database.name }.write(&outdated).await;
            (database, Completed::Documents(outcome))
        });
    }
}
