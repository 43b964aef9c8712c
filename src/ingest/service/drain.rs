//! The drain: waits until the whole WAL is in the store, including what is still to be replayed. Used by shutdown and
//! by `hourglass wal flush`.

use std::time::{Duration, Instant};

use super::Ingest;
use crate::wal::Sequence;

/// How often to check whether the drain can still make progress.
const TICK: Duration = Duration::from_millis(50);

impl Ingest {
    /// Waits until the store has everything that the WAL holds by now: readings, deletions, sensors' documents. Gives
    /// up when the replay is blocked, when a shard has failed, or when the store has been away for `patience`.
    pub async fn drain(&self, patience: Option<Duration>) {
        let positions = &self.dispatch.positions;
        let drained = async {
            // Replay everything before anything is made due, so that pages are written once, when they are full.
            positions.wait_until_dispatched().await;
            let through = positions.want_truncated_through(Sequence::MAX);
            self.dispatch.wake();
            positions.wait_until_truncatable(through).await;
        };
        tokio::select! {
            () = drained => {}
            () = self.is_hopeless(patience) => {}
        }
    }

    async fn is_hopeless(&self, patience: Option<Duration>) {
        let mut answered = Instant::now();
        loop {
            tokio::time::sleep(TICK).await;
            if !self.lookup.presence.is_away() {
                answered = Instant::now();
            }
            let is_lost = patience.is_some_and(|patience| answered.elapsed() >= patience);
            if is_lost || self.lag().blocked.is_some() || self.dispatch.positions.is_sealed() {
                return;
            }
        }
    }
}
