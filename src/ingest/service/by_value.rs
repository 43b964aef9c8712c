//! Deletions by value, as far as the log and the registry are concerned: a mark, the wait until everything older is in the
//! store, and parts. What a part deletes is resolved elsewhere.

use std::time::{Duration, Instant};

use super::Ingest;
use crate::ingest::error::{FLUSH_DEADLINE, IngestError};
use crate::members::marks::Mark;
use crate::reading::Stamp;

/// How often the instances' watermarks are looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Ingest {
    /// Logs a mark, then waits until everything older than it is in the store, of all instances, and the registry says so: then
    /// no process merges any of it again, after a crash neither.
    ///
    /// # Errors
    /// When that takes longer than `timeout`: nothing is deleted.
    pub async fn mark(&self, database: &str, received: i64, timeout: Duration) -> Result<Mark, IngestError> {
        let mark = self.submitter.mark(database, received).await?;
        crate::faults::point("marked");
        self.await_stored(mark.stamp - 1, timeout).await?;
        Ok(mark)
    }

    async fn await_stored(&self, through: Stamp, timeout: Duration) -> Result<(), IngestError> {
        let until = Instant::now() + timeout;
        // With the sensors' documents, which hold the watermark, too.
        let own = self.dispatch.positions.want_truncated_through(through);
        self.dispatch.wake();
        let late = |_| IngestError::StoreTimeout { waited: timeout, key: FLUSH_DEADLINE };
        tokio::time::timeout(timeout, async {
            // A record that dispatch has to read back is dispatched, too: see `Marks`.
            self.dispatch.positions.wait_until_dispatched().await;
            self.dispatch.positions.wait_until_truncatable(own).await;
        })
        .await
        .map_err(late)?;
        loop {
            let registry = self.member.publish().await?;
            let behind = registry.logs.iter().filter(|log| log.taken.is_none() && log.watermark < through);
            let hosts: Vec<&str> = behind.map(|log| &*log.host).collect();
            if hosts.is_empty() {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(IngestError::OthersBehind { hosts: hosts.join(", "), waited: timeout });
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}
