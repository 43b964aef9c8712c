//! From a request's body to the store: lines are judged at the door, the request becomes a record
//! of the log, its readings are fed to the shards, and those bring them to the store in flights.
//! An ack is sent when the record is durable, or when the store has the readings. Reaches storage
//! only through the trait that `bucket` declares; knows nothing of HTTP.
//!
//! What the door let in is final: nothing behind it judges a reading again.

mod admission;
mod agreed;
mod backlog;
mod batch;
mod blocked;
mod catalog;
pub mod dead_letters;
mod deletion;
mod door;
mod drain;
mod error;
mod failing;
mod feed;
mod flight;
mod in_log_order;
mod lagging;
#[cfg(test)]
mod law;
mod learn;
mod listing;
mod member;
mod membership;
mod options;
mod outliers;
mod payers;
mod progress;
mod reads;
mod record;
mod refresh;
mod release;
mod sensors;
mod shard;
mod submit;
mod terms;
mod tickets;
mod unflushed;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

pub use self::admission::Admission;
pub use self::door::Rejected;
pub use self::error::IngestError;
pub use self::failing::FailingDatabase;
pub use self::learn::Presence;
pub use self::options::{AckLevel, Options};
pub use self::progress::{Lag, Ledger};
pub use self::release::Closing;
pub use self::terms::Window;

use self::agreed::Agreed;
use self::backlog::{Backlog, BacklogScan};
use self::blocked::Blocked;
use self::catalog::{Catalog, Database};
use self::dead_letters::DeadLetters;
use self::deletion::{Deleter, Turns};
use self::door::{Door, Judged, Pass};
use self::failing::{Failing, Share};
use self::feed::{Feed, Feeder};
use self::flight::Context;
use self::learn::Learner;
use self::member::Member;
use self::membership::Mark;
use self::payers::Payers;
use self::progress::Progress;
use self::shard::Shard;
use self::submit::Submission;
use crate::access::Caller;
use crate::bucket::deletions::{Masks, Understand};
use crate::bucket::{Changes, StorageError, Store};
use crate::clock::StampClock;
use crate::log::{Log, Recovery};
use crate::reading::stamp::millis_of;
use crate::reading::{Limits, Precision};
use crate::telemetry::Metrics;
use crate::wire::Points;

/// What became of a write request: a promise that `accepted` readings are kept, durably.
#[derive(Debug)]
pub struct Ack {
    /// Readings kept, duplicates included.
    pub accepted: usize,
    /// What was not kept.
    pub rejected: Rejected,
    /// Where they are kept.
    pub level: AckLevel,
    /// What the sender should know although all is well: quotas that are nearly used up, timestamps that look odd.
    pub warnings: Vec<String>,
}

/// The clock and place of one request's arrival: taken once, an argument everywhere else.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// The database's name.
    pub database: &'a str,
    /// The unit of integer timestamps.
    pub precision: Precision,
    /// When it was received, in nanoseconds since the epoch: the time of undated readings.
    pub received: i64,
    /// Whether good lines are kept when others are not.
    pub partial: bool,
    /// What the ack is to promise; `None` for what the config says.
    pub ack: Option<AckLevel>,
    /// Whether the log is waited for as long as it takes, and not for `ingest.ack_timeout`: by whoever offers again what
    /// did not come to be kept, and must not do so with what did.
    pub patient: bool,
    /// Who sent it.
    pub by: &'a Caller,
}

/// The store, twice, and by what one hides from the other.
pub struct Stores {
    /// What is deleted is gone from it.
    pub store: Arc<dyn Store>,
    /// As it is.
    pub raw: Arc<dyn Store>,
    /// What is deleted.
    pub masks: Masks,
    /// Makes tests of deletions' statements.
    pub understand: Understand,
}

/// For people who look at the registry.
fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "a host".to_owned(), |name| name.trim().to_owned())
}

