//! A flush task: writes due buckets of one database to the store. It merges, writes, reads back and merges again until
//! each bucket is stored, dead-lettered, or left for a later flush. A bucket is in at most one flush, so no page ever
//! has two unresolved writes.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

use super::blocked::BlockedBuckets;
use super::chunks::{self, DirectRules};
use super::dead_letters::{DeadLetterReason, DeadLetters};
use super::failing::FailingDatabases;
use super::sensors::store_before_pages;
use super::stale_copies::StaleCopies;
use crate::bucket::cache::CacheKey;
use crate::bucket::packed::{Packed, Unpacked};
use crate::bucket::page::StoredPage;
use crate::bucket::store::{BucketId, PageWrite, Written};
use crate::bucket::{
    Applied, Bucket, Caps, HourVersions, KnownSettings, MergeOptions, Readings, Row, StorageError, Store, day,
};
use crate::buffer::memtable::Load;
use crate::catalog::lookup::StorePresence;
use crate::catalog::reads::{PAGES_AT_ONCE, read_buckets_each};
use crate::catalog::{Database, KnownSensor};
use crate::clock::{ClockDoubt, StampClock, latest_ns};
use crate::faults;
use crate::members::registry_view::{Fate, FateOfReadings, RegistryView};
use crate::reading::stamp::SETTLED;
use crate::reading::{Hour, Stamp, Value};
use crate::store::MergedView;
use crate::telemetry::Metrics;

/// Most buckets read back at a time: at first, and ever. All of them are in memory, so their size decides in between.
const STALE_AT_FIRST: usize = 1;
const STALE_MOST: usize = 32;
/// Most readings of one bucket that are unpacked at a time: some pages of them.
const ROWS_AT_ONCE: usize = 16 * 1024;
/// Most pages of one bucket that are read as a whole, and the memory that is allowed for one. Of a larger bucket only
/// those pages are read that are needed, so that an hour of one sensor takes a bounded amount of memory.
const PAGES_MAX: RangeInclusive<usize> = 3..=16;
const PAGE_BYTES: usize = 512 * 1024;
/// How often one bucket, or one part of it, is merged again because other writers were faster, before it is left for a
/// later flush.
const CONFLICTS_MAX: u32 = 30;
/// In how many of these conflicts the store may still show what the write expected: the other write is not durable yet,
/// and another read at once would show the same.
const UNSEEN_MAX: u32 = 3;
/// How often one bucket is merged again because a write's outcome is unknown. This bridges an election of a new
/// primary; a store that stays away is not waited for.
const UNKNOWN_MAX: u32 = 2;

/// What all flushes of a process share.
#[derive(Debug)]
pub struct FlushContext {
    /// The merged view of the store.
    pub store: Arc<MergedView>,
    /// The store itself, with what is deleted and not removed yet.
    pub raw: Arc<dyn Store>,
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
    pub failing: Arc<FailingDatabases>,
    /// Takes readings that the store will never accept.
    pub dead_letters: DeadLetters,
    /// Buckets whose readings wait because of one document.
    pub blocked: BlockedBuckets,
    /// Which hours flushes have changed in the store.
    pub changes: Arc<HourVersions>,
    /// Memory for the buckets that one flush reads back, in bytes.
    pub bytes: usize,
    /// Which readings of days that are long over become chunks; `None` if no day is sealed.
    pub direct: Option<DirectRules>,
    /// How long databases keep readings, and whether their days are sealed at all.
    pub settings: KnownSettings,
    /// Sensors whose copies of metadata lag behind.
    pub stale_copies: StaleCopies,
}

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
    sealed: Option<(Stamp, Option<Readings>)>,
    /// The times of the first and the last reading, if the readings are in a chunk of their day instead of the bucket.
    pub in_chunk: Option<(i64, i64)>,
    /// Whether the bucket came from the cache, not from the store.
    pub from_cache: bool,
    /// Whether the store is known to have the bucket although it is not cached: then it is read first.
    pub is_stored: bool,
    pub state: BucketFlushState,
    progress: Progress,
    conflicts: u32,
    /// Conflicts after which the store still showed what the write had expected.
    unseen: u32,
    unknowns: u32,
}

