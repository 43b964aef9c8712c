//! Blocking work, and the CPU time that a thread is held.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::task::{JoinHandle, spawn_blocking};

/// CPU time of one step above which it counts as long. The test build is not optimised and counts allocations, so it takes
/// about 15 times as long.
pub const LONG_STEP: Duration = Duration::from_millis(if cfg!(feature = "faults") { 300 } else { 20 });

static LONG_STEPS: AtomicU64 = AtomicU64::new(0);

/// Runs one step on a blocking thread. Only commits, compaction, and what happens once at the start or end of the
/// process use tokio's function: no request can make these longer, or they must be as long as they are.
pub fn spawn<T: Send + 'static>(step: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    spawn_blocking(move || {
        let before = cpu_time();
        let done = step();
        let took = cpu_time().saturating_sub(before);
        if took > LONG_STEP {
            LONG_STEPS.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(seconds = took.as_secs_f64(), "long blocking step");
        }
        done
    })
}

/// The number of steps of this process that were long.
#[must_use]
pub fn long_steps() -> u64 {
    LONG_STEPS.load(Ordering::Relaxed)
}

/// The CPU time of this thread.
#[must_use]
pub fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}
