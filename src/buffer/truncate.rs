//! Truncates the WAL as its records reach the store, and closes it at shutdown.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::faults;
use crate::members::member::Member;
use crate::members::positions::WalPositions;
use crate::wal::{DiskError, Wal};

/// The time between two truncations of the WAL.
const INTERVAL: Duration = Duration::from_secs(1);

/// Truncates the WAL at intervals, releases its disk space when it is quiet, and notes when it is more than half full.
/// Runs until the task is aborted.
pub async fn truncate_at_intervals(log: Arc<Wal>, positions: Arc<WalPositions>, budget: u64) {
    let mut has_failed = false;
    loop {
        tokio::time::sleep(INTERVAL).await;
        log.rest_if_quiet(Instant::now());
        if has_failed || log.can_shrink() || positions.truncatable() > log.truncated() {
            let truncated = truncate(&log, &positions).await;
            has_failed = truncated.is_err();
            if let Err(error) = truncated {
                tracing::warn!(%error, "cannot truncate the WAL; retrying");
            }
        }
        positions.note_wal_pressure(log.bytes() > budget / 2);
    }
}

/// Removes the WAL records that are no longer needed. After success, a restart does not replay them.
///
/// # Errors
/// If the checkpoint cannot be written, or a segment cannot be removed.
pub async fn truncate(log: &Arc<Wal>, positions: &WalPositions) -> Result<(), DiskError> {
    let through = positions.truncatable();
    let log = log.clone();
    let truncated = tokio::task::spawn_blocking(move || {
        faults::point("before_truncate");
        let truncated = log.truncate(through);
        faults::point("after_truncate");
        truncated
    });
    // The task panicked, or the runtime is shutting down.
    truncated.await.unwrap_or(Ok(()))
}

/// The handles to await when ingest stops.
pub struct Closing {
    /// The tasks of the shards. Each returns true if all its readings are in the store.
    pub shards: Vec<JoinHandle<bool>>,
    pub(crate) log: Arc<Wal>,
    pub(crate) positions: Arc<WalPositions>,
    pub(crate) member: Arc<Member>,
}

impl Closing {
    /// Returns the number of WAL records that the store does not have. The next start replays them.
    #[must_use]
    pub fn records_left(&self) -> u64 {
        self.positions.kept_records()
    }

    /// Leaves the registry. Call it when everything is stored and the store is reachable.
    pub async fn leave(&self) {
        self.member.leave().await;
    }

    /// Truncates the WAL a last time and closes it. Call it after the shards have ended. The next start replays the
    /// remaining records.
    pub async fn close_wal(self) {
        if let Err(error) = truncate(&self.log, &self.positions).await {
            tracing::warn!(%error, "cannot truncate the WAL at shutdown");
        }
        // On a blocking thread, because the drop of the last handle joins the writer's thread.
        let log = self.log;
        let member = self.member;
        let _ = tokio::task::spawn_blocking(move || {
            drop(member);
            drop(log);
        })
        .await;
    }
}
