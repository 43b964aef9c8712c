//! What can go wrong with the log, by what was attempted.

use std::io;

use thiserror::Error;

use super::Sequence;

/// Why a record was not appended. None of these lost anything that was acked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AppendError {
    /// The record will never fit: it is larger than a segment.
    #[error("a record of {bytes} bytes is over the limit of {limit}")]
    TooLarge {
        /// Bytes of the payload.
        bytes: u64,
        /// Most bytes of a payload.
        limit: u64,
    },
    /// Too much waits for the disk already. Passes by itself.
    #[error("the log's queue is full: at most {bytes_limit} bytes and {records_limit} records may wait")]
    QueueFull {
        /// Most bytes that wait.
        bytes_limit: u64,
        /// Most records that wait.
        records_limit: usize,
    },
    /// The disk budget is used up. Passes when segments are released.
    #[error("the log's disk budget of {limit} bytes is used up")]
    Full {
        /// The budget.
        limit: u64,
    },
    /// The disk takes no more, for want of room or because it fails. Passes by itself once a fresh
    /// segment can be made again, which is tried all the time.
    #[error("the log cannot be written: {why}")]
    Unwritable {
        /// What the disk said.
        why: String,
    },
    /// The record was written, and written again to another segment, and both failed. It may be in
    /// the log after a crash, whole; it is not acked.
    #[error("the record could not be written: {why}")]
    Failed {
        /// What the disk said the second time.
        why: String,
    },
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
}

/// Why a log was not opened. Nothing it holds was touched, unless it is an I/O error.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The options contradict each other.
    #[error("{option} is {value}, but must be {bounds}")]
    Options {
        /// Which one.
        option: &'static str,
        /// Its value.
        value: u64,
        /// What it may be.
        bounds: String,
    },
    /// Another process, or another log in this one, has the folder open.
    #[error("the log is in use by another process")]
    Locked,
    /// The log holds records that are not yet released, for another store.
    #[error(
        "the log holds records up to sequence {last} for the store {found}, but the store is {wanted}: start with the \
         former until they are there, or give the latter another folder (log.dir)"
    )]
    OtherStore {
        /// The store the records are for.
        found: String,
        /// The store of the options.
        wanted: String,
        /// The last record for the other store.
        last: Sequence,
    },
    /// A segment was written by a later program.
    #[error("segment {segment} has format version {version}, this program reads up to {highest}", highest = super::format::VERSION)]
    Newer {
        /// The file's name.
        segment: String,
        /// Its version.
        version: u32,
    },
    /// Segments of two logs lie in one folder.
    #[error("segment {segment} belongs to another log than the newest one")]
    Mixed {
        /// The file that does not belong.
        segment: String,
    },
    /// The folder or a file in it cannot be read, locked or synced.
    #[error("{attempt}: {error}")]
    Io {
        /// What was attempted.
        attempt: String,
        /// What the system said.
        error: io::Error,
    },
}

/// Why the next record cannot be read now. The reader stays where it is; reading may be tried again.
#[derive(Debug, Error)]
#[error("reading segment {segment}: {error}")]
pub struct ReadError {
    /// The file's name.
    pub segment: String,
    /// What the system said.
    pub error: io::Error,
}

/// Why a release was not finished. What was released stays released; the next release goes on.
#[derive(Debug, Error)]
#[error("{attempt}: {error}")]
pub struct ReleaseError {
    /// What was attempted.
    pub attempt: String,
    /// What the system said.
    pub error: io::Error,
}
