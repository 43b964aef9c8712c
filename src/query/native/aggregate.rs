//! Windows of many sensors: any functions, any step, in any zone, by sensor, by tags or all together.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use crate::influxql::Fill;
use crate::query::choice::Choice;
use crate::query::engine::Engine;
use crate::query::engine::aggregates::{self, Aggregate as Named};
use crate::query::engine::choose::{CHOOSE, NAME_BYTES};
use crate::query::engine::directory::Entry;
use crate::query::engine::evaluate::{Evaluation, Frame, Group};
use crate::query::engine::pattern::Patterns;
use crate::query::engine::plan::{Call, Field, Function, Input, Node, Plan, rank};
use crate::query::engine::windows::{Windows, zone};
use crate::query::{Budget, Held, QueryError};
use crate::reading::{Family, Sensor, Value};

/// What is asked.
#[derive(Debug, Clone)]
pub struct Aggregation {
    /// The database's name.
    pub database: String,
    /// Of which sensors.
    pub choice: Choice,
    /// In nanoseconds, half open.
    pub range: Range<i64>,
    /// Whether somebody said where the range begins.
    pub has_start: bool,
    /// Only these fields; all that the functions are for when empty.
    pub fields: Vec<String>,
    /// The windows' length in nanoseconds; one window over the whole range without it.
    pub step: Option<i64>,
    /// The zone whose clocks the windows are counted on.
    pub zone: Option<String>,
    /// What of each field.
    pub functions: Vec<Aggregate>,
    /// Which sensors go together.
    pub group_by: GroupBy,
    /// What empty windows show.
    pub fill: Fill,
}

/// Which sensors go together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupBy {
    /// None: each is a series of its own.
    Sensor,
    /// Those of a measurement that have the same values of these tags.
    Tags(Vec<String>),
}

/// A function by its name in the native API.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Aggregate {
    Count,
    Min,
    Max,
    Sum,
    Avg,
    First,
    Last,
    Stddev,
    /// One of the engine's table.
    Named(&'static Named),
    /// Of a hundred.
    Percentile(u8),
}

impl Aggregate {
    /// What the summary endpoint answers when nothing else is asked for.
    pub const USUAL: [Self; 5] = [Self::Count, Self::Min, Self::Max, Self::Sum, Self::Avg];

    /// The function of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "count" => Self::Count,
            "min" => Self::Min,
            "max" => Self::Max,
            "sum" => Self::Sum,
            "avg" => Self::Avg,
            "first" => Self::First,
            "last" => Self::Last,
            "stddev" => Self::Stddev,
            _ => match aggregates::named(name) {
                Some(aggregate) => Self::Named(aggregate),
                None => {
                    Self::Percentile(name.strip_prefix('p')?.parse().ok().filter(|percent| (1..100).contains(percent))?)
                }
            },
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Percentile(percent) => format!("p{percent}"),
            Self::Named(aggregate) => aggregate.name.to_owned(),
            other => format!("{other:?}").to_lowercase(),
        }
    }

    fn function(self) -> Function {
        match self {
            Self::Count => Function::Count,
            Self::Min => Function::Min,
            Self::Max => Function::Max,
            Self::Sum => Function::Sum,
            Self::Avg => Function::Mean,
            Self::First => Function::First,
            Self::Last => Function::Last,
            Self::Stddev => Function::Stddev,
            Self::Named(aggregate) => Function::Aggregate(aggregate),
            Self::Percentile(percent) => Function::Percentile(f64::from(percent)),
        }
    }

    fn is_for(self, family: Family) -> bool {
        match self {
            Self::Named(aggregate) => (aggregate.takes)(family),
            Self::First | Self::Last => true,
            _ => family == Family::Number,
        }
    }
}

/// Windows of all series, and what they take.
#[derive(Debug)]
pub struct Aggregated {
    /// What each cell of a window is: a field, and a function of it. Those of a field stand together.
    pub columns: Vec<(String, Aggregate)>,
    /// In the order of their names and tags.
    pub series: Vec<WindowSeries>,
    /// Given back when the answer has left.
    pub held: Held,
}

/// One series of windows.
#[derive(Debug)]
pub struct WindowSeries {
    /// The sensor's key, where the series is one sensor's.
    pub sensor: Option<String>,
    /// The measurement.
    pub measurement: String,
    /// The sensor's tags, or those grouped by.
    pub tags: Vec<(String, String)>,
    /// In time order: from the first nanosecond on and before the last, cut to the range asked for; and a cell per column.
    pub windows: Vec<(Range<i64>, Vec<Option<Value>>)>,
    /// Sums of whole numbers that no `i64` holds, of which cells have the nearest double, by window and column.
    pub wide: HashMap<(usize, usize), i128>,
}

