//! A flush task writes due buckets of one database to the store. It merges, writes, reads back and merges again until
//! each bucket is stored, dead-lettered, or left for a later flush. A bucket is in at most one flush, so no page ever
//! has two unresolved writes.

mod bucket_flush;
mod partial;

pub use self::bucket_flush::{BucketFlush, BucketFlushState};

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::blocked::BlockedBuckets;
use super::chunks::{self, DirectRules};
use super::dead_letters::{DeadLetters, SET_ASIDE};
use super::documents::Documents;
use super::failing::FailingDatabases;
use super::lifetimes::OutdatedLifetimes;
use super::stale_copies::StaleCopies;
use crate::bucket::packed::UnpackedRows;
use crate::bucket::store::{BucketId, PageWrite, WriteOutcome};
use crate::bucket::{Caps, HourVersions, KnownSettings, MergeOptions, StorageError, day};
use crate::catalog::lookup::StorePresence;
use crate::catalog::reads::read_buckets_each;
use crate::catalog::{Database, KnownSensor};
use crate::clock::{ClockDoubt, StampClock, latest_ns};
use crate::faults;
use crate::members::registry_view::RegistryView;
use crate::reading::Hour;
use crate::reading::stamp::SETTLED;
use crate::store::MergedView;
use crate::telemetry::Metrics;

/// The number of buckets that are read back first. All buckets that are read back at a time are in memory, so later
/// numbers depend on their size.
const FIRST_STALE_BUCKETS: usize = 1;
/// Maximum number of buckets that are read back at a time.
const STALE_BUCKETS_MAX: usize = 32;
/// Bounds of the maximum number of pages of a bucket that is read completely. For larger buckets, only the needed pages
/// are read, so that an hour of one sensor takes a bounded amount of memory.
const PAGES_MAX: RangeInclusive<usize> = 3..=16;
/// The memory that is allowed for one page, in bytes.
const PAGE_BYTES: usize = 512 * 1024;

/// The state that all flushes of a process share.
pub struct FlushContext {
    /// The merged view of the store, which also gives the store itself.
    pub store: Arc<MergedView>,
    pub metrics: Metrics,
    /// The size of a full page.
    pub caps: Caps,
    /// This process's view of the registry, with the floor and the deletions.
    pub registry_view: Arc<RegistryView>,
    /// The source of stamps, by which days are sealed.
    pub clock: Arc<StampClock>,
    /// A hint whether the store answers.
    pub presence: StorePresence,
    /// Databases that the store fails on.
    pub failing: FailingDatabases,
    /// The file of readings that the store will never accept.
    pub dead_letters: DeadLetters,
    /// Buckets whose readings wait because of one document.
    pub blocked: BlockedBuckets,
    /// Versions of stored hours, which every flush updates.
    pub changes: Arc<HourVersions>,
    /// The number of recent readings in a sensor's document.
    pub recent: usize,
    /// Memory for the buckets that one flush reads back, in bytes.
    pub bytes: usize,
    /// The memory of one bucket that was read back last, in bytes. It is the estimate for others that are not cached.
    pub read_back_bytes: AtomicUsize,
    /// The rules for backfill that becomes chunks; `None` if no day is sealed.
    pub direct: Option<DirectRules>,
    /// The retention of databases, and the form of their sealed days.
    pub settings: KnownSettings,
    /// Sensors with outdated copies of metadata.
    pub stale_copies: StaleCopies,
    /// Sensors with outdated lifetime summaries.
    pub lifetimes: OutdatedLifetimes,
}

