//! A SELECT: its sources found, planned against what they have, read by summaries where those are exact, and
//! shown.

use super::plan::{Schema, plan};
use super::rows::{Cell, Series};
use super::{Asked, StatementFailure, resolve, zone};
use crate::access::Caller;
use crate::influxql::Clock;
use crate::influxql::{Checked, check};
use crate::influxql::{Expr, Measurement, MeasurementName, Select, Source};
use crate::query::QueryError;
use crate::query::engine::Engine;
use crate::query::engine::aggregates;
use crate::query::engine::directory::{Entry, Sensors};
use crate::query::engine::evaluate::{Evaluation, Filter, Frame, Group, Limits, Row};
use crate::query::engine::pattern::Patterns;
use crate::query::engine::plan::Plan;
use crate::query::engine::points::Points;
use crate::query::engine::read::count_groups;
use crate::query::engine::windows::Windows;
use crate::reading::{Family, Value};

/// Rows of a SELECT with the names of their columns, `time` first.
pub struct Selected {
    names: Vec<String>,
    groups: Vec<Group>,
}

/// What a SELECT reads from.
enum Sourced {
    Sensors { database: String, entries: Vec<Entry> },
    Rows(Selected),
}

pub async fn select(
    engine: &Engine,
    select: &Select,
    patterns: &Patterns,
    asked: Asked<'_>,
) -> Result<Vec<Series>, StatementFailure> {
    if select.into.is_some() {
        return Err(StatementFailure::Unsupported("SELECT … INTO".to_owned()));
    }
    let checked = check(select, &Clock { now: asked.now, zone: None, resolve: &resolve }, &aggregates::is_known)?;
    let Some(selected) = selected(engine, select, &checked, &[], patterns, asked).await? else {
        return Ok(Vec::new());
    };
    Ok(shown(selected, !checked.grouping.tags.is_empty()))
}

/// The rows of a SELECT or a subquery; `None` when nothing that it selects exists.
async fn selected(
    engine: &Engine,
    select: &Select,
    checked: &Checked,
    outer: &[String],
    patterns: &Patterns,
    asked: Asked<'_>,
) -> Result<Option<Selected>, StatementFailure> {
    let own: Vec<String> = plain_tags(checked).into_iter().chain(outer.iter().cloned()).collect();
    let mut sources = Vec::new();
    let mut subqueries = checked.subqueries.iter();
    for source in &select.sources {
        match source {
            Source::Measurement(measurement) => sources.push(sensors_of(engine, measurement, patterns, asked).await?),
            Source::Subquery(inner) => {
                let Some(within) = subqueries.next() else { continue };
                let rows = Box::pin(selected(engine, inner, within, &own, patterns, asked)).await?;
                sources.extend(rows.map(Sourced::Rows));
            }
        }
    }
    let schema = schema(&sources);
    let Some(plan) = plan(select, checked, &schema, outer, patterns)? else { return Ok(None) };
    let frame = frame(select, checked, engine.limits());
    let mut evaluation = Evaluation::new(&plan, &frame, patterns);
    for source in &sources {
        match source {
            Sourced::Sensors { database, entries } => {
                if select.slimit > 0 || select.soffset > 0 {
                    count_groups(entries, &mut evaluation);
                }
                engine.read(database, entries, &mut evaluation).await?;
            }
            Sourced::Rows(rows) => feed_rows(rows, &plan, &mut evaluation)?,
        }
    }
    let groups = limited(select, evaluation.finish()?);
    Ok(Some(Selected { names: plan.names.clone(), groups }))
}

async fn sensors_of(
    engine: &Engine,
    measurement: &Measurement,
    patterns: &Patterns,
    asked: Asked<'_>,
) -> Result<Sourced, StatementFailure> {
    let database = measurement.database.as_deref().or(asked.database).ok_or(StatementFailure::NoDatabase)?;
    let sensors = sensors_in(engine, database, asked.by).await?;
    if let Some(policy) =
        measurement.policy.as_deref().or(asked.policy).filter(|policy| !["autogen", "", "default"].contains(policy))
    {
        return Err(StatementFailure::UnknownPolicy(policy.to_owned()));
    }
    let is_wanted = |name: &str| match &measurement.name {
        MeasurementName::Exact(wanted) => name == wanted,
        MeasurementName::Regex(pattern) => patterns.matches(pattern, name),
        MeasurementName::OfSource => false,
    };
    let entries = sensors.iter().filter(|entry| is_wanted(&entry.sensor.measurement)).cloned().collect();
    Ok(Sourced::Sensors { database: database.to_owned(), entries })
}