/// The ingest path.
pub struct Ingest {
    options: Options,
    store: Arc<dyn Store>,
    catalog: Arc<Catalog>,
    learner: Learner,
    log: Arc<Log>,
    feed: Arc<Feed>,
    dead_letters: DeadLetters,
    bytes: Arc<Semaphore>,
    metrics: Metrics,
    changes: Arc<Changes>,
    blocked: Blocked,
    failing: Arc<Failing>,
    member: Arc<Member>,
    tasks: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Ingest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ingest").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Ingest {
    /// Starts the shards, and the feeding of what the log holds. They end once [`Ingest`] is dropped
    /// and everything is in the store, or cannot get there now; [`Closing`] waits for that.
    #[must_use]
    pub fn start(
        options: Options,
        Stores { store, raw, masks, understand }: Stores,
        (log, recovery, clock): (Log, &Recovery, Arc<StampClock>),
        metrics: Metrics,
    ) -> (Self, Closing) {
        let log = Arc::new(log);
        let progress = Progress::new(recovery.released, recovery.last, options.hot_bytes);
        let (presence, failing) = (Presence::default(), Arc::<Failing>::default());
        let changes = Arc::<Changes>::default();
        let dead_letters = DeadLetters::new(options.dead_letters.clone());
        let blocked = Blocked::default();
        let agreed = Arc::new(Agreed::new(masks, understand, recovery, store.is_shared()));
        let mark = Mark::of(&options.log_dir);
        let horizon_ms = u64::try_from(options.horizon.as_millis()).unwrap_or(u64::MAX);
        let is_held =
            |since_ms: u64| clock.now_ms().saturating_sub(since_ms.max(millis_of(recovery.last))) < horizon_ms;
        if mark.since_ms().is_some_and(is_held) {
            // The floor waits for what this folder has, and so for what comes now.
            agreed.note_joined();
        }
        let context = Arc::new(Context {
            store: store.clone(),
            raw,
            metrics: metrics.clone(),
            caps: options.caps,
            log: Arc::from(format!("{:016x}", log.id())),
            agreed: agreed.clone(),
            presence: presence.clone(),
            failing: failing.clone(),
            dead_letters: dead_letters.clone(),
            changes: changes.clone(),
            blocked: blocked.clone(),
        });
        let (mut inboxes, mut shards) = (Vec::new(), Vec::new());
        for number in 0..options.shards {
            // Bounded by the memory for unflushed readings: see `feed`.
            let (sender, inbox) = mpsc::unbounded_channel();
            let shard = Shard::new(number, &options, context.clone(), progress.clone());
            shards.push(tokio::spawn(shard.run(inbox)));
            inboxes.push(sender);
        }
        let catalog = Arc::new(Catalog::new(&options));
        let learner = Learner { store: store.clone(), catalog: catalog.clone(), presence, metrics: metrics.clone() };
        // Bounded as the shards' inboxes are: a deletion's record counts as unflushed until it is done.
        let (deletions, deleter_inbox) = mpsc::unbounded_channel();
        let backlog = Arc::new(Backlog::new(recovery.released, recovery.last, backlog::SENSORS_MAX));
        let feed = Arc::new(Feed::new((progress.clone(), backlog.clone()), catalog.clone(), inboxes, deletions));
        let deleter = Arc::new(Deleter {
            context,
            feed: feed.clone(),
            catalog: catalog.clone(),
            understand: agreed.understanding(),
            opening: recovery.opening,
            recent: options.recent,
            turns: Turns::default(),
        });
        let member = Arc::new(Member {
            store: store.clone(),
            log: log.clone(),
            ids: (recovery.log, recovery.opening),
            progress: progress.clone(),
            agreed,
            clock,
            catalog: catalog.clone(),
            changes: changes.clone(),
            metrics: metrics.clone(),
            horizon: options.horizon,
            last: recovery.last,
            mark,
            host: format!("{} pid {}", hostname(), std::process::id()),
            deleter: deleter.clone(),
        });
        let feeder = Feeder {
            feed: feed.clone(),
            log: log.clone(),
            last_at_start: recovery.last,
            catalog: catalog.clone(),
            learner: learner.clone(),
        };
        let scan = BacklogScan {
            backlog,
            log: log.clone(),
            progress: progress.clone(),
            catalog: catalog.clone(),
            last: recovery.last,
        };
        let tasks = vec![
            tokio::spawn(feeder.run()),
            tokio::spawn(scan.run()),
            tokio::spawn(deleter.run(deleter_inbox)),
            tokio::spawn(release::regularly(log.clone(), progress.clone(), options.log_bytes)),
            tokio::spawn(outliers::sweep(store.clone(), options.outlier_ttl_ns(), metrics.clone())),
            tokio::spawn(member.clone().run()),
        ];
        let bytes = Arc::new(Semaphore::new(options.bytes_in_flight));
        let closing = Closing { shards, log: log.clone(), progress, member: member.clone() };
        let ingest = Self {
            options,
            store,
            catalog,
            learner,
            log,
            feed,
            dead_letters,
            bytes,
            metrics,
            changes,
            blocked,
            failing,
            member,
            tasks,
        };
        (ingest, closing)
    }

