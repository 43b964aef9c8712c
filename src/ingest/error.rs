//! Why a write or a flush is not done as asked.

use std::time::Duration;

use crate::access::Exhausted;
use crate::bucket::{Behind, StorageError};
use crate::log::AppendError;

/// Why a request was not acked as asked. Resending is harmless.
#[derive(Debug, Clone, thiserror::Error)]
pub enum IngestError {
    /// A queue or buffer is full.
    #[error("the service is at its limit of {limit} ({key})")]
    Overloaded {
        /// The limit's value.
        limit: usize,
        /// The limit's config key.
        key: &'static str,
    },
    /// A single request that takes more memory than all requests together may, or more than a
    /// record of the log holds.
    #[error("the request takes more than {limit} bytes ({key}): send smaller batches")]
    TooLarge {
        /// The limit's value.
        limit: usize,
        /// The limit's config key.
        key: &'static str,
    },
    /// The log does not take the record.
    #[error(transparent)]
    Log(AppendError),
    /// The record was not durable in time; it may be yet.
    #[error("the log did not confirm the readings within {0:?} (ingest.ack_timeout)")]
    Timeout(Duration),
    /// The readings are in the log; the store, which was asked for, was not reached in time.
    #[error("the readings are safe in the log; the store did not confirm them within {0:?} (ingest.ack_timeout)")]
    StoreTimeout(Duration),
    /// The deletion is in the log; it was not done in time.
    #[error("the deletion is safe in the log and follows; the store has not done it within {0:?}")]
    DeletionTimeout(Duration),
    /// The readings are in the log, and the store refuses some of them for good.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Acked readings are still being fed from the log.
    #[error(transparent)]
    Behind(#[from] Behind),
    /// A database beyond the limit.
    #[error("a new database {name:?} is over the limit of {limit} (limits.databases)")]
    TooManyDatabases {
        /// Its name.
        name: String,
        /// The limit's value.
        limit: usize,
    },
    /// Something of the database is being deleted.
    #[error("something of the database {name:?} is being deleted: it can be created when that is done")]
    BeingDeleted {
        /// Its name.
        name: String,
    },
    /// The store fails on this database alone, and what waits of it must not fill what others need, too.
    #[error(
        "the database {name:?} cannot be stored, and what waits of it takes its share of {percent} % \
         (ingest.database_share): {cause}"
    )]
    DatabaseFailing {
        /// Its name.
        name: String,
        /// The share.
        percent: usize,
        /// Why it cannot be stored.
        cause: String,
    },
    /// The floor does not wait for this log yet.
    #[error(
        "this instance is not registered with the others of its store yet, so that nobody can tell what is later: it takes writes when MongoDB answers"
    )]
    NotJoined,
    /// The statements of the deletions that are remembered would be longer, together, than their document may be.
    #[error(
        "the deletions that are still remembered would take {bytes} bytes, more than {limit}: each is forgotten when every log has passed it"
    )]
    LongDeletions {
        /// Theirs and the new one's.
        bytes: usize,
        /// At most.
        limit: usize,
    },
    /// As many deletions are remembered as may be.
    #[error(
        "{limit} deletions are still remembered (limits.deletions): each is forgotten when every log has passed it"
    )]
    TooManyDeletions {
        /// The limit's value.
        limit: usize,
    },
    /// The clock is too far from the store's for stamps to be compared.
    #[error(
        "this machine's clock is {offset_ms} ms from the store's, more than {limit:?} (clock.max_offset): set the clock"
    )]
    Clock {
        /// By how many milliseconds the store's is ahead.
        offset_ms: i64,
        /// The limit's value.
        limit: Duration,
    },
    /// The log has stamps that the store's clock has not come to yet.
    #[error(
        "this log's last records are {ahead:?} ahead of MongoDB's clock, more than {limit:?} (clock.max_offset): a wrong \
         clock made them while MongoDB was away; wait until they are passed, or stop with everything stored (exit \
         status 0) and start with a new data folder"
    )]
    Ahead {
        /// By how much.
        ahead: Duration,
        /// The limit's value.
        limit: Duration,
    },
    /// A quota is used up; waiting mends it.
    #[error("{0}")]
    OverQuota(Exhausted),
    /// A database name that cannot be one.
    #[error("database name {name:?}: 1 to 64 bytes without control characters are wanted")]
    DatabaseName {
        /// The name.
        name: String,
    },
    /// The service is stopping.
    #[error("the service is shutting down")]
    Stopping,
}
