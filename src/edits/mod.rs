//! Edits of stored readings: deletions by value, and counts of the readings that a deletion would remove. A condition
//! is resolved to sensors and timestamps by reading the store. [`crate::ingest`] logs and carries out the deletion.

mod count;
mod delete;
mod error;
mod parts;
mod queue;
mod resolve;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, Semaphore, SemaphorePermit, watch};

pub use self::count::DeletionCount;
pub use self::delete::ValueDeletion;
pub use self::error::EditError;
use self::queue::{Place, Queue};
use crate::access::Caller;
use crate::bucket::settings::owner;
use crate::ingest::{Ingest, IngestError};
use crate::lanes::Turns;
use crate::query::Query;
use crate::store::MergedView;

/// Maximum number of edits at a time, because each takes as much memory as a large query.
const TURNS: usize = 2;

/// The limits of edits.
#[derive(Debug, Clone, Copy)]
pub struct EditOptions {
    /// Maximum time that a caller waits for an edit, which then continues in the background.
    pub timeout: Duration,
    /// The approximate bytes of memory for reading the store, of all edits.
    pub read_bytes: usize,
}

/// Carries out edits, one at a time of a token, and in a database and its policies.
#[derive(Debug)]
pub struct Edits {
    ingest: Arc<Ingest>,
    query: Arc<Query>,
    store: Arc<MergedView>,
    options: EditOptions,
    queue: Queue,
    turns: Semaphore,
    database_turns: Turns,
    token_turns: Turns,
    /// Becomes true when the service stops.
    stopping: watch::Receiver<bool>,
}

impl Edits {
    #[must_use]
    pub fn new(
        ingest: Arc<Ingest>,
        query: Arc<Query>,
        store: Arc<MergedView>,
        options: EditOptions,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self {
            ingest,
            query,
            store,
            options,
            queue: Queue::default(),
            turns: Semaphore::new(TURNS),
            database_turns: Turns::default(),
            token_turns: Turns::default(),
            stopping,
        }
    }

    /// Takes a place of a caller in the queue.
    fn enter(&self, caller: &Caller, database: &str) -> Result<Place, EditError> {
        self.queue.enter(token_of(caller, database))
    }

    /// Waits until a token and a database have a turn, which lasts until the guards are dropped.
    async fn turn(
        &self,
        caller: &Caller,
        database: &str,
    ) -> Result<(OwnedMutexGuard<()>, OwnedMutexGuard<()>, SemaphorePermit<'_>), IngestError> {
        // In this order nobody waits with a turn that more people need.
        let of_token = self.token_turns.wait(token_of(caller, database)).await;
        let of_database = self.database_turns.wait(owner(database)).await;
        let any = self.turns.acquire().await.map_err(|_| IngestError::Stopping)?;
        Ok((of_token, of_database, any))
    }

    /// Returns the approximate bytes of memory for one edit.
    fn read_bytes(&self) -> usize {
        self.options.read_bytes / TURNS
    }
}

/// The name of a caller's token, or without tokens the database that stands for it.
fn token_of<'a>(caller: &'a Caller, database: &'a str) -> &'a str {
    if matches!(caller, Caller::Holder(_)) { caller.name() } else { owner(database) }
}