    /// Joins the other members of the store, if it answers by then.
    pub async fn join(&self, longest: Duration) {
        self.member.join(longest).await;
    }

    /// Whether the store answers; whoever finds out notes it there.
    #[must_use]
    pub fn presence(&self) -> Presence {
        self.learner.presence.clone()
    }

    /// What could not be stored.
    #[must_use]
    pub fn dead_letters(&self) -> &DeadLetters {
        &self.dead_letters
    }

    /// How far behind the store is.
    #[must_use]
    pub fn lag(&self) -> Lag {
        self.feed.progress.lag()
    }

    /// The databases whose readings the store does not take although it is there, by name.
    #[must_use]
    pub fn failing(&self) -> Vec<FailingDatabase> {
        let mut failing = self.failing.list();
        failing.iter_mut().for_each(|failing| failing.wal_bytes = self.wal_bytes(failing));
        failing
    }

    /// Bytes of the log that stay because of what waits of a database.
    fn wal_bytes(&self, failing: &FailingDatabase) -> u64 {
        failing.first.map_or(0, |first| self.log.bytes_from(first))
    }

    /// Lets a request pass unless the store fails on its database, and what waits of that already takes its share of
    /// what all databases have together.
    fn check_share(&self, database: &Database) -> Result<(), IngestError> {
        let Some(mut failing) = self.failing.get(&database.name) else { return Ok(()) };
        // Nobody is held up where there is no other, nor where all wait for the same store.
        if self.learner.presence.is_away() || self.catalog.databases().len() < 2 {
            return Ok(());
        }
        failing.wal_bytes = self.wal_bytes(&failing);
        let Options { log_bytes, hot_bytes, database_share, .. } = self.options;
        let share = Share { log_bytes, hot_bytes, percent: database_share };
        if share.has_room(&failing) {
            return Ok(());
        }
        let FailingDatabase { name, cause, .. } = failing;
        Err(IngestError::DatabaseFailing { name: name.into(), percent: database_share, cause })
    }

    /// Bytes of memory of the hot buckets, as stored.
    #[must_use]
    pub fn hot_bytes(&self) -> usize {
        self.feed.progress.hot_bytes()
    }

    /// The log's counters.
    #[must_use]
    pub fn log_stats(&self) -> crate::log::Stats {
        self.log.stats()
    }

