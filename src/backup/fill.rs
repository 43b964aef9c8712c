//! Fills a store that nothing else writes to.
//!
//! Readings of past days become sealed days if the settings say so and they fit, and hour pages otherwise. Summaries of
//! expired readings are copied. The sensor documents follow at the end. Documents that an interrupted run has written
//! are written again.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::read::{ExpiredPart, Part, Piece, merged_cells};
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

/// Maximum number of days, buckets or sensors in a batch.
const BATCH_DOCUMENTS_MAX: usize = 64;
/// Size in bytes at which a batch is written.
const BATCH_BYTES: usize = 8 << 20;

/// Options of filling a store.
#[derive(Debug, Clone, Copy)]
pub struct FillOptions {
    pub caps: Caps,
    /// The stamp of everything written. Later writes have greater ones.
    pub stamp: Stamp,
    /// True if past days become sealed days.
    pub seals: bool,
    /// The sealed form of databases without a setting of their own.
    pub seal_form: SealForm,
    /// Number of recent readings in a sensor document: configuration key `sensors.recent`.
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

/// The content of a part of a day.
#[derive(Debug, Clone, PartialEq)]
enum DayContent {
    Readings(Readings),
    Expired(ExpiredDay),
}

impl DayContent {
    /// Returns true if the stored day has this content.
    fn is_stored(&self, stored: &StoredDay) -> bool {
        match self {
            Self::Readings(readings) => stored.expired.is_none() && stored.readings == *readings,
            Self::Expired(expired) => stored.expired.as_ref() == Some(expired),
        }
    }
}

/// The day whose readings are being collected.
#[derive(Debug)]
struct SensorDay {
    id: DayId,
    /// `None` once the readings of the day are written as hour pages.
    readings: Option<Readings>,
}

impl<'a> Fill<'a> {
    /// Creates a database and begins to fill it.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn begin(store: &'a MergedView, database: &'a str, options: FillOptions) -> Result<Self, StorageError> {
        store.raw().create_database(database).await?;
        let settings = Settings {
            by_database: store.raw().read_settings().await?.into_iter().collect(),
            seal_form: Some(options.seal_form),
            ..Settings::default()
        };
        let seals = options.seals && settings.seal_form(database) != SealForm::Off;
        let options = FillOptions { seals, ..options };
        Ok(Self {
            store,
            database,
            options,
            sensors: BTreeMap::new(),
            current: None,
            days: Vec::new(),
            buckets: Vec::new(),
            bytes: 0,
        })
    }

