//! A SELECT: its sources found, planned against what they have, read by summaries where those are exact, and
//! shown.

use std::ops::Range;
use std::sync::Arc;

use super::evaluate::{Evaluation, Frame, Group, Limits, Member, Row, needs_reading};
use super::filter::{Found, Lookup, holds};
use super::pattern::Patterns;
use super::plan::{Input, Plan, Schema};
use super::rows::{Cell, Series};
use super::window::Windows;
use super::{Asked, StatementFailure, resolve, zone};
use crate::access::{Caller, Pin};
use crate::influxql::Clock;
use crate::influxql::{Checked, check};
use crate::influxql::{Expr, Kind, Literal, Measurement, MeasurementName, Select, Source};
use crate::query::directory::Entry;
use crate::query::points::{Points, Wanted};
use crate::query::summaries::HourSummary;
use crate::query::{Query, QueryError};
use crate::reading::{Family, Hour, Sensor, Value};

const HOUR: i64 = 3_600_000_000_000;

/// Rows of a SELECT with the names of their columns, `time` first.
pub struct Selected {
    names: Vec<String>,
    groups: Vec<Group>,
}

/// What a SELECT reads from.
enum Sourced {
    Sensors { database: String, entries: Vec<Entry> },
    Rows(Selected),
}

impl Query {
    pub(super) async fn select(&self, select: &Select, asked: Asked<'_>) -> Result<Vec<Series>, StatementFailure> {
        if select.into.is_some() {
            return Err(StatementFailure::Unsupported("SELECT … INTO".to_owned()));
        }
        let checked = check(select, &Clock { now: asked.now, zone: None, resolve: &resolve })?;
        let mut patterns = Patterns::default();
        collect_patterns(select, &mut patterns);
        let Some(selected) = self.selected(select, &checked, &[], &patterns, asked).await? else {
            return Ok(Vec::new());
        };
        Ok(shown(selected, !checked.grouping.tags.is_empty()))
    }

    /// The rows of a SELECT or a subquery; `None` when nothing that it selects exists.
    async fn selected(
        &self,
        select: &Select,
        checked: &Checked,
        outer: &[String],
        patterns: &Patterns,
        asked: Asked<'_>,
    ) -> Result<Option<Selected>, StatementFailure> {
        let own: Vec<String> = plain_tags(checked).into_iter().chain(outer.iter().cloned()).collect();
        let mut sources = Vec::new();
        let mut subqueries = checked.subqueries.iter();
        for source in &select.sources {
            match source {
                Source::Measurement(measurement) => sources.push(self.sensors_of(measurement, patterns, asked).await?),
                Source::Subquery(inner) => {
                    let Some(within) = subqueries.next() else { continue };
                    let rows = Box::pin(self.selected(inner, within, &own, patterns, asked)).await?;
                    sources.extend(rows.map(Sourced::Rows));
                }
            }
        }
        let schema = schema(&sources);
        let Some(plan) = Plan::new(select, checked, &schema, outer, patterns)? else { return Ok(None) };
        let limits = Limits { windows: self.options.windows_max, points: self.options.points_max };
        let frame = frame(select, checked, limits);
        let mut evaluation = Evaluation::new(&plan, &frame, patterns);
        for source in &sources {
            match source {
                Sourced::Sensors { database, entries } => {
                    self.read(database, entries, &plan, &frame, &mut evaluation, patterns).await?;
                }
                Sourced::Rows(rows) => feed_rows(rows, &plan, &frame, &mut evaluation)?,
            }
        }
        let groups = limited(select, evaluation.finish()?);
        Ok(Some(Selected { names: plan.names.clone(), groups }))
    }

    async fn sensors_of(
        &self,
        measurement: &Measurement,
        patterns: &Patterns,
        asked: Asked<'_>,
    ) -> Result<Sourced, StatementFailure> {
        let database = measurement.database.as_deref().or(asked.database).ok_or(StatementFailure::NoDatabase)?;
        let sensors = self.sensors_in(database, asked.by).await?;
        if let Some(policy) =
            measurement.policy.as_deref().or(asked.policy).filter(|policy| !["autogen", "", "default"].contains(policy))
        {
            return Err(StatementFailure::UnknownPolicy(policy.to_owned()));
        }
        let is_wanted = |name: &str| match &measurement.name {
            MeasurementName::Exact(wanted) => name == wanted,
            MeasurementName::Regex(pattern) => patterns.matches(pattern, name),
            MeasurementName::OfSource => false,
        };
        let entries = sensors.iter().filter(|entry| is_wanted(&entry.sensor.measurement)).cloned().collect();
        Ok(Sourced::Sensors { database: database.to_owned(), entries })
    }

