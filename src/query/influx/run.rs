//! Runs a statement.

use super::rows::StatementAnswer;
use super::statement::{StatementContext, StatementFailure};
use super::{select, show};
use crate::influxql::Statement;
use crate::query::engine::Engine;
use crate::query::pattern::{self, Patterns};

/// The result of a statement that only reads; `None` for one that changes something.
///
/// # Errors
/// See [`StatementFailure`].
pub async fn run(
    engine: &Engine,
    statement: &Statement,
    asked: StatementContext<'_>,
) -> Result<Option<StatementAnswer>, StatementFailure> {
    may_read(statement, asked)?;
    let patterns = Patterns::compile(statement.patterns(), Some(asked.budget))?;
    match statement {
        Statement::Select(select) => select::select(engine, select, &patterns, asked).await.map(Some),
        Statement::Unsupported { what } => Err(StatementFailure::Unsupported((*what).to_owned())),
        _ => show::show(engine, statement, &patterns, asked).await,
    }
}

/// Checks that the caller may read the statement's databases, before anything is read.
fn may_read(statement: &Statement, asked: StatementContext<'_>) -> Result<(), StatementFailure> {
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

/// What is wrong with a regular expression, if anything.
#[must_use]
pub fn pattern_fault(pattern: &str) -> Option<String> {
    pattern::fault(pattern)
}
