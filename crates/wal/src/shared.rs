//! The state that the writer thread, appenders, readers and truncation share under one lock: the queue, the segments,
//! and the space left for new records.

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

/// A callback with the outcome of a record's append. It is called once.
pub(super) type Done = Box<dyn FnOnce(Result<Sequence, AppendError>) + Send>;

/// A condition on the sequence that a record is about to get.
pub(super) type Condition = Box<dyn Fn(Sequence) -> bool + Send>;

/// A record queued for the disk.
pub(super) struct QueuedRecord {
    pub(super) stored: EncodedPayload,
    /// Its sequence must be greater than this.
    pub(super) lower_bound: Sequence,
    pub(super) condition: Option<Condition>,
    pub(super) done: Done,
}

/// One segment file of the WAL.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) first: Sequence,
    /// The last sequence before `end`; that of an older segment if this one is empty.
    pub(super) last: Sequence,
    /// The end of its last synced record.
    pub(super) end: u64,
    /// Everything before this offset was synced. The bytes from here to `end` may not have been.
    pub(super) synced_end: u64,
    /// Size of the file.
    pub(super) bytes: u64,
}

pub(super) struct WalShared {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) options: WalOptions,
    pub(super) log: u64,
    /// Id of this opening of the WAL.
    pub(super) opening: u64,
    state: Mutex<WalState>,
    /// Wakes the writer thread.
    wake: Condvar,
    pub(super) damage: DamageRegister,
}

/// State under the lock.
#[derive(Default)]
pub(super) struct WalState {
    /// The segments, oldest first. The last one is being written to, unless the WAL is unwritable.
    pub(super) segments: VecDeque<Segment>,
    pub(super) durable: Sequence,
    /// The callbacks of all records up to here have run.
    pub(super) resolved: Sequence,
    /// No sequence at or below this is assigned.
    pub(super) lower_bound: Sequence,
    pub(super) truncated: Sequence,
    pub(super) waiting: VecDeque<QueuedRecord>,
    /// The bytes of admitted records whose outcome is not known yet.
    pub(super) unresolved_bytes: u64,
    /// The number of these records.
    pub(super) unresolved: usize,
    pub(super) is_closed: bool,
    /// True if the writer should give up preallocated space.
    pub(super) should_rest: bool,
    /// The prepared bytes of the next segment.
    pub(super) spare: u64,
    /// True if the writer thread sleeps until it is notified.
    pub(super) is_writer_asleep: bool,
    /// The error that prevents all writes now.
    pub(super) unwritable: Option<String>,
    /// The error that prevents the preparation of a new segment now.
    pub(super) no_segment: Option<String>,
    /// The size of the latest record if it was rejected for lack of space.
    pub(super) rejected_bytes: Option<u64>,
    pub(super) plan: SegmentPlan,
    pub(super) stats: WalStats,
}

/// A plan of the segments for all admitted records. The writer fills segments in the same order by the same rule, so
/// the admitted records stay exactly within the budget.
#[derive(Debug, Default, Clone)]
pub(super) struct SegmentPlan {
    /// The free bytes of the last planned segment.
    room: u64,
    /// The size of that segment.
    bytes: u64,
    /// The sizes of the segments that are planned but do not exist yet.
    ahead: VecDeque<u64>,
}

impl SegmentPlan {
    /// A plan for the current segment of this size, filled up to `end`, without other admitted records.
    pub(super) fn begin(bytes: u64, end: u64) -> Self {
        Self { room: bytes - end, bytes, ahead: VecDeque::new() }
    }

    /// A plan for an empty segment of this size that does not exist yet, without admitted records.
    pub(super) fn fresh(bytes: u64) -> Self {
        Self { room: bytes - HEADER_BYTES, bytes, ahead: VecDeque::from([bytes]) }
    }

