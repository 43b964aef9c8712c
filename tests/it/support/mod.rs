//! What the tests stand on: a real mongod, the real `hourglass` binary, a plain HTTP client, optional packages.
//! Nothing in here knows what hourglass answers; it starts things, ends them for certain, and shows what they said.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Tests that each run one scenario.
macro_rules! tests {
    ($($(#[$attribute:meta])* fn $name:ident() => $scenario:expr;)*) => {
        $($(#[$attribute])* #[test] fn $name() { $scenario; })*
    };
}

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
pub mod proxy;
pub mod ran;
pub mod random;
pub mod raw;
pub mod replica_set;
pub mod scale;
pub mod series;
pub mod server;

/// Nanoseconds.
pub const SECOND: i64 = 1_000_000_000;
/// Nanoseconds.
pub const MINUTE: i64 = 60 * SECOND;
/// Nanoseconds.
pub const HOUR: i64 = 60 * MINUTE;
/// Nanoseconds.
pub const DAY: i64 = 24 * HOUR;
/// 2026-01-15T14:00:00Z, when most readings of the tests are.
pub const START: i64 = 1_768_485_600 * SECOND;
/// How long whatever is waited for may take on a busy machine.
pub const WITHIN: Duration = Duration::from_secs(60);

/// Polls `probe` until it yields a value, and panics with `what` was awaited when `within` has passed.
#[track_caller]
pub fn eventually<T>(what: &str, within: Duration, probe: impl FnMut() -> Option<T>) -> T {
    poll(within, probe).unwrap_or_else(|| panic!("{what}: not within {within:?}"))
}

/// Waits until `is_so`, and panics with `what` was awaited when `within` has passed.
#[track_caller]
pub fn wait_until(what: &str, within: Duration, mut is_so: impl FnMut() -> bool) {
    eventually(what, within, || is_so().then_some(()));
}

/// Polls `probe` until it yields a value or `within` has passed. It is always asked at least once.
pub fn poll<T>(within: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + within;
    loop {
        if let Some(found) = probe() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sets its flag when it is dropped, also while a panic unwinds: threads that wait for it must not wait for ever.
pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a future on a runtime of its own.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// The repository's root.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The wall clock in nanoseconds.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    i64::try_from(since.as_nanos()).expect("a time")
}
