//! A cache of stored hourly summaries, by sensor and day, for dashboards that repeat their queries. Bounded by bytes.
//! It knows how old an entry may be, not how to read one.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rapidhash::fast::RandomState;

use crate::bucket::hour_versions::SensorHash;
use crate::bucket::{HourVersions, Summary};
use crate::reading::Hour;
use crate::telemetry::Metrics;

const HOURS: i64 = 24;

/// An hour's summary per field; `None` for a field that is known to have no numbers in that hour.
pub type HourSummaries = [(Arc<str>, Option<Summary>)];

/// Caches summaries of hours, each over all pages of the hour.
#[derive(Debug)]
pub struct SummaryCache {
    bytes_max: usize,
    /// How old an entry may be if other processes write to the store too.
    max_age: Option<Duration>,
    state: Mutex<CacheState>,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct CacheState {
    /// By sensor hash and day. If two days have the same key, the later replaces the earlier.
    days: HashMap<u64, Day, RandomState>,
    /// The keys of all days, in the order in which they are considered for eviction.
    order: VecDeque<u64>,
    bytes: usize,
}

#[derive(Debug)]
struct Day {
    database: Box<str>,
    sensor: Box<str>,
    number: i64,
    hours: [Option<CachedSensor>; HOURS as usize],
    bytes: usize,
    /// Whether the day was used since it was last considered for eviction.
    was_used: bool,
}

#[derive(Debug)]
struct CachedSensor {
    moment: ReadMoment,
    /// Whether the first and last values are known to be the hour's.
    has_ends: bool,
    fields: Vec<(Arc<str>, Option<Summary>)>,
}

/// The moment just before a read.
#[derive(Debug, Clone, Copy)]
pub struct ReadMoment {
    /// [`HourVersions::now`] at that moment.
    pub changes: u64,
    pub at: Instant,
}

/// Hours of one sensor.
#[derive(Debug, Clone)]
pub struct Hours<'a> {
    pub database: &'a str,
    pub sensor: &'a str,
    /// The sensor's [`HourVersions::hash`].
    pub place: SensorHash,
    pub hours: Range<Hour>,
    pub fields: &'a [Arc<str>],
    /// Whether the first and last values matter.
    pub ends: bool,
}

/// The summaries of one hour over all its pages.
#[derive(Debug, Clone)]
pub struct FoundHour {
    pub hour: Hour,
    /// Whether the first and last values are the hour's: of several pages, whose times may overlap, only the readings tell.
    pub has_ends: bool,
    pub summaries: Vec<(Arc<str>, Summary)>,
}

impl SummaryCache {
    /// An empty cache; `None` if `bytes_max` is zero.
    pub fn new(bytes_max: usize, max_age: Option<Duration>, metrics: &Metrics) -> Option<Self> {
        (bytes_max > 0).then(|| Self { bytes_max, max_age, state: Mutex::default(), metrics: metrics.clone() })
    }

    /// The most bytes that it holds.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Passes cached hours to `take`, in order, and returns the hours that must be read: from the first to the last
    /// that is not cached. None of the hours in between are passed. Hours in `open` (sorted) have unflushed readings;
    /// they are not passed and do not count as missing.
    pub fn recall(
        &self,
        asked: &Hours<'_>,
        open: &[Hour],
        at: (&HourVersions, Instant),
        mut take: impl FnMut(Hour, &HourSummaries),
    ) -> Range<Hour> {
        let mut state = self.state.lock();
        let mut unknown: Option<Range<Hour>> = None;
        for (number, hours) in days_of(asked.hours.clone()) {
            let day = state.day(asked, number);
            for hour in hours.filter(|hour| open.binary_search(hour).is_err()) {
                let known = day.and_then(|day| day.hours[place_in_day(hour)].as_ref());
                let is_known = |known: &CachedSensor| known.has(asked) && self.is_current(known, asked.place, hour, at);
                if !known.is_some_and(is_known) {
                    unknown = Some(unknown.map_or(hour, |unknown| unknown.start)..hour.next());
                }
            }
        }
        let unknown = unknown.unwrap_or(asked.hours.start..asked.hours.start);
        let mut hits = 0;
        for (number, hours) in days_of(asked.hours.clone()) {
            if let Some(day) = state.days.get_mut(&key(asked.place, number)) {
                day.was_used = true;
            }
            let day = state.day(asked, number);
            for hour in hours.filter(|hour| !unknown.contains(hour) && open.binary_search(hour).is_err()) {
                if let Some(known) = day.and_then(|day| day.hours[place_in_day(hour)].as_ref()) {
                    take(hour, &known.fields);
                    hits += 1;
                }
            }
        }
        self.metrics.query_cache_hits.increment(hits);
        self.metrics.query_cache_misses.increment(unknown.end.0.abs_diff(unknown.start.0));
        unknown
    }

    fn is_current(
        &self,
        known: &CachedSensor,
        place: SensorHash,
        hour: Hour,
        (changes, now): (&HourVersions, Instant),
    ) -> bool {
        self.max_age.is_none_or(|age| now.saturating_duration_since(known.moment.at) < age)
            && changes.is_unchanged(place, hour, known.moment.changes)
    }

