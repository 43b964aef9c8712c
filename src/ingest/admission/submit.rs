//! Appends admitted batches to the WAL, whose callback dispatches them to the shards, and waits for what the ack level
//! promises. Deletions take the same way.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::bytes_in_flight::BytesInFlight;
use super::under_way::{Judged, UnderWay};
use super::validate::ValidatedBody;
use crate::bucket::StorageError;
use crate::buffer::dispatch::{Dispatch, KnownChange};
use crate::buffer::record;
use crate::buffer::record::batch::Batch;
use crate::buffer::record::meta::MetaRecord;
use crate::catalog::Database;
use crate::catalog::deletion::{DeletedTimes, Deletion, Scope};
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

/// Most bytes of sensor keys in one record of a deletion, far below what the smallest WAL segment holds.
const DELETION_BYTES: usize = 16 << 10;

/// Most bytes of the statements of all remembered deletions, far below MongoDB's 16 MiB for a document.
const STATEMENT_BYTES_MAX: usize = 4 << 20;

/// A record in the WAL, and the channel that reports when the store has what it says.
type Logged = (Sequence, oneshot::Receiver<Result<(), StorageError>>);

/// Metadata in the WAL, and how long to wait until it is stored.
pub(crate) type LoggedMeta = (Logged, AppendDeadline);

/// How many of these sensors, from the first on, fit into a record: at least one, if there is any.
fn chunk(sensors: &[Arc<Sensor>]) -> usize {
    let mut bytes = 0;
    let fits = |sensor: &&Arc<Sensor>| {
        let is_first = bytes == 0;
        bytes += sensor.key.len();
        is_first || bytes <= DELETION_BYTES
    };
    sensors.iter().take_while(fits).count()
}

const ACK_TIMEOUT: &str = "ingest.ack_timeout";

/// When a request stops waiting for its record to be durable, and what the error says of it.
#[derive(Clone, Copy)]
pub(crate) struct AppendDeadline {
    at: Instant,
    waited: Duration,
    key: &'static str,
}

impl AppendDeadline {
    fn after(waited: Duration, key: &'static str) -> Self {
        Self { at: Instant::now() + waited, waited, key }
    }

    /// The error if a durable record is not stored in time.
    fn store_timeout(self) -> IngestError {
        IngestError::StoreTimeout { waited: self.waited, key: self.key }
    }
}

/// Appends requests to the WAL.
pub(crate) struct Submitter {
    pub wal: Arc<Wal>,
    pub dispatch: Arc<Dispatch>,
    /// Knows whether this process may ack anything.
    pub member: Arc<Member>,
    pub tail: Arc<Tail>,
    /// What was validated and is not logged yet.
    pub under_way: UnderWay,
    /// `ingest.ack_timeout`.
    pub ack_timeout: Duration,
    /// `limits.deletions`.
    pub deletions: usize,
}

impl Submitter {
    /// Appends the batches to the WAL and waits for what the ack promises. From the append on, the WAL's callback owns
    /// the batches, whether or not the client stays connected.
    pub(in crate::ingest) async fn submit(
        &self,
        database: &Arc<Database>,
        arrival: &Arrival<'_>,
        validated: ValidatedBody,
        judged: Judged,
        mut admission: BytesInFlight,
        level: AckLevel,
    ) -> Result<(), IngestError> {
        let ValidatedBody { batches, claims, memory, .. } = validated;
        let received = arrival.received;
        let record = record::encode(&database.name, received, &batches);
        let readings = batches.iter().map(Batch::len).sum::<usize>() as u64;
        let (waiter, stored) = oneshot::channel();
        let waiter = (level == AckLevel::Store).then_some(waiter);
        let heard = self.copy_for_listeners(database, &batches, &mut admission);
        let (dispatch, database) = (self.dispatch.clone(), database.clone());
        faults::halt_at("before_append").await;
        let deadline = AppendDeadline::after(self.ack_timeout, ACK_TIMEOUT);
        let logged = move |sequence: Sequence| {
            drop(judged);
            // Before the fields reach a shard.
            claims.logged();
            if let Some(waiter) = waiter {
                dispatch.positions.wait_for(sequence, waiter);
            }
            dispatch.logged(LoggedRequest { sequence, readings, memory, received }, &database, batches);
            if let Some((tail, record)) = heard {
                tail.publish(sequence, record);
            }
            drop(admission);
        };
        let deadline_of_wal = (!arrival.patient).then_some(deadline);
        let sequence = self.append((0, record::KIND_READINGS), record, deadline_of_wal, logged).await?;
        if level == AckLevel::Log {
            return Ok(());
        }
        self.dispatch.wake();
        self.stored((sequence, stored), deadline.at, deadline.store_timeout()).await
    }

