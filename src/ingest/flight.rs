//! A flight: due buckets of one database on their way to the store. Merges, writes, reads back and
//! merges again until each is stored, kept as a dead letter, or left for a later flight. One bucket
//! is never in two flights, so that no page ever has two unresolved writes.

use std::sync::Arc;
use std::time::Instant;

use super::agreed::{Agreed, Fate, Judge};
use super::blocked::Blocked;
use super::catalog::{Database, KnownSensor};
use super::dead_letters::DeadLetters;
use super::failing::Failing;
use super::learn::Presence;
use super::reads::read_buckets_each;
use super::sensors::store_before_pages;
use super::unflushed::Load;
use crate::bucket::hot::HotKey;
use crate::bucket::packed::Unpacked;
use crate::bucket::page::StoredPage;
use crate::bucket::store::{BucketId, PageWrite, Written};
use crate::bucket::{Applied, Bucket, Caps, Changes, MergeOptions, Row, StorageError, Store};
use crate::faults::{self, Bug};
use crate::telemetry::Metrics;

/// How many buckets are read back at a time. They may be large, and all of a lot is in memory.
const STALE_LOT: usize = 32;
/// How often one bucket is merged anew because other writers were faster, before it is left for a
/// later flight.
const CONFLICTS_MAX: u32 = 30;
/// How often of these the store may still show what the write had expected, since what the other one
/// wrote is not durable yet: reading it again at once shows the same again.
const UNSEEN_MAX: u32 = 3;
/// How often one bucket is merged anew because a write's outcome was not learnt. Elections are
/// ridden through; a store that stays away is not waited for.
const UNKNOWN_MAX: u32 = 2;

/// What every flight of a process needs.
#[derive(Debug)]
pub struct Context {
    /// Where to; what is deleted is gone from it.
    pub store: Arc<dyn Store>,
    /// The same store as it is.
    pub raw: Arc<dyn Store>,
    /// Counters.
    pub metrics: Metrics,
    /// When a page is full.
    pub caps: Caps,
    /// The log's name, by which pages of the form before stamps know it.
    pub log: Arc<str>,
    /// What the members of the store have agreed on: the floor, and what is deleted.
    pub agreed: Arc<Agreed>,
    /// Whether the store answers.
    pub presence: Presence,
    /// Databases that the store fails on.
    pub failing: Arc<Failing>,
    /// Where readings go that the store will never take.
    pub dead_letters: DeadLetters,
    /// Buckets whose readings wait for a document of their own.
    pub blocked: Blocked,
    /// What flights have changed in the store.
    pub changes: Arc<Changes>,
}

/// One bucket in a flight.
#[derive(Debug)]
pub struct Run {
    /// Whose bucket.
    pub known: Arc<KnownSensor>,
    /// Which bucket.
    pub id: BucketId,
    /// Its readings that are to be stored.
    pub load: Load,
    /// The bucket, taken out of the hot ones for as long as it is worked on.
    pub bucket: Bucket,
    /// What became of the readings.
    pub applied: Applied,
    /// How many of them were deleted before they came to the store.
    pub deleted: u64,
    /// The places of those that are set aside.
    pub set_aside: Vec<usize>,
    /// How many pages the bucket had before.
    pub pages_before: usize,
    /// Whether the bucket was hot: known from before, not read now.
    pub from_hot: bool,
    /// Whether the store is known to have the bucket although it is not hot: it is read first.
    pub is_stored: bool,
    /// How far it has come.
    pub state: State,
    conflicts: u32,
    /// Conflicts after which the store still showed what the write had expected.
    unseen: u32,
    unknowns: u32,
}

/// How far a run has come.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// Writes may be pending; without any, the store has everything.
    Merged,
    /// The store holds something else: read, merge, write again.
    Stale,
    /// Not now; the bucket in memory says nothing of the store.
    Failed(StorageError),
    /// Never, for this reason; its readings are in the dead-letter file.
    DeadLettered(StorageError),
}

