//! Evaluates a plan over readings. Series may come in any order; per group it collects either the readings themselves
//! or the windows of each call, and makes rows of them at the end.

use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::condition::{Operand, Subject};
use super::fold::{OpenWindow, Summed};
use super::frame::{Frame, GroupContent, GroupRows, ReadingSource, ResultRow};
use super::memory::text_bytes;
use super::plan::{Call, Function, Input, Plan, ReadingExpr};
use super::points::PointCursor;
use super::rows::{cell, raw, result_rows};
use super::summaries::HourSummary;
use crate::bucket::Renames;
use crate::bucket::store::Order;
use crate::query::engine::frame::row_bytes;
use crate::query::pattern::Patterns;
use crate::query::{Budget, HeldBytes, QueryError};
use crate::reading::Value;

/// Per slice between two pauses: most readings, and about how many comparisons.
const ROWS: usize = 1024;
const STEPS: usize = 1 << 14;
/// The memory of a window, map entry included.
pub const WINDOW_BYTES: usize = 2 * size_of::<(i64, OpenWindow)>() + size_of::<Summed>();

/// An evaluation in progress.
pub struct Evaluation<'a> {
    pub plan: &'a Plan,
    /// Its times and windows.
    pub frame: &'a Frame,
    pub patterns: &'a Patterns,
    pub budget: &'a Budget,
    /// Whether a group may have readings from several reads.
    pub has_several_sources: bool,
    /// The part of the answer that is wanted; `None` for the whole answer.
    pub part: Option<Part>,
    /// Calls that summaries of one field answer share windows; this maps each call to the one that owns them.
    gathered_by: Arc<[usize]>,
    /// The groups that take readings.
    groups: BTreeMap<GroupKey, GroupContent>,
    /// The groups that have all their readings, and the memory of these.
    finished: BTreeMap<GroupKey, FinishedGroup>,
    finished_bytes: usize,
    /// The memory of both.
    held: HeldBytes,
}

/// A measurement, and the values of the tags in [`Plan::group_by`].
pub type GroupKey = (Arc<str>, Vec<String>);

/// A part of an answer. It ends behind a group, or between two times of a group that is shown reading by reading.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// Where the part begins; `None` for the beginning of the answer.
    pub from: Option<Position>,
    /// Where the next part begins; `None` if the answer is complete.
    pub next: Option<Position>,
}

/// A place in an answer.
#[derive(Debug, Clone)]
pub struct Position {
    /// The renames that the order of the answer depends on.
    pub renames: Option<Renames>,
    /// The first group to come.
    pub group: GroupKey,
    /// The times of this group that are to come, and the length of a span of them that can be read at once; `None` for
    /// all times.
    pub within: Option<(Range<i64>, i64)>,
}

/// The rows of a group, and its wide sums as in [`GroupRows`].
type FinishedGroup = (Vec<ResultRow>, Vec<(i64, usize, i128)>);

/// Which readings passed to [`Evaluation::feed`] to ignore.
#[derive(Debug, Clone, Copy)]
pub struct Filter {
    /// Ignore readings without any selected field, or outside the range. Set for sensors; every row of a subquery
    /// counts.
    pub of_sensor: bool,
    /// Ignore readings that do not fulfil the condition. Unset where the condition is known to hold for the whole
    /// sensor.
    pub of_condition: bool,
}

struct EvaluatedReading<'a> {
    member: &'a ReadingSource,
    points: &'a PointCursor,
    at: usize,
}

impl Subject for EvaluatedReading<'_> {
    fn field(&self, index: usize) -> Operand<'_> {
        Operand::Field(self.points.cell(index, self.at).map(Cow::Borrowed))
    }

    fn tag(&self, key: &str) -> Cow<'_, str> {
        Cow::Borrowed(self.member.tag(key))
    }
}

impl<'a> Evaluation<'a> {
    /// An evaluation without readings.
    ///
    /// # Errors
    /// If the budget is exhausted.
    pub fn new(
        plan: &'a Plan,
        frame: &'a Frame,
        patterns: &'a Patterns,
        budget: &'a Budget,
    ) -> Result<Self, QueryError> {
        let mut first_of = HashMap::new();
        let gathered_by = plan.calls.iter().enumerate().map(|(number, call)| match &call.input {
            Input::Field(field) if call.function.is_total() => *first_of.entry(*field).or_insert(number),
            _ => number,
        });
        let (gathered_by, held) = (gathered_by.collect(), budget.hold(0)?);
        Ok(Self {
            plan,
            frame,
            patterns,
            budget,
            has_several_sources: false,
            part: None,
            gathered_by,
            groups: BTreeMap::new(),
            finished: BTreeMap::new(),
            finished_bytes: 0,
            held,
        })
    }

