//! Runs a SELECT: resolves its sources, plans it against their fields and tags, reads readings or exact summaries, and
//! builds the rows.

use super::plan::plan;
use super::policies::resolve_database;
use super::rows::{ResultCell, ResultSeries, StatementAnswer};
use super::run::{Run, unsupported};
use super::show::is_measurement;
use super::statement::{StatementContext, StatementFailure};
use crate::access::Effect;
use crate::bucket::settings::{owner, qualified_name};
use crate::influxql::{CheckedSelect, check};
use crate::influxql::{Expr, FromSource, Measurement, Select};
use crate::query::engine::choose::Chosen;
use crate::query::engine::directory::{DirectoryEntry, Sensors};
use crate::query::engine::evaluate::{Evaluation, Filter, Part, Position};
use crate::query::engine::fill::Fill;
use crate::query::engine::frame::row_bytes;
use crate::query::engine::frame::{Frame, GroupRows, ResultRow};
use crate::query::engine::memory::CHOOSE;
use crate::query::engine::plan::{Input, Plan};
use crate::query::engine::points::PointCursor;
use crate::query::engine::read::count_groups;
use crate::query::engine::windows::{Length, Windows, zone};
use crate::query::influx::schema::Schema;
use crate::query::{Budget, HeldBytes, QueryError};
use crate::reading::{Family, Value};

/// The rows of a SELECT, with the names of their columns, `time` first.
pub struct SelectRows {
    names: Vec<String>,
    groups: Vec<GroupRows>,
    /// Where the next part of the rows begins.
    next: Option<Position>,
    held: HeldBytes,
}

/// A source of a SELECT.
pub(super) enum RowSource {
    Sensors { database: String, chosen: Chosen },
    Rows(SelectRows),
}

impl Run<'_> {
    /// Runs a SELECT, or one part of its answer.
    pub async fn select(self, select: &Select, part: Option<Part>) -> Result<StatementAnswer, StatementFailure> {
        if select.into.is_some() {
            return Err(StatementFailure::Unsupported(unsupported("SELECT … INTO")));
        }
        let checked = check(select, &self.context.clock())?;
        let Some(rows) = self.run_select(select, &checked, &[], part).await? else {
            return Ok(StatementAnswer::empty(self.context.budget)?);
        };
        Ok(to_answer(rows, !checked.grouping.tags.is_empty())?)
    }

    /// Runs a SELECT or a subquery. Returns `None` if nothing that it selects exists.
    async fn run_select(
        self,
        select: &Select,
        checked: &CheckedSelect,
        outer: &[String],
        part: Option<Part>,
    ) -> Result<Option<SelectRows>, StatementFailure> {
        let Self { engine, patterns, context } = self;
        let own: Vec<String> = plain_tags(checked).into_iter().chain(outer.iter().cloned()).collect();
        let mut sources = Vec::new();
        let mut subqueries = checked.subqueries.iter();
        for source in &select.sources {
            match source {
                FromSource::Measurement(measurement) => sources.push(self.resolve_sensors(measurement).await?),
                FromSource::Subquery(inner) => {
                    let Some(inner_check) = subqueries.next() else { continue };
                    let rows = Box::pin(self.run_select(inner, inner_check, &own, None)).await?;
                    sources.extend(rows.map(RowSource::Rows));
                }
            }
        }
        let (schema, _held) = schema(&sources, context.budget).await?;
        let Some(plan) = plan(select, checked, &schema, outer, patterns)? else { return Ok(None) };
        let frame = frame(select, checked, &plan);
        let mut evaluation = Evaluation::new(&plan, &frame, patterns, context.budget)?;
        evaluation.has_several_sources = sources.len() > 1;
        // SLIMIT and OFFSET count what came before, and the series of several sources are not in order.
        let counts_series = select.slimit > 0 || select.soffset > 0;
        let skips_rows = select.offset > 0 && select.limit == 0;
        let has_parts = matches!(&*sources, [RowSource::Sensors { .. }]) && !counts_series && !skips_rows;
        evaluation.part = part.filter(|_| has_parts);
        for source in &sources {
            match source {
                RowSource::Sensors { database, chosen: Chosen { entries, .. } } => {
                    if select.slimit > 0 || select.soffset > 0 {
                        count_groups(entries, &mut evaluation).await?;
                    }
                    engine.read(database, entries, &mut evaluation).await?;
                }
                RowSource::Rows(rows) => feed_rows(rows, &plan, &mut evaluation).await?,
            }
        }
        drop(sources);
        let next = evaluation.part.take().and_then(|part| part.next);
        let (groups, mut held) = evaluation.finish().await?;
        let groups = apply_series_limits(select, groups);
        let rows = groups.iter().flat_map(|group| &group.rows).map(row_bytes).sum::<usize>();
        // Each series carries the names of its columns.
        let names = plan.names.iter().map(|name| name.len() + size_of::<String>()).sum::<usize>();
        held.set(rows + groups.len() * (size_of::<GroupRows>() + names))?;
        Ok(Some(SelectRows { names: plan.names.clone(), groups, next, held }))
    }

    pub(super) async fn resolve_sensors(self, measurement: &Measurement) -> Result<RowSource, StatementFailure> {
        let name = self.context.database_or(measurement.database.as_deref())?;
        let database =
            resolve_database(self.engine, name, measurement.policy.as_deref().or(self.context.policy)).await?;
        let sensors = self.readable_sensors(&database).await?;
        let is_wanted = |entry: &DirectoryEntry| is_measurement(measurement, &entry.sensor.measurement, self.patterns);
        let chosen = sensors.choose(self.context, 1, &is_wanted).await?;
        Ok(RowSource::Sensors { database, chosen })
    }

    /// Returns the sensors of a database, which must exist and be readable by the caller.
    pub async fn readable_sensors(self, database: &str) -> Result<DatabaseSensors, StatementFailure> {
        let Self { engine, context, .. } = self;
        context.caller.check(Effect::Read, Some(&qualified_name(database)))?;
        let sensors = engine.directory(context.budget, database, engine.options.cache_max_age).await?;
        if sensors.is_empty() && !engine.has_database(database).await? {
            return Err(StatementFailure::UnknownDatabase(owner(database).to_owned()));
        }
        Ok(DatabaseSensors(sensors))
    }
}

