//! Reads what a plan needs: summaries of whole hours where they answer exactly, else readings.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use jiff::tz::TimeZone;

use super::Engine;
use super::condition::{Operand, Subject};
use super::directory::{DirectoryEntry, meta_text};
use super::evaluate::{Evaluation, Filter, WINDOW_BYTES};
use super::hours::hours_of;
use super::plan::{Call, Input, Plan, PlannedField};
use super::points::{PointCursor, PointsQuery};
use super::summaries::HourSummary;
use super::windows::Windows;
use crate::bucket::store::{Extent, Order};
use crate::clock::expiry_ns;
use crate::query::engine::frame::{Frame, ReadingSource};
use crate::query::engine::memory::CHOOSE;
use crate::query::pattern::Patterns;
use crate::query::{Budget, QueryError};
use crate::reading::{Family, Hour, Sensor};

const HOUR: i64 = 3_600_000_000_000;
const DAY: i64 = 24 * HOUR;
/// The number of sensors in the first slice, if their readings are needed.
const SENSORS_AT_FIRST: usize = 16;
/// The sensors read at a time should take this part of a request's memory.
const SLICE_SHARE: usize = 8;

impl Engine {
    /// Reads what the plan needs of these sensors and adds it to the evaluation.
    ///
    /// # Errors
    /// If the answer would be incomplete, or a limit is exceeded.
    pub fn read<'a>(
        &'a self,
        database: &'a str,
        entries: &'a [DirectoryEntry],
        evaluation: &'a mut Evaluation<'_>,
    ) -> Pin<Box<dyn Future<Output = Result<(), QueryError>> + Send + 'a>> {
        // In a box, because subqueries are nested.
        Box::pin(self.read_all(database, entries, evaluation))
    }

    async fn read_all(
        &self,
        database: &str,
        entries: &[DirectoryEntry],
        evaluation: &mut Evaluation<'_>,
    ) -> Result<(), QueryError> {
        let Evaluation { plan, frame, patterns, budget, .. } = *evaluation;
        let mut held = budget.hold(0)?;
        let mut chosen: Vec<(&DirectoryEntry, bool)> = Vec::new();
        for (number, entry) in entries.iter().enumerate() {
            let holds = by_itself(entry, plan, patterns);
            let has_selected = plan.fields[..plan.selected].iter().any(|field| has(entry, field));
            if has_selected && holds != Some(false) {
                chosen.push((entry, holds.is_none()));
            }
            if number % (CHOOSE / plan.steps()).max(1) == 0 {
                budget.pause().await?;
            }
        }
        held.grow(chosen.len() * 2 * size_of::<(&DirectoryEntry, bool)>())?;
        self.check_sensors(chosen.len())?;
        let _groups = budget.hold(chosen.len() * 4 * size_of::<u64>())?;
        let (groups, group_count) = group_numbers(plan, &chosen, budget).await?;
        let mut order: Vec<usize> = (0..chosen.len()).collect();
        order.sort_by_key(|place| groups[*place]);
        let range = range(plan, frame);
        // Of days whose readings have expired there are summaries of numbers, and nothing else.
        let expired_before =
            self.settings.now().readings_start(database, expiry_ns()).filter(|from| range.start < *from);
        // Of several sensors' summaries of one hour nobody knows whose reading is the first.
        let can_use_first_last = !plan.has_ends() || (!evaluation.has_several_sources && group_count == chosen.len());
        let is_of_numbers = |family: Family| family == Family::Number;
        let has_numbers = |entry: &DirectoryEntry| {
            plan.fields.iter().all(|field| entry.family(&field.name).is_none_or(is_of_numbers))
        };
        let is_exact = chosen.iter().all(|(entry, _)| has_numbers(entry));
        let hours = match (summarized(plan, frame, &chosen, &range).filter(|_| is_exact), expired_before) {
            _ if !can_use_first_last => None,
            (None, Some(from)) => {
                let hours = summarized(plan, frame, &chosen, &(range.start..from.min(range.end)));
                if hours.is_some() {
                    budget.note_expired(database, from);
                }
                hours
            }
            (hours, _) => hours,
        };
        let mut most = self.first_slice(plan, frame, hours.is_some());
        let mut start = 0;
        while start < order.len() {
            let group = |place: usize| groups[order[place]];
            let mut end = order.len();
            if !evaluation.has_several_sources && order.len() - start > most {
                // Whole groups, but at least one.
                let last = group(start + most - 1);
                let is_before = |number: usize| if last == group(start) { number <= last } else { number < last };
                end = start + order[start..].partition_point(|place| is_before(groups[*place]));
            }
            let slice: Vec<(&DirectoryEntry, bool)> = order[start..end].iter().map(|place| chosen[*place]).collect();
            let has_several_groups = group(start) != group(end - 1);
            match self.read_slice(database, &slice, (&range, hours.as_ref()), evaluation).await {
                Err(QueryError::TooLarge { .. }) if has_several_groups && !evaluation.has_several_sources => {
                    evaluation.empty_open()?;
                    most = (slice.len() / 2).max(1);
                    continue;
                }
                read => read?,
            }
            if !evaluation.has_several_sources {
                if evaluation.open_bytes() < self.options.request_bytes / SLICE_SHARE {
                    most *= 2;
                }
                evaluation.finish_groups().await?;
            }
            start = end;
        }
        Ok(())
    }

    /// Returns the number of sensors in the first slice. Sensors that are answered from summaries need room for their
    /// windows. The memory of other sensors is unknown before they are read.
    fn first_slice(&self, plan: &Plan, frame: &Frame, is_summarized: bool) -> usize {
        let windows = match &frame.windows {
            Some(windows) if frame.has_min => windows.count(frame.min..frame.max),
            Some(_) => return SENSORS_AT_FIRST,
            None => 1,
        };
        let each = windows.saturating_mul(plan.calls.len().max(1)).saturating_mul(WINDOW_BYTES).max(1);
        let fitting = (self.options.request_bytes / SLICE_SHARE / each).max(1);
        if is_summarized { fitting } else { fitting.min(SENSORS_AT_FIRST) }
    }

    /// Reads some of the chosen sensors: in `hours` by their summaries, else by their readings.
    async fn read_slice(
        &self,
        database: &str,
        chosen: &[(&DirectoryEntry, bool)],
        (range, hours): (&Range<i64>, Option<&Range<i64>>),
        evaluation: &mut Evaluation<'_>,
    ) -> Result<(), QueryError> {
        let Evaluation { plan, frame, budget, .. } = *evaluation;
        let sensors: Vec<Arc<Sensor>> = chosen.iter().map(|(entry, _)| entry.stored.clone()).collect();
        let fields: Arc<[Arc<str>]> = plan.fields.iter().map(|field| Arc::from(field.name.as_str())).collect();
        let mut wanted = PointsQuery {
            database,
            sensors: &sensors,
            range: range.clone(),
            fields: &fields,
            ends: plan.has_ends(),
            only_sums: plan.needs_only_sums(),
            bounds: plan.bounds(),
            budget,
        };
        let parts = match hours {
            Some(hours) => vec![range.start..hours.start, hours.end..range.end],
            None => vec![range.clone()],
        };
        // Without a start time, the range begins at the first reading, so there is no partial hour.
        let reads_whole_range = frame.has_min || hours.is_none();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            wanted.range = self.with_readings(budget, database, &part, reads_whole_range);
            if wanted.range.is_empty() {
                continue;
            }
            let order = evaluation.early_end();
            let spans = match order {
                Some(order) => self.growing_spans(&wanted, order).await?,
                None => vec![wanted.range.clone()],
            };
            // The sensors whose groups want more readings.
            let mut open: Vec<usize> = (0..chosen.len()).collect();
            for span in spans {
                let sensors: Vec<Arc<Sensor>> = open.iter().map(|place| sensors[*place].clone()).collect();
                let within = PointsQuery { sensors: &sensors, range: span, ..wanted.clone() };
                let mut scan = self.points(&within)?;
                while let Some((place, points)) = scan.next().await? {
                    let (entry, of_condition) = chosen[open[place]];
                    let filter = Filter { of_sensor: true, of_condition };
                    let points = meant(plan, entry, &points);
                    evaluation.feed(&member(plan, entry), &points, filter).await?;
                }
                if order.is_some() {
                    open.retain(|place| !evaluation.is_full(&member(plan, chosen[*place].0)));
                    if open.is_empty() {
                        break;
                    }
                }
            }
        }
        let Some(hours) = hours else { return Ok(()) };
        wanted.range = hours.clone();
        let take = |place: usize, summaries: &[HourSummary]| {
            let entry = chosen[place].0;
            let is_number = |field: &PlannedField| field.family == Family::Number && has(entry, field);
            let are_numbers: Vec<bool> = plan.fields.iter().map(is_number).collect();
            let numbers: Cow<'_, [HourSummary]> = match summaries.iter().all(|one| are_numbers[one.field]) {
                true => summaries.into(),
                false => summaries.iter().filter(|one| are_numbers[one.field]).cloned().collect(),
            };
            evaluation.absorb(&member(plan, entry), &numbers)
        };
        if is_by_day(frame) { self.each_total(&wanted, take).await } else { self.each_summary(&wanted, take).await }
    }
}