    /// What listeners get once the request is logged, if there are any. Counts as the request's memory until then.
    fn copy_for_listeners(
        &self,
        database: &Database,
        batches: &[Batch],
        admission: &mut BytesInFlight,
    ) -> Option<(Arc<Tail>, TailRecord)> {
        let record = self.tail.copy(database, batches)?;
        // No write fails because somebody listens.
        let has_room = admission.grow(record.bytes()).is_ok();
        Some((self.tail.clone(), if has_room { record } else { record.without_readings() }))
    }

    /// See [`crate::ingest::Ingest::delete`].
    pub async fn delete(
        &self,
        (database, received): (&str, i64),
        (sensors, statement): (&[Arc<Sensor>], &str),
        range: Range<i64>,
        timeout: Duration,
    ) -> Result<(), IngestError> {
        let deadline = AppendDeadline::after(timeout, FLUSH_DEADLINE);
        let (mut logged, mut left) = (Vec::new(), sensors);
        // Log all records before waiting for any of them. A deletion without sensors is logged too: other instances may
        // have readings of sensors that this one does not know.
        loop {
            let (sensors, rest) = left.split_at(chunk(left));
            let sensors = sensors.iter().map(|sensor| Sensor::clone(sensor)).collect();
            let statement = rest.is_empty().then(|| statement.to_owned());
            let scope = Scope::Readings { sensors, range: range.clone(), statement };
            let deletion = Deletion { received, database: database.to_owned(), scope };
            self.check_room(1, deletion.statement_bytes())?;
            logged.push(self.log_deletion(deletion, 0, Some(deadline)).await?);
            left = rest;
            if left.is_empty() {
                return self.deleted(logged, deadline).await;
            }
        }
    }

    /// See [`crate::ingest::Ingest::drop_database`]. The drop's stamp lies above `created`, when the database was created or
    /// its settings were set.
    pub async fn drop_database(
        &self,
        database: &str,
        created: Stamp,
        received: i64,
        timeout: Duration,
    ) -> Result<(), IngestError> {
        let deadline = AppendDeadline::after(timeout, FLUSH_DEADLINE);
        let deletion = Deletion { received, database: database.to_owned(), scope: Scope::Database };
        self.check_room(1, deletion.statement_bytes())?;
        let logged = self.log_deletion(deletion, created, Some(deadline)).await?;
        self.deleted(vec![logged], deadline).await
    }

    /// Logs the mark of a deletion by value: what is older will be covered. Without a deadline, as nobody would end a mark that
    /// became durable later.
    pub async fn mark(&self, database: &str, received: i64) -> Result<Mark, IngestError> {
        self.member.check()?;
        let deletion = Deletion { received, database: database.to_owned(), scope: Scope::Mark };
        let record = record::deletion::encode(&deletion);
        let (memory, dispatch) = (record.len(), self.dispatch.clone());
        let logged = move |sequence: Sequence| {
            dispatch.mark_logged(LoggedRequest { sequence, readings: 0, memory, received });
        };
        let above = self.member.registry_view.greatest();
        let sequence = self.append((above, record::deletion::KIND_DELETION), record, None, logged).await?;
        Ok(Mark::new(sequence, self.dispatch.marks.clone()))
    }

    /// Logs changes of metadata, all in one record. Returns what to wait for where the ack says that they are stored.
    pub async fn change_meta(
        &self,
        database: &Arc<Database>,
        (received, changes): (i64, Vec<KnownChange>),
        level: AckLevel,
    ) -> Result<Option<LoggedMeta>, IngestError> {
        self.member.check()?;
        let only = changes.iter().map(|(_, change)| change.clone()).collect();
        let record = record::meta::encode(&MetaRecord { received, database: database.name.to_string(), changes: only });
        let memory = record.len();
        let (waiter, stored) = oneshot::channel();
        let waiter = (level == AckLevel::Store).then_some(waiter);
        let (dispatch, database) = (self.dispatch.clone(), database.clone());
        let logged = move |sequence: Sequence| {
            if let Some(waiter) = waiter {
                dispatch.positions.wait_for(sequence, waiter);
            }
            dispatch.meta_logged(LoggedRequest { sequence, readings: 0, memory, received }, &database, changes);
        };
        let deadline = AppendDeadline::after(self.ack_timeout, ACK_TIMEOUT);
        let sequence = self.append((0, record::meta::KIND_META), record, Some(deadline), logged).await?;
        Ok((level == AckLevel::Store).then_some(((sequence, stored), deadline)))
    }

    /// Waits until logged metadata is stored.
    pub async fn meta_stored(&self, (logged, deadline): LoggedMeta) -> Result<(), IngestError> {
        self.stored(logged, deadline.at, deadline.store_timeout()).await
    }

