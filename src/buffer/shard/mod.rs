//! A shard owns the memtables, the cached buckets and the flushes of a share of the sensors. It adds dispatched
//! readings, runs several flush tasks at a time, and answers queries for unflushed readings.

mod deletions;
mod documents;
mod memtables;
pub mod pending;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::flush::document_writer::SensorDocumentWriter;
use super::flush::documents::{DocumentsOutcome, SensorUpdates};
use super::flush::task::{BucketFlush, BucketFlushState, FlushContext, flush_bucket};
use super::memtable::{DueRules, Load, MemtableBuckets};
use super::record::batch::DispatchedBatch;
use super::shard::deletions::PendingDeletions;
use super::shard::memtables::{FlushBounds, FlushMoment, FlushOutcome, Memtables};
use super::shard::pending::PendingDeletion;
use crate::bucket::cache::BucketCache;
use crate::bucket::packed::PackedRows;
use crate::bucket::{Meta, StorageError, UnflushedHour};
use crate::catalog::{Database, KnownSensor};
use crate::clock::now_ns;
use crate::config::{FLUSHES_MAX, Settings};
use crate::members::positions::{RequestGuards, SealAtEnd, WalPositions};
use crate::memory;
use crate::reading::Hour;
use crate::wal::Sequence;

/// Maximum number of buckets per flush, which fill a command.
const FLUSH_BUCKETS_MAX: usize = 1000;
/// Maximum number of buckets per probe. A probe is the only flush of a database that the store fails on, and shows
/// whether the store has recovered.
const PROBE_BUCKETS_MAX: usize = 8;
/// Maximum number of messages handled before the next check for due buckets.
const MESSAGES_MAX: usize = 64;
/// The time between two checks for buckets that are due by the clock.
const TICK: Duration = Duration::from_millis(100);
/// The time between two rounds of documents that cannot wait for `sensors.write_interval`.
const URGENT_INTERVAL: Duration = Duration::from_millis(200);

/// A message to a shard.
#[derive(Debug)]
pub enum ShardMessage {
    /// Readings from the WAL.
    Dispatch(DispatchedBatch),
    /// Metadata changes of sensors, with the guards of their record.
    Meta { database: Arc<Database>, changes: Vec<(Arc<KnownSensor>, Meta)>, guards: RequestGuards },
    /// A deletion. No flush of its database starts until it is done.
    Delete(Arc<PendingDeletion>),
    /// The end of the first pending deletion of this database.
    Deleted(Box<str>),
    /// A request to check for due buckets.
    Wake,
    /// A request for the unflushed readings of sensors, given by index and id. The reply leaves out sensors without
    /// any.
    Unflushed {
        database: Arc<Database>,
        ids: Vec<(usize, u32)>,
        hours: Range<Hour>,
        reply: oneshot::Sender<Vec<RequestedSensor>>,
    },
    /// A request for the state of each sensor that its document lacks.
    Latest { database: Arc<Database>, sensors: Vec<Arc<KnownSensor>>, reply: oneshot::Sender<Vec<SensorUpdates>> },
}

/// A sensor of a request for unflushed readings.
#[derive(Debug)]
pub struct RequestedSensor {
    /// The index in the request.
    pub index: usize,
    /// The hours with unflushed readings.
    pub hours: Vec<UnflushedHour>,
}

/// The result of a finished task.
enum Completed {
    Pages(Vec<BucketFlush>),
    Documents(DocumentsOutcome),
}

/// The numbers of running tasks.
#[derive(Default)]
struct FlushesInProgress {
    pages: usize,
    documents: usize,
    /// Tasks of both kinds by database name.
    by_name: HashMap<Box<str>, usize>,
}

