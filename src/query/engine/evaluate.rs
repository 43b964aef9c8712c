//! A SELECT over readings, series by series as they come, in any order: group by group either the
//! readings themselves or the windows of each call, and at the end rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::filter::{Found, Lookup, arithmetic, holds};
use super::fold::Window;
use super::pattern::Patterns;
use super::plan::{Call, Function, Input, Node, Part, Plan};
use super::points::Points;
use super::rows::{joined, raw};
use super::summaries::HourSummary;
use super::windows::Windows;
use crate::influxql::{Fill, Kind};
use crate::query::QueryError;
use crate::reading::Value;

/// A series that readings are of: a sensor, or a group of a subquery.
#[derive(Debug, Clone, PartialEq)]
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
    /// Most windows, and most readings kept.
    pub limits: Limits,
}

/// Bounds on what a statement may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most rows of windows.
    pub windows: usize,
    /// Most readings in memory.
    pub points: usize,
}

/// A time, and a cell per column.
pub type Row = (i64, Vec<Option<Value>>);

/// One group's rows.
#[derive(Debug, Clone)]
pub struct Group {
    /// Measurement and tags grouped by.
    pub member: Member,
    /// Time, and a cell per column.
    pub rows: Vec<Row>,
}

/// A SELECT under way.
pub struct Evaluation<'a> {
    /// What is asked.
    pub plan: &'a Plan,
    /// Its times and windows.
    pub frame: &'a Frame,
    /// Its patterns, compiled.
    pub patterns: &'a Patterns,
    /// By measurement and the values of the tags grouped by.
    groups: BTreeMap<(Arc<str>, Vec<String>), Content>,
    /// Readings kept in memory.
    kept: usize,
}

/// What is gathered of a group.
#[derive(Debug, Default)]
pub struct Content {
    /// Readings shown as they are: time, and a cell per [`Plan::beside`].
    pub rows: Vec<Row>,
    /// Per call, its windows by their start.
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
            (Some(field), _) => Found::Field(self.points.columns[field][self.at].clone()),
            (None, None | Some(Kind::Tag)) => Found::Tag(self.member.tag(name).to_owned()),
            (None, _) => Found::Field(None),
        }
    }
}

impl<'a> Evaluation<'a> {
    /// Nothing yet.
    pub fn new(plan: &'a Plan, frame: &'a Frame, patterns: &'a Patterns) -> Self {
        Self { plan, frame, patterns, groups: BTreeMap::new(), kept: 0 }
    }

    fn group(&mut self, member: &Member) -> &mut Content {
        let tags = self.plan.group_by.iter().map(|tag| member.tag(tag).to_owned()).collect();
        let calls = self.plan.calls.len();
        self.groups.entry((member.name.clone(), tags)).or_insert_with(|| Content {
            rows: Vec::new(),
            windows: (0..calls).map(|_| BTreeMap::new()).collect(),
            values: vec![Vec::new(); calls],
        })
    }

    /// Has the group of this series counted, whether it has rows or not.
    pub fn count_in(&mut self, member: &Member) {
        self.group(member);
    }

