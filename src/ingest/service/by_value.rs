//! The WAL side of deletions by value: logs a mark and waits until the store has everything older.
//! [`crate::edits`] resolves and deletes the parts.

use std::time::{Duration, Instant};

use super::Ingest;
use crate::ingest::error::{FLUSH_DEADLINE, IngestError};
use crate::members::marks::Mark;
use crate::reading::Stamp;

/// The interval at which the watermarks of all instances are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Ingest {
    /// Logs a mark, and waits until all instances have stored everything older and have published this in the registry.
    /// From then on, no instance merges an older reading again, not even after a crash.
    ///
    /// # Errors
    /// If that takes longer than `timeout`. Nothing is deleted then.
    pub async fn mark(&self, database: &str, received: i64, timeout: Duration) -> Result<Mark, IngestError> {
        let mark = self.submitter.mark(database, received).await?;
        crate::faults::point("marked");
        self.await_stored(mark.stamp - 1, timeout).await?;
        Ok(mark)
    }

    async fn await_stored(&self, through: Stamp, timeout: Duration) -> Result<(), IngestError> {
        let deadline = Instant::now() + timeout;
        // Wait for truncation, because sensors' documents that are not stored hold the watermark too.
        let own = self.dispatch.positions.want_truncated_through(through);
        self.dispatch.wake();
        let own_stored = async {
            // Records that are still to be replayed must be dispatched first: see `Marks`.
            self.dispatch.positions.wait_until_dispatched().await;
            self.dispatch.positions.wait_until_truncatable(own).await;
        };
        tokio::time::timeout(timeout, own_stored)
            .await
            .map_err(|_| IngestError::StoreTimeout { waited: timeout, key: FLUSH_DEADLINE })?;
        loop {
            let registry = self.member.publish().await?;
            let behind = registry.logs.iter().filter(|log| log.takeover.is_none() && log.watermark < through);
            let hosts: Vec<&str> = behind.map(|log| &*log.host).collect();
            if hosts.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(IngestError::OthersBehind { hosts: hosts.join(", "), waited: timeout });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
