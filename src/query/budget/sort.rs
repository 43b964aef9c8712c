//! Work that cannot pause, and sorting, which pauses between parts.

use std::cmp::Ordering;

use tokio::runtime::{Handle, RuntimeFlavor};

use super::Budget;
use crate::query::QueryError;

/// Comparisons of one step each that a part of a sort may take.
const SORTED_AT_ONCE: usize = 1 << 12;

impl Budget {
    /// Sorts items, with pauses while parts of them are sorted. `steps` is the work of one comparison.
    ///
    /// # Errors
    /// If the request has timed out.
    pub async fn sort<T>(
        &self,
        items: &mut [T],
        steps: usize,
        order: impl Fn(&T, &T) -> Ordering,
    ) -> Result<(), QueryError> {
        let mut size = (SORTED_AT_ONCE / steps.max(1)).max(16);
        // The sort is stable, and merges what is sorted already.
        loop {
            for part in items.chunks_mut(size) {
                self.run_unpaused(part.len() * steps, || part.sort_by(&order));
                self.pause().await?;
            }
            if size >= items.len() {
                return Ok(());
            }
            size *= 2;
        }
    }

    /// Runs work that cannot pause, such as merging. Above 50,000 steps, the runtime moves the other tasks of this
    /// thread to another thread.
    pub fn run_unpaused<T>(&self, steps: usize, work: impl FnOnce() -> T) -> T {
        let has_threads = || Handle::try_current().is_ok_and(|on| on.runtime_flavor() == RuntimeFlavor::MultiThread);
        if steps > 50_000 && has_threads() { tokio::task::block_in_place(work) } else { work() }
    }
}
