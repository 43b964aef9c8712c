//! Windowed aggregates of many sensors, with any functions, step and zone: per sensor, per combination of tags, or over
//! all sensors.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use super::functions::{NativeAggregate, lead};
use super::parts::{Part, Ranking, WindowPlace, read_part, retain_series, sort_series};
use crate::query::engine::Engine;
use crate::query::engine::directory::DirectoryEntry;
use crate::query::engine::evaluate::Evaluation;
use crate::query::engine::fill::Fill;
use crate::query::engine::frame::{Frame, GroupRows, ResultRow};
use crate::query::engine::memory::{CHOOSE, NAME_BYTES};
use crate::query::engine::plan::{BY_RANK, Call, Function, Node, Plan, PlannedField, rank};
use crate::query::engine::windows::Windows;
use crate::query::pattern::Patterns;
use crate::query::selector::Selector;
use crate::query::{Budget, HeldBytes, Query, QueryError};
use crate::reading::{Family, Sensor, Value};

/// A request for aggregates.
#[derive(Debug, Clone)]
pub struct Aggregation {
    pub database: String,
    pub selector: Selector,
    /// In nanoseconds, half open.
    pub range: Range<i64>,
    /// True if the client stated the start of the range.
    pub has_start: bool,
    /// The fields to aggregate. If empty, all that the functions accept.
    pub fields: Vec<String>,
    /// The windows; `None` for one window over the whole range.
    pub windows: Option<Windows>,
    /// The functions to apply to each field.
    pub functions: Vec<NativeAggregate>,
    pub families: Families,
    pub group_by: GroupBy,
    pub fill: Fill,
    /// Only these series; `None` for all.
    pub ranking: Option<Ranking>,
    /// Only this part of the answer; `None` for all of it. Not used with a ranking.
    pub part: Option<Part>,
}

/// The treatment of fields by the family of their values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// Aggregate numbers only, because summaries cannot answer for texts and booleans.
    Numbers,
    /// Aggregate each field in one family, the first that any sensor has. Leave out sensors that have it in another
    /// family.
    First,
    /// Aggregate each field in every family that sensors have.
    All,
}

/// The grouping of sensors into series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupBy {
    /// Each sensor is a series.
    Sensor,
    /// The sensors of a measurement with the same values of these tags are one series.
    Tags(Vec<String>),
}

/// The answer to an [`Aggregation`].
#[derive(Debug)]
pub struct Aggregates {
    /// The field and function of each column. Columns of one field are adjacent.
    pub columns: Vec<(String, NativeAggregate)>,
    /// The series, sorted by measurement and tags; ranked ones from the best to the last.
    pub series: Vec<WindowSeries>,
    /// The tags that series can have.
    pub tags: BTreeSet<String>,
    /// The start of the next part, if there is one.
    pub next: Option<WindowPlace>,
    /// A notice for each field whose type differs between sensors, so that some sensors are left out.
    pub notices: Vec<String>,
    /// The memory of the answer; keep it until the answer is sent.
    pub held: HeldBytes,
}

/// The windows of one series.
#[derive(Debug)]
pub struct WindowSeries {
    /// The key of the sensor, if the series has one sensor.
    pub sensor: Option<String>,
    pub measurement: String,
    /// The tags of the sensor, or the tags of the grouping.
    pub tags: Vec<(String, String)>,
    /// The windows in time order, cut to the requested range, with a cell per column.
    pub windows: Vec<(Range<i64>, Vec<Option<Value>>)>,
    /// Integer sums that exceed `i64`, by window and column. Their cells have the nearest double.
    pub wide: HashMap<(usize, usize), i128>,
}

impl WindowSeries {
    /// Returns the exact integer sum of a cell if it exceeds `i64`.
    #[must_use]
    pub fn wide_sum(&self, window: usize, column: usize) -> Option<i128> {
        self.wide.get(&(window, column)).copied()
    }
}

impl Query {
    /// Aggregates all selected sensors. A sensor selected by its key has a series if it exists, even without windows.
    ///
    /// # Errors
    /// If the answer would be incomplete, or the budget is exhausted.
    pub async fn aggregate(&self, budget: &Budget, request: &Aggregation) -> Result<Aggregates, QueryError> {
        let read = || async {
            let mut chosen = self.engine.choose(budget, &request.database, &request.selector).await?;
            let entries = &mut chosen.entries;
            let mut found = match (request.ranking, &request.part) {
                (Some(ranking), _) => {
                    let names = ranking.choose(&self.engine, budget, request, entries).await?;
                    retain_series(entries, &request.group_by, &names);
                    let mut found = run_aggregation(&self.engine, budget, request, entries).await?;
                    sort_series(&mut found.series, &names);
                    found
                }
                (None, Some(part)) => read_part(&self.engine, budget, request, part, entries).await?,
                (None, None) => run_aggregation(&self.engine, budget, request, entries).await?,
            };
            let is_first = request.part.as_ref().is_none_or(|part| part.start.is_none());
            if let (Selector::Sensor(sensor), [_], true) =
                (&request.selector, &*chosen.entries, found.series.is_empty() && is_first)
            {
                found.tags.extend(sensor.tags.iter().map(|(key, _)| key.to_string()));
                found.series.push(WindowSeries {
                    sensor: Some(sensor.key.to_string()),
                    measurement: sensor.measurement.to_string(),
                    tags: sensor.tags.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
                    windows: Vec::new(),
                    wide: HashMap::new(),
                });
            }
            Ok::<_, QueryError>(found)
        };
        let found = self.in_turn(budget, &request.database, read).await?;
        self.count(found.series.iter().map(|series| series.windows.len()).sum());
        Ok(found)
    }
}

