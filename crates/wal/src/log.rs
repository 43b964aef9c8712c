//! An open WAL: append, read back, truncate, close.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::Mutex;

use super::damage::Damage;
use super::disk::Disk;
use super::error::{AppendError, DiskError, WalOpenError, disk_error};
use super::format::{EncodedPayload, HEADER_BYTES, RECORD_BYTES};
use super::open;
use super::options::{Sequence, WalOptions};
use super::reader::WalReader;
use super::recovery::Recovery;
use super::shared::{Condition, Done, QueuedRecord, WalShared, first_bytes};
use super::stats::WalStats;
use super::truncate::Truncations;
use super::writer::{Ids, WalWriter};

const LOCK: &str = "lock";

/// An open WAL. Dropping it closes it, as [`Wal::close`] does.
pub struct Wal {
    pub(super) shared: Arc<WalShared>,
    releases: Mutex<Truncations>,
    quiet: Mutex<Quiet>,
    thread: Option<JoinHandle<()>>,
    /// Lock on the folder, held while the WAL is open.
    _lock: Box<dyn Send + Sync>,
}

/// The start of a quiet period.
struct Quiet {
    start: Instant,
    /// [`WalStats::appended_bytes`] at that time.
    appended: u64,
}

impl Wal {
    /// Opens the WAL in the folder, or creates a new one. The tail is verified and cut. A WAL can be opened on a full
    /// disk.
    ///
    /// # Errors
    /// [`WalOpenError`] if the folder is in use, has files that this program must not change, or cannot be read and
    /// synced. No record was changed.
    pub fn open(disk: impl Disk, options: WalOptions) -> Result<(Self, Recovery), WalOpenError> {
        Self::open_with(Arc::new(disk), options, Box::new(random_id))
    }

