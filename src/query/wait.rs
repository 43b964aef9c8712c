//! Retries queries after transient errors, for up to `query.wait`. A waiting query holds no permit to run.

use std::time::Duration;

use tokio::time::Instant;

use super::error::QueryError;
use super::influx::StatementFailure;
use crate::bucket::StorageError;
use crate::config::QuerySettings;

/// The first and the maximum pause before a retry. A pause is at least as long as the failed attempt, so that waiting
/// queries use at most half of the time.
const PAUSE: std::ops::Range<Duration> = Duration::from_millis(10)..Duration::from_millis(200);

/// Errors that can be transient.
pub trait Transient {
    /// Returns true if a retry may succeed: readings are still being read back from the WAL, or the store is
    /// unavailable.
    fn is_transient(&self) -> bool;

    /// Returns the error of the store, if it caused this error.
    fn store_error(&self) -> Option<&StorageError>;
}

impl Transient for QueryError {
    fn is_transient(&self) -> bool {
        let Self::Storage(error) = self else { return matches!(self, Self::ReplayPending(_)) };
        matches!(error, StorageError::Unavailable { .. } | StorageError::Unknown { .. })
    }

    fn store_error(&self) -> Option<&StorageError> {
        if let Self::Storage(error) = self { Some(error) } else { None }
    }
}

impl Transient for StatementFailure {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Query(error) if error.is_transient())
    }

    fn store_error(&self) -> Option<&StorageError> {
        if let Self::Query(error) = self { error.store_error() } else { None }
    }
}

/// Calls `ask` until it succeeds, fails permanently, or `query.wait` is over. `left` is the time until the deadline of
/// the request.
///
/// # Errors
/// The last error.
pub async fn patiently<T, E: Transient, F: Future<Output = Result<T, E>>>(
    options: &QuerySettings,
    left: Duration,
    ask: impl Fn() -> F,
) -> Result<T, E> {
    // Wait for at most nine tenths of the time left, so that the client gets the actual error instead of a timeout.
    let deadline = Instant::now() + options.wait.min(left / 10 * 9);
    let mut pause = PAUSE.start;
    loop {
        let began = Instant::now();
        let answer = ask().await;
        let now = Instant::now();
        if now >= deadline || !matches!(&answer, Err(error) if error.is_transient()) {
            return answer;
        }
        tokio::time::sleep_until(deadline.min(now + pause.max(now - began))).await;
        pause = (2 * pause).min(PAUSE.end);
    }
}
