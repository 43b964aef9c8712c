//! A SELECT over readings, series by series as they come, in any order: group by group either the
//! readings themselves or the windows of each call, and at the end rows.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::filter::{Found, Lookup, arithmetic, holds};
use super::fold::Window;
use super::limits::Span;
use super::pattern::Patterns;
use super::plan::{Call, Function, Input, Node, Part, Plan};
use super::points::Points;
use super::rows::{joined, raw};
use super::summaries::HourSummary;
use super::windows::Windows;
use crate::influxql::{Fill, Kind};
use crate::query::{Budget, Held, QueryError};
use crate::reading::Value;

/// A series that readings are of: a sensor, or a group of a subquery.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Member {
    /// The measurement.
    pub name: Arc<str>,
    /// In key order.
    pub tags: Vec<(String, String)>,
}

impl Member {
    /// A tag's value; empty where there is none.
    #[must_use]
    pub fn tag(&self, key: &str) -> &str {
        self.tags.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }
}

/// The times and windows of a SELECT.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The first time, included; the least there is where none was said.
    pub min: i64,
    /// The last time, included.
    pub max: i64,
    /// Whether a first time was said.
    pub has_min: bool,
    /// `GROUP BY time()`
    pub windows: Option<Windows>,
    /// What empty windows show.
    pub fill: Fill,
    /// Whether the latest rows come first.
    pub descending: bool,
    /// Most rows of a group that are shown, those passed over included; none without a limit.
    pub rows_max: Option<usize>,
}

/// A time, and a cell per column.
pub type Row = (i64, Vec<Option<Value>>);

/// One group's rows.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// Measurement and tags grouped by.
    pub member: Member,
    /// Time, and a cell per column.
    pub rows: Vec<Row>,
    /// Sums of whole numbers that no `i64` holds, of which rows have the nearest double: a row's time, the number of the call,
    /// the sum.
    pub wide: Vec<(i64, usize, i128)>,
}

/// Readings that are looked at between pauses, at most, and what is done with them: about so many comparisons.
const ROWS: usize = 1024;
const STEPS: usize = 1 << 14;
/// What a window takes among others.
const WINDOW_BYTES: usize = 2 * size_of::<(i64, Window)>();

/// A SELECT under way.
pub struct Evaluation<'a> {
    /// What is asked.
    pub plan: &'a Plan,
    /// Its times and windows.
    pub frame: &'a Frame,
    /// Its patterns, compiled.
    pub patterns: &'a Patterns,
    /// What it may take.
    pub budget: &'a Budget,
    /// What the reads of its statement were about so far, if there were any.
    pub span: Option<Span>,
    /// Per call, the one whose windows it reads: what summaries know of a field is gathered once for all calls of it.
    gathered_by: Arc<[usize]>,
    /// By measurement and the values of the tags grouped by.
    groups: BTreeMap<(Arc<str>, Vec<String>), Content>,
    /// What the groups take.
    held: Held,
}

/// What is gathered of a group.
#[derive(Debug, Default)]
pub struct Content {
    /// Readings shown as they are: time, and a cell per [`Plan::beside`].
    pub rows: Vec<Row>,
    /// Per call, the windows that it gathers, by their start.
    pub windows: Vec<BTreeMap<i64, Window>>,
    /// Per call, the values that a transformation goes over.
    pub values: Vec<Vec<(i64, Value)>>,
}

/// What of the readings fed does not count.
#[derive(Debug, Clone, Copy)]
pub struct Filter {
    /// That which has none of the fields selected, or lies before the range: a sensor has no reading there, a subquery
    /// has a row.
    pub of_sensor: bool,
    /// That which does not fulfil the condition, which is yet to be looked at.
    pub of_condition: bool,
}

struct Reading<'a> {
    member: &'a Member,
    plan: &'a Plan,
    points: &'a Points,
    at: usize,
}