    /// The sensors of a database, which must exist, that they may read.
    pub(super) async fn sensors_in(
        &self,
        database: &str,
        by: &Caller,
    ) -> Result<crate::query::directory::Sensors, StatementFailure> {
        if !by.may_read(database) {
            return Err(StatementFailure::Forbidden { by: by.name().to_owned(), database: database.to_owned() });
        }
        let sensors = self.directory(database, self.options.cache_max_age).await?;
        if sensors.is_empty() && !self.has_database(database).await? {
            return Err(StatementFailure::UnknownDatabase(database.to_owned()));
        }
        if by.pins().is_empty() {
            return Ok(sensors);
        }
        let has = |sensor: &Sensor, pin: &Pin| {
            sensor.tags.iter().any(|(key, value)| **key == *pin.key && **value == *pin.value)
        };
        let is_theirs = |entry: &&Entry| by.pins().iter().all(|pin| has(&entry.sensor, pin));
        Ok(std::sync::Arc::new(sensors.iter().filter(is_theirs).cloned().collect()))
    }

    /// Reads what the plan needs of these sensors.
    pub(in crate::query) async fn read(
        &self,
        database: &str,
        entries: &[Entry],
        plan: &Plan,
        frame: &Frame,
        evaluation: &mut Evaluation<'_>,
        patterns: &Patterns,
    ) -> Result<(), QueryError> {
        let mut chosen: Vec<(&Entry, bool)> = Vec::new();
        for entry in entries {
            let has_field = plan.fields[..plan.selected].iter().any(|field| entry.family(field).is_some());
            let holds =
                plan.condition.as_ref().map_or(Some(true), |condition| holds(condition, &Alone(entry, plan), patterns));
            if has_field && holds != Some(false) {
                chosen.push((entry, holds.is_none()));
            }
        }
        self.check_sensors(chosen.len())?;
        let members: Vec<Member> = chosen.iter().map(|(entry, _)| member(&entry.sensor)).collect();
        let sensors: Vec<Arc<Sensor>> = chosen.iter().map(|(entry, _)| entry.sensor.clone()).collect();
        let fields: Vec<Arc<str>> = plan.fields.iter().map(|field| Arc::from(field.as_str())).collect();
        let range = range(plan, frame);
        let mut span = self.span(&range)?;
        let mut wanted = Wanted { database, sensors: &sensors, range: range.clone(), fields: &fields };
        let hours = summarized(plan, frame, &chosen, &range);
        let parts = match &hours {
            Some(hours) => vec![range.start..hours.start, hours.end..range.end],
            None => vec![range],
        };
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            wanted.range = part;
            let take = |place: usize, points: &Points| {
                span.sees_all(&points.times)?;
                evaluation.feed(&members[place], points, chosen[place].1)
            };
            self.each_points(&wanted, take).await?;
        }
        if let Some(hours) = hours {
            wanted.range = hours;
            let mut within = Ok(());
            let take = |place: usize, summaries: &[HourSummary]| {
                let hours = || summaries.iter().map(|one| one.hour);
                if let (Some(first), Some(last)) = (hours().min(), hours().max()) {
                    let mut both = [first, last].into_iter().map(|hour| hour.start_ns()..hour.end_ns());
                    within = within.clone().and(both.try_for_each(|hour| span.sees(&hour)));
                }
                evaluation.absorb(&members[place], summaries);
            };
            self.each_summary(&wanted, take).await?;
            within?;
        }
        Ok(())
    }
}

/// A sensor of which only the tags are known, and which fields it has.
struct Alone<'a>(&'a Entry, &'a Plan);

