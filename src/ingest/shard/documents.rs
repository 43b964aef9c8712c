//! The sensors' documents, as far as a shard knows better than the store. They are written in tasks of their own.

use std::sync::Arc;

use super::{Landed, Shard};
use crate::ingest::catalog::{Database, KnownSensor};
use crate::ingest::refresh::{Latest, Outdated};
use crate::reading::Hour;

impl Shard {
    /// What this shard knows of a sensor beyond its document.
    pub(super) fn latest(&self, database: &Database, known: &Arc<KnownSensor>) -> Latest {
        let all = Hour(i64::MIN)..Hour(i64::MAX);
        let unflushed = self.unflushed.get(database);
        let unflushed = unflushed.map(|unflushed| unflushed.of_sensor(known.id, &all, &self.context.agreed));
        let outdated = self.lagging.outdated(database, known, &self.hot);
        Latest { outdated, unflushed: unflushed.unwrap_or_default() }
    }

    /// Starts to write some documents that lag behind, of every database at most one lot at a time.
    pub(super) fn write_documents(&mut self) {
        while self.in_air.documents < self.flights_max {
            let may_be_written = |database: &Database| !self.unflushed.is_stopped(&database.name);
            let Some((database, outdated)) = self.lagging.next(&self.hot, may_be_written) else { return };
            self.start_writing(database, outdated);
        }
    }

    /// Starts to write the documents of sensors that have just become outliers, so that they are listed.
    pub(super) fn write_urgent_documents(&mut self, database: &Database) {
        if let Some((database, outdated)) = self.lagging.next_urgent(database, &self.hot) {
            self.start_writing(database, outdated);
        }
    }

    fn start_writing(&mut self, database: Arc<Database>, outdated: Vec<Outdated>) {
        let (context, documents) = (self.context.clone(), self.documents);
        self.in_air.documents += 1;
        self.in_air.start(&database);
        self.flights.spawn(async move {
            let outcome = documents.write(&context, &database, &outdated).await;
            (database, Landed::Documents(outcome))
        });
    }
}
