//! What the door let in goes to the log, whose callback feeds it to the shards, and its sender is
//! told what the ack level promises. Deletions go the same way.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::admission::Admission;
use super::batch::Batch;
use super::catalog::{Claims, Database};
use super::deletion::{self, Deletion, Scope};
use super::error::IngestError;
use super::options::AckLevel;
use super::progress::Logged;
use super::{Ingest, record};
use crate::bucket::StorageError;
use crate::log::{AppendError, Sequence};
use crate::reading::Sensor;

/// Bytes of sensors' keys in one record of a deletion, far below what the smallest segment of a log holds.
const DELETION_BYTES: usize = 16 << 10;

/// Most bytes of all statements that are remembered, far below what a document may have.
const STATEMENT_BYTES_MAX: usize = 4 << 20;

/// A deletion in the log, and who is told when it is done.
type LoggedDeletion = (Sequence, oneshot::Receiver<Result<(), StorageError>>);

/// How many of the first of these sensors fit into a record: one at least, if there is any.
fn lot(sensors: &[Arc<Sensor>]) -> usize {
    let mut bytes = 0;
    let fits = |sensor: &&Arc<Sensor>| {
        let is_first = bytes == 0;
        bytes += sensor.key.len();
        is_first || bytes <= DELETION_BYTES
    };
    sensors.iter().take_while(fits).count()
}

/// What is to be logged of a request.
pub(super) struct Submission {
    pub received: i64,
    pub patient: bool,
    pub judged: Vec<Batch>,
    pub claims: Claims,
    pub memory: usize,
}

impl Ingest {
    /// Hands the batches to the log, whose callback owns them from there on whatever becomes of the
    /// client, and waits for what the ack promises.
    pub(super) async fn submit(
        &self,
        database: &Arc<Database>,
        submission: Submission,
        admission: Admission,
        level: AckLevel,
    ) -> Result<(), IngestError> {
        let Submission { received, patient, judged: batches, claims, memory } = submission;
        let record = record::encode(&database.name, received, &batches);
        let readings = batches.iter().map(Batch::len).sum::<usize>() as u64;
        let (waiter, stored) = oneshot::channel();
        let waiter = (level == AckLevel::Store).then_some(waiter);
        let (feed, database) = (self.feed.clone(), database.clone());
        let timeout = self.options.ack_timeout;
        let deadline = Instant::now() + timeout;
        let logged = move |sequence: Sequence| {
            // Before a shard meets them.
            claims.logged();
            if let Some(waiter) = waiter {
                feed.progress.wait_for(sequence, waiter);
            }
            feed.logged(Logged { sequence, readings, memory, received }, &database, batches);
            drop(admission);
        };
        let deadline_of_log = (!patient).then_some(deadline);
        let sequence = self.append((0, record::KIND_READINGS), record, deadline_of_log, logged).await?;
        if level == AckLevel::Log {
            return Ok(());
        }
        self.feed.wake();
        self.stored(sequence, stored, deadline).await?.ok_or(IngestError::StoreTimeout(timeout))
    }

    /// Deletes the readings of sensors in a range of nanoseconds, and sensors that have none left; on return they
    /// are gone, from the store too. What other clients write meanwhile may come before or after it. The statement says
    /// which sensors they are to whoever meets readings of them later that were acked before.
    ///
    /// # Errors
    /// When it is not done by `timeout`: what is in the log by then is done all the same.
    pub async fn delete(
        &self,
        (database, received): (&str, i64),
        (sensors, statement): (&[Arc<Sensor>], &str),
        range: Range<i64>,
        timeout: Duration,
    ) -> Result<(), IngestError> {
        let deadline = Instant::now() + timeout;
        let (mut logged, mut left) = (Vec::new(), sensors);
        // All of it is in the log before any of it is waited for. Without any sensor, too: somebody else may have readings of
        // such sensors that nobody here knows of.
        loop {
            let (sensors, rest) = left.split_at(lot(left));
            let sensors = sensors.iter().map(|sensor| Sensor::clone(sensor)).collect();
            let statement = rest.is_empty().then(|| statement.to_owned());
            let scope = Scope::Readings { sensors, range: range.clone(), statement };
            let deletion = Deletion { received, database: database.to_owned(), scope };
            logged.push(self.log_deletion(deletion, deadline).await?);
            left = rest;
            if left.is_empty() {
                return self.deleted(logged, (deadline, timeout)).await;
            }
        }
    }