    /// Reserves space for a record of this size. Returns false if that would exceed the budget.
    fn reserve(&mut self, size: u64, largest: u64, kept: u64, budget: u64) -> bool {
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

    /// Returns true if a record of this size needs a segment that does not exist yet.
    fn needs_more(&self, size: u64) -> bool {
        size > self.room
    }

    /// Removes the next planned segment, which exists now, from the plan, and returns its size.
    pub(super) fn remove_created(&mut self) -> Option<u64> {
        self.ahead.pop_front()
    }

    /// The size of the next segment that the plan needs.
    pub(super) fn next(&self) -> Option<u64> {
        self.ahead.front().copied()
    }
}

/// The approximate size of a record with one reading, rounded up.
const SMALL_RECORD_BYTES: u64 = 256;

/// The size of the first segment after a start: a sixteenth of the full size, so that a start is quick and a rarely
/// used WAL stays small.
pub(super) fn first_bytes(largest: u64) -> u64 {
    (largest / 16).max(2 * HEADER_BYTES).min(largest)
}

/// The size of the segment after one of `previous` bytes, with room for a record of this size. Segments double until
/// they reach the configured size.
pub(super) fn next_bytes(previous: u64, size: u64, largest: u64) -> u64 {
    let needed = (HEADER_BYTES + size).next_multiple_of(HEADER_BYTES);
    (2 * previous).min(largest).max(needed.min(largest))
}

impl WalShared {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        options: WalOptions,
        log: u64,
        opening: u64,
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
        state.is_writer_asleep = true;
        match longest {
            None => self.wake.wait(&mut state),
            Some(time) => drop(self.wake.wait_for(&mut state, time)),
        }
        state.is_writer_asleep = false;
        state
    }

    /// Queues a record, unless it is rejected. Never waits for the disk.
    pub(super) fn admit(&self, entry: QueuedRecord) -> Result<(), AppendError> {
        let mut state = self.lock();
        let size = entry.stored.size();
        state.reserve(&self.options, size)?;
        state.unresolved_bytes += size;
        state.unresolved += 1;
        state.waiting.push_back(entry);
        // Waking costs a system call, and a busy writer checks the queue anyway.
        let is_asleep = state.is_writer_asleep;
        drop(state);
        if is_asleep {
            self.wake();
        }
        Ok(())
    }

    /// Counts a disk failure and returns its message.
    pub(super) fn count_failure(&self, error: &io::Error) -> String {
        self.lock().stats.disk_failures += 1;
        error.to_string()
    }
}

impl WalState {
    /// Bytes of all segment files.
    pub(super) fn segment_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// The bytes of the current and the next segment that have no needed record.
    pub(super) fn idle_bytes(&self) -> u64 {
        let current = self.segments.back().map_or(0, |current| {
            if self.truncated >= self.durable { current.bytes } else { current.bytes - current.end }
        });
        current + self.spare
    }

    /// Plans space for a record of this size, or returns the reason that it is rejected.
    fn reserve(&mut self, options: &WalOptions, size: u64) -> Result<(), AppendError> {
        if self.is_closed {
            return Err(AppendError::Closed);
        }
        if let Some(why) = &self.unwritable {
            return Err(AppendError::Unwritable(why.clone()));
        }
        // A record larger than the queue limit is admitted if no other record waits.
        let is_over = self.unresolved > 0 && self.unresolved_bytes + size > options.queue_bytes;
        if is_over || self.unresolved >= options.queue_records {
            let bytes_limit = options.queue_bytes;
            let records_limit = options.queue_records;
            return Err(AppendError::QueueFull { bytes_limit, records_limit });
        }
        self.rejected_bytes = Some(size);
        if let Some(why) = self.no_segment.as_ref().filter(|_| self.plan.needs_more(size)) {
            return Err(AppendError::Unwritable(why.clone()));
        }
        let kept = self.segment_bytes();
        if !self.plan.reserve(size, options.segment_bytes, kept, options.budget_bytes) {
            return Err(AppendError::Full(options.budget_bytes));
        }
        self.rejected_bytes = None;
        Ok(())
    }

    /// The reason that a record would be rejected now; `None` if it would be admitted. The size is that of the latest
    /// record if it was rejected for lack of space, or else that of a small record.
    pub(super) fn refusal(&self, options: &WalOptions) -> Option<String> {
        if self.unwritable.is_some() {
            return self.unwritable.clone();
        }
        let size = self.rejected_bytes.unwrap_or(SMALL_RECORD_BYTES);
        if self.no_segment.is_some() && self.plan.needs_more(size) {
            return self.no_segment.clone();
        }
        let has_room =
            self.plan.clone().reserve(size, options.segment_bytes, self.segment_bytes(), options.budget_bytes);
        (!has_room).then(|| AppendError::Full(options.budget_bytes).to_string())
    }

    /// Plans again for the queued records, starting with the rest of the current segment. The budget does not apply,
    /// because these records are admitted already.
    pub(super) fn replan(&mut self, largest: u64, current: Option<(u64, u64)>) {
        let (bytes, end) = current.unwrap_or((first_bytes(largest), first_bytes(largest)));
        self.plan = SegmentPlan::begin(bytes, end);
        for entry in &self.waiting {
            self.plan.reserve(entry.stored.size(), largest, 0, u64::MAX);
        }
    }
}
