//! Windowed aggregates of many sensors: any functions, any step, any zone; per sensor, per combination of tags, or all
//! together.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use crate::influxql::Fill;
use crate::query::engine::Engine;
use crate::query::engine::aggregates;
use crate::query::engine::directory::DirectoryEntry;
use crate::query::engine::evaluate::Evaluation;
use crate::query::engine::frame::{Frame, GroupRows};
use crate::query::engine::memory::{CHOOSE, NAME_BYTES};
use crate::query::engine::plan::{BY_RANK, Call, Function, Input, Node, Plan, PlannedField, rank};
use crate::query::engine::windows::{Windows, zone};
use crate::query::pattern::Patterns;
use crate::query::selector::Selector;
use crate::query::{Budget, HeldBytes, Query, QueryError};
use crate::reading::{Family, Sensor, Value};

/// What to aggregate.
#[derive(Debug, Clone)]
pub struct Aggregation {
    pub database: String,
    pub selector: Selector,
    /// In nanoseconds, half open.
    pub range: Range<i64>,
    /// Whether the client stated the start of the range.
    pub has_start: bool,
    /// Only these fields; if empty, all that the functions accept.
    pub fields: Vec<String>,
    /// The windows' length in nanoseconds; `None` for one window over the whole range.
    pub step: Option<i64>,
    /// The zone in whose local time the windows are counted.
    pub zone: Option<String>,
    /// Applied to each field.
    pub functions: Vec<NativeAggregate>,
    pub families: Families,
    pub group_by: GroupBy,
    pub fill: Fill,
}

/// Of which families the aggregated fields are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// Texts and booleans are left out, of which no summaries answer.
    Numbers,
    /// A field is of one family, the first of those that sensors have it as. Sensors that have it as another one are left out.
    First,
    /// A field has columns for each family that sensors have it as.
    All,
}

/// Which sensors form one series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupBy {
    /// Each sensor is a series.
    Sensor,
    /// The sensors of a measurement that have the same values of these tags.
    Tags(Vec<String>),
}

/// A function by its name in the native API.
#[derive(Debug, Clone, PartialEq)]
pub struct NativeAggregate {
    pub name: Cow<'static, str>,
    function: Function,
}

impl NativeAggregate {
    pub const COUNT: Self = Self { name: Cow::Borrowed("count"), function: Function::Count };
    const LAST: Self = Self { name: Cow::Borrowed("last"), function: Function::Last };

    /// The function of this name: `avg` is another one for `mean`, and `p1` to `p99` are percentiles.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let function = if name == "avg" { Some(Function::Mean) } else { aggregates::function(name) };
        if let Some(function) = function {
            return Some(Self { name: name.to_owned().into(), function });
        }
        let percent: u8 = name.strip_prefix('p')?.parse().ok().filter(|percent| (1..100).contains(percent))?;
        Some(Self { name: format!("p{percent}").into(), function: Function::Percentile(f64::from(percent)) })
    }

    /// The summary endpoint's functions if the client names none.
    #[must_use]
    pub fn usual() -> Vec<Self> {
        ["count", "min", "max", "sum", "avg"].into_iter().filter_map(Self::from_name).collect()
    }

    fn is_for(&self, family: Family) -> bool {
        match &self.function {
            Function::Aggregate(aggregate) => (aggregate.takes)(family),
            Function::Count | Function::First | Function::Last => true,
            _ => family == Family::Number,
        }
    }
}

#[derive(Debug)]
pub struct Aggregated {
    /// The field and the function of each cell of a window. Columns of one field are adjacent.
    pub columns: Vec<(String, NativeAggregate)>,
    /// In the order of measurements and tags.
    pub series: Vec<WindowSeries>,
    /// One for each field of which some sensors are left out, because it is of another type there.
    pub notices: Vec<String>,
    /// The memory of the answer; keep it until the answer is sent.
    pub held: HeldBytes,
}

#[derive(Debug)]
pub struct WindowSeries {
    /// The sensor's key, if the series is one sensor's.
    pub sensor: Option<String>,
    pub measurement: String,
    /// The sensor's tags, or those grouped by.
    pub tags: Vec<(String, String)>,
    /// In time order: the window, cut to the requested range, and a cell per column.
    pub windows: Vec<(Range<i64>, Vec<Option<Value>>)>,
    /// Integer sums that exceed `i64`, by window and column; the cells hold the nearest double.
    pub wide: HashMap<(usize, usize), i128>,
}

