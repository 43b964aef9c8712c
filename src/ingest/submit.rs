//! What the door let in goes to the log, whose callback feeds it to the shards, and its sender is
//! told what the ack level promises.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::admission::Admission;
use super::batch::Batch;
use super::catalog::Database;
use super::error::IngestError;
use super::options::AckLevel;
use super::progress::Logged;
use super::{Ingest, record};
use crate::log::{AppendError, Sequence};

/// What is to be logged of a request.
pub(super) struct Submission {
    pub received: i64,
    pub judged: Vec<Batch>,
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
        let Submission { received, judged: batches, memory } = submission;
        let record = record::encode(&database.name, received, &batches);
        let readings = batches.iter().map(Batch::len).sum::<usize>() as u64;
        let (ack, logged) = oneshot::channel();
        let (waiter, stored) = oneshot::channel();
        let waiter = (level == AckLevel::Store).then_some(waiter);
        let (feed, database) = (self.feed.clone(), database.clone());
        crate::faults::point("before_append");
        let deadline = tokio::time::Instant::now() + self.options.ack_timeout;
        let done = move |appended: Result<Sequence, AppendError>| {
            crate::faults::point("after_sync");
            if let Ok(sequence) = appended {
                if let Some(waiter) = waiter {
                    feed.progress.wait_for(sequence, waiter);
                }
                feed.logged(Logged { sequence, readings, memory, received }, &database, batches);
            }
            drop(admission);
            // A client that went away does not wait for its ack; its readings are kept.
            let _ = ack.send(appended);
        };
        self.log.append(record::KIND_READINGS, record, done).map_err(|error| self.refused(error))?;
        crate::faults::point("after_append");
        let timeout = self.options.ack_timeout;
        let sequence = match tokio::time::timeout_at(deadline, logged).await {
            Ok(Ok(appended)) => appended.map_err(|error| self.refused(error))?,
            Ok(Err(_)) => return Err(IngestError::Stopping),
            Err(_) => return Err(IngestError::Timeout(timeout)),
        };
        if level == AckLevel::Log {
            return Ok(());
        }
        self.feed.wake();
        match tokio::time::timeout_at(deadline, stored).await {
            Ok(Ok(stored)) => Ok(stored?),
            Ok(Err(_)) => Err(IngestError::StoreTimeout(timeout)),
            Err(_) => {
                self.feed.progress.forget(sequence);
                Err(IngestError::StoreTimeout(timeout))
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
