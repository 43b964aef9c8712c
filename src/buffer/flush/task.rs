//! A flush task: writes due buckets of one database to the store. It merges, writes, reads back and merges again until
//! each bucket is stored, dead-lettered, or left for a later flush. A bucket is in at most one flush, so no page ever
//! has two unresolved writes.

mod bucket_flush;
mod partial;

pub use self::bucket_flush::{BucketFlush, BucketFlushState};

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

use super::blocked::BlockedBuckets;
use super::chunks::{self, DirectRules};
use super::dead_letters::{DeadLetters, SET_ASIDE};
use super::documents::Documents;
use super::failing::FailingDatabases;
use super::stale_copies::StaleCopies;
use crate::bucket::packed::Unpacked;
use crate::bucket::store::{BucketId, PageWrite, Written};
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

/// Most buckets read back at a time: at first, and ever. All of them are in memory, so their size decides in between.
const STALE_AT_FIRST: usize = 1;
const STALE_MOST: usize = 32;
/// Most pages of one bucket that are read as a whole, and the memory that is allowed for one. Of a larger bucket only
/// those pages are read that are needed, so that an hour of one sensor takes a bounded amount of memory.
const PAGES_MAX: RangeInclusive<usize> = 3..=16;
const PAGE_BYTES: usize = 512 * 1024;

/// What all flushes of a process share.
pub struct FlushContext {
    /// The merged view of the store, which also gives the store itself.
    pub store: Arc<MergedView>,
    pub metrics: Metrics,
    /// When a page is full.
    pub caps: Caps,
    /// This process's view of the registry: the floor, and what is deleted.
    pub registry_view: Arc<RegistryView>,
    /// The clock that stamps are made from, by which days are sealed.
    pub clock: Arc<StampClock>,
    /// Whether the store answers.
    pub presence: StorePresence,
    /// Databases that the store fails on.
    pub failing: FailingDatabases,
    /// Takes readings that the store will never accept.
    pub dead_letters: DeadLetters,
    /// Buckets whose readings wait because of one document.
    pub blocked: BlockedBuckets,
    /// Which hours flushes have changed in the store.
    pub changes: Arc<HourVersions>,
    /// How many of the latest readings a sensor's document holds.
    pub recent: usize,
    /// Memory for the buckets that one flush reads back, in bytes.
    pub bytes: usize,
    /// Which readings of days that are long over become chunks; `None` if no day is sealed.
    pub direct: Option<DirectRules>,
    /// How long databases keep readings, and whether their days are sealed at all.
    pub settings: KnownSettings,
    /// Sensors whose copies of metadata lag behind.
    pub stale_copies: StaleCopies,
}

