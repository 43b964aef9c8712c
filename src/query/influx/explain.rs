//! `EXPLAIN [ANALYZE]`: describes the reads of a SELECT in the form of InfluxDB's answer.

use std::time::Instant;

use super::plan::plan;
use super::rows::{ResultCell, StatementAnswer};
use super::run::Run;
use super::select::{RowSource, schema};
use super::statement::StatementFailure;
use crate::influxql::{CheckedSelect, Expr, FromSource, Select, check, math_arguments};
use crate::query::QueryError;

impl Run<'_> {
    pub(super) async fn explain(self, select: &Select, is_run: bool) -> Result<StatementAnswer, StatementFailure> {
        let began = Instant::now();
        let checked = check(select, &self.context.clock())?;
        let mut lines = Vec::new();
        self.explain_sources(select, &checked, &mut lines).await?;
        let planning = began.elapsed();
        if !is_run {
            return Ok(self.text_rows("QUERY PLAN", lines).await?);
        }
        let answer = self.select(select, None).await?;
        let total = began.elapsed();
        let rows = answer.series.iter().map(|series| series.rows.len()).sum::<usize>();
        let (bytes, readings) = self.context.budget.amounts_read();
        let lines = [
            ".".to_owned(),
            "└── select".to_owned(),
            format!("    ├── execution_time: {:?}", total.saturating_sub(planning)),
            format!("    ├── planning_time: {planning:?}"),
            format!("    ├── total_time: {total:?}"),
            format!("    ├── bytes_read: {bytes}"),
            format!("    ├── readings_read: {readings}"),
            format!("    ├── series: {}", answer.series.len()),
            format!("    └── rows: {rows}"),
        ];
        Ok(self.text_rows("EXPLAIN ANALYZE", lines.to_vec()).await?)
    }

    /// Adds a paragraph for each measurement and function.
    async fn explain_sources(
        self,
        select: &Select,
        checked: &CheckedSelect,
        lines: &mut Vec<String>,
    ) -> Result<(), StatementFailure> {
        let mut subqueries = checked.subqueries.iter();
        for source in &select.sources {
            let measurement = match source {
                FromSource::Measurement(measurement) => measurement,
                FromSource::Subquery(inner) => {
                    if let Some(inner_check) = subqueries.next() {
                        Box::pin(self.explain_sources(inner, inner_check, lines)).await?;
                    }
                    continue;
                }
            };
            let source = [self.resolve_sensors(measurement).await?];
            let (names, _held) = schema(&source, self.context.budget).await?;
            let Some(plan) = plan(select, checked, &names, &[], self.patterns)? else { continue };
            let [RowSource::Sensors { chosen, .. }] = &source else { continue };
            let has_only_totals = !plan.is_raw() && plan.calls.iter().all(|call| call.function.is_summarized());
            let calls = calls(select);
            let expressions = if calls.is_empty() { vec!["<nil>".to_owned()] } else { calls };
            for expression in expressions {
                if !lines.is_empty() {
                    lines.push(String::new());
                }
                lines.push(format!("EXPRESSION: {expression}"));
                if plan.is_raw() {
                    let fields: Vec<&str> = plan.fields[..plan.selected].iter().map(|field| &*field.name).collect();
                    lines.push(format!("AUXILIARY FIELDS: {}", fields.join(", ")));
                }
                lines.push(format!("NUMBER OF SERIES: {}", chosen.entries.len()));
                let form = if has_only_totals { "summaries of whole hours, else readings" } else { "readings" };
                lines.push(format!("READS: {form}"));
            }
        }
        Ok(())
    }

    async fn text_rows(self, column: &str, lines: Vec<String>) -> Result<StatementAnswer, QueryError> {
        let mut answer = StatementAnswer::empty(self.context.budget)?;
        // As InfluxDB, show an empty line for an empty plan.
        let lines = if lines.is_empty() { vec![String::new()] } else { lines };
        let rows = lines.into_iter().map(|line| vec![ResultCell::text(line)]);
        answer.list(None, &[column], Box::new(rows)).await?;
        Ok(answer)
    }
}

/// Returns the calls of a SELECT, each once.
fn calls(select: &Select) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for column in &select.columns {
        column.expr.each(&mut |part| {
            if let Expr::Call { name, .. } = part
                && math_arguments(name).is_none()
                && !found.contains(&part.to_string())
            {
                found.push(part.to_string());
            }
        });
    }
    found
}
