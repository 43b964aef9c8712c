//! Previews: what a statement that deletes or expires readings would take, counted, without any change.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::App;
use super::databases::would_go_by;
use super::delete_values::{Sink, of_statement, resolve};
use super::errors::ApiError;
use super::influx_query::terms;
use crate::backup::ReadBounds;
use crate::bucket::settings::AUTOGEN;
use crate::bucket::store::{Extent, Order, Projection, ScannedPage};
use crate::clock::now_ns;
use crate::influxql::{PolicyStatement, Statement};
use crate::ingest::{IngestError, PolicyError, SetSettings, SettingChange, check_database_name};
use crate::query::QueryError;
use crate::query::influx::{DeleteTargets, ResultCell, StatementAnswer, StatementContext};
use crate::reading::{Hour, Sensor, Stamp, Value};

/// Sensors whose summaries are counted together, and pages of one that is counted alone.
const SENSORS_TOGETHER: usize = 256;
const PAGES: usize = 1024;
/// What of a database goes with it.
const EVERYTHING: Statement = Statement::DropSeries { sources: Vec::new(), condition: None };

/// How much of a database would go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counted {
    sensors: u64,
    readings: u64,
    /// Hours of sensors of which there are only summaries.
    summaries: u64,
}

/// The answer to a statement that is only tried: its series `dry_run`.
///
/// # Errors
/// If the statement could not be run, or deletes and expires nothing.
pub async fn previewed(
    app: &App,
    statement: &Statement,
    asked: StatementContext<'_>,
) -> Result<StatementAnswer, ApiError> {
    let targets = |statement: Statement, asked| async move {
        app.query.delete_targets(&statement, asked, &BTreeSet::new()).await.map_err(of_statement)
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
    let counted = asked.budget.in_time(counted(app, targets)).await??;
    let rows = counted.into_iter().map(|(database, of)| {
        vec![ResultCell::text(database), number(of.sensors), number(of.readings), number(of.summaries)]
    });
    listed(&["database", "sensors", "readings", "summaries"], rows.collect(), asked).await
}

async fn listed(
    columns: &[&str],
    rows: Vec<Vec<ResultCell>>,
    asked: StatementContext<'_>,
) -> Result<StatementAnswer, ApiError> {
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
) -> Result<StatementAnswer, ApiError> {
    let terms = terms(policy);
    let name = policy.name.as_deref().unwrap_or_default();
    let (named, _) = app.ingest.check_alter((database, name), terms).await?;
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

/// Counts what would go, in everything that is acked by now and stored, by database. One after the other, as deletions by value:
/// each takes the memory of a large query.
async fn counted(app: &App, targets: Vec<DeleteTargets>) -> Result<Vec<(String, Counted)>, ApiError> {
    let Ok(_turn) = app.by_value.acquire().await else { return Err(IngestError::Stopping.into()) };
    app.ingest.flush(app.options.flush_timeout).await?;
    let mut counted: Vec<(String, Counted)> = Vec::new();
    let mut sink = Sink::Count(HashSet::new());
    for target in targets {
        if target.values.is_none() {
            app.ingest.check_deletion(&target.database, &target.range)?;
        }
        if counted.last().is_none_or(|(database, _)| *database != target.database) {
            counted.push((target.database.clone(), Counted::default()));
            sink = Sink::Count(HashSet::new());
        }
        let extent = resolve(app, &target, Stamp::MAX, &mut sink).await?;
        if let (Some((_, of)), Sink::Count(sensors)) = (counted.last_mut(), &mut sink) {
            of.readings += extent.readings;
            of.summaries += summaries(app, &target, sensors).await?;
            of.sensors = sensors.len() as u64;
        }
    }
    Ok(counted)
}

/// Counts the whole hours of sensors whose readings have expired and whose summaries a deletion takes; adds the sensors that have
/// some. One by value takes none.
async fn summaries(app: &App, target: &DeleteTargets, found: &mut HashSet<Box<str>>) -> Result<u64, ApiError> {
    let DeleteTargets { database, sensors, range, values, .. } = target;
    let from = app.query.settings().readings_from(database, now_ns()).filter(|_| values.is_none());
    let Some(from) = from else { return Ok(0) };
    let first = Hour::of(range.start);
    let first = if first.start_ns() < range.start { first.next() } else { first };
    let hours = first..Hour::of(range.end.min(from));
    let mut count = 0;
    let (mut left, mut together) = (if hours.is_empty() { &[][..] } else { &sensors[..] }, 1);
    while !left.is_empty() {
        let (some, rest) = left.split_at(together.min(left.len()));
        let Some(counts) = hours_of_some(app, (database, some), &hours).await? else {
            together = some.len() / 2;
            continue;
        };
        for (sensor, hours) in some.iter().zip(counts).filter(|(_, hours)| *hours > 0) {
            count += hours;
            found.insert(sensor.key.clone());
        }
        (left, together) = (rest, (together * 2).min(SENSORS_TOGETHER));
        tokio::task::yield_now().await;
    }
    Ok(count)
}

/// Of each of these sensors the hours that have summaries; `None` if they are too much to be read together.
async fn hours_of_some(
    app: &App,
    (database, sensors): (&str, &[Arc<Sensor>]),
    hours: &Range<Hour>,
) -> Result<Option<Vec<u64>>, ApiError> {
    let bytes = ReadBounds::of_memory(app.options.backup_bytes).batch_bytes;
    let keys: Vec<&str> = sensors.iter().map(|sensor| &*sensor.key).collect();
    let wanted = Projection::SUMMARIES;
    let scanned = app.store.scan_sensors(database, &keys, hours.clone(), &wanted, bytes).await;
    if let Some(pages) = scanned.map_err(QueryError::Storage)? {
        return Ok(Some(pages.iter().map(|pages| hours_of(pages)).collect()));
    }
    let &[key] = &*keys else { return Ok(None) };
    let (mut count, mut left) = (0, hours.clone());
    while !left.is_empty() {
        let extent = Extent { pages: PAGES, bytes, hour_bytes: usize::MAX };
        let scanned = app
            .store
            .scan(database, key, left, Order::Ascending, &wanted, extent)
            .await
            .map_err(QueryError::Storage)?;
        count += hours_of(&scanned.pages);
        left = scanned.rest;
    }
    Ok(Some(vec![count]))
}

/// The hours that have summaries, of pages in order of hours.
fn hours_of(pages: &[ScannedPage]) -> u64 {
    let has_any = |of_hour: &&[ScannedPage]| of_hour.iter().any(|page| !page.summary.is_empty());
    pages.chunk_by(|a, b| a.hour == b.hour).filter(has_any).count() as u64
}