/// All sensors of a database, including those that the caller may not read.
pub struct DatabaseSensors(Sensors);

impl DatabaseSensors {
    /// Returns the sensors that the caller may read and that pass a test. A test takes about `steps` comparisons.
    pub async fn choose(
        &self,
        context: StatementContext<'_>,
        steps: usize,
        passes: &(dyn Fn(&DirectoryEntry) -> bool + Sync),
    ) -> Result<Chosen, QueryError> {
        let pins = context.caller.pins();
        let is_theirs = |entry: &DirectoryEntry| pins.iter().all(|pin| pin.matches(&entry.sensor));
        Chosen::of(context.budget, &self.0, steps + pins.len(), |entry| is_theirs(entry) && passes(entry)).await
    }
}

fn plain_tags(checked: &CheckedSelect) -> Vec<String> {
    let tag = |dimension: &Expr| match dimension {
        Expr::Reference { name, .. } => Some(name.clone()),
        _ => None,
    };
    checked.grouping.tags.iter().filter_map(tag).collect()
}

pub(super) async fn schema(sources: &[RowSource], budget: &Budget) -> Result<(Schema, HeldBytes), QueryError> {
    let mut schema = Schema::default();
    let mut held = budget.hold(0)?;
    for source in sources {
        match source {
            RowSource::Sensors { chosen, .. } => {
                for batch in chosen.entries.chunks(CHOOSE) {
                    for entry in batch {
                        entry.fields.iter().for_each(|(name, family)| schema.add(name, *family));
                        entry.sensor.tags.iter().for_each(|(key, _)| schema.add_tag(key));
                    }
                    held.set(schema.bytes)?;
                    budget.pause().await?;
                }
            }
            RowSource::Rows(rows) => {
                schema.has_rows = true;
                for (index, name) in rows.names.iter().skip(1).enumerate() {
                    let value =
                        rows.groups.iter().flat_map(|group| &group.rows).find_map(|(_, cells)| cells[index].as_ref());
                    schema.add(name, value.map_or(Family::Number, Value::family));
                }
                let tags = rows.groups.iter().flat_map(|group| &group.member.tags);
                tags.for_each(|(key, _)| schema.add_tag(key));
                held.set(schema.bytes)?;
                budget.pause().await?;
            }
        }
    }
    Ok((schema, held))
}