impl Engine {
    /// Spans of whole hours that make up the range, in this order and each twice as long as the one before. They begin where
    /// the first sensor has readings.
    async fn growing_spans(&self, wanted: &PointsQuery<'_>, order: Order) -> Result<Vec<Range<i64>>, QueryError> {
        let range = &wanted.range;
        let hours = hours_of(range);
        let Some(sensor) = wanted.sensors.first() else { return Ok(Vec::new()) };
        let unflushed = self.unflushed_of(wanted.database, &sensor.key, &hours).await?;
        let projection = wanted.summaries(true);
        let stored = self.store.scan(wanted.database, &sensor.key, hours, order, &projection, Extent::pages(1));
        let stored = wanted.budget.waiting(stored).await?.pages;
        let of_sensor = || stored.iter().map(|page| page.hour).chain(unflushed.keys().copied());
        let is_ascending = order == Order::Ascending;
        let Some(first) = (if is_ascending { of_sensor().min() } else { of_sensor().max() }) else {
            return Ok(vec![range.clone()]);
        };
        let (mut spans, mut length) = (Vec::new(), HOUR);
        let mut rest = range.clone();
        let mut edge = if is_ascending { first.start_ns() } else { first.end_ns() };
        while !rest.is_empty() {
            edge = if is_ascending { edge.saturating_add(length) } else { edge.saturating_sub(length) };
            let at = edge.clamp(rest.start, rest.end);
            let span = if is_ascending { rest.start..at } else { at..rest.end };
            rest = if is_ascending { at..rest.end } else { rest.start..at };
            spans.extend(Some(span).filter(|span| !span.is_empty()));
            length = length.saturating_mul(2);
        }
        Ok(spans)
    }
}

