//! One bucket in a flush: the merge of its readings, and the progress of its writes.

use std::sync::Arc;

use super::super::sealed::SealedHour;
use super::FlushContext;
use super::partial::{BYTES_AT_ONCE, CELLS_AT_ONCE, Progress, ROWS_AT_ONCE};
use crate::bucket::cache::CacheKey;
use crate::bucket::packed::UnpackedRows;
use crate::bucket::page::StoredPage;
use crate::bucket::store::{BucketId, WriteOutcome};
use crate::bucket::{Bucket, MergeCounts, MergeOptions, Row, StorageError};
use crate::buffer::memtable::Load;
use crate::catalog::KnownSensor;
use crate::members::registry_view::{Fate, ReadingFates};
use crate::reading::Value;

/// Maximum number of conflicts of a bucket, or a part of it, before it is left for a later flush.
const CONFLICTS_MAX: u32 = 30;
/// Maximum number of conflicts after which the store still shows the state that the write expected. The other write is
/// then not durable yet, and another read at once would show the same.
const UNSEEN_MAX: u32 = 3;
/// Maximum number of unknown outcomes of a bucket's writes. This bridges the election of a new primary, but does not
/// wait for a store that stays away.
const UNKNOWN_MAX: u32 = 2;

/// One bucket in a flush.
#[derive(Debug)]
pub struct BucketFlush {
    pub known: Arc<KnownSensor>,
    pub id: BucketId,
    /// The readings to store.
    pub load: Load,
    /// The bucket, taken out of the cache during the flush.
    pub bucket: Bucket,
    /// Counts of the readings by outcome.
    pub applied: MergeCounts,
    /// The number of readings that were deleted before they were stored.
    pub deleted: u64,
    /// Places of the readings that are set aside, in time order.
    pub set_aside: Vec<usize>,
    /// The number of pages before the flush.
    pub pages_before: usize,
    /// The hour in the sealed day, read only if [`FlushContext::may_be_sealed`].
    pub(super) sealed: Option<SealedHour>,
    /// The times of the first and the last reading, if the readings are in a chunk of their day instead of the bucket.
    pub in_chunk: Option<(i64, i64)>,
    /// True if the bucket came from the cache, not from the store.
    pub is_from_cache: bool,
    /// True if the store is known to have the bucket although it is not cached. It is then read first.
    pub is_stored: bool,
    pub state: BucketFlushState,
    /// Maximum number of readings that are merged at a time.
    pub(super) rows_at_once: usize,
    pub(super) progress: Progress,
    pub(super) conflicts: u32,
    /// The number of conflicts after which the store still showed the expected state.
    pub(super) unseen: u32,
    unknowns: u32,
}

/// The fate of a reading in a bucket whose readings are not all merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowFate {
    Merged,
    /// It is deleted before it is stored.
    Deleted,
    /// The store has it.
    Stored,
    /// Its WAL was silent beyond the horizon while its day was sealed, and the day has another reading of that time. It
    /// is unknown which reading is later.
    SetAside,
}

/// The progress of a bucket in a flush.
#[derive(Debug, Clone, PartialEq)]
pub enum BucketFlushState {
    /// The readings are merged. If no write is pending, the store has everything.
    Merged,
    /// The store has another state. The bucket must be read, merged and written again.
    Stale,
    /// The bucket has more pages or readings than are unpacked at a time. It is merged and written in parts.
    Partial,
    /// The readings are not stored now. The bucket in memory may differ from the store.
    Failed(StorageError),
    /// The store will never accept the readings. They are in the dead-letter file.
    DeadLettered(StorageError),
}

impl BucketFlush {
    /// Starts with the cached bucket, if any. A bucket that is not cached is assumed to be new. If it is not, its first
    /// insert conflicts.
    pub fn new(load: Load, cache: Option<Bucket>, is_stored: bool) -> Self {
        let is_from_cache = cache.is_some();
        let bucket = cache.unwrap_or_default();
        let fields = load.known.fields().names.len().max(1);
        let row_bytes = (load.rows.memory() / load.rows.len().max(1)).max(1);
        let rows_at_once = (CELLS_AT_ONCE / fields).min(BYTES_AT_ONCE / row_bytes).clamp(1, ROWS_AT_ONCE);
        Self {
            known: load.known.clone(),
            id: BucketId { sensor: load.known.sensor.clone(), hour: load.hour },
            pages_before: bucket.pages().len(),
            load,
            bucket,
            applied: MergeCounts::default(),
            deleted: 0,
            set_aside: Vec::new(),
            sealed: None,
            in_chunk: None,
            is_from_cache,
            is_stored: is_stored && !is_from_cache,
            state: BucketFlushState::Merged,
            rows_at_once,
            progress: Progress::default(),
            conflicts: 0,
            unseen: 0,
            unknowns: 0,
        }
    }

    /// Returns the bucket's key in the cache.
    pub fn key(&self) -> CacheKey {
        (self.known.id, self.id.hour)
    }

    /// Returns true if the readings changed the bucket.
    pub fn has_changes(&self) -> bool {
        self.applied.new + self.applied.overwritten > 0
    }

    /// Returns true if the bucket must be merged in parts.
    pub(super) fn is_large(&self) -> bool {
        self.bucket.is_partial() || self.load.rows.len() > self.rows_at_once
    }

