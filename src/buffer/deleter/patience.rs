//! How long a deletion is retried.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::bucket::StorageError;

/// First and longest wait before a retry.
const RETRY: Range<Duration> = Duration::from_millis(100)..Duration::from_secs(2);
/// After this many refusals by the store a deletion is given up.
const REFUSALS_MAX: usize = 10;
/// How long a deletion may fail for reasons that are not known to pass before it is given up: far longer than the
/// minute after which MongoDB ends an abandoned transaction.
const FAILING_MAX: Duration = Duration::from_secs(300);

/// How long a deletion is retried.
pub struct Patience {
    wait: Duration,
    refusals: usize,
    /// The start, or the last failure that passes by itself.
    failing_since: Instant,
}

impl Patience {
    pub fn new(now: Instant) -> Self {
        Self { wait: RETRY.start, refusals: 0, failing_since: now }
    }

    /// The wait before the next try; `None` to give up. A store that is away, slow or full may recover, and other
    /// writers end: these are retried for as long as it takes.
    pub fn wait_after(&mut self, error: &StorageError, now: Instant) -> Option<Duration> {
        let given_up = match error {
            StorageError::Unavailable { .. }
            | StorageError::Unknown { .. }
            | StorageError::Contended { .. }
            | StorageError::Busy { .. }
            | StorageError::ReadAgain { .. }
            // Whoever starts the version that knows the document lets the deletion go on.
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

    /// Regression: conflicts with other writers' transactions, one of them left open by a killed instance, counted as
    /// refusals. After ten of them, 11 s, the deletion was given up, while MongoDB keeps such a transaction for a
    /// minute.
    #[test]
    fn a_deletion_outwaits_other_writers_and_gives_up_what_is_refused() {
        let (start, detail) = (Instant::now(), String::new);
        let tries = |error: StorageError| {
            let (mut patience, mut waited) = (Patience::new(start), Duration::ZERO);
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