/// Writes buckets of one database. First writes all of them together. Then reads back the buckets that the store has in
/// another state, a few at a time because they are in memory, and writes them again. On return every bucket is stored
/// (`Merged`), failed or dead-lettered.
pub async fn flush_bucket(context: &FlushContext, database: &Database, mut runs: Vec<BucketFlush>) -> Vec<BucketFlush> {
    let started = Instant::now();
    faults::point("before_flush");
    let readings = runs.iter().map(|run| run.load.rows.len()).sum::<usize>();
    context.metrics.flush_readings.record(u32::try_from(readings).unwrap_or(u32::MAX));
    chunks::choose(context, &database.name, &mut runs);
    let mut room = UnpackedRows::default();
    for run in &mut runs {
        if run.in_chunk.is_some() {
            continue;
        }
        if run.is_stored || context.may_be_sealed(run) {
            run.state = BucketFlushState::Stale;
            continue;
        }
        if run.is_large() {
            run.state = BucketFlushState::Partial;
            continue;
        }
        run.merge(context, &mut room);
        // If the cached bucket is outdated, the decision to set readings aside may be wrong.
        if run.is_from_cache && !run.set_aside.is_empty() {
            run.state = BucketFlushState::Stale;
        }
    }
    drop(room);
    context.store_sensors(database, &mut runs).await;
    chunks::write(context, database, &mut runs).await;
    context.write(database, &mut runs).await;
    context.settle(database, &mut runs).await;
    context.dead_letter_refused(database, &mut runs).await;
    context.keep_set_aside(database, &mut runs).await;
    context.metrics.flush_seconds.record(started.elapsed());
    faults::point("after_flush");
    runs
}