/// The state of a shard, which only its task uses.
pub struct Shard {
    number: usize,
    shards: usize,
    unflushed: Memtables,
    cache: BucketCache,
    memtable_budget: usize,
    document_writer: SensorDocumentWriter,
    /// Pending deletions by database name.
    deletions: HashMap<Box<str>, PendingDeletions>,
    /// The tasks that wait for the store, so that the shard's loop never does.
    flushes: JoinSet<(Arc<Database>, Completed)>,
    in_progress: FlushesInProgress,
    /// The size of readings and unpacked buckets, in bytes, at which a flush is complete.
    flush_bytes: usize,
    sensor_interval: Duration,
    context: Arc<FlushContext>,
    positions: Arc<WalPositions>,
}

impl Shard {
    pub fn new(number: usize, options: &Settings, context: Arc<FlushContext>, positions: Arc<WalPositions>) -> Self {
        let rules = DueRules {
            interval: options.flush.interval,
            quiet: options.flush.quiet,
            caps: options.caps(),
            direct_after: context.direct.map(|direct| direct.after_ns),
        };
        let memtable_budget = options.memtable.max_bytes / options.ingest.shards.max(1);
        Self {
            number,
            shards: options.ingest.shards.max(1),
            unflushed: Memtables::new(rules),
            cache: BucketCache::new(memtable_budget),
            memtable_budget,
            document_writer: SensorDocumentWriter::new(context.recent),
            deletions: HashMap::new(),
            flushes: JoinSet::new(),
            in_progress: FlushesInProgress::default(),
            flush_bytes: options.flush_task_bytes(),
            sensor_interval: options.sensors.write_interval,
            context,
            positions,
        }
    }

