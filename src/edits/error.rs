//! Errors of edits.

use crate::bucket::StorageError;
use crate::ingest::IngestError;
use crate::query::QueryError;
use crate::query::influx::StatementFailure;

/// An error of an edit.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The statement cannot be carried out.
    #[error("{0}")]
    Refused(String),
    /// A later retry can succeed.
    #[error(
        "deletions by value and previews run or wait: {all} at most, {of_token} of one token: retry when some are done"
    )]
    Full { all: usize, of_token: usize },
    #[error(transparent)]
    Statement(#[from] StatementFailure),
    #[error(transparent)]
    Ingest(#[from] IngestError),
    #[error(transparent)]
    Query(#[from] QueryError),
}

impl From<StorageError> for EditError {
    fn from(error: StorageError) -> Self {
        Self::Query(QueryError::Storage(error))
    }
}
