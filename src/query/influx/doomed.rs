//! `DELETE` and `DROP SERIES`, `DROP MEASUREMENT`: which readings of which sensors they are about.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::show::wanted;
use super::{Asked, StatementFailure, resolve};
use crate::bucket::deletions::SensorTest;
use crate::influxql::{Clock, Expr, Options, Params, Source, Statement, TimeRange, parse, split};
use crate::query::engine::Engine;
use crate::query::engine::choose::Chosen;
use crate::query::engine::directory::{Entry, Sensors};
use crate::query::engine::pattern::Patterns;
use crate::reading::Sensor;
use crate::reading::time::{TIMESTAMP_MAX, TIMESTAMP_MIN};

/// What a statement deletes.
#[derive(Debug, Clone)]
pub struct Doomed {
    /// The database's name.
    pub database: String,
    /// Whose readings.
    pub sensors: Vec<Arc<Sensor>>,
    /// In nanoseconds, half open.
    pub range: Range<i64>,
}

/// What a statement deletes of a database; `None` for one that deletes nothing, or all of it. The store is asked
/// for its sensors as they are now.
///
/// # Errors
/// Why it cannot be said.
pub async fn doomed(
    engine: &Engine,
    statement: &Statement,
    asked: Asked<'_>,
) -> Result<Option<Doomed>, StatementFailure> {
    let patterns = Patterns::compile(statement.patterns(), Some(asked.budget))?;
    let (range, doomed) = match statement {
        Statement::Delete { sources, condition } => {
            let sensors = sensors_now(engine, asked).await?;
            matching(&sensors, sources, condition.as_ref(), &patterns, asked).await?
        }
        Statement::DropSeries { sources, condition } => {
            let sensors = sensors_now(engine, asked).await?;
            let (range, doomed) = matching(&sensors, sources, condition.as_ref(), &patterns, asked).await?;
            if range != TimeRange::default() {
                return Err(StatementFailure::TimeInDropSeries);
            }
            (range, doomed)
        }
        Statement::DropMeasurement { name } => {
            let sensors = sensors_now(engine, asked).await?;
            let is_named = |entry: &Entry| *entry.sensor.measurement == **name;
            (TimeRange::default(), Chosen::of(asked.budget, &sensors, 1, is_named).await?)
        }
        _ => return Ok(None),
    };
    let range = range.min.unwrap_or(TIMESTAMP_MIN)..range.max.unwrap_or(TIMESTAMP_MAX).saturating_add(1);
    let sensors = doomed.entries.into_iter().map(|entry| entry.sensor).collect();
    Ok(Some(Doomed { database: asked.database.unwrap_or_default().to_owned(), sensors, range }))
}

async fn sensors_now(engine: &Engine, asked: Asked<'_>) -> Result<Sensors, StatementFailure> {
    let database = asked.database.ok_or(StatementFailure::NoDatabase)?;
    let sensors = engine.directory(asked.budget, database, Duration::ZERO).await?;
    if sensors.is_empty() && !engine.has_database(database).await? {
        return Err(StatementFailure::UnknownDatabase(database.to_owned()));
    }
    Ok(sensors)
}

/// The sensors that a statement deletes readings of, as a test; `None` for a text that is no such statement. Times in it
/// are passed over: whoever keeps the statement keeps its range beside it.
#[must_use]
pub fn sensors_of(statement: &str) -> Option<SensorTest> {
    let (params, known_zone, regex_error) = (Params::new(), |_: &str| true, |_: &str| None);
    let options = Options { params: &params, known_zone: &known_zone, regex_error: &regex_error };
    let parsed = parse(statement, &options).ok()?;
    let [statement] = &parsed[..] else { return None };
    let patterns = Patterns::compile(statement.patterns(), None).ok()?;
    let statement = statement.clone();
    let is_about = move |sensor: &Sensor| match &statement {
        Statement::Delete { sources, condition } | Statement::DropSeries { sources, condition } => {
            let entry = Entry { sensor: Arc::new(sensor.clone()), fields: Arc::new([]) };
            let clock = Clock { now: 0, zone: None, resolve: &resolve };
            let Ok((_, condition)) = split(condition.as_ref(), &clock) else { return false };
            wanted(sources, condition.as_ref(), &patterns).is_ok_and(|(_, is_wanted)| is_wanted(&entry))
        }
        Statement::DropMeasurement { name } => *sensor.measurement == **name,
        _ => false,
    };
    Some(Arc::new(is_about))
}

async fn matching(
    sensors: &[Entry],
    sources: &[Source],
    condition: Option<&Expr>,
    patterns: &Patterns,
    asked: Asked<'_>,
) -> Result<(TimeRange, Chosen), StatementFailure> {
    let (range, condition) = split(condition, &Clock { now: asked.now, zone: None, resolve: &resolve })?;
    let (steps, is_wanted) = wanted(sources, condition.as_ref(), patterns)?;
    Ok((range, Chosen::of(asked.budget, sensors, steps, is_wanted).await?))
}
