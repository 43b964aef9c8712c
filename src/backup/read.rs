//! Reads everything of a database in parts of bounded memory: sensor by sensor, in order of time.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use super::digest::{DatabaseDigest, SetDigest, StoreDigest};
use super::expired::read_expired_parts;
use super::sensors::{SensorTotals, Sensors, sensor_totals};
use crate::bucket::store::{Extent, GROWTH, Order, Projection, ScannedPage};
use crate::bucket::{DayPart, ExpiredDay, Readings, SensorDocument, StorageError};
use crate::reading::stamp::SETTLED;
use crate::reading::time::{MILLI_NS, TIMESTAMP_MAX, TIMESTAMP_MIN};
use crate::reading::{Day, Hour};
use crate::store::MergedView;

/// Maximum number of sensors in a batch.
const BATCH_SENSORS_MAX: usize = 256;
/// Maximum number of pages per scan of a large sensor.
const SCAN_PAGES_MAX: usize = 256;
/// Maximum number of cells of a part of several pages, including empty cells.
const PART_CELLS_MAX: usize = 1 << 18;

/// Bounds of the memory of a read.
#[derive(Debug, Clone, Copy)]
pub struct ReadBounds {
    /// Maximum stored bytes of a batch. The store may exceed it by one hour.
    pub batch_bytes: usize,
    /// Stored bytes above which an hour of a sensor is read in parts.
    pub hour_bytes: usize,
}

impl ReadBounds {
    /// Returns bounds for a read that takes about this many bytes of memory.
    #[must_use]
    pub fn for_memory(bytes: usize) -> Self {
        // A decoded hour is in memory twice: as pages, and as one set.
        Self { batch_bytes: (bytes / (4 * GROWTH)).max(16 << 10), hour_bytes: (bytes / (2 * GROWTH)).max(32 << 10) }
    }
}

/// Returns the range of all hours that can have readings.
#[must_use]
pub fn all_hours() -> Range<Hour> {
    Hour::from_ns(TIMESTAMP_MIN)..Hour::from_ns(TIMESTAMP_MAX).next()
}

/// Readings of a sensor. Its hours, and the parts of an hour, follow each other.
#[derive(Debug)]
pub struct Part {
    pub document: Arc<SensorDocument>,
    /// Never empty. All values are settled, unless the reader returns single pages.
    pub readings: Readings,
    /// The times of this part, if it is one of several parts of a large hour.
    pub times: Option<Range<i64>>,
}

/// The summaries of a part of a sensor's day whose readings have expired.
#[derive(Debug)]
pub struct ExpiredPart {
    pub document: Arc<SensorDocument>,
    pub day: Day,
    pub part: DayPart,
    /// Has at least one hour, and only requested ones.
    pub expired: ExpiredDay,
}

/// A piece of the data of a sensor.
#[derive(Debug)]
pub enum Piece {
    Readings(Part),
    Expired(ExpiredPart),
}

impl Piece {
    /// Returns the document of the sensor.
    #[must_use]
    pub fn document(&self) -> &Arc<SensorDocument> {
        match self {
            Self::Readings(part) => &part.document,
            Self::Expired(part) => &part.document,
        }
    }

    /// Computes the digest of the piece.
    #[must_use]
    pub fn digest(&self) -> SetDigest {
        match self {
            Self::Readings(part) => SetDigest::from_readings(&part.document.sensor.key, &part.readings),
            Self::Expired(part) => SetDigest::from_expired(&part.document.sensor.key, &part.expired),
        }
    }

    /// Returns the readings, or `None` for summaries.
    #[must_use]
    pub fn readings(&self) -> Option<&Part> {
        match self {
            Self::Readings(part) => Some(part),
            Self::Expired(_) => None,
        }
    }
}

/// Reads a range of hours of a database piece by piece: readings, and summaries of expired readings.
#[derive(Debug)]
pub struct Parts<'a> {
    store: &'a MergedView,
    database: &'a str,
    hours: Range<Hour>,
    bounds: ReadBounds,
    sensors: Sensors<'a>,
    listed: VecDeque<Arc<SensorDocument>>,
    /// Number of sensors in the next batch.
    batch_sensors: usize,
    ready: VecDeque<Piece>,
    /// A sensor that is too large to be read at once.
    large: Option<LargeSensor>,
    /// Keys of the sensors to read; `None` for all.
    only: Option<Arc<HashSet<Box<str>>>>,
    /// True if each part is one page with its stamps.
    returns_single_pages: bool,
}

