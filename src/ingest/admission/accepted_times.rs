//! The accepted range of timestamps.

use crate::config::{LimitsSettings, bound_ns};
use crate::reading::Reason;

/// In nanoseconds.
const SECOND: i64 = 1_000_000_000;

/// The accepted timestamps, relative to the receipt of the request (`limits.max_past`, `limits.max_future`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AcceptedTimes {
    /// Nanoseconds before the receipt. `None` is unbounded.
    pub past: Option<i64>,
    /// Nanoseconds after the receipt. `None` is unbounded.
    pub future: Option<i64>,
}

impl AcceptedTimes {
    pub fn new(limits: &LimitsSettings) -> Self {
        Self { past: bound_ns(limits.max_past), future: bound_ns(limits.max_future) }
    }

    /// Returns the reason to reject a timestamp, or `None` if it is accepted.
    #[must_use]
    pub fn refusal(&self, time: i64, received: i64) -> Option<Reason> {
        let outside =
            |bound: i64, ahead: bool| Reason::OutsideWindow { time, ahead, seconds: (bound / SECOND).unsigned_abs() };
        match (self.past, self.future) {
            (Some(past), _) if time < received.saturating_sub(past) => Some(outside(past, false)),
            (_, Some(future)) if time > received.saturating_add(future) => Some(outside(future, true)),
            _ => None,
        }
    }
}