fn frame(select: &Select, checked: &CheckedSelect, plan: &Plan) -> Frame {
    let zone = select.zone.as_deref().and_then(zone);
    let windows = (checked.grouping.every > 0).then(|| Windows {
        every: Length::Fixed(checked.grouping.every),
        offset: checked.grouping.offset,
        zone,
    });
    // A call over the results of other windows can skip any of them, so LIMIT cannot bound the windows.
    let is_nested = plan.calls.iter().any(|call| matches!(call.input, Input::Call(_)));
    let rows_max = usize::try_from(select.limit.saturating_add(select.offset)).unwrap_or(usize::MAX);
    Frame {
        min: checked.min,
        max: checked.max,
        has_min: checked.min > crate::influxql::MIN_TIME,
        lead: checked.grouping.every,
        windows,
        fill: fill(checked.fill),
        fills_together: false,
        descending: select.is_descending(),
        rows_max: Some(rows_max).filter(|_| select.limit > 0 && !is_nested),
    }
}

fn fill(fill: crate::influxql::Fill) -> Fill {
    match fill {
        crate::influxql::Fill::None => Fill::None,
        crate::influxql::Fill::Null => Fill::Null,
        crate::influxql::Fill::Previous => Fill::Previous,
        crate::influxql::Fill::Linear => Fill::Linear,
        crate::influxql::Fill::Integer(value) => Fill::Integer(value),
        crate::influxql::Fill::Float(value) => Fill::Float(value),
    }
}

/// Evaluates the rows of a subquery as readings. Their times are not checked again, because the row of a window that
/// starts before the range has the start of the window as its time.
async fn feed_rows(rows: &SelectRows, plan: &Plan, evaluation: &mut Evaluation<'_>) -> Result<(), QueryError> {
    let indices: Vec<Option<usize>> =
        plan.fields.iter().map(|field| rows.names.iter().skip(1).position(|name| *name == field.name)).collect();
    for group in &rows.groups {
        let row = 2 * size_of::<i64>() + plan.fields.len() * size_of::<Option<Value>>();
        let _held = evaluation.budget.hold(group.rows.iter().map(row_bytes).sum::<usize>() + group.rows.len() * row)?;
        let in_order = || {
            let mut in_order: Vec<&ResultRow> = group.rows.iter().collect();
            in_order.sort_by_key(|(time, _)| *time);
            let column = |index: &Option<usize>| match index {
                Some(index) => in_order.iter().map(|(_, cells)| cells[*index].clone()).collect(),
                None => Vec::new(),
            };
            PointCursor {
                times: in_order.iter().map(|(time, _)| *time).collect(),
                columns: indices.iter().map(column).collect(),
            }
        };
        let points = evaluation.budget.run_unpaused(group.rows.len().saturating_mul(1 + indices.len()), in_order);
        evaluation.feed(&group.member, &points, Filter { of_sensor: false, of_condition: true }).await?;
    }
    Ok(())
}

/// Applies `SLIMIT` and `SOFFSET`, which count the series of each measurement in ascending order, and `LIMIT` and
/// `OFFSET`.
fn apply_series_limits(select: &Select, mut groups: Vec<GroupRows>) -> Vec<GroupRows> {
    let cut = |all: usize, offset: u64, limit: u64| {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(all);
        let count = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
        start..start.saturating_add(count).min(all)
    };
    if select.is_descending() {
        groups.reverse();
    }
    let mut chosen: Vec<GroupRows> = Vec::new();
    for of_measurement in groups.chunk_by_mut(|a, b| a.member.name == b.member.name) {
        let cut = cut(of_measurement.len(), select.soffset, select.slimit);
        chosen.extend(of_measurement[cut].iter_mut().map(std::mem::take));
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

fn to_answer(mut rows: SelectRows, is_grouped: bool) -> Result<StatementAnswer, QueryError> {
    // Each row of the answer has a list of its own, and its time as a cell.
    let count = rows.groups.iter().map(|group| group.rows.len()).sum::<usize>();
    rows.held.grow(count * (size_of::<Vec<ResultCell>>() + size_of::<ResultCell>()))?;
    let row = |(time, cells): ResultRow| {
        std::iter::once(ResultCell::Time(time)).chain(cells.into_iter().map(ResultCell::from)).collect()
    };
    let series = |group: GroupRows| ResultSeries {
        name: Some(group.member.name.to_string()),
        tags: if is_grouped { group.member.tags } else { Vec::new() },
        columns: rows.names.clone(),
        rows: group.rows.into_iter().map(row).collect(),
    };
    Ok(StatementAnswer { series: rows.groups.into_iter().map(series).collect(), next: rows.next, held: rows.held })
}
