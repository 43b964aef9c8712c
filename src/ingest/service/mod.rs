//! The ingest service: makes the parts of the ingest path, and passes requests through them.

mod by_value;
mod drain;
mod explain;
mod keyed;
mod listing;
mod meta;
mod policies;
mod rename;
mod start;
#[cfg(test)]
mod tests;

pub use self::explain::{Explanation, LINES_EXPLAINED};
pub use self::meta::{MetaArrival, MetaOutcome, MetaRefusal, MetaWish, Wish};
pub use self::policies::{PolicyError, PolicyTerms, SetSettings, SettingChange};
pub use self::rename::RenameRefusal;

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::access::Caller;
use crate::bucket::deletions::{Masks, Understand};
use crate::bucket::settings::{Drift, policy_database};
use crate::bucket::{DatabaseSettings, HourVersions, StorageError, Store};
use crate::buffer::deleter::Deleter;
use crate::buffer::dispatch::Dispatch;
use crate::buffer::flush::blocked::BlockedBuckets;
use crate::buffer::flush::dead_letters::DeadLetters;
use crate::buffer::flush::failing::{DatabaseShare, FailingDatabase, FailingDatabases};
use crate::catalog::lookup::{SensorLookup, StorePresence};
use crate::catalog::{Catalog, Database, NoRoom};
use crate::config::{AckLevel, Settings, UndeclaredUnit, bound};
use crate::ingest::admission::bytes_in_flight::BytesInFlight;
use crate::ingest::admission::quota::QuotaCharge;
use crate::ingest::admission::submit::{Submission, Submitter};
use crate::ingest::admission::validate::{Rejected, ValidatedBody, ValidationPass, Validator};
use crate::ingest::error::{FLUSH_DEADLINE, IngestError};
use crate::ingest::rejections::{RejectedBy, Rejections};
use crate::ingest::request_keys::{RequestKey, RequestKeys};
use crate::ingest::tail::Tail;
use crate::kinds::KindFault;
use crate::members::member::Member;
use crate::members::positions::Lag;
use crate::members::retention::Retention;
use crate::reading::{Limits, Precision, Sensor};
use crate::store::MergedView;
use crate::telemetry::Metrics;
use crate::wal::Wal;
use crate::wire::Points;

/// The result of a write request: `accepted` readings are durable.
#[derive(Debug)]
pub struct Ack {
    /// Accepted readings, duplicates included.
    pub accepted: usize,
    pub rejected: Rejected,
    /// Where the accepted readings are durable.
    pub level: AckLevel,
    /// Warnings about quotas that are nearly used up, timestamps that look wrong, and readings that are not as their kind says.
    pub warnings: Vec<String>,
}

/// The parameters of one write request.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    pub database: &'a str,
    /// The unit of integer timestamps.
    pub precision: Precision,
    /// Whether the sender declared that unit, or it is a default.
    pub declared: bool,
    /// When it was received, in nanoseconds since the epoch: the time of undated readings.
    pub received: i64,
    /// Whether good lines are kept when others are rejected.
    pub partial: bool,
    /// The ack level; `None` for `ingest.ack`.
    pub ack: Option<AckLevel>,
    /// Whether to wait for the WAL without the limit `ingest.ack_timeout`: the TCP sender resends only what was refused,
    /// and a timeout would not tell whether it was.
    pub patient: bool,
    /// What a retry of it has in common with it, if the sender says so.
    pub key: Option<RequestKey<'a>>,
    /// The sender.
    pub by: &'a Caller,
    /// Where the sender is.
    pub address: Option<IpAddr>,
}

/// The store with and without remembered deletions hidden.
pub struct Stores {
    /// Hides what remembered deletions cover.
    pub store: Arc<MergedView>,
    /// As stored.
    pub raw: Arc<dyn Store>,
    /// The remembered deletions, as `store` applies them.
    pub masks: Masks,
    /// Turns the statements of deletions into tests of sensors.
    pub understand: Understand,
}

