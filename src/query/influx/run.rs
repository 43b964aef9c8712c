//! Runs statements that read.

use super::rows::StatementAnswer;
use super::service;
use super::statement::{StatementContext, StatementFailure};
use crate::influxql::Statement;
use crate::query::Query;
use crate::query::engine::Engine;
use crate::query::engine::evaluate::{Part, Position};
use crate::query::pattern::Patterns;

/// A running statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run<'a> {
    pub engine: &'a Engine,
    pub patterns: &'a Patterns,
    pub context: StatementContext<'a>,
}

impl Query {
    /// Returns the result of a statement that only reads, or `None` for one that changes something. The result of a
    /// SELECT can be a part of its answer, which begins at `from`.
    ///
    /// # Errors
    /// See [`StatementFailure`].
    pub async fn statement(
        &self,
        statement: &Statement,
        context: StatementContext<'_>,
        from: Option<Position>,
    ) -> Result<Option<StatementAnswer>, StatementFailure> {
        let run = || async {
            let patterns = Patterns::compile(statement.patterns(), Some(context.budget))?;
            let run = Run { engine: &self.engine, patterns: &patterns, context };
            match statement {
                Statement::Select(select) => {
                    run.select(select, Some(Part { from: from.clone(), next: None })).await.map(Some)
                }
                Statement::Explain { select, analyze } => run.explain(select, *analyze).await.map(Some),
                Statement::Unsupported { what } => Err(StatementFailure::Unsupported(unsupported(what))),
                _ => {
                    let mut answer = StatementAnswer::empty(context.budget)?;
                    if service::show(statement, &self.budgets, context.caller, &mut answer).await? {
                        return Ok(Some(answer));
                    }
                    run.show(statement).await
                }
            }
        };
        self.in_turn(context.budget, context.database.unwrap_or_default(), run).await
    }
}

/// Says what to use instead of an unsupported statement.
pub(super) fn unsupported(what: &str) -> String {
    let instead = match what {
        _ if what.ends_with("SHARD") || what.starts_with("SHOW SHARD") => {
            "there are no shards: retention is by hour and day"
        }
        _ if what.contains("CONTINUOUS QUER") || what.ends_with("INTO") => {
            "every hour has exact summaries, which GROUP BY time() uses"
        }
        _ if what.contains("SUBSCRIPTION") => "follow GET /api/v1/tail instead",
        _ if what.contains("USER") || matches!(what, "GRANT" | "REVOKE" | "SHOW GRANTS" | "SET PASSWORD") => {
            "there are no users: make tokens with hourglass token add"
        }
        _ => return what.to_owned(),
    };
    format!("{what}; {instead}")
}