impl Run {
    /// A run of these readings onto the bucket as it was last stored, if that is known. A bucket
    /// that is not known is assumed to be new: if it is not, its first insert says so.
    pub fn new(load: Load, hot: Option<Bucket>, is_stored: bool) -> Self {
        let (from_hot, is_stored) = (hot.is_some(), is_stored && hot.is_none());
        let bucket = hot.unwrap_or_default();
        let id = BucketId { sensor: load.known.sensor.clone(), hour: load.hour };
        let (known, pages_before) = (load.known.clone(), bucket.pages().len());
        let (applied, state) = (Applied::default(), State::Merged);
        Self {
            known,
            id,
            load,
            bucket,
            applied,
            deleted: 0,
            set_aside: Vec::new(),
            pages_before,
            from_hot,
            is_stored,
            state,
            conflicts: 0,
            unseen: 0,
            unknowns: 0,
        }
    }

    /// The bucket's key among the hot ones.
    pub fn key(&self) -> HotKey {
        (self.known.id, self.id.hour)
    }

    /// Whether its readings changed the bucket.
    pub fn changed(&self) -> bool {
        self.applied.new + self.applied.overwritten > 0
    }

    fn merge(&mut self, context: &Context, room: &mut Unpacked) {
        let fields = self.known.fields();
        room.unpack_in_time_order([&*self.load.rows]);
        // The floor first: whoever knows one knows what is deleted below it.
        let view = context.agreed.view();
        let judge = self.judge(context);
        for (range, before) in &judge.covers {
            self.bucket.delete(range, *before);
        }
        let options = MergeOptions {
            caps: &context.caps,
            floor: view.floor,
            restamps: view.restamps && !faults::has(Bug::DuplicateLeavesNoStamp),
            log: &context.log,
        };
        let rows = room.rows(&fields.names);
        if judge.takes_all() {
            self.applied = self.bucket.apply(rows, &options);
            self.set_aside = self.bucket.set_aside().to_vec();
        } else {
            self.merge_some(rows, &judge, &options);
        }
        self.state = State::Merged;
    }

    fn judge(&self, context: &Context) -> Judge {
        let Load { database, first, .. } = &self.load;
        context.agreed.judge(&database.name, &self.id.sensor, self.id.hour, *first)
    }

    /// Whether none of its readings comes to the store, being deleted or there: they bring no sensor back.
    fn brings_nothing(&self, context: &Context) -> bool {
        let judge = self.judge(context);
        if judge.takes_all() {
            return false;
        }
        let (fields, mut room) = (self.known.fields(), Unpacked::default());
        room.unpack_in_time_order([&*self.load.rows]);
        room.rows(&fields.names).all(|row| judge.fate(row.time, row.stamp) != Fate::Merged)
    }