/// Whether the plan's condition holds for all readings of a sensor; `None` if that depends on them.
fn by_itself(entry: &DirectoryEntry, plan: &Plan, patterns: &Patterns) -> Option<bool> {
    plan.condition.as_ref().map_or(Some(true), |condition| condition.holds(&Alone(entry, plan), patterns))
}

/// Whether every window consists of whole UTC days. What begins with the first reading that there is needs its hour.
fn is_by_day(frame: &Frame) -> bool {
    let are_days = |Windows { every, offset, zone }: &Windows| {
        zone.as_ref().is_none_or(|zone| *zone == TimeZone::UTC) && every % DAY == 0 && offset % DAY == 0
    };
    frame.has_min && frame.windows.as_ref().is_none_or(are_days)
}

/// Creates the groups of all sensors that a condition on tags leaves, including those without readings in the range.
///
/// # Errors
/// If the budget is exhausted.
pub async fn count_groups(entries: &[DirectoryEntry], evaluation: &mut Evaluation<'_>) -> Result<(), QueryError> {
    let Evaluation { plan, patterns, budget, .. } = *evaluation;
    for some in entries.chunks((CHOOSE / plan.steps()).max(1)) {
        for entry in some {
            if by_itself(entry, plan, patterns) != Some(false) {
                evaluation.group(&member(plan, entry))?;
            }
        }
        budget.pause().await?;
    }
    Ok(())
}

/// A sensor of which only the tags and the names of the fields are known.
struct Alone<'a>(&'a DirectoryEntry, &'a Plan);

impl Subject for Alone<'_> {
    fn field(&self, index: usize) -> Operand<'_> {
        if has(self.0, &self.1.fields[index]) { Operand::Unknown } else { Operand::Field(None) }
    }

    fn tag(&self, key: &str) -> Cow<'_, str> {
        self.0.tag(key).unwrap_or_default()
    }
}

