//! Previews: what a statement that deletes or expires readings would take, counted, without any change.

use std::collections::BTreeSet;

use super::databases::would_go_by;
use crate::bucket::settings::AUTOGEN;
use crate::http::App;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::influx::query::terms;
use crate::influxql::{PolicyStatement, Statement};
use crate::ingest::{IngestError, PolicyError, SetSettings, SettingChange, check_database_name};
use crate::query::influx::{ResultCell, StatementAnswer, StatementContext};
use crate::reading::Value;

/// What of a database goes with it.
const EVERYTHING: Statement = Statement::DropSeries { sources: Vec::new(), condition: None };

/// The answer to a statement that is only tried: its series `dry_run`.
///
/// # Errors
/// If the statement could not be run, or deletes and expires nothing.
pub async fn previewed(app: &App, statement: &Statement, asked: StatementContext<'_>) -> ApiResult<StatementAnswer> {
    let targets = |statement: Statement, asked| async move {
        app.query.delete_targets(&statement, asked, &BTreeSet::new()).await.map_err(ApiError::from)
    };
    let whole = |database, policy| StatementContext { database: Some(database), policy, ..asked };
    let targets = match statement {
        Statement::AlterPolicy(altered) => return policy_altered(app, altered, asked).await,
        Statement::DropPolicy { name, .. } if name == AUTOGEN => {
            return Err(IngestError::from(PolicyError::Autogen).into());
        }
        Statement::DropPolicy { name, database } => match app.ingest.settings_now().await?.has_policy(database, name) {
            true => targets(EVERYTHING, whole(database, Some(name))).await?,
            false => Some(Vec::new()),
        },
        Statement::DropDatabase { name } if name.contains('/') => {
            return Err(IngestError::from(PolicyError::Name).into());
        }
        Statement::DropDatabase { name } => {
            check_database_name(name)?;
            targets(EVERYTHING, whole(name, None)).await?
        }
        other => targets(other.clone(), asked).await?,
    };
    let Some(targets) = targets else {
        let keywords: Vec<String> = statement.to_string().split_whitespace().take(2).map(str::to_owned).collect();
        return Err(ApiError::Bad(format!("dry_run is not supported for {}", keywords.join(" "))));
    };
    let counts = asked.budget.in_time(app.edits.count(targets)).await??;
    let rows = counts.into_iter().map(|count| {
        let numbers = [count.sensors, count.readings, count.summaries].map(number);
        [ResultCell::text(count.database)].into_iter().chain(numbers).collect()
    });
    listed(&["database", "sensors", "readings", "summaries"], rows.collect(), asked).await
}

async fn listed(
    columns: &[&str],
    rows: Vec<Vec<ResultCell>>,
    asked: StatementContext<'_>,
) -> ApiResult<StatementAnswer> {
    let mut answer = StatementAnswer { series: Vec::new(), held: asked.budget.hold(0)? };
    answer.list(Some("dry_run"), columns, Box::new(rows.into_iter())).await?;
    Ok(answer)
}

fn number(count: u64) -> ResultCell {
    ResultCell::Value(Value::Integer(i64::try_from(count).unwrap_or(i64::MAX)))
}

/// What would expire by other terms of a policy, counted as `PUT /api/v1/databases/NAME` does.
async fn policy_altered(
    app: &App,
    PolicyStatement { database, policy, .. }: &PolicyStatement,
    asked: StatementContext<'_>,
) -> ApiResult<StatementAnswer> {
    let terms = terms(policy);
    let name = policy.name.as_deref().unwrap_or_default();
    let named = app.ingest.check_alter(database, name, terms).await?.database;
    let readings = terms.kept.map_or(SettingChange::Stays, |kept| SettingChange::To(Some(kept)));
    let set = SetSettings { readings, ..SetSettings::default() };
    let told = would_go_by(app, asked.budget, &named, &set).await?;
    let cell = |value: &serde_json::Value| match (value.as_u64(), value.as_str()) {
        (Some(count), _) => number(count),
        (None, Some(text)) => ResultCell::text(text),
        (None, None) => ResultCell::Null,
    };
    let mut row = vec![ResultCell::text(&*named)];
    row.extend(["sensors", "readings", "days", "before"].map(|key| cell(&told[key])));
    row.extend(["days", "before"].map(|key| cell(&told["summaries"][key])));
    let columns = ["database", "sensors", "readings", "days", "before", "days_of_summaries", "summaries_before"];
    listed(&columns, vec![row], asked).await
}
