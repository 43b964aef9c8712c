//! The whole log brought to the store, what is still to be read back included: what a stop and `hourglass flush-wal`
//! wait for.

use std::time::{Duration, Instant};

use super::Ingest;

/// How often it is looked whether waiting is of any use.
const TICK: Duration = Duration::from_millis(50);

impl Ingest {
    /// Waits until the store has everything that is in the log by now: readings, deletions, sensors' documents. Gives
    /// up when no more of the log can be read back, or when the store has been away for `patience`.
    pub async fn drain(&self, patience: Option<Duration>) {
        let progress = &self.feed.progress;
        let drained = async {
            // Nothing is made due before all is fed: pages that are written full are written once.
            progress.fed().await;
            let through = progress.want_released();
            self.feed.wake();
            progress.released(through).await;
        };
        tokio::select! {
            () = drained => {}
            () = self.is_hopeless(patience) => {}
        }
    }

    /// How many records of the log the store does not have.
    #[must_use]
    pub fn records_left(&self) -> u64 {
        self.feed.progress.left()
    }

    async fn is_hopeless(&self, patience: Option<Duration>) {
        let mut answered = Instant::now();
        loop {
            tokio::time::sleep(TICK).await;
            if !self.learner.presence.is_away() {
                answered = Instant::now();
            }
            let is_lost = patience.is_some_and(|patience| answered.elapsed() >= patience);
            if is_lost || self.lag().blocked.is_some() || self.feed.progress.is_sealed() {
                return;
            }
        }
    }
}
