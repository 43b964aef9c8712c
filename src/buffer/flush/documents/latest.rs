//! Reads of the latest readings for sensor documents: from cached buckets first, then from the store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Document, Documents};
use crate::bucket::store::{BucketId, Extent, Order, Projection, ScannedPage};
use crate::bucket::{Bucket, Reading, StorageError, day};
use crate::buffer::flush::task::FlushContext;
use crate::catalog::reads::{read_buckets_each, read_needed};
use crate::clock::latest_ns;
use crate::reading::Value;

/// Maximum number of buckets per read. Buckets with several pages are read one by one.
const COLD_BUCKETS_MAX: usize = 8;
/// Maximum number of sensors per read of an hour that may be in parts of days.
const SEALED_SENSORS_MAX: usize = 64;
/// Maximum size of such a read in bytes.
const SEALED_BYTES_MAX: usize = 4 << 20;

impl Documents<'_> {
    /// Reads the latest readings that were stored since each document was written, by time, about `recent` per
    /// document. Accesses the store only for buckets that are not cached.
    ///
    /// # Errors
    /// If the store is away when a bucket must be read.
    pub(super) async fn latest_readings(
        self,
        documents: &[Document<'_>],
    ) -> Result<Vec<BTreeMap<i64, Reading>>, StorageError> {
        let store = &*self.context.store;
        let database = self.database;
        let recent = self.context.recent;
        let mut tails: Vec<BTreeMap<i64, Reading>> = vec![BTreeMap::new(); documents.len()];
        // Read the newest hour of each document first, then older hours for documents that need more. Most documents
        // need one hour, which is cached.
        for nth in 0..recent {
            let mut cold: Vec<(usize, BucketId)> = Vec::new();
            for (index, ((outdated, document), tail)) in documents.iter().zip(&mut tails).enumerate() {
                let Some(outdated) = outdated.filter(|_| tail.len() < recent) else { continue };
                let Some((hour, cache)) = outdated.hours.get(nth) else { continue };
                let known = &outdated.known;
                let is_foreign =
                    store.raw().has_other_writers() && document.rev != known.written_rev.load(Ordering::Relaxed);
                let is_sealed = day::may_be_sealed(*hour, latest_ns());
                match cache.as_ref().filter(|_| !is_foreign) {
                    Some(cache) if is_sealed => {
                        let full = cache.iter().map(|reading| with_earlier_fields(reading, &document.recent));
                        tail.extend(full.map(|reading| (reading.time, reading)));
                    }
                    Some(cache) => tail.extend(cache.iter().map(|reading| (reading.time, reading.clone()))),
                    None => cold.push((index, BucketId { sensor: known.sensor.clone(), hour: *hour })),
                }
            }
            let (mut sealed, cold): (Vec<_>, Vec<_>) =
                cold.into_iter().partition(|(_, id)| day::may_be_sealed(id.hour, latest_ns()));
            sealed.sort_by_key(|(_, id)| id.hour);
            let by_hour = sealed.chunk_by(|(_, a), (_, b)| a.hour == b.hour);
            for lot in by_hour.flat_map(|hour| hour.chunks(SEALED_SENSORS_MAX)) {
                let found = self.tails_with_parts(lot).await?;
                for ((index, _), tail) in lot.iter().zip(found) {
                    tails[*index].extend(tail.into_iter().map(|reading| (reading.time, reading)));
                }
            }
            for chunk in cold.chunks(COLD_BUCKETS_MAX) {
                let ids: Vec<BucketId> = chunk.iter().map(|(_, id)| id.clone()).collect();
                for ((index, id), pages) in chunk.iter().zip(read_buckets_each(store, database, &ids, 1).await) {
                    let needed = |bucket: &Bucket| bucket.needed_for_tail(recent);
                    let bucket = match pages.map(Bucket::from_stored) {
                        Ok(bucket) if bucket.is_partial() => read_needed(store, database, id, needed).await,
                        read => read,
                    };
                    let tail = skip_unreadable(bucket.map(|bucket| bucket.tail(recent)))?;
                    tails[*index].extend(tail.into_iter().map(|reading| (reading.time, reading)));
                }
            }
        }
        Ok(tails)
    }

    /// Reads the latest readings of several sensors in one hour that may be in parts of days. One read serves all,
    /// because a backfill hour by hour makes every sensor's document outdated.
    async fn tails_with_parts(self, lot: &[(usize, BucketId)]) -> Result<Vec<Vec<Reading>>, StorageError> {
        let FlushContext { store, recent, .. } = self.context;
        let Some((_, first)) = lot.first() else { return Ok(Vec::new()) };
        let keys: Vec<&str> = lot.iter().map(|(_, id)| &*id.sensor.key).collect();
        let hours = first.hour..first.hour.next();
        match store.scan_sensors(self.database, &keys, hours, &Projection::ALL, SEALED_BYTES_MAX).await {
            Ok(Some(scanned)) => {
                return Ok(scanned.into_iter().map(|pages| newest_readings(&pages, *recent)).collect());
            }
            Err(error) if error.is_away() => return Err(error),
            // Read the sensors one by one if they are too large for one read, or some are unreadable.
            Ok(None) | Err(_) => {}
        }
        let mut tails = Vec::with_capacity(lot.len());
        for (_, id) in lot {
            tails.push(self.tail_with_parts(id).await?);
        }
        Ok(tails)
    }

    /// Reads the latest readings of an hour that may be in parts of a day.
    async fn tail_with_parts(self, id: &BucketId) -> Result<Vec<Reading>, StorageError> {
        let hours = id.hour..id.hour.next();
        let FlushContext { store, recent, .. } = self.context;
        let scanned =
            store.scan(self.database, &id.sensor.key, hours, Order::Ascending, &Projection::ALL, Extent::ALL).await;
        skip_unreadable(scanned.map(|scanned| newest_readings(&scanned.pages, *recent)))
    }
}

/// Returns the latest readings of each page.
fn newest_readings(pages: &[ScannedPage], recent: usize) -> Vec<Reading> {
    let mut tail: Vec<Reading> = Vec::new();
    for readings in pages.iter().filter_map(|page| page.readings.as_ref()) {
        let from = readings.len().saturating_sub(recent);
        tail.extend((from..readings.len()).map(|row| readings.reading(row)));
    }
    tail
}

/// Ignores unreadable pages. Returns the error only if the store is away.
fn skip_unreadable(tail: Result<Vec<Reading>, StorageError>) -> Result<Vec<Reading>, StorageError> {
    match tail {
        Err(error) if error.is_away() => Err(error),
        tail => Ok(tail.unwrap_or_default()),
    }
}

/// Adds the earlier fields of a reading. A page beside a sealed day has only the fields that arrived after the seal.
fn with_earlier_fields(reading: &Reading, earlier: &[Reading]) -> Reading {
    let mut reading = reading.clone();
    let Some(earlier) = earlier.iter().find(|earlier| earlier.time == reading.time) else { return reading };
    let is_missing = |(name, _): &&(Arc<str>, Value)| !reading.fields.iter().any(|(known, _)| known == name);
    let missing: Vec<_> = earlier.fields.iter().filter(is_missing).cloned().collect();
    reading.fields.extend(missing);
    reading
}
