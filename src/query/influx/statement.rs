//! The context in which a statement runs, and why it may have no result.

use super::zones::resolve;
use crate::access::Caller;
use crate::influxql::{Clock, StatementError};
use crate::query::budget::Budget;
use crate::query::error::QueryError;
use crate::reading::Family;

/// Why a statement has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StatementFailure {
    /// A check of the statement failed.
    #[error(transparent)]
    Statement(#[from] StatementError),
    /// The data could not be read.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// A statement, clause or function that hourglass does not support.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The only retention policy is `autogen`.
    #[error("retention policy not found: {0}")]
    UnknownPolicy(String),
    /// A listing or a deletion whose condition tests anything but the equality of tags, or whether they match.
    #[error("invalid tag comparison operator")]
    NotOfTags,
    /// A statement that does not go with the fields and tags that there are.
    #[error("{0}")]
    Refused(String),
    /// `DROP SERIES` deletes whole series. The text is InfluxDB's.
    #[error("DROP SERIES doesn't support time in WHERE clause")]
    TimeInDropSeries,
    /// Neither the statement nor the request names a database.
    #[error("database name required")]
    NoDatabase,
    /// The caller may not read this database.
    #[error("{by} may not read database {database:?}")]
    Forbidden {
        /// The token's name.
        by: String,
        database: String,
    },
    #[error("database not found: {0}")]
    UnknownDatabase(String),
}

/// InfluxDB's name for the type of a family's values.
pub(super) fn kind(family: Family) -> &'static str {
    match family {
        Family::Number => "float",
        Family::Boolean => "boolean",
        Family::String => "string",
    }
}

/// The context in which a statement runs.
#[derive(Debug, Clone, Copy)]
pub struct StatementContext<'a> {
    /// The request's database.
    pub database: Option<&'a str>,
    /// The request's retention policy.
    pub policy: Option<&'a str>,
    /// `now()` in nanoseconds.
    pub now: i64,
    pub budget: &'a Budget,
    /// The caller: databases that its token may not read are refused, and sensors that its pins exclude are hidden.
    pub by: &'a Caller,
}

impl<'a> StatementContext<'a> {
    pub(super) fn clock(&self) -> Clock<'static> {
        Clock { now: self.now, zone: None, resolve: &resolve }
    }

    /// The database that a statement means which may name one.
    pub(super) fn database_or<'n>(&self, named: Option<&'n str>) -> Result<&'n str, StatementFailure>
    where
        'a: 'n,
    {
        named.or(self.database).ok_or(StatementFailure::NoDatabase)
    }
}