    /// Takes readings of one series in, in time order.
    ///
    /// # Errors
    /// When there are more than the limits allow.
    pub fn feed(&mut self, member: &Member, points: &Points, filter: Filter) -> Result<(), QueryError> {
        let (plan, frame, patterns) = (self.plan, self.frame, self.patterns);
        let condition = plan.condition.as_ref().filter(|_| filter.of_condition);
        let is_wanted = |at: usize| {
            let reading = Reading { member, plan, points, at };
            condition.is_none_or(|condition| holds(condition, &reading, patterns) == Some(true))
        };
        let has_any = |at: usize| points.columns[..plan.selected].iter().any(|column| column[at].is_some());
        let selects = |at: usize| !filter.of_sensor || has_any(at);
        let wanted: Vec<usize> = (0..points.times.len()).filter(|at| selects(*at) && is_wanted(*at)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let beside = |at: usize| plan.beside.iter().map(|wanted| part(wanted, member, points, at)).collect::<Vec<_>>();
        let ranked = |at: usize, tags: &[String]| {
            let tags = tags.iter().map(|tag| Some(Value::String(member.tag(tag).into())));
            beside(at).into_iter().chain(tags).collect::<Vec<_>>()
        };
        let single = plan.calls.len() == 1;
        let mut kept = 0;
        let group = self.group(member);
        if plan.is_raw() {
            kept += wanted.len();
            group.rows.extend(wanted.iter().map(|at| (points.times[*at], beside(*at))));
        }
        for (number, call) in plan.calls.iter().enumerate() {
            let (inner, field) = innermost(call);
            let picks = single && call.function.is_selector() && (frame.windows.is_none() || !plan.beside.is_empty());
            // What lies outside of the range is there for a call that looks back, forwards or backwards.
            let is_bound = filter.of_sensor && !call.looks_back();
            let min = if is_bound && frame.has_min { frame.min } else { i64::MIN };
            let max = if is_bound { frame.max } else { i64::MAX };
            let mut window: Option<(std::ops::Range<i64>, &mut Window)> = None;
            for at in &wanted {
                let time = points.times[*at];
                let Some(value) = points.columns[field][*at].as_ref().filter(|_| (min..=max).contains(&time)) else {
                    continue;
                };
                if inner.is_transformation() || matches!(inner, Function::Integral(_)) {
                    group.values[number].push((time, value.clone()));
                    kept += 1;
                    continue;
                }
                let known = window.take().filter(|(span, _)| span.contains(&time));
                let (span, filling) = match known {
                    Some(known) => known,
                    None => {
                        let span = frame.windows.as_ref().map_or(i64::MIN..i64::MAX, |windows| windows.around(time));
                        let new = || Window::new(inner, picks);
                        // One borrow ends before the next begins.
                        let filling = group.windows[number].entry(span.start).or_insert_with(new);
                        (span, filling)
                    }
                };
                kept += filling.push(inner, time, value, || match inner {
                    Function::Top(_, tags) | Function::Bottom(_, tags) => ranked(*at, tags),
                    _ if single => beside(*at),
                    _ => Vec::new(),
                });
                window = Some((span, filling));
            }
        }
        self.kept += kept;
        if self.kept > frame.limits.points {
            return Err(QueryError::TooManyPoints { limit: frame.limits.points });
        }
        Ok(())
    }

    /// Takes hours of one series in by their summaries.
    pub fn absorb(&mut self, member: &Member, summaries: &[HourSummary]) {
        let (plan, frame) = (self.plan, self.frame);
        if summaries.is_empty() {
            return;
        }
        let group = self.group(member);
        for of_hour in summaries.chunk_by(|a, b| a.hour == b.hour) {
            let start = of_hour[0].hour.start_ns();
            let window = frame.windows.as_ref().map_or(i64::MIN, |windows| windows.around(start).start);
            for (number, call) in plan.calls.iter().enumerate() {
                let (inner, field) = innermost(call);
                for one in of_hour.iter().filter(|one| one.field == field) {
                    let new = || Window::new(inner, false);
                    group.windows[number].entry(window).or_insert_with(new).absorb(&one.summary);
                }
            }
        }
    }

    /// The rows, group by group; some have none.
    ///
    /// # Errors
    /// When there are more windows than the limits allow.
    pub fn finish(self) -> Result<Vec<Group>, QueryError> {
        let Self { plan, frame, groups, .. } = self;
        let mut finished: Vec<Group> = Vec::with_capacity(groups.len());
        for ((name, values), content) in groups {
            let tags = plan.group_by.iter().cloned().zip(values).collect();
            let member = Member { name, tags };
            let rows = if plan.is_raw() { raw(content.rows, plan, frame) } else { joined(content, plan, frame)? };
            finished.push(Group { member, rows });
        }
        if frame.descending {
            finished.reverse();
        }
        Ok(finished)
    }
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
        Part::Field(field) => points.columns[*field][at].clone(),
        // A sensor has no empty tag; a group of a subquery can have one.
        Part::Tag(tag) => {
            member.tags.iter().find(|(name, _)| name == tag).map(|(_, value)| Value::String(value.as_str().into()))
        }
    }
}

/// The columns of a row, by what each call came to and by what the reading has of [`Plan::beside`], if it is one's.
pub fn cells(plan: &Plan, call: &dyn Fn(usize) -> Option<Value>, beside: &[Option<Value>]) -> Vec<Option<Value>> {
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
