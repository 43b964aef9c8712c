//! Appends admitted requests, deletions and metadata changes to the WAL, and waits until the ack level is reached. The
//! WAL's callback dispatches each durable record to the shards.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::bytes_in_flight::BytesInFlight;
use super::in_validation::{InValidation, RequestGuard};
use super::owners::{OwnedReadings, Owners, QueuedReadings};
use super::validate::ValidatedBody;
use crate::bucket::StorageError;
use crate::buffer::dispatch::{Dispatch, KnownChange};
use crate::buffer::record;
use crate::buffer::record::batch::Batch;
use crate::buffer::record::meta::MetaRecord;
use crate::catalog::deletion::{DeletedTimes, Deletion, Scope};
use crate::catalog::{Claims, Database};
use crate::config::AckLevel;
use crate::faults;
use crate::ingest::Arrival;
use crate::ingest::error::{FLUSH_DEADLINE, IngestError};
use crate::ingest::tail::{Tail, TailRecord};
use crate::members::marks::Mark;
use crate::members::member::Member;
use crate::members::positions::LoggedRequest;
use crate::reading::{Sensor, Stamp};
use crate::wal::{AppendError, Sequence, Wal};

/// Maximum bytes of sensor keys in one record of a deletion, far below the size of the smallest WAL segment.
const DELETION_BYTES_MAX: usize = 16 << 10;

/// Maximum bytes of the statements of all remembered deletions, far below MongoDB's 16 MiB for a document.
const STATEMENT_BYTES_MAX: usize = 4 << 20;

/// A durable record that is not stored yet.
struct LoggedRecord {
    sequence: Sequence,
    /// Receives the outcome once the store has applied the record.
    stored: oneshot::Receiver<Result<(), StorageError>>,
}

/// A durable metadata change that is not stored yet.
pub(crate) struct LoggedMeta {
    record: LoggedRecord,
    deadline: AppendDeadline,
}

/// Returns the number of leading sensors that fit into one record: at least one, if there are any.
fn sensors_per_record(sensors: &[Arc<Sensor>]) -> usize {
    let mut bytes = 0;
    let fits = |sensor: &&Arc<Sensor>| {
        let is_first = bytes == 0;
        bytes += sensor.key.len();
        is_first || bytes <= DELETION_BYTES_MAX
    };
    sensors.iter().take_while(fits).count()
}

/// The time for which the request of a deletion waits.
#[derive(Debug, Clone, Copy)]
pub struct DeletionWait {
    /// After this, the request fails.
    pub longest: Duration,
    /// After this, hidden readings suffice.
    pub for_removal: Duration,
}

/// The progress of a deletion when its request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// The store has no deleted readings any more.
    Removed,
    /// No query returns the readings. Their removal from the store goes on.
    Hidden,
}

/// The time after which every live instance knows what the registry remembers.
const LEARN_TIME: Duration = Duration::from_millis(2500);
/// The interval at which a request looks whether its readings are hidden.
const HIDDEN_POLL: Duration = Duration::from_millis(100);

const ACK_TIMEOUT: &str = "ingest.ack_timeout";

/// The time until which a request waits for its record, and the terms in which errors state it.
#[derive(Clone, Copy)]
pub(crate) struct AppendDeadline {
    time: Instant,
    waited: Duration,
    key: &'static str,
}

impl AppendDeadline {
    fn after(waited: Duration, key: &'static str) -> Self {
        Self { time: Instant::now() + waited, waited, key }
    }

    /// Returns the error for a durable record that is not stored in time.
    fn store_timeout(self) -> IngestError {
        IngestError::StoreTimeout { waited: self.waited, key: self.key }
    }
}

/// Appends requests to the WAL.
pub(crate) struct Submitter {
    pub wal: Arc<Wal>,
    pub dispatch: Arc<Dispatch>,
    /// Decides whether this instance is allowed to ack.
    pub member: Arc<Member>,
    pub tail: Arc<Tail>,
    /// The requests that are validated but not logged yet.
    pub in_validation: InValidation,
    /// `ingest.ack_timeout`.
    pub ack_timeout: Duration,
    /// `limits.deletions`.
    pub deletions: usize,
    /// Set once if there is a cluster.
    pub owners: OnceLock<Arc<dyn Owners>>,
}

