//! When what is due: an open loop. POSTs follow each other at the scenario's rate whether or not the server keeps up, and
//! latencies count from the moment at which a POST was due, so that one slow answer does not hide that others waited.

use std::time::Duration;

/// A constant rate for a while.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// Readings per second.
    pub rate: f64,
    /// For how long.
    pub duration: Duration,
}

impl Schedule {
    /// When the POST is due that comes after so many readings; nothing when the run is over by then.
    pub fn due(&self, readings_before: u64) -> Option<Duration> {
        let due = Duration::from_secs_f64(count(readings_before) / self.rate);
        (due < self.duration).then_some(due)
    }

    /// Readings that are offered in all, about: the last POST may be whole or not.
    pub fn offered(&self) -> f64 {
        self.rate * self.duration.as_secs_f64()
    }
}

/// A count as a number to reckon with.
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
