//! A shard owns a share of the sensors: their memtables, their cached buckets and their flushes. It takes in dispatched
//! readings, runs several flush tasks at a time, and answers queries about unflushed readings.

mod deletions;
mod documents;
mod memtables;
pub mod pending;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::flush::document_writer::SensorDocumentWriter;
use super::flush::documents::{DocumentsOutcome, Latest};
use super::flush::task::{BucketFlush, BucketFlushState, FlushContext, flush_bucket};
use super::memtable::{DueRules, Load, MemtableBuckets};
use super::record::batch::DispatchedBatch;
use super::shard::deletions::PendingDeletions;
use super::shard::memtables::{FlushBounds, FlushMoment, Memtables};
use super::shard::pending::PendingDeletion;
use crate::bucket::cache::BucketCache;
use crate::bucket::packed::Packed;
use crate::bucket::{Meta, StorageError, UnflushedHour};
use crate::catalog::{Database, KnownSensor};
use crate::clock::now_ns;
use crate::config::{FLUSHES_MAX, Settings};
use crate::members::positions::{SealAtEnd, Tracked, WalPositions};
use crate::reading::Hour;
use crate::wal::Sequence;

/// Most buckets of one flush: as many as fill a command.
const FLUSH_BUCKETS: usize = 1000;
/// Most buckets of a probe, the only flush of a database that the store fails on: enough to see whether it recovered.
const PROBE_BUCKETS: usize = 8;
/// Most messages handled before the shard looks again at what is due.
const MESSAGES: usize = 64;
/// How often the shard looks for buckets that are due by the clock.
const TICK: Duration = Duration::from_millis(100);

/// How often documents are written that cannot wait for `sensors.write_interval`.
const URGENT_INTERVAL: Duration = Duration::from_millis(200);

/// A message to a shard.
#[derive(Debug)]
pub enum ShardMessage {
    /// Readings from the WAL.
    Dispatch(DispatchedBatch),
    /// Changes of sensors' metadata, with the guards of their record.
    Meta { database: Arc<Database>, changes: Vec<(Arc<KnownSensor>, Meta)>, tracked: Tracked },
    /// A deletion: no flush of its database starts until it is done.
    Delete(Arc<PendingDeletion>),
    /// The first pending deletion of this database is done.
    Deleted(Box<str>),
    /// What is due may have changed.
    Wake,
    /// Asks for sensors' unflushed readings, hour by hour. The reply leaves out sensors that have none.
    Unflushed {
        database: Arc<Database>,
        ids: Vec<(usize, u32)>,
        hours: Range<Hour>,
        reply: oneshot::Sender<Vec<UnflushedOf>>,
    },
    /// Asks what the shard knows of sensors that their documents lack; one answer each.
    Latest { database: Arc<Database>, sensors: Vec<Arc<KnownSensor>>, reply: oneshot::Sender<Vec<Latest>> },
}

/// A sensor's place in the question, and its unflushed readings.
pub type UnflushedOf = (usize, Vec<UnflushedHour>);

/// What a finished task returns.
enum Completed {
    Pages(Vec<BucketFlush>),
    Documents(DocumentsOutcome),
}

/// Tasks under way.
#[derive(Default)]
struct FlushesInProgress {
    pages: usize,
    documents: usize,
    /// Both kinds, by database name.
    by_name: HashMap<Box<str>, usize>,
}

/// One shard's state; only its task uses it.
pub struct Shard {
    number: usize,
    shards: usize,
    unflushed: Memtables,
    cache: BucketCache,
    memtable_budget: usize,
    document_writer: SensorDocumentWriter,
    /// By database name.
    deletions: HashMap<Box<str>, PendingDeletions>,
    /// All that waits for the store runs in these tasks, so that the shard's own loop keeps taking readings and
    /// answering.
    flushes: JoinSet<(Arc<Database>, Completed)>,
    in_progress: FlushesInProgress,
    /// No further bucket is added to a flush with this many bytes of readings and unpacked buckets.
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

