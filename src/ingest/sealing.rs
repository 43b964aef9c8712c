//! What sealing has done since the start, and how to ask for a round of it now.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::bucket::StorageError;
use crate::clock::now_ns;

/// Shared by the task that seals and those who ask it.
#[derive(Debug, Clone)]
pub struct Sealing(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    done: Mutex<SealingDone>,
    /// Whether a round was asked for that seals every day that is over.
    asked: AtomicBool,
    wake: tokio::sync::Notify,
    /// The number of rounds that have begun, and of those that have ended.
    rounds: watch::Sender<(u64, u64)>,
}

/// What was sealed since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SealingDone {
    /// Days of a sensor, counted each time that they are sealed: late readings are sealed anew.
    pub days: u64,
    /// Readings in them.
    pub readings: u64,
    /// What the last complete round left in hour pages; `None` before there was one.
    pub left: Option<Left>,
    /// What the round under way left when it last had looked at all days; `None` until it has.
    pub walked: Option<Left>,
    /// When the last round ended: wall-clock time in nanoseconds.
    pub ended: Option<i64>,
    /// Why the last round failed.
    pub error: Option<String>,
}

/// Days of a sensor that are over and were not sealed, and databases that are not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Left {
    /// A log may still have older values for some of their readings, or somebody else wrote to them meanwhile.
    pub unsettled: u64,
    /// They are larger than a sealed day may be.
    pub large: u64,
    /// Something of them can be neither read nor written: it is damaged, or a newer version wrote it.
    pub failed: u64,
    /// Databases, not days: their settings say that they are not sealed.
    pub off: u64,
}

impl std::ops::AddAssign for Left {
    fn add_assign(&mut self, other: Self) {
        self.unsettled += other.unsettled;
        self.large += other.large;
        self.failed += other.failed;
        self.off += other.off;
    }
}

impl Default for Sealing {
    fn default() -> Self {
        Self(Arc::new(Shared {
            done: Mutex::default(),
            asked: AtomicBool::new(false),
            wake: tokio::sync::Notify::new(),
            rounds: watch::channel((0, 0)).0,
        }))
    }
}

impl Sealing {
    /// What was done so far.
    #[must_use]
    pub fn done(&self) -> SealingDone {
        self.now().clone()
    }

    /// Whether a round is under way.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let (begun, ended) = *self.0.rounds.borrow();
        begun > ended
    }

    /// What is left in hour pages, as far as it is known: by the round under way, else by the last complete one.
    #[must_use]
    pub fn left(&self) -> Option<Left> {
        let done = self.done();
        if self.is_running() { done.walked } else { done.left }
    }

    /// Asks for a round that seals every day that is over. Returns its number, for [`Sealing::wait`].
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
    pub(super) async fn next(&self, pause: Option<Duration>) -> bool {
        match pause {
            Some(pause) => drop(tokio::time::timeout(pause, self.0.wake.notified()).await),
            None => self.0.wake.notified().await,
        }
        self.now().walked = None;
        self.0.rounds.send_modify(|(begun, _)| *begun += 1);
        self.0.asked.swap(false, Ordering::SeqCst)
    }

    fn now(&self) -> MutexGuard<'_, SealingDone> {
        self.0.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The round under way has looked at all days, and waits until more of them are settled.
    pub(super) fn walked(&self, left: Left) {
        self.now().walked = Some(left);
    }

    pub(super) fn sealed(&self, days: u64, readings: u64) {
        let mut done = self.now();
        (done.days, done.readings) = (done.days + days, done.readings + readings);
    }

    pub(super) fn end_round(&self, round: Result<Left, StorageError>) {
        let mut done = self.now();
        done.ended = Some(now_ns());
        match round {
            Ok(left) => (done.left, done.error) = (Some(left), None),
            Err(error) => done.error = Some(error.to_string()),
        }
        drop(done);
        self.0.rounds.send_modify(|(_, ended)| *ended += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_asks_during_a_round_waits_for_the_next_one() {
        let sealing = Sealing::default();
        let first = sealing.ask();
        assert!(sealing.next(None).await);
        let second = sealing.ask();
        assert!(second > first && sealing.is_running());
        sealing.end_round(Ok(Left { large: 3, ..Left::default() }));
        assert!(sealing.wait(first, Duration::ZERO).await);
        assert!(!sealing.wait(second, Duration::ZERO).await);
        assert!(sealing.next(None).await);
        sealing.end_round(Err(StorageError::Unavailable { detail: "away".to_owned() }));
        assert!(sealing.wait(second, Duration::ZERO).await);
        assert_eq!(sealing.done().left.map(|left| left.large), Some(3));
        assert!(sealing.done().error.is_some_and(|error| error.contains("away")));
        assert!(!sealing.next(Some(Duration::ZERO)).await, "nobody asked");
    }

    /// While a round ran, what an earlier one had left was told: nothing, with hundreds of days to go.
    #[tokio::test]
    async fn what_is_left_is_of_the_round_under_way() {
        let sealing = Sealing::default();
        let unsettled = |unsettled| Left { unsettled, ..Left::default() };
        assert_eq!((sealing.is_running(), sealing.left()), (false, None));
        for _ in 0..2 {
            let _ = sealing.ask();
            assert!(sealing.next(None).await);
            assert_eq!((sealing.is_running(), sealing.left()), (true, None));
            sealing.walked(unsettled(7));
            assert_eq!(sealing.left(), Some(unsettled(7)));
            sealing.end_round(Ok(unsettled(2)));
            assert_eq!((sealing.is_running(), sealing.left()), (false, Some(unsettled(2))));
        }
    }
}