    /// Deletes everything of a database, and itself. As [`Ingest::delete`] otherwise.
    ///
    /// # Errors
    /// When it is not done by `timeout`: if it is in the log by then, it is done all the same.
    pub async fn drop_database(&self, database: &str, received: i64, timeout: Duration) -> Result<(), IngestError> {
        let deadline = Instant::now() + timeout;
        let deletion = Deletion { received, database: database.to_owned(), scope: Scope::Database };
        let logged = self.log_deletion(deletion, deadline).await?;
        self.deleted(vec![logged], (deadline, timeout)).await
    }

    async fn log_deletion(&self, deletion: Deletion, deadline: Instant) -> Result<LoggedDeletion, IngestError> {
        let limit = self.options.deletions;
        self.check_membership()?;
        if self.member.agreed.remembered() >= limit {
            return Err(IngestError::TooManyDeletions { limit });
        }
        let bytes = deletion.statement_bytes() + self.member.agreed.remembered_bytes();
        if bytes > STATEMENT_BYTES_MAX {
            return Err(IngestError::LongDeletions { bytes, limit: STATEMENT_BYTES_MAX });
        }
        let record = deletion::encode(&deletion);
        let (memory, received) = (record.len(), deletion.received);
        let (waiter, stored) = oneshot::channel();
        let feed = self.feed.clone();
        // Here, and not where the log says that it is durable: others' acks wait there.
        let doomed = self.catalog.doomed(&deletion);
        let logged = move |sequence: Sequence| {
            feed.progress.wait_for(sequence, waiter);
            feed.deletion_logged(Logged { sequence, readings: 0, memory, received }, deletion, doomed);
        };
        // Above what the others have said they acked.
        let above = self.member.agreed.greatest();
        Ok((self.append((above, deletion::KIND_DELETION), record, Some(deadline), logged).await?, stored))
    }

    /// Waits until deletions are done.
    async fn deleted(
        &self,
        logged: Vec<LoggedDeletion>,
        (deadline, timeout): (Instant, Duration),
    ) -> Result<(), IngestError> {
        for (sequence, stored) in logged {
            let done = self.stored(sequence, stored, deadline).await?;
            done.ok_or(IngestError::DeletionTimeout(timeout))?;
        }
        Ok(())
    }

    /// Appends a record of a kind to the log, above a sequence; its callback owns `logged` from there on. Waits until the
    /// record is durable, or known not to be; without a deadline as long as that takes.
    async fn append(
        &self,
        (above, kind): (Sequence, u8),
        record: Vec<u8>,
        deadline: Option<Instant>,
        logged: impl FnOnce(Sequence) + Send + 'static,
    ) -> Result<Sequence, IngestError> {
        let (ack, acked) = oneshot::channel();
        crate::faults::point("before_append");
        let done = move |appended: Result<Sequence, AppendError>| {
            crate::faults::point("after_sync");
            if let Ok(sequence) = appended {
                logged(sequence);
            }
            // A client that went away does not wait for its ack; its readings are kept.
            let _ = ack.send(appended);
        };
        self.log.append_above(above, kind, record, done).map_err(|error| self.refused(error))?;
        crate::faults::point("after_append");
        let acked = match deadline {
            Some(deadline) => tokio::time::timeout_at(deadline, acked).await,
            None => Ok(acked.await),
        };
        match acked {
            Ok(Ok(appended)) => appended.map_err(|error| self.refused(error)),
            Ok(Err(_)) => Err(IngestError::Stopping),
            Err(_) => Err(IngestError::Timeout(self.options.ack_timeout)),
        }
    }

    /// Waits until the store has what a record says; `None` when it has not in time.
    async fn stored(
        &self,
        sequence: Sequence,
        stored: oneshot::Receiver<Result<(), StorageError>>,
        deadline: Instant,
    ) -> Result<Option<()>, IngestError> {
        match tokio::time::timeout_at(deadline, stored).await {
            Ok(Ok(stored)) => Ok(Some(stored?)),
            Ok(Err(_)) => Ok(None),
            Err(_) => {
                self.feed.progress.forget(sequence);
                Ok(None)
            }
        }
    }

    /// What a request is told when the log does not take it.
    fn refused(&self, error: AppendError) -> IngestError {
        let whole = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        match error {
            AppendError::TooLarge { limit, .. } => {
                IngestError::TooLarge { limit: whole(limit), key: "log.segment_bytes" }
            }
            AppendError::QueueFull { bytes_limit, .. } => {
                IngestError::Overloaded { limit: whole(bytes_limit), key: "log.queue_bytes" }
            }
            AppendError::Full { limit } => IngestError::Overloaded { limit: whole(limit), key: "log.budget_bytes" },
            AppendError::Closed => IngestError::Stopping,
            AppendError::Unwritable { .. } | AppendError::Failed { .. } => {
                tracing::warn!(%error, "the log did not take a request; its sender was told to retry");
                IngestError::Log(error)
            }
        }
    }
}
