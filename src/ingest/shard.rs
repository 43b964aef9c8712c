//! A shard: the one owner of its sensors' hot buckets. It takes in what it is fed, sends what is
//! due to the store in flights, several at a time, and answers what it knows of its sensors.

mod documents;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::Options;
use super::batch::Fed;
use super::catalog::{Database, KnownSensor};
use super::deletion::Pending;
use super::flight::{Context, Run, State, fly};
use super::lagging::{Lagging, Surroundings};
use super::progress::{Progress, SealAtEnd};
use super::unflushed::{Load, Rules, Unflushed};
use crate::bucket::hot::{HotBuckets, HotKey};
use crate::bucket::packed::Packed;
use crate::bucket::{Readings, SensorDocument, StorageError};
use crate::clock::now_ns;
use crate::faults::{self, Bug};
use crate::log::Sequence;
use crate::reading::Hour;

/// Most buckets of one flight: as many as fill a command.
const FLIGHT_BUCKETS: usize = 1000;
/// Bytes of readings and buckets in memory that a flight has, and no further bucket is added: they are
/// encoded all at once.
const FLIGHT_BYTES: usize = 8 << 20;
/// Most buckets of the only flight while the store is away: enough to see that it is back.
const PROBE_BUCKETS: usize = 8;
/// Most messages taken before what is due is looked at again.
const MESSAGES: usize = 64;
/// How often what is due by the clock is looked for.
const TICK: Duration = Duration::from_millis(100);
/// How long after the store was found away it is tried again, at first and at most.
const RETRY: Range<Duration> = Duration::from_millis(100)..Duration::from_secs(2);

/// What a shard is told or asked.
#[derive(Debug)]
pub enum Message {
    /// Readings from the log.
    Feed(Fed),
    /// Something is to be deleted: nothing is launched until that is done.
    Delete(Arc<Pending>),
    /// The first of what is to be deleted is.
    Deleted,
    /// What is due may have changed.
    Wake,
    /// Sensors' unflushed readings, hour by hour; of those that have none there is no answer.
    Unflushed { ids: Vec<(usize, u32)>, hours: Range<Hour>, reply: oneshot::Sender<Vec<Unstored>> },
    /// Bring sensor documents up to date.
    Refresh { database: Arc<Database>, documents: Vec<Refreshing>, reply: oneshot::Sender<Refreshed> },
}

/// A sensor's place in the question, and its unflushed readings.
pub type Unstored = (usize, Vec<(Hour, Readings)>);
/// A document to be brought up to date: its place in the answer, its sensor, what the store says.
pub type Refreshing = (usize, Arc<KnownSensor>, SensorDocument);
/// Documents with their places, or why they could not be brought up to date.
pub type Refreshed = Result<Vec<(usize, SensorDocument)>, StorageError>;

/// One shard's state. Nothing else touches it.
pub struct Shard {
    number: usize,
    shards: usize,
    unflushed: Unflushed,
    hot: HotBuckets,
    hot_budget: usize,
    lagging: Lagging,
    /// Buckets with a write that may have been applied, or may yet be: nobody has learnt which.
    doubtful: HashSet<HotKey>,
    /// What is to be deleted, in log order. While there is any, nothing is launched.
    deletions: VecDeque<Arc<Pending>>,
    /// Whether the first of them waits for this shard no more.
    has_arrived: bool,
    flights: JoinSet<(Arc<Database>, Vec<Run>)>,
    flights_max: usize,
    /// The store was away: not before this time, and how long after the next vain try.
    retry: Option<(Instant, Duration)>,
    sensor_interval: Duration,
    context: Arc<Context>,
    progress: Arc<Progress>,
}

impl Shard {
    /// A shard with no buckets yet.
    pub fn new(number: usize, options: &Options, context: Arc<Context>, progress: Arc<Progress>) -> Self {
        let rules = Rules { interval: options.flush_interval, quiet: options.flush_quiet, caps: options.caps };
        let hot_budget = options.hot_bytes / options.shards.max(1);
        Self {
            number,
            shards: options.shards.max(1),
            unflushed: Unflushed::new(rules),
            hot: HotBuckets::new(hot_budget),
            hot_budget,
            lagging: Lagging::new(options.recent, options.outlier_ttl),
            doubtful: HashSet::new(),
            deletions: VecDeque::new(),
            has_arrived: false,
            flights: JoinSet::new(),
            flights_max: options.flights,
            retry: None,
            sensor_interval: options.sensor_interval,
            context,
            progress,
        }
    }

