//! Runs a statement.

use super::policies::named;
use super::rows::StatementAnswer;
use super::statement::{StatementContext, StatementFailure};
use crate::influxql::Statement;
use crate::query::Query;
use crate::query::engine::Engine;
use crate::query::pattern::Patterns;

/// A statement that runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run<'a> {
    pub engine: &'a Engine,
    pub patterns: &'a Patterns,
    pub asked: StatementContext<'a>,
}

impl Query {
    /// The result of a statement that only reads; `None` for one that changes something.
    ///
    /// # Errors
    /// See [`StatementFailure`].
    pub async fn statement(
        &self,
        statement: &Statement,
        asked: StatementContext<'_>,
    ) -> Result<Option<StatementAnswer>, StatementFailure> {
        let run = || async {
            may_read(statement, asked)?;
            let patterns = Patterns::compile(statement.patterns(), Some(asked.budget))?;
            let run = Run { engine: &self.engine, patterns: &patterns, asked };
            match statement {
                Statement::Select(select) => run.select(select).await.map(Some),
                Statement::Unsupported { what } => Err(StatementFailure::Unsupported((*what).to_owned())),
                _ => run.show(statement).await,
            }
        };
        self.in_turn(asked.budget, asked.database.unwrap_or_default(), run).await
    }
}

/// Checks that the caller may read the statement's databases, by the policies that it names, before anything is read.
fn may_read(statement: &Statement, asked: StatementContext<'_>) -> Result<(), StatementFailure> {
    let mut allowed = Ok(());
    statement.each_database(&mut |database, policy| {
        let named = database.or(asked.database).map(|database| named(database, policy.or(asked.policy)));
        if let Some(database) = named.filter(|named| !asked.by.may_read(named)) {
            allowed = Err(StatementFailure::Forbidden { by: asked.by.name().to_owned(), database: database.into() });
        }
    });
    allowed
}
