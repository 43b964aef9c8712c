//! The retries of a deletion.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::bucket::StorageError;

/// The first and the longest wait before a retry.
pub(super) const RETRY: Range<Duration> = Duration::from_millis(100)..Duration::from_secs(2);
/// The number of refusals by the store after which a deletion is given up.
const REFUSALS_MAX: usize = 10;
/// The time after which a deletion that fails for unknown reasons is given up. It exceeds by far the minute after which
/// MongoDB ends an abandoned transaction.
const FAILING_MAX: Duration = Duration::from_secs(300);

/// The retry state of a deletion.
pub struct Patience {
    wait: Duration,
    refusals: usize,
    /// The time of the start, or of the last failure that is known to be temporary.
    failing_since: Instant,
}

impl Patience {
    pub fn new(now: Instant) -> Self {
        Self { wait: RETRY.start, refusals: 0, failing_since: now }
    }

    /// Returns the wait before the next attempt; `None` to give up. Temporary failures are retried without a limit: a
    /// store that is away, slow or full, and conflicts with other writers.
    pub fn wait_after(&mut self, error: &StorageError, now: Instant) -> Option<Duration> {
        let given_up = match error {
            StorageError::Unavailable { .. }
            | StorageError::Unknown { .. }
            | StorageError::Contended { .. }
            | StorageError::Busy { .. }
            | StorageError::ReadAgain { .. }
            // The deletion continues when a version that can read the document is started.
            | StorageError::Newer { .. } => {
                self.failing_since = now;
                false
            }
            StorageError::Failing { .. } | StorageError::Database { .. } => {
                now.saturating_duration_since(self.failing_since) >= FAILING_MAX
            }
            StorageError::Refused { .. }
            | StorageError::Unusable { .. }
            | StorageError::Address { .. }
            | StorageError::HourTooLarge { .. }
            | StorageError::Unreadable { .. } => {
                self.refusals += 1;
                self.refusals >= REFUSALS_MAX
            }
        };
        let wait = self.wait;
        self.wait = (wait * 2).min(RETRY.end);
        (!given_up).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: conflicts with transactions of other writers counted as refusals. After ten of them, in 11 s, the
    /// deletion was given up, but MongoDB keeps the transaction of a killed instance open for a minute.
    #[test]
    fn conflicts_are_retried_and_refusals_are_given_up() {
        let start = Instant::now();
        let detail = String::new;
        let tries = |error: StorageError| {
            let mut patience = Patience::new(start);
            let mut waited = Duration::ZERO;
            for tries in 1..500 {
                match patience.wait_after(&error, start + waited) {
                    Some(wait) => waited += wait,
                    None => return Some((tries, waited)),
                }
            }
            None
        };
        assert_eq!(tries(StorageError::Busy(detail())), None);
        assert_eq!(tries(StorageError::Contended(detail())), None);
        assert_eq!(tries(StorageError::Unavailable(detail())), None);
        assert_eq!(tries(StorageError::Newer { id: detail(), detail: detail() }), None);
        let (_, waited) = tries(StorageError::Failing(detail())).expect("gives up");
        assert!((FAILING_MAX..FAILING_MAX + RETRY.end).contains(&waited), "{waited:?}");
        let refused = tries(StorageError::Refused(detail())).map(|(tries, _)| tries);
        assert_eq!(refused, Some(REFUSALS_MAX));
    }
}