    /// Works until the inbox is closed, then brings everything to the store, and tells whether it
    /// got there; what did not is in the log.
    pub async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Message>) -> bool {
        // Dropped before the inbox and the shard, whichever way this ends.
        let seal = SealAtEnd::new(&self.progress);
        let mut sensors_due = Instant::now() + self.sensor_interval;
        loop {
            tokio::select! {
                message = inbox.recv() => match message {
                    Some(message) => self.take(message).await,
                    None => {
                        let stored = self.finish().await;
                        if stored {
                            seal.disarm();
                        }
                        return stored;
                    }
                },
                Some(landed) = self.flights.join_next() => self.land(landed).await,
                () = tokio::time::sleep(TICK) => {}
            }
            for _ in 0..MESSAGES {
                let Ok(message) = inbox.try_recv() else { break };
                self.take(message).await;
            }
            self.launch(self.progress.due(), self.progress.is_pressed());
            // A busy inbox must not keep the documents waiting for ever, nor they the inbox. Until they
            // are written the log keeps the records that they lag behind.
            let log_waits = self.progress.is_log_pressed() && self.lagging.len() > 0;
            if Instant::now() >= sensors_due || log_waits {
                let written = self.context.presence.is_away() || self.write_some_sensors().await;
                if !written || self.context.presence.is_away() || self.lagging.len() == 0 {
                    sensors_due = Instant::now() + self.sensor_interval;
                }
            }
        }
    }

    async fn take(&mut self, message: Message) {
        match message {
            Message::Feed(fed) => {
                self.unflushed.add(&fed, Instant::now());
                self.note_unflushed();
            }
            Message::Delete(pending) => {
                self.deletions.push_back(pending);
                self.arrive();
            }
            Message::Deleted => {
                self.deletions.pop_front();
                self.has_arrived = false;
                self.arrive();
            }
            Message::Wake => {}
            Message::Unflushed { ids, hours, reply } => {
                let of_sensor = |(place, id)| (place, self.unflushed.of_sensor(id, &hours));
                let found = ids.into_iter().map(of_sensor).filter(|(_, readings)| !readings.is_empty());
                // Whoever asked may have gone.
                let _ = reply.send(found.collect());
            }
            Message::Refresh { database, documents, reply } => {
                let refreshed = self.refresh(&database, documents).await;
                let _ = reply.send(refreshed);
            }
        }
    }

    /// With the last flight landed, drops what the first deletion is about and lets it go on.
    fn arrive(&mut self) {
        let Some(pending) = self.deletions.front().filter(|_| !self.has_arrived && self.flights.is_empty()) else {
            return;
        };
        let deleted = self.unflushed.delete(pending);
        self.progress.note_unflushed(self.number, self.unflushed.memory());
        self.progress.deleted(deleted as u64);
        self.hot.forget(&pending.ids, &pending.deletion.hours());
        let (unflushed, ids) = (&self.unflushed, &pending.ids);
        self.context.blocked.retain(|key| !ids.contains(&key.0) || unflushed.has(key));
        self.lagging.forget(&pending.ids);
        // What is cut is written to again under the same numbers.
        if pending.deletion.is_of_all_times() {
            self.doubtful.retain(|(id, _)| !pending.ids.contains(id));
        }
        pending.arrived.add_permits(1);
        self.has_arrived = true;
    }

    /// Starts flights with what is due, as long as there is room for flights.
    fn launch(&mut self, due: Sequence, pressed: bool) {
        if !self.deletions.is_empty() {
            return;
        }
        let (now, clock) = (Instant::now(), now_ns());
        if self.retry.is_some_and(|(at, _)| now < at) {
            return;
        }
        let (flights, buckets) =
            if self.retry.is_some() { (1, PROBE_BUCKETS) } else { (self.flights_max, FLIGHT_BUCKETS) };
        while self.flights.len() < flights {
            let mut by_database: BTreeMap<Box<str>, (Arc<Database>, Vec<Load>)> = BTreeMap::new();
            let mut bytes = 0;
            for _ in 0..buckets {
                if bytes >= FLIGHT_BYTES {
                    break;
                }
                let next = self.unflushed.next_due(now, clock, due, pressed);
                let Some((key, load)) = next.and_then(|key| Some((key, self.unflushed.take(key)?))) else { break };
                bytes += load.bytes;
                bytes += self.hot.unpacked_memory(key);
                let name = load.database.name.clone();
                by_database.entry(name).or_insert_with(|| (load.database.clone(), Vec::new())).1.push(load);
            }
            if by_database.is_empty() {
                return;
            }
            for (database, loads) in by_database.into_values() {
                self.start(database, loads);
            }
        }
    }

    fn start(&mut self, database: Arc<Database>, loads: Vec<Load>) {
        let run = |load: Load| {
            let key = (load.known.id, load.hour);
            let is_stored = self.hot.is_stored(key);
            Run::new(load, self.hot.take(key), is_stored, self.doubtful.remove(&key))
        };
        let runs: Vec<Run> = loads.into_iter().map(run).collect();
        let context = self.context.clone();
        self.flights.spawn(async move {
            let landed = fly(&context, &database, runs).await;
            (database, landed)
        });
    }

    /// Counts what became of a flight's buckets and keeps the stored ones hot; what did not get
    /// there is tried again.
    async fn land(&mut self, landed: Result<(Arc<Database>, Vec<Run>), tokio::task::JoinError>) {
        let (database, runs) = match landed {
            Ok(landed) => landed,
            // A flight that panicked has taken its buckets with it: the shard ends too, and a restart
            // brings back from the log what was not stored.
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        };
        let now = Instant::now();
        let (mut away, mut failed): (Option<StorageError>, usize) = (None, 0);
        // With its last reading gone a request counts as flushed: new outliers are listed by then.
        let mut stored = Vec::with_capacity(runs.len());
        for mut run in runs {
            let key = run.key();
            run.load.is_transient = matches!(&run.state, State::Failed(error) if error.is_transient());
            // Whatever became of it, and before its readings may stop counting as unflushed.
            self.context.changes.note(self.context.changes.place(&database.name, &run.id.sensor.key), key.1);
            match &run.state {
                State::Merged => stored.extend(self.stored(&database, run)),
                // No flight ends like this. Should one, nothing says that the store has the readings.
                State::Doubted | State::Stale => self.unflushed.returned(key, run.load, true, now),
                State::DeadLettered(error) => {
                    self.progress.dead_lettered(run.load.rows.len() as u64);
                    for sequence in run.load.rows.sequences() {
                        self.unflushed.ticket(sequence).into_iter().for_each(|ticket| ticket.refuse(error));
                    }
                    self.context.blocked.clear(key);
                    stored.extend(self.unflushed.landed(key));
                }
                State::Failed(error) => {
                    self.context.metrics.store_error(error.class());
                    failed += 1;
                    let own_failure = !error.is_away();
                    away = away.or_else(|| Some(error.clone()).filter(StorageError::is_away));
                    if own_failure {
                        self.context.blocked.note(&run, error);
                    }
                    if run.doubtful {
                        self.doubtful.insert(key);
                    }
                    if faults::has(Bug::DropFailedFlight) {
                        stored.extend(self.unflushed.landed(key));
                    } else {
                        self.unflushed.returned(key, run.load, own_failure, now);
                    }
                }
            }
        }
        self.note_presence(away, failed);
        let urgent = self.lagging.write_urgent(surroundings(&self.context, &self.hot)).await;
        self.sensors_written(urgent);
        stored.iter().for_each(|landed| self.unflushed.let_go(landed));
        self.note_unflushed();
        // What is unflushed counts against the same memory, and nobody can let it go.
        let unflushed = self.progress.lag().unflushed_bytes / self.shards;
        self.hot.set_budget(self.hot_budget.saturating_sub(unflushed).max(self.hot_budget / 8));
        self.hot.shrink();
        self.progress.note_hot(self.number, self.hot.memory());
        self.context.metrics.hot(self.number, self.hot.len(), self.hot.memory());
        self.arrive();
    }

    fn note_presence(&mut self, failure: Option<StorageError>, buckets: usize) {
        let Some(error) = failure else {
            if self.retry.take().is_some() {
                tracing::info!(shard = self.number, "the store takes readings again");
            }
            self.context.presence.note(true);
            return;
        };
        let wait = self.retry.map_or(RETRY.start, |(_, wait)| (wait * 2).min(RETRY.end));
        if self.retry.is_none() {
            tracing::warn!(shard = self.number, buckets, %error, "readings could not be stored; they are in the log and tried again");
        }
        self.retry = Some((Instant::now() + wait, wait));
        self.context.presence.note(!error.is_away());
    }

    fn note_unflushed(&self) {
        self.progress.note_unflushed(self.number, self.unflushed.memory());
    }

    /// Counts a bucket that is in the store and keeps it hot. Its readings are to be let go, so that those
    /// who wait for that are told.
    fn stored(&mut self, database: &Arc<Database>, run: Run) -> Option<Arc<Packed>> {
        let (applied, key) = (run.applied, run.key());
        self.context.metrics.late.increment(applied.late);
        let pages = run.bucket.pages().len();
        self.context.metrics.overflow_pages.increment(pages.saturating_sub(run.pages_before.max(1)) as u64);
        // Duplicates of a bucket just read may be readings whose first flight was never learnt of.
        if run.changed() || !run.from_hot {
            self.lagging.note(database, &run, self.unflushed.ticket(run.load.first));
        }
        self.progress.stored(applied);
        self.context.blocked.clear(key);
        self.hot.put(key, run.bucket);
        self.unflushed.landed(key)
    }

    /// Brings everything to the store, as far as the store takes it.
    async fn finish(&mut self) -> bool {
        self.retry = None;
        loop {
            self.launch(Sequence::MAX, true);
            match self.flights.join_next().await {
                Some(landed) => self.land(landed).await,
                None => break,
            }
            if self.retry.is_some() {
                // The flights under way are waited for, no other is started.
                while let Some(landed) = self.flights.join_next().await {
                    self.land(landed).await;
                }
                break;
            }
        }
        // A deletion that was not done by now is at the next start, and what comes after it.
        let stored = self.unflushed.len() == 0 && self.deletions.is_empty();
        if !stored {
            tracing::warn!(
                shard = self.number,
                buckets = self.unflushed.len(),
                "readings stay in the log until the next start"
            );
        }
        while stored && self.lagging.len() > 0 {
            if !self.write_some_sensors().await {
                return false;
            }
        }
        stored
    }
}

fn surroundings<'a>(context: &'a Context, hot: &'a HotBuckets) -> Surroundings<'a> {
    Surroundings { store: &*context.store, hot, metrics: &context.metrics, now: now_ns() }
}
