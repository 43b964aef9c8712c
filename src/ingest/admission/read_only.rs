//! Whether this process takes changes: `hourglass copy --switch` ends that before it copies the last of them. Nothing but
//! this process knows it, so a restart takes changes again.

use std::sync::{Arc, PoisonError, RwLock};

use crate::ingest::error::IngestError;

/// Shared by everything that logs changes.
#[derive(Debug, Clone, Default)]
pub struct ReadOnly(Arc<RwLock<State>>);

#[derive(Debug, Default)]
struct State {
    is_on: bool,
    /// How often it was turned on.
    turns: u64,
}

impl ReadOnly {
    /// Whether changes are refused.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_on
    }

    /// # Errors
    /// If changes are refused.
    pub fn check(&self) -> Result<(), IngestError> {
        if self.is_on() { Err(IngestError::ReadOnly) } else { Ok(()) }
    }

    /// Queues a record unless changes are refused. What was queued before [`ReadOnly::set`] returns is queued then.
    pub fn unless_on<T>(&self, queue: impl FnOnce() -> Result<T, IngestError>) -> Result<T, IngestError> {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if state.is_on { Err(IngestError::ReadOnly) } else { queue() }
    }

    /// Returns how often it was turned on by now: as long as that is the same, and it is on, it was on all the time.
    pub fn set(&self, is_on: bool) -> u64 {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        state.turns += u64::from(is_on && !state.is_on);
        state.is_on = is_on;
        state.turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_queued_later_is_refused() {
        let read_only = ReadOnly::default();
        assert!(read_only.unless_on(|| Ok(1)).is_ok_and(|queued| queued == 1));
        assert_eq!((read_only.set(true), read_only.set(true)), (1, 1));
        assert!(matches!(read_only.unless_on(|| Ok(1)), Err(IngestError::ReadOnly)));
        assert_eq!(read_only.set(false), 1);
        assert!(read_only.check().is_ok() && read_only.unless_on(|| Ok(1)).is_ok());
        assert_eq!(read_only.set(true), 2, "it took changes in between");
    }
}
