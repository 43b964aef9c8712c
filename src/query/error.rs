//! Errors of queries.

use std::time::Duration;

use super::options::{COLUMNS_MAX, PATTERNS_MAX};
use crate::bucket::{StorageError, UnflushedError};
use crate::reading::duration::show_duration;

/// The reason why a query has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum QueryError {
    /// The store failed. An incomplete answer is never sent.
    #[error(transparent)]
    Storage(StorageError),
    /// Acked readings that the answer needs are still being read back from the WAL.
    #[error(transparent)]
    Unflushed(#[from] UnflushedError),
    #[error(
        "the request needs more than {limit} bytes of memory (half of query.bytes): use a shorter range, a longer step, fewer sensors or fields, or a LIMIT"
    )]
    TooLarge { limit: usize },
    #[error(
        "one sensor has more than {limit} bytes of readings in one millisecond, which need more than half of query.bytes: raise it"
    )]
    HourTooLarge { limit: usize },
    #[error("all queries together need more than {limit} bytes of memory at present (query.bytes): try again later")]
    Full { limit: usize },
    #[error(
        "the queries of this token need more than {limit} bytes of memory at present (3/4 of query.bytes): try again later"
    )]
    TokenFull { limit: usize },
    #[error("sensors of the query: {count} exceeds the limit of {limit}: select fewer by measurement or tags")]
    TooManySensors { count: usize, limit: usize },
    #[error("a statement has more than {COLUMNS_MAX} columns: name only the columns you need")]
    TooManyColumns,
    #[error(
        "the query has more than {PATTERNS_MAX} regular expressions: write alternatives as one list such as ^(a|b|c)$, which does not count"
    )]
    TooManyPatterns,
    #[error("a regular expression of the query is too large: {detail}")]
    Pattern {
        /// The message of the `regex` crate.
        detail: String,
    },
    #[error("the query took longer than {} (query.timeout): use a shorter range or a lower limit", show_duration(*limit))]
    Timeout { limit: Duration },
    /// `KILL QUERY`. The text is InfluxDB's.
    #[error("query interrupted")]
    Killed,
    #[error("too many queries: {limit} are running (query.concurrent); try again later")]
    Overloaded { limit: usize },
    #[error("an answer without a limit is being sent to this token: wait for its end, or send limit")]
    Exporting,
    #[error("names of fields, tags or sensors changed during the answer: repeat the request")]
    Changed,
    #[error("the client disconnected or read nothing for a minute")]
    Disconnected,
}

impl From<StorageError> for QueryError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::HourTooLarge { limit, .. } => Self::HourTooLarge { limit },
            error => Self::Storage(error),
        }
    }
}