impl Lookup for Reading<'_> {
    fn find(&self, name: &str, kind: Option<Kind>) -> Found {
        match (self.plan.fields.iter().position(|field| field.is(name, kind)), kind) {
            (Some(field), _) => Found::Field(self.points.cell(field, self.at).cloned()),
            (None, None | Some(Kind::Tag)) => Found::Tag(self.member.tag(name).to_owned()),
            (None, _) => Found::Field(None),
        }
    }
}

impl<'a> Evaluation<'a> {
    /// Nothing yet.
    ///
    /// # Errors
    /// When the budget has nothing left.
    pub fn new(
        plan: &'a Plan,
        frame: &'a Frame,
        patterns: &'a Patterns,
        budget: &'a Budget,
    ) -> Result<Self, QueryError> {
        let mut first_of = HashMap::new();
        let gathered_by = plan.calls.iter().enumerate().map(|(number, call)| match &call.input {
            Input::Field(field) if call.function.is_summarized() => *first_of.entry(*field).or_insert(number),
            _ => number,
        });
        let (gathered_by, held) = (gathered_by.collect(), budget.hold(0)?);
        Ok(Self { plan, frame, patterns, budget, span: None, gathered_by, groups: BTreeMap::new(), held })
    }

    fn group(&mut self, member: &Member) -> Result<&mut Content, QueryError> {
        let Self { plan, groups, held, .. } = self;
        let tags: Vec<String> = plan.group_by.iter().map(|tag| member.tag(tag).to_owned()).collect();
        let calls = plan.calls.len();
        match groups.entry((member.name.clone(), tags)) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                // Its tags once more with their names, when it is shown.
                let names = plan.group_by.iter().zip(&new.key().1).map(|(name, tag)| name.len() + 2 * tag.len());
                let tags = names.map(|text| text + 3 * size_of::<String>()).sum::<usize>();
                held.grow(size_of::<Content>() + tags + calls * 2 * size_of::<BTreeMap<i64, Window>>())?;
                Ok(new.insert(Content::new(calls)))
            }
        }
    }

    /// Has the group of this series counted, whether it has rows or not.
    ///
    /// # Errors
    /// When the budget is spent.
    pub fn count_in(&mut self, member: &Member) -> Result<(), QueryError> {
        self.group(member).map(drop)
    }

    /// Takes readings of one series in, in time order, some at a time.
    ///
    /// # Errors
    /// When the budget is spent.
    pub async fn feed(&mut self, member: &Member, points: &Points, filter: Filter) -> Result<(), QueryError> {
        let step = (STEPS / self.plan.steps()).clamp(8, ROWS);
        for from in (0..points.times.len()).step_by(step) {
            self.feed_some(member, points, from..points.times.len().min(from + step), filter)?;
            self.budget.pause().await?;
        }
        Ok(())
    }

    fn feed_some(
        &mut self,
        member: &Member,
        points: &Points,
        rows: Range<usize>,
        filter: Filter,
    ) -> Result<(), QueryError> {
        let wanted = self.wanted(member, points, rows, filter);
        if wanted.is_empty() {
            return Ok(());
        }
        let (plan, frame, budget) = (self.plan, self.frame, self.budget);
        let beside = |at: usize| plan.beside.iter().map(|wanted| part(wanted, member, points, at)).collect::<Vec<_>>();
        self.group(member)?;
        if plan.is_raw() {
            let rows: Vec<Row> = wanted.iter().map(|at| (points.times[*at], beside(*at))).collect();
            self.held.grow(rows.iter().map(row_bytes).sum())?;
            let group = self.group(member)?;
            group.rows.extend(rows);
            let freed = group.keep_first(frame, budget);
            return self.held.set(self.held.bytes() - freed);
        }
        let gathered_by = self.gathered_by.clone();
        for number in gathering(&gathered_by) {
            let more = self.fill_windows(number, member, points, &wanted, filter)?;
            self.held.grow(more)?;
        }
        Ok(())
    }

    /// Which of these readings count.
    fn wanted(&self, member: &Member, points: &Points, rows: Range<usize>, filter: Filter) -> Vec<usize> {
        let (plan, patterns) = (self.plan, self.patterns);
        let condition = plan.condition.as_ref().filter(|_| filter.of_condition);
        let is_wanted = |at: usize| {
            let reading = Reading { member, plan, points, at };
            condition.is_none_or(|condition| holds(condition, &reading, patterns) == Some(true))
        };
        let has_any = |at: usize| (0..plan.selected).any(|field| points.cell(field, at).is_some());
        let selects = |at: usize| !filter.of_sensor || has_any(at);
        rows.filter(|at| selects(*at) && is_wanted(*at)).collect()
    }

    /// Takes readings into the windows of one call. Returns the bytes that these take.
    fn fill_windows(
        &mut self,
        number: usize,
        member: &Member,
        points: &Points,
        wanted: &[usize],
        filter: Filter,
    ) -> Result<usize, QueryError> {
        let (plan, frame) = (self.plan, self.frame);
        let call = &plan.calls[number];
        let beside = |at: usize| plan.beside.iter().map(|wanted| part(wanted, member, points, at)).collect::<Vec<_>>();
        let ranked = |at: usize, tags: &[String]| {
            let tags = tags.iter().map(|tag| Some(Value::String(member.tag(tag).into())));
            beside(at).into_iter().chain(tags).collect::<Vec<_>>()
        };
        let single = plan.calls.len() == 1;
        let (inner, field) = innermost(call);
        let picks = single && call.function.is_selector() && (frame.windows.is_none() || !plan.beside.is_empty());
        // What lies outside of the range is there for a call that looks back, forwards or backwards.
        let is_bound = filter.of_sensor && !call.looks_back();
        let range =
            if is_bound && frame.has_min { frame.min } else { i64::MIN }..=if is_bound { frame.max } else { i64::MAX };
        let group = self.group(member)?;
        let mut bytes = 0;
        let mut window: Option<(Range<i64>, &mut Window)> = None;
        for at in wanted {
            let time = points.times[*at];
            let Some(value) = points.cell(field, *at).filter(|_| range.contains(&time)) else { continue };
            if inner.is_transformation() || matches!(inner, Function::Integral(_)) {
                group.values[number].push((time, value.clone()));
                bytes += 2 * size_of::<(i64, Value)>() + text_bytes(value);
                continue;
            }
            let known = window.take().filter(|(span, _)| span.contains(&time));
            let (span, filling) = match known {
                Some(known) => known,
                None => {
                    let span = frame.windows.as_ref().map_or(i64::MIN..i64::MAX, |windows| windows.around(time));
                    // One borrow ends before the next begins.
                    let filling = group.windows[number].entry(span.start).or_insert_with(|| {
                        bytes += WINDOW_BYTES;
                        Window::new(inner, picks)
                    });
                    (span, filling)
                }
            };
            bytes += filling.push(inner, time, value, || match inner {
                Function::Top(_, tags) | Function::Bottom(_, tags) => ranked(*at, tags),
                _ if single => beside(*at),
                _ => Vec::new(),
            });
            window = Some((span, filling));
        }
        Ok(bytes)
    }

    /// Takes hours of one series in by their summaries.
    ///
    /// # Errors
    /// When the budget is spent.
    pub fn absorb(&mut self, member: &Member, summaries: &[HourSummary]) -> Result<(), QueryError> {
        let (plan, frame) = (self.plan, self.frame);
        if summaries.is_empty() {
            return Ok(());
        }
        let mut bytes = 0;
        let gathered_by = self.gathered_by.clone();
        let group = self.group(member)?;
        let mut window = 0..0;
        for of_hour in summaries.chunk_by(|a, b| a.hour == b.hour) {
            let start = of_hour[0].hour.start_ns();
            if !window.contains(&start) {
                window = frame.windows.as_ref().map_or(i64::MIN..i64::MAX, |windows| windows.around(start));
            }
            for number in gathering(&gathered_by) {
                let (inner, field) = innermost(&plan.calls[number]);
                for one in of_hour.iter().filter(|one| one.field == field) {
                    let new = || {
                        bytes += WINDOW_BYTES;
                        Window::new(inner, false)
                    };
                    group.windows[number].entry(window.start).or_insert_with(new).absorb(&one.summary);
                }
            }
        }
        self.held.grow(bytes)
    }

    /// The rows, group by group, and what they take; some have none.
    ///
    /// # Errors
    /// When the budget is spent.
    pub async fn finish(self) -> Result<(Vec<Group>, Held), QueryError> {
        let Self { plan, frame, budget, gathered_by, groups, mut held, .. } = self;
        let mut finished: Vec<Group> = Vec::with_capacity(groups.len());
        for ((name, values), content) in groups {
            let tags = plan.group_by.iter().cloned().zip(values).collect();
            let member = Member { name, tags };
            let count = content.rows_most(frame);
            let width = plan.columns.len() + 2 * plan.beside.len() + 4 * plan.calls.len();
            let cells = count.saturating_mul(size_of::<Row>() + width * size_of::<Option<Value>>());
            held.grow(cells.saturating_add(content.text_bytes().saturating_mul(plan.most_used())))?;
            let wide = if plan.calls.is_empty() { Vec::new() } else { content.wide_sums(plan, frame, &gathered_by) };
            let join = |content| joined(content, plan, frame, &gathered_by);
            let make = || if plan.is_raw() { raw(content.rows, plan, frame) } else { join(content) };
            let made = budget.at_length(count.saturating_mul(width), make);
            let mut rows = Vec::with_capacity(made.len());
            for (number, (time, calls, beside)) in made.into_iter().enumerate() {
                rows.push((time, cells_of(plan, &|call| calls.get(call).cloned().flatten(), &beside)));
                if number % (STEPS / plan.steps()).clamp(8, ROWS) == 0 {
                    budget.pause().await?;
                }
            }
            finished.push(Group { member, rows, wide });
            budget.pause().await?;
        }
        if frame.descending {
            finished.reverse();
        }
        let rows = finished.iter().flat_map(|group| &group.rows).map(row_bytes).sum::<usize>();
        let members = finished.len() * (size_of::<Group>() + plan.group_by.len() * 3 * size_of::<String>());
        held.set(rows + members)?;
        Ok((finished, held))
    }
}

