//! Readings of sensors as columns of the wanted fields, batch by batch: stored readings with unflushed ones merged in.

use std::borrow::Borrow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use super::hours::{by_hour, first_half, hours_of, overlay, within};
use super::summaries::HourSummary;
use super::{Engine, UnflushedSensor};
use crate::bucket::store::{Extent, GROWTH, Order, Projection, ScanResult, ScannedPage};
use crate::bucket::summary::distribution::Distribution;
use crate::bucket::{Readings, StorageError, UnflushedHour};
use crate::query::{Budget, HeldBytes, QueryError};
use crate::reading::{Hour, Sensor, Value};

/// Which fields of which readings to read.
#[derive(Debug, Clone)]
pub struct PointsQuery<'a> {
    pub database: &'a str,
    /// In any order, each at most once.
    pub sensors: &'a [Arc<Sensor>],
    /// Nanoseconds, half open.
    pub range: Range<i64>,
    pub fields: &'a Arc<[Arc<str>]>,
    /// Whether the first and last values of summaries matter.
    pub ends: bool,
    /// Whether counts and sums are all that matters of summaries.
    pub only_sums: bool,
    /// The bounds by which summaries must count values, if distributions are wanted.
    pub bounds: Option<Arc<[f64]>>,
    pub budget: &'a Budget,
}

impl PointsQuery<'_> {
    /// What a scan of the summaries returns.
    pub fn summaries(&self, only_sums: bool) -> Projection {
        let distributions = self.bounds.is_some();
        Projection { fields: Some(self.fields.clone()), only_sums, distributions, ..Projection::SUMMARIES }
    }

    /// The approximate memory of a summary, in bytes.
    pub fn summary_bytes(&self) -> usize {
        let counts = self.bounds.as_ref().map_or(0, |bounds| size_of::<Distribution>() + size_of_val(&**bounds));
        2 * (size_of::<HourSummary>() + counts)
    }
}

/// Some readings of one sensor, in time order and later than those of the cursors before.
#[derive(Debug, Clone, Default)]
pub struct PointCursor {
    /// Nanoseconds.
    pub times: Vec<i64>,
    /// Per wanted field, one cell per time. A column ends at its last value.
    pub columns: Vec<Vec<Option<Value>>>,
}

impl PointCursor {
    /// A field's value at a time, both by index.
    #[must_use]
    pub fn cell(&self, field: usize, at: usize) -> Option<&Value> {
        self.columns[field].get(at)?.as_ref()
    }
}

/// Pages read at a time: at first, and at most. The limit is low because the next pages may be larger than those
/// before.
const PAGES_AT_FIRST: usize = 32;
const PAGES_MOST: usize = 128;
/// The unflushed readings that are unpacked at a time take at most this part of a request's memory.
const UNPACKED_SHARE: usize = 8;
/// Most stored bytes of readings per batch.
const BATCH_BYTES: usize = 1 << 20;

/// A scan over the wanted readings.
pub struct Scan<'a> {
    engine: &'a Engine,
    wanted: &'a PointsQuery<'a>,
    projection: Projection,
    /// Sensors before this index have been read or are in `batch`.
    next: usize,
    batch: VecDeque<SensorPart>,
    /// The unread hours of a sensor that does not fit into one batch.
    rest: Option<(Range<Hour>, UnflushedSensor)>,
    /// The unread times of the first of these hours, if it is too large to be read at once, and how long a part of it
    /// was not too large, in nanoseconds.
    within: Option<(Range<i64>, i64)>,
    pages_wanted: usize,
    held: HeldBytes,
}

/// One sensor's part of a batch: its hours before `scanned`, and of them what lies in a range of times.
struct SensorPart {
    place: usize,
    pages: Vec<ScannedPage>,
    unflushed: UnflushedSensor,
    scanned: Hour,
    times: Range<i64>,
}

impl Engine {
    /// Most stored bytes of readings per batch: a small part of a request's memory.
    #[must_use]
    pub fn batch_bytes(&self) -> usize {
        (self.options.request_bytes / 32).min(BATCH_BYTES)
    }

    /// Most stored bytes of one hour of a sensor: decoded, they are in memory twice, as pages and as columns.
    #[must_use]
    pub fn hour_bytes(&self) -> usize {
        self.options.request_bytes / (2 * GROWTH)
    }

    /// The first of these hours whose unflushed readings are too large to be unpacked together with those of the hours
    /// before it, unless so few of its times are wanted that they cannot be halved.
    #[must_use]
    pub fn too_large(
        &self,
        mut unflushed: impl Iterator<Item = impl Borrow<UnflushedHour>>,
        order: Order,
        times: &Range<i64>,
    ) -> Option<Hour> {
        let mut bytes = 0;
        unflushed.find_map(|hour| {
            let hour = hour.borrow();
            bytes += hour.unpacked_memory();
            let is_too_large = bytes > self.options.request_bytes / UNPACKED_SHARE;
            (is_too_large && first_half(order, hour.hour, times).is_some()).then_some(hour.hour)
        })
    }

