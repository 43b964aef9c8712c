//! Statements about the service in InfluxDB's form: running queries, users, statistics and diagnostics.

use std::time::Duration;

use super::policies::format_duration;
use super::rows::{ResultCell, ResultSeries, StatementAnswer};
use crate::access::Caller;
use crate::influxql::Statement;
use crate::query::QueryError;
use crate::query::budget::Budgets;
use crate::reading::Value;

fn number(value: usize) -> ResultCell {
    ResultCell::Value(Value::Integer(i64::try_from(value).unwrap_or(i64::MAX)))
}

/// Adds the answer of a statement about the service. Returns false for other statements.
pub(super) async fn show(
    statement: &Statement,
    budgets: &Budgets,
    caller: &Caller,
    answer: &mut StatementAnswer,
) -> Result<bool, QueryError> {
    match statement {
        Statement::ShowQueries => {
            let rows = budgets.running(caller).into_iter().map(|query| {
                let id = number(usize::try_from(query.id).unwrap_or(usize::MAX));
                let texts = [query.text, query.database, duration_text(query.duration), "running".to_owned()];
                std::iter::once(id).chain(texts.map(ResultCell::text)).collect()
            });
            let rows: Vec<Vec<ResultCell>> = rows.collect();
            answer.list(None, &["qid", "query", "database", "duration", "status"], Box::new(rows.into_iter())).await?;
        }
        // There are tokens, but no users.
        Statement::ShowUsers => {
            let columns = ["user", "admin"].map(str::to_owned).to_vec();
            answer.series.push(ResultSeries { columns, ..ResultSeries::default() });
        }
        Statement::ShowStats { module } => {
            let row = vec![number(budgets.running(caller).len())];
            add(module.as_deref(), "queryExecutor", &["queriesActive"], row, answer).await?;
        }
        Statement::ShowDiagnostics { module } => {
            let module = module.as_deref();
            let build = ["hourglass", "", "", env!("CARGO_PKG_VERSION")].map(ResultCell::text).to_vec();
            add(module, "build", &["Branch", "Build Time", "Commit", "Version"], build, answer).await?;
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let os = ResultCell::text(std::env::consts::OS);
            let runtime = vec![ResultCell::text(std::env::consts::ARCH), number(cores), os, ResultCell::text("rust")];
            add(module, "runtime", &["GOARCH", "GOMAXPROCS", "GOOS", "version"], runtime, answer).await?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Adds the series of a module, unless the statement names another one.
async fn add(
    wanted: Option<&str>,
    module: &str,
    columns: &[&str],
    row: Vec<ResultCell>,
    answer: &mut StatementAnswer,
) -> Result<(), QueryError> {
    if wanted.is_some_and(|wanted| wanted != module) {
        return Ok(());
    }
    answer.list(Some(module), columns, Box::new(std::iter::once(row))).await
}

/// Formats a duration as InfluxDB does: in seconds, or below that in milliseconds or microseconds.
fn duration_text(duration: Duration) -> String {
    match duration.as_micros() {
        micros @ ..1_000 => format!("{micros}µs"),
        micros @ ..1_000_000 => format!("{}ms", micros / 1000),
        _ => format_duration(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX).saturating_mul(1_000_000_000)),
    }
}
