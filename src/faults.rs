//! Faults that tests ask for, so that the suite can be seen to catch them: a kill or a halt at a named point, and bugs
//! that are otherwise not there. All of it is compiled in only with the feature `faults`, which no release has.

/// A bug that was put in on purpose. Each is one that somebody could write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Segments are written and never synced.
    SkipFdatasync,
    /// A request is acked when its record is queued.
    AckBeforeSync,
    /// A record is released as soon as it is fed.
    ReleaseBeforeFlush,
    /// A timestamp that is there already is added once more.
    SkipDedupe,
    /// A summary over several pages counts those of the overflow twice.
    CountOverflowTwice,
    /// Half of a request's readings are lost when its record is made.
    LoseHalfARequest,
    /// Any bytes in a segment count as a record, whatever their checksum says.
    AcceptStaleBytes,
    /// A conflict is taken for success.
    ConflictIsSuccess,
    /// Replay begins one record too late.
    ReplaySkipsOne,
    /// What was in flight when the store went away is not tried again.
    DropFailedFlight,
    /// A query does not look at what is not flushed yet.
    QueryIgnoresHot,
    /// What comes later to the store wins, whatever the stamps say.
    ArrivalWins,
    /// An equal value that was said later leaves no trace in the store.
    DuplicateLeavesNoStamp,
    /// A deletion is carried out and not remembered.
    DeletionNotRemembered,
    /// A log says that it has nothing left although it has.
    WatermarkIgnoresUnflushed,
    /// Stamps go on from the log's last one, whatever the clock says.
    StampsCountOn,
    /// The store's clock is not looked at.
    ClockNotCompared,
    /// Undated readings are stamped anew at replay.
    RestampAtReplay,
    /// A summary is continued although readings before it changed.
    StaleSummary,
    /// What a query remembers of an hour outlives the hour's change.
    CacheForgetsToInvalidate,
    /// What is split off a page is taken for settled.
    SplitLosesStamps,
    /// A cell that was written later than the others of its reading has their stamp.
    CellTakesItsReadingsStamp,
    /// Of two records with one stamp the one that comes later to the store wins.
    EqualStampsByArrival,
    /// What an earlier opening of a log left counts as stored as soon as it is taken over.
    TakenOverIsStored,
    /// A copy of a folder answers for records that it has not.
    CopyAnswersForAll,
    /// A log that comes back counts as stored up to the floor.
    FloorRaisesWatermark,
    /// The floor is the greatest watermark.
    FloorFollowsGreatest,
    /// A deletion is forgotten before the floor has passed it.
    DeletionForgottenEarly,
    /// A deletion takes settled cells that were written after it.
    SettledIsOlderThanAll,
}

#[cfg(feature = "faults")]
mod active {
    use std::path::Path;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::Bug;

    /// `FAULT_KILL_AT=point:n`: the process kills itself the nth time it comes to that point.
    fn kill() -> Option<&'static (String, u64)> {
        static KILL: OnceLock<Option<(String, u64)>> = OnceLock::new();
        let parse = || {
            let text = std::env::var("FAULT_KILL_AT").ok()?;
            let (point, times) = text.split_once(':')?;
            Some((point.to_owned(), times.parse().ok()?))
        };
        KILL.get_or_init(parse).as_ref()
    }

    /// `FAULT_HALT_AT=point:file`: every thread that comes to that point waits there while the file is there.
    fn halt() -> Option<&'static (String, String)> {
        static HALT: OnceLock<Option<(String, String)>> = OnceLock::new();
        let parse = || {
            let text = std::env::var("FAULT_HALT_AT").ok()?;
            let (point, file) = text.split_once(':')?;
            Some((point.to_owned(), file.to_owned()))
        };
        HALT.get_or_init(parse).as_ref()
    }

    /// Whether who came to the point is to wait there; that somebody does is told by another file beside it.
    fn is_halted(file: &str) -> bool {
        let file = Path::new(file);
        let is_halted = file.exists();
        if is_halted {
            let _ = std::fs::write(file.with_extension("met"), "");
        }
        is_halted
    }

    /// Waits, or kills the process as SIGKILL does, when a test asked for it here.
    pub fn point(name: &str) {
        if let Some((_, file)) = halt().filter(|(at, _)| at == name) {
            while is_halted(file) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        static PASSED: AtomicU64 = AtomicU64::new(0);
        let Some((at, times)) = kill() else { return };
        if at == name && PASSED.fetch_add(1, Ordering::SeqCst) + 1 == *times {
            // Nothing is flushed or dropped, which is what makes it a kill.
            let _ = std::process::Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status();
            loop {
                std::thread::park();
            }
        }
    }

    /// As [`point`] where it halts, for a task that must not keep its thread from others meanwhile.
    pub async fn halt_at(name: &str) {
        let Some((_, file)) = halt().filter(|(at, _)| at == name) else { return };
        while is_halted(file) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// `FAULT_CLOCK_MS`: by how many milliseconds this machine's clock is ahead of what it should say.
    pub fn clock_ms() -> i64 {
        std::env::var("FAULT_CLOCK_MS").ok().and_then(|ms| ms.parse().ok()).unwrap_or_default()
    }

    /// Whether `FAULT_BUG` names this bug.
    pub fn has(bug: Bug) -> bool {
        static BUG: OnceLock<Option<String>> = OnceLock::new();
        BUG.get_or_init(|| std::env::var("FAULT_BUG").ok()).as_ref().is_some_and(|name| *name == format!("{bug:?}"))
    }
}

#[cfg(feature = "faults")]
pub use active::{clock_ms, halt_at, has, point};

/// Nothing: the feature `faults` is off.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn point(_name: &str) {}

/// Nothing: the feature `faults` is off.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub async fn halt_at(_name: &str) {}

/// The clock is right: the feature `faults` is off.
#[cfg(not(feature = "faults"))]
#[inline(always)]
#[must_use]
pub fn clock_ms() -> i64 {
    0
}

/// No: the feature `faults` is off.
#[cfg(not(feature = "faults"))]
#[inline(always)]
#[must_use]
pub fn has(_bug: Bug) -> bool {
    false
}
