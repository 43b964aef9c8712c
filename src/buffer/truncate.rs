//! Truncates the WAL as its records reach the store, and closes it at shutdown.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::faults;
use crate::members::member::Member;
use crate::members::positions::WalPositions;
use crate::wal::{DiskError, Wal};

/// How often the WAL is truncated.
const INTERVAL: Duration = Duration::from_secs(1);

/// Truncates the WAL regularly, has it give space back when it is quiet, and notes when it is more than half full. Runs until it is aborted.
pub async fn regularly(log: Arc<Wal>, positions: Arc<WalPositions>, budget: u64) {
    let mut failed = false;
    loop {
        tokio::time::sleep(INTERVAL).await;
        log.rest_if_quiet(Instant::now());
        if failed || log.can_shrink() || positions.truncatable() > log.truncated() {
            let truncated = truncate(&log, &positions).await;
            failed = truncated.is_err();
            if let Err(error) = truncated {
                tracing::warn!(%error, "WAL could not be truncated; retrying");
            }
        }
        positions.note_wal_pressure(log.bytes() > budget / 2);
    }
}

/// Removes WAL records that are no longer needed. On return, a restart will not replay them either.
///
/// # Errors
/// If the checkpoint cannot be written, or a segment cannot be removed.
pub async fn truncate(log: &Arc<Wal>, positions: &WalPositions) -> Result<(), DiskError> {
    let (through, log) = (positions.truncatable(), log.clone());
    let truncated = tokio::task::spawn_blocking(move || {
        faults::point("before_truncate");
        let truncated = log.truncate(through);
        faults::point("after_truncate");
        truncated
    });
    // The task panicked, or the runtime is shutting down.
    truncated.await.unwrap_or(Ok(()))
}

/// What to await when ingest is dropped.
pub struct Closing {
    /// Each returns whether everything it had is in the store.
    pub shards: Vec<JoinHandle<bool>>,
    pub(crate) log: Arc<Wal>,
    pub(crate) positions: Arc<WalPositions>,
    pub(crate) member: Arc<Member>,
}

impl Closing {
    /// How many WAL records the store does not have; the next start replays them.
    #[must_use]
    pub fn records_left(&self) -> u64 {
        self.positions.kept_records()
    }

    /// Tells the other members that this one has nothing left. Call it when everything is stored, while the store is
    /// reachable.
    pub async fn leave(&self) {
        self.member.leave().await;
    }

    /// Truncates the WAL a last time and closes it. Call it when the shards have ended; the next start replays what
    /// they left.
    pub async fn close_wal(self) {
        if let Err(error) = truncate(&self.log, &self.positions).await {
            tracing::warn!(%error, "WAL could not be truncated");
        }
        // Dropping the last handle joins the writer's thread.
        let (log, member) = (self.log, self.member);
        let _ = tokio::task::spawn_blocking(move || drop((member, log))).await;
    }
}
