//! What the rewriting of documents of older forms has done since the start, and how to ask for it now.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::bucket::StorageError;
use crate::clock::now_ns;

/// Shared by the task that rewrites and those who ask it.
#[derive(Debug, Clone)]
pub struct Migration(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    done: Mutex<MigrationDone>,
    /// Whether a round was asked for that walks all databases.
    asked: AtomicBool,
    wake: tokio::sync::Notify,
    /// The number of rounds that have begun, and of those that have ended.
    rounds: watch::Sender<(u64, u64)>,
}

/// What was found and rewritten since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigrationDone {
    /// Documents that were looked at.
    pub examined: u64,
    /// Documents that were rewritten.
    pub rewritten: u64,
    /// Documents of older forms that are known and not rewritten yet.
    pub left: u64,
    /// Documents of a newer form that the last round met.
    pub newer: u64,
    /// When the last round ended: wall-clock time in nanoseconds. `None` before the first has.
    pub ended: Option<i64>,
    /// Why the last round failed.
    pub error: Option<String>,
}

impl Default for Migration {
    fn default() -> Self {
        Self(Arc::new(Shared {
            done: Mutex::default(),
            asked: AtomicBool::new(false),
            wake: tokio::sync::Notify::new(),
            rounds: watch::channel((0, 0)).0,
        }))
    }
}

impl Migration {
    /// What was done so far.
    #[must_use]
    pub fn done(&self) -> MigrationDone {
        self.0.done.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks for a round that walks all databases. Returns its number, for [`Migration::wait`].
    #[must_use]
    pub fn ask(&self) -> u64 {
        // Before the number is read: the round with this number begins after this.
        self.0.asked.store(true, Ordering::SeqCst);
        let round = self.0.rounds.borrow().0 + 1;
        self.0.wake.notify_one();
        round
    }

    /// Whether a round has ended, after waiting for it at most this long.
    pub async fn wait(&self, round: u64, longest: Duration) -> bool {
        let mut rounds = self.0.rounds.subscribe();
        let ended = rounds.wait_for(|(_, ended)| *ended >= round);
        tokio::time::timeout(longest, ended).await.is_ok_and(|ended| ended.is_ok())
    }

    /// Waits until it is time for a round; returns whether somebody asked for it.
    pub(super) async fn next(&self, pause: Duration) -> bool {
        drop(tokio::time::timeout(pause, self.0.wake.notified()).await);
        self.0.rounds.send_modify(|(begun, _)| *begun += 1);
        self.note(|done| (done.left, done.newer) = (0, 0));
        self.0.asked.swap(false, Ordering::SeqCst)
    }

    pub(super) fn note(&self, change: impl FnOnce(&mut MigrationDone)) {
        change(&mut self.0.done.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn end_round(&self, round: Result<(), StorageError>) {
        self.note(|done| (done.ended, done.error) = (Some(now_ns()), round.err().map(|error| error.to_string())));
        self.0.rounds.send_modify(|(_, ended)| *ended += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_asks_during_a_round_waits_for_the_next_one() {
        let migration = Migration::default();
        let first = migration.ask();
        assert!(migration.next(Duration::MAX).await);
        let second = migration.ask();
        assert!(second > first);
        migration.note(|done| done.left = 3);
        migration.end_round(Ok(()));
        assert!(migration.wait(first, Duration::ZERO).await && migration.done().left == 3);
        assert!(!migration.wait(second, Duration::ZERO).await);
        assert!(migration.next(Duration::MAX).await);
        migration.end_round(Err(StorageError::Unavailable { detail: "away".to_owned() }));
        assert!(migration.wait(second, Duration::ZERO).await);
        assert!(migration.done().left == 0 && migration.done().error.is_some_and(|error| error.contains("away")));
        assert!(!migration.next(Duration::ZERO).await, "nobody asked");
    }
}
