//! Dry runs of statements that delete or expire readings: counts the affected readings without changing anything.

use std::collections::BTreeSet;

use super::databases::preview_expiry;
use crate::bucket::settings::AUTOGEN;
use crate::http::App;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::influx::query::terms;
use crate::influxql::{PolicyStatement, Statement};
use crate::ingest::{IngestError, PolicyError, SetSettings, SettingChange, check_database_name};
use crate::query::influx::{ResultCell, StatementAnswer, StatementContext};
use crate::reading::Value;

/// Deletes all readings of a database.
const EVERYTHING: Statement = Statement::DropSeries { sources: Vec::new(), condition: None };

/// Answers the dry run of a statement with a series `dry_run`.
///
/// # Errors
/// If the statement is invalid, or neither deletes nor expires readings.
pub async fn dry_run(app: &App, statement: &Statement, context: StatementContext<'_>) -> ApiResult<StatementAnswer> {
    let targets = |statement: Statement, context| async move {
        app.query.delete_targets(&statement, context, &BTreeSet::new()).await.map_err(ApiError::from)
    };
    let whole = |database, policy| StatementContext { database: Some(database), policy, ..context };
    let targets = match statement {
        Statement::AlterPolicy(altered) => return preview_policy(app, altered, context).await,
        Statement::DropPolicy { name, .. } if name == AUTOGEN => {
            return Err(IngestError::from(PolicyError::Autogen).into());
        }
        Statement::DropPolicy { name, database } => {
            if app.ingest.settings_now().await?.has_policy(database, name) {
                targets(EVERYTHING, whole(database, Some(name))).await?
            } else {
                Some(Vec::new())
            }
        }
        Statement::DropDatabase { name } if name.contains('/') => {
            return Err(IngestError::from(PolicyError::Name).into());
        }
        Statement::DropDatabase { name } => {
            check_database_name(name)?;
            targets(EVERYTHING, whole(name, None)).await?
        }
        other => targets(other.clone(), context).await?,
    };
    let Some(targets) = targets else {
        let keywords: Vec<String> = statement.to_string().split_whitespace().take(2).map(str::to_owned).collect();
        return Err(ApiError::Bad(format!("dry_run is not supported for {}", keywords.join(" "))));
    };
    let counts = context.budget.in_time(app.edits.count(context.caller, targets)).await??;
    let rows = counts.into_iter().map(|count| {
        let numbers = [count.sensors, count.readings, count.summaries].map(number);
        [ResultCell::text(count.database)].into_iter().chain(numbers).collect()
    });
    table(&["database", "sensors", "readings", "summaries"], rows.collect(), context).await
}

/// Makes an answer with one series.
async fn table(
    columns: &[&str],
    rows: Vec<Vec<ResultCell>>,
    context: StatementContext<'_>,
) -> ApiResult<StatementAnswer> {
    let mut answer = StatementAnswer::empty(context.budget)?;
    answer.list(Some("dry_run"), columns, Box::new(rows.into_iter())).await?;
    Ok(answer)
}

fn number(count: u64) -> ResultCell {
    ResultCell::Value(Value::Integer(i64::try_from(count).unwrap_or(i64::MAX)))
}

/// Counts the readings that would expire with changed terms of a policy.
async fn preview_policy(
    app: &App,
    PolicyStatement { database, policy, .. }: &PolicyStatement,
    context: StatementContext<'_>,
) -> ApiResult<StatementAnswer> {
    let terms = terms(policy);
    let name = policy.name.as_deref().unwrap_or_default();
    let named = app.ingest.check_alter(database, name, terms).await?.database;
    let readings = terms.kept.map_or(SettingChange::Stays, |kept| SettingChange::To(Some(kept)));
    let set = SetSettings { readings, ..SetSettings::default() };
    let preview = preview_expiry(app, context.budget, &named, &set).await?;
    let cell = |value: &serde_json::Value| match (value.as_u64(), value.as_str()) {
        (Some(count), _) => number(count),
        (None, Some(text)) => ResultCell::text(text),
        (None, None) => ResultCell::Null,
    };
    let mut row = vec![ResultCell::text(&*named)];
    row.extend(["sensors", "readings", "days", "before"].map(|key| cell(&preview[key])));
    row.extend(["days", "before"].map(|key| cell(&preview["summaries"][key])));
    let columns = ["database", "sensors", "readings", "days", "before", "days_of_summaries", "summaries_before"];
    table(&columns, vec![row], context).await
}