/// Returns the fields with values in a range of times, in nanoseconds, for each sensor that has some.
///
/// # Errors
/// As [`Query::aggregate`].
pub async fn fields_with_values(
    engine: &Engine,
    budget: &Budget,
    database: &str,
    range: Range<i64>,
    fields: Vec<String>,
    sensors: &[DirectoryEntry],
) -> Result<Vec<Vec<String>>, QueryError> {
    let request = Aggregation {
        database: database.to_owned(),
        // The selector is not used, because the sensors are given.
        selector: Selector::Matching { measurement: None, tags: Vec::new(), pins: Vec::new() },
        range,
        has_start: false,
        fields,
        windows: None,
        functions: vec![NativeAggregate::LAST],
        families: Families::First,
        group_by: GroupBy::Sensor,
        fill: Fill::None,
        ranking: None,
        part: None,
    };
    let Aggregates { columns, series, held: _held, .. } = run_aggregation(engine, budget, &request, sensors).await?;
    let fields_of = |series: &WindowSeries| -> Vec<String> {
        let cells = series.windows.iter().flat_map(|(_, cells)| cells.iter().zip(&columns));
        cells.filter(|(cell, _)| cell.is_some()).map(|(_, (field, _))| field.clone()).collect()
    };
    Ok(series.iter().map(fields_of).filter(|fields| !fields.is_empty()).collect())
}

async fn run_aggregation(
    engine: &Engine,
    budget: &Budget,
    request: &Aggregation,
    entries: &[DirectoryEntry],
) -> Result<Aggregates, QueryError> {
    let AggregatePlan { plan, columns, notices, held: planned } = make_plan(budget, request, entries).await?;
    let (series, mut held) = evaluate(engine, budget, request, &plan, entries).await?;
    held.add(planned);
    let tags = series.iter().flat_map(|series| &series.tags).map(|(key, _)| key.clone()).collect();
    Ok(Aggregates { columns, series, tags, next: None, notices, held })
}

/// Evaluates a plan. Returns the series with windows, and their memory.
pub(super) async fn evaluate(
    engine: &Engine,
    budget: &Budget,
    request: &Aggregation,
    plan: &Plan,
    entries: &[DirectoryEntry],
) -> Result<(Vec<WindowSeries>, HeldBytes), QueryError> {
    let frame = frame(request);
    let patterns = Patterns::default();
    let mut evaluation = Evaluation::new(plan, &frame, &patterns, budget)?;
    engine.read(&request.database, entries, &mut evaluation).await?;
    let (mut groups, mut held) = evaluation.finish().await?;
    if request.fill == Fill::None {
        // A window may have readings without having a value, such as the deviation of one reading.
        let has_values = |(_, cells): &ResultRow| cells.iter().any(Option::is_some);
        groups.iter_mut().for_each(|group| group.rows.retain(has_values));
    }
    let rows = groups.iter().map(|group| group.rows.len()).sum::<usize>();
    held.grow(rows * size_of::<Range<i64>>())?;
    let groups = groups.into_iter().filter(|group| !group.rows.is_empty());
    Ok((groups.map(|group| to_series(group, &frame, request)).collect(), held))
}

fn to_series(group: GroupRows, frame: &Frame, request: &Aggregation) -> WindowSeries {
    let tags: Vec<(String, String)> = group.member.tags.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let measurement = group.member.name.to_string();
    let key = || {
        let tags = tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        Sensor::new(&measurement, tags).ok().map(|sensor| sensor.key.to_string())
    };
    let sensor = if request.group_by == GroupBy::Sensor { key() } else { None };
    let by_index = |(time, call, sum): &(i64, usize, i128)| {
        Some(((group.rows.binary_search_by_key(time, |(time, _)| *time).ok()?, *call), *sum))
    };
    let wide = group.wide.iter().filter_map(by_index).collect();
    let span = |time: i64| match &frame.windows {
        Some(windows) => {
            let window = windows.around(time);
            window.start.max(request.range.start)..window.end.min(request.range.end)
        }
        None => request.range.clone(),
    };
    let windows = group.rows.into_iter().map(|(time, cells)| (span(time), cells)).collect();
    WindowSeries { sensor, measurement, tags, windows, wide }
}

