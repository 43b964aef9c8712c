//! Parts of long answers with windows, series by series, and the choice of the series with the highest or lowest values.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use super::aggregate::{AggregatePlan, Aggregates, Aggregation, GroupBy, WindowSeries, evaluate, make_plan};
use crate::query::engine::Engine;
use crate::query::engine::directory::DirectoryEntry;
use crate::query::engine::fill::Fill;
use crate::query::engine::number::order;
use crate::query::{Budget, QueryError};
use crate::reading::{Sensor, Value};

/// The most windows that are read at first for a part.
const WINDOWS_AT_FIRST: usize = 10_000;
/// The most windows that are read at a time.
const WINDOWS_AT_ONCE: usize = 1 << 16;
/// The number of series that are ranked at a time.
const RANKED_AT_A_TIME: usize = 10_000;

/// The requested part of an answer.
#[derive(Debug, Clone)]
pub struct Part {
    /// Maximum number of windows.
    pub limit: usize,
    /// Its start; `None` for the first part.
    pub start: Option<WindowPlace>,
}

/// The place of a window in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowPlace {
    pub series: SeriesName,
    /// The shown start of the window.
    pub time: i64,
}

/// The identity of a series: its measurement, and its tags or the tags of the grouping.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SeriesName {
    measurement: String,
    tags: Vec<(String, String)>,
}

impl SeriesName {
    /// Parses a name that [`SeriesName::text`] returned.
    #[must_use]
    pub fn parse(text: &str, group_by: &GroupBy) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        if *group_by == GroupBy::Sensor {
            let sensor = Sensor::from_key(text)?;
            let tags = sensor.tags.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
            return Some(Self { measurement: sensor.measurement.to_string(), tags });
        }
        let (measurement, tags) = serde_json::from_str(text).ok()?;
        Some(Self { measurement, tags })
    }

    /// Returns the text of the name for a cursor: the key of a sensor, or JSON.
    #[must_use]
    pub fn text(&self, group_by: &GroupBy) -> String {
        let tags = self.tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        match group_by {
            GroupBy::Sensor => {
                Sensor::new(&self.measurement, tags).map(|sensor| sensor.key.to_string()).unwrap_or_default()
            }
            GroupBy::Tags(_) => serde_json::json!([self.measurement, self.tags]).to_string(),
        }
    }

    fn from_series(series: &WindowSeries) -> Self {
        Self { measurement: series.measurement.clone(), tags: series.tags.clone() }
    }

    fn from_entry(entry: &DirectoryEntry, group_by: &GroupBy) -> Self {
        let tags = match group_by {
            GroupBy::Sensor => {
                entry.sensor.tags.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
            }
            GroupBy::Tags(names) => {
                let tag = |name: &String| Some((name.clone(), entry.tag(name)?.into_owned()));
                names.iter().filter_map(tag).filter(|(_, value)| !value.is_empty()).collect()
            }
        };
        Self { measurement: entry.sensor.measurement.to_string(), tags }
    }

    fn tag(&self, name: &str) -> &str {
        self.tags.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// Compares an entry's series with this one, in the order of the answer: by the values of these tags.
    fn compare_entry(&self, entry: &DirectoryEntry, group_by: &[String]) -> Ordering {
        let by_tag = |name: &String| (*entry.tag(name).unwrap_or_default()).cmp(self.tag(name));
        let by_measurement = (*entry.sensor.measurement).cmp(&self.measurement);
        group_by.iter().map(by_tag).fold(by_measurement, Ordering::then)
    }
}

/// Compares the series of two entries, in the order of the answer.
fn compare(a: &DirectoryEntry, b: &DirectoryEntry, group_by: &[String]) -> Ordering {
    let by_measurement = a.sensor.measurement.cmp(&b.sensor.measurement);
    by_measurement.then_with(|| {
        let by_tag = |name: &String| a.tag(name).unwrap_or_default().cmp(&b.tag(name).unwrap_or_default());
        group_by.iter().map(by_tag).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    })
}

impl WindowSeries {
    /// Removes the windows before a time.
    fn drop_before(&mut self, time: i64) {
        let dropped = self.windows.partition_point(|(span, _)| span.start < time);
        self.windows.drain(..dropped);
        let shifted =
            |((window, column), sum): ((usize, usize), i128)| Some(((window.checked_sub(dropped)?, column), sum));
        self.wide = std::mem::take(&mut self.wide).into_iter().filter_map(shifted).collect();
    }

