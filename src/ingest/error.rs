//! Errors of writes, flushes and deletions.

use std::time::Duration;

use crate::access::Exhausted;
use crate::bucket::{StorageError, UnflushedError};
use crate::ingest::service::{MappingRefusal, PolicyError, RenameRefusal};
use crate::members::member::MemberError;
use crate::members::retention::ExpiredHourSplit;
use crate::reading::duration::show_duration;
use crate::wal::AppendError;

/// The deadline of requested flushes and deletions, as error messages state it.
pub const FLUSH_DEADLINE: &str = "5 minutes, or ingest.ack_timeout if longer";

/// An error of a write, a flush or a deletion. The request may be sent again without harm.
#[derive(Debug, Clone, thiserror::Error)]
pub enum IngestError {
    /// A queue or buffer is full. A later retry can succeed.
    #[error("the service is at its limit of {limit} bytes ({key}): retry later")]
    Overloaded {
        /// In bytes.
        limit: usize,
        /// The limit's config key.
        key: &'static str,
    },
    /// Another request with this key is still being written.
    #[error("a write with this Idempotency-Key is in progress: send the same request again")]
    KeyInFlight,
    /// The key was used for a request with another body, whose readings this one must not overwrite.
    #[error(
        "this Idempotency-Key was used for another body: use a new key for each body, and the same one for its retries"
    )]
    KeyOfOtherBody,
    /// The request's key could not be written to disk.
    #[error("cannot write the Idempotency-Key to disk, so the write is refused: {error}")]
    KeyUnwritten { error: String },
    /// Other writes repeatedly took the times that were chosen for the undated readings.
    #[error(
        "concurrent writes of the same sensors took the times of the undated readings: send the same request again"
    )]
    TimesTaken,
    /// The body of a dry run has too many lines.
    #[error("the body exceeds the limit of {limit} lines for a dry run: send fewer")]
    LinesToExplain {
        /// In lines.
        limit: usize,
    },
    /// The request needs more memory than the limit for all requests together, or does not fit into a WAL record.
    #[error("the request takes more than {limit} bytes ({key}): send smaller batches")]
    TooLarge {
        /// In bytes.
        limit: usize,
        /// The limit's config key.
        key: &'static str,
    },
    /// The append to the WAL failed.
    #[error(transparent)]
    Log(AppendError),
    /// The record was not durable in time. It may still become durable.
    #[error("the request did not complete within {} ({key}): retry", show_duration(*waited))]
    Timeout {
        waited: Duration,
        /// The config key of the deadline, or a description of it.
        key: &'static str,
    },
    /// The readings are in the WAL, but ack level `store` was not reached in time.
    #[error("the store did not confirm the readings within {} ({key}): they are safe in the WAL", show_duration(*waited))]
    StoreTimeout {
        waited: Duration,
        /// The config key of the deadline, or a description of it.
        key: &'static str,
    },
    /// The deletion is in the WAL, but was not carried out in time.
    #[error("the store did not carry out the deletion within {}: it is safe in the WAL and follows", show_duration(*.0))]
    DeletionTimeout(Duration),
    /// Other instances have not flushed the readings that they acked before the request. Nothing was changed.
    #[error(
        "{hosts} did not store the readings acknowledged before the deletion within {} ({FLUSH_DEADLINE}): retry; a stopped \
         instance holds up deletions by value until it starts again, or for wal.horizon",
        show_duration(*waited)
    )]
    OthersBehind {
        /// The hosts of these instances.
        hosts: String,
        waited: Duration,
    },
    /// A deletion by value outlived the deadline of its request and continues in the background.
    #[error(
        "the deletion is not complete after {}: it goes on in the background unless the service stops",
        show_duration(*.0)
    )]
    StillDeleting(Duration),
    /// The readings are in the WAL, but the store rejects some of them permanently.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Acked readings are still being replayed from the WAL.
    #[error(transparent)]
    Unflushed(#[from] UnflushedError),
    /// A statement about a retention policy failed.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Rename(#[from] RenameRefusal),
    #[error(transparent)]
    Mapping(#[from] MappingRefusal),
    /// The limit on databases (`limits.databases`) is reached.
    #[error("a new database {name:?} exceeds the limit of {limit} (limits.databases)")]
    TooManyDatabases { name: String, limit: usize },
    /// The sender's quota of databases is used up. A retry does not help.
    #[error(
        "the new database {name:?} is refused: {exhausted}; all databases that the token may write to count: drop one, or \
         give the token a larger quota (hourglass token add --databases)"
    )]
    DatabaseQuota { name: String, exhausted: Exhausted },
    /// A database of this name is still being dropped.
    #[error("database {name:?} is being dropped: create it when that is done")]
    BeingDropped { name: String },
    /// The store fails on this database alone, and its unflushed readings have used up their share of the WAL or of
    /// memory. Other databases need the rest.
    #[error(
        "the store fails on database {name:?} and its unflushed readings exceed their share of {percent} % of \
         wal.budget_bytes or memtable.max_bytes: {cause}"
    )]
    DatabaseFailing {
        name: String,
        /// In percent.
        percent: usize,
        cause: String,
    },
    /// This instance is not allowed to ack at the moment.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// The statements of the remembered deletions would no longer fit into the registry's document.
    #[error(
        "too many deletions are pending ({bytes} bytes of statements with this one, at most {limit}): retry in about two \
         minutes; if that persists, an instance is down"
    )]
    LongDeletions {
        /// The statements of the remembered deletions and of the new one.
        bytes: usize,
        limit: usize,
    },
    /// The limit on remembered deletions is reached.
    #[error(
        "no room for {more} more deletions: {remembered} of at most {limit} are remembered; retry later, a deletion is \
         forgotten once every instance has stored the readings that it logged before it"
    )]
    TooManyDeletions {
        /// The number of deletions that the request would add.
        more: usize,
        remembered: usize,
        limit: usize,
    },
    #[error(transparent)]
    ExpiredHourSplit(#[from] ExpiredHourSplit),
    /// A quota is used up. A later retry can succeed.
    #[error("{0}")]
    OverQuota(Exhausted),
    #[error("invalid database name {name:?}: use 1 to 64 bytes without control characters")]
    DatabaseName {
        /// The first 64 characters at most.
        name: String,
    },
    #[error("the service is shutting down")]
    Stopping,
}
