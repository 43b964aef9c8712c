//! Reads everything of a database in parts that fit into bounded memory: sensor by sensor, in order of time.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use super::digest::{DatabaseDigest, SetDigest, StoreDigest};
use super::expired::expired_beside;
use super::sensors::{Sensors, described};
use crate::bucket::store::{Extent, GROWTH, Order, Projection, ScannedPage};
use crate::bucket::{DayPart, ExpiredDay, Readings, SensorDocument, StorageError};
use crate::reading::stamp::SETTLED;
use crate::reading::time::{MILLI_NS, TIMESTAMP_MAX, TIMESTAMP_MIN};
use crate::reading::{Day, Hour};
use crate::store::MergedView;

/// Most sensors that are read together.
const TOGETHER_MOST: usize = 256;
/// Pages per scan of a sensor that is read alone.
const PAGES: usize = 256;
/// Most cells of a part, empty ones included, if it is more than one page.
const CELLS: usize = 1 << 18;

/// How much is in memory at a time.
#[derive(Debug, Clone, Copy)]
pub struct ReadBounds {
    /// Stored bytes that are read together. The store may read one hour more.
    pub batch_bytes: usize,
    /// An hour of a sensor with more stored bytes is read in parts.
    pub hour_bytes: usize,
}

impl ReadBounds {
    /// Bounds by which reading takes about this much memory.
    #[must_use]
    pub fn of_memory(bytes: usize) -> Self {
        // Decoded, an hour is in memory twice: as pages, and as one set.
        Self { batch_bytes: (bytes / (4 * GROWTH)).max(16 << 10), hour_bytes: (bytes / (2 * GROWTH)).max(32 << 10) }
    }
}

/// All hours that a reading may be in.
#[must_use]
pub fn all_hours() -> Range<Hour> {
    Hour::of(TIMESTAMP_MIN)..Hour::of(TIMESTAMP_MAX).next()
}

/// Readings of a sensor: all hours, or all parts of one, come one after the other.
#[derive(Debug)]
pub struct Part {
    pub of: Arc<SensorDocument>,
    /// Never empty; all settled, unless parts are pages.
    pub readings: Readings,
    /// The times that the part is about, if it is one of an hour that is too large: other parts have the others.
    pub within: Option<Range<i64>>,
}

/// What is left of a part of a sensor's day whose readings have expired.
#[derive(Debug)]
pub struct ExpiredPart {
    pub of: Arc<SensorDocument>,
    pub day: Day,
    pub part: DayPart,
    /// Has at least one hour, and only those that were asked for.
    pub expired: ExpiredDay,
}

/// What a database has of a sensor.
#[derive(Debug)]
pub enum Piece {
    Readings(Part),
    Expired(ExpiredPart),
}

impl Piece {
    /// The sensor.
    #[must_use]
    pub fn of(&self) -> &Arc<SensorDocument> {
        match self {
            Self::Readings(part) => &part.of,
            Self::Expired(part) => &part.of,
        }
    }

    /// The digest of it.
    #[must_use]
    pub fn digest(&self) -> SetDigest {
        match self {
            Self::Readings(part) => SetDigest::of(&part.of.sensor.key, &part.readings),
            Self::Expired(part) => SetDigest::of_expired(&part.of.sensor.key, &part.expired),
        }
    }

    /// The readings, if it has some.
    #[must_use]
    pub fn readings(&self) -> Option<&Part> {
        match self {
            Self::Readings(part) => Some(part),
            Self::Expired(_) => None,
        }
    }
}

/// What a database has in a range of hours, piece by piece: readings, and summaries of readings that have expired.
#[derive(Debug)]
pub struct Parts<'a> {
    store: &'a MergedView,
    database: &'a str,
    hours: Range<Hour>,
    bounds: ReadBounds,
    sensors: Sensors<'a>,
    listed: VecDeque<Arc<SensorDocument>>,
    /// Sensors that are read together.
    together: usize,
    ready: VecDeque<Piece>,
    /// A sensor that is too large to be read at once.
    large: Option<Large>,
    /// Keys of the sensors that are wanted; `None` for all.
    only: Option<Arc<HashSet<Box<str>>>>,
    /// Whether parts are pages as they are, with their stamps.
    by_page: bool,
}