    /// Appends later windows of the same series.
    fn append(&mut self, later: Self) {
        let count = self.windows.len();
        self.windows.extend(later.windows);
        self.wide.extend(later.wide.into_iter().map(|((window, column), sum)| ((window + count, column), sum)));
    }
}

/// Reads a part of the answer. Sorts the entries.
pub(super) async fn read_part(
    engine: &Engine,
    budget: &Budget,
    request: &Aggregation,
    part: &Part,
    entries: &mut [DirectoryEntry],
) -> Result<Aggregates, QueryError> {
    let AggregatePlan { plan, columns, notices, held } = make_plan(budget, request, entries).await?;
    let mut order = plan.group_by.clone();
    if request.group_by == GroupBy::Sensor {
        // A sensor of the cursor may have gone, with a tag of its own.
        let names = part.start.iter().flat_map(|start| start.series.tags.iter().map(|(name, _)| name.clone()));
        let names: BTreeSet<String> = order.into_iter().chain(names).collect();
        order = names.into_iter().collect();
    }
    budget.sort(entries, 1 + order.len(), |a, b| compare(a, b, &order)).await?;
    let first = part.start.as_ref().map_or(0, |start| {
        entries.partition_point(|entry| start.series.compare_entry(entry, &order) == Ordering::Less)
    });
    let mut reader = PartReader {
        request,
        order: &order,
        entries: &entries[first..],
        size: part.limit.min(WINDOWS_AT_FIRST),
        series: 1,
    };
    let is_start = |entry: &DirectoryEntry| {
        part.start.as_ref().filter(|start| start.series.compare_entry(entry, &order) == Ordering::Equal)
    };
    // The first series continues at the time of the cursor.
    let mut continued = entries[first..].first().and_then(is_start).map(|start| start.time);
    let tags = plan.group_by.iter().cloned().collect();
    let mut found = Aggregates { columns, series: Vec::new(), tags, notices, next: None, held };
    let room = engine.options.request_bytes / 4;
    let mut left = part.limit;
    while let Some(entry) = reader.entries.first() {
        if left == 0 || found.held.bytes() >= room {
            let time = continued.unwrap_or(request.range.start);
            found.next = Some(WindowPlace { series: SeriesName::from_entry(entry, &request.group_by), time });
            break;
        }
        let slice = reader.next_slice(continued);
        let read = evaluate(engine, budget, &slice.request, &plan, &reader.entries[..slice.entries]).await;
        let (mut series, held) = match read {
            Err(QueryError::TooLarge { .. }) if reader.size > 1 && slice.can_shrink => {
                reader.size /= 2;
                reader.series = (reader.series / 2).max(1);
                continue;
            }
            read => read?,
        };
        found.held.add(held);
        if let (Some(time), Some(series)) = (continued, series.first_mut())
            && SeriesName::from_series(series) == SeriesName::from_entry(entry, &request.group_by)
        {
            series.drop_before(time);
        }
        for one in series.into_iter().filter(|one| !one.windows.is_empty()) {
            if let Some(rest) = found.add(one, &mut left) {
                found.next = Some(rest);
                return Ok(found);
            }
        }
        continued = slice.rest;
        if slice.rest.is_none() {
            reader.entries = &reader.entries[slice.entries..];
        }
        reader.size = (reader.size * 2).min(WINDOWS_AT_ONCE);
        reader.series = reader.series.saturating_mul(2);
        budget.pause().await?;
    }
    Ok(found)
}

impl Aggregates {
    /// Adds windows of a series, up to the limit. Returns the place of the first window that was left out.
    fn add(&mut self, mut series: WindowSeries, left: &mut usize) -> Option<WindowPlace> {
        let rest = series.windows.get(*left).map(|(span, _)| span.start);
        series.windows.truncate(*left);
        *left -= series.windows.len();
        let name = SeriesName::from_series(&series);
        match self.series.last_mut() {
            Some(last) if SeriesName::from_series(last) == name => last.append(series),
            _ if series.windows.is_empty() => {}
            _ => self.series.push(series),
        }
        rest.map(|time| WindowPlace { series: name, time })
    }
}

/// Divides the rest of an answer into slices to read.
struct PartReader<'a> {
    request: &'a Aggregation,
    /// The tags by which series are in order.
    order: &'a [String],
    /// The sensors that are not read yet, in the order of their series.
    entries: &'a [DirectoryEntry],
    /// About how many windows to read at a time. It grows while windows are empty.
    size: usize,
    /// The number of series to read at a time if their windows cannot be counted.
    series: usize,
}

