//! The unflushed readings of one bucket, packed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::bucket::UnflushedHour;
use crate::bucket::packed::PackedRows;
use crate::catalog::{Database, KnownSensor};
use crate::members::registry_view::{Fate, RegistryView};
use crate::reading::Hour;
use crate::wal::Sequence;

/// A bucket of a memtable.
#[derive(Debug)]
pub struct MemtableBucket {
    pub(crate) hour: Hour,
    pub(crate) known: Arc<KnownSensor>,
    pub(crate) database: Arc<Database>,
    /// The readings that no flush has taken, in WAL order.
    pub(crate) rows: PackedRows,
    /// Estimated stored bytes of `rows`.
    pub(crate) bytes: usize,
    /// WAL record of the first row.
    pub(crate) first: Sequence,
    /// The time of the last added reading.
    pub(crate) last_touch: Instant,
    /// True if the bucket is full or a write waits for its flush.
    pub(crate) is_urgent: bool,
    /// The number of consecutive failed flushes that were caused by this bucket alone.
    pub(crate) failures: u32,
    /// The earliest time of the next attempt after such a failure, unless a later write waits for the flush.
    pub(crate) not_before: Option<Instant>,
    /// The readings that a flush has taken.
    pub(crate) flushing: Option<Arc<PackedRows>>,
}

/// Finds the bucket of an hour among a sensor's buckets.
pub(crate) fn find(buckets: &mut VecDeque<MemtableBucket>, hour: Hour) -> Option<&mut MemtableBucket> {
    let index = find_bucket(buckets, hour).ok()?;
    Some(&mut buckets[index])
}

/// Returns the index of an hour's bucket, or as an error the index at which to insert it.
pub(crate) fn find_bucket(buckets: &VecDeque<MemtableBucket>, hour: Hour) -> Result<usize, usize> {
    // Try both ends first: new readings mostly belong to the latest hour, and flushes take the earliest. A sensor with
    // backfill may have hundreds of hours.
    match (buckets.back(), buckets.front()) {
        (Some(last), _) if last.hour == hour => Ok(buckets.len() - 1),
        (_, Some(first)) if first.hour == hour => Ok(0),
        _ => buckets.binary_search_by_key(&hour, |bucket| bucket.hour),
    }
}

impl MemtableBucket {
    pub(crate) fn new(
        hour: Hour,
        known: &Arc<KnownSensor>,
        database: &Arc<Database>,
        first: Sequence,
        last_touch: Instant,
    ) -> Self {
        Self {
            hour,
            known: known.clone(),
            database: database.clone(),
            rows: PackedRows::default(),
            bytes: 0,
            first,
            last_touch,
            is_urgent: false,
            failures: 0,
            not_before: None,
            flushing: None,
        }
    }

    /// Returns true if a flush must not take the bucket now.
    pub(crate) fn is_held_back(&self, now: Instant) -> bool {
        self.flushing.is_some() || self.not_before.is_some_and(|not_before| now < not_before)
    }

    /// Returns the readings that are acked and neither deleted nor known to be stored.
    pub(crate) fn unflushed(&self, names: &Arc<[Arc<str>]>, registry_view: &RegistryView) -> Option<UnflushedHour> {
        let mut packed: Vec<Arc<PackedRows>> =
            self.flushing.iter().cloned().chain([Arc::new(self.rows.clone())]).collect();
        let first = packed.iter().find_map(|rows| rows.stamps().next()).unwrap_or_default();
        let fates = registry_view.fates(&self.database.name, &self.known.sensor, self.hour, first);
        if !fates.merges_all() {
            for rows in &mut packed {
                Arc::make_mut(rows).take_out(|time, stamp| fates.fate(time, stamp) != Fate::Merged);
            }
        }
        UnflushedHour::new(self.hour, packed, names)
    }
}
