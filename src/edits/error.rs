//! The reasons for which an edit fails.

use crate::bucket::StorageError;
use crate::ingest::IngestError;
use crate::query::QueryError;
use crate::query::influx::StatementFailure;

/// The reason for which an edit failed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The statement cannot be carried out as it stands.
    #[error("{0}")]
    Refused(String),
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
