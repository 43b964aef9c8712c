//! The drain: waits until the whole WAL is in the store, including the records that are still to be replayed. Shutdown
//! and `hourglass wal flush` use it.

use std::time::{Duration, Instant};

use super::Ingest;
use crate::wal::Sequence;

/// The interval at which the drain checks that it can still make progress.
const TICK: Duration = Duration::from_millis(50);

impl Ingest {
    /// Waits until the store has everything that is in the WAL: readings, deletions and sensors' documents. Gives up if
    /// the replay is blocked, a shard has failed, or the store has been away for `patience`.
    pub async fn drain(&self, patience: Option<Duration>) {
        let positions = &self.dispatch.positions;
        let drained = async {
            // Replay everything before any bucket becomes due, so that each page is written once.
            positions.wait_until_dispatched().await;
            let through = positions.want_truncated_through(Sequence::MAX);
            self.dispatch.wake();
            positions.wait_until_truncatable(through).await;
        };
        tokio::select! {
            () = drained => {}
            () = self.wait_until_stuck(patience) => {}
        }
    }

    /// Returns once the drain cannot make progress any more.
    async fn wait_until_stuck(&self, patience: Option<Duration>) {
        let mut last_answer = Instant::now();
        loop {
            tokio::time::sleep(TICK).await;
            if !self.lookup.presence.is_away() {
                last_answer = Instant::now();
            }
            let is_store_lost = patience.is_some_and(|patience| last_answer.elapsed() >= patience);
            if is_store_lost || self.lag().blocked.is_some() || self.dispatch.positions.is_sealed() {
                return;
            }
        }
    }
}