impl WindowSeries {
    /// The sum that a cell has the nearest double of.
    #[must_use]
    pub fn wide_sum(&self, window: usize, column: usize) -> Option<i128> {
        self.wide.get(&(window, column)).copied()
    }
}

/// Windows of all sensors chosen, series after series in the order of their names and tags. A sensor that was
/// asked for by its key has a series as soon as it is known.
///
/// # Errors
/// When the answer cannot be complete, or the budget is spent.
pub async fn aggregate(engine: &Engine, budget: &Budget, asked: &Aggregation) -> Result<Aggregated, QueryError> {
    let chosen = engine.choose(budget, &asked.database, &asked.choice).await?;
    let (plan, columns, planned) = plan(budget, asked, &chosen.entries).await?;
    let (frame, patterns) = (frame(asked), Patterns::default());
    let mut evaluation = Evaluation::new(&plan, &frame, &patterns, budget)?;
    engine.read(&asked.database, &chosen.entries, &mut evaluation).await?;
    let (groups, mut held) = evaluation.finish().await?;
    let rows = groups.iter().map(|group| group.rows.len()).sum::<usize>();
    held.grow(rows * size_of::<Range<i64>>())?;
    held.add(planned);
    let groups = groups.into_iter().filter(|group| !group.rows.is_empty());
    let mut series: Vec<WindowSeries> = groups.map(|group| windows_of(group, &frame, asked)).collect();
    if let (Choice::Sensor(sensor), [_], true) = (&asked.choice, &*chosen.entries, series.is_empty()) {
        let tags = sensor.tags.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let (key, measurement) = (Some(sensor.key.to_string()), sensor.measurement.to_string());
        series.push(WindowSeries { sensor: key, measurement, tags, windows: Vec::new(), wide: HashMap::new() });
    }
    Ok(Aggregated { columns, series, held })
}

fn windows_of(group: Group, frame: &Frame, asked: &Aggregation) -> WindowSeries {
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
        // Without windows none is empty.
        fill: asked.step.map_or(Fill::None, |_| asked.fill),
        descending: false,
        rows_max: None,
    }
}

/// The plan of all functions over all fields, and of which field and function each of its columns is.
async fn plan(
    budget: &Budget,
    asked: &Aggregation,
    entries: &[Entry],
) -> Result<(Plan, Vec<(String, Aggregate)>, Held), QueryError> {
    let (known, tags, mut held) = names(budget, asked, entries).await?;
    let mut functions: Vec<Aggregate> = Vec::new();
    for function in &asked.functions {
        if !functions.contains(function) {
            functions.push(*function);
        }
    }
    let (mut fields, mut calls, mut of_column) = (Vec::new(), Vec::new(), Vec::new());
    for (name, family) in known {
        let functions: Vec<Aggregate> = functions.iter().copied().filter(|function| function.is_for(family)).collect();
        if functions.is_empty() {
            continue;
        }
        let column = size_of::<(Call, Node, String, Aggregate)>() + name.len();
        held.grow(functions.len() * column + NAME_BYTES)?;
        fields.push(Field { name: name.to_owned(), family });
        for function in functions {
            calls.push(Call { function: function.function(), input: Input::Field(fields.len() - 1) });
            of_column.push((name.to_owned(), function));
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
    Ok((plan, of_column, held))
}

type Names<'a> = (BTreeMap<&'a str, Family>, BTreeSet<&'a str>, Held);

/// The fields asked for that there are, and the tags that sensors are told apart by.
async fn names<'a>(budget: &Budget, asked: &Aggregation, entries: &'a [Entry]) -> Result<Names<'a>, QueryError> {
    let (mut known, mut tags, mut held) = (BTreeMap::new(), BTreeSet::new(), budget.hold(0)?);
    let wanted = |name: &str| asked.fields.is_empty() || asked.fields.iter().any(|field| field == name);
    for some in entries.chunks(CHOOSE) {
        for entry in some {
            for (name, family) in entry.fields.iter().filter(|(name, _)| wanted(name)) {
                let first = known.entry(&**name).or_insert(*family);
                *first = [*first, *family].into_iter().min_by_key(|family| rank(*family)).unwrap_or(*family);
            }
            if asked.group_by == GroupBy::Sensor {
                tags.extend(entry.sensor.tags.iter().map(|(key, _)| &**key));
            }
        }
        held.set((known.len() + tags.len()) * NAME_BYTES + tags.iter().map(|tag| tag.len()).sum::<usize>())?;
        budget.pause().await?;
    }
    Ok((known, tags, held))
}