pub struct Ingest {
    pub(crate) options: Arc<Settings>,
    pub(crate) store: Arc<MergedView>,
    catalog: Arc<Catalog>,
    lookup: SensorLookup,
    pub(crate) submitter: Arc<Submitter>,
    pub(crate) retention: Arc<Retention>,
    wal: Arc<Wal>,
    pub(crate) dispatch: Arc<Dispatch>,
    dead_letters: DeadLetters,
    rejections: Arc<Rejections>,
    request_keys: RequestKeys,
    bytes: Arc<Semaphore>,
    metrics: Metrics,
    changes: Arc<HourVersions>,
    blocked: BlockedBuckets,
    failing: Arc<FailingDatabases>,
    pub(crate) member: Arc<Member>,
    pub(crate) deleter: Arc<Deleter>,
    tail: Arc<Tail>,
    /// Held from the read of metadata until what follows from it is logged.
    meta_turn: tokio::sync::Mutex<()>,
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
    /// Registers with the other members of the store; waits at most `longest`.
    pub async fn join(&self, longest: Duration) {
        self.member.join(longest).await;
        // Before the first write: it must go to the policy that is meant.
        if !matches!(tokio::time::timeout(longest, self.retention.refresh()).await, Ok(Ok(_))) {
            tracing::warn!("the databases' settings could not be read; the last known ones apply until then");
        }
    }

    /// Readings as they are acked.
    #[must_use]
    pub fn tail(&self) -> &Arc<Tail> {
        &self.tail
    }

    /// Whether the store answers: shared state that others may update.
    #[must_use]
    pub fn presence(&self) -> StorePresence {
        self.lookup.presence.clone()
    }

    /// The readings that the store refused for good.
    #[must_use]
    pub fn dead_letters(&self) -> &DeadLetters {
        &self.dead_letters
    }

    /// The last rejected lines.
    #[must_use]
    pub fn rejections(&self) -> &Rejections {
        &self.rejections
    }

    /// How far the store is behind the WAL.
    #[must_use]
    pub fn lag(&self) -> Lag {
        self.dispatch.positions.lag()
    }

    /// How many deletions are logged and not carried out in the store yet.
    #[must_use]
    pub fn deletions_in_progress(&self) -> usize {
        self.catalog.deletions_in_progress()
    }

    /// The databases that the store fails on while it accepts others, by name.
    #[must_use]
    pub fn failing(&self) -> Vec<FailingDatabase> {
        let mut failing = self.failing.list();
        failing.iter_mut().for_each(|failing| failing.wal_bytes = self.wal_bytes(failing));
        failing
    }

    /// Bytes of the WAL from the oldest unflushed reading of the database on.
    fn wal_bytes(&self, failing: &FailingDatabase) -> u64 {
        failing.first.map_or(0, |first| self.wal.bytes_from(first))
    }

    /// Refuses writes to a database that the store fails on, once its unflushed readings exceed
    /// `ingest.database_share`.
    fn check_share(&self, database: &Database) -> Result<(), IngestError> {
        let Some(mut failing) = self.failing.get(&database.name) else { return Ok(()) };
        // The share protects other databases: it is pointless without any, or while the store is away for all.
        if self.lookup.presence.is_away() || self.catalog.databases().len() < 2 {
            return Ok(());
        }
        failing.wal_bytes = self.wal_bytes(&failing);
        let percent = self.options.ingest.database_share;
        let memtable_bytes = self.options.memtable.max_bytes;
        let share = DatabaseShare { wal_bytes: self.wal_budget(), memtable_bytes, percent };
        if share.has_room(&failing) {
            return Ok(());
        }
        let FailingDatabase { name, cause, .. } = failing;
        Err(IngestError::DatabaseFailing { name: name.into(), percent, cause })
    }

    /// Bytes of memory of the bucket cache.
    #[must_use]
    pub fn bucket_cache_bytes(&self) -> usize {
        self.dispatch.positions.bucket_cache_bytes()
    }

