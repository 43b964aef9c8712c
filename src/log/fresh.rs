//! The segment file that is prepared before it is needed: filled with zeros and synced, so that a
//! full disk shows while there is still room for what was admitted. Filled by writing: extending
//! the length alone reserves nothing, and the standard library has no `fallocate`.

use std::io;
use std::sync::Arc;

use super::checkpoint::remove_if_there;
use super::disk::DiskFile;
use super::shared::Shared;

/// The name of the file until it becomes a segment.
pub(super) const NAME: &str = "fresh";
/// How much is filled and synced at once: what an append may have to wait for (some 4 ms on a
/// virtual disk).
const STEP_BYTES: u64 = 1 << 20;

/// The next segment file, as far as it is prepared.
pub(super) struct Fresh {
    shared: Arc<Shared>,
    file: Option<Box<dyn DiskFile>>,
    prepared: u64,
    /// Names that a failed attempt may have left. Until they are gone, durably, nothing new is
    /// made: what they hold was never acked and is written elsewhere.
    debris: Vec<String>,
}

impl Fresh {
    /// Whatever an earlier process left under the name is debris.
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, file: None, prepared: 0, debris: vec![NAME.to_owned()] }
    }

    /// How many bytes are ready.
    pub(super) fn prepared(&self) -> u64 {
        self.prepared
    }

    /// A step more is filled and synced, up to that many bytes in all.
    pub(super) fn prepare(&mut self, bytes: u64) -> io::Result<()> {
        if self.file.is_none() {
            self.clear_debris()?;
            self.prepared = 0;
            self.debris.push(NAME.to_owned());
            self.file = Some(self.shared.disk.create(NAME)?);
        }
        let Some(file) = &self.file else { return Ok(()) };
        let step = STEP_BYTES.min(bytes.saturating_sub(self.prepared));
        file.write_at(&vec![0; step as usize], self.prepared)?;
        file.sync()?;
        self.prepared += step;
        Ok(())
    }

    /// The file, with at least that many bytes ready, and how many. It still goes by [`NAME`].
    pub(super) fn take(&mut self, bytes: u64) -> io::Result<(Box<dyn DiskFile>, u64)> {
        while self.file.is_none() || self.prepared < bytes {
            self.prepare(bytes).inspect_err(|_| self.drop_prepared())?;
        }
        let file = self.file.take().ok_or(io::ErrorKind::NotFound)?;
        Ok((file, std::mem::take(&mut self.prepared)))
    }

    /// The file that was taken goes by the name, durably.
    pub(super) fn name(&mut self, name: &str) -> io::Result<()> {
        self.shared.disk.rename(NAME, name)?;
        self.shared.disk.sync_dir()?;
        self.debris.clear();
        Ok(())
    }

    /// The file that was taken, and that may go by either name, is in the way.
    pub(super) fn discard(&mut self, name: &str) {
        self.debris.push(name.to_owned());
        self.drop_prepared();
    }

    /// What was prepared is given up, and its room with it if the disk lets us.
    pub(super) fn drop_prepared(&mut self) {
        self.file = None;
        self.prepared = 0;
        // When this fails it is tried again before anything new is made.
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