    /// The series' group, which counts for `SLIMIT` from now on even if it has no rows.
    ///
    /// # Errors
    /// If the budget is exhausted.
    pub fn group(&mut self, member: &ReadingSource) -> Result<&mut GroupContent, QueryError> {
        let key = self.key(member);
        let Self { plan, groups, held, .. } = self;
        let calls = plan.calls.len();
        match groups.entry(key) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                // The answer holds the tags again, with their names.
                let names = plan.group_by.iter().zip(&new.key().1).map(|(name, tag)| name.len() + 2 * tag.len());
                let tags = names.map(|text| text + 3 * size_of::<String>()).sum::<usize>();
                held.grow(size_of::<GroupContent>() + tags + calls * 2 * size_of::<BTreeMap<i64, OpenWindow>>())?;
                Ok(new.insert(GroupContent::new(calls)))
            }
        }
    }

    /// Takes in readings of one series, in time order, and pauses in between.
    ///
    /// # Errors
    /// If the budget is exhausted.
    pub async fn feed(
        &mut self,
        member: &ReadingSource,
        points: &PointCursor,
        filter: Filter,
    ) -> Result<(), QueryError> {
        let step = (STEPS / self.plan.steps()).clamp(1, ROWS);
        for from in (0..points.times.len()).step_by(step) {
            self.feed_some(member, points, from..points.times.len().min(from + step), filter)?;
            self.budget.pause().await?;
        }
        Ok(())
    }

    fn feed_some(
        &mut self,
        member: &ReadingSource,
        points: &PointCursor,
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
            let rows: Vec<ResultRow> = wanted.iter().map(|at| (points.times[*at], beside(*at))).collect();
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

    /// Which of these rows count.
    fn wanted(&self, member: &ReadingSource, points: &PointCursor, rows: Range<usize>, filter: Filter) -> Vec<usize> {
        let (plan, patterns) = (self.plan, self.patterns);
        let condition = plan.condition.as_ref().filter(|_| filter.of_condition);
        let is_wanted = |at: usize| {
            let reading = EvaluatedReading { member, points, at };
            condition.is_none_or(|condition| condition.holds(&reading, patterns) == Some(true))
        };
        let has_any = |at: usize| (0..plan.selected).any(|field| points.cell(field, at).is_some());
        let selects = |at: usize| !filter.of_sensor || has_any(at);
        rows.filter(|at| selects(*at) && is_wanted(*at)).collect()
    }

    /// Adds readings to the windows of one call. Returns the bytes that this takes.
    fn fill_windows(
        &mut self,
        number: usize,
        member: &ReadingSource,
        points: &PointCursor,
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
        let (inner, field) = call.innermost();
        let picks = single && call.function.is_selector() && (frame.windows.is_none() || !plan.beside.is_empty());
        // Readings outside the range were read only for a call that looks back (ahead, in descending order).
        let is_bound = filter.of_sensor && !call.looks_back();
        let range =
            if is_bound && frame.has_min { frame.min } else { i64::MIN }..=if is_bound { frame.max } else { i64::MAX };
        let group = self.group(member)?;
        if inner.is_counter() {
            let readings = wanted.iter().filter_map(|at| Some((points.times[*at], points.cell(field, *at)?)));
            return Ok(group.counters[number].push(&member.tags, readings, inner, frame.windows.as_ref()));
        }
        let mut bytes = 0;
        let mut window: Option<(Range<i64>, &mut OpenWindow)> = None;
        for at in wanted {
            let time = points.times[*at];
            let Some(value) = points.cell(field, *at).filter(|_| range.contains(&time)) else { continue };
            if inner.needs_series() {
                let values = &mut group.values[number];
                let before = values.capacity();
                values.push((time, value.clone()));
                bytes += (values.capacity() - before) * size_of::<(i64, Value)>() + text_bytes(value);
                continue;
            }
            let known = window.take().filter(|(span, _)| span.contains(&time));
            let (span, filling) = match known {
                Some(known) => known,
                None => {
                    let span = frame.windows.as_ref().map_or(i64::MIN..i64::MAX, |windows| windows.around(time));
                    // `window` was taken above, so that the group can be borrowed again.
                    let filling = group.windows[number].entry(span.start).or_insert_with(|| {
                        bytes += WINDOW_BYTES + OpenWindow::count_bytes(inner);
                        OpenWindow::new(inner, picks)
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

    /// Takes in hours of one series by their summaries, which are in order of hours.
    ///
    /// # Errors
    /// If the budget is exhausted.
    pub fn absorb(&mut self, member: &ReadingSource, summaries: &[HourSummary]) -> Result<(), QueryError> {
        let (plan, frame) = (self.plan, self.frame);
        if summaries.is_empty() {
            return Ok(());
        }
        let mut bytes = 0;
        let gathered_by = self.gathered_by.clone();
        let around = |time| frame.windows.as_ref().map_or(i64::MIN..i64::MAX, |windows| windows.around(time));
        let group = self.group(member)?;
        for number in gathering(&gathered_by) {
            let (inner, field) = plan.calls[number].innermost();
            let windows = &mut group.windows[number];
            let mut new: Vec<(i64, OpenWindow)> = Vec::new();
            let mut window = around(summaries[0].hour.start_ns());
            // Hours come in order, as windows do: looking for each hour's window would take longer than adding it.
            let mut held = windows.range_mut(window.start..).peekable();
            for one in summaries.iter().filter(|one| one.field == field) {
                let start = one.hour.start_ns();
                if !window.contains(&start) {
                    window = match &frame.windows {
                        Some(windows) => windows.behind(&window, start),
                        None => around(start),
                    };
                    while held.next_if(|(at, _)| **at < window.start).is_some() {}
                }
                match (held.peek_mut().filter(|(at, _)| **at == window.start), new.last_mut()) {
                    (Some((_, held)), _) => held.absorb(inner, one.hour, &one.summary),
                    (None, Some((at, last))) if *at == window.start => last.absorb(inner, one.hour, &one.summary),
                    _ => {
                        bytes += WINDOW_BYTES + OpenWindow::count_bytes(inner);
                        let mut first = OpenWindow::new(inner, false);
                        first.absorb(inner, one.hour, &one.summary);
                        new.push((window.start, first));
                    }
                }
            }
            windows.extend(new);
        }
        self.held.grow(bytes)
    }

    /// Returns the order in which to read if each group wants only its first or last readings.
    pub fn early_end(&self) -> Option<Order> {
        let Self { plan, frame, has_several_sources, .. } = self;
        let order = match &*plan.calls {
            [] if frame.rows_max.is_some() && !frame.fill.fills_rows() => {
                if frame.descending {
                    Order::Descending
                } else {
                    Order::Ascending
                }
            }
            [Call { function: Function::First, input: Input::Field(_) }] => Order::Ascending,
            [Call { function: Function::Last, input: Input::Field(_) }] => Order::Descending,
            _ => return None,
        };
        Some(order).filter(|_| frame.windows.is_none() && !has_several_sources)
    }

    /// Returns true if the group of a series needs no more readings, in the order of [`Self::early_end`].
    pub fn is_full(&self, member: &ReadingSource) -> bool {
        let Some(group) = self.groups.get(&self.key(member)) else { return false };
        match self.frame.rows_max.filter(|_| self.plan.is_raw()) {
            Some(most) => group.rows.len() >= most,
            None => group.windows.iter().any(|windows| !windows.is_empty()),
        }
    }

    /// Returns the group of a series.
    pub fn key(&self, member: &ReadingSource) -> GroupKey {
        (member.name.clone(), self.plan.group_by.iter().map(|tag| member.tag(tag).to_owned()).collect())
    }

    /// Returns the order in which a group can be read span by span: its rows are those of the spans one after the other, or
    /// the windows of a span can be settled.
    pub fn order_of_spans(&self) -> Option<Order> {
        let Self { plan, frame, .. } = self;
        let mut functions = plan.calls.iter().map(|call| call.innermost().0);
        if !plan.is_raw() {
            let settles = frame.windows.is_some() && !functions.clone().any(Function::needs_series);
            return Some(Order::Ascending).filter(|_| settles && functions.any(|function| !function.is_summarized()));
        }
        let order = if frame.descending { Order::Descending } else { Order::Ascending };
        Some(order).filter(|_| self.part.is_some() && frame.rows_max.is_none() && !frame.fill.fills_rows())
    }

    /// Replaces the values of all windows that end at this time or before by their results.
    ///
    /// # Errors
    /// If the budget is exhausted.
    pub async fn settle(&mut self, until: i64) -> Result<(), QueryError> {
        let Self { plan, frame, .. } = *self;
        let Some(windows) = &frame.windows else { return Ok(()) };
        let open = windows.around(until).start;
        let mut freed = 0;
        for group in self.groups.values_mut() {
            for (call, windows) in plan.calls.iter().zip(&mut group.windows) {
                let function = call.innermost().0;
                for (_, window) in windows.range_mut(..open) {
                    freed += window.settle(function);
                }
            }
            self.budget.pause().await?;
        }
        self.held.set(self.held.bytes() - freed)
    }

    /// Returns the memory of the groups that are not finished.
    pub fn open_bytes(&self) -> usize {
        self.held.bytes() - self.finished_bytes
    }

    /// Returns the memory of the rows of the groups that are finished.
    pub fn finished_bytes(&self) -> usize {
        self.finished_bytes
    }

    /// Empties the groups that are not finished.
    ///
    /// # Errors
    /// If the budget is exhausted.
    pub fn empty_open(&mut self) -> Result<(), QueryError> {
        let calls = self.plan.calls.len();
        self.groups.values_mut().for_each(|content| *content = GroupContent::new(calls));
        let groups = self.groups.len() * size_of::<(GroupKey, GroupContent)>();
        self.held.set(self.finished_bytes + groups)
    }

    /// Makes rows of the groups, which have all their readings.
    ///
    /// # Errors
    /// If the budget is exhausted.
    pub async fn finish_groups(&mut self) -> Result<(), QueryError> {
        let Self { plan, frame, budget, .. } = *self;
        let held_before = self.held.bytes();
        let finished_before = self.finished_bytes;
        for (key, content) in std::mem::take(&mut self.groups) {
            let gathered_by = self.gathered_by.clone();
            let wide = if plan.calls.is_empty() { Vec::new() } else { content.wide_sums(plan, frame, &gathered_by) };
            let mut rows = if plan.is_raw() {
                self.hold_rows(content.rows.len(), plan.columns.len().saturating_sub(plan.beside.len()))?;
                let steps = content.rows.len() * plan.beside.len();
                budget.run_unpaused(steps, || raw(content.rows, plan, frame))
            } else {
                let (count, width) =
                    (content.rows_most(frame), plan.columns.len() + 2 * plan.beside.len() + 4 * plan.calls.len());
                self.hold_rows(count, width)?;
                self.held.grow(content.text_bytes().saturating_mul(plan.most_used()))?;
                let join = || result_rows(content, plan, frame, &gathered_by);
                budget.run_unpaused(count.saturating_mul(width), join)
            };
            let step = (STEPS / plan.steps()).clamp(1, ROWS);
            for (number, (_, parts)) in rows.iter_mut().enumerate() {
                // First the results of the calls, then the reading's parts.
                let (calls, beside) = parts.split_at(plan.calls.len().min(parts.len()));
                *parts = plan.columns.iter().map(|node| cell(node, calls, beside)).collect();
                if parts.iter().flatten().any(|value| matches!(value, Value::Float(value) if value.is_infinite())) {
                    budget.note_overflow();
                }
                if number % step == 0 {
                    budget.pause().await?;
                }
            }
            let tags = key.1.iter().zip(&plan.group_by).map(|(value, name)| value.len() + name.len());
            let tags = tags.map(|text| text + 2 * size_of::<String>()).sum::<usize>();
            self.finished_bytes += rows.iter().map(row_bytes).sum::<usize>() + size_of::<GroupRows>() + tags;
            self.finished.insert(key, (rows, wide));
            // Release the memory for making the rows before the next group.
            self.held.set(held_before + self.finished_bytes - finished_before)?;
            budget.pause().await?;
        }
        self.held.set(self.finished_bytes)
    }

    fn hold_rows(&mut self, count: usize, width: usize) -> Result<(), QueryError> {
        self.held.grow(count.saturating_mul(size_of::<ResultRow>() + width * size_of::<Option<Value>>()))
    }

    /// The rows of each group (some have none), and the memory they take.
    ///
    /// # Errors
    /// If the budget is exhausted.
    pub async fn finish(mut self) -> Result<(Vec<GroupRows>, HeldBytes), QueryError> {
        self.finish_groups().await?;
        let Self { plan, frame, finished, held, .. } = self;
        let group = |((name, values), (rows, wide)): (GroupKey, FinishedGroup)| {
            let tags = plan.group_by.iter().cloned().zip(values).collect();
            GroupRows { member: ReadingSource { name, tags }, rows, wide }
        };
        let mut finished: Vec<GroupRows> = finished.into_iter().map(group).collect();
        if frame.descending {
            finished.reverse();
        }
        Ok((finished, held))
    }
}

/// The calls that own a set of windows.
fn gathering(gathered_by: &[usize]) -> impl Iterator<Item = usize> {
    gathered_by.iter().enumerate().filter(|(number, by)| number == *by).map(|(number, _)| number)
}

fn part(part: &ReadingExpr, member: &ReadingSource, points: &PointCursor, at: usize) -> Option<Value> {
    match part {
        ReadingExpr::Field(field) => points.cell(*field, at).cloned(),
        // A sensor has no empty tags; a group of a subquery can have them.
        ReadingExpr::Tag(tag) => {
            member.tags.iter().find(|(name, _)| name == tag).map(|(_, value)| Value::String(value.as_str().into()))
        }
    }
}
