//! The wall clock: the time of undated readings, of `now()`, of marks that people read, and of expiry. No order and no
//! waiting depends on it; those have [`std::time::Instant`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Nanoseconds since the epoch: 0 before it, the largest number after 2262.
#[must_use]
pub fn now_ns() -> i64 {
    i64::try_from(since_epoch().as_nanos()).unwrap_or(i64::MAX)
}

/// Whole seconds since the epoch.
#[must_use]
pub fn now_seconds() -> i64 {
    i64::try_from(since_epoch().as_secs()).unwrap_or(i64::MAX)
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
