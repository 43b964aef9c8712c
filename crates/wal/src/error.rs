//! Errors of the WAL, by operation.

use std::io;

use thiserror::Error;

use super::Sequence;

/// Why a record was not appended. No acked record is lost.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AppendError {
    /// The record is larger than a segment and will never fit.
    #[error("a record of {bytes} bytes is over the limit of {limit} (wal.segment_bytes): send less at once")]
    TooLarge {
        /// Bytes of the payload.
        bytes: u64,
        /// Maximum bytes of a payload.
        limit: u64,
    },
    /// Too many records wait for the disk. Passes by itself.
    #[error("the WAL queue is full: at most {bytes_limit} bytes, {records_limit} records: retry")]
    QueueFull {
        /// Maximum bytes that may wait.
        bytes_limit: u64,
        /// Maximum number of records that may wait.
        records_limit: usize,
    },
    /// The disk budget is used up. Passes once segments are truncated.
    #[error("the WAL's disk budget of {0} bytes is used up; wait for the store or raise wal.budget_bytes")]
    Full(u64),
    /// The disk is full or fails. Passes by itself once a fresh segment can be made again, which the log keeps trying.
    #[error("the WAL cannot be written: {0}; it tries again by itself")]
    Unwritable(String),
    /// The record was written, then written again to another segment, and both writes failed. After a crash it may be
    /// in the log, whole; it is not acked.
    #[error("writing the record to the WAL failed twice: {0}; the write is not acknowledged: retry")]
    Failed(String),
    /// The log is closed.
    #[error("the WAL is closed")]
    Closed,
}

/// Why a log was not opened. Its contents are unchanged, unless it is an I/O error.
#[derive(Debug, Error)]
pub enum WalOpenError {
    /// An option is out of range.
    #[error("{option} is {value}, but must be {bounds}")]
    Options {
        /// Name of the option.
        option: &'static str,
        /// Its value.
        value: u64,
        /// Allowed values.
        bounds: String,
    },
    /// Another process, or another [`Wal`](super::Wal) in this one, has the folder open.
    #[error("the WAL is in use by another process")]
    Locked,
    /// The log holds records for another store that are not truncated yet.
    #[error(
        "the WAL holds records up to sequence {last} for the store {found}, but the store is {wanted}: start with the \
         former store until they are flushed, or set another WAL folder (wal.dir) for the latter"
    )]
    OtherStore {
        /// The store the records are for.
        found: String,
        /// The store in the options.
        wanted: String,
        /// The last record for the other store.
        last: Sequence,
    },
    /// A segment was written by a later program.
    #[error("segment {segment} has format version {version}, this program reads up to {highest}: use the version that wrote it", highest = super::format::VERSION)]
    Newer {
        /// The file's name.
        segment: String,
        /// Its version.
        version: u32,
    },
    /// The folder holds segments of two logs.
    #[error(
        "two WALs are mixed here: segment {0} belongs to another one than the newest segment; keep both: put the files \
         of one into a folder of their own and run wal flush on each"
    )]
    Mixed(String),
    /// The folder or a file in it cannot be read, locked or synced.
    #[error(transparent)]
    Io(#[from] DiskError),
}

/// A disk operation that failed. A reader keeps its position, and what a truncation removed stays removed: both may be
/// tried again.
#[derive(Debug, Error)]
#[error("{attempt}: {error}")]
pub struct DiskError {
    /// The operation.
    pub attempt: String,
    /// What the system reported.
    pub error: io::Error,
}

pub(super) fn attempted(attempt: impl Into<String>) -> impl FnOnce(io::Error) -> DiskError {
    move |error| DiskError { attempt: attempt.into(), error }
}
