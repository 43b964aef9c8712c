//! What the writer's thread, the appenders, the readers and whoever releases share, under one lock:
//! the queue, the segments, and how much more may be admitted.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::damage::Register;
use super::disk::Disk;
use super::error::AppendError;
use super::format::{HEADER_BYTES, Stored};
use super::stats::Stats;
use super::{Options, Sequence};

/// Called once when it is known whether the record is durable.
pub(super) type Done = Box<dyn FnOnce(Result<Sequence, AppendError>) + Send>;

/// A record on its way to the disk.
pub(super) struct Entry {
    pub(super) stored: Stored,
    /// Its sequence is to be greater.
    pub(super) above: Sequence,
    pub(super) done: Done,
}

/// One segment file of the log.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) first: Sequence,
    /// The last sequence at or before its end; that of an older segment when this one is empty.
    pub(super) last: Sequence,
    /// Where its last synced record ends.
    pub(super) end: u64,
    /// Whether what lies between here and the end was ever synced is not known.
    pub(super) sure: u64,
    /// Bytes of the file.
    pub(super) bytes: u64,
}

/// All that is shared.
pub(super) struct Shared {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) options: Options,
    pub(super) log: u64,
    /// This opening of it.
    pub(super) opening: u64,
    state: Mutex<State>,
    /// Wakes the writer's thread.
    wake: Condvar,
    pub(super) damage: Register,
}

/// What the lock protects.
pub(super) struct State {
    /// Oldest first. The last one is written to, unless the log is unwritable.
    pub(super) segments: VecDeque<Segment>,
    pub(super) durable: Sequence,
    /// Of every record up to here whoever appended it has been told.
    pub(super) told: Sequence,
    /// No sequence is given out at or below this.
    pub(super) above: Sequence,
    pub(super) released: Sequence,
    pub(super) waiting: VecDeque<Entry>,
    /// Bytes and records admitted whose outcome is not known yet.
    pub(super) unresolved_bytes: u64,
    pub(super) unresolved: usize,
    pub(super) closed: bool,
    /// Whether the writer's thread sleeps until it is woken.
    pub(super) writer_sleeps: bool,
    /// Why nothing can be written at present.
    pub(super) unwritable: Option<String>,
    /// Why no new segment can be prepared at present.
    pub(super) cramped: Option<String>,
    pub(super) plan: Plan,
    pub(super) stats: Stats,
}

/// Where each admitted record will go: the writer fills segments in the same order by the same
/// rule, so that what was admitted keeps within the budget exactly.
#[derive(Debug, Default, Clone)]
pub(super) struct Plan {
    /// Room left in the last segment that the plan fills.
    room: u64,
    /// Bytes of that segment.
    bytes: u64,
    /// Bytes of the segments that are planned and not there yet.
    ahead: VecDeque<u64>,
}

impl Plan {
    /// Nothing is admitted beyond what stands in the segment, up to its end.
    pub(super) fn begin(bytes: u64, end: u64) -> Self {
        Self { room: bytes - end, bytes, ahead: VecDeque::new() }
    }

    /// Finds a place for a record of that size.
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

    /// Whether a record needs a segment that is not there yet.
    fn needs_more(&self, size: u64) -> bool {
        size > self.room
    }

    /// The size of the next segment that the plan needs, which is there now.
    pub(super) fn arrived(&mut self) -> Option<u64> {
        self.ahead.pop_front()
    }

    /// The size of the next segment that the plan needs.
    pub(super) fn next(&self) -> Option<u64> {
        self.ahead.front().copied()
    }
}

/// Bytes of the first segment after a start: a sixteenth, so that starting is quick and a log that
/// is hardly used stays small.
pub(super) fn first_bytes(largest: u64) -> u64 {
    (largest / 16).max(2 * HEADER_BYTES).min(largest)
}

/// Bytes of the segment that follows one of `previous` bytes and holds a record of that size.
/// Segments double until they reach the configured size.
pub(super) fn next_bytes(previous: u64, size: u64, largest: u64) -> u64 {
    let needed = (HEADER_BYTES + size).next_multiple_of(HEADER_BYTES);
    (2 * previous).min(largest).max(needed.min(largest))
}

impl Shared {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        options: Options,
        (log, opening): (u64, u64),
        state: State,
        damage: Register,
    ) -> Self {
        Self { disk, options, log, opening, state: Mutex::new(state), wake: Condvar::new(), damage }
    }

    /// The state. Nothing that may block happens under this lock.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake(&self) {
        self.wake.notify_all();
    }

    /// Waits until somebody wakes the writer, or for that long.
    pub(super) fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        longest: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        state.writer_sleeps = true;
        let mut state = match longest {
            None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(time) => self.wake.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0,
        };
        state.writer_sleeps = false;
        state
    }

    /// Puts a record into the queue, or says why not. Never waits for the disk.
    pub(super) fn admit(&self, entry: Entry) -> Result<(), AppendError> {
        let mut state = self.lock();
        let size = entry.stored.size();
        state.may_admit(&self.options, size)?;
        state.unresolved_bytes += size;
        state.unresolved += 1;
        state.waiting.push_back(entry);
        // Waking costs a system call, and a writer at work looks here next by itself.
        let sleeps = state.writer_sleeps;
        drop(state);
        if sleeps {
            self.wake();
        }
        Ok(())
    }

    /// Counts a failure of the disk.
    pub(super) fn failed(&self, error: &io::Error) -> String {
        self.lock().stats.disk_failures += 1;
        error.to_string()
    }
}

impl State {
    /// Bytes of all segment files.
    pub(super) fn kept(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    fn may_admit(&mut self, options: &Options, size: u64) -> Result<(), AppendError> {
        if self.closed {
            return Err(AppendError::Closed);
        }
        if let Some(why) = &self.unwritable {
            return Err(AppendError::Unwritable { why: why.clone() });
        }
        // A record larger than the queue passes when nothing else waits.
        let is_over = self.unresolved > 0 && self.unresolved_bytes + size > options.queue_bytes;
        if is_over || self.unresolved >= options.queue_records {
            let (bytes_limit, records_limit) = (options.queue_bytes, options.queue_records);
            return Err(AppendError::QueueFull { bytes_limit, records_limit });
        }
        if let Some(why) = self.cramped.as_ref().filter(|_| self.plan.needs_more(size)) {
            return Err(AppendError::Unwritable { why: why.clone() });
        }
        let kept = self.kept();
        if !self.plan.place(size, options.segment_bytes, kept, options.budget_bytes) {
            return Err(AppendError::Full { limit: options.budget_bytes });
        }
        Ok(())
    }

    /// Plans anew for what waits, from what is there of the segment that is written to. The budget
    /// does not bind here: what waits was admitted.
    pub(super) fn replan(&mut self, largest: u64, current: Option<(u64, u64)>) {
        let (bytes, end) = current.unwrap_or((first_bytes(largest), first_bytes(largest)));
        self.plan = Plan::begin(bytes, end);
        for entry in &self.waiting {
            self.plan.place(entry.stored.size(), largest, 0, u64::MAX);
        }
    }
}