/// The sensors of a database, which must exist, that they may read.
pub async fn sensors_in(engine: &Engine, database: &str, by: &Caller) -> Result<Sensors, StatementFailure> {
    if !by.may_read(database) {
        return Err(StatementFailure::Forbidden { by: by.name().to_owned(), database: database.to_owned() });
    }
    let sensors = engine.directory(database, engine.options.cache_max_age).await?;
    if sensors.is_empty() && !engine.has_database(database).await? {
        return Err(StatementFailure::UnknownDatabase(database.to_owned()));
    }
    if by.pins().is_empty() {
        return Ok(sensors);
    }
    let is_theirs = |entry: &&Entry| by.pins().iter().all(|pin| pin.matches(&entry.sensor));
    Ok(std::sync::Arc::new(sensors.iter().filter(is_theirs).cloned().collect()))
}

fn plain_tags(checked: &Checked) -> Vec<String> {
    let tag = |dimension: &Expr| match dimension {
        Expr::Reference { name, .. } => Some(name.clone()),
        _ => None,
    };
    checked.grouping.tags.iter().filter_map(tag).collect()
}

fn schema(sources: &[Sourced]) -> Schema {
    let mut schema = Schema::default();
    for source in sources {
        match source {
            Sourced::Sensors { entries, .. } => {
                for entry in entries {
                    entry.fields.iter().for_each(|(name, family)| schema.add(name, *family));
                    schema.tags.extend(entry.sensor.tags.iter().map(|(key, _)| key.to_string()));
                }
            }
            Sourced::Rows(rows) => {
                schema.has_rows = true;
                for (at, name) in rows.names.iter().skip(1).enumerate() {
                    let value =
                        rows.groups.iter().flat_map(|group| &group.rows).find_map(|(_, cells)| cells[at].as_ref());
                    schema.add(name, value.map_or(Family::Number, Value::family));
                }
                schema
                    .tags
                    .extend(rows.groups.iter().flat_map(|group| group.member.tags.iter().map(|(key, _)| key.clone())));
            }
        }
    }
    schema
}

fn frame(select: &Select, checked: &Checked, limits: Limits) -> Frame {
    let zone = select.zone.as_deref().and_then(zone);
    let windows = (checked.grouping.every > 0).then(|| Windows {
        every: checked.grouping.every,
        offset: checked.grouping.offset,
        zone,
    });
    Frame {
        min: checked.min,
        max: checked.max,
        has_min: checked.min > crate::influxql::MIN_TIME,
        windows,
        fill: checked.fill,
        descending: select.is_descending(),
        limits,
    }
}

/// The rows of a subquery as readings. Their times are not looked at again: that of a window that begins before the range
/// is its start.
fn feed_rows(rows: &Selected, plan: &Plan, evaluation: &mut Evaluation<'_>) -> Result<(), QueryError> {
    let places: Vec<Option<usize>> =
        plan.fields.iter().map(|field| rows.names.iter().skip(1).position(|name| *name == field.name)).collect();
    for group in &rows.groups {
        let mut points = Points { times: Vec::new(), columns: vec![Vec::new(); plan.fields.len()] };
        let mut in_order: Vec<&Row> = group.rows.iter().collect();
        in_order.sort_by_key(|(time, _)| *time);
        for (time, cells) in in_order {
            points.times.push(*time);
            for (column, place) in points.columns.iter_mut().zip(&places) {
                column.push(place.and_then(|place| cells[place].clone()));
            }
        }
        evaluation.feed(&group.member, &points, Filter { of_sensor: false, of_condition: true })?;
    }
    Ok(())
}

/// `SLIMIT` and `SOFFSET`, which count each measurement's series in ascending order, and `LIMIT` and `OFFSET`.
fn limited(select: &Select, mut groups: Vec<Group>) -> Vec<Group> {
    let cut = |all: usize, offset: u64, limit: u64| {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(all);
        let count = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
        from..from.saturating_add(count).min(all)
    };
    if select.is_descending() {
        groups.reverse();
    }
    let mut chosen: Vec<Group> = Vec::new();
    for of_measurement in groups.chunk_by(|a, b| a.member.name == b.member.name) {
        chosen.extend_from_slice(&of_measurement[cut(of_measurement.len(), select.soffset, select.slimit)]);
    }
    if select.is_descending() {
        chosen.reverse();
    }
    for group in &mut chosen {
        let rows = cut(group.rows.len(), select.offset, select.limit);
        group.rows.truncate(rows.end);
        group.rows.drain(..rows.start);
    }
    chosen.retain(|group| !group.rows.is_empty());
    chosen
}

/// The answer.
fn shown(selected: Selected, grouped: bool) -> Vec<Series> {
    let row = |(time, cells): Row| std::iter::once(Cell::Time(time)).chain(cells.into_iter().map(Cell::from)).collect();
    let series = |group: Group| Series {
        name: Some(group.member.name.to_string()),
        tags: if grouped { group.member.tags } else { Vec::new() },
        columns: selected.names.clone(),
        rows: group.rows.into_iter().map(row).collect(),
    };
    selected.groups.into_iter().map(series).collect()
}
