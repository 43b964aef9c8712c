//! Reads what a plan needs: summaries of whole hours where they answer exactly, else readings.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;

use jiff::tz::TimeZone;

use super::Engine;
use super::directory::{DirectoryEntry, meta_text};
use super::evaluate::{Evaluation, Filter};
use super::filter::{Lookup, Operand, holds};
use super::plan::{Call, Input, Plan, PlannedField};
use super::points::{PointCursor, PointsQuery};
use super::summaries::HourSummary;
use super::windows::Windows;
use crate::clock::expiry_ns;
use crate::influxql::ReferenceKind;
use crate::query::engine::frame::{Frame, ReadingSource};
use crate::query::engine::memory::CHOOSE;
use crate::query::pattern::Patterns;
use crate::query::{Budget, QueryError};
use crate::reading::{Family, Hour, Sensor};

const HOUR: i64 = 3_600_000_000_000;
const DAY: i64 = 24 * HOUR;

impl Engine {
    /// Reads what the plan needs of these sensors and adds it to the evaluation.
    ///
    /// # Errors
    /// If the answer would be incomplete, or a limit is exceeded.
    pub async fn read(
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
        let sensors: Vec<Arc<Sensor>> = chosen.iter().map(|(entry, _)| entry.stored.clone()).collect();
        let fields: Arc<[Arc<str>]> = plan.fields.iter().map(|field| Arc::from(field.name.as_str())).collect();
        let range = range(plan, frame);
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
        // Of days whose readings have expired there are summaries of numbers, and nothing else.
        let gone = self.settings.now().readings_start(database, expiry_ns()).filter(|from| range.start < *from);
        // Of several sensors' summaries of one hour nobody knows whose reading is the first.
        let are_told =
            !plan.has_ends() || (!evaluation.has_several_sources && are_alone(plan, &chosen, budget).await?);
        let is_of_numbers = |family: Family| family == Family::Number;
        let has_numbers = |entry: &DirectoryEntry| {
            plan.fields.iter().all(|field| entry.family(&field.name).is_none_or(is_of_numbers))
        };
        let is_exact = chosen.iter().all(|(entry, _)| has_numbers(entry));
        let hours = match (summarized(plan, frame, &chosen, &range).filter(|_| is_exact), gone) {
            _ if !are_told => None,
            (None, Some(from)) => {
                let hours = summarized(plan, frame, &chosen, &(range.start..from.min(range.end)));
                if hours.is_some() {
                    budget.note_expired(database, from);
                }
                hours
            }
            (hours, _) => hours,
        };
        let parts = match &hours {
            Some(hours) => vec![range.start..hours.start, hours.end..range.end],
            None => vec![range],
        };
        // What begins with the first reading that there is asks for no part of an hour.
        let asks_for_all = frame.has_min || hours.is_none();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            wanted.range = self.with_readings(budget, database, &part, asks_for_all);
            if wanted.range.is_empty() {
                continue;
            }
            let mut scan = self.points(&wanted)?;
            while let Some((place, points)) = scan.next().await? {
                let (entry, of_condition) = chosen[place];
                let filter = Filter { of_sensor: true, of_condition };
                let points = meant(plan, entry, &points);
                evaluation.feed(&member(plan, entry), &points, filter).await?;
            }
        }
        if let Some(hours) = hours {
            wanted.range = hours;
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
            match is_by_day(frame) {
                true => self.each_total(&wanted, take).await?,
                false => self.each_summary(&wanted, take).await?,
            }
        }
        Ok(())
    }
}

/// Whether the plan's condition holds for all readings of a sensor; `None` if that depends on them.
fn by_itself(entry: &DirectoryEntry, plan: &Plan, patterns: &Patterns) -> Option<bool> {
    plan.condition.as_ref().map_or(Some(true), |condition| holds(condition, &Alone(entry, plan), patterns))
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

impl Lookup for Alone<'_> {
    fn find(&self, name: &str, kind: Option<ReferenceKind>) -> Operand {
        let Self(entry, plan) = self;
        match (plan.fields.iter().find(|field| field.is(name, kind)), kind) {
            (Some(field), _) if has(entry, field) => Operand::Unknown,
            (Some(_), _) => Operand::Field(None),
            (None, None | Some(ReferenceKind::Tag)) => {
                Operand::Tag(entry.tag(name).map(Cow::into_owned).unwrap_or_default())
            }
            (None, _) => Operand::Field(None),
        }
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

/// Whether each of these sensors has its group for itself.
async fn are_alone(plan: &Plan, chosen: &[(&DirectoryEntry, bool)], budget: &Budget) -> Result<bool, QueryError> {
    let _held = budget.hold(chosen.len() * 3 * size_of::<u64>())?;
    let (state, mut groups) = (RandomState::new(), HashSet::with_capacity(chosen.len()));
    for some in chosen.chunks(CHOOSE) {
        let of_group = |entry: &DirectoryEntry| {
            let tags: Vec<_> = plan.group_by.iter().map(|tag| entry.tag(tag).unwrap_or_default()).collect();
            state.hash_one((&entry.sensor.measurement, tags))
        };
        // Two groups of the same hash cost some reading, and nothing else.
        if !some.iter().all(|(entry, _)| groups.insert(of_group(entry))) {
            return Ok(false);
        }
        budget.pause().await?;
    }
    Ok(true)
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
