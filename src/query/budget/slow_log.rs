//! Limits how often slow queries are logged.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);
const MESSAGES_PER_MINUTE: u32 = 20;

/// Counts the messages of the current minute.
#[derive(Debug, Default)]
pub struct SlowLog(Mutex<Minute>);

#[derive(Debug, Default)]
struct Minute {
    began: Option<Instant>,
    messages: u32,
    left_out: u64,
}

impl SlowLog {
    /// Returns how many messages were left out before this one, or `None` if this one is left out, too.
    pub fn admit(&self, now: Instant) -> Option<u64> {
        let mut minute = self.0.lock();
        if minute.began.is_none_or(|began| now.saturating_duration_since(began) >= MINUTE) {
            minute.began = Some(now);
            minute.messages = 0;
        }
        if minute.messages == MESSAGES_PER_MINUTE {
            minute.left_out += 1;
            return None;
        }
        minute.messages += 1;
        Some(std::mem::take(&mut minute.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a dashboard of slow queries wrote megabytes of log an hour.
    #[test]
    fn the_first_messages_of_a_minute_are_logged_and_the_others_counted() {
        let log = SlowLog::default();
        let start = Instant::now();
        let at = |seconds: u64| log.admit(start + Duration::from_secs(seconds));
        for message in 0..MESSAGES_PER_MINUTE {
            assert_eq!(at(u64::from(message)), Some(0));
        }
        assert_eq!([at(30), at(59), at(60), at(61)], [None, None, Some(2), Some(0)]);
    }
}