    #[must_use]
    pub fn wal_stats(&self) -> crate::wal::WalStats {
        self.wal.stats()
    }

    /// Bytes that the WAL may take on its disk.
    #[must_use]
    pub fn wal_budget(&self) -> u64 {
        self.options.wal.budget_bytes as u64
    }

    /// Why writes are refused at present, if they are.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let folder = self.options.wal_dir();
        let folder = folder.display();
        let unwritable = self.wal.stats().unwritable.map(|why| format!("the log in {folder} takes no writes: {why}"));
        unwritable.or_else(|| self.member.check().err().map(|error| error.to_string()))
    }

    /// Which readings wait because a page or a sensor's document cannot be read or written, and why; `None` without
    /// any.
    #[must_use]
    pub fn blocked(&self) -> Option<String> {
        self.blocked.told()
    }

    /// Sets the metric of blocked buckets.
    pub fn measure_blocked(&self) {
        self.blocked.measure(&self.metrics);
    }

    /// An empty reservation of bytes in flight.
    #[must_use]
    pub fn admission(&self) -> BytesInFlight {
        BytesInFlight {
            permit: None,
            bytes: self.bytes.clone(),
            limit: self.options.ingest.bytes_in_flight,
            in_flight: self.metrics.bytes_in_flight.clone(),
        }
    }

    /// Writes a body of any format. `read` is called once per validation pass and parses from the start. On return the accepted readings are
    /// durable as the ack level promises.
    ///
    /// # Errors
    /// When some accepted readings are not durable, or not known to be.
    pub async fn take<'b, P: Points<'b>>(
        &self,
        arrival: Arrival<'_>,
        read: impl Fn(Limits) -> P,
        admission: BytesInFlight,
    ) -> Result<Ack, IngestError> {
        self.member.check()?;
        let name = self.resolve(arrival.database, None).await?;
        let arrival = Arrival { database: &name, ..arrival };
        let database = self.database(&name, arrival.by).await?;
        let ack = self.take_into(&database, arrival, read, admission).await;
        if !ack.as_ref().is_ok_and(|ack| ack.accepted > 0) {
            self.catalog.forget_unused(database);
        }
        ack
    }

    async fn take_into<'b, P: Points<'b>>(
        &self,
        database: &Arc<Database>,
        arrival: Arrival<'_>,
        read: impl Fn(Limits) -> P,
        mut admission: BytesInFlight,
    ) -> Result<Ack, IngestError> {
        let started = Instant::now();
        let quotas = QuotaCharge::of(arrival.by, database, Some(&self.metrics), started);
        quotas.admit()?;
        self.check_share(database)?;
        let judged = self.submitter.under_way.begin();
        let (validated, _in_flight) = match arrival.key {
            None => (self.validate(database, arrival, None, admission.size(), read).await?, None),
            Some(key) => {
                // In a box of its own: what it waits for would make the future of every request larger.
                let keyed = Box::pin(self.validate_keyed(database, arrival, key, admission.size(), read)).await?;
                (keyed.validated, Some(keyed.in_flight))
            }
        };
        // The batches stay in memory until they are acked, as the body does.
        admission.grow(validated.memory)?;
        quotas.check(&validated)?;
        let level = arrival.ack.unwrap_or(self.options.ingest.ack);
        let mut warnings = self.suspicions(validated.suspects, arrival.precision);
        if let (count, Some(first)) = &validated.drifted {
            self.metrics.drifted.increment(*count as u64);
            warnings.push(drift_warning(*count, first));
        }
        self.metrics.unlike_readings.increment(validated.unlike.0 as u64);
        warnings.extend(unlike(&validated.unlike));
        let (accepted, mut rejected) = (validated.accepted, validated.rejected);
        for (reason, count) in &rejected.reasons {
            self.metrics.rejected(reason, *count);
        }
        let Arrival { database: name, by, address, received, precision, .. } = arrival;
        if accepted > 0 {
            let Arrival { received, patient, .. } = arrival;
            let submission = Submission {
                received,
                patient,
                validated: validated.batches,
                claims: validated.claims,
                memory: validated.memory,
                judged,
            };
            let submitted = self.submitter.submit(database, submission, admission, level).await;
            // Readings that are not kept are not charged: the sender sends them again.
            if matches!(submitted, Ok(()) | Err(IngestError::StoreTimeout { .. })) {
                quotas.settle(accepted, &mut warnings);
            }
            submitted?;
        }
        let sender = RejectedBy { database: name, by, address, received, precision };
        self.rejections.note(sender, &mut rejected);
        let ack = Ack { accepted, rejected, level, warnings };
        self.metrics.request_readings.record(u32::try_from(ack.accepted).unwrap_or(u32::MAX));
        self.metrics.acked(started.elapsed());
        Ok(ack)
    }

    /// Validates all lines. If there are unknown sensors, looks them up and validates the body once more, which happens
    /// once per sensor. A request that must be accepted as a whole is first validated without claiming fields.
    async fn validate<'b, P: Points<'b>>(
        &self,
        database: &Arc<Database>,
        arrival: Arrival<'_>,
        undated_from: Option<i64>,
        body_bytes: usize,
        read: impl Fn(Limits) -> P,
    ) -> Result<ValidatedBody, IngestError> {
        let terms = ValidationPass { undated_from, ..self.terms(&database.name, arrival, body_bytes) };
        let renames = self.retention.settings.now().renames(&database.name).cloned();
        let pass = |looked_up: bool, publish: bool| {
            let budget = self.bytes.available_permits();
            let pass = ValidationPass { looked_up, publish, budget, ..terms };
            let mut validator =
                Validator::new(database, &self.catalog, &self.options, pass, arrival.by).with_renames(renames.clone());
            let mut points = read(self.options.reading_limits());
            while let Some(point) = points.next().filter(|_| validator.has_room()) {
                match point {
                    Ok(point) => validator.point(&point),
                    Err(rejection) => validator.reject(rejection),
                }
            }
            let validated = validator.close();
            match validated.memory {
                memory if memory <= budget => Ok(validated),
                // It would not fit even if there were no other request: retrying is useless.
                memory if memory + body_bytes > self.options.ingest.bytes_in_flight => {
                    let limit = self.options.ingest.bytes_in_flight;
                    Err(IngestError::TooLarge { limit, key: "ingest.bytes_in_flight" })
                }
                _ => Err(self.overloaded()),
            }
        };
        let mut validated = pass(false, arrival.partial)?;
        if !validated.unknown.is_empty() {
            // The result does not count as bytes in flight: free it before waiting for the lookup.
            let unknown = std::mem::take(&mut validated.unknown);
            drop(validated);
            let unknown = match &renames {
                Some(renames) => self.stored_names(&database.name, unknown, renames).await?,
                None => unknown,
            };
            self.lookup.look_up(database, unknown, &arrival.by.allowance()).await;
            validated = pass(true, arrival.partial)?;
        }
        if arrival.partial {
            return Ok(validated);
        }
        if validated.rejected.count == 0 {
            validated = pass(true, true)?;
        }
        if validated.rejected.count > 0 {
            validated.keep_nothing();
        }
        Ok(validated)
    }

    /// The parameters of the validation of a body that are the same in each pass.
    fn terms(&self, database: &str, arrival: Arrival<'_>, body_bytes: usize) -> ValidationPass {
        let Arrival { received, precision, declared, .. } = arrival;
        let settings = self.retention.settings.now();
        let from = settings.accepted_from(database, received);
        let kept_from = from.map_or((i64::MIN, 0), |from| (from, settings.kept(database).ns()));
        let refuses_other_units = self.options.limits.undeclared_unit == UndeclaredUnit::Refuse && !declared;
        ValidationPass {
            received,
            kept_from,
            precision,
            refuses_other_units,
            keeps_drift: settings.drift(database) == Drift::Keep,
            looked_up: false,
            publish: false,
            budget: usize::MAX,
            body_bytes,
            undated_from: None,
        }
    }

    fn suspicions(&self, suspects: (usize, Option<&'static str>), declared: Precision) -> Vec<String> {
        self.metrics.suspect_timestamps.increment(suspects.0 as u64);
        suspected(suspects, declared)
    }

    fn overloaded(&self) -> IngestError {
        IngestError::Overloaded { limit: self.options.ingest.bytes_in_flight, key: "ingest.bytes_in_flight" }
    }

    /// Whether all of these deletions can be logged, so that none of a statement's are where another one cannot: each with its database,
    /// its range and the bytes of its statement.
    ///
    /// # Errors
    /// Without room to remember them, or if one cuts an hour of which only summaries are left.
    pub fn check_deletions<'d>(
        &self,
        deletions: impl Iterator<Item = (&'d str, &'d Range<i64>, usize)>,
    ) -> Result<(), IngestError> {
        let (mut more, mut statement_bytes) = (0, 0);
        for (database, range, bytes) in deletions {
            self.retention.check_deletion(database, range)?;
            (more, statement_bytes) = (more + 1, statement_bytes + bytes);
        }
        self.submitter.check_room(more, statement_bytes)
    }

    /// Deletes the readings of sensors in a range of nanoseconds, and the sensors that have none left. On return they
    /// are gone, from the store too. Concurrent writes of other clients may be ordered before or after the deletion.
    /// The statement lets other instances find sensors that this one does not know.
    ///
    /// # Errors
    /// When it is not done by `timeout`. What is in the WAL by then is carried out all the same.
    pub async fn delete(
        &self,
        of: (&str, i64),
        what: (&[Arc<Sensor>], &str),
        range: Range<i64>,
        timeout: Duration,
    ) -> Result<(), IngestError> {
        self.retention.check_deletion(of.0, &range)?;
        self.submitter.delete(of, what, range, timeout).await
    }

    /// Deletes a database with everything in it, its policies too. Otherwise as [`Ingest::delete`].
    ///
    /// # Errors
    /// When it is not done by `timeout`. If it is in the WAL by then, it is carried out all the same.
    pub async fn drop_database(&self, database: &str, received: i64, timeout: Duration) -> Result<(), IngestError> {
        // Without the store the drop is logged, and follows.
        let settings = self.settings_now().await.unwrap_or_else(|_| self.retention.settings.now());
        let policies = settings.policies(database).map(|(policy, _)| policy_database(database, policy));
        let mut dropped = Ok(());
        for name in policies.chain([database.to_owned()]) {
            match self.drop_one(&name, received, timeout).await {
                // It is in the WAL, and the others must be, too.
                Err(error @ IngestError::DeletionTimeout(_)) => dropped = Err(error),
                other => other?,
            }
        }
        dropped
    }

    /// Flushes everything that is acked by now, and waits until the store has it.
    ///
    /// # Errors
    /// When that takes longer than `timeout`.
    pub async fn flush(&self, timeout: Duration) -> Result<(), IngestError> {
        let through = self.dispatch.positions.make_due();
        self.dispatch.wake();
        let flushed = self.dispatch.positions.flushed(through);
        tokio::time::timeout(timeout, flushed)
            .await
            .map_err(|_| IngestError::StoreTimeout { waited: timeout, key: FLUSH_DEADLINE })
    }

    /// This opening of the WAL as the registry lists it, and the time by which it stamps, in milliseconds since the epoch.
    #[must_use]
    pub fn opening(&self) -> (u64, u64) {
        self.member.opening()
    }

    /// Creates the database unless it exists.
    ///
    /// # Errors
    /// An invalid name, the limit on databases or the caller's, a drop in progress, or a store that does not answer.
    pub async fn create_database(&self, name: &str, by: &Caller) -> Result<(), IngestError> {
        self.create_with(name, by, |_| {}).await
    }

    /// As [`Ingest::create_database`], with what is set of it from the start.
    pub(super) async fn create_with(
        &self,
        name: &str,
        by: &Caller,
        set: impl Fn(&mut DatabaseSettings),
    ) -> Result<(), IngestError> {
        let database = self.database(name, by).await?;
        if self.catalog.is_dropping(name) {
            return Err(IngestError::BeingDropped { name: name.to_owned() });
        }
        // First: a drop that was logged before, and is carried out while or after this one is listed, finds it here.
        let (name, created) = (&*database.name, self.member.stamp_now());
        let is_new = self.noted(self.retention.note_created(name, created, set).await)?;
        let made = self.noted(self.store.raw().create_database(name).await);
        if made.is_err() && is_new {
            self.noted(self.retention.remove(name).await)?;
        }
        Ok(made?)
    }

    async fn database(&self, name: &str, by: &Caller) -> Result<Arc<Database>, IngestError> {
        if let Some(database) = self.catalog.database(name) {
            return Ok(database);
        }
        let stored = self.stored_databases(name).await?;
        let limit = self.options.limits.databases;
        self.catalog.add_database(name, &stored, (limit, by, bound(self.options.quota.token_databases))).map_err(
            |full| {
                if let NoRoom::OfCaller(exhausted) = &full {
                    self.metrics.quota("refused", "token", exhausted.rate.label());
                }
                self.no_room(name, full)
            },
        )
    }

    fn no_room(&self, name: &str, full: NoRoom) -> IngestError {
        let name = name.to_owned();
        match full {
            NoRoom::OfAll => IngestError::TooManyDatabases { name, limit: self.options.limits.databases },
            NoRoom::OfCaller(exhausted) => IngestError::DatabaseQuota { name, exhausted },
        }
    }

    /// The databases that the store has, as far as it answers, for one that is not known.
    async fn stored_databases(&self, name: &str) -> Result<Vec<String>, IngestError> {
        check_database_name(name)?;
        Ok(if self.lookup.presence.is_silent(name, Instant::now()) {
            Vec::new()
        } else {
            self.store.raw().databases().await.unwrap_or_else(|error| {
                self.lookup.missed(name, &error);
                Vec::new()
            })
        })
    }

    /// Counts and logs a failure of the store that ends a request.
    fn noted<T>(&self, result: Result<T, StorageError>) -> Result<T, StorageError> {
        result.inspect_err(|error| {
            self.metrics.store_error(error.class());
            tracing::warn!(%error, "create database failed; request refused");
        })
    }
}

/// The warning about values that are kept beside their fields.
fn drift_warning(count: usize, first: &str) -> String {
    format!("{count} values of another type than their field's are kept beside it, such as {first:?} (ingest.drift)")
}

/// The warning about readings that are not as the kinds of their sensors say.
fn unlike((count, first): &(usize, Option<KindFault>)) -> Option<String> {
    let KindFault { kind, fault } = first.as_ref()?;
    let are = if *count == 1 { "reading is" } else { "readings are" };
    Some(format!("{count} {are} not as the kind {kind} says, the first one because field {fault}"))
}

/// The warning about timestamps that look as if they were in another unit than declared.
fn suspected((count, unit): (usize, Option<&'static str>), declared: Precision) -> Vec<String> {
    let warning =
        |unit| format!("{count} timestamps look like {unit}, but {} was declared (precision=)", declared.name());
    unit.map(warning).into_iter().collect()
}

/// Checks the name of a database.
///
/// # Errors
/// [`IngestError::DatabaseName`] if it is invalid.
pub fn check_database_name(name: &str) -> Result<(), IngestError> {
    if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
        return Err(IngestError::DatabaseName { name: name.chars().take(64).collect() });
    }
    Ok(())
}