/// The progress of a sensor that is too large to be read at once.
#[derive(Debug)]
struct LargeSensor {
    document: Arc<SensorDocument>,
    remaining: Range<Hour>,
    /// The progress of its first remaining hour, if that is too large to be read at once.
    large_hour: Option<LargeHour>,
    /// The last hour of which readings were returned.
    last_returned: Option<Hour>,
}

/// The progress of an hour that is too large to be read at once, in nanoseconds.
#[derive(Debug)]
struct LargeHour {
    remaining: Range<i64>,
    /// Length of the time range of the next read.
    length: i64,
}

impl<'a> Parts<'a> {
    /// Begins at the first sensor and hour.
    #[must_use]
    pub fn new(store: &'a MergedView, database: &'a str, hours: Range<Hour>, bounds: ReadBounds) -> Self {
        Self {
            store,
            database,
            hours,
            bounds,
            sensors: Sensors::new(store, database),
            listed: VecDeque::new(),
            batch_sensors: 1,
            ready: VecDeque::new(),
            large: None,
            only: None,
            returns_single_pages: false,
        }
    }

    /// Restricts the read to the readings of these sensors, and returns each scanned page as a part. Its cells keep
    /// their stamps, and it may have readings outside of [`Part::times`].
    #[must_use]
    pub fn single_pages(self, only: Arc<HashSet<Box<str>>>) -> Self {
        Self { only: Some(only), returns_single_pages: true, ..self }
    }

