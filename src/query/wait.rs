//! Retries queries after transient errors, for up to `query.wait`. A waiting query holds no permit to run.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

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
        let Self::Storage(error) = self else { return matches!(self, Self::Unflushed(_)) };
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
    let mut began = Instant::now();
    let mut answer = ask().await;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left < PAUSE.start || !matches!(&answer, Err(error) if error.is_transient()) {
            return answer;
        }
        // Leave half of the time to the last attempts.
        tokio::time::sleep(pause.max(began.elapsed()).min(left / 2)).await;
        pause = (2 * pause).min(PAUSE.end);
        began = Instant::now();
        // To find out that the store is still away takes seconds, which must not outlast the deadline.
        let is_away = matches!(&answer, Err(error) if error.store_error().is_some());
        answer = if is_away {
            let Ok(next) = timeout_at(deadline, ask()).await else { return answer };
            next
        } else {
            ask().await
        };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::config::Settings;

    /// Regression: an attempt that began within `query.wait` took as long as MongoDB's server selection, 3 s more.
    #[tokio::test]
    async fn no_attempt_outlasts_the_wait_for_the_store() {
        let options = QuerySettings { wait: Duration::from_millis(50), ..Settings::default().query };
        let attempts = Cell::new(0);
        let ask = || async {
            attempts.set(attempts.get() + 1);
            if attempts.get() > 1 {
                std::future::pending::<()>().await;
            }
            Err::<(), _>(QueryError::Storage(StorageError::Unavailable("away".to_owned())))
        };
        let answer = patiently(&options, Duration::from_secs(60), ask).await;
        assert!(answer.is_err_and(|error| error.is_transient()) && attempts.get() == 2);
    }
}