fn frame(request: &Aggregation) -> Frame {
    let lead = match &request.windows {
        Some(windows) if request.has_start => lead(&request.functions, windows, request.range.start),
        _ => 0,
    };
    Frame {
        min: request.range.start,
        max: request.range.end.saturating_sub(1),
        has_min: request.has_start,
        lead,
        windows: request.windows.clone(),
        // A single window is never empty.
        fill: if request.windows.is_some() { request.fill } else { Fill::None },
        fills_together: true,
        descending: false,
        rows_max: None,
    }
}

/// A plan with the columns and notices of its [`Aggregates`] answer.
pub(super) struct AggregatePlan {
    pub(super) plan: Plan,
    pub(super) columns: Vec<(String, NativeAggregate)>,
    pub(super) notices: Vec<String>,
    pub(super) held: HeldBytes,
}

/// Plans all functions over all fields.
pub(super) async fn make_plan(
    budget: &Budget,
    request: &Aggregation,
    entries: &[DirectoryEntry],
) -> Result<AggregatePlan, QueryError> {
    let Names { fields: known, tags, mut held } = collect_names(budget, request, entries).await?;
    let mut functions: Vec<NativeAggregate> = Vec::new();
    for function in &request.functions {
        if !functions.contains(function) {
            functions.push(function.clone());
        }
    }
    let mut fields = Vec::new();
    let mut calls = Vec::new();
    let mut column_functions = Vec::new();
    let mut notices = Vec::new();
    for (name, sensors) in known {
        let families = BY_RANK.into_iter().filter(|family| sensors[rank(*family)] > 0);
        let families = families.take(if request.families == Families::All { BY_RANK.len() } else { 1 });
        for family in families.filter(|family| request.families != Families::Numbers || *family == Family::Number) {
            let functions: Vec<NativeAggregate> =
                functions.iter().filter(|function| function.accepts(family)).cloned().collect();
            if functions.is_empty() {
                continue;
            }
            let column = size_of::<(Call, Node, String, NativeAggregate)>() + name.len();
            held.grow(functions.len() * column + NAME_BYTES)?;
            fields.push(PlannedField { name: name.to_owned(), family });
            for function in functions {
                calls.push(function.call(fields.len() - 1));
                column_functions.push((name.to_owned(), function));
            }
            if request.families != Families::All {
                notices.extend(left_out_notice(name, family, sensors));
            }
        }
    }
    let group_by = match &request.group_by {
        GroupBy::Tags(tags) => tags.clone(),
        GroupBy::Sensor => tags.into_iter().map(str::to_owned).collect(),
    };
    let columns = match &*calls {
        [Call { function: Function::Histogram(bounds), .. }] => (0..bounds.len() + 2).map(Node::Part).collect(),
        _ => (0..calls.len()).map(Node::Call).collect(),
    };
    let selected = fields.len();
    let plan =
        Plan { names: Vec::new(), columns, beside: Vec::new(), calls, fields, selected, group_by, condition: None };
    Ok(AggregatePlan { plan, columns: column_functions, notices, held })
}

/// Returns the notice for a field that has another family for some sensors, which are left out.
fn left_out_notice(field: &str, family: Family, sensors: [usize; 3]) -> Option<String> {
    let others = BY_RANK.into_iter().filter(|other| *other != family && sensors[rank(*other)] > 0);
    let others: Vec<String> = others.map(|other| format!("a {} for {}", other.name(), sensors[rank(other)])).collect();
    let all = sensors.iter().sum::<usize>();
    (!others.is_empty()).then(|| {
        format!(
            "field {field:?} is a {} for {} of {all} chosen sensors, and {}, which are left out",
            family.name(),
            sensors[rank(family)],
            others.join(" and ")
        )
    })
}

struct Names<'a> {
    /// The requested fields that exist, with the number of sensors by the rank of the field's family.
    fields: BTreeMap<&'a str, [usize; 3]>,
    /// If each sensor is a series, all tag keys of the sensors.
    tags: BTreeSet<&'a str>,
    held: HeldBytes,
}

async fn collect_names<'a>(
    budget: &Budget,
    request: &Aggregation,
    entries: &'a [DirectoryEntry],
) -> Result<Names<'a>, QueryError> {
    let mut names = Names { fields: BTreeMap::new(), tags: BTreeSet::new(), held: budget.hold(0)? };
    let wanted = |name: &str| request.fields.is_empty() || request.fields.iter().any(|field| field == name);
    for batch in entries.chunks(CHOOSE) {
        for entry in batch {
            for (name, family) in entry.fields.iter().filter(|(name, _)| wanted(name)) {
                names.fields.entry(name).or_default()[rank(*family)] += 1;
            }
            if request.group_by == GroupBy::Sensor {
                names.tags.extend(entry.sensor.tags.iter().map(|(key, _)| &**key));
            }
        }
        let Names { fields, tags, held } = &mut names;
        held.set((fields.len() + tags.len()) * NAME_BYTES + tags.iter().map(|tag| tag.len()).sum::<usize>())?;
        budget.pause().await?;
    }
    Ok(names)
}
