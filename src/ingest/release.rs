//! Giving the log's segments back as the store takes over what they hold, and the end of it all.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::member::Member;
use super::progress::Progress;
use crate::faults;
use crate::log::{Log, ReleaseError};

/// How often the log is told what it may let go.
const INTERVAL: Duration = Duration::from_secs(1);

/// Releases what is not needed any more, again and again, and notes when the log is more than half
/// full. Runs until it is aborted.
pub async fn regularly(log: Arc<Log>, progress: Arc<Progress>, budget: u64) {
    let mut failed = false;
    loop {
        tokio::time::sleep(INTERVAL).await;
        if failed || progress.releasable() > log.released() {
            let released = release(&log, &progress).await;
            failed = released.is_err();
            if let Err(error) = released {
                tracing::warn!(%error, "segments of the log could not be given back; it is tried again");
            }
        }
        progress.press_log(log.bytes() > budget / 2);
    }
}

/// Releases what is not needed any more. On return that is so after a restart, too.
///
/// # Errors
/// When the checkpoint cannot be written, or a segment cannot be removed.
pub async fn release(log: &Arc<Log>, progress: &Progress) -> Result<(), ReleaseError> {
    let (through, log) = (progress.releasable(), log.clone());
    let released = tokio::task::spawn_blocking(move || {
        faults::point("before_release");
        let released = log.release(through);
        faults::point("after_release");
        released
    });
    // It panics, or the runtime is going down.
    released.await.unwrap_or(Ok(()))
}

/// What is left to be waited for when ingest is dropped.
pub struct Closing {
    /// Each ends with whether all it had is in the store.
    pub shards: Vec<JoinHandle<bool>>,
    pub(super) log: Arc<Log>,
    pub(super) progress: Arc<Progress>,
    pub(super) member: Arc<Member>,
}

impl Closing {
    /// How many records of the log the store does not have: the next start reads them back.
    #[must_use]
    pub fn records_left(&self) -> u64 {
        self.progress.left()
    }

    /// Tells the other members that this one has nothing left. To be called when everything is stored, while the store
    /// is there.
    pub async fn leave(&self) {
        self.member.leave().await;
    }

    /// Gives back what can be given back and closes the log. To be called when the shards have
    /// ended; what they left is replayed at the next start.
    pub async fn close_log(self) {
        if let Err(error) = release(&self.log, &self.progress).await {
            tracing::warn!(%error, "segments of the log could not be given back");
        }
        // The writer's thread is joined when the last handle goes.
        let (log, member) = (self.log, self.member);
        let _ = tokio::task::spawn_blocking(move || drop((member, log))).await;
    }
}