impl FlushContext {
    /// Returns the current merge options of an hour. Call this before the deletions are read, because a merge must know
    /// every deletion below the floor that it uses. Pages beside a possibly sealed day do not settle (see
    /// `bucket::day`).
    fn merge_options(&self, hour: Hour) -> MergeOptions<'_> {
        let view = self.registry_view.view();
        let floor = if day::may_be_sealed(hour, latest_ns()) { SETTLED } else { view.floor };
        MergeOptions { caps: &self.caps, floor, restamps: view.restamps }
    }

    /// Returns the current time for decisions about past days, in nanoseconds since the epoch.
    ///
    /// # Errors
    /// The reason why the clock cannot be trusted. Instances with a correct clock do not look for a day that is sealed
    /// too early.
    pub fn trusted_ns(&self) -> Result<i64, ClockDoubt> {
        self.clock.trusted_ns()
    }

    /// Returns the maximum number of pages of a bucket that is read completely.
    pub fn pages_max(&self) -> usize {
        (self.bytes / PAGE_BYTES).clamp(*PAGES_MAX.start(), *PAGES_MAX.end())
    }

    /// Stores the documents that must precede the pages.
    async fn store_sensors(&self, database: &Database, runs: &mut [BucketFlush]) {
        let unsaved = runs.iter().filter(|run| run.known.fields().is_unsaved() && !run.brings_nothing(self));
        let mut unsaved: Vec<Arc<KnownSensor>> = unsaved.map(|run| run.known.clone()).collect();
        unsaved.sort_unstable_by_key(|known| known.id);
        unsaved.dedup_by_key(|known| known.id);
        if unsaved.is_empty() {
            return;
        }
        let failed = Documents { context: self, database: &database.name }.store_before_pages(unsaved).await;
        for run in runs {
            // No page is stored before its sensor's document. The store has refused the document, not the page, so the
            // readings are no dead letters.
            run.state = match failed.get(&run.known.id) {
                None => continue,
                Some(StorageError::Refused(detail)) => {
                    let detail =
                        format!("the document of sensor {} must be stored first: {detail}", run.known.sensor.key);
                    BucketFlushState::Failed(StorageError::Failing(detail))
                }
                Some(error) => BucketFlushState::Failed(error.clone()),
            };
        }
    }

    /// Writes until no merged bucket has anything left to write.
    async fn write(&self, database: &Database, runs: &mut [BucketFlush]) {
        faults::halt_at("before_write").await;
        loop {
            let BucketWrites { numbers, writes } = BucketWrites::new(runs);
            if writes.is_empty() {
                return;
            }
            let outcomes = self.store.raw().write_pages(&database.name, &writes).await;
            let pages: Vec<Vec<usize>> = writes.into_iter().map(|write| write.group).collect();
            for ((number, pages), outcome) in numbers.into_iter().zip(pages).zip(outcomes) {
                if outcome == WriteOutcome::Conflict {
                    self.metrics.conflicts.increment(1);
                }
                runs[number].settle(&pages, outcome);
            }
        }
    }

    /// Merges and writes stale and partial buckets, chunk by chunk, until none is left. If the store is away, fails all
    /// the others at once instead of waiting for a timeout per chunk.
    async fn settle(&self, database: &Database, runs: &mut [BucketFlush]) {
        let away_error = |run: &BucketFlush| match &run.state {
            BucketFlushState::Failed(error) if error.is_away() => Some(error.clone()),
            _ => None,
        };
        let is_open = |run: &BucketFlush| matches!(run.state, BucketFlushState::Stale | BucketFlushState::Partial);
        let mut chunk_max = FIRST_STALE_BUCKETS;
        while runs.iter().any(is_open) {
            if let Some(away) = runs.iter().find_map(away_error) {
                for run in runs.iter_mut().filter(|run| is_open(run)) {
                    run.state = BucketFlushState::Failed(away.clone());
                }
                return;
            }
            if let Some(run) = runs.iter_mut().find(|run| run.state == BucketFlushState::Partial) {
                if let Err(error) = self.settle_partial(database, run).await {
                    run.state = BucketFlushState::Failed(error);
                }
                continue;
            }
            // Sort the stale buckets first, so that a chunk is a slice.
            runs.sort_by_key(|run| !is_open(run));
            let chunk = runs.iter().take(chunk_max).take_while(|run| is_open(run)).count();
            self.reload(database, &mut runs[..chunk]).await;
            let memory = runs[..chunk].iter().map(|run| run.bucket.memory()).sum::<usize>() / chunk;
            self.read_back_bytes.store(memory, Ordering::Relaxed);
            chunk_max = (self.bytes / memory.max(1)).clamp(1, STALE_BUCKETS_MAX);
            self.write(database, &mut runs[..chunk]).await;
        }
    }

    /// Reads buckets and merges the readings into them. An unreadable bucket fails alone.
    async fn reload(&self, database: &Database, runs: &mut [BucketFlush]) {
        let ids: Vec<BucketId> = runs.iter().map(|run| run.id.clone()).collect();
        let read = read_buckets_each(&self.store, &database.name, &ids, self.pages_max()).await;
        for (run, bucket) in runs.iter_mut().zip(read) {
            let sealed = if self.may_be_sealed(run) { self.read_sealed_hour(database, run).await } else { Ok(None) };
            match bucket.and_then(|pages| Ok((pages, sealed?))) {
                Ok((pages, sealed)) => {
                    run.sealed = sealed;
                    run.reload(pages, self);
                }
                Err(error) => run.state = BucketFlushState::Failed(error),
            }
        }
    }

    /// Writes readings that are set aside to the dead-letter file. Their WAL was silent while the floor moved past
    /// them.
    async fn keep_set_aside(&self, database: &Database, runs: &mut [BucketFlush]) {
        let has_set_aside = |run: &&mut BucketFlush| run.state == BucketFlushState::Merged && !run.set_aside.is_empty();
        for run in runs.iter_mut().filter(has_set_aside) {
            let wanted = |index| run.set_aside.contains(&index);
            let kept = self.dead_letters.keep(database, &run.load, wanted, SET_ASIDE).await;
            if let Err(io) = kept {
                run.state = BucketFlushState::Failed(StorageError::Failing(format!("dead letters: {io}")));
            }
        }
    }

    /// Dead-letters buckets that the store will never accept because of a page's content. Other failures may be
    /// temporary, and their readings wait.
    async fn dead_letter_refused(&self, database: &Database, runs: &mut [BucketFlush]) {
        for run in runs {
            let BucketFlushState::Failed(error @ StorageError::Refused { .. }) = &run.state else { continue };
            match self.dead_letters.keep(database, &run.load, |_| true, &error.to_string()).await {
                Ok(()) => run.state = BucketFlushState::DeadLettered(error.clone()),
                Err(io) => {
                    tracing::error!(%io, %error, "cannot write the dead-letter file; the rejected readings stay in the WAL")
                }
            }
        }
    }
}

/// The next page writes of merged buckets.
struct BucketWrites<'a> {
    /// The index of each write's bucket.
    numbers: Vec<usize>,
    writes: Vec<PageWrite<'a>>,
}

impl<'a> BucketWrites<'a> {
    fn new(runs: &'a [BucketFlush]) -> Self {
        let mut numbers = Vec::new();
        let mut writes = Vec::new();
        for (number, run) in runs.iter().enumerate().filter(|(_, run)| run.state == BucketFlushState::Merged) {
            for group in run.bucket.next_writes() {
                numbers.push(number);
                writes.push(PageWrite { id: &run.id, bucket: &run.bucket, group });
            }
        }
        Self { numbers, writes }
    }
}
