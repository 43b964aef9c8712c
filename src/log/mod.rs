//! hourglass's own log: records that are on the disk before anybody is told so, in segment files in
//! one folder. Knows records as bytes with a kind, and nothing of readings, buckets, stores or HTTP.
//!
//! # What it promises
//! * A record whose append was reported durable is read back exactly once, unchanged, in log order,
//!   after any crash, until it is released; unless its own bytes are damaged, which is noticed,
//!   counted, and its bytes are kept. One that was not reported may be there whole, or not at all.
//! * Sequences are unique and increasing over the life of the log. Some are left out: those of
//!   failed writes, and a million at every start.
//! * No failure of the disk ends the log. What cannot be written is refused at once, and accepted
//!   again as soon as a fresh segment can be made, without a restart.
//!
//! # How
//! One thread writes (`writer`). All that arrived during one fdatasync shares the next one; then
//! the callbacks run on that thread, in log order. Segments double in size from a sixteenth of
//! `segment_bytes` up to it; the next one is filled with zeros while the present one is in use. The
//! format is drawn in `format`. `open` begins a new segment every time, so that nothing is written
//! behind a tail that a crash may have torn. Bytes that hold no record, before a later record or behind
//! the last one, are judged (`damage::Verdict`: torn, in doubt, damaged), copied to `quarantine/`,
//! counted, and passed over; then the tail is cut.
//!
//! After a failed write or sync the descriptor is never used again. The group, of which nobody was
//! told, is written to a fresh segment with new sequences. A segment's header says where the one
//! before it ended when it took over, so what a failed write left behind that end never comes back.
//! A fresh file gets its name only once its header and first records are synced, and nobody is told
//! before the folder is synced, too.

mod checkpoint;
mod damage;
mod disk;
mod error;
mod folder;
mod format;
mod fresh;
mod headless;
mod inspect;
mod open;
mod quarantine;
mod reader;
mod release;
mod scan;
mod shared;
mod stats;
mod writer;

#[cfg(test)]
mod tests;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

pub use self::damage::{Counts, Damage, Verdict};
pub use self::disk::{Disk, DiskFile};
pub use self::error::{AppendError, OpenError, ReadError, ReleaseError};
pub use self::folder::Folder;
pub use self::inspect::{Inspected, inspect};
pub use self::reader::{Reader, Record};
pub use self::stats::Stats;

use self::format::{HEADER_BYTES, RECORD_BYTES, Stored};
use self::release::Releases;
use self::shared::{Entry, Shared};
use self::writer::{Ids, Writer};

/// The place of a record in the log. The first one is 1; 0 stands for "before all".
pub type Sequence = u64;

const LOCK: &str = "lock";

/// The least sequence that a record may get now: by it sequences can tell when their records were written.
#[derive(Clone)]
pub struct Least(Arc<dyn Fn() -> Sequence + Send + Sync>);

impl Least {
    /// What this says, asked once per sync.
    #[must_use]
    pub fn new(least: impl Fn() -> Sequence + Send + Sync + 'static) -> Self {
        Self(Arc::new(least))
    }

    pub(super) fn now(&self) -> Sequence {
        (self.0)()
    }
}

impl std::fmt::Debug for Least {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Least")
    }
}

/// How a log is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which store the log feeds, without credentials; at most 1024 bytes. A log with records that
    /// are not released is not opened for another one.
    pub store: String,
    /// Bytes of a full-grown segment file: a multiple of 4096, from 8 KiB to 1 GiB. Bounds a record.
    pub segment_bytes: u64,
    /// Most bytes of all segment files together, the preallocated ones too; at least two segments.
    /// Exact but for segments that a failing disk made useless. Quarantine is apart.
    pub budget_bytes: u64,
    /// Most bytes of records that wait for the disk. A single larger one may wait alone.
    pub queue_bytes: u64,
    /// Most records that wait for the disk; at least 1.
    pub queue_records: usize,
    /// Whether payloads are compressed (lz4) where that saves. The one who appends does the work.
    pub compress: bool,
    /// How long after the disk refused a segment it is asked again.
    pub retry: Duration,
    /// What sequences must not lie below.
    pub least: Least,
}

impl Options {
    /// The defaults, for that store.
    #[must_use]
    pub fn new(store: impl Into<String>) -> Self {
        Self {
            store: store.into(),
            segment_bytes: 64 << 20,
            budget_bytes: 10 << 30,
            queue_bytes: 64 << 20,
            queue_records: 1 << 16,
            compress: true,
            retry: Duration::from_secs(1),
            least: Least::new(|| 0),
        }
    }
}

/// What was found when a log was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// The log's id: random, made with the log, and kept for its life.
    pub log: u64,
    /// This opening of it: random, new every time.
    pub opening: u64,
    /// The earlier openings whose records are still there, each with the last of them; 0 for those of a version that had
    /// no ids for them.
    pub openings: Vec<(u64, Sequence)>,
    /// The last record that was found, or 0. What is appended from now on has higher sequences.
    pub last: Sequence,
    /// Up to here nothing is needed any more: replay begins behind it.
    pub released: Sequence,
    /// Damage found so far. Older segments are verified when they are read.
    pub damage: Vec<Damage>,
    /// Why nothing can be appended yet, if so. The log goes on trying.
    pub unwritable: Option<String>,
}

/// An open log. Closes when dropped, as [`Log::close`] does.
pub struct Log {
    shared: Arc<Shared>,
    releases: Releases,
    thread: Option<JoinHandle<()>>,
    /// Held while the log is open.
    _lock: Box<dyn Send + Sync>,
}