impl Lookup for Alone<'_> {
    fn find(&self, name: &str, kind: Option<Kind>) -> Found {
        let is_field = self.1.fields.iter().any(|field| field == name);
        match (self.0.family(name), kind) {
            (Some(_), kind) if is_field && kind != Some(Kind::Tag) => Found::Unknown,
            (None, kind) if is_field && kind != Some(Kind::Tag) => Found::Field(None),
            (_, None | Some(Kind::Tag)) => {
                let tag = self.0.sensor.tags.iter().find(|(key, _)| **key == *name);
                Found::Tag(tag.map(|(_, value)| value.to_string()).unwrap_or_default())
            }
            _ => Found::Field(None),
        }
    }
}

fn member(sensor: &Sensor) -> Member {
    let tags = sensor.tags.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    Member { name: Arc::from(&*sensor.measurement), tags }
}

fn plain_tags(checked: &Checked) -> Vec<String> {
    let tag = |dimension: &Expr| match dimension {
        Expr::Reference { name, .. } => Some(name.clone()),
        _ => None,
    };
    checked.grouping.tags.iter().filter_map(tag).collect()
}

fn schema(sources: &[Sourced]) -> Schema {
    let mut schema = Schema::default();
    for source in sources {
        match source {
            Sourced::Sensors { entries, .. } => {
                for entry in entries {
                    for (name, family) in &entry.fields {
                        if !schema.fields.contains_key(&**name) {
                            schema.fields.insert(name.to_string(), *family);
                        }
                    }
                    schema.tags.extend(entry.sensor.tags.iter().map(|(key, _)| key.to_string()));
                }
            }
            Sourced::Rows(rows) => {
                for (at, name) in rows.names.iter().skip(1).enumerate() {
                    let value =
                        rows.groups.iter().flat_map(|group| &group.rows).find_map(|(_, cells)| cells[at].as_ref());
                    schema.fields.insert(name.clone(), value.map_or(Family::Number, Value::family));
                }
                schema
                    .tags
                    .extend(rows.groups.iter().flat_map(|group| group.member.tags.iter().map(|(key, _)| key.clone())));
            }
        }
    }
    schema
}

fn frame(select: &Select, checked: &Checked, limits: Limits) -> Frame {
    let zone = select.zone.as_deref().and_then(zone);
    let windows = (checked.grouping.every > 0).then(|| Windows {
        every: checked.grouping.every,
        offset: checked.grouping.offset,
        zone,
    });
    Frame {
        min: checked.min,
        max: checked.max,
        has_min: checked.min > crate::influxql::MIN_TIME,
        windows,
        fill: checked.fill,
        descending: select.is_descending(),
        limits,
    }
}

/// The times to read: the statement's, and the window before them where a call looks back.
fn range(plan: &Plan, frame: &Frame) -> Range<i64> {
    let lead = frame.windows.as_ref().filter(|_| plan.looks_back()).map_or(0, |windows| windows.every);
    let (before, behind) = if frame.descending { (0, lead) } else { (lead, 0) };
    let start = match &frame.windows {
        Some(windows) if before > 0 && frame.has_min => windows.around(frame.min.saturating_sub(before)).start,
        _ => frame.min,
    };
    start..frame.max.saturating_add(1).saturating_add(behind)
}

/// The whole hours within the range that summaries answer exactly.
fn summarized(plan: &Plan, frame: &Frame, chosen: &[(&Entry, bool)], range: &Range<i64>) -> Option<Range<i64>> {
    let picks = plan.calls.len() == 1 && frame.windows.is_none() && plan.calls[0].function.is_selector();
    let plain = |call: &super::plan::Call| call.function.is_summarized() && matches!(call.input, Input::Field(_));
    let numbers = |entry: &Entry| {
        plan.fields.iter().all(|field| entry.family(field).is_none_or(|family| family == Family::Number))
    };
    let beside = plan.columns.iter().any(needs_reading);
    if plan.is_raw()
        || picks
        || beside
        || !plan.calls.iter().all(plain)
        || chosen.iter().any(|(entry, filtered)| *filtered || !numbers(entry))
    {
        return None;
    }
    let start = Hour::of(range.start.saturating_add(HOUR - 1)).start_ns();
    let start = if frame.has_min { start } else { Hour::of(range.start.saturating_add(HOUR)).start_ns() };
    let end = Hour::of(range.end).start_ns();
    if start >= end {
        return None;
    }
    let aligned = match &frame.windows {
        None => true,
        Some(Windows { every, offset, zone: None }) => every % HOUR == 0 && offset % HOUR == 0,
        Some(windows) => {
            // All of time is longer than a number of nanoseconds can tell.
            let hours = end.saturating_sub(start) / HOUR;
            let whole = |hour: i64| {
                let first = start + hour * HOUR;
                windows.around(first) == windows.around(first + HOUR - 1)
            };
            windows.every % HOUR == 0 && hours < 100_000 && (0..hours).all(whole)
        }
    };
    aligned.then_some(start..end)
}