#[derive(Debug)]
struct Large {
    of: Arc<SensorDocument>,
    left: Range<Hour>,
    /// Of an hour that is too large: what is left of it, and how much of it is read at a time.
    within: Option<(Range<i64>, i64)>,
    /// The last hour of which readings were handed out.
    given: Option<Hour>,
}

impl<'a> Parts<'a> {
    /// Begins to read.
    #[must_use]
    pub fn new(store: &'a MergedView, database: &'a str, hours: Range<Hour>, bounds: ReadBounds) -> Self {
        let (listed, ready) = (VecDeque::new(), VecDeque::new());
        let sensors = Sensors::new(store, database);
        let (large, only) = (None, None);
        Self { store, database, hours, bounds, sensors, listed, together: 1, ready, large, only, by_page: false }
    }

    /// Reads only the readings of these sensors, and makes each part of one page as it is scanned: its cells keep their stamps,
    /// and it may have readings at times that another part has asked for, beside those of [`Part::within`].
    #[must_use]
    pub fn pages_of(self, only: Arc<HashSet<Box<str>>>) -> Self {
        Self { only: Some(only), by_page: true, ..self }
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// If the store fails, or something cannot be read. [`StorageError::ReadAgain`] if readings expired between two pieces of
    /// what is stored as one: what was handed out of it is nothing that can be kept.
    pub async fn next(&mut self) -> Result<Option<Piece>, StorageError> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Ok(Some(piece));
            }
            if let Some(large) = self.large.take() {
                self.read_large(large).await?;
            } else if self.listed.is_empty() {
                let listed = self.sensors.some().await?;
                if listed.is_empty() {
                    return Ok(None);
                }
                let is_wanted =
                    |of: &SensorDocument| self.only.as_ref().is_none_or(|only| only.contains(&*of.sensor.key));
                self.listed = listed.into_iter().filter(is_wanted).map(Arc::new).collect();
            } else {
                self.read_several().await?;
            }
        }
    }

    async fn read_several(&mut self) -> Result<(), StorageError> {
        let count = self.together.min(self.listed.len());
        let keys: Vec<&str> = self.listed.iter().take(count).map(|document| &*document.sensor.key).collect();
        let bytes = self.bounds.batch_bytes;
        match self.store.scan_sensors(self.database, &keys, self.hours.clone(), &Projection::ALL, bytes).await? {
            Some(found) => {
                let sensors: Vec<Arc<SensorDocument>> = self.listed.drain(..count).collect();
                for (of, pages) in sensors.iter().zip(found) {
                    let sets = if self.by_page { sets_of(pages) } else { united(pages) };
                    let part = |readings| Piece::Readings(Part { of: of.clone(), readings, within: None });
                    self.ready.extend(sets.into_iter().map(part));
                }
                self.read_expired(&sensors, &self.hours.clone(), None).await?;
                self.together = (count * 2).min(TOGETHER_MOST);
            }
            None if count == 1 => {
                let left = self.hours.clone();
                self.large = self.listed.pop_front().map(|of| Large { of, left, within: None, given: None });
            }
            None => self.together = count / 2,
        }
        Ok(())
    }

    /// Adds what is left of readings that have expired to the pieces of these sensors and hours. An error if some of the readings
    /// themselves were handed out before: the last hour of which any were is given.
    async fn read_expired(
        &mut self,
        sensors: &[Arc<SensorDocument>],
        hours: &Range<Hour>,
        given: Option<Hour>,
    ) -> Result<(), StorageError> {
        if self.by_page || hours.is_empty() {
            return Ok(());
        }
        let found = expired_beside(self.store, (self.database, hours), sensors, &self.ready).await?;
        let had_some = |part: &&ExpiredPart| given.is_some_and(|given| part.part.hours(part.day).contains(&given));
        if let Some(part) = found.iter().find(had_some) {
            self.ready.clear();
            self.large = None;
            return Err(StorageError::ReadAgain(part.of.sensor.key.to_string()));
        }
        self.ready.extend(found.into_iter().map(Piece::Expired));
        Ok(())
    }

    /// Reads the first of the hours that are left, as many as fit; of an hour that does not fit, the first times that do.
    async fn read_large(&mut self, mut large: Large) -> Result<(), StorageError> {
        let ReadBounds { batch_bytes, hour_bytes } = self.bounds;
        let extent = Extent { pages: PAGES, bytes: batch_bytes, hour_bytes };
        let mut hours = large.left.clone();
        let mut length = large.within.as_ref().map(|(_, length)| *length);
        loop {
            let times = match (&large.within, length) {
                (Some((left, _)), Some(length)) => {
                    hours = hours.start..hours.start.next();
                    Some(left.start..left.start.saturating_add(length).min(left.end))
                }
                _ => None,
            };
            let projection = Projection { times: times.clone().unwrap_or(Projection::ALL.times), ..Projection::ALL };
            match self
                .store
                .scan(self.database, &large.of.sensor.key, hours.clone(), Order::Ascending, &projection, extent)
                .await
            {
                Ok(found) => {
                    let (of, pages) = (large.of.clone(), found.pages);
                    let part = |readings| Piece::Readings(Part { of: of.clone(), readings, within: times.clone() });
                    match self.by_page {
                        true => self.ready.extend(sets_of(pages).into_iter().map(part)),
                        false => {
                            let sets = united(pages).into_iter();
                            self.ready.extend(sets.flat_map(|readings| within(readings, times.as_ref())).map(part));
                        }
                    }
                    let (from, given) = (large.left.start, large.given);
                    let last = self.ready.iter().filter_map(|piece| piece.readings()?.readings.times().last()).max();
                    large.given = last.map(|last| Hour::of(*last)).or(given);
                    self.large = large.behind(times, length, &hours, &found.rest);
                    let until = self.large.as_ref().map_or(hours.end, |large| large.left.start);
                    return self.read_expired(&[of], &(from..until), given).await;
                }
                Err(StorageError::HourTooLarge { hour, .. }) if hour > hours.start => hours.end = hour,
                Err(StorageError::HourTooLarge { hour, limit }) => {
                    let left = large.within.get_or_insert_with(|| (hour.start_ns()..hour.end_ns(), 0));
                    let whole = length.unwrap_or(left.0.end - left.0.start);
                    length = Some(whole / 2);
                    if whole / 2 < MILLI_NS {
                        return Err(StorageError::HourTooLarge { limit, hour });
                    }
                    left.1 = whole / 2;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Large {
    /// What is left after these times, or after these hours but for the rest.
    fn behind(
        mut self,
        times: Option<Range<i64>>,
        length: Option<i64>,
        hours: &Range<Hour>,
        rest: &Range<Hour>,
    ) -> Option<Self> {
        if let (Some(times), Some(length), Some((left, _))) = (times, length, &self.within)
            && times.end < left.end
        {
            // Where two pages meet, only short times fit; behind it, longer ones do again.
            self.within = Some((times.end..left.end, length.saturating_mul(2)));
            return Some(self);
        }
        let behind = if rest.is_empty() || self.within.is_some() { hours.end } else { rest.start };
        self.left.start = behind;
        self.within = None;
        (self.left.start < self.left.end).then_some(self)
    }
}

/// The readings of pages in order of hours, in few sets.
fn united(pages: Vec<ScannedPage>) -> Vec<Readings> {
    let mut sets: Vec<Readings> = Vec::new();
    for readings in sets_of(pages) {
        match sets.last_mut() {
            Some(set) if cells_together(set, &readings) <= CELLS => _ = set.merge_set(&readings),
            _ => {
                let mut set = Readings::default();
                set.merge_set(&readings);
                set.settle_at(SETTLED);
                sets.push(set);
            }
        }
    }
    sets
}

/// The readings of pages, page by page.
fn sets_of(pages: Vec<ScannedPage>) -> Vec<Readings> {
    pages.into_iter().filter_map(|page| page.readings).filter(|readings| !readings.is_empty()).collect()
}

/// The cells of two sets in one, at most.
pub(super) fn cells_together(one: &Readings, other: &Readings) -> usize {
    let new = other.columns().filter(|(name, _)| one.cells(name).is_none()).count();
    (one.len() + other.len()) * (one.columns().len() + new)
}

/// The readings whose times are in the range. A scan returns whole pages.
fn within(readings: Readings, times: Option<&Range<i64>>) -> Vec<Readings> {
    let Some(times) = times else { return vec![readings] };
    let parts = readings.parts(|time| times.contains(&time));
    parts.into_iter().filter(|(is_within, _)| *is_within).map(|(_, readings)| readings).collect()
}

/// The UTC days of which a database has readings or summaries; some may be empty, because a deletion hides what is stored.
///
/// # Errors
/// If the store fails.
pub async fn list_days(store: &MergedView, database: &str) -> Result<BTreeSet<Day>, StorageError> {
    let hours = all_hours();
    let mut days = BTreeSet::new();
    let mut from = hours.start;
    while let Some((hour, _)) = store.raw().next_buckets(database, &(from, String::new()), hours.end, 1).await?.pop() {
        days.insert(Day::of(hour));
        from = Day::of(hour).hours().end;
    }
    let mut sensors = Sensors::new(store, database);
    loop {
        let listed = sensors.some().await?;
        if listed.is_empty() {
            return Ok(days);
        }
        let keys: Vec<&str> = listed.iter().map(|document| &*document.sensor.key).collect();
        let parts = store.raw().list_day_parts(database, &keys, Day::of_hours(&hours)).await?;
        days.extend(parts.into_iter().map(|(_, day, _)| day));
    }
}

/// The digest of everything in a database. `tell` is called with the readings so far.
///
/// # Errors
/// If the store fails, or something cannot be read.
pub async fn digest_of(
    store: &MergedView,
    database: &str,
    bounds: ReadBounds,
    mut tell: impl FnMut(u64),
) -> Result<DatabaseDigest, StorageError> {
    let mut digest = DatabaseDigest { name: database.to_owned(), ..DatabaseDigest::default() };
    let mut parts = Parts::new(store, database, all_hours(), bounds);
    while let Some(piece) = parts.next().await? {
        digest.set += piece.digest();
        tell(digest.set.readings);
    }
    let (sensors, metadata) = described(store, database).await?;
    digest.sensors = sensors;
    digest.set += metadata;
    Ok(digest)
}

/// The digest of everything in a store.
///
/// # Errors
/// As [`digest_of`].
pub async fn digest_of_all(
    store: &MergedView,
    bounds: ReadBounds,
    mut tell: impl FnMut(&str, u64),
) -> Result<StoreDigest, StorageError> {
    let mut digest = StoreDigest::default();
    for database in store.raw().databases().await? {
        digest.databases.push(digest_of(store, &database, bounds, |readings| tell(&database, readings)).await?);
    }
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::{Fill, FillOptions};
    use crate::bucket::settings::ExpiredReadings;
    use crate::bucket::store::Written;
    use crate::bucket::{Caps, DatabaseSettings, DayId, DayWrite, Reading, SealForm};
    use crate::reading::{Sensor, Value};
    use crate::store::embedded::EmbeddedStore;

    const STAMP: u64 = 1 << 40;
    const BOUNDS: ReadBounds = ReadBounds { batch_bytes: 4 << 10, hour_bytes: 4 << 10 };

    /// A day of one sensor, as hour pages: readings in its first hours, so many in each.
    async fn filled(store: &MergedView, hours: i64, readings: i64) -> (Arc<Sensor>, Readings) {
        let caps = Caps { max_readings: 50, max_bytes: 1 << 16, hard_bytes: 1 << 20 };
        let options = FillOptions { caps, stamp: STAMP, seals: false, seal_form: SealForm::default(), recent: 1 };
        let sensor = Arc::new(Sensor::from_key("m,s=1").expect("a key"));
        let length = Hour(1).start_ns() / readings;
        let reading = |n: i64| Reading {
            time: n / readings * Hour(1).start_ns() + n % readings * length,
            fields: vec![(Arc::from("v"), Value::Float((n * 7919 % 1009) as f64 / 7.0))],
        };
        let set: Readings = (0..hours * readings).map(reading).collect();
        let mut fill = Fill::begin(store, "d", options).await.expect("a database");
        let of = Arc::new(SensorDocument::new(sensor.clone()));
        fill.take(Piece::Readings(Part { of, readings: set.clone(), within: None })).await.expect("taken");
        fill.finish().await.expect("written");
        (sensor, set)
    }

    /// The day's readings expire: there are summaries in their place.
    async fn expire(store: &MergedView, sensor: &Arc<Sensor>, readings: &Readings) {
        let gone = ExpiredReadings { before: Day(1).hours().start.start_ns(), stamp: STAMP, done: TIMESTAMP_MIN };
        let settings = DatabaseSettings { expired_readings: Some(gone), ..DatabaseSettings::default() };
        assert!(matches!(store.raw().write_settings("d", 0, Some(&settings)).await, Written::Yes));
        let (id, expired) =
            (DayId { sensor: sensor.clone(), day: Day(0), part: DayPart::Whole }, ExpiredDay::of(readings));
        let none = Readings::default();
        let write = DayWrite { id: &id, rev: 0, next_rev: 1, readings: Some(&none), expired: Some(&expired) };
        assert!(matches!(&store.write_days("d", &[write]).await[..], [Written::Yes]));
        store.raw().remove_buckets("d", &[&sensor.key], Day(0).hours(), u64::MAX).await.expect("removed");
    }

    /// Regression: what was read of an hour, or of a day, before it expired was followed by its summaries, which were read after. A
    /// backup had both then, and could not be restored.
    #[tokio::test]
    async fn readings_and_summaries_of_one_part_are_never_both_given() {
        // An hour that is read in parts, and hours that are read one after the other.
        for (hours, count) in [(1, 2000), (3, 400)] {
            let folder = tempfile::tempdir().expect("a folder");
            let store = EmbeddedStore::open(folder.path(), 1 << 20).expect("a new store");
            let store = MergedView::new(Arc::new(store));
            let (sensor, readings) = filled(&store, hours, count).await;
            let mut whole = SetDigest::default();
            let mut parts = Parts::new(&store, "d", Day(0).hours(), BOUNDS);
            let (mut pieces, mut most) = (0, 0);
            while let Some(piece) = parts.next().await.expect("read") {
                whole += piece.digest();
                pieces += 1;
                most = most.max(piece.readings().expect("readings").readings.len());
            }
            assert_eq!(whole, SetDigest::of(&sensor.key, &readings));
            assert!(pieces > 1 && most < readings.len(), "{hours}: {pieces} pieces");
            let mut parts = Parts::new(&store, "d", Day(0).hours(), BOUNDS);
            let first = parts.next().await.expect("read").expect("a piece");
            assert!(first.readings().is_some());
            expire(&store, &sensor, &readings).await;
            let failed = loop {
                match parts.next().await {
                    Ok(Some(piece)) => assert!(piece.readings().is_some(), "{hours}: both"),
                    Ok(None) => panic!("{hours}: a part is taken for the whole"),
                    Err(error) => break error,
                }
            };
            assert!(matches!(failed, StorageError::ReadAgain { .. }), "{failed}");
            let mut again = Parts::new(&store, "d", Day(0).hours(), BOUNDS);
            let piece = again.next().await.expect("read").expect("a piece");
            assert_eq!(piece.digest(), SetDigest::of_expired(&sensor.key, &ExpiredDay::of(&readings)));
            assert!(again.next().await.expect("read").is_none());
        }
    }
}