impl Content {
    fn new(calls: usize) -> Self {
        let windows = (0..calls).map(|_| BTreeMap::new()).collect();
        Self { rows: Vec::new(), windows, values: vec![Vec::new(); calls] }
    }

    /// Drops what a limit leaves out, once it is as much as what it leaves in. Returns how many bytes that frees.
    fn keep_first(&mut self, frame: &Frame, budget: &Budget) -> usize {
        let is_filled = matches!(frame.fill, Fill::Previous | Fill::Integer(_) | Fill::Float(_));
        let Some(most) = frame.rows_max.filter(|_| !is_filled) else { return 0 };
        if self.rows.len() < most.saturating_mul(2).max(ROWS) {
            return 0;
        }
        budget.at_length(self.rows.len(), || {
            self.rows.sort_by_key(|(time, _)| *time);
            let left_out = if frame.descending { 0..self.rows.len() - most } else { most..self.rows.len() };
            self.rows.drain(left_out).map(|row| row_bytes(&row)).sum()
        })
    }

    /// The memory of all texts.
    fn text_bytes(&self) -> usize {
        let rows = self.rows.iter().flat_map(|(_, cells)| cells.iter().flatten());
        let values = self.values.iter().flatten().map(|(_, value)| value);
        let picked = self.windows.iter().flat_map(BTreeMap::values).map(Window::text_bytes).sum::<usize>();
        rows.chain(values).map(text_bytes).sum::<usize>() + picked
    }