impl Submitter {
    /// Appends the batches to the WAL and waits until `level` is reached. From the append on, the WAL's callback owns
    /// the batches, so they are kept even if the client disconnects.
    pub(in crate::ingest) async fn submit(
        &self,
        database: &Arc<Database>,
        arrival: &Arrival<'_>,
        validated: ValidatedBody,
        guard: RequestGuard,
        mut admission: BytesInFlight,
        level: AckLevel,
    ) -> Result<(), IngestError> {
        let ValidatedBody { batches, claims, memory, .. } = validated;
        let received = arrival.received;
        if let Some(owners) = self.owners.get().filter(|owners| owners.are_others(&database.name, &batches)) {
            let tail_copy = self.copy_for_listeners(database, &batches, &mut admission);
            let readings = OwnedReadings { database: database.clone(), batches, claims, received, admission, guard };
            // Boxed, because it would make the futures of other requests larger.
            Box::pin(owners.write(readings, level)).await?;
            // Their order at their owners is known only now.
            if let Some(turn) = arrival.turn {
                turn.end();
            }
            if let Some((tail, record)) = tail_copy {
                tail.publish(self.member.stamp_now(), record);
            }
            return Ok(());
        }
        let record = record::encode(&database.name, received, &batches);
        let readings = batches.iter().map(Batch::len).sum::<usize>() as u64;
        let (waiter, stored) = oneshot::channel();
        let waiter = (level == AckLevel::Store).then_some(waiter);
        let tail_copy = self.copy_for_listeners(database, &batches, &mut admission);
        let dispatch = self.dispatch.clone();
        let database = database.clone();
        faults::halt_at("before_append").await;
        let deadline = AppendDeadline::after(self.ack_timeout, ACK_TIMEOUT);
        let logged = move |sequence: Sequence| {
            drop(guard);
            // Make the new fields firm before they reach a shard.
            claims.make_firm();
            if let Some(waiter) = waiter {
                dispatch.positions.wait_for(sequence, waiter);
            }
            dispatch.dispatch_logged(LoggedRequest { sequence, readings, memory, received }, &database, batches);
            if let Some((tail, record)) = tail_copy {
                tail.publish(sequence, record);
            }
            drop(admission);
        };
        let append_deadline = (!arrival.is_patient).then_some(deadline);
        // The queue of the WAL is fair, and nothing is awaited in between.
        if let Some(turn) = arrival.turn {
            turn.end();
        }
        if faults::fails("append") {
            return Err(self.append_refusal(AppendError::Unwritable("a fault".to_owned())));
        }
        let sequence = self.append(0, record::KIND_READINGS, record, append_deadline, logged).await?;
        if level == AckLevel::Log {
            return Ok(());
        }
        self.dispatch.wake();
        self.wait_until_stored(LoggedRecord { sequence, stored }, deadline.time, deadline.store_timeout()).await
    }

    /// Copies the readings for the listeners of the tail, if there are any. The copy counts as memory of the request
    /// until the request is logged.
    fn copy_for_listeners(
        &self,
        database: &Database,
        batches: &[Batch],
        admission: &mut BytesInFlight,
    ) -> Option<(Arc<Tail>, TailRecord)> {
        let record = self.tail.copy(database, batches)?;
        // A write must not fail for lack of memory for its listeners: without room, they get a record without readings.
        let has_room = admission.grow(record.bytes()).is_ok();
        Some((self.tail.clone(), if has_room { record } else { record.without_readings() }))
    }