impl Log {
    /// The log in the folder is open, or a new one is there: the tail is verified and cut, appends
    /// are taken, and what was found can be read. A disk without room does not keep it from opening.
    ///
    /// # Errors
    /// The folder is in use, holds what this program must not touch, or fails to be read and synced.
    /// No record was touched.
    pub fn open(disk: impl Disk, options: Options) -> Result<(Self, Recovery), OpenError> {
        Self::open_with(Arc::new(disk), options, Box::new(random_id))
    }

    fn open_with(disk: Arc<dyn Disk>, options: Options, mut ids: Ids) -> Result<(Self, Recovery), OpenError> {
        let lock = disk.lock(LOCK).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => OpenError::Locked,
            _ => OpenError::Io { attempt: "locking the log".into(), error },
        })?;
        let open::Opened { shared, next, mut recovery, headless } = open::open(disk, options, &mut ids)?;
        let mut writer = Writer::new(Arc::clone(&shared), ids, next);
        writer.start();
        open::put_away(&shared, headless);
        recovery.damage = shared.damage.list();
        recovery.unwritable = shared.lock().unwritable.clone();
        let releases = Releases::new(recovery.released);
        // What an earlier process had released may go now; if not, then with the next release.
        let _ = releases.release(&shared, recovery.released);
        let of_thread = Arc::clone(&shared);
        let spawned = std::thread::Builder::new().name("log-writer".into()).spawn(move || {
            let _ = catch_unwind(AssertUnwindSafe(|| writer.run()));
            refuse_the_rest(&of_thread);
        });
        let thread = spawned.map_err(|error| OpenError::Io { attempt: "starting the writer".into(), error })?;
        Ok((Self { shared, releases, thread: Some(thread), _lock: lock }, recovery))
    }

    /// The record waits for the disk, and `done` will be called once: with its sequence when it is
    /// durable and readers see it, else with why it is not. The callbacks run on the writer's thread
    /// in log order, and hold up all appends while they do.
    ///
    /// # Errors
    /// The record was not taken, and `done` is dropped uncalled. Never waits for the disk.
    pub fn append(
        &self,
        kind: u8,
        payload: Vec<u8>,
        done: impl FnOnce(Result<Sequence, AppendError>) + Send + 'static,
    ) -> Result<(), AppendError> {
        self.append_above(0, kind, payload, done)
    }

    /// As [`Log::append`], with a sequence greater than this one.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn append_above(
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
        let stored = Stored::new(kind, payload, self.shared.options.compress);
        self.shared.admit(Entry { stored, above, done: Box::new(done) })
    }

    /// Gives out no sequence at or below `through` any more, as far as nothing is on its way to the disk; returns up to
    /// where that is so: of every record up to there the one who appended it has been told.
    #[must_use]
    pub fn close_below(&self, through: Sequence) -> Sequence {
        let mut state = self.shared.lock();
        if state.unresolved > 0 || state.told < state.durable {
            return state.told;
        }
        state.above = state.above.max(through);
        state.above.max(state.told)
    }

    /// Most bytes of one payload, before compression.
    #[must_use]
    pub fn record_limit(&self) -> u64 {
        self.shared.options.segment_bytes - HEADER_BYTES - RECORD_BYTES
    }

    /// A reader of all records that are durable, now or later, from that sequence on. Begin behind
    /// [`Log::released`]: of what was released some may still be there.
    #[must_use]
    pub fn reader(&self, from: Sequence) -> Reader {
        Reader::new(Arc::clone(&self.shared), from)
    }

    /// Everything up to that record is no longer needed: replay after a restart begins behind it,
    /// and segments that are wholly below it are gone. Two or three syncs; blocks. Asking for less
    /// than before changes nothing, but finishes what an earlier release could not.
    ///
    /// # Errors
    /// The checkpoint was not written, or a segment not removed. Nothing needed was lost, and the
    /// next release tries again.
    pub fn release(&self, through: Sequence) -> Result<(), ReleaseError> {
        self.releases.release(&self.shared, through)
    }

    /// Up to here nothing is needed any more, as far as this process said.
    #[must_use]
    pub fn released(&self) -> Sequence {
        self.shared.lock().released
    }

    /// The last durable record, or 0.
    #[must_use]
    pub fn durable(&self) -> Sequence {
        self.shared.lock().durable
    }

    /// The log's id: random, made with the log, and kept for its life.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.shared.log
    }

    /// Bytes of all segment files, with what is preallocated in them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.lock().kept()
    }

    /// Bytes of the segment files from that sequence's on: what stays for as long as it is needed.
    #[must_use]
    pub fn bytes_from(&self, sequence: Sequence) -> u64 {
        let state = self.shared.lock();
        let younger = state.segments.iter().rev().take_while(|segment| segment.last >= sequence);
        younger.map(|segment| segment.bytes).sum()
    }

    /// How many segment files there are.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.shared.lock().segments.len()
    }

    /// All damage met since the log was opened, at most the first thousand places.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        self.shared.damage.list()
    }

    /// All counters, of one moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let found = self.shared.damage.counts();
        let state = self.shared.lock();
        Stats {
            segments: state.segments.len(),
            bytes: state.kept(),
            waiting_records: state.unresolved,
            waiting_bytes: state.unresolved_bytes,
            durable: state.durable,
            released: state.released,
            found,
            unwritable: state.unwritable.clone().or_else(|| state.cramped.clone()),
            ..state.stats.clone()
        }
    }

    /// What waited is written, or its callbacks were told otherwise; nothing more is taken, and the
    /// folder is free for the next one. Readers keep reading what there is.
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

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("id", &self.shared.log).finish_non_exhaustive()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.end();
    }
}

/// When the writer's thread ends, however it does, nobody waits for it in vain.
fn refuse_the_rest(shared: &Shared) {
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

/// Seeded by the system for every thread, and different at every call.
fn random_id() -> u64 {
    RandomState::new().build_hasher().finish().max(1)
}