impl WindowSeries {
    /// The exact integer sum of a cell, if it exceeds `i64`.
    #[must_use]
    pub fn wide_sum(&self, window: usize, column: usize) -> Option<i128> {
        self.wide.get(&(window, column)).copied()
    }
}

impl Query {
    /// Aggregates all selected sensors; series come in the order of measurements and tags. A sensor selected by its key has
    /// a series as soon as it exists, even without windows.
    ///
    /// # Errors
    /// If the answer would be incomplete, or the budget is exhausted.
    pub async fn aggregate(&self, budget: &Budget, asked: &Aggregation) -> Result<Aggregated, QueryError> {
        let read = || async {
            let chosen = self.engine.choose(budget, &asked.database, &asked.selector).await?;
            let mut found = aggregated(&self.engine, budget, asked, &chosen.entries).await?;
            if let (Selector::Sensor(sensor), [_], true) = (&asked.selector, &*chosen.entries, found.series.is_empty())
            {
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
        let found = self.in_turn(budget, &asked.database, read).await?;
        self.count(found.series.iter().map(|series| series.windows.len()).sum());
        Ok(found)
    }
}

/// Which of these fields each of these sensors has values of in a range of times, in nanoseconds; sensors without any are left out.
///
/// # Errors
/// As [`Query::aggregate`].
pub async fn present(
    engine: &Engine,
    budget: &Budget,
    database: &str,
    (range, fields): (Range<i64>, Vec<String>),
    sensors: &[DirectoryEntry],
) -> Result<Vec<Vec<String>>, QueryError> {
    let asked = Aggregation {
        database: database.to_owned(),
        // Not read: the sensors are chosen.
        selector: Selector::Matching { measurement: None, tags: Vec::new(), pins: Vec::new() },
        range,
        has_start: false,
        fields,
        step: None,
        zone: None,
        functions: vec![NativeAggregate::LAST],
        families: Families::First,
        group_by: GroupBy::Sensor,
        fill: Fill::None,
    };
    let Aggregated { columns, series, held: _held, .. } = aggregated(engine, budget, &asked, sensors).await?;
    let fields_of = |series: &WindowSeries| -> Vec<String> {
        let cells = series.windows.iter().flat_map(|(_, cells)| cells.iter().zip(&columns));
        cells.filter(|(cell, _)| cell.is_some()).map(|(_, (field, _))| field.clone()).collect()
    };
    Ok(series.iter().map(fields_of).filter(|fields| !fields.is_empty()).collect())
}

async fn aggregated(
    engine: &Engine,
    budget: &Budget,
    asked: &Aggregation,
    entries: &[DirectoryEntry],
) -> Result<Aggregated, QueryError> {
    let Planned { plan, columns, notices, held: planned } = planned(budget, asked, entries).await?;
    let (frame, patterns) = (frame(asked), Patterns::default());
    let mut evaluation = Evaluation::new(&plan, &frame, &patterns, budget)?;
    engine.read(&asked.database, entries, &mut evaluation).await?;
    let (groups, mut held) = evaluation.finish().await?;
    let rows = groups.iter().map(|group| group.rows.len()).sum::<usize>();
    held.grow(rows * size_of::<Range<i64>>())?;
    held.add(planned);
    let groups = groups.into_iter().filter(|group| !group.rows.is_empty());
    let series = groups.map(|group| windows_of(group, &frame, asked)).collect();
    Ok(Aggregated { columns, series, notices, held })
}

fn windows_of(group: GroupRows, frame: &Frame, asked: &Aggregation) -> WindowSeries {
    let tags: Vec<(String, String)> = group.member.tags.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let measurement = group.member.name.to_string();
    let key = || {
        let tags = tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        Sensor::new(&measurement, tags).ok().map(|sensor| sensor.key.to_string())
    };
    let sensor = if asked.group_by == GroupBy::Sensor { key() } else { None };
    let at = |(time, call, sum): &(i64, usize, i128)| {
        Some(((group.rows.binary_search_by_key(time, |(time, _)| *time).ok()?, *call), *sum))
    };
    let wide = group.wide.iter().filter_map(at).collect();
    let span = |time: i64| match &frame.windows {
        Some(windows) => {
            let window = windows.around(time);
            window.start.max(asked.range.start)..window.end.min(asked.range.end)
        }
        None => asked.range.clone(),
    };
    let windows = group.rows.into_iter().map(|(time, cells)| (span(time), cells)).collect();
    WindowSeries { sensor, measurement, tags, windows, wide }
}

fn frame(asked: &Aggregation) -> Frame {
    let zone = asked.zone.as_deref().and_then(zone);
    Frame {
        min: asked.range.start,
        max: asked.range.end.saturating_sub(1),
        has_min: asked.has_start,
        windows: asked.step.map(|every| Windows { every, offset: 0, zone }),
        // A single window is never empty.
        fill: asked.step.map_or(Fill::None, |_| asked.fill),
        descending: false,
        rows_max: None,
    }
}

struct Planned {
    plan: Plan,
    /// As in [`Aggregated`], like the notices.
    columns: Vec<(String, NativeAggregate)>,
    notices: Vec<String>,
    held: HeldBytes,
}

/// The plan of all functions over all fields.
async fn planned(budget: &Budget, asked: &Aggregation, entries: &[DirectoryEntry]) -> Result<Planned, QueryError> {
    let Names { fields: known, tags, mut held } = names(budget, asked, entries).await?;
    let mut functions: Vec<NativeAggregate> = Vec::new();
    for function in &asked.functions {
        if !functions.contains(function) {
            functions.push(function.clone());
        }
    }
    let (mut fields, mut calls, mut of_column, mut notices) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (name, sensors) in known {
        let families = BY_RANK.into_iter().filter(|family| sensors[rank(*family)] > 0);
        let families = families.take(if asked.families == Families::All { BY_RANK.len() } else { 1 });
        for family in families.filter(|family| asked.families != Families::Numbers || *family == Family::Number) {
            let functions: Vec<NativeAggregate> =
                functions.iter().filter(|function| function.is_for(family)).cloned().collect();
            if functions.is_empty() {
                continue;
            }
            let column = size_of::<(Call, Node, String, NativeAggregate)>() + name.len();
            held.grow(functions.len() * column + NAME_BYTES)?;
            fields.push(PlannedField { name: name.to_owned(), family });
            for function in functions {
                calls.push(Call { function: function.function.clone(), input: Input::Field(fields.len() - 1) });
                of_column.push((name.to_owned(), function));
            }
            if asked.families != Families::All {
                notices.extend(left_out(name, family, sensors));
            }
        }
    }
    let group_by = match &asked.group_by {
        GroupBy::Tags(tags) => tags.clone(),
        GroupBy::Sensor => tags.into_iter().map(str::to_owned).collect(),
    };
    let columns = (0..calls.len()).map(Node::Call).collect();
    let selected = fields.len();
    let plan =
        Plan { names: Vec::new(), columns, beside: Vec::new(), calls, fields, selected, group_by, condition: None };
    Ok(Planned { plan, columns: of_column, notices, held })
}

/// The notice for a field that is of one family for some sensors and of another one for others, which are left out.
fn left_out(field: &str, family: Family, sensors: [usize; 3]) -> Option<String> {
    let others = BY_RANK.into_iter().filter(|other| *other != family && sensors[rank(*other)] > 0);
    let others: Vec<String> = others.map(|other| format!("a {} for {}", other.name(), sensors[rank(other)])).collect();
    let of = sensors.iter().sum::<usize>();
    (!others.is_empty()).then(|| {
        format!(
            "field {field:?} is a {} for {} of {of} chosen sensors, and {}, which are left out",
            family.name(),
            sensors[rank(family)],
            others.join(" and ")
        )
    })
}

struct Names<'a> {
    /// The requested fields that exist, and how many sensors have each as one of a family, by its rank.
    fields: BTreeMap<&'a str, [usize; 3]>,
    /// If each sensor is a series, the tags that tell sensors apart.
    tags: BTreeSet<&'a str>,
    held: HeldBytes,
}

async fn names<'a>(
    budget: &Budget,
    asked: &Aggregation,
    entries: &'a [DirectoryEntry],
) -> Result<Names<'a>, QueryError> {
    let mut names = Names { fields: BTreeMap::new(), tags: BTreeSet::new(), held: budget.hold(0)? };
    let wanted = |name: &str| asked.fields.is_empty() || asked.fields.iter().any(|field| field == name);
    for some in entries.chunks(CHOOSE) {
        for entry in some {
            for (name, family) in entry.fields.iter().filter(|(name, _)| wanted(name)) {
                names.fields.entry(name).or_default()[rank(*family)] += 1;
            }
            if asked.group_by == GroupBy::Sensor {
                names.tags.extend(entry.sensor.tags.iter().map(|(key, _)| &**key));
            }
        }
        let Names { fields, tags, held } = &mut names;
        held.set((fields.len() + tags.len()) * NAME_BYTES + tags.iter().map(|tag| tag.len()).sum::<usize>())?;
        budget.pause().await?;
    }
    Ok(names)
}
