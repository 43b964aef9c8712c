//! One bucket in a flush: merges its readings onto the bucket, and tracks how far its writes have come.

use std::sync::Arc;

use super::FlushContext;
use super::partial::{Progress, ROWS_AT_ONCE};
use crate::bucket::cache::CacheKey;
use crate::bucket::packed::Unpacked;
use crate::bucket::page::StoredPage;
use crate::bucket::store::{BucketId, Written};
use crate::bucket::{Applied, Bucket, MergeOptions, Readings, Row, StorageError};
use crate::buffer::memtable::Load;
use crate::catalog::KnownSensor;
use crate::members::registry_view::{Fate, ReadingFates};
use crate::reading::{Stamp, Value};

/// How often one bucket, or one part of it, is merged again because other writers were faster, before it is left for a
/// later flush.
const CONFLICTS_MAX: u32 = 30;
/// In how many of these conflicts the store may still show what the write expected: the other write is not durable yet,
/// and another read at once would show the same.
const UNSEEN_MAX: u32 = 3;
/// How often one bucket is merged again because a write's outcome is unknown. This bridges an election of a new
/// primary; a store that stays away is not waited for.
const UNKNOWN_MAX: u32 = 2;

/// One bucket in a flush.
#[derive(Debug)]
pub struct BucketFlush {
    pub known: Arc<KnownSensor>,
    pub id: BucketId,
    /// Its readings to be stored.
    pub load: Load,
    /// The bucket, taken out of the cache while it is worked on.
    pub bucket: Bucket,
    /// Counts of what became of the readings.
    pub applied: Applied,
    /// How many readings were deleted before they were stored.
    pub deleted: u64,
    /// Places of the readings that are set aside, in time order.
    pub set_aside: Vec<usize>,
    /// How many pages the bucket had before.
    pub pages_before: usize,
    /// What the sealed day has of the hour, for readings up to a floor; no set if its readings have expired. Read only where it
    /// may matter ([`FlushContext::may_be_sealed`]).
    pub(super) sealed: Option<(Stamp, Option<Readings>)>,
    /// The times of the first and the last reading, if the readings are in a chunk of their day instead of the bucket.
    pub in_chunk: Option<(i64, i64)>,
    /// Whether the bucket came from the cache, not from the store.
    pub from_cache: bool,
    /// Whether the store is known to have the bucket although it is not cached: then it is read first.
    pub is_stored: bool,
    pub state: BucketFlushState,
    pub(super) progress: Progress,
    pub(super) conflicts: u32,
    /// Conflicts after which the store still showed what the write had expected.
    pub(super) unseen: u32,
    unknowns: u32,
}

/// What becomes of a reading of a bucket whose readings are not all merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowFate {
    Merged,
    /// It is deleted before it is stored.
    Deleted,
    /// The store has it.
    Stored,
    /// It was silent beyond the horizon while its day was sealed, and the day has another reading of that time. Nobody knows
    /// which is later.
    SetAside,
}

/// How far a bucket has come.
#[derive(Debug, Clone, PartialEq)]
pub enum BucketFlushState {
    /// Writes may be pending. Without any, the store has everything.
    Merged,
    /// The store has something else: read, merge, write again.
    Stale,
    /// There are more pages or more readings than are unpacked at a time: they are merged and written in parts.
    Partial,
    /// Not stored now. The bucket in memory says nothing about the store.
    Failed(StorageError),
    /// Never stored, for this reason: the readings are in the dead-letter file.
    DeadLettered(StorageError),
}

impl BucketFlush {
    /// Merges onto the cached bucket, if there is one. A bucket that is not cached is assumed to be new; if it is not,
    /// its first insert conflicts.
    pub fn new(load: Load, cache: Option<Bucket>, is_stored: bool) -> Self {
        let (from_cache, is_stored) = (cache.is_some(), is_stored && cache.is_none());
        let bucket = cache.unwrap_or_default();
        let id = BucketId { sensor: load.known.sensor.clone(), hour: load.hour };
        let (known, pages_before) = (load.known.clone(), bucket.pages().len());
        let (applied, state) = (Applied::default(), BucketFlushState::Merged);
        Self {
            known,
            id,
            load,
            bucket,
            applied,
            deleted: 0,
            set_aside: Vec::new(),
            pages_before,
            sealed: None,
            in_chunk: None,
            from_cache,
            is_stored,
            state,
            progress: Progress::default(),
            conflicts: 0,
            unseen: 0,
            unknowns: 0,
        }
    }

    /// The bucket's key in the cache.
    pub fn key(&self) -> CacheKey {
        (self.known.id, self.id.hour)
    }

