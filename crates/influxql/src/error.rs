//! The two kinds of error. A [`ParseError`] rejects the whole query (InfluxDB answers HTTP 400), a [`StatementError`]
//! one statement of it (HTTP 200, with the error in that statement's result).

use thiserror::Error;

/// Why a query does not parse. The text is InfluxDB's without its prefix: the caller adds `error parsing query: ` once.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ParseError(pub(super) String);

impl ParseError {
    /// A limit that InfluxDB does not have; it keeps recursion from overflowing the stack.
    pub(super) fn limit(what: &str, limit: usize) -> Self {
        Self(format!("{what} of the query is over the limit of {limit}"))
    }
}

/// Why a statement that parsed cannot run. The text is InfluxDB's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct StatementError(String);

/// The result of a check that failed.
pub(super) fn fault<T>(text: impl Into<String>) -> Result<T, StatementError> {
    Err(StatementError(text.into()))
}
