//! A value that is read often and replaced as a whole.

use std::sync::Arc;

use parking_lot::RwLock;

/// A shared value that readers get without waiting for its next version. Clones share the value.
#[derive(Debug, Clone, Default)]
pub struct Snapshot<T>(Arc<RwLock<Arc<T>>>);

impl<T: Clone> Snapshot<T> {
    /// The current value.
    #[must_use]
    pub fn now(&self) -> Arc<T> {
        self.0.read().clone()
    }

    /// Replaces the value.
    pub fn set(&self, value: T) {
        *self.0.write() = Arc::new(value);
    }

    /// Changes the value in place; clones it first if a reader holds the current version.
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        change(Arc::make_mut(&mut self.0.write()));
    }
}
