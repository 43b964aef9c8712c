//! A shard: the one owner of its sensors' hot buckets. It takes in what it is fed, sends what is
//! due to the store in flights, several at a time, and answers what it knows of its sensors.

mod documents;
mod memtables;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use self::memtables::{Memtable, Memtables, Moment, Room};
use super::Options;
use super::batch::Fed;
use super::catalog::{Database, KnownSensor};
use super::deletion::{Pending, Scope};
use super::flight::{Context, Run, State, fly};
use super::lagging::{Lagging, OfDatabase};
use super::progress::{Progress, SealAtEnd};
use super::refresh::{Documents, Latest, Outcome};
use super::unflushed::{Load, Rules, Unflushed};
use crate::bucket::hot::{Held, HotBuckets};
use crate::bucket::packed::Packed;
use crate::bucket::{StorageError, UnflushedHour};
use crate::clock::now_ns;
use crate::faults::{self, Bug};
use crate::log::Sequence;
use crate::reading::Hour;

/// Most buckets of one flight: as many as fill a command.
const FLIGHT_BUCKETS: usize = 1000;
/// Bytes of readings and buckets in memory that a flight has, and no further bucket is added: they are
/// encoded all at once.
const FLIGHT_BYTES: usize = 8 << 20;
/// Most buckets of the only flight of a database that the store fails on: enough to see that it takes them again.
const PROBE_BUCKETS: usize = 8;
/// Most messages taken before what is due is looked at again.
const MESSAGES: usize = 64;
/// How often what is due by the clock is looked for.
const TICK: Duration = Duration::from_millis(100);

/// What a shard is told or asked.
#[derive(Debug)]
pub enum Message {
    /// Readings from the log.
    Feed(Fed),
    /// Something is to be deleted: nothing of its database is launched until that is done.
    Delete(Arc<Pending>),
    /// The first of what is to be deleted of this database is.
    Deleted(Box<str>),
    /// What is due may have changed.
    Wake,
    /// Sensors' unflushed readings, hour by hour; of those that have none there is no answer.
    Unflushed {
        database: Arc<Database>,
        ids: Vec<(usize, u32)>,
        hours: Range<Hour>,
        reply: oneshot::Sender<Vec<Unstored>>,
    },
    /// What is known of sensors beyond their documents, one answer each.
    Latest { database: Arc<Database>, sensors: Vec<Arc<KnownSensor>>, reply: oneshot::Sender<Vec<Latest>> },
}

/// A sensor's place in the question, and its unflushed readings.
pub type Unstored = (usize, Vec<UnflushedHour>);

/// What a shard has sent to the store, when it comes back.
enum Landed {
    Pages(Vec<Run>),
    Documents(Outcome),
}

/// What a shard had of a database that was dropped.
#[derive(Debug)]
pub struct Taken {
    unflushed: Option<Memtable>,
    _hot: Option<Held>,
    _lagging: Option<OfDatabase>,
}

impl Taken {
    /// How many readings of it were not stored.
    pub fn readings(&self) -> usize {
        self.unflushed.as_ref().map_or(0, Memtable::readings)
    }
}

/// What is to be deleted of a database, in log order. While there is any, nothing of the database is launched.
#[derive(Default)]
struct Deletions {
    waiting: VecDeque<Arc<Pending>>,
    /// Whether the first of them waits for this shard no more.
    has_arrived: bool,
}

/// How much is on its way to the store.
#[derive(Default)]
struct InAir {
    pages: usize,
    documents: usize,
    /// Of both, by the database's name.
    by_name: HashMap<Box<str>, usize>,
}