    /// Runs until the inbox is closed, then flushes everything. Returns true if everything is in the store. The rest is
    /// in the WAL.
    pub async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<ShardMessage>) -> bool {
        // Must be dropped before the inbox and the shard, even by a panic, so that their readings do not count as
        // stored.
        let seal = SealAtEnd::new(&self.positions);
        let mut sensors_due = Instant::now() + self.sensor_interval;
        let mut urgent_due = Instant::now();
        loop {
            tokio::select! {
                message = inbox.recv() => match message {
                    Some(message) => self.take(message),
                    None => {
                        let is_stored = self.finish().await;
                        if is_stored {
                            seal.disarm();
                        }
                        return is_stored;
                    }
                },
                Some(completed) = self.flushes.join_next() => self.complete(completed),
                () = tokio::time::sleep(TICK) => {}
            }
            for _ in 0..MESSAGES_MAX {
                let Ok(message) = inbox.try_recv() else { break };
                self.take(message);
            }
            self.start_flush(self.positions.due(), self.positions.is_pressed());
            let now = Instant::now();
            // Outdated documents pin records, so write them early if WAL space is short.
            if now >= sensors_due || self.positions.is_wal_pressed() {
                self.document_writer.begin_round(now);
            }
            if now >= sensors_due {
                sensors_due = now + self.sensor_interval;
            }
            if now >= urgent_due {
                self.document_writer.begin_urgent_round(now);
                urgent_due = now + URGENT_INTERVAL;
            }
            // Before the first read of the registry, the deletions are unknown.
            if !self.context.presence.is_away() && self.context.registry_view.is_known() {
                self.write_documents();
            }
        }
    }

    fn take(&mut self, message: ShardMessage) {
        match message {
            ShardMessage::Dispatch(dispatched) => {
                let database = dispatched.database.clone();
                self.unflushed.update_buckets(&database, |unflushed| unflushed.add(&dispatched, Instant::now()));
                self.note_unflushed();
                if self.unflushed.is_reported(&database) {
                    self.note_waits(&database);
                }
            }
            ShardMessage::Meta { database, changes, guards } => {
                for (known, change) in changes {
                    self.document_writer.note_meta(&database, &known, &change, &guards);
                }
            }
            ShardMessage::Delete(pending) => {
                let name = &*pending.deletion.database;
                self.unflushed.stop(name);
                self.deletions.entry(name.into()).or_default().waiting.push_back(pending.clone());
                self.arrive(name);
            }
            ShardMessage::Deleted(name) => self.end_deletion(&name),
            ShardMessage::Wake => {}
            ShardMessage::Unflushed { database, ids, hours, reply } => {
                let registry_view = &self.context.registry_view;
                let unflushed = self.unflushed.get(&database);
                let mut found = Vec::new();
                for (index, id) in ids {
                    let Some(unflushed) = unflushed else { break };
                    let unflushed_hours = unflushed.sensor_hours(id, &hours, registry_view);
                    if !unflushed_hours.is_empty() {
                        found.push(RequestedSensor { index, hours: unflushed_hours });
                    }
                }
                // The receiver may be closed.
                let _ = reply.send(found);
            }
            ShardMessage::Latest { database, sensors, reply } => {
                let latest = sensors.iter().map(|known| self.latest(&database, known));
                let _ = reply.send(latest.collect());
            }
        }
    }

    /// Starts flushes of due buckets, as many as are allowed at a time.
    fn start_flush(&mut self, due: Sequence, is_pressed: bool) {
        // Before the first read of the registry, the deletions and the floor are unknown.
        if !self.context.registry_view.is_known() {
            return;
        }
        let moment = FlushMoment { now: Instant::now(), clock: now_ns(), due, is_pressed };
        let probe = FlushBounds { buckets: PROBE_BUCKETS_MAX, bytes: self.flush_bytes };
        let probes = self.unflushed.probes();
        for loads in self.unflushed.next_probes(moment, probe, FLUSHES_MAX.saturating_sub(probes)) {
            self.start(loads);
        }
        let bounds = FlushBounds { buckets: FLUSH_BUCKETS_MAX, bytes: self.flush_bytes };
        while self.in_progress.pages < FLUSHES_MAX + self.unflushed.probes() {
            let cache = &self.cache;
            // A bucket that was evicted is read back, and stays in memory until its flush is over.
            let read_back_bytes = self.context.read_back_bytes.load(Ordering::Relaxed);
            let bucket_bytes = |load: &Load| {
                let (database, key) = (load.database.number, (load.known.id, load.hour));
                if cache.is_stored(database, key) { read_back_bytes } else { cache.unpacked_memory(database, key) }
            };
            let batches = self.unflushed.next(moment, bounds, bucket_bytes);
            if batches.is_empty() {
                return;
            }
            batches.into_iter().for_each(|loads| self.start(loads));
        }
    }

    /// Starts a flush of buckets of one database.
    fn start(&mut self, loads: Vec<Load>) {
        let Some(database) = loads.first().map(|load| load.database.clone()) else { return };
        let run = |load: Load| {
            let key = (load.known.id, load.hour);
            let is_stored = self.cache.is_stored(database.number, key);
            BucketFlush::new(load, self.cache.take(database.number, key), is_stored)
        };
        let runs: Vec<BucketFlush> = loads.into_iter().map(run).collect();
        let context = self.context.clone();
        self.in_progress.pages += 1;
        self.in_progress.start(&database);
        self.flushes.spawn(async move {
            let completed = flush_bucket(&context, &database, runs).await;
            (database, Completed::Pages(completed))
        });
    }

    /// Handles a finished task.
    fn complete(&mut self, completed: Result<(Arc<Database>, Completed), tokio::task::JoinError>) {
        let (database, completed) = match completed {
            Ok(completed) => completed,
            // A panicked flush has lost its buckets. End the shard too, and let the next start replay the unstored
            // readings.
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        };
        self.in_progress.end(&database);
        let flushed = match completed {
            Completed::Pages(runs) => {
                self.in_progress.pages -= 1;
                self.complete_pages(&database, runs)
            }
            Completed::Documents(outcome) => {
                self.in_progress.documents -= 1;
                self.document_writer.complete(&database, outcome, Instant::now(), &self.context.metrics)
            }
        };
        self.unflushed
            .update_buckets(&database, |unflushed| flushed.iter().for_each(|completed| unflushed.release(completed)));
        self.note_unflushed();
        self.write_urgent_documents(&database);
        self.arrive(&database.name);
    }

    /// Handles the buckets of a finished flush: puts stored ones into the bucket cache and failed ones back into the
    /// memtable. Returns the readings that are now flushed.
    fn complete_pages(&mut self, database: &Arc<Database>, runs: Vec<BucketFlush>) -> Vec<Arc<PackedRows>> {
        let now = Instant::now();
        // The first error of the store or the database, and the first one that a bucket caused.
        let mut away: Option<StorageError> = None;
        let mut own_error: Option<StorageError> = None;
        let mut stored = Vec::with_capacity(runs.len());
        for mut run in runs {
            let key = run.key();
            run.load.is_transient = matches!(&run.state, BucketFlushState::Failed(error) if error.is_transient());
            // `HourVersions` requires a note for any outcome, before the readings stop counting as unflushed.
            self.context.changes.note(self.context.changes.hash(&database.name, &run.id.sensor.key), key.1);
            match &run.state {
                BucketFlushState::Merged => stored.extend(self.complete_stored(database, run)),
                // No flush ends in these states. If one did, the readings might not be in the store.
                BucketFlushState::Stale | BucketFlushState::Partial => {
                    self.unflushed.update_buckets(database, |unflushed| unflushed.put_back(key, run.load, true, now));
                }
                BucketFlushState::DeadLettered(error) => {
                    self.positions.count_dead_lettered(run.load.rows.len() as u64);
                    let unflushed = self.unflushed.get(database);
                    for sequence in run.load.rows.stamps() {
                        if let Some(pending_ack) = unflushed.and_then(|unflushed| unflushed.pending_ack(sequence)) {
                            pending_ack.refuse(error);
                        }
                    }
                    self.context.blocked.clear(key);
                    stored.extend(self.unflushed.update_buckets(database, |unflushed| unflushed.complete(key)));
                }
                BucketFlushState::Failed(error) => {
                    self.context.metrics.store_error(error.class());
                    let own_failure = !error.is_away();
                    if own_failure {
                        self.context.blocked.note(&run.load, error);
                    }
                    let first = if own_failure { &mut own_error } else { &mut away };
                    first.get_or_insert_with(|| error.clone());
                    let put_back =
                        |unflushed: &mut MemtableBuckets| unflushed.put_back(key, run.load, own_failure, now);
                    self.unflushed.update_buckets(database, put_back);
                }
            }
        }
        let outcome = match &away {
            None => FlushOutcome::Stored,
            Some(error) if error.is_store_unreachable() => FlushOutcome::StoreFailed,
            Some(_) => FlushOutcome::DatabaseFailed,
        };
        self.unflushed.note_outcome(database, outcome, now);
        self.note_presence(&database.name, away.as_ref());
        self.note_unflushed();
        self.note_health(database, away.or(own_error));
        // Unflushed readings share the memory budget with the cache, and only the cache can shrink.
        let unflushed = self.positions.lag().unflushed_bytes / self.shards;
        let budget = memory::left_of(self.memtable_budget);
        self.cache.set_budget(budget.saturating_sub(unflushed).max(budget / 8));
        self.cache.shrink();
        self.positions.note_cache(self.number, self.cache.memory());
        self.context.metrics.cache(self.number, self.cache.len(), self.cache.memory());
        // A request counts as flushed only after new outliers are listed.
        self.document_writer.await_urgent(database, stored)
    }

    /// Notes whether the store answers.
    fn note_presence(&self, database: &str, away: Option<&StorageError>) {
        match away {
            None => self.context.presence.note(true),
            Some(error) => self.context.presence.note_failure(database, error, Instant::now()),
        }
    }

    /// Reports whether the store fails on a database, with the error of the last flush, if any.
    fn note_health(&mut self, database: &Database, error: Option<StorageError>) {
        let failing = &self.context.failing;
        let is_failing = self.unflushed.is_failing(database);
        let was_reported = self.unflushed.note_reported(database, is_failing);
        let waits = self.unflushed.waits(database);
        let database = &*database.name;
        if let Some(error) = error.filter(|_| is_failing) {
            let is_new = failing.note(self.number, database, &error, waits, now_ns());
            if is_new {
                tracing::warn!(shard = self.number, %database, bytes = waits.bytes, %error,
                    "cannot store readings; they stay in the WAL and are retried");
            }
        } else if is_failing {
            failing.note_waits(self.number, database, waits);
        } else if was_reported && failing.clear(self.number, database) {
            tracing::info!(%database, "the store accepts the readings of this database again");
        }
    }

    fn note_waits(&self, database: &Database) {
        self.context.failing.note_waits(self.number, &database.name, self.unflushed.waits(database));
    }

    fn note_unflushed(&self) {
        self.positions.note_unflushed(self.number, self.unflushed.memory());
    }

    /// Counts and caches a bucket that is in the store. Returns its readings, for [`MemtableBuckets::release`].
    fn complete_stored(&mut self, database: &Arc<Database>, mut run: BucketFlush) -> Option<Arc<PackedRows>> {
        let applied = run.applied;
        let key = run.key();
        self.context.metrics.late.increment(applied.late);
        let pages = run.bucket.pages().len();
        self.context.metrics.overflow_pages.increment(pages.saturating_sub(run.pages_before.max(1)) as u64);
        // If the bucket was just read, duplicates may come from an earlier flush with an unknown outcome.
        if run.has_changes() || !run.is_from_cache {
            let unflushed = self.unflushed.get(database);
            self.document_writer.note(
                database,
                &run,
                unflushed.and_then(|unflushed| unflushed.pending_ack(run.load.first)),
            );
        }
        self.positions.count_stored(applied);
        self.context.blocked.clear(key);
        self.positions.count_deleted(run.deleted);
        self.positions.count_dead_lettered(applied.set_aside);
        // Cache only buckets with a page. Otherwise nothing was written, and the store may have pages that were not
        // read.
        if !run.bucket.pages().is_empty() {
            run.bucket.leave_out(self.context.pages_max());
            self.cache.put(database.number, key, run.bucket);
        }
        self.unflushed.update_buckets(database, |unflushed| unflushed.complete(key))
    }

    /// Flushes everything that the store accepts. Returns true if nothing is left.
    async fn finish(&mut self) -> bool {
        self.unflushed.begin_last_attempt();
        loop {
            self.start_flush(Sequence::MAX, true);
            match self.flushes.join_next().await {
                Some(completed) => self.complete(completed),
                None => break,
            }
            if self.context.presence.is_away() {
                // Wait for the running flushes, and start no other.
                while let Some(completed) = self.flushes.join_next().await {
                    self.complete(completed);
                }
                break;
            }
        }
        // The next start carries out unfinished deletions, before everything logged after them.
        let is_stored = self.unflushed.len() == 0 && self.deletions.is_empty();
        if !is_stored {
            tracing::warn!(
                shard = self.number,
                buckets = self.unflushed.len(),
                "unflushed readings stay in the WAL until the next start"
            );
        }
        while is_stored && self.document_writer.len() > 0 {
            self.document_writer.begin_round(Instant::now());
            self.write_documents();
            match self.flushes.join_next().await {
                Some(completed) => self.complete(completed),
                None => return false,
            }
        }
        is_stored && !self.document_writer.has_failing_meta()
    }
}

impl FlushesInProgress {
    fn start(&mut self, database: &Database) {
        match self.by_name.get_mut(&database.name) {
            Some(count) => *count += 1,
            None => drop(self.by_name.insert(database.name.clone(), 1)),
        }
    }

    fn end(&mut self, database: &Database) {
        let Some(count) = self.by_name.get_mut(&database.name) else { return };
        *count -= 1;
        if *count == 0 {
            self.by_name.remove(&database.name);
        }
    }
}