    /// How many rows it comes to at most.
    fn rows_most(&self, frame: &Frame) -> usize {
        let kept = self.windows.iter().flat_map(BTreeMap::values).map(Window::len).sum::<usize>();
        let values = self.values.iter().map(Vec::len).sum::<usize>();
        let filled = match (&frame.windows, frame.fill) {
            (None, _) | (_, Fill::None) => 0,
            (Some(grid), _) => {
                let first = self.windows.iter().filter_map(|windows| windows.keys().next()).min();
                let from = if frame.has_min { frame.min } else { first.copied().unwrap_or(frame.max) };
                grid.count(from..frame.max).min(frame.rows_max.unwrap_or(usize::MAX))
            }
        };
        (self.rows.len() + kept + values).max(filled)
    }

    /// The sums of whole numbers that are too large for one: the window's time, the call, the sum.
    fn wide_sums(&self, plan: &Plan, frame: &Frame, gathered_by: &[usize]) -> Vec<(i64, usize, i128)> {
        let mut wide = Vec::new();
        for (number, (call, by)) in plan.calls.iter().zip(gathered_by).enumerate() {
            if call.function == Function::Sum {
                let sum = |(start, window): (&i64, &Window)| Some((label(*start, frame), number, window.wide_sum()?));
                wide.extend(self.windows[*by].iter().filter_map(sum));
            }
        }
        wide
    }
}

