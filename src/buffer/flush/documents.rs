//! Updates of sensor documents by compare-and-set: metadata, first and last seen, recent readings and the outlier mark.
//! They run in tasks that access the store, with data from a shard. Shards never wait for them.

mod latest;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::outliers::expire;
use super::sensors::{ATTEMPTS_MAX, add_fields};
use super::task::FlushContext;
use crate::bucket::readings::reading_bytes;
use crate::bucket::store::{Extent, Order, Outlier, Projection, WriteOutcome};
use crate::bucket::{Meta, Reading, Readings, SensorDocument, StorageError, UnflushedHour};
use crate::catalog::KnownSensor;
use crate::catalog::deletion::ALL_HOURS;
use crate::catalog::reads::read_sensors_each;
use crate::clock::now_ns;
use crate::faults;
use crate::reading::time::MILLI_NS;
use crate::reading::{Day, Hour, Stamp};

/// Documents per write.
pub const BATCH: usize = 500;
/// Maximum size of a document's recent readings in bytes, far below the limit of a document.
const RECENT_BYTES: usize = 1024 * 1024;

/// The documents of a database.
#[derive(Clone, Copy)]
pub struct Documents<'a> {
    pub context: &'a FlushContext,
    pub database: &'a str,
}

/// The stored state of a sensor that its document lacks.
#[derive(Debug)]
pub struct StoredUpdates {
    pub known: Arc<KnownSensor>,
    /// The times of the first and the last reading stored since the document was written.
    pub seen: Option<(i64, i64)>,
    /// The latest hours with new readings, in descending order, with the latest readings of cached buckets.
    pub hours: Vec<(Hour, Option<Vec<Reading>>)>,
    /// The latest hour with more than one page, and its number of pages.
    pub outlier: Option<(Hour, u32)>,
    pub meta: MetaUpdate,
}

/// New metadata of a sensor.
#[derive(Debug)]
pub struct MetaUpdate {
    pub change: Meta,
    /// The number of logged changes in `change`.
    pub changes: usize,
    /// The stamp below which everything is deleted.
    pub before: Stamp,
    /// The stamp at or below which no further change can arrive.
    pub floor: Stamp,
}

impl MetaUpdate {
    /// Returns true if a sensor without a document needs one for this update. With other instances, removed names need
    /// one too, because another instance may store an older value later.
    fn needs_document(&self, has_others: bool) -> bool {
        let is_remembered = || {
            let mut left = self.change.clone();
            left.settle(self.floor);
            !left.is_empty()
        };
        !self.change.is_without_values() || has_others && is_remembered()
    }

    fn apply(&self, meta: &mut Meta) {
        if self.change.is_empty() && meta.is_empty() {
            return;
        }
        meta.merge(&self.change);
        meta.cut(self.before);
        meta.settle(self.floor);
    }
}

/// The state of a sensor that its document lacks.
#[derive(Debug)]
pub struct SensorUpdates {
    /// The stored part.
    pub outdated: Option<StoredUpdates>,
    /// Unflushed readings, in order of hours.
    pub unflushed: Vec<UnflushedHour>,
}

/// A document with the stored state that it lacks.
pub type Document<'a> = (Option<&'a StoredUpdates>, SensorDocument);

/// The outcome of writing documents.
#[derive(Debug, Default)]
pub struct DocumentsOutcome {
    /// Ids of the sensors whose documents are up to date.
    pub done: Vec<u32>,
    /// Ids of the sensors whose documents caused their own failure.
    pub failed: Vec<(u32, StorageError)>,
    /// The part of `failed` that the store will never accept. Its metadata is in the dead-letter file.
    pub given_up_meta: Vec<(u32, StorageError)>,
    /// The reason why the other documents were not written, if any.
    pub error: Option<StorageError>,
}

