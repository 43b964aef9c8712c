//! Truncation: removes segments that are no longer needed, strictly oldest first, so that the WAL has no gap after any
//! crash.

use super::error::{DiskError, disk_error};
use super::shared::WalShared;
use super::{Sequence, checkpoint};

/// The state of truncation. Its lock allows one truncation at a time.
pub(super) struct Truncations {
    /// The last position that was written to the checkpoint.
    written: Sequence,
    /// True if a removal may not be durable yet.
    is_unsynced: bool,
}

impl Truncations {
    /// `written` is the checkpoint's position after opening.
    pub(super) fn new(written: Sequence) -> Self {
        Self { written, is_unsynced: false }
    }

    pub(super) fn truncate(&mut self, shared: &WalShared, through: Sequence) -> Result<(), DiskError> {
        let truncated = {
            let mut state = shared.lock();
            state.truncated = state.truncated.max(through.min(state.durable));
            state.truncated
        };
        let marked = self.write_checkpoint(shared, truncated);
        // Remove segments even if the checkpoint fails, because that frees space on a full disk.
        self.delete(shared, truncated)?;
        marked
    }

    fn write_checkpoint(&mut self, shared: &WalShared, truncated: Sequence) -> Result<(), DiskError> {
        if truncated > self.written {
            checkpoint::write(&*shared.disk, shared.log, truncated).map_err(disk_error("writing the checkpoint"))?;
            self.written = truncated;
        }
        Ok(())
    }

    /// Removes segments, and makes every removal durable before the next one. Otherwise a power cut could keep an older
    /// segment and lose a newer one, and a replay would restore values that were overwritten since.
    fn delete(&mut self, shared: &WalShared, truncated: Sequence) -> Result<(), DiskError> {
        loop {
            if self.is_unsynced {
                shared.disk.sync_dir().map_err(disk_error("syncing the WAL's folder"))?;
                self.is_unsynced = false;
            }
            let oldest = {
                let state = shared.lock();
                // The last segment is in use.
                let has_successor = state.segments.len() > 1;
                let oldest = state.segments.front().filter(|oldest| has_successor && oldest.last <= truncated);
                oldest.map(|oldest| oldest.name.clone())
            };
            let Some(name) = oldest else { break };
            self.is_unsynced = true;
            let removed = checkpoint::remove_if_there(&*shared.disk, &name);
            removed.map_err(disk_error(format!("removing segment {name}")))?;
            shared.lock().segments.pop_front();
        }
        // The writer may have space again.
        shared.wake();
        Ok(())
    }
}