    /// Why the log takes nothing at present, if so.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        self.log.stats().unwritable.or_else(|| self.check_membership().err().map(|error| error.to_string()))
    }

    /// Which readings wait for a document of their own, and why, if any do.
    #[must_use]
    pub fn blocked(&self) -> Option<String> {
        self.blocked.told()
    }

    /// Sets the metric of those that do.
    pub fn measure_blocked(&self) {
        self.blocked.measure(&self.metrics);
    }

    /// A place in the bytes in flight, empty yet.
    #[must_use]
    pub fn admission(&self) -> Admission {
        Admission {
            permit: None,
            bytes: self.bytes.clone(),
            limit: self.options.bytes_in_flight,
            in_flight: self.metrics.bytes_in_flight.clone(),
        }
    }

    /// Takes a body of any format, whose points `read` yields as often as it is asked to. On return the accepted readings are
    /// kept as the ack says.
    ///
    /// # Errors
    /// When not all of them are, or are known to be.
    pub async fn take<'b, P: Points<'b>>(
        &self,
        arrival: Arrival<'_>,
        read: impl Fn(Limits) -> P,
        mut admission: Admission,
    ) -> Result<Ack, IngestError> {
        let started = Instant::now();
        self.check_membership()?;
        let database = self.database(arrival.database).await?;
        let payers = Payers::of(arrival.by, &database, &self.metrics, started);
        payers.admit()?;
        self.check_share(&database)?;
        let judged = self.judge(&database, arrival, admission.size(), read).await?;
        // The batches stay in memory until they are acked, as the body does.
        admission.grow(judged.memory)?;
        payers.check(&judged)?;
        let level = arrival.ack.unwrap_or(self.options.ack);
        let mut warnings = self.suspicions(judged.suspects, arrival.precision);
        let (accepted, rejected) = (judged.accepted, judged.rejected);
        for (reason, count) in &rejected.reasons {
            self.metrics.rejected(reason, *count);
        }
        if accepted > 0 {
            let Arrival { received, patient, .. } = arrival;
            let submission =
                Submission { received, patient, judged: judged.batches, claims: judged.claims, memory: judged.memory };
            let submitted = self.submit(&database, submission, admission, level).await;
            // What is not kept is not paid for: it comes again.
            if matches!(submitted, Ok(()) | Err(IngestError::StoreTimeout(_))) {
                payers.settle(accepted, &mut warnings);
            }
            submitted?;
        }
        let ack = Ack { accepted, rejected, level, warnings };
        self.metrics.request_readings.record(u32::try_from(ack.accepted).unwrap_or(u32::MAX));
        self.metrics.ack_seconds.record(started.elapsed());
        Ok(ack)
    }

    /// Whether stamps made here can be compared with others', and the floor waits for them.
    fn check_membership(&self) -> Result<(), IngestError> {
        let clock = &self.member.clock;
        if !clock.is_right() {
            return Err(IngestError::Clock { offset_ms: clock.offset_ms(), limit: clock.max_offset() });
        }
        let ahead = self.member.agreed.ahead();
        if ahead > clock.max_offset() {
            return Err(IngestError::Ahead { ahead, limit: clock.max_offset() });
        }
        match self.member.agreed.is_joined() {
            true => Ok(()),
            false => Err(IngestError::NotJoined),
        }
    }

    /// Judges all lines. Where sensors turn up that this process does not know yet, their
    /// documents are read and the body is judged once more: it happens once per sensor. A request
    /// that is to be kept whole or not at all is first judged without leaving a trace.
    async fn judge<'b, P: Points<'b>>(
        &self,
        database: &Arc<Database>,
        arrival: Arrival<'_>,
        body_bytes: usize,
        read: impl Fn(Limits) -> P,
    ) -> Result<Judged, IngestError> {
        let pass = |learnt: bool, publish: bool| {
            let budget = self.bytes.available_permits();
            let Arrival { received, precision, .. } = arrival;
            let pass = Pass { received, precision, learnt, publish, budget, body_bytes };
            let mut door = Door::new(database, &self.catalog, &self.options, pass, arrival.by);
            let mut points = read(self.options.limits);
            while let Some(point) = points.next().filter(|_| door.has_room()) {
                match point {
                    Ok(point) => door.point(&point),
                    Err(rejection) => door.reject(rejection),
                }
            }
            let judged = door.close();
            match judged.memory {
                memory if memory <= budget => Ok(judged),
                // It would not fit with nobody else there: waiting mends nothing.
                memory if memory + body_bytes > self.options.bytes_in_flight => {
                    let limit = self.options.bytes_in_flight;
                    Err(IngestError::TooLarge { limit, key: "ingest.bytes_in_flight" })
                }
                _ => Err(self.overloaded()),
            }
        };
        let mut judged = pass(false, arrival.partial)?;
        if !judged.unknown.is_empty() {
            // What was judged so far counts nowhere while the store is asked: let it go.
            let unknown = std::mem::take(&mut judged.unknown);
            drop(judged);
            self.learner.learn(database, unknown, &arrival.by.allowance()).await;
            judged = pass(true, arrival.partial)?;
        }
        if arrival.partial {
            return Ok(judged);
        }
        if judged.rejected.count == 0 {
            judged = pass(true, true)?;
        }
        if judged.rejected.count > 0 {
            judged.keep_nothing();
        }
        Ok(judged)
    }

    fn suspicions(&self, (count, unit): (usize, Option<&'static str>), declared: Precision) -> Vec<String> {
        let Some(unit) = unit else { return Vec::new() };
        self.metrics.suspect_timestamps.increment(count as u64);
        vec![format!("{count} timestamps look like {unit}, and {} was declared (precision=)", declared.name())]
    }

    fn overloaded(&self) -> IngestError {
        IngestError::Overloaded { limit: self.options.bytes_in_flight, key: "ingest.bytes_in_flight" }
    }

    /// Brings everything that is acked by now to the store.
    ///
    /// # Errors
    /// When it did not get there by `ingest.ack_timeout`, or whatever longer time is given.
    pub async fn flush(&self, timeout: Duration) -> Result<(), IngestError> {
        let through = self.feed.progress.make_due();
        self.feed.wake();
        let flushed = self.feed.progress.flushed(through);
        tokio::time::timeout(timeout, flushed).await.map_err(|_| IngestError::StoreTimeout(timeout))
    }

    /// The database of that name, created if there is none yet.
    ///
    /// # Errors
    /// A name that cannot be one, one too many, or a store that does not answer.
    pub async fn create_database(&self, name: &str) -> Result<(), IngestError> {
        let database = self.database(name).await?;
        if self.catalog.is_deleting(name) {
            return Err(IngestError::BeingDeleted { name: name.to_owned() });
        }
        self.noted(self.store.create_database(&database.name).await)?;
        Ok(())
    }

    async fn database(&self, name: &str) -> Result<Arc<Database>, IngestError> {
        if let Some(database) = self.catalog.database(name) {
            return Ok(database);
        }
        check_database_name(name)?;
        let stored = if self.learner.presence.is_silent(name, Instant::now()) {
            Vec::new()
        } else {
            self.store.databases().await.unwrap_or_else(|error| {
                self.learner.missed(name, &error);
                Vec::new()
            })
        };
        let limit = self.options.databases;
        let too_many = || IngestError::TooManyDatabases { name: name.to_owned(), limit };
        self.catalog.add_database(name, &stored, limit).ok_or_else(too_many)
    }

    /// Counts and logs a failure of the store that a request ends with.
    fn noted<T>(&self, result: Result<T, StorageError>) -> Result<T, StorageError> {
        result.inspect_err(|error| {
            self.metrics.store_error(error.class());
            tracing::warn!(%error, "a write could not begin; its sender was told to retry");
        })
    }
}

/// Whether a database may have this name.
///
/// # Errors
/// [`IngestError::DatabaseName`] when not.
pub fn check_database_name(name: &str) -> Result<(), IngestError> {
    if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
        return Err(IngestError::DatabaseName { name: name.chars().take(64).collect() });
    }
    Ok(())
}