impl Documents<'_> {
    /// Updates documents to the stored state. Reads a bucket from the store if it is not cached, or if another instance
    /// wrote the document last, because that instance may have changed the bucket too.
    ///
    /// # Errors
    /// If the store is away when a bucket must be read.
    async fn refresh(self, documents: &mut [Document<'_>]) -> Result<(), StorageError> {
        let tails = self.latest_readings(documents).await?;
        let now = now_ns();
        for ((outdated, document), tail) in documents.iter_mut().zip(tails) {
            expire(document, now);
            if let Some(outdated) = outdated {
                self.update(document, outdated, tail, now);
            }
        }
        Ok(())
    }

    fn update(self, document: &mut SensorDocument, outdated: &StoredUpdates, tail: BTreeMap<i64, Reading>, now: i64) {
        add_fields(document, &outdated.known);
        outdated.meta.apply(&mut document.meta);
        self.add_readings(document, outdated.seen, tail.into_values());
        if let Some((hour, pages)) = outdated.outlier {
            let later = document.outlier.filter(|outlier| outlier.last_hour > hour);
            document.outlier = Some(Outlier {
                since: document.outlier.map_or(now, |outlier| outlier.since),
                seen: now,
                last_hour: later.map_or(hour, |outlier| outlier.last_hour),
                pages: later.map_or(pages, |outlier| outlier.pages),
            });
        }
    }

    /// Adds unflushed readings to a document. They must be merged with the stored readings of the same times.
    fn add_unflushed(self, document: &mut SensorDocument, known: &KnownSensor, unflushed: Vec<Reading>) {
        add_fields(document, known);
        let times = || unflushed.iter().map(|reading| reading.time);
        let seen = times().min().zip(times().max());
        self.add_readings(document, seen, unflushed.into_iter());
    }

    /// Extends a document's times by those of new readings, and adds the latest of them.
    fn add_readings(
        self,
        document: &mut SensorDocument,
        seen: Option<(i64, i64)>,
        latest: impl Iterator<Item = Reading>,
    ) {
        if let Some((first, last)) = seen {
            let first = floor_to_millis(first);
            let last = floor_to_millis(last);
            document.first_seen = Some(document.first_seen.map_or(first, |seen| seen.min(first)));
            document.last_seen = Some(document.last_seen.map_or(last, |seen| seen.max(last)));
        }
        let recent = document.recent.drain(..).chain(latest);
        document.recent = newest(recent.map(|reading| (reading.time, reading)).collect(), self.context.recent);
    }

    /// Updates documents that were read from the store to the latest state of a shard.
    ///
    /// # Errors
    /// If the store does not answer when something must be read.
    pub async fn apply_latest(
        self,
        sensors: &[Arc<KnownSensor>],
        mut documents: Vec<SensorDocument>,
        latest: Vec<SensorUpdates>,
    ) -> Result<Vec<SensorDocument>, StorageError> {
        self.reread(sensors, &mut documents).await?;
        let outdated = latest.iter().map(|latest| latest.outdated.as_ref());
        let mut refreshed: Vec<Document<'_>> = outdated.zip(documents).collect();
        self.refresh(&mut refreshed).await?;
        let mut documents: Vec<SensorDocument> = refreshed.into_iter().map(|(_, document)| document).collect();
        for ((known, document), latest) in sensors.iter().zip(&mut documents).zip(latest) {
            let mut readings: Vec<Reading> = Vec::new();
            for hour in &latest.unflushed {
                let set = self.with_stored(document, hour).await?;
                readings.extend((0..set.len()).map(|i| set.reading(i)));
            }
            if !readings.is_empty() {
                self.add_unflushed(document, known, readings);
            }
        }
        Ok(documents)
    }

    /// Updates and writes the documents of sensors.
    pub async fn write(self, outdated: &[StoredUpdates]) -> DocumentsOutcome {
        faults::point("before_sensors");
        faults::halt_at("writing_documents").await;
        let mut outcome = DocumentsOutcome::default();
        for chunk in outdated.chunks(BATCH) {
            let before = outcome.done.len();
            let written = self.write_chunk(chunk, &mut outcome).await;
            self.context.metrics.sensor_writes.increment((outcome.done.len() - before) as u64);
            if let Err(error) = written {
                outcome.error = Some(error);
                break;
            }
        }
        self.give_up_refused_meta(outdated, &mut outcome).await;
        outcome
    }

    async fn write_chunk(self, chunk: &[StoredUpdates], outcome: &mut DocumentsOutcome) -> Result<(), StorageError> {
        let mut open: Vec<&StoredUpdates> = chunk.iter().collect();
        for _ in 0..ATTEMPTS_MAX {
            open = self.try_to_write(open, outcome).await?;
            if open.is_empty() {
                return Ok(());
            }
        }
        Err(StorageError::Contended(open[0].known.sensor.key.to_string()))
    }

    /// Reads, updates and writes documents. Returns those that others changed meanwhile.
    async fn try_to_write<'a>(
        self,
        open: Vec<&'a StoredUpdates>,
        outcome: &mut DocumentsOutcome,
    ) -> Result<Vec<&'a StoredUpdates>, StorageError> {
        let Self { context, database } = self;
        let mut documents = self.read(open, outcome).await?;
        let before: Vec<SensorDocument> = documents.iter().map(|(_, document)| document.clone()).collect();
        self.refresh(&mut documents).await?;
        let mut changed = Vec::new();
        let mut writers = Vec::new();
        for ((outdated, now), before) in documents.into_iter().zip(before) {
            let Some(outdated) = outdated else { continue };
            // Another instance may have changed the metadata.
            let is_foreign = before.rev != outdated.known.written_rev.load(Ordering::Relaxed)
                && context.store.raw().has_other_writers();
            if is_foreign || now.meta != before.meta {
                outdated.known.set_stored_kind(&now.meta, outdated.meta.changes);
            }
            if now == before {
                outcome.done.push(outdated.known.id);
            } else {
                writers.push((outdated, now.meta != before.meta));
                changed.push(now);
            }
        }
        let written = context.store.raw().write_sensors(database, &changed).await;
        let mut again = Vec::new();
        let mut away = None;
        for (((outdated, has_new_meta), document), written) in writers.into_iter().zip(&changed).zip(written) {
            // For an unknown outcome too, because the store may have the document.
            if has_new_meta && context.store.keeps_copies() {
                context.stale_copies.note(database, &document.sensor.key);
            }
            match written {
                WriteOutcome::Applied => {
                    outdated.known.written_rev.store(document.rev + 1, Ordering::Relaxed);
                    outcome.done.push(outdated.known.id);
                }
                WriteOutcome::Conflict => again.push(outdated),
                WriteOutcome::Failed(error) if error.is_away() => away = Some(error),
                WriteOutcome::Failed(error) => outcome.failed.push((outdated.known.id, error)),
            }
        }
        away.map_or(Ok(again), Err)
    }

    /// Dead-letters the metadata of documents that the store will never accept. Otherwise its record would stay, and
    /// the WAL could never be truncated. Other failures may be temporary.
    async fn give_up_refused_meta(self, outdated: &[StoredUpdates], outcome: &mut DocumentsOutcome) {
        let Self { context, database } = self;
        for (id, error) in &outcome.failed {
            if !matches!(error, StorageError::Refused { .. }) {
                continue;
            }
            let is_refused = |outdated: &&StoredUpdates| outdated.known.id == *id && !outdated.meta.change.is_empty();
            let Some(refused) = outdated.iter().find(is_refused) else { continue };
            let sensor = &refused.known.sensor.key;
            match context.dead_letters.keep_meta(database, sensor, &refused.meta.change, error).await {
                Ok(()) => outcome.given_up_meta.push((*id, error.clone())),
                Err(io) => {
                    tracing::error!(%io, %error, %sensor, "cannot write rejected metadata to the dead-letter file; it stays in the WAL");
                }
            }
        }
    }

    /// Reads the documents of sensors, and creates missing ones.
    async fn read<'a>(
        self,
        open: Vec<&'a StoredUpdates>,
        outcome: &mut DocumentsOutcome,
    ) -> Result<Vec<Document<'a>>, StorageError> {
        let Self { context, database } = self;
        let keys: Vec<&str> = open.iter().map(|outdated| &*outdated.known.sensor.key).collect();
        let mut stored: HashMap<_, _> = read_sensors_each(&context.store, database, &keys).await?;
        let mut documents = Vec::with_capacity(open.len());
        for outdated in open {
            let known = &outdated.known;
            match stored.remove(&known.sensor.key) {
                // Metadata may precede the first reading.
                None if outdated.meta.needs_document(context.registry_view.view().restamps) => {
                    documents.push((Some(outdated), SensorDocument::new(known.sensor.clone())));
                }
                // Another instance has deleted the document and the readings, but some may have been stored since.
                // Hidden pages need a document too, because the sweep after the deletion finds pages by documents.
                None => match context
                    .store
                    .raw()
                    .scan(database, &known.sensor.key, ALL_HOURS, Order::Descending, &Projection::ALL, Extent::pages(1))
                    .await
                {
                    Ok(scanned) if scanned.pages.is_empty() && !self.has_days(&known.sensor.key).await? => {
                        known.unsave();
                        outcome.done.push(known.id);
                    }
                    Err(error) if error.is_away() => return Err(error),
                    // An unreadable page exists too.
                    Ok(_) | Err(_) => documents.push((Some(outdated), SensorDocument::new(known.sensor.clone()))),
                },
                Some(Ok(document)) => documents.push((Some(outdated), document)),
                Some(Err(error)) => outcome.failed.push((known.id, error)),
            }
        }
        Ok(documents)
    }

    async fn has_days(self, sensor: &str) -> Result<bool, StorageError> {
        Ok(!self
            .context
            .store
            .raw()
            .list_day_parts(self.database, &[sensor], Day::range_from_hours(&ALL_HOURS))
            .await?
            .is_empty())
    }

    /// Reads those documents again that this process has written since they were read.
    async fn reread(self, known: &[Arc<KnownSensor>], documents: &mut [SensorDocument]) -> Result<(), StorageError> {
        let mut keys = Vec::new();
        let mut stale = Vec::new();
        for (known, document) in known.iter().zip(documents) {
            if document.rev < known.written_rev.load(Ordering::Relaxed) {
                keys.push(&*known.sensor.key);
                stale.push(document);
            }
        }
        if keys.is_empty() {
            return Ok(());
        }
        let mut read = read_sensors_each(&self.context.store, self.database, &keys).await?;
        for document in stale {
            if let Some(current) = read.remove(&document.sensor.key) {
                *document = current?;
            }
        }
        Ok(())
    }

    /// Returns unflushed readings. If the document has readings of the same times, merges them with the stored
    /// readings, because only the pages have the stamps that decide which value is later.
    async fn with_stored(self, document: &SensorDocument, hour: &UnflushedHour) -> Result<Readings, StorageError> {
        let unflushed = hour.readings();
        if !document.recent.iter().any(|reading| unflushed.find(reading.time).is_some()) {
            return Ok(unflushed);
        }
        let times = unflushed.times();
        let (Some(first), Some(last)) = (times.first(), times.last()) else { return Ok(unflushed) };
        let wanted = Projection { times: *first..last.saturating_add(1), ..Projection::ALL };
        let hours = hour.hour..hour.hour.next();
        let Self { context, database } = self;
        let scanned =
            context.store.scan(database, &document.sensor.key, hours, Order::Ascending, &wanted, Extent::ALL).await?;
        let mut stored = Readings::default();
        for readings in scanned.pages.iter().filter_map(|page| page.readings.as_ref()) {
            stored.unite(readings);
        }
        stored.merge_set(&unflushed);
        Ok(stored)
    }
}

/// Returns the newest readings that fit into a document, at most `recent`, in time order.
pub fn newest(readings: BTreeMap<i64, Reading>, recent: usize) -> Vec<Reading> {
    let mut bytes = 0;
    let bytes_of = |r: &Reading| reading_bytes(r.time, r.fields.iter().map(|(name, value)| (&**name, value)));
    let fits = |reading: &Reading| {
        bytes += bytes_of(reading);
        bytes <= RECENT_BYTES
    };
    let mut newest: Vec<Reading> = readings.into_values().rev().take(recent).take_while(fits).collect();
    newest.reverse();
    newest
}

/// Rounds a time down to milliseconds, the resolution of documents.
pub fn floor_to_millis(time: i64) -> i64 {
    time.div_euclid(MILLI_NS).saturating_mul(MILLI_NS)
}