    /// Returns the next piece, or `None` at the end.
    ///
    /// # Errors
    /// If the store fails, or something cannot be read. [`StorageError::ReadAgain`] if readings of a day expired
    /// between two of its pieces: then the pieces returned so far must be discarded.
    pub async fn next(&mut self) -> Result<Option<Piece>, StorageError> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Ok(Some(piece));
            }
            if let Some(large) = self.large.take() {
                self.read_large(large).await?;
            } else if self.listed.is_empty() {
                let listed = self.sensors.next_batch().await?;
                if listed.is_empty() {
                    return Ok(None);
                }
                let is_wanted = |document: &SensorDocument| {
                    self.only.as_ref().is_none_or(|only| only.contains(&*document.sensor.key))
                };
                self.listed = listed.into_iter().filter(is_wanted).map(Arc::new).collect();
            } else {
                self.read_several().await?;
            }
        }
    }

    async fn read_several(&mut self) -> Result<(), StorageError> {
        let count = self.batch_sensors.min(self.listed.len());
        let keys: Vec<&str> = self.listed.iter().take(count).map(|document| &*document.sensor.key).collect();
        let bytes = self.bounds.batch_bytes;
        match self.store.scan_sensors(self.database, &keys, self.hours.clone(), &Projection::ALL, bytes).await? {
            Some(found) => {
                let sensors: Vec<Arc<SensorDocument>> = self.listed.drain(..count).collect();
                for (document, pages) in sensors.iter().zip(found) {
                    let sets = if self.returns_single_pages { page_readings(pages) } else { merge_pages(pages) };
                    let part = |readings| Piece::Readings(Part { document: document.clone(), readings, times: None });
                    self.ready.extend(sets.into_iter().map(part));
                }
                self.read_expired(&sensors, &self.hours.clone(), None).await?;
                self.batch_sensors = (count * 2).min(BATCH_SENSORS_MAX);
            }
            None if count == 1 => {
                let remaining = self.hours.clone();
                let large = |document| LargeSensor { document, remaining, large_hour: None, last_returned: None };
                self.large = self.listed.pop_front().map(large);
            }
            None => self.batch_sensors = count / 2,
        }
        Ok(())
    }

    /// Adds the summaries of expired readings to the pieces of these sensors and hours.
    ///
    /// # Errors
    /// If readings of the same part were returned before they expired. `last_returned` is the last hour of which
    /// readings were returned.
    async fn read_expired(
        &mut self,
        sensors: &[Arc<SensorDocument>],
        hours: &Range<Hour>,
        last_returned: Option<Hour>,
    ) -> Result<(), StorageError> {
        if self.returns_single_pages || hours.is_empty() {
            return Ok(());
        }
        let found = read_expired_parts(self.store, self.database, hours, sensors, &self.ready).await?;
        let was_returned =
            |part: &&ExpiredPart| last_returned.is_some_and(|hour| part.part.hours(part.day).contains(&hour));
        if let Some(part) = found.iter().find(was_returned) {
            self.ready.clear();
            self.large = None;
            return Err(StorageError::ReadAgain(part.document.sensor.key.to_string()));
        }
        self.ready.extend(found.into_iter().map(Piece::Expired));
        Ok(())
    }

    /// Reads as many of the remaining hours as fit. If the first hour does not fit, reads the first times of it that
    /// do.
    async fn read_large(&mut self, mut large: LargeSensor) -> Result<(), StorageError> {
        let ReadBounds { batch_bytes, hour_bytes } = self.bounds;
        let extent = Extent { pages: SCAN_PAGES_MAX, bytes: batch_bytes, hour_bytes };
        let mut hours = large.remaining.clone();
        let mut length = large.large_hour.as_ref().map(|hour| hour.length);
        loop {
            let times = match (&large.large_hour, length) {
                (Some(LargeHour { remaining, .. }), Some(length)) => {
                    hours = hours.start..hours.start.next();
                    Some(remaining.start..remaining.start.saturating_add(length).min(remaining.end))
                }
                _ => None,
            };
            let projection = Projection { times: times.clone().unwrap_or(Projection::ALL.times), ..Projection::ALL };
            let key = &large.document.sensor.key;
            match self.store.scan(self.database, key, hours.clone(), Order::Ascending, &projection, extent).await {
                Ok(found) => {
                    let document = large.document.clone();
                    let part =
                        |readings| Piece::Readings(Part { document: document.clone(), readings, times: times.clone() });
                    if self.returns_single_pages {
                        self.ready.extend(page_readings(found.pages).into_iter().map(part));
                    } else {
                        let sets = merge_pages(found.pages).into_iter();
                        self.ready.extend(sets.flat_map(|readings| restrict(readings, times.as_ref())).map(part));
                    }
                    let start = large.remaining.start;
                    let last_returned = large.last_returned;
                    let last = self.ready.iter().filter_map(|piece| piece.readings()?.readings.times().last()).max();
                    large.last_returned = last.map(|last| Hour::from_ns(*last)).or(last_returned);
                    self.large = large.advance(times, length, &hours, &found.rest);
                    let end = self.large.as_ref().map_or(hours.end, |large| large.remaining.start);
                    return self.read_expired(&[document], &(start..end), last_returned).await;
                }
                Err(StorageError::HourTooLarge { hour, .. }) if hour > hours.start => hours.end = hour,
                Err(StorageError::HourTooLarge { hour, limit }) => {
                    let whole = || LargeHour { remaining: hour.start_ns()..hour.end_ns(), length: 0 };
                    let large_hour = large.large_hour.get_or_insert_with(whole);
                    let half = length.unwrap_or(large_hour.remaining.end - large_hour.remaining.start) / 2;
                    length = Some(half);
                    if half < MILLI_NS {
                        return Err(StorageError::HourTooLarge { limit, hour });
                    }
                    large_hour.length = half;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl LargeSensor {
    /// Advances past the times that were read, or past the hours except `rest`. Returns `None` at the end.
    fn advance(
        mut self,
        times: Option<Range<i64>>,
        length: Option<i64>,
        hours: &Range<Hour>,
        rest: &Range<Hour>,
    ) -> Option<Self> {
        if let (Some(times), Some(length), Some(hour)) = (times, length, &self.large_hour)
            && times.end < hour.remaining.end
        {
            // Only short ranges fit at the border of two pages. Longer ones fit again after it.
            let remaining = times.end..hour.remaining.end;
            self.large_hour = Some(LargeHour { remaining, length: length.saturating_mul(2) });
            return Some(self);
        }
        let is_whole = rest.is_empty() || self.large_hour.is_some();
        self.remaining.start = if is_whole { hours.end } else { rest.start };
        self.large_hour = None;
        (self.remaining.start < self.remaining.end).then_some(self)
    }
}

/// Merges the readings of pages, in order of hours, into sets of at most [`PART_CELLS_MAX`] cells.
fn merge_pages(pages: Vec<ScannedPage>) -> Vec<Readings> {
    let mut sets: Vec<Readings> = Vec::new();
    for readings in page_readings(pages) {
        match sets.last_mut() {
            Some(set) if merged_cells(set, &readings) <= PART_CELLS_MAX => _ = set.merge_set(&readings),
            _ => {
                let mut set = Readings::default();
                set.merge_set(&readings);
                set.settle_all(SETTLED);
                sets.push(set);
            }
        }
    }
    sets
}

/// Returns the readings of each page that has some.
fn page_readings(pages: Vec<ScannedPage>) -> Vec<Readings> {
    pages.into_iter().filter_map(|page| page.readings).filter(|readings| !readings.is_empty()).collect()
}

/// Returns the maximum number of cells of the union of two sets.
pub(super) fn merged_cells(one: &Readings, other: &Readings) -> usize {
    let new = other.columns().filter(|(name, _)| one.cells(name).is_none()).count();
    (one.len() + other.len()) * (one.columns().len() + new)
}

/// Keeps only the readings in a range of times, because a scan returns whole pages.
fn restrict(readings: Readings, times: Option<&Range<i64>>) -> Vec<Readings> {
    let Some(times) = times else { return vec![readings] };
    let parts = readings.parts(|time| times.contains(&time));
    parts.into_iter().filter(|(is_within, _)| *is_within).map(|(_, readings)| readings).collect()
}

/// Lists the UTC days with stored readings or summaries of a database. Some may be empty, because deletions can hide
/// all of their readings.
///
/// # Errors
/// If the store fails.
pub async fn list_days(store: &MergedView, database: &str) -> Result<BTreeSet<Day>, StorageError> {
    let hours = all_hours();
    let mut days = BTreeSet::new();
    let mut start = hours.start;
    while let Some((hour, _)) = store.raw().next_buckets(database, &(start, String::new()), hours.end, 1).await?.pop() {
        days.insert(Day::from_hour(hour));
        start = Day::from_hour(hour).hours().end;
    }
    let mut sensors = Sensors::new(store, database);
    loop {
        let listed = sensors.next_batch().await?;
        if listed.is_empty() {
            return Ok(days);
        }
        let keys: Vec<&str> = listed.iter().map(|document| &*document.sensor.key).collect();
        let parts = store.raw().list_day_parts(database, &keys, Day::range_from_hours(&hours)).await?;
        days.extend(parts.into_iter().map(|(_, day, _)| day));
    }
}

/// Computes the digest of a database. Calls `on_progress` with the number of readings so far.
///
/// # Errors
/// If the store fails, or something cannot be read.
pub async fn digest_database(
    store: &MergedView,
    database: &str,
    bounds: ReadBounds,
    mut on_progress: impl FnMut(u64),
) -> Result<DatabaseDigest, StorageError> {
    let mut digest = DatabaseDigest { name: database.to_owned(), ..DatabaseDigest::default() };
    let mut parts = Parts::new(store, database, all_hours(), bounds);
    while let Some(piece) = parts.next().await? {
        digest.set += piece.digest();
        on_progress(digest.set.readings);
    }
    let SensorTotals { sensors, metadata } = sensor_totals(store, database).await?;
    digest.sensors = sensors;
    digest.set += metadata;
    Ok(digest)
}

/// Computes the digest of a store. Calls `on_progress` with a database and its number of readings so far.
///
/// # Errors
/// As [`digest_database`].
pub async fn digest_databases(
    store: &MergedView,
    bounds: ReadBounds,
    mut on_progress: impl FnMut(&str, u64),
) -> Result<StoreDigest, StorageError> {
    let mut digest = StoreDigest::default();
    for database in store.raw().databases().await? {
        let found = digest_database(store, &database, bounds, |readings| on_progress(&database, readings)).await?;
        digest.databases.push(found);
    }
    Ok(digest)
}

#[cfg(test)]
mod tests;
