//! Foundations of the tests: mongod, the `hourglass` binary, an HTTP client and optional packages.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Tests that each run one scenario.
macro_rules! tests {
    ($($(#[$attribute:meta])* fn $name:ident() => $scenario:expr;)*) => {
        $($(#[$attribute])* #[test] fn $name() { $scenario; })*
    };
}

pub mod broker;
pub mod browser;
pub mod certificates;
pub mod exact;
pub mod halt;
pub mod http;
pub mod influxd;
pub mod jobs;
pub mod mongod;
pub mod packages;
pub mod packed;
pub mod pages;
pub mod prelude;
pub mod process;
pub mod programs;
pub mod proxy;
pub mod random;
pub mod raw;
pub mod replica_set;
pub mod scale;
pub mod series;
pub mod server;

/// Durations in nanoseconds.
pub const SECOND: i64 = 1_000_000_000;
pub const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;
pub const DAY: i64 = 24 * HOUR;
/// 2026-01-15T14:00:00Z, the time of most readings in the tests.
pub const START: i64 = 1_768_485_600 * SECOND;
/// Maximum waiting time. Busy machines stall for many seconds, so no test has a shorter one for what must happen.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Polls `probe` until it returns a value; panics with `what` after [`TIMEOUT`].
#[track_caller]
pub fn eventually<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    poll(TIMEOUT, probe).unwrap_or_else(|| panic!("{what}: not within {TIMEOUT:?}"))
}

/// Waits until `is_met` returns true; panics with `what` after [`TIMEOUT`].
#[track_caller]
pub fn wait_until(what: &str, mut is_met: impl FnMut() -> bool) {
    eventually(what, || is_met().then_some(()));
}

/// Polls `probe`, at least once, until it returns a value or `timeout` has passed.
pub fn poll<T>(timeout: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    loop {
        if let Some(found) = probe() {
            return Some(found);
        }
        let waited = started.elapsed();
        if waited >= timeout {
            return None;
        }
        // A probe is often a request. Many of them in a long wait would take the processors from other tests.
        std::thread::sleep((waited / 8).clamp(Duration::from_millis(10), Duration::from_millis(150)));
    }
}

/// Pauses a client that sends all the time beside a test. The pauses leave the processors to other tests.
pub fn pause_client() {
    std::thread::sleep(Duration::from_millis(5));
}

/// Sets its flag on drop, also during a panic, so that threads waiting for it end.
pub struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a future on its own runtime.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the wall clock in nanoseconds.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    i64::try_from(since.as_nanos()).expect("a time")
}

/// Returns all items at the scale `long`, otherwise every second one from `first` (0 or 1). Tests of two stores share the
/// items between them.
pub fn shared<T>(items: impl IntoIterator<Item = T>, first: usize) -> impl Iterator<Item = T> {
    let step = scale::scaled(2, 1);
    items.into_iter().skip(first % step).step_by(step)
}