    /// Caches what the store was found to have for these hours, except the `open` ones. `found` has the summaries of
    /// the wanted fields, hour by hour; an hour that it lacks is empty.
    pub fn remember(
        &self,
        asked: &Hours<'_>,
        open: &[Hour],
        moment: ReadMoment,
        changes: &HourVersions,
        found: impl IntoIterator<Item = FoundHour>,
    ) {
        let mut found = found.into_iter().peekable();
        let mut state = self.state.lock();
        let CacheState { days, order, bytes } = &mut *state;
        for (number, hours) in days_of(asked.hours.clone()) {
            let key = key(asked.place, number);
            let day = days.entry(key).or_insert_with(|| {
                order.push_back(key);
                Day::new(asked, number)
            });
            *bytes -= day.bytes;
            if !day.is_of(asked, number) {
                *day = Day::new(asked, number);
            }
            for hour in hours {
                let found = found.next_if(|found| found.hour == hour);
                if open.binary_search(&hour).is_ok() {
                    continue;
                }
                let found = found.unwrap_or(FoundHour { hour, has_ends: true, summaries: Vec::new() });
                let mut new = CachedSensor::new(asked.fields, moment, found);
                let slot = &mut day.hours[place_in_day(hour)];
                let is_current = |old: &CachedSensor| self.is_current(old, asked.place, hour, (changes, moment.at));
                if let Some(old) = slot.take().filter(is_current) {
                    new.join(old);
                }
                *slot = Some(new);
            }
            day.bytes = day.memory();
            *bytes += day.bytes;
        }
        state.shrink(self.bytes_max);
        self.metrics.query_cached(state.bytes);
    }
}

impl CacheState {
    fn day(&self, asked: &Hours<'_>, number: i64) -> Option<&Day> {
        self.days.get(&key(asked.place, number)).filter(|day| day.is_of(asked, number))
    }

    /// Evicts the oldest days until the rest fits; a day that was used since it was last considered gets a second
    /// chance.
    fn shrink(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some(key) = self.order.pop_front() else { return };
            match self.days.get_mut(&key) {
                Some(day) if day.was_used => {
                    day.was_used = false;
                    self.order.push_back(key);
                }
                _ => self.bytes -= self.days.remove(&key).map_or(0, |day| day.bytes),
            }
        }
    }
}

impl Day {
    fn new(asked: &Hours<'_>, number: i64) -> Self {
        let (database, sensor) = (asked.database.into(), asked.sensor.into());
        Self { database, sensor, number, hours: Default::default(), bytes: 0, was_used: false }
    }

    fn is_of(&self, asked: &Hours<'_>, number: i64) -> bool {
        self.number == number && *self.sensor == *asked.sensor && *self.database == *asked.database
    }

    fn memory(&self) -> usize {
        // The key is stored twice, and hash tables are not always full.
        let own = 2 * size_of::<(u64, Self)>() + self.database.len() + self.sensor.len();
        let field =
            |(name, summary): &(Arc<str>, Option<Summary>)| name.len() + summary.as_ref().map_or(0, Summary::memory);
        let hour = |hour: &CachedSensor| {
            hour.fields.capacity() * size_of::<(Arc<str>, Option<Summary>)>()
                + hour.fields.iter().map(field).sum::<usize>()
        };
        own + self.hours.iter().flatten().map(hour).sum::<usize>()
    }
}

impl CachedSensor {
    fn new(fields: &[Arc<str>], moment: ReadMoment, found: FoundHour) -> Self {
        // In place: the allocation of the summaries stays.
        let mut known: Vec<_> = found.summaries.into_iter().map(|(name, summary)| (name, Some(summary))).collect();
        for field in fields {
            if !known.iter().any(|(name, _)| name == field) {
                known.push((field.clone(), None));
            }
        }
        Self { moment, has_ends: found.has_ends, fields: known }
    }

    fn has(&self, asked: &Hours<'_>) -> bool {
        let has = |field: &Arc<str>| self.fields.iter().any(|(name, _)| name == field);
        asked.fields.iter().all(has) && (self.has_ends || !asked.ends)
    }

    /// Adds the fields that another read found beyond this one. The earlier of both moments counts for all of them.
    fn join(&mut self, other: Self) {
        let has = |fields: &HourSummaries, name: &Arc<str>| fields.iter().any(|(known, _)| known == name);
        let more: Vec<_> = other.fields.into_iter().filter(|(name, _)| !has(&self.fields, name)).collect();
        self.fields.extend(more);
        self.has_ends &= other.has_ends;
        self.moment.changes = self.moment.changes.min(other.moment.changes);
        self.moment.at = self.moment.at.min(other.moment.at);
    }
}

/// The days that the hours lie in, each with its hours.
fn days_of(hours: Range<Hour>) -> impl Iterator<Item = (i64, impl Iterator<Item = Hour>)> {
    let Range { start: Hour(start), end: Hour(end) } = hours;
    let days = start.div_euclid(HOURS)..if start < end { (end - 1).div_euclid(HOURS) + 1 } else { i64::MIN };
    days.map(move |day| (day, (start.max(day * HOURS)..end.min((day + 1) * HOURS)).map(Hour)))
}

fn place_in_day(hour: Hour) -> usize {
    hour.0.rem_euclid(HOURS) as usize
}

fn key(place: SensorHash, day: i64) -> u64 {
    place.number() ^ (day as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests;
