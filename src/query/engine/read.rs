//! Reads what a plan needs: summaries of whole hours where they answer exactly, else readings.

mod groups;
mod spans;

use std::borrow::Cow;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use self::groups::{ChosenSensor, Groups};
use self::spans::FIRST_SPAN;
use super::Engine;
use super::condition::{Operand, Subject};
use super::directory::{DirectoryEntry, meta_text};
use super::evaluate::{Evaluation, Filter, Part, Position, WINDOW_BYTES};
use super::plan::{Call, Input, Plan, PlannedField};
use super::points::{PointCursor, PointsQuery};
use super::summaries::HourSummary;
use crate::clock::expiry_ns;
use crate::query::QueryError;
use crate::query::engine::frame::{Frame, ReadingSource};
use crate::query::engine::memory::CHOOSE;
use crate::query::pattern::Patterns;
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
        let mut chosen: Vec<ChosenSensor<'_>> = Vec::new();
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
        held.grow(chosen.len() * 2 * size_of::<ChosenSensor<'_>>())?;
        self.check_sensors(chosen.len())?;
        let _groups = budget.hold(Groups::bytes(chosen.len()))?;
        let groups = Groups::of(evaluation, &chosen).await?;
        let range = range(plan, frame);
        // Of days whose readings have expired there are summaries of numbers, and nothing else.
        let expired_before =
            self.settings.now().readings_start(database, expiry_ns()).filter(|from| range.start < *from);
        // Of several sensors' summaries of one hour nobody knows whose reading is the first.
        let can_use_first_last =
            !plan.has_ends() || (!evaluation.has_several_sources && groups.count() == chosen.len());
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
        if evaluation.has_several_sources {
            return self.read_slice(database, &chosen, (&range, hours.as_ref()), evaluation).await;
        }
        let mut most = self.first_slice(plan, frame, hours.is_some());
        let renames = evaluation.part.as_ref().and_then(|_| self.renames(database));
        let (mut start, mut within) = match evaluation.part.as_ref().and_then(|part| part.from.clone()) {
            Some(position) if position.renames != renames => return Err(QueryError::Changed),
            Some(Position { group, within, .. }) => {
                let place = groups.place_of(&group, evaluation, &chosen);
                // The group may be gone meanwhile; the next one is then wanted whole.
                let is_there =
                    groups.order.get(place).is_some_and(|at| evaluation.key(&member(plan, chosen[*at].0)) == group);
                (place, within.filter(|_| is_there))
            }
            None => (0, None),
        };
        while start < chosen.len() {
            let end = if within.is_some() { groups.end(start) } else { groups.end_of_slice(start, most) };
            let slice: Vec<ChosenSensor<'_>> = groups.order[start..end].iter().map(|at| chosen[*at]).collect();
            let rest = if let Some((rest, length)) = within.take() {
                self.read_spans(database, &slice, rest, length, evaluation).await?
            } else {
                let read = self.read_slice(database, &slice, (&range, hours.as_ref()), evaluation).await;
                let is_several = end > groups.end(start);
                let can_split = hours.is_none() && evaluation.order_of_spans().is_some();
                // Making the rows takes memory, too.
                let is_much = evaluation.open_bytes() > self.options.request_bytes / 4;
                match read {
                    Ok(()) if !is_much || !(is_several || (can_split && plan.is_raw())) => None,
                    Ok(()) | Err(QueryError::TooLarge { .. }) if is_several => {
                        evaluation.empty_open()?;
                        most = (slice.len() / 2).max(1);
                        continue;
                    }
                    Ok(()) | Err(QueryError::TooLarge { .. }) if can_split => {
                        evaluation.empty_open()?;
                        let range = self.hours_with_readings(database, &slice, &range).await?;
                        self.read_spans(database, &slice, range, FIRST_SPAN, evaluation).await?
                    }
                    read => read.map(|()| None)?,
                }
            };
            if evaluation.open_bytes() < self.part_bytes() {
                most *= 2;
            }
            evaluation.finish_groups().await?;
            let is_full = evaluation.part.is_some() && evaluation.finished_bytes() >= self.part_bytes();
            if rest.is_some() || (is_full && end < chosen.len()) {
                let next = if rest.is_some() { start } else { end };
                let group = evaluation.key(&member(plan, chosen[groups.order[next]].0));
                evaluation.part = Some(Part { from: None, next: Some(Position { renames, group, within: rest }) });
                break;
            }
            start = end;
        }
        Ok(())
    }

    /// Returns the memory that a part of an answer, or the open windows of a slice, should take.
    fn part_bytes(&self) -> usize {
        self.options.request_bytes / SLICE_SHARE
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
        let fitting = (self.part_bytes() / each).max(1);
        if is_summarized { fitting } else { fitting.min(SENSORS_AT_FIRST) }
    }

    /// Reads some of the chosen sensors: in `hours` by their summaries, else by their readings.
    async fn read_slice(
        &self,
        database: &str,
        chosen: &[ChosenSensor<'_>],
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

/// Whether the plan's condition holds for all readings of a sensor; `None` if that depends on them.
fn by_itself(entry: &DirectoryEntry, plan: &Plan, patterns: &Patterns) -> Option<bool> {
    plan.condition.as_ref().map_or(Some(true), |condition| condition.holds(&Alone(entry, plan), patterns))
}

/// Whether every window consists of whole UTC days. What begins with the first reading that there is needs its hour.
fn is_by_day(frame: &Frame) -> bool {
    frame.has_min && frame.windows.as_ref().is_none_or(|windows| windows.is_aligned(DAY))
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

/// The range to read: the frame's, and its lead if a call looks back.
fn range(plan: &Plan, frame: &Frame) -> Range<i64> {
    let lead = if plan.looks_back() { frame.lead } else { 0 };
    let (before, behind) = if frame.descending { (0, lead) } else { (lead, 0) };
    let start = if frame.has_min { frame.min.saturating_sub(before) } else { frame.min };
    start..frame.max.saturating_add(1).saturating_add(behind)
}

/// The whole hours of the range, if their summaries answer the plan exactly as far as it is about numbers.
fn summarized(plan: &Plan, frame: &Frame, chosen: &[ChosenSensor<'_>], range: &Range<i64>) -> Option<Range<i64>> {
    let picks = plan.calls.len() == 1 && frame.windows.is_none() && plan.calls[0].function.is_selector();
    let plain = |call: &Call| {
        let is_nested = matches!(call.input, Input::Call(_));
        call.innermost().0.is_summarized() && (!is_nested || call.function.is_transformation())
    };
    if plan.is_raw()
        || picks
        || !plan.beside.is_empty()
        || !plan.calls.iter().all(plain)
        || chosen.iter().any(|(_, filtered)| *filtered)
    {
        return None;
    }
    // The readings of the lead are read, because only some calls take them.
    let first = range.start.max(frame.min);
    let start = Hour::from_ns(first.saturating_add(HOUR - 1)).start_ns();
    let start = if frame.has_min { start } else { Hour::from_ns(first.saturating_add(HOUR)).start_ns() };
    let end = Hour::from_ns(range.end.min(frame.max.saturating_add(1))).start_ns();
    if start >= end {
        return None;
    }
    let start = match &frame.windows {
        None => start,
        Some(windows) => windows.whole_hours_from(&(start..end))?,
    };
    Some(start..end)
}
