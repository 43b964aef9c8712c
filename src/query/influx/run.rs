//! Runs statements that read.

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