/// Writes buckets of one database: all at once first, then, in small chunks because they are read whole, those that the
/// store has in another state. On return every bucket is stored (`Merged`), failed or dead-lettered.
pub async fn flush_bucket(context: &FlushContext, database: &Database, mut runs: Vec<BucketFlush>) -> Vec<BucketFlush> {
    let started = Instant::now();
    faults::point("before_flush");
    let readings = runs.iter().map(|run| run.load.rows.len()).sum::<usize>();
    context.metrics.flush_readings.record(u32::try_from(readings).unwrap_or(u32::MAX));
    chunks::choose(context, &database.name, &mut runs);
    let mut room = Unpacked::default();
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
        // A cached bucket may be outdated, and so may the decision to set readings aside.
        if run.from_cache && !run.set_aside.is_empty() {
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
    /// How readings of an hour are merged now. Take them before the deletions: a merge must know every deletion below the floor
    /// that it uses. Pages that may stand beside a sealed day do not settle (`bucket::day`).
    fn merge_options(&self, hour: Hour) -> MergeOptions<'_> {
        let view = self.registry_view.view();
        let floor = if day::may_be_sealed(hour, latest_ns()) { SETTLED } else { view.floor };
        MergeOptions { caps: &self.caps, floor, restamps: view.restamps }
    }

    /// The time by which days are over, in nanoseconds since the epoch.
    ///
    /// # Errors
    /// Why none can be trusted now: others, whose clocks are right, would not look for a day that is sealed too early.
    pub fn trusted_ns(&self) -> Result<i64, ClockDoubt> {
        self.clock.trusted_ns(self.store.raw().has_other_writers())
    }

    /// Most pages of one bucket that are read as a whole.
    pub fn pages_max(&self) -> usize {
        (self.bytes / PAGE_BYTES).clamp(*PAGES_MAX.start(), *PAGES_MAX.end())
    }

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
            // No page is stored before its sensor's document. Here the store refused that document, not the page.
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
            let (numbers, writes) = writes(runs);
            if writes.is_empty() {
                return;
            }
            let outcomes = self.store.raw().write_pages(&database.name, &writes).await;
            let pages: Vec<Vec<usize>> = writes.into_iter().map(|write| write.group).collect();
            for ((number, pages), outcome) in numbers.into_iter().zip(pages).zip(outcomes) {
                if outcome == Written::Conflict {
                    self.metrics.conflicts.increment(1);
                }
                runs[number].settle(&pages, outcome);
            }
        }
    }

    /// Merges and writes stale and partial buckets, chunk by chunk, until there is none. Stops when the store is away, or
    /// every chunk would wait for its own timeout.
    async fn settle(&self, database: &Database, runs: &mut [BucketFlush]) {
        let is_away = |run: &BucketFlush| match &run.state {
            BucketFlushState::Failed(error) if error.is_away() => Some(error.clone()),
            _ => None,
        };
        let is_open = |run: &BucketFlush| matches!(run.state, BucketFlushState::Stale | BucketFlushState::Partial);
        let mut most = STALE_AT_FIRST;
        while runs.iter().any(is_open) {
            if let Some(away) = runs.iter().find_map(is_away) {
                runs.iter_mut()
                    .filter(|run| is_open(run))
                    .for_each(|run| run.state = BucketFlushState::Failed(away.clone()));
                return;
            }
            if let Some(run) = runs.iter_mut().find(|run| run.state == BucketFlushState::Partial) {
                if let Err(error) = self.settle_partial(database, run).await {
                    run.state = BucketFlushState::Failed(error);
                }
                continue;
            }
            // The stale ones first, so that a chunk is a slice.
            runs.sort_by_key(|run| !is_open(run));
            let chunk = runs.iter().take(most).take_while(|run| is_open(run)).count();
            self.reload(database, &mut runs[..chunk]).await;
            let memory = runs[..chunk].iter().map(|run| run.bucket.memory()).sum::<usize>() / chunk;
            most = (self.bytes / memory.max(1)).clamp(1, STALE_MOST);
            self.write(database, &mut runs[..chunk]).await;
        }
    }

    /// Reads buckets and merges their readings in. A bucket that cannot be read fails alone.
    async fn reload(&self, database: &Database, runs: &mut [BucketFlush]) {
        let ids: Vec<BucketId> = runs.iter().map(|run| run.id.clone()).collect();
        let read = read_buckets_each(&self.store, &database.name, &ids, self.pages_max()).await;
        for (run, bucket) in runs.iter_mut().zip(read) {
            let sealed = if self.may_be_sealed(run) { self.sealed(database, run).await } else { Ok(None) };
            match bucket.and_then(|pages| Ok((pages, sealed?))) {
                Ok((pages, sealed)) => {
                    run.sealed = sealed;
                    run.reload(pages, self);
                }
                Err(error) => run.state = BucketFlushState::Failed(error),
            }
        }
    }

    /// Writes readings that are set aside to the dead-letter file: their WAL came back after the others had moved on.
    async fn keep_set_aside(&self, database: &Database, runs: &mut [BucketFlush]) {
        let is_some = |run: &&mut BucketFlush| run.state == BucketFlushState::Merged && !run.set_aside.is_empty();
        for run in runs.iter_mut().filter(is_some) {
            let wanted = |place| run.set_aside.contains(&place);
            let kept = self.dead_letters.keep(database, &run.load, wanted, SET_ASIDE).await;
            if let Err(io) = kept {
                run.state = BucketFlushState::Failed(StorageError::Failing(format!("dead letters: {io}")));
            }
        }
    }

    /// Dead-letters buckets that the store will never accept because of a page's content. Every other failure may pass,
    /// and the readings wait for that.
    async fn dead_letter_refused(&self, database: &Database, runs: &mut [BucketFlush]) {
        for run in runs {
            let BucketFlushState::Failed(error @ StorageError::Refused { .. }) = &run.state else { continue };
            match self.dead_letters.keep(database, &run.load, |_| true, &error.to_string()).await {
                Ok(()) => run.state = BucketFlushState::DeadLettered(error.clone()),
                Err(io) => {
                    tracing::error!(%io, %error, "dead-letter file cannot be written; the refused readings stay in the WAL")
                }
            }
        }
    }
}

/// Writes of merged buckets that may go to the store now, each with its bucket's index.
fn writes(runs: &[BucketFlush]) -> (Vec<usize>, Vec<PageWrite<'_>>) {
    let merged = runs.iter().enumerate().filter(|(_, run)| run.state == BucketFlushState::Merged);
    merged
        .flat_map(|(number, run)| {
            let write = move |group| (number, PageWrite { id: &run.id, bucket: &run.bucket, group });
            run.bucket.next_writes().into_iter().map(write)
        })
        .unzip()
}
