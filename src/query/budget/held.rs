//! Bytes that a request has reserved.

use super::Budget;
use crate::query::QueryError;

/// Reserved bytes. Dropping them releases the reservation.
#[derive(Debug)]
pub struct HeldBytes {
    budget: Budget,
    bytes: usize,
}

impl HeldBytes {
    /// Returns a reservation of nothing.
    pub(super) fn none(budget: Budget) -> Self {
        Self { budget, bytes: 0 }
    }

    /// Reserves more bytes.
    ///
    /// # Errors
    /// As [`Budget::hold`].
    pub fn grow(&mut self, bytes: usize) -> Result<(), QueryError> {
        if bytes > 0 {
            self.budget.take(bytes)?;
            self.bytes += bytes;
        }
        Ok(())
    }

    /// Changes the reservation to exactly this many bytes.
    ///
    /// # Errors
    /// As [`Budget::hold`].
    pub fn set(&mut self, bytes: usize) -> Result<(), QueryError> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.grow(more),
            None => {
                self.budget.give_back(self.bytes - bytes);
                self.bytes = bytes;
                Ok(())
            }
        }
    }

    /// Takes over another reservation of the same budget.
    pub fn add(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}
