//! Requests that may have been judged by settings that have changed since, until their records are in the WAL.

use std::sync::Arc;

use parking_lot::Mutex;

/// Held from before a request is validated until its record is logged.
#[derive(Debug)]
pub struct Judged(#[expect(dead_code, reason = "it is counted")] Arc<()>);

/// The requests between validation and the WAL, by periods. An expiry changes what validation accepts: it ends the current period,
/// and waits until no request of an earlier period is left.
#[derive(Debug)]
pub struct UnderWay(Mutex<Vec<Arc<()>>>);

impl Default for UnderWay {
    fn default() -> Self {
        Self(Mutex::new(vec![Arc::default()]))
    }
}

impl UnderWay {
    /// Before a request is judged.
    pub fn begin(&self) -> Judged {
        let periods = self.0.lock();
        Judged(periods.last().cloned().unwrap_or_default())
    }

    /// Ends the period: requests that begin from now on are waited for by nobody.
    pub fn end_period(&self) {
        let mut periods = self.0.lock();
        periods.retain(|period| Arc::strong_count(period) > 1);
        periods.push(Arc::default());
    }

    /// Whether all requests of earlier periods are logged, or given up.
    pub fn are_earlier_done(&self) -> bool {
        let periods = self.0.lock();
        periods.iter().rev().skip(1).all(|period| Arc::strong_count(period) == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_that_began_before_are_waited_for() {
        let under_way = UnderWay::default();
        assert!(under_way.are_earlier_done());
        let (first, second) = (under_way.begin(), under_way.begin());
        assert!(under_way.are_earlier_done(), "they are of this period");
        under_way.end_period();
        let later = under_way.begin();
        drop(first);
        assert!(!under_way.are_earlier_done());
        under_way.end_period();
        drop(later);
        assert!(!under_way.are_earlier_done(), "that of a period long over");
        drop(second);
        assert!(under_way.are_earlier_done());
        under_way.end_period();
        assert!(under_way.are_earlier_done());
    }
}
