//! Retries of queries that failed for a passing reason, for up to `query.wait`. A query that waits here holds no permit
//! to run.

use std::time::Duration;

use tokio::time::Instant;

use super::error::QueryError;
use super::influx::StatementFailure;
use crate::bucket::StorageError;
use crate::config::QuerySettings;

/// The pause before a retry, at first and at most. It is at least as long as the failed try took, so that waiting
/// queries use at most half of the time and leave the rest to others.
const PAUSE: std::ops::Range<Duration> = Duration::from_millis(10)..Duration::from_millis(200);

/// Errors that may pass by themselves.
pub trait Passing {
    /// Whether a retry may succeed: readings are still being read back from the WAL, or the store is unavailable.
    fn is_passing(&self) -> bool;

    /// The store's error, if it is one.
    fn of_store(&self) -> Option<&StorageError>;
}

impl Passing for QueryError {
    fn is_passing(&self) -> bool {
        matches!(self, Self::Behind(_) | Self::Storage(StorageError::Unavailable { .. } | StorageError::Unknown { .. }))
    }

    fn of_store(&self) -> Option<&StorageError> {
        if let Self::Storage(error) = self { Some(error) } else { None }
    }
}

impl Passing for StatementFailure {
    fn is_passing(&self) -> bool {
        matches!(self, Self::Query(error) if error.is_passing())
    }

    fn of_store(&self) -> Option<&StorageError> {
        if let Self::Query(error) = self { error.of_store() } else { None }
    }
}

/// Calls `ask` until it succeeds, fails for good, or `query.wait` is over; `left` is the time until the request's
/// deadline.
///
/// # Errors
/// The last error.
pub async fn patiently<T, E: Passing, F: Future<Output = Result<T, E>>>(
    options: &QuerySettings,
    left: Duration,
    ask: impl Fn() -> F,
) -> Result<T, E> {
    // Waits for at most nine tenths of the time left, so that the client gets the actual error and not a timeout.
    let until = Instant::now() + options.wait.min(left / 10 * 9);
    let mut pause = PAUSE.start;
    loop {
        let began = Instant::now();
        let answer = ask().await;
        let now = Instant::now();
        if now >= until || !matches!(&answer, Err(error) if error.is_passing()) {
            return answer;
        }
        tokio::time::sleep_until(until.min(now + pause.max(now - began))).await;
        pause = (2 * pause).min(PAUSE.end);
    }
}
