//! Edits of stored readings: deletions by value, and counts of the readings that a deletion would remove. A condition
//! is resolved to sensors and timestamps by reading the store. [`crate::ingest`] logs and carries out the deletion.

mod count;
mod delete;
mod error;
mod parts;
mod resolve;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};

pub use self::count::DeletionCount;
pub use self::delete::ValueDeletion;
pub use self::error::EditError;
use crate::ingest::Ingest;
use crate::query::Query;
use crate::store::MergedView;

/// The limits of edits.
#[derive(Debug, Clone, Copy)]
pub struct EditOptions {
    /// Maximum time that a caller waits for an edit, which then continues in the background.
    pub timeout: Duration,
    /// The approximate bytes of memory for reading the store.
    pub read_bytes: usize,
}

/// Carries out edits, one at a time, because each takes as much memory as a large query.
#[derive(Debug)]
pub struct Edits {
    ingest: Arc<Ingest>,
    query: Arc<Query>,
    store: Arc<MergedView>,
    options: EditOptions,
    turn: Semaphore,
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
        Self { ingest, query, store, options, turn: Semaphore::new(1), stopping }
    }
}
