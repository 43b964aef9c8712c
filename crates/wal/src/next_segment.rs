//! The next segment file, prepared before it is needed. It is filled with zeros and synced, so that a full disk is
//! detected while there is still space for the admitted records. The zeros are written: extending the length reserves
//! no space, and the standard library has no `fallocate`.

use std::io;
use std::sync::Arc;

use super::checkpoint::remove_if_there;
use super::disk::DiskFile;
use super::shared::WalShared;

/// The name of the file until it becomes a segment.
pub(super) const NAME: &str = "fresh";
/// The number of bytes filled and synced per step. An append may wait for one step, about 4 ms on a virtual disk.
const STEP_BYTES: u64 = 1 << 20;

/// The next segment file, as far as it is prepared.
pub(super) struct NextSegment {
    shared: Arc<WalShared>,
    file: Option<Box<dyn DiskFile>>,
    prepared: u64,
    /// Files that a failed attempt may have left. They are removed durably before a new file is created. Their records
    /// were never acked and are written elsewhere.
    debris: Vec<String>,
}

impl NextSegment {
    /// No next segment. A file that an earlier process left under [`NAME`] counts as debris.
    pub(super) fn new(shared: Arc<WalShared>) -> Self {
        Self { shared, file: None, prepared: 0, debris: vec![NAME.to_owned()] }
    }

    /// Bytes prepared so far.
    pub(super) fn prepared_bytes(&self) -> u64 {
        self.prepared
    }

    /// Fills and syncs one more step, up to `bytes` in total.
    pub(super) fn prepare(&mut self, bytes: u64) -> io::Result<()> {
        if self.file.is_none() {
            self.clear_debris()?;
            self.prepared = 0;
            self.debris.push(NAME.to_owned());
            self.file = Some(self.shared.disk.create(NAME)?);
        }
        let Some(file) = &self.file else { return Ok(()) };
        let step = STEP_BYTES.min(bytes.saturating_sub(self.prepared));
        let segments = self.shared.lock().segment_bytes();
        self.shared.options.room.check(segments + self.prepared + step)?;
        file.write_at(&vec![0; step as usize], self.prepared)?;
        file.sync()?;
        self.prepared += step;
        Ok(())
    }

    /// Prepares at least `bytes`, and returns the file with the number of prepared bytes. The file still has the name
    /// [`NAME`].
    pub(super) fn take(&mut self, bytes: u64) -> io::Result<(Box<dyn DiskFile>, u64)> {
        while self.file.is_none() || self.prepared < bytes {
            self.prepare(bytes).inspect_err(|_| self.drop_prepared())?;
        }
        let file = self.file.take().ok_or(io::ErrorKind::NotFound)?;
        Ok((file, std::mem::take(&mut self.prepared)))
    }

    /// Renames the taken file durably.
    pub(super) fn name(&mut self, name: &str) -> io::Result<()> {
        self.shared.disk.rename(NAME, name)?;
        self.shared.disk.sync_dir()?;
        self.debris.clear();
        Ok(())
    }

    /// Marks the taken file for removal. It may have either name.
    pub(super) fn discard(&mut self, name: &str) {
        self.debris.push(name.to_owned());
        self.drop_prepared();
    }

    /// Drops the prepared file, and tries to remove it.
    pub(super) fn drop_prepared(&mut self) {
        self.file = None;
        self.prepared = 0;
        // If this fails, `prepare` tries again before it creates a new file.
        let _ = self.clear_debris();
    }

    fn clear_debris(&mut self) -> io::Result<()> {
        if self.debris.is_empty() {
            return Ok(());
        }
        for name in &self.debris {
            remove_if_there(&*self.shared.disk, name)?;
        }
        self.shared.disk.sync_dir()?;
        self.debris.clear();
        Ok(())
    }
}
