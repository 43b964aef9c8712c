//! Errors of writes, flushes and deletions.

use std::time::Duration;

use crate::access::Exhausted;
use crate::bucket::{Behind, StorageError};
use crate::ingest::service::{PolicyError, RenameRefusal};
use crate::members::member::MemberError;
use crate::members::retention::CutsExpired;
use crate::reading::duration::show_duration;
use crate::wal::AppendError;

/// What bounds requested flushes and deletions, as their errors name it.
pub const FLUSH_DEADLINE: &str = "5 minutes, or ingest.ack_timeout if longer";

/// Why a request was not acked as asked. Resending it is harmless.
#[derive(Debug, Clone, thiserror::Error)]
pub enum IngestError {
    /// A queue or buffer is full; resending later helps.
    #[error("the service is at its limit of {limit} bytes ({key}): retry later")]
    Overloaded {
        /// In bytes.
        limit: usize,
        /// The limit's config key.
        key: &'static str,
    },
    /// A request with this key is being written.
    #[error("a write with this Idempotency-Key is under way: send it again")]
    KeyInFlight,
    /// The key was used for other readings, which this request must not overwrite.
    #[error("this Idempotency-Key was used for another body: a key is for one body and its retries; send another key")]
    KeyOfOtherBody,
    /// The request's key cannot be written.
    #[error("the write is refused, since its Idempotency-Key cannot be written to the disk: {error}")]
    KeyUnwritten { error: String },
    /// Other writes took the times of this one's undated readings, again and again.
    #[error("other writes of the same sensors came in between: send it again")]
    TimesTaken,
    /// A dry run of more lines than are explained at once.
    #[error("the body has more than {limit} lines, which is what a dry run explains at once: send fewer")]
    LinesToExplain {
        /// How many.
        limit: usize,
    },
    /// One request needs more memory than all requests together may take, or more bytes than a WAL record holds.
    #[error("the request takes more than {limit} bytes ({key}): send smaller batches")]
    TooLarge {
        /// In bytes.
        limit: usize,
        /// The limit's config key.
        key: &'static str,
    },
    /// The WAL refused the record.
    #[error(transparent)]
    Log(AppendError),
    /// The record was not durable in time; it may still become durable.
    #[error("the request did not complete within {} ({key}): retry", show_duration(*waited))]
    Timeout {
        waited: Duration,
        /// The key of the deadline, or what it is.
        key: &'static str,
    },
    /// The readings are in the WAL; the ack level `store` was not reached in time.
    #[error("the store did not confirm the readings within {} ({key}): they are safe in the WAL", show_duration(*waited))]
    StoreTimeout {
        waited: Duration,
        /// The key of the deadline, or what it is.
        key: &'static str,
    },
    /// The deletion is in the WAL; it was not carried out in time.
    #[error("the store did not carry out the deletion within {}: it is safe in the WAL and follows", show_duration(*.0))]
    DeletionTimeout(Duration),
    /// Other instances have not stored what they acknowledged before the request. Nothing was changed.
    #[error(
        "{hosts} did not store within {} what was acknowledged before ({FLUSH_DEADLINE}): retry; an instance that ended holds up deletions by value until it starts again, or for wal.horizon",
        show_duration(*waited)
    )]
    OthersBehind {
        /// Those instances.
        hosts: String,
        waited: Duration,
    },
    /// A deletion by value takes longer than its request may wait.
    #[error(
        "the deletion is not complete after {}: it goes on in the background unless the service stops",
        show_duration(*.0)
    )]
    StillDeleting(Duration),
    /// The readings are in the WAL, and the store refuses some of them for good.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Acked readings are still being replayed from the WAL.
    #[error(transparent)]
    Behind(#[from] Behind),
    /// A retention policy is not as asked.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Rename(#[from] RenameRefusal),
    /// The limit on databases is reached.
    #[error("a new database {name:?} is over the limit of {limit} (limits.databases)")]
    TooManyDatabases { name: String, limit: usize },
    /// The sender may bring no further database into being; waiting does not help.
    #[error(
        "the new database {name:?} is refused: {exhausted}; the databases that it may write to count: drop one, or give \
         the token more (hourglass token add --databases)"
    )]
    DatabaseQuota { name: String, exhausted: Exhausted },
    /// The database cannot be created while it is dropped.
    #[error("database {name:?} is being dropped: create it when that is done")]
    BeingDropped { name: String },
    /// The store fails on this database alone. Its unflushed readings must not fill the WAL and the memory that other
    /// databases need.
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
    /// This instance may not acknowledge now.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// The statements of all remembered deletions must fit into the registry's document.
    #[error(
        "too many deletions are pending (with this one {bytes} bytes of statements, of at most {limit}): retry in about \
         two minutes; if that persists, an instance is down"
    )]
    LongDeletions {
        /// Those of the remembered deletions and of the new one.
        bytes: usize,
        limit: usize,
    },
    /// The limit on remembered deletions is reached.
    #[error(
        "no room for {more} more beside {remembered} remembered deletions (at most {limit}): retry later; a \
         deletion is forgotten when every instance has stored what it logged before it"
    )]
    TooManyDeletions {
        /// What the statement takes.
        more: usize,
        remembered: usize,
        limit: usize,
    },
    #[error(transparent)]
    CutsExpired(#[from] CutsExpired),
    /// A quota is used up; waiting helps.
    #[error("{0}")]
    OverQuota(Exhausted),
    #[error("invalid database name {name:?}: use 1 to 64 bytes without control characters")]
    DatabaseName {
        /// At most its first 64 characters.
        name: String,
    },
    #[error("the service is shutting down")]
    Stopping,
}
