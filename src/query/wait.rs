//! What passes by itself is waited for, up to `query.wait`, without holding a place among the queries under way.

use std::time::Duration;

use tokio::time::Instant;

use super::influx::StatementFailure;
use super::{Options, QueryError};
use crate::bucket::StorageError;

/// How long after a vain try the next one begins, at first and at most. A try that took longer is given as much rest,
/// so that those who wait take half of the time at most from those who are answered.
const PAUSE: std::ops::Range<Duration> = Duration::from_millis(10)..Duration::from_millis(200);

/// An error of which some pass by themselves.
pub trait Passing {
    /// Whether this one does: what is asked for is read back from the log, or the store may come back.
    fn is_passing(&self) -> bool;

    /// The store's error, where it is one.
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

/// Asks until it is answered, or fails for good, or `query.wait` is over: then with the last error. There is so much time
/// left for the answer.
///
/// # Errors
/// Those of what is asked.
pub async fn patiently<T, E: Passing, F: Future<Output = Result<T, E>>>(
    options: &Options,
    left: Duration,
    ask: impl Fn() -> F,
) -> Result<T, E> {
    // Never all of it: the error is to say what was waited for.
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