    /// Merges what is not deleted, and not known to be stored.
    fn merge_some<'a>(&mut self, rows: impl Iterator<Item = Row<'a>>, judge: &Judge, options: &MergeOptions<'_>) {
        let (mut kept, mut places, mut stored) = (Vec::new(), Vec::new(), 0);
        self.deleted = 0;
        for (place, row) in rows.enumerate() {
            match judge.fate(row.time, row.stamp) {
                Fate::Deleted => self.deleted += 1,
                Fate::Stored => stored += 1,
                Fate::Merged => {
                    kept.push(row);
                    places.push(place);
                }
            }
        }
        self.applied = self.bucket.apply(kept.into_iter(), options);
        self.applied.duplicate += stored;
        self.set_aside = self.bucket.set_aside().iter().map(|place| places[*place]).collect();
    }

    /// Merges onto the bucket as the store has it.
    fn reload(&mut self, pages: Vec<StoredPage>, context: &Context) {
        let revs: Vec<(u32, u64)> = pages.iter().map(|page| (page.number, page.rev)).collect();
        if self.conflicts > 0 && !revs.is_empty() && self.bucket.has_revs(&revs) {
            self.unseen += 1;
        }
        self.bucket = Bucket::from_stored(pages);
        self.pages_before = self.bucket.pages().len();
        self.from_hot = false;
        self.merge(context, &mut Unpacked::default());
    }

    /// Takes the outcome of a write of these pages.
    fn settle(&mut self, pages: &[usize], outcome: Written) {
        match (outcome, &self.state) {
            // A failure stands: what else went through is read back before it is used again.
            (_, State::Failed(_)) => {}
            (Written::Yes, _) => self.bucket.mark_written(pages),
            (Written::Conflict, _) if faults::has(Bug::ConflictIsSuccess) => self.bucket.mark_written(pages),
            (Written::Conflict, _) => {
                self.conflicts += 1;
                // Whoever is slower waits: nothing of this says that the store would not take it.
                let contended = self.conflicts >= CONFLICTS_MAX || self.unseen >= UNSEEN_MAX;
                let detail = || self.id.sensor.key.to_string();
                self.state = match contended {
                    true => State::Failed(StorageError::Contended { detail: detail() }),
                    false => State::Stale,
                };
            }
            (Written::Failed(error @ StorageError::Unknown { .. }), _) => {
                self.unknowns += 1;
                self.state = if self.unknowns > UNKNOWN_MAX { State::Failed(error) } else { State::Stale };
            }
            (Written::Failed(error), _) => self.state = State::Failed(error),
        }
    }
}

/// Brings runs of one database to the store: the bulk at once, and what turns out to be different
/// there in small lots, since those buckets are read whole. On return every run is merged, which
/// now means stored, or failed, or dead-lettered.
pub async fn fly(context: &Context, database: &Database, mut runs: Vec<Run>) -> Vec<Run> {
    let started = Instant::now();
    faults::point("before_flush");
    let readings = runs.iter().map(|run| run.load.rows.len()).sum::<usize>();
    context.metrics.flush_readings.record(u32::try_from(readings).unwrap_or(u32::MAX));
    let mut room = Unpacked::default();
    for run in &mut runs {
        if run.is_stored {
            run.state = State::Stale;
            continue;
        }
        run.merge(context, &mut room);
        // What a hot bucket says of what is set aside may be outdated itself.
        if run.from_hot && !run.set_aside.is_empty() {
            run.state = State::Stale;
        }
    }
    drop(room);
    context.store_sensors(database, &mut runs).await;
    context.write(database, &mut runs).await;
    context.settle_stale(database, &mut runs).await;
    context.bury(database, &mut runs).await;
    context.keep_set_aside(database, &mut runs).await;
    context.metrics.flush_seconds.record(started.elapsed());
    faults::point("after_flush");
    runs
}

impl Context {
    async fn store_sensors(&self, database: &Database, runs: &mut [Run]) {
        let unsaved = runs.iter().filter(|run| run.known.fields().unsaved() && !run.brings_nothing(self));
        let mut unsaved: Vec<Arc<KnownSensor>> = unsaved.map(|run| run.known.clone()).collect();
        unsaved.sort_unstable_by_key(|known| known.id);
        unsaved.dedup_by_key(|known| known.id);
        if unsaved.is_empty() {
            return;
        }
        let failed = store_before_pages(&*self.store, &database.name, unsaved, &self.metrics).await;
        for run in runs {
            // No page goes before its sensor's document. A refusal is one of that document, not of the page.
            run.state = match failed.get(&run.known.id) {
                None => continue,
                Some(StorageError::Refused { detail }) => {
                    let detail =
                        format!("the document of sensor {}, which comes first: {detail}", run.known.sensor.key);
                    State::Failed(StorageError::Failing { detail })
                }
                Some(error) => State::Failed(error.clone()),
            };
        }
    }