    /// Whether its readings changed the bucket.
    pub fn changed(&self) -> bool {
        self.applied.new + self.applied.overwritten > 0
    }

    /// Whether it is merged in parts.
    pub(super) fn is_large(&self) -> bool {
        self.bucket.is_partial() || self.load.rows.len() > ROWS_AT_ONCE
    }

    pub(super) fn merge(&mut self, context: &FlushContext, room: &mut Unpacked) {
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
        self.state = BucketFlushState::Merged;
    }

    pub(crate) fn fates(&self, context: &FlushContext) -> ReadingFates {
        let Load { database, first, .. } = &self.load;
        context.registry_view.fates(&database.name, &self.id.sensor, self.id.hour, *first)
    }

    /// Whether every reading is deleted or stored already: then the flush must not bring a deleted sensor back.
    pub(super) fn brings_nothing(&self, context: &FlushContext) -> bool {
        let fates = self.fates(context);
        if fates.merges_all() {
            return false;
        }
        let (fields, mut room) = (self.known.fields(), Unpacked::default());
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
        let (mut kept, mut places, mut stored, mut aside) = (Vec::new(), Vec::new(), 0, Vec::new());
        self.deleted = 0;
        for (place, row) in rows.enumerate() {
            match self.fate_of(fates, &row) {
                RowFate::Deleted => self.deleted += 1,
                RowFate::Stored => stored += 1,
                RowFate::SetAside => aside.push(place),
                RowFate::Merged => {
                    kept.push(row);
                    places.push(place);
                }
            }
        }
        self.applied = self.bucket.apply(kept.into_iter(), options);
        self.applied.duplicate += stored;
        self.applied.set_aside += aside.len() as u64;
        aside.extend(self.bucket.set_aside().iter().map(|place| places[*place]));
        aside.sort_unstable();
        self.set_aside = aside;
    }

    /// What becomes of a reading. A sealed day says something of those below the floor.
    pub(super) fn fate_of(&self, fates: &ReadingFates, row: &Row<'_>) -> RowFate {
        match fates.fate(row.time, row.stamp) {
            Fate::Deleted => return RowFate::Deleted,
            Fate::Stored => return RowFate::Stored,
            Fate::Merged => {}
        }
        let Some((floor, day)) = &self.sealed else { return RowFate::Merged };
        let Some(day) = day else { return RowFate::SetAside };
        let Some(index) = day.find(row.time).filter(|_| row.stamp <= *floor) else { return RowFate::Merged };
        let has = |(field, value): &(u16, Value)| {
            let cells = day.cells(&row.names[usize::from(*field)]);
            cells.is_some_and(|cells| cells[index].as_ref() == Some(value))
        };
        if row.cells.iter().all(has) { RowFate::Stored } else { RowFate::SetAside }
    }

    /// Merges the readings onto the bucket as the store has it.
    pub(super) fn reload(&mut self, pages: Vec<StoredPage>, context: &FlushContext) {
        let revs: Vec<(u32, u64)> = pages.iter().map(|page| (page.number, page.rev)).collect();
        if self.conflicts > 0 && !revs.is_empty() && self.bucket.has_revs(&revs) {
            self.unseen += 1;
        }
        self.bucket = Bucket::from_stored(pages);
        self.pages_before = self.bucket.pages().len();
        self.from_cache = false;
        match self.is_large() {
            true => self.state = BucketFlushState::Partial,
            false => self.merge(context, &mut Unpacked::default()),
        }
    }

    /// Applies the outcome of a write of these pages.
    pub(super) fn settle(&mut self, pages: &[usize], outcome: Written) {
        match (outcome, &self.state) {
            // A failure is final here: what else was written is read back before the bucket is used again.
            (_, BucketFlushState::Failed(_)) => {}
            (Written::Yes, _) => self.bucket.mark_written(pages),
            (Written::Conflict, _) => {
                self.conflicts += 1;
                // The slower writer waits. A conflict does not mean that the store refuses the page.
                let contended = self.conflicts >= CONFLICTS_MAX || self.unseen >= UNSEEN_MAX;
                let detail = || self.id.sensor.key.to_string();
                self.state = match contended {
                    true => BucketFlushState::Failed(StorageError::Contended(detail())),
                    false => BucketFlushState::Stale,
                };
            }
            (Written::Failed(error @ StorageError::Unknown { .. }), _) => {
                self.unknowns += 1;
                self.state =
                    if self.unknowns > UNKNOWN_MAX { BucketFlushState::Failed(error) } else { BucketFlushState::Stale };
            }
            (Written::Failed(error), _) => self.state = BucketFlushState::Failed(error),
        }
    }
}
