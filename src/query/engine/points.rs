//! Readings of sensors as columns of the fields wanted, lot by lot: what is stored, and over it what is not yet.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::hours::{by_hour, hours_of, overlay};
use super::{Engine, Unflushed};
use crate::bucket::store::{Extent, GROWTH, Projection, Scanned, ScannedPage};
use crate::bucket::{Readings, UnflushedHour};
use crate::query::{Budget, Held, QueryError};
use crate::reading::{Hour, Sensor, Value};

/// Which readings of which sensors.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// The database's name.
    pub database: &'a str,
    /// In any order, each once.
    pub sensors: &'a [Arc<Sensor>],
    /// In nanoseconds, half open.
    pub range: Range<i64>,
    /// Their fields.
    pub fields: &'a Arc<[Arc<str>]>,
    /// What it may take.
    pub budget: &'a Budget,
}

/// Some readings of one sensor, in time order and after those given before.
#[derive(Debug, Clone, Default)]
pub struct Points {
    /// Nanoseconds.
    pub times: Vec<i64>,
    /// Per field wanted, a cell per time; fewer where nothing follows.
    pub columns: Vec<Vec<Option<Value>>>,
}

impl Points {
    /// A field's value at a time, by their numbers.
    #[must_use]
    pub fn cell(&self, field: usize, at: usize) -> Option<&Value> {
        self.columns[field].get(at)?.as_ref()
    }
}

/// Pages with readings that are read at a time: at first, and at most, since the next ones may be larger than those
/// before.
const PAGES_AT_FIRST: usize = 32;
const PAGES_MOST: usize = 128;
/// Bytes of readings, as stored, after which a lot ends, at most.
const LOT_BYTES: usize = 1 << 20;

/// All readings wanted, some at a time.
pub struct Scan<'a> {
    engine: &'a Engine,
    wanted: &'a Wanted<'a>,
    projection: Projection,
    /// Sensors before this one are read, and those in the lot.
    next: usize,
    lot: VecDeque<Part>,
    /// What is left of a sensor that does not fit into one lot.
    rest: Option<(Range<Hour>, Unflushed)>,
    pages_wanted: usize,
    held: Held,
}

/// What is read of a sensor, of hours before one.
struct Part {
    place: usize,
    pages: Vec<ScannedPage>,
    unflushed: Unflushed,
    scanned: Hour,
}

impl Engine {
    /// Bytes of readings, as stored, after which a lot ends: a small part of what a request may take.
    #[must_use]
    pub fn lot_bytes(&self) -> usize {
        (self.options.request_bytes / 32).min(LOT_BYTES)
    }

    /// Begins to read.
    ///
    /// # Errors
    /// When the budget has nothing left.
    pub fn points<'a>(&'a self, wanted: &'a Wanted<'a>) -> Result<Scan<'a>, QueryError> {
        Ok(Scan {
            engine: self,
            wanted,
            projection: Projection { readings: true, fields: Some(wanted.fields.clone()) },
            next: 0,
            lot: VecDeque::new(),
            rest: None,
            pages_wanted: PAGES_AT_FIRST,
            held: wanted.budget.hold(0)?,
        })
    }
}

