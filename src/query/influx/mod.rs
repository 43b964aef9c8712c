//! Statements of InfluxQL, answered: what `influxql` has parsed is run against the sensors, the
//! summaries and the readings that queries reach. Pure but for `select` and `show`, which read.

mod build;
mod doomed;
mod expand;
mod plan;
mod rows;
mod select;
mod show;

pub use self::doomed::{Doomed, doomed, sensors_of};
pub use self::rows::{Answer, Cell, Series};

use super::engine::Engine;
use super::engine::pattern::{self, Patterns};
use super::engine::windows::{offset, zone};
use super::{Budget, QueryError};
use crate::access::Caller;
use crate::influxql::CivilTime;
use crate::influxql::Statement;
use crate::influxql::StatementError;
use crate::reading::Family;

/// Why a statement has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StatementFailure {
    /// It says something that cannot be.
    #[error(transparent)]
    Statement(#[from] StatementError),
    /// The data could not be read.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// This is not known here.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// A function of values that it is not for. The words are InfluxDB's.
    #[error("unsupported {} iterator type: *query.{}InterruptIterator", function.replace('_', " "), kind(*family))]
    WrongKind {
        /// Its name.
        function: String,
        /// What the field has.
        family: Family,
    },
    /// Arithmetic of values that cannot be computed with. The words are InfluxDB's.
    #[error("type error: {expression}: incompatible types: {left} and {right}")]
    Types {
        /// As it was written, with kinds.
        expression: String,
        /// The kind on the left.
        left: &'static str,
        /// The kind on the right.
        right: &'static str,
    },
    /// There is one retention policy, `autogen`.
    #[error("retention policy not found: {0}")]
    UnknownPolicy(String),
    /// A list is asked for by something else than tags that are equal or match.
    #[error("invalid tag comparison operator")]
    NotOfTags,
    /// Series go as a whole. The words are InfluxDB's.
    #[error("DROP SERIES doesn't support time in WHERE clause")]
    TimeInDropSeries,
    /// Neither the statement nor the request names a database.
    #[error("database name required")]
    NoDatabase,
    /// Whoever asks may not read it.
    #[error("{by} may not read database {database:?}")]
    Forbidden {
        /// Their token's name.
        by: String,
        /// Which.
        database: String,
    },
    /// There is none of that name.
    #[error("database not found: {0}")]
    UnknownDatabase(String),
}

fn kind(family: Family) -> &'static str {
    match family {
        Family::Number => "float",
        Family::Boolean => "boolean",
        Family::String => "string",
    }
}

/// What a statement is asked with.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The request's database.
    pub database: Option<&'a str>,
    /// The request's retention policy.
    pub policy: Option<&'a str>,
    /// `now()` in nanoseconds.
    pub now: i64,
    /// What it may take.
    pub budget: &'a Budget,
    /// Who asks: of databases that they may not read nothing is told, and of others what their pins allow.
    pub by: &'a Caller,
}

/// The series that a statement which changes nothing comes to; `None` for one that does.
///
/// # Errors
/// Why it has no result.
pub(super) async fn run(
    engine: &Engine,
    statement: &Statement,
    asked: Asked<'_>,
) -> Result<Option<Answer>, StatementFailure> {
    may_read(statement, asked)?;
    let patterns = Patterns::compile(statement.patterns(), Some(asked.budget))?;
    match statement {
        Statement::Select(select) => select::select(engine, select, &patterns, asked).await.map(Some),
        Statement::Unsupported { what } => Err(StatementFailure::Unsupported((*what).to_owned())),
        _ => show::show(engine, statement, &patterns, asked).await,
    }
}

/// Whether they may read the databases of a statement, before anything is done for it.
fn may_read(statement: &Statement, asked: Asked<'_>) -> Result<(), StatementFailure> {
    let mut allowed = Ok(());
    statement.each_database(&mut |database| {
        let forbidden = |database: &str| StatementFailure::Forbidden {
            by: asked.by.name().to_owned(),
            database: database.to_owned(),
        };
        if let Some(database) = database.or(asked.database).filter(|database| !asked.by.may_read(database)) {
            allowed = Err(forbidden(database));
        }
    });
    allowed
}

/// Whether there is a time zone of that name.
#[must_use]
pub fn is_zone(name: &str) -> bool {
    zone(name).is_some()
}

/// Why a pattern is none, in a few words.
#[must_use]
pub fn pattern_fault(pattern: &str) -> Option<String> {
    pattern::fault(pattern)
}

/// The instant of a civil time in a zone; of two that there are the later, of none the one that a clock which
/// was not set forward would show.
fn resolve(name: &str, civil: CivilTime) -> i128 {
    let instant = || {
        let time = jiff::civil::DateTime::new(
            i16::try_from(civil.year).ok()?,
            i8::try_from(civil.month).ok()?,
            i8::try_from(civil.day).ok()?,
            i8::try_from(civil.hour).ok()?,
            i8::try_from(civil.minute).ok()?,
            i8::try_from(civil.second).ok()?,
            i32::try_from(civil.nanosecond).ok()?,
        );
        let instant = zone(name)?.to_ambiguous_timestamp(time.ok()?).later().ok()?;
        Some(instant.as_nanosecond())
    };
    instant().unwrap_or_else(|| civil.utc())
}

/// A zone's clocks at a time, as RFC 3339 writes them: hours and minutes ahead of UTC.
#[must_use]
pub fn zone_offset(name: &str, time: i64) -> i64 {
    zone(name).map_or(0, |zone| offset(&zone, time))
}