    pub(super) fn open_with(
        disk: Arc<dyn Disk>,
        options: WalOptions,
        mut ids: Ids,
    ) -> Result<(Self, Recovery), WalOpenError> {
        let lock = disk.lock(LOCK).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => WalOpenError::Locked,
            _ => disk_error("locking the WAL")(error).into(),
        })?;
        let open::OpenedWal { shared, next, mut recovery, headless } = open::open(disk, options, &mut ids)?;
        let mut writer = WalWriter::new(Arc::clone(&shared), ids, next);
        writer.open_segment();
        open::put_away(&shared, headless);
        recovery.damage = shared.damage.list();
        recovery.unwritable = shared.lock().unwritable.clone();
        let mut releases = Truncations::new(recovery.truncated);
        // Remove segments that an earlier process truncated but did not remove. If that fails, the next truncation
        // tries again.
        let _ = releases.truncate(&shared, recovery.truncated);
        let writer_shared = Arc::clone(&shared);
        let spawned = std::thread::Builder::new().name("log-writer".into()).spawn(move || {
            let _ = catch_unwind(AssertUnwindSafe(|| writer.run()));
            reject_queued(&writer_shared);
        });
        let thread = spawned.map_err(disk_error("starting the writer"))?;
        let quiet = Mutex::new(Quiet { start: Instant::now(), appended: 0 });
        let releases = Mutex::new(releases);
        Ok((Self { shared, releases, quiet, thread: Some(thread), _lock: lock }, recovery))
    }

    /// Queues a record, which gets a sequence greater than `lower_bound`. Never waits for the disk. `done` is called once:
    /// with the record's sequence when it is durable and visible to readers, or with an error. Callbacks run on the
    /// writer thread in WAL order, and block all appends while they run.
    ///
    /// # Errors
    /// [`AppendError`] if the record was not queued. `done` is then dropped without a call.
    pub fn append(
        &self,
        lower_bound: Sequence,
        kind: u8,
        payload: Vec<u8>,
        done: impl FnOnce(Result<Sequence, AppendError>) + Send + 'static,
    ) -> Result<(), AppendError> {
        self.queue(lower_bound, kind, payload, None, Box::new(done))
    }

    /// As [`Wal::append`], if `condition` holds when the record gets its sequence, which is then passed. It is asked again
    /// before each attempt to write, and must return quickly. Otherwise `done` gets [`AppendError::Late`].
    ///
    /// # Errors
    /// The same.
    pub fn append_if(
        &self,
        lower_bound: Sequence,
        kind: u8,
        payload: Vec<u8>,
        condition: impl Fn(Sequence) -> bool + Send + 'static,
        done: impl FnOnce(Result<Sequence, AppendError>) + Send + 'static,
    ) -> Result<(), AppendError> {
        self.queue(lower_bound, kind, payload, Some(Box::new(condition)), Box::new(done))
    }

    fn queue(
        &self,
        lower_bound: Sequence,
        kind: u8,
        payload: Vec<u8>,
        condition: Option<Condition>,
        done: Done,
    ) -> Result<(), AppendError> {
        let bytes = payload.len() as u64;
        let limit = self.record_limit();
        if bytes > limit {
            return Err(AppendError::TooLarge { bytes, limit });
        }
        let stored = EncodedPayload::new(kind, payload, self.shared.options.compress);
        self.shared.admit(QueuedRecord { stored, lower_bound, condition, done })
    }

    /// Ensures that no sequence at or below `through` is assigned from now on, if no record is queued or being written.
    /// Returns the sequence up to which this holds; the callbacks of all records up to it have run.
    #[must_use]
    pub fn close_below(&self, through: Sequence) -> Sequence {
        let mut state = self.shared.lock();
        if state.unresolved > 0 || state.resolved < state.durable {
            return state.resolved;
        }
        state.lower_bound = state.lower_bound.max(through);
        state.lower_bound.max(state.resolved)
    }

    /// Maximum bytes of one payload, before compression.
    #[must_use]
    pub fn record_limit(&self) -> u64 {
        self.shared.options.segment_bytes - HEADER_BYTES - RECORD_BYTES
    }

    /// A reader of all durable records, present and future, from this sequence on. Start after [`Wal::truncated`],
    /// because some truncated records may still be in their segment.
    #[must_use]
    pub fn reader(&self, start: Sequence) -> WalReader {
        WalReader::new(Arc::clone(&self.shared), start)
    }

    /// Truncates the WAL up to and including `through`: a replay after a restart begins after it, and segments without
    /// later records are removed. Blocks for two or three syncs. A position below an earlier one only completes earlier
    /// truncations.
    ///
    /// # Errors
    /// [`DiskError`] if the checkpoint was not written, or a segment not removed. The next truncation tries again.
    pub fn truncate(&self, through: Sequence) -> Result<(), DiskError> {
        self.releases.lock().truncate(&self.shared, through)
    }

    /// Returns true if a truncated segment is left. Call [`Wal::truncate`] again to remove it.
    #[must_use]
    pub fn can_shrink(&self) -> bool {
        let state = self.shared.lock();
        state.segments.len() > 1 && state.segments.front().is_some_and(|oldest| oldest.last <= state.truncated)
    }

    /// Reduces the disk space of a quiet WAL; call this regularly. A WAL is quiet if less than a sixteenth of its
    /// smallest segment was appended during [`WalOptions::quiet`]. If more than a quarter of a full segment is then
    /// unused, the WAL switches to a new segment of the smallest size and drops the prepared one. [`Wal::truncate`]
    /// then removes the previous segment. Appends are accepted throughout. Returns true if the switch was requested.
    pub fn rest_if_quiet(&self, now: Instant) -> bool {
        let largest = self.shared.options.segment_bytes;
        let mut quiet = self.quiet.lock();
        let mut state = self.shared.lock();
        let appended = state.stats.appended_bytes;
        if appended - quiet.appended > first_bytes(largest) / 16 {
            *quiet = Quiet { start: now, appended };
        }
        if now.saturating_duration_since(quiet.start) < self.shared.options.quiet {
            return false;
        }
        *quiet = Quiet { start: now, appended };
        state.should_rest = state.idle_bytes() > largest / 4;
        let should_rest = state.should_rest;
        drop(state);
        self.shared.wake();
        should_rest
    }

    /// The position up to which the WAL is truncated.
    #[must_use]
    pub fn truncated(&self) -> Sequence {
        self.shared.lock().truncated
    }

    /// The sequence of the last durable record, or 0.
    #[must_use]
    pub fn durable(&self) -> Sequence {
        self.shared.lock().durable
    }

    /// The size of all segment files in bytes, including preallocated space.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.lock().segment_bytes()
    }

    /// The size of the segment files from the one with this sequence on, in bytes: the disk space that a pin at this
    /// sequence keeps.
    #[must_use]
    pub fn pinned_bytes(&self, sequence: Sequence) -> u64 {
        let state = self.shared.lock();
        let younger = state.segments.iter().rev().take_while(|segment| segment.last >= sequence);
        younger.map(|segment| segment.bytes).sum()
    }

    /// The number of segment files.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.shared.lock().segments.len()
    }

    /// All damage found since the WAL was opened, at most the first thousand places.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        self.shared.damage.list()
    }

    /// A snapshot of all counters.
    #[must_use]
    pub fn stats(&self) -> WalStats {
        let found = self.shared.damage.counts();
        let state = self.shared.lock();
        WalStats {
            segments: state.segments.len(),
            bytes: state.segment_bytes() + state.spare,
            waiting_records: state.unresolved,
            waiting_bytes: state.unresolved_bytes,
            durable: state.durable,
            truncated: state.truncated,
            found,
            unwritable: state.refusal(&self.shared.options),
            ..state.stats.clone()
        }
    }

    /// Closes the WAL: writes or fails the queued records, accepts no more, and unlocks the folder. Readers can
    /// continue.
    pub fn close(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // The thread catches its own panics.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Wal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wal").field("id", &self.shared.log).finish_non_exhaustive()
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        self.end();
    }
}

/// Fails all queued records when the writer thread ends for any reason, so that no caller waits forever.
fn reject_queued(shared: &WalShared) {
    let queued = {
        let mut state = shared.lock();
        state.is_closed = true;
        state.unresolved = 0;
        state.unresolved_bytes = 0;
        std::mem::take(&mut state.waiting)
    };
    for entry in queued {
        let _ = catch_unwind(AssertUnwindSafe(|| (entry.done)(Err(AppendError::Closed))));
    }
}

/// A random id that is not 0. The standard library seeds `RandomState` from the system.
fn random_id() -> u64 {
    RandomState::new().build_hasher().finish().max(1)
}