impl Scan<'_> {
    /// The next readings, with their sensor's place: each sensor's in time order.
    ///
    /// # Errors
    /// When the answer cannot be complete, or the budget is spent.
    pub async fn next(&mut self) -> Result<Option<(usize, Points)>, QueryError> {
        loop {
            if let Some(Part { place, pages, mut unflushed, scanned }) = self.lot.pop_front() {
                return Ok(Some((place, points(self.wanted, &pages, &mut unflushed, scanned))));
            }
            if self.rest.is_none() && self.next >= self.wanted.sensors.len() {
                return Ok(None);
            }
            self.wanted.budget.pause().await?;
            self.read().await?;
        }
    }

    /// Reads a lot: of as many sensors as it is sure to have room for, else of one, and of that as far as there is room.
    async fn read(&mut self) -> Result<(), QueryError> {
        let hours = hours_of(&self.wanted.range);
        let span = usize::try_from(hours.end.0.saturating_sub(hours.start.0)).unwrap_or(usize::MAX).max(1);
        let count = (self.pages_wanted / span).min(self.wanted.sensors.len() - self.next);
        let pages = count.max(1).saturating_mul(span).min(self.pages_wanted);
        let lot_bytes = self.engine.lot_bytes();
        self.held.set((pages * lot_bytes / PAGES_AT_FIRST).min(lot_bytes) * GROWTH)?;
        if self.rest.is_some() || count == 0 || !self.read_several(count, &hours).await? {
            self.read_one(&hours).await?;
        }
        let pages = || self.lot.iter().flat_map(|part| &part.pages);
        let read: usize = pages().filter_map(|page| page.readings.as_ref()).map(Readings::bytes).sum();
        let readings: usize = pages().filter_map(|page| page.readings.as_ref()).map(|set| set.times().len()).sum();
        let unflushed = || self.lot.iter().flat_map(|part| part.unflushed.values());
        self.wanted.budget.note_read(read, readings + unflushed().map(UnflushedHour::written).sum::<usize>());
        let stored = pages().filter_map(|page| page.readings.as_ref()).map(Readings::memory);
        let unflushed = unflushed().map(UnflushedHour::unpacked_memory);
        let rest = self.rest.iter().flat_map(|(_, rest)| rest.values()).map(UnflushedHour::memory);
        // Once more as columns.
        let held = 2 * stored.chain(unflushed).sum::<usize>() + rest.sum::<usize>();
        self.pages_wanted = (lot_bytes / (read / pages().count().max(1)).max(1)).clamp(1, PAGES_MOST);
        self.held.set(held)
    }

    /// False when these have too much.
    async fn read_several(&mut self, count: usize, hours: &Range<Hour>) -> Result<bool, QueryError> {
        let Wanted { database, sensors, budget, .. } = *self.wanted;
        let lot = self.next..self.next + count;
        let keys: Vec<&str> = sensors[lot.clone()].iter().map(|sensor| &*sensor.key).collect();
        let unflushed = self.engine.unflushed(database, &keys, hours).await?;
        let stored =
            self.engine.store.scan_sensors(database, &keys, hours.clone(), &self.projection, self.engine.lot_bytes());
        let Some(stored) = budget.waiting(stored).await? else { return Ok(false) };
        let part = |((place, pages), unflushed)| Part { place, pages, unflushed, scanned: hours.end };
        self.lot.extend(lot.clone().zip(stored).zip(unflushed).map(part));
        self.next = lot.end;
        Ok(true)
    }

    async fn read_one(&mut self, hours: &Range<Hour>) -> Result<(), QueryError> {
        let Wanted { database, sensors, budget, .. } = *self.wanted;
        let (place, key) = (self.next, &*sensors[self.next].key);
        let (hours, mut unflushed) = match self.rest.take() {
            Some(rest) => rest,
            None => (hours.clone(), self.engine.unflushed_of(database, key, hours).await?),
        };
        let extent = Extent { pages: self.pages_wanted.max(PAGES_AT_FIRST), bytes: self.engine.lot_bytes() };
        let pages = self.engine.store.scan(database, key, hours.clone(), &self.projection, extent);
        let Scanned { pages, rest } = budget.waiting(pages).await?;
        let later = unflushed.split_off(&rest.start);
        self.lot.push_back(Part { place, pages, unflushed, scanned: rest.start });
        if rest.is_empty() {
            self.next += 1;
        } else {
            self.rest = Some((rest, later));
        }
        Ok(())
    }
}

/// The columns wanted of one sensor's hours before `scanned`.
fn points(wanted: &Wanted<'_>, pages: &[ScannedPage], unflushed: &mut Unflushed, scanned: Hour) -> Points {
    let mut points = Points { times: Vec::new(), columns: vec![Vec::new(); wanted.fields.len()] };
    for (_, pages, later) in by_hour(pages, unflushed, scanned) {
        points.append(&overlay(pages, later.as_ref()), wanted);
    }
    points
}

impl Points {
    /// Adds a set's readings, as far as they are in the range and have a field that is wanted.
    fn append(&mut self, readings: &Readings, wanted: &Wanted<'_>) {
        let times = readings.times();
        let within = times.partition_point(|time| *time < wanted.range.start)
            ..times.partition_point(|time| *time < wanted.range.end);
        // Few of many fields are there.
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
