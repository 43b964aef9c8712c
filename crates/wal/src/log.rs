//! An open log: append, read back, truncate, close.

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
use super::error::{AppendError, DiskError, WalOpenError, attempted};
use super::format::{EncodedPayload, HEADER_BYTES, RECORD_BYTES};
use super::open;
use super::options::{Sequence, WalOptions};
use super::reader::WalReader;
use super::recovery::Recovery;
use super::shared::{QueuedRecord, WalShared, first_bytes};
use super::stats::WalStats;
use super::truncate::Truncations;
use super::writer::{Ids, WalWriter};

const LOCK: &str = "lock";

/// An open log. Dropping it closes it, as [`Wal::close`] does.
pub struct Wal {
    pub(super) shared: Arc<WalShared>,
    releases: Mutex<Truncations>,
    quiet: Mutex<Quiet>,
    thread: Option<JoinHandle<()>>,
    /// Lock on the folder, held while the log is open.
    _lock: Box<dyn Send + Sync>,
}

/// Since when a log is quiet.
struct Quiet {
    since: Instant,
    /// [`WalStats::appended_bytes`] then.
    appended: u64,
}

impl Wal {
    /// Opens the log in the folder, or makes a new one: the tail is verified and cut, and records can be appended and
    /// read. A full disk does not keep a log from opening.
    ///
    /// # Errors
    /// The folder is in use, holds files this program must not touch, or cannot be read and synced. No record was
    /// changed.
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
            _ => attempted("locking the log")(error).into(),
        })?;
        let open::Opened { shared, next, mut recovery, headless } = open::open(disk, options, &mut ids)?;
        let mut writer = WalWriter::new(Arc::clone(&shared), ids, next);
        writer.open_segment();
        open::put_away(&shared, headless);
        recovery.damage = shared.damage.list();
        recovery.unwritable = shared.lock().unwritable.clone();
        let mut releases = Truncations::new(recovery.truncated);
        // Removes segments that an earlier process truncated but did not remove; if that fails, the next truncation
        // tries again.
        let _ = releases.truncate(&shared, recovery.truncated);
        let of_thread = Arc::clone(&shared);
        let spawned = std::thread::Builder::new().name("log-writer".into()).spawn(move || {
            let _ = catch_unwind(AssertUnwindSafe(|| writer.run()));
            refuse_the_rest(&of_thread);
        });
        let thread = spawned.map_err(attempted("starting the writer"))?;
        let quiet = Mutex::new(Quiet { since: Instant::now(), appended: 0 });
        let releases = Mutex::new(releases);
        Ok((Self { shared, releases, quiet, thread: Some(thread), _lock: lock }, recovery))
    }

    /// Queues a record for the disk, whose sequence will be greater than `above`. `done` is called once: with the record's sequence when it is durable and visible
    /// to readers, or with the reason why it is not. The callbacks run on the writer thread in log order, and hold up
    /// all appends while they run.
    ///
    /// # Errors
    /// The record was not queued, and `done` is dropped without being called. Never waits for the disk.
    pub fn append(
        &self,
        above: Sequence,
        kind: u8,
        payload: Vec<u8>,
        done: impl FnOnce(Result<Sequence, AppendError>) + Send + 'static,
    ) -> Result<(), AppendError> {
        let (bytes, limit) = (payload.len() as u64, self.record_limit());
        if bytes > limit {
            return Err(AppendError::TooLarge { bytes, limit });
        }
        let stored = EncodedPayload::new(kind, payload, self.shared.options.compress);
        self.shared.admit(QueuedRecord { stored, above, done: Box::new(done) })
    }

    /// If no record is on its way to the disk, ensures that no sequence at or below `through` is assigned from now on.
    /// Returns the sequence up to which that holds: the callbacks of all records up to there have run.
    #[must_use]
    pub fn close_below(&self, through: Sequence) -> Sequence {
        let mut state = self.shared.lock();
        if state.unresolved > 0 || state.told < state.durable {
            return state.told;
        }
        state.above = state.above.max(through);
        state.above.max(state.told)
    }

    /// Maximum bytes of one payload, before compression.
    #[must_use]
    pub fn record_limit(&self) -> u64 {
        self.shared.options.segment_bytes - HEADER_BYTES - RECORD_BYTES
    }

    /// A reader of all durable records, present and future, from this sequence on. Start behind [`Wal::truncated`]:
    /// some truncated records may still be in their segment.
    #[must_use]
    pub fn reader(&self, from: Sequence) -> WalReader {
        WalReader::new(Arc::clone(&self.shared), from)
    }

    /// Truncates the log: records up to this one are no longer needed, replay after a restart begins behind it, and
    /// segments wholly below it are removed. Two or three syncs; blocks. A position lower than an earlier one changes
    /// nothing, but finishes what an earlier truncation could not.
    ///
    /// # Errors
    /// The checkpoint was not written, or a segment not removed. Nothing needed was lost; the next truncation tries
    /// again.
    pub fn truncate(&self, through: Sequence) -> Result<(), DiskError> {
        self.releases.lock().truncate(&self.shared, through)
    }

    /// Whether a segment is left that the last truncation no longer needs: call [`Wal::truncate`] again.
    #[must_use]
    pub fn can_shrink(&self) -> bool {
        let state = self.shared.lock();
        state.segments.len() > 1 && state.segments.front().is_some_and(|oldest| oldest.last <= state.truncated)
    }

    /// Call this regularly. If the log has been quiet for [`WalOptions::quiet`] (less than a sixteenth of its smallest
    /// segment was appended in that time), and more than a quarter of a full segment is preallocated or no longer needed,
    /// it goes on with a new segment of the smallest size, and without a prepared one. [`Wal::truncate`] then removes the
    /// segment before. Appends are taken all the while. Returns whether it does so now.
    pub fn rest_if_quiet(&self, now: Instant) -> bool {
        let largest = self.shared.options.segment_bytes;
        let mut quiet = self.quiet.lock();
        let mut state = self.shared.lock();
        let appended = state.stats.appended_bytes;
        if appended - quiet.appended > first_bytes(largest) / 16 {
            *quiet = Quiet { since: now, appended };
        }
        if now.saturating_duration_since(quiet.since) < self.shared.options.quiet {
            return false;
        }
        *quiet = Quiet { since: now, appended };
        state.rest_asked = state.idle_bytes() > largest / 4;
        let asked = state.rest_asked;
        drop(state);
        self.shared.wake();
        asked
    }

    /// The position up to which the log is truncated.
    #[must_use]
    pub fn truncated(&self) -> Sequence {
        self.shared.lock().truncated
    }

    /// Sequence of the last durable record, or 0.
    #[must_use]
    pub fn durable(&self) -> Sequence {
        self.shared.lock().durable
    }

    /// Bytes of all segment files, including preallocated space.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.lock().kept()
    }

    /// Bytes of the segment files from the one with this sequence on: the disk space that a WAL pin at this sequence
    /// holds.
    #[must_use]
    pub fn bytes_from(&self, sequence: Sequence) -> u64 {
        let state = self.shared.lock();
        let younger = state.segments.iter().rev().take_while(|segment| segment.last >= sequence);
        younger.map(|segment| segment.bytes).sum()
    }

    /// Number of segment files.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.shared.lock().segments.len()
    }

    /// All damage found since the log was opened, at most the first thousand places.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        self.shared.damage.list()
    }

    /// All counters, as of one moment.
    #[must_use]
    pub fn stats(&self) -> WalStats {
        let found = self.shared.damage.counts();
        let state = self.shared.lock();
        WalStats {
            segments: state.segments.len(),
            bytes: state.kept() + state.spare,
            waiting_records: state.unresolved,
            waiting_bytes: state.unresolved_bytes,
            durable: state.durable,
            truncated: state.truncated,
            found,
            unwritable: state.refusal(&self.shared.options),
            ..state.stats.clone()
        }
    }

    /// Writes what is queued, or fails it, takes nothing more, and unlocks the folder. Readers can go on reading.
    pub fn close(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // The thread catches its own panics.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Wal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("id", &self.shared.log).finish_non_exhaustive()
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        self.end();
    }
}

/// Fails what is still queued when the writer thread ends, for whatever reason, so that no caller waits for ever.
fn refuse_the_rest(shared: &WalShared) {
    let rest = {
        let mut state = shared.lock();
        state.closed = true;
        (state.unresolved, state.unresolved_bytes) = (0, 0);
        std::mem::take(&mut state.waiting)
    };
    for entry in rest {
        let _ = catch_unwind(AssertUnwindSafe(|| (entry.done)(Err(AppendError::Closed))));
    }
}

/// The standard library seeds this from the system, and it differs at every call.
fn random_id() -> u64 {
    RandomState::new().build_hasher().finish().max(1)
}
