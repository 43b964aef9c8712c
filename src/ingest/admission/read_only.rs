//! Whether this process takes changes: `hourglass copy --switch` ends that before it copies the last of them. Nothing but
//! this process knows it, so a restart takes changes again.

use std::sync::{Arc, PoisonError, RwLock};

use crate::ingest::error::IngestError;

/// Shared by everything that logs changes.
#[derive(Debug, Clone, Default)]
pub struct ReadOnly(Arc<RwLock<bool>>);

impl ReadOnly {
    /// Whether changes are refused.
    #[must_use]
    pub fn is_on(&self) -> bool {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// If changes are refused.
    pub fn check(&self) -> Result<(), IngestError> {
        if self.is_on() { Err(IngestError::ReadOnly) } else { Ok(()) }
    }

    /// Queues a record unless changes are refused. What was queued before [`ReadOnly::set`] returns is queued then.
    pub fn unless_on<T>(&self, queue: impl FnOnce() -> Result<T, IngestError>) -> Result<T, IngestError> {
        let is_on = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if *is_on { Err(IngestError::ReadOnly) } else { queue() }
    }

    pub fn set(&self, is_on: bool) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = is_on;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_queued_later_is_refused() {
        let read_only = ReadOnly::default();
        assert!(read_only.unless_on(|| Ok(1)).is_ok_and(|queued| queued == 1));
        read_only.set(true);
        assert!(matches!(read_only.unless_on(|| Ok(1)), Err(IngestError::ReadOnly)));
        read_only.set(false);
        assert!(read_only.check().is_ok() && read_only.unless_on(|| Ok(1)).is_ok());
    }
}
