//! The schedule of an open loop: POSTs are due at the scenario's rate even if the server does not keep up. Latencies
//! count from when a POST was due, so that a slow answer does not hide that later POSTs had to wait.

use std::time::Duration;

/// A constant rate for some time.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// Readings per second.
    pub rate: f64,
    pub duration: Duration,
}

impl Schedule {
    /// When the POST after this many readings is due; `None` after the end of the run.
    pub fn due(&self, readings_before: u64) -> Option<Duration> {
        let due = Duration::from_secs_f64(count(readings_before) / self.rate);
        (due < self.duration).then_some(due)
    }

    /// Approximate number of all readings due: the last POST may be incomplete.
    pub fn offered(&self) -> f64 {
        self.rate * self.duration.as_secs_f64()
    }
}

/// A count as a float.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub fn count(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posts_are_due_by_the_readings_before_them() {
        let schedule = Schedule { rate: 1000.0, duration: Duration::from_secs(2) };
        let due: Vec<_> = [0, 250, 1999, 2000].map(|before| schedule.due(before)).into();
        assert_eq!(due, [Some(0), Some(250), Some(1999), None].map(|due| due.map(Duration::from_millis)));
    }
}
