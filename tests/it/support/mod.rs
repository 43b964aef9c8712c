//! What the tests stand on: a real mongod, the real `hourglass` binary, a plain HTTP client, optional packages.
//! Nothing in here knows what hourglass answers; it starts things, ends them for certain, and shows what they said.
#![allow(dead_code, reason = "a support offers pairs (pause and resume, start and kill); not every half has a caller")]

use std::time::{Duration, Instant};

pub mod browser;
pub mod certificates;
pub mod exact;
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
pub mod random;
pub mod raw;
pub mod replica_set;
pub mod scale;
pub mod series;
pub mod server;

/// Polls `probe` until it yields a value, and panics with `what` was awaited when `within` has passed.
#[track_caller]
pub fn eventually<T>(what: &str, within: Duration, probe: impl FnMut() -> Option<T>) -> T {
    poll(within, probe).unwrap_or_else(|| panic!("{what}: not within {within:?}"))
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