/// The rows of a subquery as readings.
fn feed_rows(rows: &Selected, plan: &Plan, frame: &Frame, evaluation: &mut Evaluation<'_>) -> Result<(), QueryError> {
    let places: Vec<Option<usize>> =
        plan.fields.iter().map(|field| rows.names.iter().skip(1).position(|name| name == field)).collect();
    let within = frame.min..=frame.max;
    for group in &rows.groups {
        let mut points = Points { times: Vec::new(), columns: vec![Vec::new(); plan.fields.len()] };
        let mut in_order: Vec<&Row> = group.rows.iter().collect();
        in_order.sort_by_key(|(time, _)| *time);
        for (time, cells) in in_order {
            if frame.has_min && !within.contains(time) {
                continue;
            }
            points.times.push(*time);
            for (column, place) in points.columns.iter_mut().zip(&places) {
                column.push(place.and_then(|place| cells[place].clone()));
            }
        }
        evaluation.feed(&group.member, &points, true)?;
    }
    Ok(())
}

/// `SLIMIT` and `SOFFSET`, which count each measurement's series in ascending order, and `LIMIT` and `OFFSET`.
fn limited(select: &Select, mut groups: Vec<Group>) -> Vec<Group> {
    let cut = |all: usize, offset: u64, limit: u64| {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(all);
        let count = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
        from..from.saturating_add(count).min(all)
    };
    if select.is_descending() {
        groups.reverse();
    }
    let mut chosen: Vec<Group> = Vec::new();
    for of_measurement in groups.chunk_by(|a, b| a.member.name == b.member.name) {
        chosen.extend_from_slice(&of_measurement[cut(of_measurement.len(), select.soffset, select.slimit)]);
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

/// The answer.
fn shown(selected: Selected, grouped: bool) -> Vec<Series> {
    let row = |(time, cells): Row| std::iter::once(Cell::Time(time)).chain(cells.into_iter().map(Cell::from)).collect();
    let series = |group: Group| Series {
        name: Some(group.member.name.to_string()),
        tags: if grouped { group.member.tags } else { Vec::new() },
        columns: selected.names.clone(),
        rows: group.rows.into_iter().map(row).collect(),
    };
    selected.groups.into_iter().map(series).collect()
}

/// Compiles every pattern of a statement.
fn collect_patterns(select: &Select, patterns: &mut Patterns) {
    let mut within = |expr: &Expr| {
        add_patterns(expr, patterns);
    };
    select.columns.iter().for_each(|column| within(&column.expr));
    select.group_by.iter().for_each(&mut within);
    select.condition.iter().for_each(&mut within);
    for source in &select.sources {
        match source {
            Source::Measurement(Measurement { name: MeasurementName::Regex(pattern), .. }) => patterns.add(pattern),
            Source::Measurement(_) => {}
            Source::Subquery(inner) => collect_patterns(inner, patterns),
        }
    }
}

/// Compiles every pattern of an expression.
pub fn add_patterns(expr: &Expr, patterns: &mut Patterns) {
    match expr {
        Expr::Literal(Literal::Regex(pattern)) => patterns.add(pattern),
        Expr::Binary { left, right, .. } => {
            add_patterns(left, patterns);
            add_patterns(right, patterns);
        }
        Expr::Paren(inner) => add_patterns(inner, patterns),
        Expr::Call { args, .. } => args.iter().for_each(|arg| add_patterns(arg, patterns)),
        _ => {}
    }
}
