//! Readings of many sensors, lot by lot, so that what is in memory stays small
//! whatever is asked for: columns of the fields wanted, merged with what is not flushed yet.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::Engine;
use super::hours::{by_hour, hours_of, overlay};
use crate::bucket::Readings;
use crate::bucket::store::ScannedPage;
use crate::query::QueryError;
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
    pub fields: &'a [Arc<str>],
}

/// Some readings of one sensor, in time order and after those given before.
#[derive(Debug, Clone, Default)]
pub struct Points {
    /// Nanoseconds.
    pub times: Vec<i64>,
    /// Per field wanted, a cell per time.
    pub columns: Vec<Vec<Option<Value>>>,
}

/// Pages with readings that are read at a time: at first, and at most, since the next ones may be larger than those
/// before.
const PAGES_AT_FIRST: usize = 32;
const PAGES_MOST: usize = 128;
/// Bytes of readings, as stored, that a lot should have.
const LOT_BYTES: usize = 8 << 20;

impl Engine {
    /// Gives all readings wanted to `take`, with the sensor's place: each sensor's in time order.
    ///
    /// # Errors
    /// When the answer cannot be complete, or `take` has one.
    pub async fn each_points(
        &self,
        wanted: &Wanted<'_>,
        mut take: impl FnMut(usize, &Points) -> Result<(), QueryError> + Send,
    ) -> Result<(), QueryError> {
        let hours = hours_of(&wanted.range);
        let span = usize::try_from(hours.end.0.saturating_sub(hours.start.0)).unwrap_or(usize::MAX).max(1);
        let (mut from, mut pages_wanted) = (0, PAGES_AT_FIRST);
        while from < wanted.sensors.len() {
            // Sensor by sensor, and each page by page, where not even one is sure to fit.
            let count = (pages_wanted / span).min(wanted.sensors.len() - from);
            let read = match count {
                0 => self.points_of_one(wanted, from, pages_wanted, &mut take).await?,
                count => self.points_of_lot(wanted, from..from + count, &mut take).await?,
            };
            pages_wanted = (LOT_BYTES / (read.bytes / read.pages.max(1)).max(1)).clamp(PAGES_AT_FIRST, PAGES_MOST);
            from += count.max(1);
        }
        Ok(())
    }

    async fn points_of_lot(
        &self,
        wanted: &Wanted<'_>,
        lot: Range<usize>,
        take: &mut (impl FnMut(usize, &Points) -> Result<(), QueryError> + Send),
    ) -> Result<Read, QueryError> {
        let hours = hours_of(&wanted.range);
        let keys: Vec<&str> = wanted.sensors[lot.clone()].iter().map(|sensor| &*sensor.key).collect();
        let unflushed = self.unflushed(wanted.database, &keys, &hours).await?;
        let stored = self.store.scan_sensors(wanted.database, &keys, hours.clone(), true, None).await?;
        let mut read = Read::default();
        for ((place, pages), mut unflushed) in lot.zip(stored).zip(unflushed) {
            read.add(&pages);
            take(place, &points(wanted, &pages, &mut unflushed, hours.end))?;
        }
        Ok(read)
    }

    async fn points_of_one(
        &self,
        wanted: &Wanted<'_>,
        place: usize,
        pages_max: usize,
        take: &mut (impl FnMut(usize, &Points) -> Result<(), QueryError> + Send),
    ) -> Result<Read, QueryError> {
        let mut hours = hours_of(&wanted.range);
        let key = &*wanted.sensors[place].key;
        let mut unflushed = self.unflushed_of(wanted.database, key, &hours).await?;
        let mut read = Read::default();
        while hours.start < hours.end {
            let pages = self.store.scan(wanted.database, key, hours.clone(), true, pages_max).await?;
            let scanned = pages.last().map_or(hours.end, |last| last.hour.next());
            read.add(&pages);
            take(place, &points(wanted, &pages, &mut unflushed, scanned))?;
            hours.start = scanned;
        }
        Ok(read)
    }
}

/// How much was read, so that the next lot can be as large as memory allows.
#[derive(Default)]
struct Read {
    pages: usize,
    bytes: usize,
}

impl Read {
    fn add(&mut self, pages: &[ScannedPage]) {
        self.pages += pages.len();
        self.bytes += pages.iter().filter_map(|page| page.readings.as_ref()).map(Readings::bytes).sum::<usize>();
    }
}

/// The columns wanted of one sensor's hours before `scanned`.
fn points(
    wanted: &Wanted<'_>,
    pages: &[ScannedPage],
    unflushed: &mut BTreeMap<Hour, Readings>,
    scanned: Hour,
) -> Points {
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
        let sources: Vec<Option<&[Option<Value>]>> = wanted.fields.iter().map(|field| readings.cells(field)).collect();
        if sources.iter().all(Option::is_none) {
            return;
        }
        for index in within {
            let cell = |source: &Option<&[Option<Value>]>| source.and_then(|cells| cells[index].clone());
            if sources.iter().all(|source| source.is_none_or(|cells| cells[index].is_none())) {
                continue;
            }
            self.times.push(times[index]);
            for (column, source) in self.columns.iter_mut().zip(&sources) {
                column.push(cell(source));
            }
        }
    }
}
