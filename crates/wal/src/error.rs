//! The errors of the WAL, by operation.

use std::io;

use thiserror::Error;

use super::Sequence;

/// The reason that a record was not appended. No acked record is lost.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AppendError {
    /// The record is larger than a segment.
    #[error("a record of {bytes} bytes exceeds the limit of {limit} (wal.segment_bytes): send less at once")]
    TooLarge {
        /// The size of the payload in bytes.
        bytes: u64,
        /// The maximum size of a payload in bytes.
        limit: u64,
    },
    /// Too many records wait for the disk. Temporary.
    #[error("the WAL queue is full: at most {bytes_limit} bytes, {records_limit} records: retry")]
    QueueFull {
        /// Maximum bytes that may wait.
        bytes_limit: u64,
        /// Maximum number of records that may wait.
        records_limit: usize,
    },
    /// The disk budget is used up. Appends succeed again after segments are truncated.
    #[error("the WAL's disk budget of {0} bytes is used up; wait for the store or raise wal.budget_bytes")]
    Full(u64),
    /// The disk is full or fails. The WAL keeps trying to create a fresh segment, and then accepts appends again.
    #[error("the WAL cannot be written: {0}; it tries again by itself")]
    Unwritable(String),
    /// Two attempts to write the record to different segments failed. The record is not acked, but the complete record
    /// may be in the WAL after a crash.
    #[error("writing the record to the WAL failed twice: {0}; the write is not acknowledged: retry")]
    Failed(String),
    /// The condition of [`Wal::append_if`](super::Wal::append_if) did not hold any more. Nothing was written.
    #[error("the record's turn came too late: retry")]
    Late,
    /// The WAL is closed.
    #[error("the WAL is closed")]
    Closed,
}

/// The reason that a WAL was not opened. The WAL is unchanged, except after some I/O errors.
#[derive(Debug, Error)]
pub enum WalOpenError {
    /// An option is out of range.
    #[error("{option} is {value}, but must be {bounds}")]
    Options {
        /// The name of the option.
        option: &'static str,
        /// The invalid value.
        value: u64,
        /// The allowed values.
        bounds: String,
    },
    /// Another process, or another [`Wal`](super::Wal) in this one, has the folder open.
    #[error("the WAL is in use by another process")]
    Locked,
    /// The WAL has records for another store that are not truncated.
    #[error(
        "the WAL holds records up to sequence {last} for the store {found}, but the store is {wanted}: start with the \
         former store until they are flushed, or set another WAL folder (wal.dir) for the latter"
    )]
    OtherStore {
        /// The store of the records.
        found: String,
        /// The store in the options.
        wanted: String,
        /// The last record for the other store.
        last: Sequence,
    },
    /// A segment was written by a newer version of the program.
    #[error("segment {segment} has format version {version}, this program reads up to {highest}: use the version that wrote it", highest = super::format::VERSION)]
    Newer {
        /// The file name.
        segment: String,
        /// The format version of the file.
        version: u32,
    },
    /// The folder has segments of two WALs.
    #[error(
        "two WALs are mixed here: segment {0} belongs to another one than the newest segment; keep both: put the files \
         of one into a folder of their own and run wal flush on each"
    )]
    Mixed(String),
    /// The folder or a file in it cannot be read, locked or synced.
    #[error(transparent)]
    Io(#[from] DiskError),
}

/// A failed disk operation. Reads and truncations can be repeated: a reader keeps its position, and removed segments
/// stay removed.
#[derive(Debug, Error)]
#[error("{attempt}: {error}")]
pub struct DiskError {
    /// The operation.
    pub attempt: String,
    /// The error of the operating system.
    pub error: io::Error,
}

pub(super) fn disk_error(attempt: impl Into<String>) -> impl FnOnce(io::Error) -> DiskError {
    move |error| DiskError { attempt: attempt.into(), error }
}
