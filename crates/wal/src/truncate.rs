//! Truncation: removes segments that are no longer needed, strictly oldest first, so that after any crash the log
//! begins at one place and has no gap behind it.

use super::error::{DiskError, attempted};
use super::shared::WalShared;
use super::{Sequence, checkpoint};

/// Truncates the log, one call at a time.
pub(super) struct Truncations {
    /// Position in the checkpoint on the disk, as far as known.
    written: Sequence,
    /// Whether a removal may not be durable yet.
    unsynced: bool,
}

impl Truncations {
    /// `written` is the checkpoint's position after opening.
    pub(super) fn new(written: Sequence) -> Self {
        Self { written, unsynced: false }
    }

    pub(super) fn truncate(&mut self, shared: &WalShared, through: Sequence) -> Result<(), DiskError> {
        let truncated = {
            let mut state = shared.lock();
            state.truncated = state.truncated.max(through.min(state.durable));
            state.truncated
        };
        let marked = self.mark(shared, truncated);
        // On a full disk the checkpoint may fail; removing segments must still be possible, since it frees space.
        self.delete(shared, truncated)?;
        marked
    }

    fn mark(&mut self, shared: &WalShared, truncated: Sequence) -> Result<(), DiskError> {
        if truncated > self.written {
            checkpoint::write(&*shared.disk, shared.log, truncated).map_err(attempted("writing the checkpoint"))?;
            self.written = truncated;
        }
        Ok(())
    }

    /// Every removal is made durable before the next one: otherwise a power cut might keep an older segment and lose a
    /// newer one, and replay would bring back values that were overwritten since.
    fn delete(&mut self, shared: &WalShared, truncated: Sequence) -> Result<(), DiskError> {
        loop {
            if self.unsynced {
                shared.disk.sync_dir().map_err(attempted("syncing the log's folder"))?;
                self.unsynced = false;
            }
            let oldest = {
                let state = shared.lock();
                let is_done = state.segments.len() > 1;
                state
                    .segments
                    .front()
                    .filter(|oldest| is_done && oldest.last <= truncated)
                    .map(|oldest| oldest.name.clone())
            };
            let Some(name) = oldest else { break };
            self.unsynced = true;
            let removed = checkpoint::remove_if_there(&*shared.disk, &name);
            removed.map_err(attempted(format!("removing segment {name}")))?;
            shared.lock().segments.pop_front();
        }
        // The writer may have space again.
        shared.wake();
        Ok(())
    }
}
