//! The two kinds of errors. A [`ParseError`] rejects the whole query (InfluxDB responds with HTTP 400). A
//! [`StatementError`] rejects one statement (HTTP 200, with the error in the statement's result).

use thiserror::Error;

/// A syntax error. The message is InfluxDB's without its prefix `error parsing query: `, which the caller adds once.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ParseError(pub(super) String);

impl ParseError {
    /// An exceeded limit. InfluxDB does not have these limits, which prevent stack overflows by recursion.
    pub(super) fn limit(what: &str, limit: usize) -> Self {
        Self(format!("{what} of the query exceeds the limit of {limit}"))
    }
}

/// The reason that a parsed statement cannot run. The message is InfluxDB's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct StatementError(String);

/// The result of a failed check.
pub(super) fn fault<T>(text: impl Into<String>) -> Result<T, StatementError> {
    Err(StatementError(text.into()))
}
