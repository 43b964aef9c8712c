//! Reads the latest readings of sensors whose documents lack some: from cached buckets first, then from the store.

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

/// Buckets per read of latest readings. Those of several pages are read one by one.
const COLD_LOT: usize = 8;
/// Sensors per read of the latest readings of an hour that may be in parts of days, and most bytes of what is read.
const SEALED_LOT: usize = 64;
const SEALED_BYTES: usize = 4 << 20;

impl Documents<'_> {
    /// Reads, for each document, the latest readings that were stored since it was written, by their times. At most about `recent`
    /// per document; from the store only where the bucket is not cached.
    ///
    /// # Errors
    /// If the store is away when a bucket must be read.
    pub(super) async fn latest_readings(
        self,
        documents: &[Document<'_>],
    ) -> Result<Vec<BTreeMap<i64, Reading>>, StorageError> {
        let (store, database, recent) = (&*self.context.store, self.database, self.context.recent);
        let mut tails: Vec<BTreeMap<i64, Reading>> = vec![BTreeMap::new(); documents.len()];
        // The newest hours first, then the next ones for documents that need more: most need one hour, which is cached.
        for nth in 0..recent {
            let mut cold: Vec<(usize, BucketId)> = Vec::new();
            for (at, ((outdated, document), tail)) in documents.iter().zip(&mut tails).enumerate() {
                let Some(outdated) = outdated.filter(|_| tail.len() < recent) else { continue };
                let Some((hour, cache)) = outdated.hours.get(nth) else { continue };
                let known = &outdated.known;
                let is_foreign =
                    store.raw().has_other_writers() && document.rev != known.written_rev.load(Ordering::Relaxed);
                let is_sealed = day::may_be_sealed(*hour, latest_ns());
                match cache.as_ref().filter(|_| !is_foreign) {
                    Some(cache) if is_sealed => {
                        let whole = cache.iter().map(|reading| completed(reading, &document.recent));
                        tail.extend(whole.map(|reading| (reading.time, reading)));
                    }
                    Some(cache) => tail.extend(cache.iter().map(|reading| (reading.time, reading.clone()))),
                    None => cold.push((at, BucketId { sensor: known.sensor.clone(), hour: *hour })),
                }
            }
            let (mut sealed, cold): (Vec<_>, Vec<_>) =
                cold.into_iter().partition(|(_, id)| day::may_be_sealed(id.hour, latest_ns()));
            sealed.sort_by_key(|(_, id)| id.hour);
            let of_hours = sealed.chunk_by(|(_, a), (_, b)| a.hour == b.hour);
            for lot in of_hours.flat_map(|of_hour| of_hour.chunks(SEALED_LOT)) {
                let found = self.tails_with_parts(lot).await?;
                for ((at, _), tail) in lot.iter().zip(found) {
                    tails[*at].extend(tail.into_iter().map(|reading| (reading.time, reading)));
                }
            }
            for chunk in cold.chunks(COLD_LOT) {
                let ids: Vec<BucketId> = chunk.iter().map(|(_, id)| id.clone()).collect();
                for ((at, id), pages) in chunk.iter().zip(read_buckets_each(store, database, &ids, 1).await) {
                    let needed = |bucket: &Bucket| bucket.needed_for_tail(recent);
                    let bucket = match pages.map(Bucket::from_stored) {
                        Ok(bucket) if bucket.is_partial() => read_needed(store, database, id, needed).await,
                        read => read,
                    };
                    let tail = of_readable(bucket.map(|bucket| bucket.tail(recent)))?;
                    tails[*at].extend(tail.into_iter().map(|reading| (reading.time, reading)));
                }
            }
        }
        Ok(tails)
    }

    /// The latest readings of sensors in one hour that may be in parts of days, read together: where history comes hour by hour,
    /// every sensor's document needs some.
    async fn tails_with_parts(self, lot: &[(usize, BucketId)]) -> Result<Vec<Vec<Reading>>, StorageError> {
        let FlushContext { store, recent, .. } = self.context;
        let Some((_, first)) = lot.first() else { return Ok(Vec::new()) };
        let keys: Vec<&str> = lot.iter().map(|(_, id)| &*id.sensor.key).collect();
        let hours = first.hour..first.hour.next();
        match store.scan_sensors(self.database, &keys, hours, &Projection::ALL, SEALED_BYTES).await {
            Ok(Some(scanned)) => return Ok(scanned.into_iter().map(|pages| tail_of(&pages, *recent)).collect()),
            Err(error) if error.is_away() => return Err(error),
            // What is too large for one read, or cannot be read, holds up no other.
            Ok(None) | Err(_) => {}
        }
        let mut tails = Vec::with_capacity(lot.len());
        for (_, id) in lot {
            tails.push(self.tail_with_parts(id).await?);
        }
        Ok(tails)
    }

    /// The latest readings of an hour that may be in parts of a day.
    async fn tail_with_parts(self, id: &BucketId) -> Result<Vec<Reading>, StorageError> {
        let hours = id.hour..id.hour.next();
        let FlushContext { store, recent, .. } = self.context;
        let scanned =
            store.scan(self.database, &id.sensor.key, hours, Order::Ascending, &Projection::ALL, Extent::ALL).await;
        of_readable(scanned.map(|scanned| tail_of(&scanned.pages, *recent)))
    }
}

/// The latest readings of each page.
fn tail_of(pages: &[ScannedPage], recent: usize) -> Vec<Reading> {
    let mut tail: Vec<Reading> = Vec::new();
    for readings in pages.iter().filter_map(|page| page.readings.as_ref()) {
        let from = readings.len().saturating_sub(recent);
        tail.extend((from..readings.len()).map(|row| readings.reading(row)));
    }
    tail
}

/// A page that cannot be read adds nothing to a document.
fn of_readable(tail: Result<Vec<Reading>, StorageError>) -> Result<Vec<Reading>, StorageError> {
    match tail {
        Err(error) if error.is_away() => Err(error),
        tail => Ok(tail.unwrap_or_default()),
    }
}

/// A reading from a page of a sealed day, which has only what came later, with the fields that it had before.
fn completed(reading: &Reading, before: &[Reading]) -> Reading {
    let mut reading = reading.clone();
    let before = before.iter().find(|before| before.time == reading.time).into_iter().flat_map(|before| &before.fields);
    let is_missing = |(name, _): &&(Arc<str>, Value)| !reading.fields.iter().any(|(has, _)| has == name);
    let missing: Vec<_> = before.filter(is_missing).cloned().collect();
    reading.fields.extend(missing);
    reading
}