/// The time that a window's row has.
pub fn label(start: i64, frame: &Frame) -> i64 {
    match (&frame.windows, frame.has_min) {
        (Some(_), _) => start,
        (None, true) => frame.min,
        (None, false) => 0,
    }
}

/// The memory that a row takes.
pub fn row_bytes((_, cells): &Row) -> usize {
    size_of::<Row>()
        + cells.capacity() * size_of::<Option<Value>>()
        + cells.iter().flatten().map(text_bytes).sum::<usize>()
}

/// The memory of a value's text.
pub fn text_bytes(value: &Value) -> usize {
    if let Value::String(text) = value { text.len() } else { 0 }
}

/// The calls that gather windows themselves.
fn gathering(gathered_by: &[usize]) -> impl Iterator<Item = usize> {
    gathered_by.iter().enumerate().filter(|(number, by)| number == *by).map(|(number, _)| number)
}

/// The function next to the readings, and its field.
fn innermost(call: &Call) -> (&Function, usize) {
    match &call.input {
        Input::Field(field) => (&call.function, *field),
        Input::Call(inner) => innermost(inner),
    }
}

/// A part of one reading.
fn part(part: &Part, member: &Member, points: &Points, at: usize) -> Option<Value> {
    match part {
        Part::Field(field) => points.cell(*field, at).cloned(),
        // A sensor has no empty tag; a group of a subquery can have one.
        Part::Tag(tag) => {
            member.tags.iter().find(|(name, _)| name == tag).map(|(_, value)| Value::String(value.as_str().into()))
        }
    }
}

/// The columns of a row, by what each call came to and by what the reading has of [`Plan::beside`], if it is one's.
fn cells_of(plan: &Plan, call: &dyn Fn(usize) -> Option<Value>, beside: &[Option<Value>]) -> Vec<Option<Value>> {
    plan.columns.iter().map(|node| cell(node, call, beside)).collect()
}

fn cell(node: &Node, call: &dyn Fn(usize) -> Option<Value>, beside: &[Option<Value>]) -> Option<Value> {
    match node {
        Node::Nothing => None,
        Node::Constant(value) => Some(value.clone()),
        Node::Call(number) => call(*number).filter(|value| !matches!(value, Value::Float(value) if value.is_nan())),
        Node::Part(number) => beside.get(*number).cloned().flatten(),
        Node::Binary(operator, a, b) => arithmetic(*operator, &cell(a, call, beside)?, &cell(b, call, beside)?),
    }
}
