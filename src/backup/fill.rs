//! Writes into a store that nothing else writes to: readings of days that are over as sealed days where that is wanted and they
//! fit, other readings as hour pages, and summaries whose readings have expired as they were; at the end the sensors'
//! documents.
//! Whatever was written before, by a run that was killed, is written again.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::read::{ExpiredPart, Part, Piece, cells_together};
use crate::bucket::day::{BYTES_MAX, CELLS_MAX, by_hour};
use crate::bucket::settings::Settings;
use crate::bucket::store::{BucketId, PageWrite};
use crate::bucket::{
    Bucket, Caps, DayId, DayPart, DayWrite, ExpiredDay, MergeOptions, Meta, Reading, Readings, Row, SealForm,
    SensorDocument, StorageError, StoredDay,
};
use crate::catalog::reads::read_needed;
use crate::clock::now_ns;
use crate::reading::{Day, Hour, Stamp, Value};
use crate::store::MergedView;

/// Days, buckets and sensors that are written together, and their bytes.
const TOGETHER: usize = 64;
const TOGETHER_BYTES: usize = 8 << 20;

/// Of all stores that are filled.
#[derive(Debug, Clone, Copy)]
pub struct FillOptions {
    pub caps: Caps,
    /// The stamp of everything written: later writes have greater ones.
    pub stamp: Stamp,
    /// Whether days that are over become sealed days.
    pub seals: bool,
    /// How days are sealed of databases that do not say it themselves.
    pub seal_form: SealForm,
    /// Config key `sensors.recent`.
    pub recent: usize,
}

/// Fills a database.
#[derive(Debug)]
pub struct Fill<'a> {
    store: &'a MergedView,
    database: &'a str,
    options: FillOptions,
    sensors: BTreeMap<Box<str>, SensorDocument>,
    current: Option<SensorDay>,
    days: Vec<(DayId, DayContent)>,
    buckets: Vec<(BucketId, Readings)>,
    bytes: usize,
}

/// What a part of a day is to have.
#[derive(Debug, Clone, PartialEq)]
enum DayContent {
    Readings(Readings),
    Expired(ExpiredDay),
}

impl DayContent {
    /// Whether that is what is stored.
    fn is(&self, stored: &StoredDay) -> bool {
        match self {
            Self::Readings(readings) => stored.expired.is_none() && stored.readings == *readings,
            Self::Expired(expired) => stored.expired.as_ref() == Some(expired),
        }
    }
}

/// The day that is being taken.
#[derive(Debug)]
struct SensorDay {
    id: DayId,
    /// `None` once the day is written as hours.
    held: Option<Readings>,
}

