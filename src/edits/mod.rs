//! Edits of stored readings: deletions by value, and counts of what a deletion would remove. Resolves a condition to times of
//! sensors by reading the store; the log, the registry and the removal are `ingest`'s. Must not know HTTP.

mod count;
mod delete;
mod error;
mod parts;
mod resolve;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

pub use self::count::DeletionCount;
pub use self::delete::ValueDeletion;
pub use self::error::EditError;
use crate::ingest::Ingest;
use crate::query::Query;
use crate::store::MergedView;

/// The bounds of edits.
#[derive(Debug, Clone, Copy)]
pub struct EditOptions {
    /// Longest wait for an edit; it then goes on without its caller.
    pub timeout: Duration,
    /// About the memory that reading the store takes.
    pub read_bytes: usize,
}

/// Carries out edits, one after the other: each takes the memory of a large query.
#[derive(Debug)]
pub struct Edits {
    ingest: Arc<Ingest>,
    query: Arc<Query>,
    store: Arc<MergedView>,
    options: EditOptions,
    turn: Semaphore,
}

impl Edits {
    /// Edits of the readings in a store.
    #[must_use]
    pub fn new(ingest: Arc<Ingest>, query: Arc<Query>, store: Arc<MergedView>, options: EditOptions) -> Self {
        Self { ingest, query, store, options, turn: Semaphore::new(1) }
    }
}