    /// Logs a part of a deletion by value, and waits until it is carried out.
    pub async fn delete_cells(
        &self,
        database: &str,
        received: i64,
        sensors: Vec<DeletedTimes>,
        mark: &Mark,
    ) -> Result<(), IngestError> {
        let scope = Scope::Cells { sensors, before: mark.stamp };
        let deletion = Deletion { received, database: database.to_owned(), scope };
        let (_, stored) = self.log_deletion(deletion, 0, None).await?;
        match stored.await {
            Ok(done) => Ok(done?),
            Err(_) => Err(IngestError::Stopping),
        }
    }

    /// Whether the registry has room for more deletions, whose statements have so many bytes together.
    pub fn check_room(&self, more: usize, statement_bytes: usize) -> Result<(), IngestError> {
        let (limit, remembered) = (self.deletions, self.member.registry_view.remembered());
        if remembered + more > limit {
            return Err(IngestError::TooManyDeletions { more, remembered, limit });
        }
        let bytes = statement_bytes + self.member.registry_view.remembered_bytes();
        if bytes > STATEMENT_BYTES_MAX {
            return Err(IngestError::LongDeletions { bytes, limit: STATEMENT_BYTES_MAX });
        }
        Ok(())
    }

    async fn log_deletion(
        &self,
        deletion: Deletion,
        above: Stamp,
        deadline: Option<AppendDeadline>,
    ) -> Result<Logged, IngestError> {
        self.member.check()?;
        let record = record::deletion::encode(&deletion);
        let (memory, received) = (record.len(), deletion.received);
        let (waiter, stored) = oneshot::channel();
        let dispatch = self.dispatch.clone();
        // Look the targets up here, not in the WAL's callback, which delays the acks of other requests.
        let targets = self.dispatch.catalog.deleted_sensors(&deletion);
        let logged = move |sequence: Sequence| {
            dispatch.positions.wait_for(sequence, waiter);
            dispatch.deletion_logged(LoggedRequest { sequence, readings: 0, memory, received }, deletion, targets);
        };
        // The deletion's stamp must lie above every watermark that other instances have published.
        let above = self.member.registry_view.greatest().max(above);
        Ok((self.append((above, record::deletion::KIND_DELETION), record, deadline, logged).await?, stored))
    }

    /// Waits until deletions are done.
    async fn deleted(&self, all: Vec<Logged>, deadline: AppendDeadline) -> Result<(), IngestError> {
        for logged in all {
            self.stored(logged, deadline.at, IngestError::DeletionTimeout(deadline.waited)).await?;
        }
        Ok(())
    }

    /// Appends a record with a sequence above `above`; the WAL's callback owns `logged` from there on. Waits until the
    /// record is durable or known not to be, without a deadline as long as that takes.
    async fn append(
        &self,
        (above, kind): (Sequence, u8),
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
            // The receiver is gone if the client disconnected; its readings are kept all the same.
            let _ = ack.send(appended);
        };
        self.wal.append(above, kind, record, done).map_err(|error| self.refused(error))?;
        crate::faults::point("after_append");
        let acked = match deadline {
            Some(AppendDeadline { at, waited, key }) => {
                let acked = tokio::time::timeout_at(at, acked).await;
                acked.map_err(|_| IngestError::Timeout { waited, key })?
            }
            None => acked.await,
        };
        match acked {
            Ok(appended) => appended.map_err(|error| self.refused(error)),
            Err(_) => Err(IngestError::Stopping),
        }
    }

    /// Waits until the store has what a record says; fails with `late` if that takes longer.
    async fn stored(&self, (sequence, stored): Logged, by: Instant, late: IngestError) -> Result<(), IngestError> {
        match tokio::time::timeout_at(by, stored).await {
            Ok(Ok(stored)) => Ok(stored?),
            Ok(Err(_)) => Err(late),
            Err(_) => {
                self.dispatch.positions.forget(sequence);
                Err(late)
            }
        }
    }

    /// The error for a request whose append failed.
    fn refused(&self, error: AppendError) -> IngestError {
        let whole = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        match error {
            AppendError::TooLarge { limit, .. } => {
                IngestError::TooLarge { limit: whole(limit), key: "wal.segment_bytes" }
            }
            AppendError::QueueFull { bytes_limit, .. } => {
                IngestError::Overloaded { limit: whole(bytes_limit), key: "wal.queue_bytes" }
            }
            AppendError::Full(limit) => IngestError::Overloaded { limit: whole(limit), key: "wal.budget_bytes" },
            AppendError::Closed => IngestError::Stopping,
            AppendError::Unwritable { .. } | AppendError::Failed { .. } => {
                tracing::warn!(%error, "WAL append failed; request refused");
                IngestError::Log(error)
            }
        }
    }
}