    /// See [`crate::ingest::Ingest::delete`].
    pub async fn delete(
        &self,
        database: &str,
        received: i64,
        sensors: &[Arc<Sensor>],
        statement: &str,
        range: Range<i64>,
        wait: DeletionWait,
    ) -> Result<Deleted, IngestError> {
        let deadline = AppendDeadline::after(wait.longest, FLUSH_DEADLINE);
        let mut logged = Vec::new();
        let mut remaining = sensors;
        // Log all records before waiting for any of them. A deletion without sensors is logged too: other instances may
        // have readings of sensors that this one does not know.
        loop {
            let (sensors, rest) = remaining.split_at(sensors_per_record(remaining));
            let sensors = sensors.iter().map(|sensor| Sensor::clone(sensor)).collect();
            let statement = rest.is_empty().then(|| statement.to_owned());
            let scope = Scope::Readings { sensors, range: range.clone(), statement };
            let deletion = Deletion { received, database: database.to_owned(), scope };
            self.check_room(database, 1, deletion.statement_bytes())?;
            logged.push(self.log_deletion(deletion, 0, Some(deadline)).await?);
            remaining = rest;
            if remaining.is_empty() {
                return self.wait_until_deleted(database, logged, deadline, wait.for_removal).await;
            }
        }
    }

    /// See [`crate::ingest::Ingest::drop_database`]. The drop gets a stamp above `created`, the stamp of the last
    /// change of the database's settings.
    pub async fn drop_database(
        &self,
        database: &str,
        created: Stamp,
        received: i64,
        timeout: Duration,
    ) -> Result<(), IngestError> {
        let deadline = AppendDeadline::after(timeout, FLUSH_DEADLINE);
        let deletion = Deletion { received, database: database.to_owned(), scope: Scope::Database };
        self.check_room(database, 1, deletion.statement_bytes())?;
        let logged = self.log_deletion(deletion, created, Some(deadline)).await?;
        self.wait_until_stored(logged, deadline.time, IngestError::DeletionTimeout(deadline.waited)).await
    }

    /// Logs the mark of a deletion by value, which covers everything older than the mark. There is no deadline, because
    /// nothing would release a mark that became durable after it.
    pub async fn mark(&self, database: &str, received: i64) -> Result<Mark, IngestError> {
        self.member.check()?;
        let deletion = Deletion { received, database: database.to_owned(), scope: Scope::Mark };
        let record = record::deletion::encode(&deletion);
        let memory = record.len();
        let dispatch = self.dispatch.clone();
        let (owner, mark) = oneshot::channel();
        let logged = move |sequence: Sequence| {
            dispatch.mark_logged(LoggedRequest { sequence, readings: 0, memory, received });
            // If nobody waits any more, the mark is dropped here, which ends it.
            drop(owner.send(Mark::new(sequence, dispatch.marks.clone())));
        };
        let lower_bound = self.member.registry_view.greatest_stamp();
        self.append(lower_bound, record::deletion::KIND_DELETION, record, None, logged).await?;
        mark.await.map_err(|_| IngestError::Stopping)
    }

    /// Logs metadata changes in one record. Returns the record to wait for if the ack level is `store`.
    pub async fn change_meta(
        &self,
        database: &Arc<Database>,
        received: i64,
        changes: Vec<KnownChange>,
        level: AckLevel,
    ) -> Result<Option<LoggedMeta>, IngestError> {
        self.member.check()?;
        let logged_changes = changes.iter().map(|(_, change)| change.clone()).collect();
        let name = database.name.to_string();
        let record = record::meta::encode(&MetaRecord { received, database: name, changes: logged_changes });
        let memory = record.len();
        let (waiter, stored) = oneshot::channel();
        let waiter = (level == AckLevel::Store).then_some(waiter);
        let dispatch = self.dispatch.clone();
        let database = database.clone();
        let logged = move |sequence: Sequence| {
            if let Some(waiter) = waiter {
                dispatch.positions.wait_for(sequence, waiter);
            }
            dispatch.meta_logged(LoggedRequest { sequence, readings: 0, memory, received }, &database, changes);
        };
        let deadline = AppendDeadline::after(self.ack_timeout, ACK_TIMEOUT);
        let sequence = self.append(0, record::meta::KIND_META, record, Some(deadline), logged).await?;
        let record = LoggedRecord { sequence, stored };
        Ok((level == AckLevel::Store).then_some(LoggedMeta { record, deadline }))
    }

    /// Waits until a metadata change is stored.
    pub async fn wait_until_meta_stored(&self, logged: LoggedMeta) -> Result<(), IngestError> {
        let deadline = logged.deadline;
        self.wait_until_stored(logged.record, deadline.time, deadline.store_timeout()).await
    }