    /// Writes a piece. All readings of a sensor's day must follow each other.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn write(&mut self, piece: Piece) -> Result<(), StorageError> {
        self.skip(&piece);
        match piece {
            Piece::Readings(Part { document, readings, .. }) => {
                for (day, readings) in readings.parts(|time| Day::from_hour(Hour::from_ns(time))) {
                    let id = DayId { sensor: document.sensor.clone(), day, part: DayPart::Whole };
                    self.add_day(id, readings).await?;
                }
                Ok(())
            }
            Piece::Expired(ExpiredPart { document, day, part, expired }) => {
                self.end_day().await?;
                let id = DayId { sensor: document.sensor.clone(), day, part };
                self.days.push((id, DayContent::Expired(expired)));
                self.write_if_full().await
            }
        }
    }

    /// Notes the sensor and times of a piece without writing it, because an earlier run has written it.
    pub fn skip(&mut self, piece: &Piece) {
        self.note_sensor(piece.document());
        match piece {
            Piece::Readings(part) => self.note_readings(&part.document.sensor.key, &part.readings),
            Piece::Expired(ExpiredPart { document, expired, .. }) => {
                if let (Some(first), Some(last)) = (expired.hours.first(), expired.hours.last()) {
                    self.note_times(&document.sensor.key, first.first, last.last);
                }
            }
        }
    }

    /// Adds a sensor with its metadata. It needs no readings.
    pub fn add_sensor(&mut self, source: &SensorDocument) {
        self.note_sensor(source);
        let values = source.meta.values().map(|(name, json)| (name.into(), Some(json.clone())));
        let meta = Meta::change(self.options.stamp, false, values);
        if let Some(document) = self.sensors.get_mut(&source.sensor.key) {
            document.meta = meta;
        }
    }

    /// Creates the document of a sensor unless there is one, and adds fields that it lacks.
    fn note_sensor(&mut self, source: &SensorDocument) {
        let entry = self.sensors.entry(source.sensor.key.clone());
        let document = entry.or_insert_with(|| SensorDocument::new(source.sensor.clone()));
        for (name, family) in &source.fields {
            if !document.fields.iter().any(|(known, _)| known == name) {
                document.fields.push((name.clone(), *family));
            }
        }
    }

    fn note_times(&mut self, key: &str, first: i64, last: i64) {
        let Some(document) = self.sensors.get_mut(key) else { return };
        document.first_seen = Some(document.first_seen.map_or(first, |seen| seen.min(first)));
        document.last_seen = Some(document.last_seen.map_or(last, |seen| seen.max(last)));
    }

    fn note_readings(&mut self, key: &str, readings: &Readings) {
        let (Some(first), Some(last)) = (readings.times().first(), readings.times().last()) else { return };
        self.note_times(key, *first, *last);
        let Some(document) = self.sensors.get_mut(key) else { return };
        let start = readings.len().saturating_sub(self.options.recent);
        let recent = &mut document.recent;
        recent.extend((start..readings.len()).map(|index| readings.reading(index)));
        recent.sort_by_key(|reading: &Reading| reading.time);
        recent.drain(..recent.len().saturating_sub(self.options.recent));
    }

    async fn add_day(&mut self, id: DayId, readings: Readings) -> Result<(), StorageError> {
        if self.current.as_ref().is_none_or(|current| current.id != id) {
            self.end_day().await?;
            let collected = self.can_seal(id.day).then(Readings::default);
            self.current = Some(SensorDay { id: id.clone(), readings: collected });
        }
        let Some(current) = &mut self.current else { return Ok(()) };
        // A day that is too large to be sealed is written as hour pages.
        let collected = match &mut current.readings {
            Some(collected) if fits_sealed(collected, &readings) => {
                collected.merge_set(&readings);
                collected.settle_all(self.options.stamp);
                return Ok(());
            }
            collected => collected.take(),
        };
        for readings in collected.into_iter().chain([readings]) {
            self.add_hours(&id, readings).await?;
        }
        Ok(())
    }

    /// Returns true if a day is past and sealing is on. Reads rely on the rule that no instance seals a day before it
    /// ends.
    fn can_seal(&self, day: Day) -> bool {
        self.options.seals && day.hours().end < Hour::from_ns(now_ns())
    }

    /// Adds the collected readings of the current day to the batch.
    async fn end_day(&mut self) -> Result<(), StorageError> {
        let Some(SensorDay { id, readings: Some(readings) }) = self.current.take() else { return Ok(()) };
        if !readings.is_empty() {
            self.bytes += readings.bytes();
            self.days.push((id, DayContent::Readings(readings)));
        }
        self.write_if_full().await
    }

    async fn add_hours(&mut self, id: &DayId, readings: Readings) -> Result<(), StorageError> {
        for (hour, readings) in by_hour(readings) {
            let id = BucketId { sensor: id.sensor.clone(), hour };
            // A bucket must be in at most one write at a time.
            if self.buckets.iter().any(|(other, _)| *other == id) {
                self.write_batch().await?;
            }
            self.bytes += readings.bytes();
            self.buckets.push((id, readings));
            self.write_if_full().await?;
        }
        Ok(())
    }

    async fn write_if_full(&mut self) -> Result<(), StorageError> {
        let is_full = self.bytes >= BATCH_BYTES || self.days.len().max(self.buckets.len()) >= BATCH_DOCUMENTS_MAX;
        if is_full { self.write_batch().await } else { Ok(()) }
    }

    /// Writes everything added so far.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn flush(&mut self) -> Result<(), StorageError> {
        self.end_day().await?;
        self.write_batch().await
    }

    async fn write_batch(&mut self) -> Result<(), StorageError> {
        self.bytes = 0;
        let days = std::mem::take(&mut self.days);
        let buckets = std::mem::take(&mut self.buckets);
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
            let mut conflicts = Vec::new();
            for ((id, content), outcome) in std::mem::take(&mut days).into_iter().zip(outcomes) {
                if !outcome.applied()? {
                    conflicts.push((id, content));
                }
            }
            // An earlier run wrote these days. Write those that differ again, with the stored revision.
            let ids: Vec<DayId> = conflicts.iter().map(|(id, _)| id.clone()).collect();
            let stored = if ids.is_empty() { Vec::new() } else { self.store.read_days(self.database, &ids).await? };
            days.clear();
            revs.clear();
            for ((id, content), stored) in conflicts.into_iter().zip(stored) {
                if stored.as_ref().is_none_or(|day| !content.is_stored(day)) {
                    days.push((id, content));
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
            for (index, (_, bucket, _)) in work.iter().enumerate() {
                groups.extend(bucket.next_writes().into_iter().map(|group| (index, group)));
            }
            if groups.is_empty() {
                return Ok(());
            }
            let write = |(index, group): &(usize, Vec<usize>)| PageWrite {
                id: &work[*index].0,
                bucket: &work[*index].1,
                group: group.clone(),
            };
            let writes: Vec<PageWrite<'_>> = groups.iter().map(write).collect();
            let outcomes = self.store.raw().write_pages(self.database, &writes).await;
            drop(writes);
            let mut stale = Vec::new();
            for ((index, group), outcome) in groups.into_iter().zip(outcomes) {
                if outcome.applied()? {
                    work[index].1.mark_written(&group);
                } else {
                    stale.push(index);
                }
            }
            stale.dedup();
            for index in stale {
                let (id, bucket, readings) = &mut work[index];
                *bucket = self.read_bucket(id, readings.times()).await?;
                self.apply(bucket, readings);
            }
        }
    }

    /// Reads a stored bucket with the pages that readings of these times need.
    async fn read_bucket(&self, id: &BucketId, times: &[i64]) -> Result<Bucket, StorageError> {
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
        // Keep the floor below the stamp, so that the cells count as written by a record with this stamp.
        let options = MergeOptions { caps, floor: stamp.saturating_sub(1), restamps: false };
        bucket.apply(rows, &options);
        if !readings.bounds().is_empty() {
            bucket.set_bounds(readings.bounds());
        }
    }

    /// Writes the rest, and the sensor documents.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn finish(mut self) -> Result<(), StorageError> {
        self.flush().await?;
        let documents: Vec<SensorDocument> = std::mem::take(&mut self.sensors).into_values().collect();
        for batch in documents.chunks(BATCH_DOCUMENTS_MAX) {
            self.write_sensors(batch.to_vec()).await?;
        }
        Ok(())
    }

    async fn write_sensors(&self, mut documents: Vec<SensorDocument>) -> Result<(), StorageError> {
        while !documents.is_empty() {
            let outcomes = self.store.raw().write_sensors(self.database, &documents).await;
            let mut conflicts = Vec::new();
            for (document, outcome) in documents.into_iter().zip(outcomes) {
                if !outcome.applied()? {
                    conflicts.push(document);
                }
            }
            let keys: Vec<&str> = conflicts.iter().map(|document| &*document.sensor.key).collect();
            let stored =
                if keys.is_empty() { Vec::new() } else { self.store.read_sensors(self.database, &keys).await? };
            for document in &mut conflicts {
                let stored = stored.iter().find(|stored| stored.sensor.key == document.sensor.key);
                document.rev = stored.map_or(0, |stored| stored.rev);
            }
            documents = conflicts;
        }
        Ok(())
    }
}

/// Returns true if both sets together fit into a sealed day.
fn fits_sealed(one: &Readings, other: &Readings) -> bool {
    one.bytes() + other.bytes() <= BYTES_MAX && merged_cells(one, other) <= CELLS_MAX
}
