//! Merges and writes a large bucket in parts, so that an hour of one sensor takes a bounded amount of memory.

use std::collections::HashSet;

use super::bucket_flush::RowFate;
use super::{BucketFlush, BucketFlushState, FlushContext};
use crate::bucket::packed::{Packed, Unpacked};
use crate::bucket::store::Written;
use crate::bucket::{Applied, Bucket, MergeOptions, Row, StorageError};
use crate::catalog::Database;
use crate::catalog::reads::PAGES_AT_ONCE;
use crate::reading::Stamp;

/// Most readings of one bucket that are unpacked at a time: some pages of them.
pub(super) const ROWS_AT_ONCE: usize = 16 * 1024;

/// The merge of one part of a bucket's readings.
struct PartialMerge<'a> {
    options: MergeOptions<'a>,
    progress: Progress,
}

/// How far the readings of a bucket are that is merged in parts, and what became of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    /// How many parts are stored.
    parts: usize,
    applied: Applied,
    deleted: u64,
    /// Times and stamps of the readings that are set aside.
    set_aside: HashSet<(i64, Stamp)>,
}

impl Progress {
    /// Places of the readings that are set aside, in time order.
    fn places(&self, rows: &Packed, room: &mut Unpacked) -> Vec<usize> {
        if self.set_aside.is_empty() {
            return Vec::new();
        }
        room.unpack_in_time_order([rows]);
        let is_aside = |row: &Row<'_>| self.set_aside.contains(&(row.time, row.stamp));
        room.rows(&[]).enumerate().filter(|(_, row)| is_aside(row)).map(|(place, _)| place).collect()
    }
}

impl FlushContext {
    /// Merges and writes the readings of a large bucket in parts, in time order. Where pages are left out, first those
    /// readings that such a page already has, a few pages at a time, and then the new ones. A time that is on no page now
    /// can only get onto the page that takes new readings, so a compare-and-set on that page proves that it is still on
    /// none. After a conflict it goes on with the part that met it.
    pub(super) async fn settle_partial(&self, database: &Database, run: &mut BucketFlush) -> Result<(), StorageError> {
        let options = self.merge_options(run.id.hour);
        let fates = run.fates(self);
        if !fates.covers.is_empty() {
            // Where a deletion empties pages, others take their numbers.
            let whole = self.store.read_buckets(&database.name, std::slice::from_ref(&run.id), usize::MAX).await?;
            run.bucket = Bucket::from_stored(whole.into_iter().next().unwrap_or_default());
            run.merge(self, &mut Unpacked::default());
            self.write(database, std::slice::from_mut(run)).await;
            return Ok(());
        }
        let (fields, rows, mut room) = (run.known.fields(), run.load.rows.clone(), Unpacked::default());
        let mut parts = rows.parts(ROWS_AT_ONCE);
        parts.skip(run.progress.parts);
        while parts.next_in_time_order(&mut room) {
            let mut merged = PartialMerge { options, progress: run.progress.clone() };
            let mut kept = Vec::new();
            for row in room.rows(&fields.names) {
                match run.fate_of(&fates, &row) {
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
            (run.conflicts, run.unseen) = (0, 0);
        }
        (run.applied, run.deleted) = (run.progress.applied, run.progress.deleted);
        run.set_aside = run.progress.places(&rows, &mut room);
        // A cached bucket may be outdated, and so may the decision to set readings aside.
        if run.from_cache && !run.set_aside.is_empty() {
            (run.state, run.progress) = (BucketFlushState::Stale, Progress::default());
        }
        Ok(())
    }

    /// Merges rows, given in time order, and writes what they change; false if the bucket is stale or a write failed.
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

    /// Loads pages of a bucket; false if the store has others by now, and the bucket is stale.
    async fn load(&self, database: &Database, run: &mut BucketFlush, numbers: &[u32]) -> Result<bool, StorageError> {
        if numbers.is_empty() {
            return Ok(true);
        }
        let pages = self.store.read_pages(&database.name, &run.id, numbers).await?;
        let fits = run.bucket.load(numbers, pages);
        if !fits {
            run.settle(&[], Written::Conflict);
        }
        Ok(fits)
    }

    /// Merges rows that no page has that is left out, and writes what they change; false if that failed or met another
    /// writer.
    async fn merge_rows(
        &self,
        database: &Database,
        run: &mut BucketFlush,
        rows: Vec<Row<'_>>,
        merged: &mut PartialMerge<'_>,
    ) -> bool {
        merged.progress.applied += run.bucket.apply(rows.iter().copied(), &merged.options);
        let aside = &mut merged.progress.set_aside;
        aside.extend(run.bucket.set_aside().iter().map(|place| (rows[*place].time, rows[*place].stamp)));
        run.state = BucketFlushState::Merged;
        self.write(database, std::slice::from_mut(run)).await;
        run.state == BucketFlushState::Merged
    }
}
