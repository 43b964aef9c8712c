//! A value that is read often and replaced as a whole.

use std::sync::{Arc, PoisonError, RwLock};

/// A value as last read from the store, shared by all who need it.
#[derive(Debug, Clone, Default)]
pub struct Snapshot<T>(Arc<RwLock<Arc<T>>>);

impl<T: Clone> Snapshot<T> {
    /// The current value.
    #[must_use]
    pub fn now(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the value.
    pub fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }

    /// Changes the value.
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        change(Arc::make_mut(&mut self.0.write().unwrap_or_else(PoisonError::into_inner)));
    }
}
