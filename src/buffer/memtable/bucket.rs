//! One bucket's unflushed readings, packed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::bucket::UnflushedHour;
use crate::bucket::packed::Packed;
use crate::catalog::{Database, KnownSensor};
use crate::members::registry_view::{Fate, RegistryView};
use crate::reading::Hour;
use crate::wal::Sequence;

#[derive(Debug)]
pub struct MemtableBucket {
    pub(crate) hour: Hour,
    pub(crate) known: Arc<KnownSensor>,
    pub(crate) database: Arc<Database>,
    /// In WAL order.
    pub(crate) rows: Packed,
    /// Estimated bytes in the store.
    pub(crate) bytes: usize,
    /// WAL position of the first row.
    pub(crate) first: Sequence,
    pub(crate) last_touch: Instant,
    pub(crate) is_urgent: bool,
    /// Consecutive failed flushes whose cause was this bucket alone.
    pub(crate) failures: u32,
    /// After such a failure: earliest time of the next try, unless a later write waits for its flush.
    pub(crate) not_before: Option<Instant>,
    pub(crate) flushing: Option<Arc<Packed>>,
}

pub(crate) fn find(waiting: &mut VecDeque<MemtableBucket>, hour: Hour) -> Option<&mut MemtableBucket> {
    let at = place(waiting, hour).ok()?;
    Some(&mut waiting[at])
}

/// `Ok`: index of the hour's bucket. `Err`: where to insert it.
pub(crate) fn place(waiting: &VecDeque<MemtableBucket>, hour: Hour) -> Result<usize, usize> {
    // New readings mostly belong to the latest hour, and flushes take the earliest; a sensor that catches up may have
    // hundreds of hours.
    match (waiting.back(), waiting.front()) {
        (Some(last), _) if last.hour == hour => Ok(waiting.len() - 1),
        (_, Some(first)) if first.hour == hour => Ok(0),
        _ => waiting.binary_search_by_key(&hour, |waiting| waiting.hour),
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
        let (known, database) = (known.clone(), database.clone());
        let (rows, bytes, is_urgent, failures, not_before, flushing) = (Packed::default(), 0, false, 0, None, None);
        Self { hour, known, database, rows, bytes, first, last_touch, is_urgent, failures, not_before, flushing }
    }

    pub(crate) fn is_held_back(&self, now: Instant) -> bool {
        self.flushing.is_some() || self.not_before.is_some_and(|at| now < at)
    }

    /// Readings that are acked and neither deleted nor known to be in the store.
    pub(crate) fn unflushed(&self, names: &Arc<[Arc<str>]>, registry_view: &RegistryView) -> Option<UnflushedHour> {
        let mut packed: Vec<Arc<Packed>> = self.flushing.iter().cloned().chain([Arc::new(self.rows.clone())]).collect();
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