    /// Logs a part of a deletion by value, and waits until it is carried out.
    pub async fn delete_cells(
        &self,
        database: &str,
        received: i64,
        sensors: Vec<DeletedTimes>,
        mark: &Mark,
    ) -> Result<(), IngestError> {
        let scope = Scope::Cells { sensors, mark: mark.stamp };
        let deletion = Deletion { received, database: database.to_owned(), scope };
        let logged = self.log_deletion(deletion, 0, None).await?;
        match logged.stored.await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(IngestError::Stopping),
        }
    }

    /// Checks that the registry has room for `more` deletions, with `statement_bytes` bytes of statements in total. One
    /// database may take half of the room.
    pub fn check_room(&self, database: &str, more: usize, statement_bytes: usize) -> Result<(), IngestError> {
        let view = &self.member.registry_view;
        let bounds =
            [(view.deletion_count(), self.deletions), (view.deletion_count_of(database), self.deletions.div_ceil(2))];
        if let Some((remembered, limit)) = bounds.into_iter().find(|(remembered, limit)| remembered + more > *limit) {
            return Err(IngestError::TooManyDeletions { more, remembered, limit });
        }
        let bytes = statement_bytes + self.member.registry_view.statement_bytes();
        if bytes > STATEMENT_BYTES_MAX {
            return Err(IngestError::LongDeletions { bytes, limit: STATEMENT_BYTES_MAX });
        }
        Ok(())
    }

    async fn log_deletion(
        &self,
        deletion: Deletion,
        lower_bound: Stamp,
        deadline: Option<AppendDeadline>,
    ) -> Result<LoggedRecord, IngestError> {
        self.member.check()?;
        let record = record::deletion::encode(&deletion);
        let memory = record.len();
        let received = deletion.received;
        let (waiter, stored) = oneshot::channel();
        let dispatch = self.dispatch.clone();
        // Look the targets up here, not in the WAL's callback, which delays the acks of other requests.
        let targets = self.dispatch.catalog.deleted_sensors(&deletion);
        let logged = move |sequence: Sequence| {
            dispatch.positions.wait_for(sequence, waiter);
            dispatch.deletion_logged(LoggedRequest { sequence, readings: 0, memory, received }, deletion, targets);
        };
        // The deletion's stamp must lie above every watermark that other instances have published.
        let lower_bound = self.member.registry_view.greatest_stamp().max(lower_bound);
        let sequence = self.append(lower_bound, record::deletion::KIND_DELETION, record, deadline, logged).await?;
        Ok(LoggedRecord { sequence, stored })
    }

    /// Waits until the readings of a deletion are removed, or after `patience` until they are hidden from queries.
    async fn wait_until_deleted(
        &self,
        database: &str,
        records: Vec<LoggedRecord>,
        deadline: AppendDeadline,
        patience: Duration,
    ) -> Result<Deleted, IngestError> {
        let patient_until = Instant::now() + patience;
        let mut hidden_since: Option<Instant> = None;
        let late = || IngestError::DeletionTimeout(deadline.waited);
        let Some(last) = records.last().map(|record| record.sequence) else { return Err(late()) };
        for mut record in records {
            loop {
                let until = deadline.time.min(patient_until.max(Instant::now() + HIDDEN_POLL));
                match tokio::time::timeout_at(until, &mut record.stored).await {
                    Ok(Ok(outcome)) => {
                        outcome?;
                        break;
                    }
                    Ok(Err(_)) => return Err(late()),
                    Err(_) => {}
                }
                let is_hidden =
                    self.member.registry_view.is_remembered(last) && !self.dispatch.catalog.is_deleting(database);
                let now = Instant::now();
                let is_hidden_everywhere = is_hidden && now - *hidden_since.get_or_insert(now) >= LEARN_TIME;
                if is_hidden_everywhere || now >= deadline.time {
                    self.dispatch.positions.forget(record.sequence);
                    return if is_hidden { Ok(Deleted::Hidden) } else { Err(late()) };
                }
            }
        }
        Ok(Deleted::Removed)
    }

    /// Appends a record with a sequence above `lower_bound`, and waits until the record is durable or its append has
    /// failed. The WAL's callback calls `logged` for a durable record. Without a deadline the wait is unbounded.
    async fn append(
        &self,
        lower_bound: Sequence,
        kind: u8,
        record: Vec<u8>,
        deadline: Option<AppendDeadline>,
        logged: impl FnOnce(Sequence) + Send + 'static,
    ) -> Result<Sequence, IngestError> {
        let (ack, acked) = oneshot::channel();
        crate::faults::point("before_append");
        let done = move |appended: Result<Sequence, AppendError>| {
            crate::faults::point("after_sync");
            if let Ok(sequence) = appended {
                logged(sequence);
            }
            // The receiver is closed if the client has disconnected. Its readings are stored all the same.
            let _ = ack.send(appended);
        };
        let queued = match self.owners.get().filter(|_| kind == record::KIND_READINGS && deadline.is_some()) {
            Some(owners) => self.wal.append_if(lower_bound, kind, record, owners.write_condition(), done),
            None => self.wal.append(lower_bound, kind, record, done),
        };
        queued.map_err(|error| self.append_refusal(error))?;
        crate::faults::point("after_append");
        let acked = match deadline {
            Some(AppendDeadline { time, waited, key }) => {
                let acked = tokio::time::timeout_at(time, acked).await;
                acked.map_err(|_| IngestError::Timeout { waited, key })?
            }
            None => acked.await,
        };
        match acked {
            Ok(appended) => appended.map_err(|error| self.append_refusal(error)),
            Err(_) => Err(IngestError::Stopping),
        }
    }

    /// Queues readings. `done` is called as in [`Wal::append_if`], after they were dispatched.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn queue_readings(
        &self,
        readings: QueuedReadings,
        lower_bound: Stamp,
        condition: impl Fn(Stamp) -> bool + Send + 'static,
        done: impl FnOnce(Result<Stamp, AppendError>) + Send + 'static,
    ) -> Result<(), AppendError> {
        let QueuedReadings { database, batches, record, received, memory, claims, waiter } = readings;
        let count = batches.iter().map(Batch::len).sum::<usize>() as u64;
        let dispatch = self.dispatch.clone();
        let logged = move |appended: Result<Sequence, AppendError>| {
            if let Ok(sequence) = appended {
                claims.lock().take().into_iter().for_each(Claims::make_firm);
                if let Some(waiter) = waiter {
                    dispatch.positions.wait_for(sequence, waiter);
                }
                let logged = LoggedRequest { sequence, readings: count, memory, received };
                dispatch.dispatch_logged(logged, &database, batches);
            }
            done(appended);
        };
        self.wal.append_if(lower_bound, record::KIND_READINGS, record, condition, logged)
    }

    /// Waits until the store has applied a record. Fails with `late` if that does not happen by `deadline`.
    async fn wait_until_stored(
        &self,
        record: LoggedRecord,
        deadline: Instant,
        late: IngestError,
    ) -> Result<(), IngestError> {
        match tokio::time::timeout_at(deadline, record.stored).await {
            Ok(Ok(outcome)) => Ok(outcome?),
            Ok(Err(_)) => Err(late),
            Err(_) => {
                self.dispatch.positions.forget(record.sequence);
                Err(late)
            }
        }
    }

    /// Converts an append error into the error of the request.
    fn append_refusal(&self, error: AppendError) -> IngestError {
        let whole = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        match error {
            AppendError::TooLarge { limit, .. } => {
                IngestError::TooLarge { limit: whole(limit), key: "wal.segment_bytes" }
            }
            AppendError::QueueFull { bytes_limit, .. } => {
                IngestError::Overloaded { limit: whole(bytes_limit), key: "wal.queue_bytes" }
            }
            AppendError::Full(limit) => IngestError::Overloaded { limit: whole(limit), key: "wal.budget_bytes" },
            AppendError::Late => IngestError::Timeout { waited: self.ack_timeout, key: ACK_TIMEOUT },
            AppendError::Closed => IngestError::Stopping,
            AppendError::Unwritable { .. } | AppendError::Failed { .. } => {
                tracing::warn!(%error, "WAL append failed; request refused");
                IngestError::Log(error)
            }
        }
    }
}