impl<'a> Fill<'a> {
    /// Begins to fill a database, which is created.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn begin(store: &'a MergedView, database: &'a str, options: FillOptions) -> Result<Self, StorageError> {
        store.raw().create_database(database).await?;
        let (sensors, days, buckets) = (BTreeMap::new(), Vec::new(), Vec::new());
        let settings = Settings {
            by_database: store.raw().read_settings().await?.into_iter().collect(),
            seal_form: Some(options.seal_form),
            ..Settings::default()
        };
        let seals = options.seals && settings.sealed_as(database) != SealForm::Off;
        let options = FillOptions { seals, ..options };
        Ok(Self { store, database, options, sensors, current: None, days, buckets, bytes: 0 })
    }

    /// Takes a piece. All readings of a sensor's day come one after the other.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn take(&mut self, piece: Piece) -> Result<(), StorageError> {
        self.see(&piece);
        match piece {
            Piece::Readings(Part { of, readings, .. }) => {
                for (day, readings) in readings.parts(|time| Day::of(Hour::of(time))) {
                    self.take_day(DayId { sensor: of.sensor.clone(), day, part: DayPart::Whole }, readings).await?;
                }
                Ok(())
            }
            Piece::Expired(ExpiredPart { of, day, part, expired }) => {
                self.settle().await?;
                let id = DayId { sensor: of.sensor.clone(), day, part };
                self.days.push((id, DayContent::Expired(expired)));
                self.write_if_many().await
            }
        }
    }

    /// Takes a piece of which an earlier run has written everything.
    pub fn see(&mut self, piece: &Piece) {
        self.document(piece.of());
        match piece {
            Piece::Readings(part) => self.see_readings(&part.of.sensor.key, &part.readings),
            Piece::Expired(ExpiredPart { of, expired, .. }) => {
                let times = expired.hours.first().zip(expired.hours.last());
                times.into_iter().for_each(|(first, last)| self.see_times(&of.sensor.key, first.first, last.last));
            }
        }
    }

    /// Takes a sensor with its metadata, whether it has readings or not.
    pub fn take_sensor(&mut self, of: &SensorDocument) {
        self.document(of);
        let values = of.meta.values().map(|(name, json)| (name.into(), Some(json.clone())));
        let meta = Meta::change(self.options.stamp, false, values);
        if let Some(document) = self.sensors.get_mut(&of.sensor.key) {
            document.meta = meta;
        }
    }

    /// Makes the sensor's document unless there is one, and adds its fields.
    fn document(&mut self, of: &SensorDocument) {
        let document =
            self.sensors.entry(of.sensor.key.clone()).or_insert_with(|| SensorDocument::new(of.sensor.clone()));
        for (name, family) in &of.fields {
            if !document.fields.iter().any(|(known, _)| known == name) {
                document.fields.push((name.clone(), *family));
            }
        }
    }

    fn see_times(&mut self, key: &str, first: i64, last: i64) {
        let Some(document) = self.sensors.get_mut(key) else { return };
        document.first_seen = Some(document.first_seen.map_or(first, |seen| seen.min(first)));
        document.last_seen = Some(document.last_seen.map_or(last, |seen| seen.max(last)));
    }

    fn see_readings(&mut self, key: &str, readings: &Readings) {
        let (Some(first), Some(last)) = (readings.times().first(), readings.times().last()) else { return };
        self.see_times(key, *first, *last);
        let Some(document) = self.sensors.get_mut(key) else { return };
        let from = readings.len().saturating_sub(self.options.recent);
        let recent = &mut document.recent;
        recent.extend((from..readings.len()).map(|index| readings.reading(index)));
        recent.sort_by_key(|reading: &Reading| reading.time);
        recent.drain(..recent.len().saturating_sub(self.options.recent));
    }

    async fn take_day(&mut self, id: DayId, readings: Readings) -> Result<(), StorageError> {
        if self.current.as_ref().is_none_or(|current| current.id != id) {
            self.settle().await?;
            let held = self.may_seal(id.day).then(Readings::default);
            self.current = Some(SensorDay { id: id.clone(), held });
        }
        let Some(current) = &mut self.current else { return Ok(()) };
        let hours = match &mut current.held {
            Some(held) if fits(held, &readings) => {
                held.merge_set(&readings);
                held.settle_at(self.options.stamp);
                return Ok(());
            }
            held => held.take(),
        };
        for readings in hours.into_iter().chain([readings]) {
            self.take_hours(&id, readings).await?;
        }
        Ok(())
    }

    /// No day is sealed before it is over, by any instance's clock: reads rely on that.
    fn may_seal(&self, day: Day) -> bool {
        self.options.seals && day.hours().end < Hour::of(now_ns())
    }

    /// Ends the current day.
    async fn settle(&mut self) -> Result<(), StorageError> {
        let Some(SensorDay { id, held: Some(held) }) = self.current.take() else { return Ok(()) };
        if !held.is_empty() {
            self.bytes += held.bytes();
            self.days.push((id, DayContent::Readings(held)));
        }
        self.write_if_many().await
    }

    async fn take_hours(&mut self, id: &DayId, readings: Readings) -> Result<(), StorageError> {
        for (hour, readings) in by_hour(readings) {
            let id = BucketId { sensor: id.sensor.clone(), hour };
            // A bucket is in one write at most.
            if self.buckets.iter().any(|(other, _)| *other == id) {
                self.write().await?;
            }
            self.bytes += readings.bytes();
            self.buckets.push((id, readings));
            self.write_if_many().await?;
        }
        Ok(())
    }

    async fn write_if_many(&mut self) -> Result<(), StorageError> {
        let is_many = self.bytes >= TOGETHER_BYTES || self.days.len().max(self.buckets.len()) >= TOGETHER;
        if is_many { self.write().await } else { Ok(()) }
    }

    /// Writes everything taken so far.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn flush(&mut self) -> Result<(), StorageError> {
        self.settle().await?;
        self.write().await
    }

    async fn write(&mut self) -> Result<(), StorageError> {
        self.bytes = 0;
        let (days, buckets) = (std::mem::take(&mut self.days), std::mem::take(&mut self.buckets));
        self.write_days(days).await?;
        self.write_buckets(buckets).await
    }

    async fn write_days(&self, mut days: Vec<(DayId, DayContent)>) -> Result<(), StorageError> {
        let mut revs: Vec<u64> = vec![0; days.len()];
        let mut none = Readings::default();
        none.raise_floor(self.options.stamp);
        while !days.is_empty() {
            let mut writes: Vec<DayWrite<'_>> = Vec::with_capacity(days.len());
            for ((id, content), rev) in days.iter().zip(&revs) {
                let (readings, expired) = match content {
                    DayContent::Readings(readings) => (readings, None),
                    DayContent::Expired(expired) => (&none, Some(expired)),
                };
                writes.push(DayWrite::again(id, *rev, readings, expired));
            }
            let outcomes = self.store.write_days(self.database, &writes).await;
            drop(writes);
            let mut again = Vec::new();
            for ((id, content), outcome) in std::mem::take(&mut days).into_iter().zip(outcomes) {
                if !outcome.applied()? {
                    again.push((id, content));
                }
            }
            // An earlier run wrote them.
            let ids: Vec<DayId> = again.iter().map(|(id, _)| id.clone()).collect();
            let stored = if ids.is_empty() { Vec::new() } else { self.store.read_days(self.database, &ids).await? };
            (days, revs) = (Vec::new(), Vec::new());
            for (one, stored) in again.into_iter().zip(stored) {
                if stored.as_ref().is_none_or(|day| !one.1.is(day)) {
                    days.push(one);
                    revs.push(stored.map_or(0, |day| day.rev));
                }
            }
        }
        Ok(())
    }

    async fn write_buckets(&self, buckets: Vec<(BucketId, Readings)>) -> Result<(), StorageError> {
        let mut work: Vec<(BucketId, Bucket, Readings)> = Vec::with_capacity(buckets.len());
        for (id, readings) in buckets {
            let mut bucket = Bucket::default();
            self.apply(&mut bucket, &readings);
            work.push((id, bucket, readings));
        }
        loop {
            let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
            for (place, (_, bucket, _)) in work.iter().enumerate() {
                groups.extend(bucket.next_writes().into_iter().map(|group| (place, group)));
            }
            if groups.is_empty() {
                return Ok(());
            }
            let write = |(place, group): &(usize, Vec<usize>)| PageWrite {
                id: &work[*place].0,
                bucket: &work[*place].1,
                group: group.clone(),
            };
            let writes: Vec<PageWrite<'_>> = groups.iter().map(write).collect();
            let outcomes = self.store.raw().write_pages(self.database, &writes).await;
            drop(writes);
            let mut stale = Vec::new();
            for ((place, group), outcome) in groups.into_iter().zip(outcomes) {
                if outcome.applied()? {
                    work[place].1.mark_written(&group);
                } else {
                    stale.push(place);
                }
            }
            stale.dedup();
            for place in stale {
                let (id, bucket, readings) = &mut work[place];
                *bucket = self.stored(id, readings.times()).await?;
                self.apply(bucket, readings);
            }
        }
    }

    /// The bucket as it is stored, with the pages that readings of these times need.
    async fn stored(&self, id: &BucketId, times: &[i64]) -> Result<Bucket, StorageError> {
        let needed = |bucket: &Bucket| {
            let mut wanted = bucket.always_needed();
            wanted.extend(bucket.needed_for(times));
            wanted.sort_unstable();
            wanted.dedup();
            wanted
        };
        read_needed(self.store, self.database, id, needed).await
    }

    fn apply(&self, bucket: &mut Bucket, readings: &Readings) {
        let FillOptions { caps, stamp, .. } = &self.options;
        let names: Vec<Arc<str>> = readings.columns().map(|(name, _)| name.clone()).collect();
        let mut rows: Vec<Vec<(u16, Value)>> = vec![Vec::new(); readings.len()];
        for (number, (_, cells)) in (0_u16..).zip(readings.columns()) {
            for (row, cell) in rows.iter_mut().zip(cells) {
                row.extend(cell.iter().map(|value| (number, value.clone())));
            }
        }
        let rows = readings.times().iter().zip(&rows);
        let rows = rows.map(|(time, cells)| Row { time: *time, stamp: *stamp, names: &names, cells });
        // Below the stamp, so that it counts as the record's that wrote these cells.
        let options = MergeOptions { caps, floor: stamp.saturating_sub(1), restamps: false };
        bucket.apply(rows, &options);
    }

    /// Writes the rest, and the sensors' documents.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn finish(mut self) -> Result<(), StorageError> {
        self.flush().await?;
        let documents: Vec<SensorDocument> = std::mem::take(&mut self.sensors).into_values().collect();
        for some in documents.chunks(TOGETHER) {
            self.write_sensors(some.to_vec()).await?;
        }
        Ok(())
    }

    async fn write_sensors(&self, mut documents: Vec<SensorDocument>) -> Result<(), StorageError> {
        while !documents.is_empty() {
            let outcomes = self.store.raw().write_sensors(self.database, &documents).await;
            let mut again = Vec::new();
            for (document, outcome) in documents.into_iter().zip(outcomes) {
                if !outcome.applied()? {
                    again.push(document);
                }
            }
            let keys: Vec<&str> = again.iter().map(|document| &*document.sensor.key).collect();
            let stored =
                if keys.is_empty() { Vec::new() } else { self.store.read_sensors(self.database, &keys).await? };
            for document in &mut again {
                let stored = stored.iter().find(|stored| stored.sensor.key == document.sensor.key);
                document.rev = stored.map_or(0, |stored| stored.rev);
            }
            documents = again;
        }
        Ok(())
    }
}

/// Whether both sets make a day that sealing would make, too.
fn fits(one: &Readings, other: &Readings) -> bool {
    one.bytes() + other.bytes() <= BYTES_MAX && cells_together(one, other) <= CELLS_MAX
}
