//! The context of a statement, and the errors of running it.

use super::zones::resolve;
use crate::access::{Caller, Forbidden};
use crate::influxql::{Clock, StatementError};
use crate::query::budget::Budget;
use crate::query::error::QueryError;
use crate::reading::Family;

/// The reason why a statement has no result.
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
    /// The condition of a listing or a deletion has other tests than equality and patterns of tags.
    #[error("invalid tag comparison operator")]
    NotOfTags,
    /// The statement does not fit the existing fields and tags.
    #[error("{0}")]
    Refused(String),
    /// `DROP SERIES` with a time, although it deletes whole series. The text is InfluxDB's.
    #[error("DROP SERIES doesn't support time in WHERE clause")]
    TimeInDropSeries,
    /// Neither the statement nor the request names a database.
    #[error("database name required")]
    NoDatabase,
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    #[error("database not found: {0}")]
    UnknownDatabase(String),
}

/// Returns InfluxDB's name of the type of a family's values.
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
    /// The database of the request.
    pub database: Option<&'a str>,
    /// The retention policy of the request.
    pub policy: Option<&'a str>,
    /// `now()` in nanoseconds.
    pub now: i64,
    pub budget: &'a Budget,
    /// The caller. Databases that its token may not read are refused, and sensors that its pins exclude are hidden.
    pub caller: &'a Caller,
}

impl<'a> StatementContext<'a> {
    pub(super) fn clock(&self) -> Clock<'static> {
        Clock { now: self.now, zone: None, resolve: &resolve }
    }

    /// Returns the database that a statement names, or else that of the request.
    pub(super) fn database_or<'n>(&self, named: Option<&'n str>) -> Result<&'n str, StatementFailure>
    where
        'a: 'n,
    {
        named.or(self.database).ok_or(StatementFailure::NoDatabase)
    }
}
