//! State that the writer thread, appenders, readers and truncation share, under one lock: the queue, the segments, and
//! how much more may be admitted.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::damage::DamageRegister;
use super::disk::Disk;
use super::error::AppendError;
use super::format::{EncodedPayload, HEADER_BYTES};
use super::stats::WalStats;
use super::{Sequence, WalOptions};

/// Called once, when it is known whether the record is durable.
pub(super) type Done = Box<dyn FnOnce(Result<Sequence, AppendError>) + Send>;

/// A record queued for the disk.
pub(super) struct QueuedRecord {
    pub(super) stored: EncodedPayload,
    /// Its sequence must be greater than this.
    pub(super) above: Sequence,
    pub(super) done: Done,
}

/// One segment file of the log.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) first: Sequence,
    /// Last sequence up to `end`; the last sequence of an older segment when this one is empty.
    pub(super) last: Sequence,
    /// Where its last synced record ends.
    pub(super) end: u64,
    /// Everything before this offset was synced; whether the bytes from here to `end` were is unknown.
    pub(super) sure: u64,
    /// Size of the file.
    pub(super) bytes: u64,
}

pub(super) struct WalShared {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) options: WalOptions,
    pub(super) log: u64,
    /// Id of this opening of the log.
    pub(super) opening: u64,
    state: Mutex<WalState>,
    /// Wakes the writer thread.
    wake: Condvar,
    pub(super) damage: DamageRegister,
}

/// State under the lock.
#[derive(Default)]
pub(super) struct WalState {
    /// Oldest first. The last one is being written to, unless the log is unwritable.
    pub(super) segments: VecDeque<Segment>,
    pub(super) durable: Sequence,
    /// The callbacks of all records up to here have run.
    pub(super) told: Sequence,
    /// No sequence at or below this is assigned.
    pub(super) above: Sequence,
    pub(super) truncated: Sequence,
    pub(super) waiting: VecDeque<QueuedRecord>,
    /// Bytes and number of admitted records whose outcome is not known yet.
    pub(super) unresolved_bytes: u64,
    pub(super) unresolved: usize,
    pub(super) closed: bool,
    /// Whether the writer is asked to give preallocated space back.
    pub(super) rest_asked: bool,
    /// Bytes of the next segment that are prepared.
    pub(super) spare: u64,
    /// Whether the writer thread sleeps until it is woken.
    pub(super) writer_sleeps: bool,
    /// Why nothing can be written at present.
    pub(super) unwritable: Option<String>,
    /// Why no new segment can be prepared at present.
    pub(super) cramped: Option<String>,
    /// The size of the latest record, if it was refused for want of room.
    pub(super) no_room_for: Option<u64>,
    pub(super) plan: SegmentPlan,
    pub(super) stats: WalStats,
}

/// Which segment each admitted record will go to. The writer fills segments in the same order by the same rule, so the
/// admitted records keep exactly within the budget.
#[derive(Debug, Default, Clone)]
pub(super) struct SegmentPlan {
    /// Free bytes in the last planned segment.
    room: u64,
    /// Size of that segment.
    bytes: u64,
    /// Sizes of the segments that are planned but do not exist yet.
    ahead: VecDeque<u64>,
}

impl SegmentPlan {
    /// A plan for the current segment of this size, filled up to `end`, with nothing else admitted.
    pub(super) fn begin(bytes: u64, end: u64) -> Self {
        Self { room: bytes - end, bytes, ahead: VecDeque::new() }
    }

    /// A plan for an empty segment of this size that does not exist yet, with nothing else admitted.
    pub(super) fn rest(bytes: u64) -> Self {
        Self { room: bytes - HEADER_BYTES, bytes, ahead: VecDeque::from([bytes]) }
    }

    /// Reserves space for a record of this size; false when that would exceed the budget.
    fn place(&mut self, size: u64, largest: u64, kept: u64, budget: u64) -> bool {
        if size <= self.room {
            self.room -= size;
            return true;
        }
        let bytes = next_bytes(self.bytes, size, largest);
        if kept + self.ahead.iter().sum::<u64>() + bytes > budget {
            return false;
        }
        self.ahead.push_back(bytes);
        self.bytes = bytes;
        self.room = bytes - HEADER_BYTES - size;
        true
    }

    /// Whether a record of this size needs a segment that does not exist yet.
    fn needs_more(&self, size: u64) -> bool {
        size > self.room
    }

    /// Takes the next planned segment, which exists now, off the plan, and returns its size.
    pub(super) fn arrived(&mut self) -> Option<u64> {
        self.ahead.pop_front()
    }

    /// Size of the next segment the plan needs.
    pub(super) fn next(&self) -> Option<u64> {
        self.ahead.front().copied()
    }
}

/// What the record of one reading takes, rounded up.
const SMALL_RECORD_BYTES: u64 = 256;

