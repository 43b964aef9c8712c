//! Runs statements that read.

use super::policies::full_name;
use super::rows::StatementAnswer;
use super::statement::{StatementContext, StatementFailure};
use crate::influxql::Statement;
use crate::query::Query;
use crate::query::engine::Engine;
use crate::query::pattern::Patterns;

/// A running statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run<'a> {
    pub engine: &'a Engine,
    pub patterns: &'a Patterns,
    pub context: StatementContext<'a>,
}

impl Query {
    /// Returns the result of a statement that only reads, or `None` for one that changes something.
    ///
    /// # Errors
    /// See [`StatementFailure`].
    pub async fn statement(
        &self,
        statement: &Statement,
        context: StatementContext<'_>,
    ) -> Result<Option<StatementAnswer>, StatementFailure> {
        let run = || async {
            may_read(statement, context)?;
            let patterns = Patterns::compile(statement.patterns(), Some(context.budget))?;
            let run = Run { engine: &self.engine, patterns: &patterns, context };
            match statement {
                Statement::Select(select) => run.select(select).await.map(Some),
                Statement::Unsupported { what } => Err(StatementFailure::Unsupported((*what).to_owned())),
                _ => run.show(statement).await,
            }
        };
        self.in_turn(context.budget, context.database.unwrap_or_default(), run).await
    }
}

/// Checks that the caller may read the databases and policies of a statement, before anything is read.
fn may_read(statement: &Statement, context: StatementContext<'_>) -> Result<(), StatementFailure> {
    let mut allowed = Ok(());
    statement.each_database(&mut |database, policy| {
        let named = database.or(context.database).map(|database| full_name(database, policy.or(context.policy)));
        if let Some(database) = named.filter(|named| !context.caller.may_read(named)) {
            allowed =
                Err(StatementFailure::Forbidden { caller: context.caller.name().into(), database: database.into() });
        }
    });
    allowed
}
