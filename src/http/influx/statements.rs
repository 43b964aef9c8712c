//! Runs the statements of a request one after the other, and writes their results.

use std::sync::Arc;

use axum::http::StatusCode;

use super::query::{ChangeMode, StatementOutcome, run_statement};
use super::render::Renderer;
use crate::faults;
use crate::http::App;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::Requester;
use crate::http::render::text::Text;
use crate::influxql::Statement;
use crate::query::influx::StatementContext;
use crate::query::{Budget, Position, QueryError};

/// The statements of a request, which run one after the other.
pub(super) struct StatementsRun {
    pub app: Arc<App>,
    pub requester: Requester,
    /// The text of all statements, for the slow-query log.
    pub q: String,
    pub statements: Vec<Statement>,
    pub database: Option<String>,
    pub policy: Option<String>,
    /// `now()` in nanoseconds.
    pub now: i64,
    /// True if statements may change something.
    pub can_change: bool,
    pub mode: ChangeMode,
    pub renderer: Renderer,
    /// The number of statements whose results are complete.
    pub done: usize,
    /// Where the result of the next statement goes on, if a part of it is written.
    pub next: Option<Position>,
    pub notices: Vec<String>,
    /// True if the status of the answer is sent, so that an error can only stand in a result.
    pub has_begun: bool,
}

impl StatementsRun {
    /// Returns true if all results are written.
    pub fn is_done(&self) -> bool {
        self.done == self.statements.len()
    }

    /// Runs the next statement, or one part of a long result. Call it until all are done.
    ///
    /// # Errors
    /// If the request fails as a whole.
    pub async fn step(&mut self, budget: &Budget, text: &mut Text) -> ApiResult<()> {
        let Self { app, requester, renderer, .. } = self;
        let statement = &self.statements[self.done];
        let context = StatementContext {
            database: self.database.as_deref(),
            policy: self.policy.as_deref(),
            now: self.now,
            budget,
            caller: &requester.caller,
        };
        let allowed = requester.caller.check_statement(statement, context.database, context.policy);
        let expired = app.query.expired_notices(statement, context);
        let from = self.next.take();
        let is_first = from.is_none();
        if is_first {
            let zone = if let Statement::Select(select) = statement { select.zone.as_deref() } else { None };
            renderer.begin(text, zone);
        }
        let outcome = match allowed {
            Ok(()) => run_statement(app, requester, self.can_change, self.mode, statement, context, from).await,
            Err(forbidden) => Err(forbidden.into()),
        };
        let (answer, error) = match outcome {
            Ok(StatementOutcome { answer, message }) => {
                self.notices.extend(message);
                (answer, None)
            }
            // A result of which a part is written cannot end with an error.
            Err(error) if !is_first => return Err(error),
            // Answer 503 and 403 with their status, because clients do not look for them in a result.
            Err(error)
                if !self.has_begun
                    && matches!(error.status(), StatusCode::SERVICE_UNAVAILABLE | StatusCode::FORBIDDEN) =>
            {
                return Err(error);
            }
            Err(error) => (None, Some(error.to_string())),
        };
        // As InfluxDB, do not look for unknown names if there is an answer.
        let has_answer = error.is_none() && answer.as_ref().is_none_or(|answer| !answer.series.is_empty());
        self.notices.extend(app.query.statement_notices(statement, context, has_answer).await);
        if error.is_none() {
            self.notices.extend(expired);
            self.notices.extend(app.query.notices_of(budget));
        }
        if let Some(answer) = answer {
            renderer.part(text, &answer).await?;
            self.next = answer.next;
        }
        if self.next.is_none() {
            self.done += 1;
            renderer.end(text, error.as_deref()).await?;
        }
        // As in InfluxDB, stop after a failed statement.
        while error.is_some() && self.done < self.statements.len() {
            self.done += 1;
            renderer.begin(text, None);
            renderer.end(text, Some("not executed")).await?;
        }
        Ok(())
    }

    /// Writes the rest of a long answer. Each statement, and each part of a long result, has the time and the memory of a
    /// request.
    ///
    /// # Errors
    /// If the answer cannot be completed.
    pub async fn rest(mut self, mut text: Text) -> Result<Text, QueryError> {
        self.has_begun = true;
        while !self.is_done() {
            let budget = self.app.query.begin(&self.requester.caller, &self.q);
            text.charge_to(&budget)?;
            if faults::fails("export_part") {
                return Err(QueryError::Changed);
            }
            self.step(&budget, &mut text).await.map_err(|error| match error {
                ApiError::Query(error) => error,
                _ => QueryError::Changed,
            })?;
            budget.finish();
        }
        self.renderer.finish(&mut text).await?;
        Ok(text)
    }
}