    /// Starts a scan.
    ///
    /// # Errors
    /// If the budget is exhausted.
    pub fn points<'a>(&'a self, wanted: &'a PointsQuery<'a>) -> Result<Scan<'a>, QueryError> {
        Ok(Scan {
            engine: self,
            wanted,
            projection: Projection {
                fields: Some(wanted.fields.clone()),
                times: wanted.range.clone(),
                ..Projection::ALL
            },
            next: 0,
            batch: VecDeque::new(),
            rest: None,
            within: None,
            pages_wanted: PAGES_AT_FIRST,
            held: wanted.budget.hold(0)?,
        })
    }
}

impl Scan<'_> {
    /// The next readings, with the index of their sensor. Each sensor's readings come in time order.
    ///
    /// # Errors
    /// If the answer would be incomplete, or the budget is exhausted.
    pub async fn next(&mut self) -> Result<Option<(usize, PointCursor)>, QueryError> {
        loop {
            if let Some(part) = self.batch.pop_front() {
                return Ok(Some((part.place, part.points(self.wanted))));
            }
            if self.rest.is_none() && self.next >= self.wanted.sensors.len() {
                return Ok(None);
            }
            self.wanted.budget.pause().await?;
            self.read().await?;
        }
    }

    /// Reads a batch: as many sensors as are sure to fit, else one sensor, as many of its hours as fit.
    async fn read(&mut self) -> Result<(), QueryError> {
        let hours = hours_of(&self.wanted.range);
        let span = usize::try_from(hours.end.0.saturating_sub(hours.start.0)).unwrap_or(usize::MAX).max(1);
        let count = (self.pages_wanted / span).min(self.wanted.sensors.len() - self.next);
        let pages = count.max(1).saturating_mul(span).min(self.pages_wanted);
        let batch_bytes = self.engine.batch_bytes();
        self.held.set((pages * batch_bytes / PAGES_AT_FIRST).min(batch_bytes) * GROWTH)?;
        if self.rest.is_some() || count == 0 || !self.read_several(count, &hours).await? {
            self.read_one(&hours).await?;
        }
        let pages = || self.batch.iter().flat_map(|part| &part.pages);
        let read: usize = pages().filter_map(|page| page.readings.as_ref()).map(Readings::bytes).sum();
        let readings: usize = pages().filter_map(|page| page.readings.as_ref()).map(|set| set.times().len()).sum();
        let unflushed = || self.batch.iter().flat_map(|part| part.unflushed.values());
        self.wanted.budget.note_read(read, readings + unflushed().map(UnflushedHour::row_count).sum::<usize>());
        let stored = pages().filter_map(|page| page.readings.as_ref()).map(Readings::memory);
        let unflushed = unflushed().map(UnflushedHour::unpacked_memory);
        let rest = self.rest.iter().flat_map(|(_, rest)| rest.values()).map(UnflushedHour::memory);
        // Twice: as pages, and again as columns.
        let held = 2 * stored.chain(unflushed).sum::<usize>() + rest.sum::<usize>();
        self.pages_wanted = (batch_bytes / (read / pages().count().max(1)).max(1)).clamp(1, PAGES_MOST);
        self.held.set(held)
    }

    /// Returns false if these sensors' pages are too large for one batch.
    async fn read_several(&mut self, count: usize, hours: &Range<Hour>) -> Result<bool, QueryError> {
        let PointsQuery { database, sensors, budget, .. } = *self.wanted;
        let batch = self.next..self.next + count;
        let keys: Vec<&str> = sensors[batch.clone()].iter().map(|sensor| &*sensor.key).collect();
        let unflushed = self.engine.unflushed_within(budget, database, &keys, &self.wanted.range).await?;
        if self
            .engine
            .too_large(unflushed.iter().flat_map(BTreeMap::values), Order::Ascending, &self.wanted.range)
            .is_some()
        {
            return Ok(false);
        }
        let stored =
            self.engine.store.scan_sensors(database, &keys, hours.clone(), &self.projection, self.engine.batch_bytes());
        let Some(stored) = budget.waiting(stored).await? else { return Ok(false) };
        let times = || self.wanted.range.clone();
        let part =
            |((place, pages), unflushed)| SensorPart { place, pages, unflushed, scanned: hours.end, times: times() };
        self.batch.extend(batch.clone().zip(stored).zip(unflushed).map(part));
        self.next = batch.end;
        Ok(true)
    }

    async fn read_one(&mut self, hours: &Range<Hour>) -> Result<(), QueryError> {
        let PointsQuery { database, sensors, budget, .. } = *self.wanted;
        let (place, key) = (self.next, &*sensors[self.next].key);
        let (hours, mut unflushed) = match self.rest.take() {
            Some(rest) => rest,
            None => {
                let range = &self.wanted.range;
                let unflushed = self.engine.unflushed_within(budget, database, &[key], range).await?;
                (hours.clone(), unflushed.into_iter().next().unwrap_or_default())
            }
        };
        let (ScanResult { pages, mut rest }, times) = self.scan(key, &hours, &unflushed).await?;
        let (mut scanned, first_hour_end) = (rest.start, hours.start.end_ns().min(self.wanted.range.end));
        let later = if times.end < first_hour_end {
            (rest, scanned) = (hours.clone(), hours.start.next());
            // A gap must not be read in as many parts as what comes before it.
            let bytes: usize = pages.iter().filter_map(|page| page.readings.as_ref()).map(Readings::bytes).sum();
            let growth = if bytes < self.engine.hour_bytes() / 2 { 2 } else { 1 };
            self.within = Some((times.end..first_hour_end, growth * (times.end - times.start)));
            unflushed.clone()
        } else {
            self.within = None;
            unflushed.split_off(&rest.start)
        };
        let unflushed = within(unflushed, &times);
        self.batch.push_back(SensorPart { place, pages, unflushed, scanned, times });
        if rest.is_empty() {
            self.next += 1;
        } else {
            self.rest = Some((rest, later));
        }
        Ok(())
    }

    /// Reads the first of these hours, as many as fit. Of an hour that does not fit, reads the first times that do; the
    /// range of times that is returned then ends within the hour.
    async fn scan(
        &self,
        key: &str,
        hours: &Range<Hour>,
        unflushed: &UnflushedSensor,
    ) -> Result<(ScanResult, Range<i64>), QueryError> {
        let PointsQuery { database, budget, .. } = *self.wanted;
        let (bytes, hour_bytes) = (self.engine.batch_bytes(), self.engine.hour_bytes());
        let extent = Extent { pages: self.pages_wanted.max(PAGES_AT_FIRST), bytes, hour_bytes };
        let (mut ahead, mut times) = match &self.within {
            Some((left, length)) => {
                let end = left.start.saturating_add(*length).min(left.end);
                (hours.start..hours.start.next(), left.start..end)
            }
            None => (hours.clone(), self.wanted.range.clone()),
        };
        loop {
            let projection = Projection { times: times.clone(), ..self.projection.clone() };
            let unpacked = unflushed.range(ahead.clone()).filter_map(|(_, hour)| hour.within(&times));
            let scanned = match self.engine.too_large(unpacked, Order::Ascending, &times) {
                Some(hour) => Err(StorageError::HourTooLarge { hour, limit: hour_bytes }),
                None => {
                    let scan =
                        self.engine.store.scan(database, key, ahead.clone(), Order::Ascending, &projection, extent);
                    budget.waiting(scan).await
                }
            };
            match scanned {
                Ok(ScanResult { pages, rest }) => {
                    return Ok((ScanResult { pages, rest: rest.start..hours.end }, times));
                }
                Err(StorageError::HourTooLarge { hour, .. }) if hour > ahead.start => ahead.end = hour,
                Err(StorageError::HourTooLarge { hour, limit }) => {
                    ahead = hour..hour.next();
                    times = first_half(Order::Ascending, hour, &times).ok_or(QueryError::HourTooLarge { limit })?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl SensorPart {
    /// The wanted columns.
    fn points(mut self, wanted: &PointsQuery<'_>) -> PointCursor {
        let times = self.times.start.max(wanted.range.start)..self.times.end.min(wanted.range.end);
        let mut points = PointCursor { times: Vec::new(), columns: vec![Vec::new(); wanted.fields.len()] };
        for (_, pages, later) in by_hour(&self.pages, &mut self.unflushed, self.scanned) {
            points.append(&overlay(pages, later.as_ref()), wanted, &times);
        }
        points
    }
}

impl PointCursor {
    /// Adds the readings that are in the range and have a wanted field.
    fn append(&mut self, readings: &Readings, wanted: &PointsQuery<'_>, range: &Range<i64>) {
        let times = readings.times();
        let within = times.partition_point(|time| *time < range.start)..times.partition_point(|time| *time < range.end);
        // A query may want many fields, of which an hour has only a few.
        let sources = wanted.fields.iter().enumerate().filter_map(|(field, name)| Some((field, readings.cells(name)?)));
        let sources: Vec<(usize, &[Option<Value>])> = sources.collect();
        for index in within {
            let before = self.times.len();
            for (field, value) in sources.iter().filter_map(|(field, cells)| Some((*field, cells[index].as_ref()?))) {
                let column = &mut self.columns[field];
                column.resize(before, None);
                column.push(Some(value.clone()));
                self.times.truncate(before);
                self.times.push(times[index]);
            }
        }
    }
}
