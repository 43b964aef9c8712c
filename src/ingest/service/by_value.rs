//! Deletions by value, as far as the log and the registry are concerned: a mark, the wait until everything older is in the
//! store, and parts. What a part deletes is resolved elsewhere.

use std::time::{Duration, Instant};

use super::Ingest;
use crate::bucket::StorageError;
use crate::ingest::deletion::DeletedTimes;
use crate::ingest::error::{FLUSH_DEADLINE, IngestError};
use crate::ingest::marks::Mark;
use crate::ingest::options::IngestOptions;
use crate::ingest::trash::Trash;
use crate::reading::Stamp;

/// How often the other instances' watermarks are looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl Ingest {
    /// What deletions by value removed.
    #[must_use]
    pub fn trash(&self) -> &Trash {
        &self.trash
    }

    /// Most bytes of a part of a deletion by value.
    #[must_use]
    pub fn part_bytes(&self) -> usize {
        let IngestOptions { part_bytes, .. } = self.options;
        part_bytes
    }

    /// Logs a mark, then waits until everything older than it is in the store, of all instances.
    ///
    /// # Errors
    /// When that takes longer than `timeout`: nothing is deleted.
    pub async fn mark(&self, database: &str, received: i64, timeout: Duration) -> Result<Mark, IngestError> {
        let mark = self.submitter.mark(database, received).await?;
        crate::faults::point("marked");
        self.await_stored(mark.stamp - 1, timeout).await?;
        Ok(mark)
    }

    /// Waits until everything that was acked by now is in the store, by any instance.
    ///
    /// # Errors
    /// When that takes longer than `timeout`.
    pub async fn all_stored(&self, timeout: Duration) -> Result<(), IngestError> {
        let (_, now_ms) = self.opening();
        let through = self.dispatch.positions.make_due();
        self.await_stored(through.max(crate::bucket::registry::settled_before(now_ms)), timeout).await
    }

    async fn await_stored(&self, through: Stamp, timeout: Duration) -> Result<(), IngestError> {
        let until = Instant::now() + timeout;
        self.dispatch.positions.make_due();
        self.dispatch.wake();
        let late = |_| IngestError::StoreTimeout { waited: timeout, key: FLUSH_DEADLINE };
        tokio::time::timeout(timeout, async {
            // A record that dispatch has to read back is dispatched, too: see `Marks`.
            self.dispatch.positions.dispatched().await;
            self.dispatch.positions.flushed(through).await;
        })
        .await
        .map_err(late)?;
        while let Some(hosts) = self.behind(through).await? {
            if Instant::now() >= until {
                return Err(IngestError::OthersBehind { hosts, waited: timeout, key: FLUSH_DEADLINE });
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// The other instances that may have acknowledged something up to this stamp that is not in the store.
    async fn behind(&self, through: Stamp) -> Result<Option<String>, StorageError> {
        if !self.store.is_shared() {
            return Ok(None);
        }
        let (own, _) = self.opening();
        let logs = self.store.read_registry().await?.logs;
        let is_behind = |log: &&crate::bucket::registry::Registered| {
            log.opening != own && log.taken.is_none() && log.watermark < through
        };
        let hosts: Vec<&str> = logs.iter().filter(is_behind).map(|log| &*log.host).collect();
        Ok((!hosts.is_empty()).then(|| hosts.join(", ")))
    }

    /// Deletes cells that are older than the mark, and sensors that have no readings left. On return they are gone.
    ///
    /// # Errors
    /// When the part cannot be logged, or the store refuses it for good.
    pub async fn delete_cells(
        &self,
        of: (&str, i64),
        sensors: Vec<DeletedTimes>,
        mark: &Mark,
    ) -> Result<(), IngestError> {
        self.submitter.delete_cells(of, sensors, mark).await
    }
}