/// Size of the first segment after a start: a sixteenth of the full size, so that starting is quick and a log that is
/// hardly used stays small.
pub(super) fn first_bytes(largest: u64) -> u64 {
    (largest / 16).max(2 * HEADER_BYTES).min(largest)
}

/// Size of the segment that follows one of `previous` bytes and must hold a record of this size. Segments double until
/// they reach the configured size.
pub(super) fn next_bytes(previous: u64, size: u64, largest: u64) -> u64 {
    let needed = (HEADER_BYTES + size).next_multiple_of(HEADER_BYTES);
    (2 * previous).min(largest).max(needed.min(largest))
}

impl WalShared {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        options: WalOptions,
        (log, opening): (u64, u64),
        state: WalState,
        damage: DamageRegister,
    ) -> Self {
        Self { disk, options, log, opening, state: Mutex::new(state), wake: Condvar::new(), damage }
    }

    /// Locks the state. Nothing that may block runs under this lock.
    pub(super) fn lock(&self) -> MutexGuard<'_, WalState> {
        self.state.lock()
    }

    pub(super) fn wake(&self) {
        self.wake.notify_all();
    }

    /// Waits until the writer is woken, or for at most `longest`.
    pub(super) fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, WalState>,
        longest: Option<Duration>,
    ) -> MutexGuard<'a, WalState> {
        state.writer_sleeps = true;
        match longest {
            None => self.wake.wait(&mut state),
            Some(time) => drop(self.wake.wait_for(&mut state, time)),
        }
        state.writer_sleeps = false;
        state
    }

    /// Queues a record, or returns why it is refused. Never waits for the disk.
    pub(super) fn admit(&self, entry: QueuedRecord) -> Result<(), AppendError> {
        let mut state = self.lock();
        let size = entry.stored.size();
        state.may_admit(&self.options, size)?;
        state.unresolved_bytes += size;
        state.unresolved += 1;
        state.waiting.push_back(entry);
        // Waking costs a system call, and a busy writer looks at the queue next anyway.
        let sleeps = state.writer_sleeps;
        drop(state);
        if sleeps {
            self.wake();
        }
        Ok(())
    }

    /// Counts a disk failure; returns its text.
    pub(super) fn failed(&self, error: &io::Error) -> String {
        self.lock().stats.disk_failures += 1;
        error.to_string()
    }
}

impl WalState {
    /// Bytes of all segment files.
    pub(super) fn kept(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Bytes of files that hold no record that is needed: of the current segment, and of the next one.
    pub(super) fn idle_bytes(&self) -> u64 {
        let current = self.segments.back().map_or(0, |current| {
            if self.truncated >= self.durable { current.bytes } else { current.bytes - current.end }
        });
        current + self.spare
    }

    fn may_admit(&mut self, options: &WalOptions, size: u64) -> Result<(), AppendError> {
        if self.closed {
            return Err(AppendError::Closed);
        }
        if let Some(why) = &self.unwritable {
            return Err(AppendError::Unwritable(why.clone()));
        }
        // A record larger than the queue is admitted when nothing else waits.
        let is_over = self.unresolved > 0 && self.unresolved_bytes + size > options.queue_bytes;
        if is_over || self.unresolved >= options.queue_records {
            let (bytes_limit, records_limit) = (options.queue_bytes, options.queue_records);
            return Err(AppendError::QueueFull { bytes_limit, records_limit });
        }
        self.no_room_for = Some(size);
        if let Some(why) = self.cramped.as_ref().filter(|_| self.plan.needs_more(size)) {
            return Err(AppendError::Unwritable(why.clone()));
        }
        let kept = self.kept();
        if !self.plan.place(size, options.segment_bytes, kept, options.budget_bytes) {
            return Err(AppendError::Full(options.budget_bytes));
        }
        self.no_room_for = None;
        Ok(())
    }

    /// Why a record like the latest one, or a small one if that was admitted, would be refused for want of room now.
    pub(super) fn refusal(&self, options: &WalOptions) -> Option<String> {
        if self.unwritable.is_some() {
            return self.unwritable.clone();
        }
        let size = self.no_room_for.unwrap_or(SMALL_RECORD_BYTES);
        if self.cramped.is_some() && self.plan.needs_more(size) {
            return self.cramped.clone();
        }
        let has_room = self.plan.clone().place(size, options.segment_bytes, self.kept(), options.budget_bytes);
        (!has_room).then(|| AppendError::Full(options.budget_bytes).to_string())
    }

    /// Plans again for the queued records, from what is left of the current segment. The budget does not apply here:
    /// these records are admitted already.
    pub(super) fn replan(&mut self, largest: u64, current: Option<(u64, u64)>) {
        let (bytes, end) = current.unwrap_or((first_bytes(largest), first_bytes(largest)));
        self.plan = SegmentPlan::begin(bytes, end);
        for entry in &self.waiting {
            self.plan.place(entry.stored.size(), largest, 0, u64::MAX);
        }
    }
}