fn has(entry: &DirectoryEntry, field: &PlannedField) -> bool {
    entry.family(&field.name) == Some(field.family)
}

/// Removes values whose family differs from the planned field's.
fn meant<'a>(plan: &Plan, entry: &DirectoryEntry, points: &'a PointCursor) -> Cow<'a, PointCursor> {
    let is_other = |field: &PlannedField| entry.family(&field.name).is_some_and(|family| family != field.family);
    if !plan.fields.iter().any(is_other) {
        return Cow::Borrowed(points);
    }
    let mut points = points.clone();
    for (field, column) in plan.fields.iter().zip(&mut points.columns) {
        if is_other(field) {
            column.clear();
        }
    }
    Cow::Owned(points)
}

/// The sensor with its tags, and what the plan names of its metadata.
fn member(plan: &Plan, entry: &DirectoryEntry) -> ReadingSource {
    let sensor = &entry.sensor;
    let mut tags: Vec<(String, String)> =
        sensor.tags.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    if let Some(meta) = &entry.meta {
        let named = plan.meta_names().filter(|name| sensor.tag(name).is_none());
        tags.extend(named.filter_map(|name| Some((name.to_owned(), meta_text(meta, name)?.into_owned()))));
    }
    if tags.len() > sensor.tags.len() {
        tags.sort_unstable();
    }
    ReadingSource { name: Arc::from(&*sensor.measurement), tags }
}

/// The range to read: the frame's, and one window before it (after it, in descending order) if a call looks back.
fn range(plan: &Plan, frame: &Frame) -> Range<i64> {
    let lead = frame.windows.as_ref().filter(|_| plan.looks_back()).map_or(0, |windows| windows.every);
    let (before, behind) = if frame.descending { (0, lead) } else { (lead, 0) };
    let start = if frame.has_min { frame.min.saturating_sub(before) } else { frame.min };
    start..frame.max.saturating_add(1).saturating_add(behind)
}

/// The number of each sensor's group, and how many groups there are. Groups of the same hash share a number.
async fn group_numbers(
    plan: &Plan,
    chosen: &[(&DirectoryEntry, bool)],
    budget: &Budget,
) -> Result<(Vec<usize>, usize), QueryError> {
    let (state, mut numbers) = (RandomState::new(), HashMap::new());
    let mut groups = Vec::with_capacity(chosen.len());
    for some in chosen.chunks(CHOOSE) {
        for (entry, _) in some {
            let tags: Vec<_> = plan.group_by.iter().map(|tag| entry.tag(tag).unwrap_or_default()).collect();
            let next = numbers.len();
            groups.push(*numbers.entry(state.hash_one((&entry.sensor.measurement, tags))).or_insert(next));
        }
        budget.pause().await?;
    }
    Ok((groups, numbers.len()))
}

/// The whole hours of the range, if their summaries answer the plan exactly as far as it is about numbers.
fn summarized(
    plan: &Plan,
    frame: &Frame,
    chosen: &[(&DirectoryEntry, bool)],
    range: &Range<i64>,
) -> Option<Range<i64>> {
    let picks = plan.calls.len() == 1 && frame.windows.is_none() && plan.calls[0].function.is_selector();
    let plain = |call: &Call| call.function.is_summarized() && matches!(call.input, Input::Field(_));
    if plan.is_raw()
        || picks
        || !plan.beside.is_empty()
        || !plan.calls.iter().all(plain)
        || chosen.iter().any(|(_, filtered)| *filtered)
    {
        return None;
    }
    let start = Hour::from_ns(range.start.saturating_add(HOUR - 1)).start_ns();
    let start = if frame.has_min { start } else { Hour::from_ns(range.start.saturating_add(HOUR)).start_ns() };
    let end = Hour::from_ns(range.end).start_ns();
    if start >= end {
        return None;
    }
    let aligned = match &frame.windows {
        None => true,
        Some(Windows { every, offset, zone: None }) => every % HOUR == 0 && offset % HOUR == 0,
        Some(windows) => {
            let mut at = start;
            let next = |at: &mut i64| {
                *at = windows.around(*at).end;
                (*at < end).then_some(*at)
            };
            let mut ends = std::iter::from_fn(|| next(&mut at));
            windows.every % HOUR == 0 && windows.count(start..end) < 100_000 && ends.all(|end| end % HOUR == 0)
        }
    };
    aligned.then_some(start..end)
}