    pub(super) fn merge(&mut self, context: &FlushContext, room: &mut UnpackedRows) {
        let fields = self.known.fields();
        room.unpack_in_time_order([&*self.load.rows]);
        let options = context.merge_options(self.id.hour);
        let fates = self.fates(context);
        for (range, before) in &fates.covers {
            self.bucket.delete(range, *before);
        }
        let rows = room.rows(&fields.names);
        if fates.merges_all() && self.sealed.is_none() {
            self.applied = self.bucket.apply(rows, &options);
            self.set_aside = self.bucket.set_aside().to_vec();
        } else {
            self.merge_some(rows, &fates, &options);
        }
        self.set_bounds();
        self.state = BucketFlushState::Merged;
    }

    /// Sets the bounds that the sensor's kind declares.
    pub(super) fn set_bounds(&mut self) {
        if let Some(kind) = self.known.kind().filter(|kind| !kind.buckets.is_empty()) {
            self.bucket.set_bounds(&kind.buckets);
        }
    }

    pub(crate) fn fates(&self, context: &FlushContext) -> ReadingFates {
        let Load { database, first, .. } = &self.load;
        context.registry_view.fates(&database.name, &self.id.sensor, self.id.hour, *first)
    }

    /// Returns true if every reading is deleted or stored. Then the flush must not restore the document of a deleted
    /// sensor.
    pub(super) fn brings_nothing(&self, context: &FlushContext) -> bool {
        let fates = self.fates(context);
        if fates.merges_all() {
            return false;
        }
        let fields = self.known.fields();
        let mut room = UnpackedRows::default();
        room.unpack_in_time_order([&*self.load.rows]);
        room.rows(&fields.names).all(|row| fates.fate(row.time, row.stamp) != Fate::Merged)
    }

    /// Merges the readings that are neither deleted nor known to be stored.
    fn merge_some<'a>(
        &mut self,
        rows: impl Iterator<Item = Row<'a>>,
        fates: &ReadingFates,
        options: &MergeOptions<'_>,
    ) {
        let mut kept = Vec::new();
        let mut indices = Vec::new();
        let mut stored = 0;
        let mut aside = Vec::new();
        self.deleted = 0;
        for (index, row) in rows.enumerate() {
            match self.row_fate(fates, &row) {
                RowFate::Deleted => self.deleted += 1,
                RowFate::Stored => stored += 1,
                RowFate::SetAside => aside.push(index),
                RowFate::Merged => {
                    kept.push(row);
                    indices.push(index);
                }
            }
        }
        self.applied = self.bucket.apply(kept.into_iter(), options);
        self.applied.duplicate += stored;
        self.applied.set_aside += aside.len() as u64;
        aside.extend(self.bucket.set_aside().iter().map(|index| indices[*index]));
        aside.sort_unstable();
        self.set_aside = aside;
    }

    /// Returns the fate of a reading. A sealed day decides about readings up to the floor.
    pub(super) fn row_fate(&self, fates: &ReadingFates, row: &Row<'_>) -> RowFate {
        match fates.fate(row.time, row.stamp) {
            Fate::Deleted => return RowFate::Deleted,
            Fate::Stored => return RowFate::Stored,
            Fate::Merged => {}
        }
        let Some(sealed) = &self.sealed else { return RowFate::Merged };
        let Some(day) = &sealed.readings else { return RowFate::SetAside };
        if row.stamp > sealed.floor {
            return RowFate::Merged;
        }
        let Some(index) = day.find(row.time) else { return RowFate::Merged };
        let is_in_day = |(field, value): &(u16, Value)| {
            let cells = day.cells(&row.names[usize::from(*field)]);
            cells.is_some_and(|cells| cells[index].as_ref() == Some(value))
        };
        if row.cells.iter().all(is_in_day) { RowFate::Stored } else { RowFate::SetAside }
    }

    /// Merges the readings into the stored bucket.
    pub(super) fn reload(&mut self, pages: Vec<StoredPage>, context: &FlushContext) {
        let revs: Vec<(u32, u64)> = pages.iter().map(|page| (page.number, page.rev)).collect();
        if self.conflicts > 0 && !revs.is_empty() && self.bucket.has_revs(&revs) {
            self.unseen += 1;
        }
        self.bucket = Bucket::from_stored(pages);
        self.pages_before = self.bucket.pages().len();
        self.is_from_cache = false;
        if self.is_large() {
            self.state = BucketFlushState::Partial;
        } else {
            self.merge(context, &mut UnpackedRows::default());
        }
    }

    /// Applies the outcome of a write of these pages.
    pub(super) fn settle(&mut self, pages: &[usize], outcome: WriteOutcome) {
        match (outcome, &self.state) {
            // A failure is final for this flush. The next one reads the bucket before it uses it.
            (_, BucketFlushState::Failed(_)) => {}
            (WriteOutcome::Applied, _) => self.bucket.mark_written(pages),
            (WriteOutcome::Conflict, _) => {
                self.conflicts += 1;
                let is_contended = self.conflicts >= CONFLICTS_MAX || self.unseen >= UNSEEN_MAX;
                self.state = if is_contended {
                    BucketFlushState::Failed(StorageError::Contended(self.id.sensor.key.to_string()))
                } else {
                    BucketFlushState::Stale
                };
            }
            (WriteOutcome::Failed(error @ StorageError::Unknown { .. }), _) => {
                self.unknowns += 1;
                self.state =
                    if self.unknowns > UNKNOWN_MAX { BucketFlushState::Failed(error) } else { BucketFlushState::Stale };
            }
            (WriteOutcome::Failed(error), _) => self.state = BucketFlushState::Failed(error),
        }
    }
}