/// One shard's state. Nothing else touches it.
pub struct Shard {
    number: usize,
    shards: usize,
    unflushed: Memtables,
    hot: HotBuckets,
    hot_budget: usize,
    lagging: Lagging,
    documents: Documents,
    /// By the database's name.
    deletions: HashMap<Box<str>, Deletions>,
    /// Nothing that waits for the store is done in this task itself: it would take no readings and answer nobody meanwhile.
    flights: JoinSet<(Arc<Database>, Landed)>,
    in_air: InAir,
    flights_max: usize,
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
            unflushed: Memtables::new(rules),
            hot: HotBuckets::new(hot_budget),
            hot_budget,
            lagging: Lagging::new(options.recent),
            documents: Documents::new(options),
            deletions: HashMap::new(),
            flights: JoinSet::new(),
            in_air: InAir::default(),
            flights_max: options.flights,
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
                    Some(message) => self.take(message),
                    None => {
                        let stored = self.finish().await;
                        if stored {
                            seal.disarm();
                        }
                        return stored;
                    }
                },
                Some(landed) = self.flights.join_next() => self.land(landed),
                () = tokio::time::sleep(TICK) => {}
            }
            for _ in 0..MESSAGES {
                let Ok(message) = inbox.try_recv() else { break };
                self.take(message);
            }
            self.launch(self.progress.due(), self.progress.is_pressed());
            // Until documents are written the log keeps the records that they lag behind.
            let (now, log_waits) = (Instant::now(), self.progress.is_log_pressed());
            if now >= sensors_due || log_waits {
                self.lagging.begin_round(now);
            }
            if now >= sensors_due {
                sensors_due = now + self.sensor_interval;
            }
            if !self.context.presence.is_away() {
                self.write_documents();
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Feed(fed) => {
                let database = fed.database.clone();
                self.unflushed.with(&database, |unflushed| unflushed.add(&fed, Instant::now()));
                self.note_unflushed();
                if self.unflushed.is_told(&database) {
                    self.note_waits(&database);
                }
            }
            Message::Delete(pending) => {
                let name = &*pending.deletion.database;
                self.unflushed.stop(name);
                self.deletions.entry(name.into()).or_default().waiting.push_back(pending.clone());
                self.arrive(name);
            }
            Message::Deleted(name) => self.go_on(&name),
            Message::Wake => {}
            Message::Unflushed { database, ids, hours, reply } => {
                let agreed = &self.context.agreed;
                let unflushed = self.unflushed.get(&database);
                let of_sensor = |(place, id)| {
                    (place, unflushed.map_or_else(Vec::new, |unflushed| unflushed.of_sensor(id, &hours, agreed)))
                };
                let found = ids.into_iter().map(of_sensor).filter(|(_, readings)| !readings.is_empty());
                // Whoever asked may have gone.
                let _ = reply.send(found.collect());
            }
            Message::Latest { database, sensors, reply } => {
                let latest = sensors.iter().map(|known| self.latest(&database, known));
                let _ = reply.send(latest.collect());
            }
        }
    }

    /// With the last flight of a database landed, drops what the first deletion of it is about and lets it go on.
    fn arrive(&mut self, name: &str) {
        let Some(deletions) = self.deletions.get_mut(name).filter(|deletions| !deletions.has_arrived) else { return };
        let Some(pending) = deletions.waiting.front().filter(|_| !self.in_air.by_name.contains_key(name)).cloned()
        else {
            return;
        };
        deletions.has_arrived = true;
        match (pending.doomed.database.clone(), &pending.deletion.scope) {
            (None, _) => {}
            (Some(database), Scope::Database) => self.drop_all(&database, &pending),
            (Some(database), Scope::Readings { .. }) => self.drop_some(&database, &pending),
        }
        pending.arrived.add_permits(1);
    }

    /// Goes on with the next deletion of a database, or with its flights.
    fn go_on(&mut self, name: &str) {
        let Some(deletions) = self.deletions.get_mut(name) else { return };
        deletions.waiting.pop_front();
        deletions.has_arrived = false;
        if deletions.waiting.is_empty() {
            self.deletions.remove(name);
            self.unflushed.resume(name);
        }
        self.arrive(name);
    }

    /// Drops what a deletion names of a database.
    fn drop_some(&mut self, database: &Arc<Database>, pending: &Pending) {
        let ids = &pending.doomed.ids;
        let deleted = self.unflushed.with(database, |unflushed| unflushed.delete(pending));
        self.note_unflushed();
        self.progress.deleted(deleted as u64);
        self.hot.forget(database.number, ids, &pending.deletion.hours());
        let unflushed = self.unflushed.get(database);
        let is_left = |key| unflushed.is_some_and(|unflushed| unflushed.has(key));
        self.context.blocked.retain(database, |key| !ids.contains(&key.0) || is_left(key));
        self.lagging.forget(database, ids);
        // With what the store did not take it may be well.
        self.note_health(database, None);
    }

    /// Drops a whole database: taken out at once, and freed where no query and no other database waits for it.
    fn drop_all(&mut self, database: &Arc<Database>, pending: &Pending) {
        let unflushed = self.unflushed.remove(database);
        self.note_unflushed();
        let is_told = unflushed.as_ref().is_some_and(Memtable::is_told);
        if is_told && self.context.failing.clear(self.number, &database.name) {
            tracing::info!(database = &*database.name, "what the store did not take of this database is deleted");
        }
        self.context.blocked.retain(database, |_| false);
        let (hot, lagging) = (self.hot.remove(database.number), self.lagging.remove(database));
        pending.take_over(Taken { unflushed, _hot: hot, _lagging: lagging });
    }

    /// Starts flights with what is due, as long as there is room for flights.
    fn launch(&mut self, due: Sequence, pressed: bool) {
        // Until the registry was read nobody knows what is deleted, and what lies below the floor.
        if !self.context.agreed.is_known() {
            return;
        }
        let at = Moment { now: Instant::now(), clock: now_ns(), due, pressed };
        let probe = Room { buckets: PROBE_BUCKETS, bytes: FLIGHT_BYTES };
        let probes = self.unflushed.probes();
        for loads in self.unflushed.next_probes(at, probe, self.flights_max.saturating_sub(probes)) {
            self.start(loads);
        }
        let room = Room { buckets: FLIGHT_BUCKETS, bytes: FLIGHT_BYTES };
        while self.in_air.pages < self.flights_max + self.unflushed.probes() {
            let hot = &self.hot;
            let more = |load: &Load| hot.unpacked_memory(load.database.number, (load.known.id, load.hour));
            let lots = self.unflushed.next(at, room, more);
            if lots.is_empty() {
                return;
            }
            lots.into_iter().for_each(|loads| self.start(loads));
        }
    }

    /// Starts a flight of buckets of one database.
    fn start(&mut self, loads: Vec<Load>) {
        let Some(database) = loads.first().map(|load| load.database.clone()) else { return };
        let run = |load: Load| {
            let key = (load.known.id, load.hour);
            let is_stored = self.hot.is_stored(database.number, key);
            Run::new(load, self.hot.take(database.number, key), is_stored)
        };
        let runs: Vec<Run> = loads.into_iter().map(run).collect();
        let context = self.context.clone();
        self.in_air.pages += 1;
        self.in_air.start(&database);
        self.flights.spawn(async move {
            let landed = fly(&context, &database, runs).await;
            (database, Landed::Pages(landed))
        });
    }

    /// Takes notice of what came back from the store.
    fn land(&mut self, landed: Result<(Arc<Database>, Landed), tokio::task::JoinError>) {
        let (database, landed) = match landed {
            Ok(landed) => landed,
            // A flight that panicked has taken its buckets with it: the shard ends too, and a restart
            // brings back from the log what was not stored.
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        };
        self.in_air.end(&database);
        let flushed = match landed {
            Landed::Pages(runs) => {
                self.in_air.pages -= 1;
                self.land_pages(&database, runs)
            }
            Landed::Documents(outcome) => {
                self.in_air.documents -= 1;
                self.lagging.landed(&database, outcome, Instant::now(), &self.context.metrics)
            }
        };
        self.unflushed.with(&database, |unflushed| flushed.iter().for_each(|landed| unflushed.let_go(landed)));
        self.note_unflushed();
        self.write_urgent_documents(&database);
        self.arrive(&database.name);
    }

    /// Counts what became of a flight's buckets and keeps the stored ones hot; what did not get
    /// there is tried again. Returns what counts as flushed with that.
    fn land_pages(&mut self, database: &Arc<Database>, runs: Vec<Run>) -> Vec<Arc<Packed>> {
        let now = Instant::now();
        let (mut away, mut own): (Option<StorageError>, Option<StorageError>) = (None, None);
        let mut stored = Vec::with_capacity(runs.len());
        for mut run in runs {
            let key = run.key();
            run.load.is_transient = matches!(&run.state, State::Failed(error) if error.is_transient());
            // Whatever became of it, and before its readings may stop counting as unflushed.
            self.context.changes.note(self.context.changes.place(&database.name, &run.id.sensor.key), key.1);
            match &run.state {
                State::Merged => stored.extend(self.stored(database, run)),
                // No flight ends like this. Should one, nothing says that the store has the readings.
                State::Stale => {
                    self.unflushed.with(database, |unflushed| unflushed.returned(key, run.load, true, now));
                }
                State::DeadLettered(error) => {
                    self.progress.dead_lettered(run.load.rows.len() as u64);
                    let unflushed = self.unflushed.get(database);
                    for sequence in run.load.rows.stamps() {
                        let ticket = unflushed.and_then(|unflushed| unflushed.ticket(sequence));
                        ticket.into_iter().for_each(|ticket| ticket.refuse(error));
                    }
                    self.context.blocked.clear(key);
                    stored.extend(self.unflushed.with(database, |unflushed| unflushed.landed(key)));
                }
                State::Failed(error) => {
                    self.context.metrics.store_error(error.class());
                    let own_failure = !error.is_away();
                    if own_failure {
                        self.context.blocked.note(&run, error);
                    }
                    let first = if own_failure { &mut own } else { &mut away };
                    first.get_or_insert_with(|| error.clone());
                    if faults::has(Bug::DropFailedFlight) {
                        stored.extend(self.unflushed.with(database, |unflushed| unflushed.landed(key)));
                    } else {
                        let back = |unflushed: &mut Unflushed| unflushed.returned(key, run.load, own_failure, now);
                        self.unflushed.with(database, back);
                    }
                }
            }
        }
        self.unflushed.landed(database, away.as_ref().map(StorageError::is_of_store), now);
        self.note_presence(&database.name, away.as_ref());
        self.note_unflushed();
        self.note_health(database, away.or(own));
        // What is unflushed counts against the same memory, and nobody can let it go.
        let unflushed = self.progress.lag().unflushed_bytes / self.shards;
        self.hot.set_budget(self.hot_budget.saturating_sub(unflushed).max(self.hot_budget / 8));
        self.hot.shrink();
        self.progress.note_hot(self.number, self.hot.memory());
        self.context.metrics.hot(self.number, self.hot.len(), self.hot.memory());
        // With its last reading gone a request counts as flushed: new outliers are listed by then.
        self.lagging.await_urgent(database, stored)
    }

    /// Notes whether the store answers. What fails on one database says nothing of the store.
    fn note_presence(&self, database: &str, away: Option<&StorageError>) {
        match away {
            None => self.context.presence.note(true),
            Some(error) => self.context.presence.missed(database, error, Instant::now()),
        }
    }

    /// Tells whether the store fails on a database, and why it did just now, if so.
    fn note_health(&mut self, database: &Database, error: Option<StorageError>) {
        let (failing, is_failing) = (&self.context.failing, self.unflushed.is_failing(database));
        let was_told = self.unflushed.tell(database, is_failing);
        let (waits, database) = (self.unflushed.waits(database), &*database.name);
        if let Some(error) = error.filter(|_| is_failing) {
            let is_news = failing.note(self.number, database, &error, waits, now_ns());
            if is_news {
                tracing::warn!(shard = self.number, %database, bytes = waits.bytes, %error,
                    "readings could not be stored; they are in the log and tried again, and other databases go on");
            }
        } else if is_failing {
            failing.note_waits(self.number, database, waits);
        } else if was_told && failing.clear(self.number, database) {
            tracing::info!(%database, "the store takes the readings of this database again");
        }
    }

    fn note_waits(&self, database: &Database) {
        self.context.failing.note_waits(self.number, &database.name, self.unflushed.waits(database));
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
            let unflushed = self.unflushed.get(database);
            self.lagging.note(database, &run, unflushed.and_then(|unflushed| unflushed.ticket(run.load.first)));
        }
        self.progress.stored(applied);
        self.context.blocked.clear(key);
        self.progress.deleted(run.deleted);
        self.progress.dead_lettered(applied.set_aside);
        // Nothing came to the store, and nobody has asked what it has.
        if !run.bucket.pages().is_empty() {
            self.hot.put(database.number, key, run.bucket);
        }
        self.unflushed.with(database, |unflushed| unflushed.landed(key))
    }

    /// Brings everything to the store, as far as the store takes it.
    async fn finish(&mut self) -> bool {
        self.unflushed.try_for_the_last_time();
        loop {
            self.launch(Sequence::MAX, true);
            match self.flights.join_next().await {
                Some(landed) => self.land(landed),
                None => break,
            }
            if self.context.presence.is_away() {
                // The flights under way are waited for, no other is started.
                while let Some(landed) = self.flights.join_next().await {
                    self.land(landed);
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
            self.lagging.begin_round(Instant::now());
            self.write_documents();
            match self.flights.join_next().await {
                Some(landed) => self.land(landed),
                None => return false,
            }
        }
        stored
    }
}

impl InAir {
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
