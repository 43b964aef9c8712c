//! Tracks requests between validation and the WAL, because they may have been validated with settings that have changed
//! since.

use std::sync::Arc;

use parking_lot::Mutex;

/// Registers a request as in validation. Held from before its validation until its record is logged.
#[derive(Debug)]
pub struct RequestGuard(#[expect(dead_code, reason = "only its reference count is read")] Arc<()>);

/// The requests between validation and the WAL, grouped by periods. An expiry changes which timestamps validation
/// accepts, so it ends the current period and waits until the requests of all earlier periods are logged.
#[derive(Debug)]
pub struct InValidation(Mutex<Vec<Arc<()>>>);

impl Default for InValidation {
    fn default() -> Self {
        Self(Mutex::new(vec![Arc::default()]))
    }
}

impl InValidation {
    /// Registers a request in the current period. Call this before validation.
    pub fn begin(&self) -> RequestGuard {
        let periods = self.0.lock();
        RequestGuard(periods.last().cloned().unwrap_or_default())
    }

    /// Ends the current period. Requests that begin later belong to the next one.
    pub fn end_period(&self) {
        let mut periods = self.0.lock();
        periods.retain(|period| Arc::strong_count(period) > 1);
        periods.push(Arc::default());
    }

    /// Returns true if all requests of earlier periods are logged or have failed.
    pub fn are_earlier_done(&self) -> bool {
        let periods = self.0.lock();
        periods.iter().rev().skip(1).all(|period| Arc::strong_count(period) == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_done_when_all_earlier_requests_are() {
        let requests = InValidation::default();
        assert!(requests.are_earlier_done());
        let first = requests.begin();
        let second = requests.begin();
        assert!(requests.are_earlier_done(), "both belong to the current period");
        requests.end_period();
        let later = requests.begin();
        drop(first);
        assert!(!requests.are_earlier_done());
        requests.end_period();
        drop(later);
        assert!(!requests.are_earlier_done(), "a request of the first period is left");
        drop(second);
        assert!(requests.are_earlier_done());
        requests.end_period();
        assert!(requests.are_earlier_done());
    }
}
