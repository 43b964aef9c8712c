//! Serializes the writes to the file. While a compaction copies the file, records them, so that they can be repeated on the
//! copy.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use redb::Database;

use super::file::FileFailure;
use crate::bucket::StorageError;

/// Maximum bytes of recorded work. Further writes wait until the copy has caught up.
const RECORDED_BYTES_MAX: usize = 16 << 20;
/// Maximum time that a write waits for the copy. After that the compaction gives up. Shorter than the store's deadline.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// A write to be repeated on the copy.
pub(super) type Redo = Arc<dyn Fn(&Database) -> Result<(), FileFailure> + Send + Sync>;

/// The order of writes, and the recording of a running compaction.
#[derive(Default)]
pub(super) struct Journal {
    /// Set while a compaction copies the file.
    recording: Mutex<Option<Recording>>,
    caught_up: Condvar,
}

/// The writes since the copy began.
#[derive(Default)]
struct Recording {
    work: VecDeque<RecordedWork>,
    bytes: usize,
    /// Set once the copy is useless: the reason.
    given_up: Option<String>,
}

struct RecordedWork {
    redo: Redo,
    bytes: usize,
}

/// The exclusive right to write to the file, until it is dropped.
pub(super) struct WritePermit<'a>(MutexGuard<'a, Option<Recording>>);

impl Journal {
    /// Waits for the right to write `bytes`.
    pub(super) fn wait_for_permit(&self, bytes: usize) -> WritePermit<'_> {
        let deadline = Instant::now() + WAIT_MAX;
        let mut recording = self.recording.lock();
        while let Some(full) = recording.as_mut().filter(|recording| recording.is_full(bytes)) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                full.give_up(format!(
                    "the copy cannot keep up: more than {RECORDED_BYTES_MAX} bytes of writes are waiting"
                ));
                break;
            }
            self.caught_up.wait_for(&mut recording, left);
        }
        WritePermit(recording)
    }

    /// Takes a snapshot and records all work after it.
    pub(super) fn start_recording<T>(&self, snapshot: impl FnOnce() -> T) -> T {
        let mut recording = self.recording.lock();
        let result = snapshot();
        *recording = Some(Recording::default());
        result
    }

    /// Removes and returns the oldest recorded work.
    pub(super) fn take_oldest(&self) -> Option<Redo> {
        let mut recording = self.recording.lock();
        let recording = recording.as_mut()?;
        let RecordedWork { redo, bytes } = recording.work.pop_front()?;
        recording.bytes -= bytes;
        self.caught_up.notify_all();
        Some(redo)
    }

    /// Returns the reason if the copy is useless.
    pub(super) fn given_up(&self) -> Option<String> {
        self.recording.lock().as_ref().and_then(|recording| recording.given_up.clone())
    }

    /// Makes a running compaction give up.
    pub(super) fn give_up(&self, reason: &str) {
        if let Some(recording) = &mut *self.recording.lock() {
            recording.give_up(reason.to_owned());
        }
        self.caught_up.notify_all();
    }

    pub(super) fn stop_recording(&self) {
        *self.recording.lock() = None;
        self.caught_up.notify_all();
    }
}

impl WritePermit<'_> {
    /// Records work that succeeded, if a compaction is running.
    pub(super) fn record(
        &mut self,
        bytes: usize,
        redo: impl Fn(&Database) -> Result<(), FileFailure> + Send + Sync + 'static,
    ) {
        if let Some(recording) = self.0.as_mut().filter(|recording| recording.given_up.is_none()) {
            recording.work.push_back(RecordedWork { redo: Arc::new(redo), bytes });
            recording.bytes += bytes;
        }
    }

    /// Makes a running compaction give up, because failed work may or may not have been applied.
    pub(super) fn record_failure(&mut self, error: &StorageError) {
        if let Some(recording) = &mut *self.0 {
            recording.give_up(format!("a write failed: {error}"));
        }
    }

    /// Removes and returns all recorded work. If the copy is useless, the error is the reason.
    pub(super) fn take_all(&mut self) -> Result<Vec<Redo>, String> {
        let Some(recording) = &mut *self.0 else { return Ok(Vec::new()) };
        if let Some(reason) = &recording.given_up {
            return Err(reason.clone());
        }
        recording.bytes = 0;
        Ok(recording.work.drain(..).map(|work| work.redo).collect())
    }
}

impl Recording {
    /// Returns true if a write of `bytes` has to wait.
    fn is_full(&self, bytes: usize) -> bool {
        self.given_up.is_none() && !self.work.is_empty() && self.bytes + bytes > RECORDED_BYTES_MAX
    }

    fn give_up(&mut self, reason: String) {
        self.work.clear();
        self.bytes = 0;
        self.given_up.get_or_insert(reason);
    }
}
