//! The merge of a large bucket in parts, so that an hour of one sensor takes a bounded amount of memory.

use std::collections::HashSet;

use super::bucket_flush::RowFate;
use super::{BucketFlush, BucketFlushState, FlushContext};
use crate::bucket::packed::{PackedRows, UnpackedRows};
use crate::bucket::store::WriteOutcome;
use crate::bucket::{Bucket, MergeCounts, MergeOptions, Row, StorageError};
use crate::catalog::Database;
use crate::catalog::reads::PAGES_AT_ONCE;
use crate::reading::Stamp;

/// Maximum number of readings of a bucket that are unpacked at a time. They fill a few pages.
pub(super) const ROWS_AT_ONCE: usize = 16 * 1024;
/// The same for cells: merged readings have one for each field of their sensor.
pub(super) const CELLS_AT_ONCE: usize = 256 * 1024;
/// The same for the bytes of packed readings, which long texts make large.
pub(super) const BYTES_AT_ONCE: usize = 4 << 20;

/// The merge of one part of a bucket's readings.
struct PartialMerge<'a> {
    options: MergeOptions<'a>,
    progress: Progress,
}

/// The progress of a bucket that is merged in parts, with the outcomes of its readings.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    /// The number of stored parts.
    parts: usize,
    applied: MergeCounts,
    deleted: u64,
    /// Times and stamps of the readings that are set aside.
    set_aside: HashSet<(i64, Stamp)>,
}

impl Progress {
    /// Returns the indices of the readings that are set aside, in time order.
    fn set_aside_indices(&self, rows: &PackedRows, room: &mut UnpackedRows) -> Vec<usize> {
        if self.set_aside.is_empty() {
            return Vec::new();
        }
        room.unpack_in_time_order([rows]);
        let is_aside = |row: &Row<'_>| self.set_aside.contains(&(row.time, row.stamp));
        room.rows(&[]).enumerate().filter(|(_, row)| is_aside(row)).map(|(index, _)| index).collect()
    }
}

impl FlushContext {
    /// Merges and writes the readings of a large bucket in parts, in time order. If pages are left out, first merges
    /// the readings whose times those pages have, a few pages at a time, and then the new ones.
    ///
    /// New times can only be added to the open page. So a compare-and-set on that page proves that no other page has
    /// got them meanwhile. After a conflict, continues with the same part.
    pub(super) async fn settle_partial(&self, database: &Database, run: &mut BucketFlush) -> Result<(), StorageError> {
        let options = self.merge_options(run.id.hour);
        let fates = run.fates(self);
        if !fates.covers.is_empty() {
            // Read all pages, because a deletion may empty some, and others then take their numbers.
            let whole = self.store.read_buckets(&database.name, std::slice::from_ref(&run.id), usize::MAX).await?;
            run.bucket = Bucket::from_stored(whole.into_iter().next().unwrap_or_default());
            run.merge(self, &mut UnpackedRows::default());
            self.write(database, std::slice::from_mut(run)).await;
            return Ok(());
        }
        let fields = run.known.fields();
        let rows = run.load.rows.clone();
        let mut room = UnpackedRows::default();
        let mut parts = rows.parts(run.rows_at_once);
        parts.skip(run.progress.parts);
        while parts.next_in_time_order(&mut room) {
            let mut merged = PartialMerge { options, progress: run.progress.clone() };
            let mut kept = Vec::new();
            for row in room.rows(&fields.names) {
                match run.row_fate(&fates, &row) {
                    RowFate::Deleted => merged.progress.deleted += 1,
                    RowFate::Stored => merged.progress.applied.duplicate += 1,
                    RowFate::SetAside => {
                        merged.progress.applied.set_aside += 1;
                        merged.progress.set_aside.insert((row.time, row.stamp));
                    }
                    RowFate::Merged => kept.push(row),
                }
            }
            if !self.merge_part(database, run, kept, &mut merged).await? {
                return Ok(());
            }
            run.progress = Progress { parts: merged.progress.parts + 1, ..merged.progress };
            run.conflicts = 0;
            run.unseen = 0;
        }
        run.applied = run.progress.applied;
        run.deleted = run.progress.deleted;
        run.set_aside = run.progress.set_aside_indices(&rows, &mut room);
        // If the cached bucket is outdated, the decision to set readings aside may be wrong.
        if run.is_from_cache && !run.set_aside.is_empty() {
            run.state = BucketFlushState::Stale;
            run.progress = Progress::default();
        }
        Ok(())
    }

    /// Merges rows in time order, and writes the changed pages. Returns false if the bucket is stale or a write failed.
    async fn merge_part(
        &self,
        database: &Database,
        run: &mut BucketFlush,
        mut rows: Vec<Row<'_>>,
        merged: &mut PartialMerge<'_>,
    ) -> Result<bool, StorageError> {
        let always = run.bucket.always_needed();
        if !self.load(database, run, &always).await? {
            return Ok(false);
        }
        let times: Vec<i64> = rows.iter().map(|row| row.time).collect();
        for numbers in run.bucket.needed_for(&times).chunks(PAGES_AT_ONCE) {
            if !self.load(database, run, numbers).await? {
                return Ok(false);
            }
            let (here, others) = rows.into_iter().partition(|row| run.bucket.has(row.time));
            rows = others;
            if !self.merge_rows(database, run, here, merged).await {
                return Ok(false);
            }
            run.bucket.leave_out(self.pages_max());
        }
        let is_merged = self.merge_rows(database, run, rows, merged).await;
        run.bucket.leave_out(self.pages_max());
        Ok(is_merged)
    }

    /// Loads pages of a bucket. Returns false if the stored pages have changed, so that the bucket is stale.
    async fn load(&self, database: &Database, run: &mut BucketFlush, numbers: &[u32]) -> Result<bool, StorageError> {
        if numbers.is_empty() {
            return Ok(true);
        }
        let pages = self.store.read_pages(&database.name, &run.id, numbers).await?;
        let fits = run.bucket.load(numbers, pages);
        if !fits {
            run.settle(&[], WriteOutcome::Conflict);
        }
        Ok(fits)
    }

    /// Merges rows that are on no left-out page, and writes the changed pages. Returns false after a failure or a
    /// conflict.
    async fn merge_rows(
        &self,
        database: &Database,
        run: &mut BucketFlush,
        rows: Vec<Row<'_>>,
        merged: &mut PartialMerge<'_>,
    ) -> bool {
        merged.progress.applied += run.bucket.apply(rows.iter().copied(), &merged.options);
        run.set_bounds();
        let aside = &mut merged.progress.set_aside;
        aside.extend(run.bucket.set_aside().iter().map(|index| (rows[*index].time, rows[*index].stamp)));
        run.state = BucketFlushState::Merged;
        self.write(database, std::slice::from_mut(run)).await;
        run.state == BucketFlushState::Merged
    }
}