/// A slice to read.
struct Slice {
    /// The request, with the slice's range of time.
    request: Aggregation,
    /// The number of entries.
    entries: usize,
    /// The time at which the only series continues.
    rest: Option<i64>,
    /// False if it is a series that cannot be divided.
    can_shrink: bool,
}

impl PartReader<'_> {
    /// Returns the next slice: some series, or some windows of one series.
    fn next_slice(&self, continued: Option<i64>) -> Slice {
        let mut request = self.request.clone();
        // Fills and functions from window to window need the whole series.
        let can_divide = request.fill == Fill::None && request.functions.iter().all(|function| !function.looks_back());
        if let Some(time) = continued.filter(|time| can_divide && *time > request.range.start) {
            request.range.start = time;
            request.has_start = true;
        }
        let Range { start, end } = request.range;
        let starts = match &request.windows {
            Some(windows) if can_divide && request.has_start => {
                windows.starts(start, end.saturating_sub(1), false, self.size.saturating_add(1))
            }
            _ => Vec::new(),
        };
        if starts.len() > self.size {
            request.range.end = starts[self.size];
            let rest = Some(starts[self.size]);
            return Slice { request, entries: self.series_end(1), rest, can_shrink: true };
        }
        let count = match (&request.windows, starts.len()) {
            _ if continued.is_some() => 1,
            (None, _) => self.size,
            // The number of windows is unknown.
            (Some(_), 0) => self.series,
            (Some(_), windows) => (self.size / windows).max(1),
        };
        Slice { request, entries: self.series_end(count), rest: None, can_shrink: count > 1 || starts.len() > 1 }
    }

    /// Returns the number of entries of the next series.
    fn series_end(&self, count: usize) -> usize {
        let mut end = 0;
        for _ in 0..count {
            let Some(first) = self.entries.get(end) else { break };
            let is_same = |entry: &&DirectoryEntry| compare(entry, first, self.order) == Ordering::Equal;
            end += self.entries[end..].iter().take_while(is_same).count();
        }
        end
    }
}

/// The series to answer: those with the highest or lowest values.
#[derive(Debug, Clone, Copy)]
pub struct Ranking {
    pub count: usize,
    /// True for the highest values.
    pub is_top: bool,
}

impl Ranking {
    /// Returns the names of the series, best first: by the request's first function of its first field, over the whole
    /// range. Of equal values, the first series in order wins.
    pub(super) async fn choose(
        self,
        engine: &Engine,
        budget: &Budget,
        request: &Aggregation,
        entries: &mut [DirectoryEntry],
    ) -> Result<Vec<SeriesName>, QueryError> {
        let single = Aggregation {
            fields: request.fields.first().cloned().into_iter().collect(),
            functions: request.functions.first().map(|function| function.of_window()).into_iter().collect(),
            windows: None,
            fill: Fill::None,
            ranking: None,
            ..request.clone()
        };
        let mut best: Vec<(Value, SeriesName)> = Vec::new();
        let mut part = Part { limit: RANKED_AT_A_TIME, start: None };
        loop {
            let found = read_part(engine, budget, &single, &part, entries).await?;
            for series in &found.series {
                let value = series.windows.first().and_then(|(_, cells)| cells.first().cloned().flatten());
                best.extend(value.map(|value| (value, SeriesName::from_series(series))));
            }
            best.sort_by(|(a, _), (b, _)| {
                let order = order(a, b).unwrap_or(Ordering::Equal);
                if self.is_top { order.reverse() } else { order }
            });
            best.truncate(self.count);
            match found.next {
                Some(next) => part.start = Some(next),
                None => return Ok(best.into_iter().map(|(_, name)| name).collect()),
            }
        }
    }
}

/// Keeps the entries of these series.
pub(super) fn retain_series(entries: &mut Vec<DirectoryEntry>, group_by: &GroupBy, names: &[SeriesName]) {
    let names: HashSet<&SeriesName> = names.iter().collect();
    entries.retain(|entry| names.contains(&SeriesName::from_entry(entry, group_by)));
}

/// Sorts series in the order of these names.
pub(super) fn sort_series(series: &mut [WindowSeries], names: &[SeriesName]) {
    let places: HashMap<&SeriesName, usize> = names.iter().enumerate().map(|(place, name)| (name, place)).collect();
    series.sort_by_key(|series| places.get(&SeriesName::from_series(series)).copied());
}