/// What a sealed day says of a reading that was silent beyond the horizon while the day was sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SealedDay {
    /// It has no reading of that time, or the reading is newer.
    Nothing,
    /// It has the reading.
    Same,
    /// It has another reading of that time. Nobody knows which is later.
    Otherwise,
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
    fn is_large(&self) -> bool {
        self.bucket.is_partial() || self.load.rows.len() > ROWS_AT_ONCE
    }

    fn merge(&mut self, context: &FlushContext, room: &mut Unpacked) {
        let fields = self.known.fields();
        room.unpack_in_time_order([&*self.load.rows]);
        let options = context.merge_options(self.id.hour);
        let fates = self.fates(context);
        for (range, before) in &fates.covers {
            self.bucket.delete(range, *before);
        }
        let rows = room.rows(&fields.names);
        if fates.takes_all() && self.sealed.is_none() {
            self.applied = self.bucket.apply(rows, &options);
            self.set_aside = self.bucket.set_aside().to_vec();
        } else {
            self.merge_some(rows, &fates, &options);
        }
        self.state = BucketFlushState::Merged;
    }

    pub(crate) fn fates(&self, context: &FlushContext) -> FateOfReadings {
        let Load { database, first, .. } = &self.load;
        context.registry_view.fates(&database.name, &self.id.sensor, self.id.hour, *first)
    }

    /// Whether every reading is deleted or stored already: then the flush must not bring a deleted sensor back.
    fn brings_nothing(&self, context: &FlushContext) -> bool {
        let fates = self.fates(context);
        if fates.takes_all() {
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
        fates: &FateOfReadings,
        options: &MergeOptions<'_>,
    ) {
        let (mut kept, mut places, mut stored, mut aside) = (Vec::new(), Vec::new(), 0, Vec::new());
        self.deleted = 0;
        for (place, row) in rows.enumerate() {
            match (fates.fate(row.time, row.stamp), self.sealed_says(&row)) {
                (Fate::Deleted, _) => self.deleted += 1,
                (Fate::Stored, _) | (Fate::Merged, SealedDay::Same) => stored += 1,
                (Fate::Merged, SealedDay::Otherwise) => aside.push(place),
                (Fate::Merged, SealedDay::Nothing) => {
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

    /// What the sealed day says of a reading below the floor.
    fn sealed_says(&self, row: &Row<'_>) -> SealedDay {
        let Some((floor, day)) = &self.sealed else { return SealedDay::Nothing };
        let Some(day) = day else { return SealedDay::Otherwise };
        let Some(index) = day.find(row.time).filter(|_| row.stamp <= *floor) else { return SealedDay::Nothing };
        let has = |(field, value): &(u16, Value)| {
            let cells = day.cells(&row.names[usize::from(*field)]);
            cells.is_some_and(|cells| cells[index].as_ref() == Some(value))
        };
        if row.cells.iter().all(has) { SealedDay::Same } else { SealedDay::Otherwise }
    }

    /// Merges the readings onto the bucket as the store has it.
    fn reload(&mut self, pages: Vec<StoredPage>, context: &FlushContext) {
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
    fn settle(&mut self, pages: &[usize], outcome: Written) {
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
                    true => BucketFlushState::Failed(StorageError::Contended { detail: detail() }),
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
        let unsaved = runs.iter().filter(|run| run.known.fields().unsaved() && !run.brings_nothing(self));
        let mut unsaved: Vec<Arc<KnownSensor>> = unsaved.map(|run| run.known.clone()).collect();
        unsaved.sort_unstable_by_key(|known| known.id);
        unsaved.dedup_by_key(|known| known.id);
        if unsaved.is_empty() {
            return;
        }
        let failed = store_before_pages(&self.store, &database.name, unsaved, &self.metrics).await;
        for run in runs {
            // No page is stored before its sensor's document. Here the store refused that document, not the page.
            run.state = match failed.get(&run.known.id) {
                None => continue,
                Some(StorageError::Refused { detail }) => {
                    let detail =
                        format!("the document of sensor {} must be stored first: {detail}", run.known.sensor.key);
                    BucketFlushState::Failed(StorageError::Failing { detail })
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

    /// Merges and writes the readings of a large bucket in parts, in time order. Where pages are left out, first those
    /// readings that such a page already has, a few pages at a time, and then the new ones. A time that is on no page now
    /// can only get onto the page that takes new readings, so a compare-and-set on that page proves that it is still on
    /// none. After a conflict it goes on with the part that met it.
    async fn settle_partial(&self, database: &Database, run: &mut BucketFlush) -> Result<(), StorageError> {
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
                match (fates.fate(row.time, row.stamp), run.sealed_says(&row)) {
                    (Fate::Deleted, _) => merged.progress.deleted += 1,
                    (Fate::Stored, _) | (Fate::Merged, SealedDay::Same) => merged.progress.applied.duplicate += 1,
                    (Fate::Merged, SealedDay::Otherwise) => {
                        merged.progress.applied.set_aside += 1;
                        merged.progress.set_aside.insert((row.time, row.stamp));
                    }
                    (Fate::Merged, SealedDay::Nothing) => kept.push(row),
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
            let (wanted, reason) = (|place| run.set_aside.contains(&place), DeadLetterReason::SetAside);
            let kept = self.dead_letters.keep_some(database, &run.load, wanted, &reason).await;
            if let Err(io) = kept {
                run.state = BucketFlushState::Failed(StorageError::Failing { detail: format!("dead letters: {io}") });
            }
        }
    }

    /// Dead-letters buckets that the store will never accept because of a page's content. Every other failure may pass,
    /// and the readings wait for that.
    async fn dead_letter_refused(&self, database: &Database, runs: &mut [BucketFlush]) {
        for run in runs {
            let BucketFlushState::Failed(error @ StorageError::Refused { .. }) = &run.state else { continue };
            match self.dead_letters.keep(database, &run.load, error).await {
                Ok(()) => run.state = BucketFlushState::DeadLettered(error.clone()),
                Err(io) => {
                    tracing::error!(%io, %error, "dead-letter file cannot be written; the refused readings stay in the WAL")
                }
            }
        }
    }
}

/// The merge of one part of a bucket's readings.
struct PartialMerge<'a> {
    options: MergeOptions<'a>,
    progress: Progress,
}

/// How far the readings of a bucket are that is merged in parts, and what became of them.
#[derive(Debug, Clone, Default)]
struct Progress {
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