    /// Runs until the inbox is closed, then flushes everything. Returns whether all of it is in the store; the rest is
    /// in the WAL.
    pub async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<ShardMessage>) -> bool {
        // Must be dropped before the inbox and the shard, also on a panic: their readings must not count as stored.
        let seal = SealAtEnd::new(&self.positions);
        let (mut sensors_due, mut urgent_due) = (Instant::now() + self.sensor_interval, Instant::now());
        loop {
            tokio::select! {
                message = inbox.recv() => match message {
                    Some(message) => self.take(message),
                    None => {
                        let stored = self.finish().await;
                        if stored {
                            seal.disarm();
                        }
                        return stored;
                    }
                },
                Some(completed) = self.flushes.join_next() => self.complete(completed),
                () = tokio::time::sleep(TICK) => {}
            }
            for _ in 0..MESSAGES {
                let Ok(message) = inbox.try_recv() else { break };
                self.take(message);
            }
            self.start_flush(self.positions.due(), self.positions.is_pressed());
            // Until an outdated document is written, it keeps its records in the WAL.
            let (now, log_waits) = (Instant::now(), self.positions.is_wal_pressed());
            if now >= sensors_due || log_waits {
                self.document_writer.begin_round(now);
            }
            if now >= sensors_due {
                sensors_due = now + self.sensor_interval;
            }
            if now >= urgent_due {
                self.document_writer.begin_urgent_round(now);
                urgent_due = now + URGENT_INTERVAL;
            }
            // Before the first read of the registry, the deletions are not known.
            if !self.context.presence.is_away() && self.context.registry_view.is_known() {
                self.write_documents();
            }
        }
    }

    fn take(&mut self, message: ShardMessage) {
        match message {
            ShardMessage::Dispatch(dispatched) => {
                let database = dispatched.database.clone();
                self.unflushed.with(&database, |unflushed| unflushed.add(&dispatched, Instant::now()));
                self.note_unflushed();
                if self.unflushed.is_reported(&database) {
                    self.note_waits(&database);
                }
            }
            ShardMessage::Meta { database, changes, tracked } => {
                for (known, change) in changes {
                    self.document_writer.note_meta(&database, &known, &change, &tracked);
                }
            }
            ShardMessage::Delete(pending) => {
                let name = &*pending.deletion.database;
                self.unflushed.stop(name);
                self.deletions.entry(name.into()).or_default().waiting.push_back(pending.clone());
                self.arrive(name);
            }
            ShardMessage::Deleted(name) => self.go_on(&name),
            ShardMessage::Wake => {}
            ShardMessage::Unflushed { database, ids, hours, reply } => {
                let registry_view = &self.context.registry_view;
                let unflushed = self.unflushed.get(&database);
                let of_sensor = |(place, id)| {
                    (place, unflushed.map_or_else(Vec::new, |unflushed| unflushed.of_sensor(id, &hours, registry_view)))
                };
                let found = ids.into_iter().map(of_sensor).filter(|(_, readings)| !readings.is_empty());
                // The receiver may be gone.
                let _ = reply.send(found.collect());
            }
            ShardMessage::Latest { database, sensors, reply } => {
                let latest = sensors.iter().map(|known| self.latest(&database, known));
                let _ = reply.send(latest.collect());
            }
        }
    }

    /// Starts flushes of what is due, as many as there is room for.
    fn start_flush(&mut self, due: Sequence, pressed: bool) {
        // Before the first read of the registry, neither the deletions nor the floor are known.
        if !self.context.registry_view.is_known() {
            return;
        }
        let at = FlushMoment { now: Instant::now(), clock: now_ns(), due, pressed };
        let probe = FlushBounds { buckets: PROBE_BUCKETS, bytes: self.flush_bytes };
        let probes = self.unflushed.probes();
        for loads in self.unflushed.next_probes(at, probe, FLUSHES_MAX.saturating_sub(probes)) {
            self.start(loads);
        }
        let room = FlushBounds { buckets: FLUSH_BUCKETS, bytes: self.flush_bytes };
        while self.in_progress.pages < FLUSHES_MAX + self.unflushed.probes() {
            let cache = &self.cache;
            let more = |load: &Load| cache.unpacked_memory(load.database.number, (load.known.id, load.hour));
            let batches = self.unflushed.next(at, room, more);
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
            // A panicked flush has lost its buckets. The shard ends too, and the next start replays from the WAL what
            // was not stored.
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
                self.document_writer.completed(&database, outcome, Instant::now(), &self.context.metrics)
            }
        };
        self.unflushed.with(&database, |unflushed| flushed.iter().for_each(|completed| unflushed.release(completed)));
        self.note_unflushed();
        self.write_urgent_documents(&database);
        self.arrive(&database.name);
    }

    /// Accounts for a flush's buckets: stored ones go to the bucket cache, failed ones back to the memtable. Returns
    /// the readings that now count as flushed.
    fn complete_pages(&mut self, database: &Arc<Database>, runs: Vec<BucketFlush>) -> Vec<Arc<Packed>> {
        let now = Instant::now();
        let (mut away, mut own): (Option<StorageError>, Option<StorageError>) = (None, None);
        let mut stored = Vec::with_capacity(runs.len());
        for mut run in runs {
            let key = run.key();
            run.load.is_transient = matches!(&run.state, BucketFlushState::Failed(error) if error.is_transient());
            // Whatever the outcome, and before the readings stop counting as unflushed, as `HourVersions` demands.
            self.context.changes.note(self.context.changes.place(&database.name, &run.id.sensor.key), key.1);
            match &run.state {
                BucketFlushState::Merged => stored.extend(self.stored(database, run)),
                // No flush ends in these states. If one did, nothing would prove that the store has the readings.
                BucketFlushState::Stale | BucketFlushState::Partial => {
                    self.unflushed.with(database, |unflushed| unflushed.returned(key, run.load, true, now));
                }
                BucketFlushState::DeadLettered(error) => {
                    self.positions.count_dead_lettered(run.load.rows.len() as u64);
                    let unflushed = self.unflushed.get(database);
                    for sequence in run.load.rows.stamps() {
                        let pending_ack = unflushed.and_then(|unflushed| unflushed.pending_ack(sequence));
                        pending_ack.into_iter().for_each(|pending_ack| pending_ack.refuse(error));
                    }
                    self.context.blocked.clear(key);
                    stored.extend(self.unflushed.with(database, |unflushed| unflushed.completed(key)));
                }
                BucketFlushState::Failed(error) => {
                    self.context.metrics.store_error(error.class());
                    let own_failure = !error.is_away();
                    if own_failure {
                        self.context.blocked.note(&run.load, error);
                    }
                    let first = if own_failure { &mut own } else { &mut away };
                    first.get_or_insert_with(|| error.clone());
                    let back = |unflushed: &mut MemtableBuckets| unflushed.returned(key, run.load, own_failure, now);
                    self.unflushed.with(database, back);
                }
            }
        }
        self.unflushed.completed(database, away.as_ref().map(StorageError::is_of_store), now);
        self.note_presence(&database.name, away.as_ref());
        self.note_unflushed();
        self.note_health(database, away.or(own));
        // Unflushed readings use the same memory, and the cache is what can shrink.
        let unflushed = self.positions.lag().unflushed_bytes / self.shards;
        self.cache.set_budget(self.memtable_budget.saturating_sub(unflushed).max(self.memtable_budget / 8));
        self.cache.shrink();
        self.positions.note_cache(self.number, self.cache.memory());
        self.context.metrics.cache(self.number, self.cache.len(), self.cache.memory());
        // A request counts as flushed only after new outliers are listed.
        self.document_writer.await_urgent(database, stored)
    }

    /// Notes whether the store answers. A failure on one database says nothing about the whole store.
    fn note_presence(&self, database: &str, away: Option<&StorageError>) {
        match away {
            None => self.context.presence.note(true),
            Some(error) => self.context.presence.note_failure(database, error, Instant::now()),
        }
    }

    /// Reports whether the store fails on a database, and the error if it just did.
    fn note_health(&mut self, database: &Database, error: Option<StorageError>) {
        let (failing, is_failing) = (&self.context.failing, self.unflushed.is_failing(database));
        let was_reported = self.unflushed.note_reported(database, is_failing);
        let (waits, database) = (self.unflushed.waits(database), &*database.name);
        if let Some(error) = error.filter(|_| is_failing) {
            let is_news = failing.note(self.number, database, &error, waits, now_ns());
            if is_news {
                tracing::warn!(shard = self.number, %database, bytes = waits.bytes, %error,
                    "readings could not be stored; they stay in the WAL and are retried");
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

    /// Accounts for a bucket that is in the store, and caches it. Returns its readings, for
    /// [`MemtableBuckets::release`].
    fn stored(&mut self, database: &Arc<Database>, mut run: BucketFlush) -> Option<Arc<Packed>> {
        let (applied, key) = (run.applied, run.key());
        self.context.metrics.late.increment(applied.late);
        let pages = run.bucket.pages().len();
        self.context.metrics.overflow_pages.increment(pages.saturating_sub(run.pages_before.max(1)) as u64);
        // If the bucket was just read, duplicates may be readings of an earlier flush whose outcome was unknown.
        if run.changed() || !run.from_cache {
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
        // Without a page nothing was written, and the store may have pages that were not read.
        if !run.bucket.pages().is_empty() {
            run.bucket.leave_out(self.context.pages_max());
            self.cache.put(database.number, key, run.bucket);
        }
        self.unflushed.with(database, |unflushed| unflushed.completed(key))
    }

    /// Flushes everything that the store accepts.
    async fn finish(&mut self) -> bool {
        self.unflushed.try_for_the_last_time();
        loop {
            self.start_flush(Sequence::MAX, true);
            match self.flushes.join_next().await {
                Some(completed) => self.complete(completed),
                None => break,
            }
            if self.context.presence.is_away() {
                // Wait for the flushes under way, start no other.
                while let Some(completed) = self.flushes.join_next().await {
                    self.complete(completed);
                }
                break;
            }
        }
        // A deletion that is not done by now is carried out at the next start, with everything logged after it.
        let stored = self.unflushed.len() == 0 && self.deletions.is_empty();
        if !stored {
            tracing::warn!(
                shard = self.number,
                buckets = self.unflushed.len(),
                "unflushed readings stay in the WAL until the next start"
            );
        }
        while stored && self.document_writer.len() > 0 {
            self.document_writer.begin_round(Instant::now());
            self.write_documents();
            match self.flushes.join_next().await {
                Some(completed) => self.complete(completed),
                None => return false,
            }
        }
        stored && !self.document_writer.has_failing_meta()
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