    /// Writes until no merged run has anything left to write.
    async fn write(&self, database: &Database, runs: &mut [Run]) {
        faults::halt_at("before_write").await;
        loop {
            let (numbers, writes) = writes(runs);
            if writes.is_empty() {
                return;
            }
            let outcomes = self.store.write_pages(&database.name, &writes).await;
            let pages: Vec<Vec<usize>> = writes.into_iter().map(|write| write.group).collect();
            for ((number, pages), outcome) in numbers.into_iter().zip(pages).zip(outcomes) {
                if outcome == Written::Conflict {
                    self.metrics.conflicts.increment(1);
                }
                runs[number].settle(&pages, outcome);
            }
        }
    }

    /// Reads stale runs' buckets, merges and writes, lot by lot, until none is stale. With the
    /// store away nothing more is tried, or every lot would wait for a deadline of its own.
    async fn settle_stale(&self, database: &Database, runs: &mut [Run]) {
        let is_away = |run: &Run| match &run.state {
            State::Failed(error) if error.is_away() => Some(error.clone()),
            _ => None,
        };
        let is_stale = |run: &Run| run.state == State::Stale;
        while runs.iter().any(is_stale) {
            if let Some(away) = runs.iter().find_map(is_away) {
                runs.iter_mut().filter(|run| is_stale(run)).for_each(|run| run.state = State::Failed(away.clone()));
                return;
            }
            // The stale ones to the front, so that a lot is a slice.
            runs.sort_by_key(|run| !is_stale(run));
            let lot = runs.iter().take(STALE_LOT).take_while(|run| is_stale(run)).count();
            self.reload(database, &mut runs[..lot]).await;
            self.write(database, &mut runs[..lot]).await;
        }
    }

    /// Reads runs' buckets and merges their readings in. One that cannot be read fails alone.
    async fn reload(&self, database: &Database, runs: &mut [Run]) {
        let ids: Vec<BucketId> = runs.iter().map(|run| run.id.clone()).collect();
        let read = read_buckets_each(&*self.store, &database.name, &ids).await;
        for (run, bucket) in runs.iter_mut().zip(read) {
            match bucket {
                Ok(pages) => run.reload(pages, self),
                Err(error) => run.state = State::Failed(error),
            }
        }
    }

    /// Keeps what was set aside where people find it: it came back after everybody else had gone on.
    async fn keep_set_aside(&self, database: &Database, runs: &mut [Run]) {
        let is_some = |run: &&mut Run| run.state == State::Merged && !run.set_aside.is_empty();
        for run in runs.iter_mut().filter(is_some) {
            let detail = "they come from a log that was silent for longer than log.horizon, and the store has other \
                          values, of which nobody knows whether they are later"
                .to_owned();
            let (error, places) = (StorageError::Refused { detail }, &run.set_aside);
            let kept = self.dead_letters.keep_some(database, &run.load, |place| places.contains(&place), &error).await;
            if let Err(io) = kept {
                run.state = State::Failed(StorageError::Failing { detail: format!("dead letters: {io}") });
            }
        }
    }

    /// Keeps the readings of runs as dead letters that the store will never take, by the content of their
    /// page. Whatever else keeps a run from the store may pass, and its readings wait for that.
    async fn bury(&self, database: &Database, runs: &mut [Run]) {
        for run in runs {
            let State::Failed(error @ StorageError::Refused { .. }) = &run.state else { continue };
            match self.dead_letters.keep(database, &run.load, error).await {
                Ok(()) => run.state = State::DeadLettered(error.clone()),
                Err(io) => {
                    tracing::error!(%io, %error, "a refused page's readings cannot be kept; they stay in the log")
                }
            }
        }
    }
}

/// The writes of merged runs that may go to the store now, each with the number of its run.
fn writes(runs: &[Run]) -> (Vec<usize>, Vec<PageWrite<'_>>) {
    let merged = runs.iter().enumerate().filter(|(_, run)| run.state == State::Merged);
    merged
        .flat_map(|(number, run)| {
            let write = move |group| (number, PageWrite { id: &run.id, bucket: &run.bucket, group });
            run.bucket.next_writes().into_iter().map(write)
        })
        .unzip()
}
