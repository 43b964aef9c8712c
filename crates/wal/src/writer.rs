//! The writer thread: takes all queued records, writes them, syncs once, and runs their callbacks in WAL order. If a
//! write fails, the records are written again to a fresh segment; the failed file descriptor is never used again.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Sequence;
use super::disk::DiskFile;
use super::error::AppendError;
use super::format::{HEADER_BYTES, PreviousSegment, SegmentHeader, segment_name};
use super::next_segment::NextSegment;
use super::shared::{QueuedRecord, Segment, SegmentPlan, WalShared, WalState, first_bytes, next_bytes};

/// The size of a write call in bytes. A group may need many calls.
const WRITE_BYTES: usize = 1 << 20;

/// A source of new segment ids.
pub(super) type Ids = Box<dyn FnMut() -> u64 + Send>;

/// State owned by the writer thread.
pub(super) struct WalWriter {
    shared: Arc<WalShared>,
    ids: Ids,
    next: Sequence,
    /// The first sequence of the last written group.
    first: Sequence,
    /// `None` after a failure.
    current: Option<Current>,
    fresh: NextSegment,
    /// The time of the next attempt after the disk refused a segment.
    retry_at: Option<Instant>,
    buffer: Vec<u8>,
    sync_took: Duration,
}

/// The segment being written to.
struct Current {
    file: Box<dyn DiskFile>,
    segment: Segment,
    /// True if the file has its segment name durably.
    is_named: bool,
}

enum Work {
    Commit(VecDeque<QueuedRecord>),
    /// Prepare more of the next segment.
    Prepare,
    /// Give preallocated space back.
    Rest,
    /// Check whether the disk accepts a fresh segment again.
    Probe,
    Stop,
}

impl WalWriter {
    pub(super) fn new(shared: Arc<WalShared>, ids: Ids, next: Sequence) -> Self {
        let fresh = NextSegment::new(Arc::clone(&shared));
        let current = None;
        let retry_at = None;
        let buffer = Vec::new();
        let sync_took = Duration::ZERO;
        Self { shared, ids, next, first: next, current, fresh, retry_at, buffer, sync_took }
    }

    /// Runs until the WAL is closed and the queue is empty.
    pub(super) fn run(mut self) {
        loop {
            match self.next_work() {
                Work::Commit(batch) => {
                    let records = batch.len();
                    self.commit(batch);
                    if self.is_spare_late() {
                        self.prepare();
                    }
                    self.gather(records);
                }
                Work::Prepare => self.prepare(),
                Work::Rest => self.rest(),
                Work::Probe => self.open_segment(),
                Work::Stop => return self.leave(),
            }
        }
    }

    /// After a sync of many records, sleeps as long as that sync took, at most 500 µs, so that many records share the
    /// next sync too. Otherwise quick syncs of a few records each would take a large part of the CPU. A single appender
    /// never waits.
    fn gather(&self, records: usize) {
        /// The smallest group that is worth waiting for, measured with 64 connections of one reading per request.
        const GROUP_MIN: usize = 8;
        const WAIT_MAX: Duration = Duration::from_micros(500);
        if records >= GROUP_MIN {
            std::thread::sleep(self.sync_took.min(WAIT_MAX));
        }
    }

    fn next_work(&mut self) -> Work {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        loop {
            if !state.waiting.is_empty() {
                return Work::Commit(std::mem::take(&mut state.waiting));
            }
            if state.is_closed {
                return Work::Stop;
            }
            let now = Instant::now();
            let rest = self.retry_at.map(|at| at.saturating_duration_since(now)).filter(|rest| !rest.is_zero());
            if rest.is_none() && self.current.is_none() {
                return Work::Probe;
            }
            if self.can_rest(&mut state) {
                return Work::Rest;
            }
            let wants_spare = self.wanted_spare(&state).is_some();
            if rest.is_none() && wants_spare {
                return Work::Prepare;
            }
            state = shared.wait(state, rest.filter(|_| wants_spare || self.current.is_none()));
        }
    }

    /// Writes the batch. A write that fails twice in a row fails the rest of the batch.
    fn commit(&mut self, mut batch: VecDeque<QueuedRecord>) {
        let mut failures = 0;
        let mut has_failed = false;
        while !batch.is_empty() {
            match self.write_some(&batch) {
                // The first record must not get the next sequence. The plan had room for it.
                Ok(0) => {
                    self.refuse_first(&mut batch);
                    has_failed = true;
                }
                Ok(count) => {
                    failures = 0;
                    self.resolve(&mut batch, count);
                }
                Err(error) => {
                    let why = self.shared.count_failure(&error);
                    self.abandon();
                    failures += 1;
                    has_failed = true;
                    if failures == 2 {
                        self.give_up(batch, &why);
                        return;
                    }
                }
            }
        }
        if has_failed {
            self.replan();
        }
    }

    fn refuse_first(&self, batch: &mut VecDeque<QueuedRecord>) {
        let Some(entry) = batch.pop_front() else { return };
        {
            let mut state = self.shared.lock();
            state.unresolved -= 1;
            state.unresolved_bytes -= entry.stored.size();
        }
        call(entry, Err(AppendError::Late));
    }

    /// Makes the first records of the batch durable, and returns their number. It is 0 if the condition of the first one
    /// does not hold.
    fn write_some(&mut self, batch: &VecDeque<QueuedRecord>) -> io::Result<usize> {
        let Some(first) = batch.front() else { return Ok(0) };
        let needed = first.stored.size();
        if self.current.as_ref().is_none_or(|current| current.segment.bytes - current.segment.end < needed) {
            self.rotate(needed)?;
        }
        let Some(current) = &mut self.current else { return Ok(0) };
        let group = current.segment.end;
        self.next = self.next.max(self.shared.options.least.now()).max(self.shared.lock().lower_bound + 1);
        self.first = self.next;
        let mut end = group;
        let mut written = group;
        let mut count = 0;
        self.buffer.clear();
        for entry in batch {
            let size = entry.stored.size();
            if end + size > current.segment.bytes {
                break;
            }
            let sequence = self.next.max(entry.lower_bound + 1);
            if entry.condition.as_ref().is_some_and(|condition| !condition(sequence)) {
                break;
            }
            self.next = sequence;
            // A failed write also uses up the sequence.
            entry.stored.encode(current.segment.id, self.next, group, &mut self.buffer);
            self.next += 1;
            count += 1;
            end += size;
            if self.buffer.len() >= WRITE_BYTES {
                current.file.write_at(&self.buffer, written)?;
                written = end;
                self.buffer.clear();
            }
        }
        if count == 0 {
            return Ok(0);
        }
        if !self.buffer.is_empty() {
            current.file.write_at(&self.buffer, written)?;
        }
        let began = Instant::now();
        current.file.sync()?;
        self.sync_took = began.elapsed();
        self.name_current()?;
        let Some(current) = &mut self.current else { return Ok(0) };
        current.segment.end = end;
        current.segment.synced_end = end;
        current.segment.last = self.next - 1;
        self.buffer.shrink_to(2 * WRITE_BYTES);
        let mut state = self.shared.lock();
        if let Some(segment) = state.segments.back_mut() {
            *segment = current.segment.clone();
        }
        state.durable = self.next - 1;
        state.stats.count_sync(count as u64, end - group);
        Ok(count)
    }

    /// Runs the callbacks of the first `count` records of the batch, which are durable, in WAL order.
    fn resolve(&self, batch: &mut VecDeque<QueuedRecord>, count: usize) {
        let bytes: u64 = batch.iter().take(count).map(|entry| entry.stored.size()).sum();
        {
            let mut state = self.shared.lock();
            state.unresolved -= count;
            state.unresolved_bytes -= bytes;
        }
        let mut sequence = self.first;
        for entry in batch.drain(..count) {
            sequence = sequence.max(entry.lower_bound + 1);
            call(entry, Ok(sequence));
            sequence += 1;
        }
        self.shared.lock().resolved = self.next - 1;
    }

    /// Marks the WAL unwritable until a fresh segment can be created, and fails the batch and all queued records.
    fn give_up(&mut self, mut batch: VecDeque<QueuedRecord>, why: &str) {
        {
            let mut state = self.shared.lock();
            state.unwritable = Some(why.to_owned());
            batch.append(&mut state.waiting);
            state.stats.failed_records += batch.len() as u64;
            state.unresolved = 0;
            state.unresolved_bytes = 0;
        }
        self.retry_later();
        for entry in batch {
            call(entry, Err(AppendError::Failed(why.to_owned())));
        }
    }

    /// Makes the next segment the current one, empty and without its name. The old one is complete and synced.
    fn rotate(&mut self, needed: u64) -> io::Result<()> {
        let largest = self.shared.options.segment_bytes;
        let (planned, previous) = {
            let state = self.shared.lock();
            (state.plan.next(), state.segments.back().map_or(0, |segment| segment.bytes))
        };
        let bytes = planned.unwrap_or(0).max(next_bytes(previous, needed, largest));
        self.take_fresh(bytes)
    }

    /// Makes a fresh segment the current one. Its zeros are synced, but its header and its name are not.
    fn take_fresh(&mut self, bytes: u64) -> io::Result<()> {
        self.current = None;
        let (file, bytes) = self.fresh.take(bytes).inspect_err(|_| self.shared.lock().spare = 0)?;
        self.shared.lock().spare = 0;
        let previous = {
            let state = self.shared.lock();
            let describe = |last: &Segment| PreviousSegment {
                segment: last.id,
                end: last.end,
                synced_end: last.synced_end,
                last: last.last,
            };
            // The last segment may be empty, and two segments must not have the same name.
            self.next = self.next.max(state.segments.back().map_or(0, |last| last.first + 1));
            state.segments.back().map(describe)
        };
        let segment = (self.ids)();
        let first = self.next;
        let store = self.shared.options.store.clone();
        let header =
            SegmentHeader { log: self.shared.log, opening: self.shared.opening, segment, first, previous, store };
        file.write_at(&header.encode(), 0)?;
        let name = segment_name(first);
        let last = previous.map_or(0, |previous| previous.last);
        let segment = Segment { id: segment, name, first, last, end: HEADER_BYTES, synced_end: HEADER_BYTES, bytes };
        self.current = Some(Current { file, segment, is_named: false });
        Ok(())
    }

    /// Durably gives the current segment, which is synced, its name, and adds it to the list of segments.
    fn name_current(&mut self) -> io::Result<()> {
        let Some(current) = self.current.as_mut().filter(|current| !current.is_named) else { return Ok(()) };
        self.fresh.name(&current.segment.name)?;
        current.is_named = true;
        let mut state = self.shared.lock();
        state.segments.push_back(current.segment.clone());
        state.plan.remove_created();
        state.no_segment = None;
        Ok(())
    }

    /// Returns true if a rest was requested and is possible now. New records are then planned for a segment of the
    /// smallest size.
    fn can_rest(&self, state: &mut WalState) -> bool {
        if !std::mem::take(&mut state.should_rest) || state.unresolved > 0 {
            return false;
        }
        let Some(current) = &self.current else { return false };
        let size_min = first_bytes(self.shared.options.segment_bytes);
        if current.segment.bytes > size_min {
            if state.segment_bytes() + size_min > self.shared.options.budget_bytes {
                return false;
            }
            state.plan = SegmentPlan::fresh(size_min);
        }
        true
    }

    /// Drops the prepared segment. If the current one is larger than the smallest size, switches to a fresh one.
    fn rest(&mut self) {
        self.drop_spare();
        let size_min = first_bytes(self.shared.options.segment_bytes);
        let Some(large) = self.current.take_if(|current| current.segment.bytes > size_min) else { return };
        let begun = self.take_fresh(size_min).and_then(|()| match &self.current {
            Some(current) => current.file.sync(),
            None => Ok(()),
        });
        if let Err(error) = begun {
            // The fresh segment has no name yet, so the disk has no record that the large one has ended. Keep using it.
            self.shared.count_failure(&error);
            self.abandon();
            self.current = Some(large);
            self.replan();
            return;
        }
        if let Err(error) = self.name_current() {
            // The fresh segment may have its name, so the large one has ended.
            self.shared.count_failure(&error);
            self.abandon();
        }
    }

    /// Removes preallocated space when the WAL closes. If this fails, the next opening does it.
    fn leave(&mut self) {
        self.drop_spare();
        let Some(Current { file, segment, is_named: true }) = &mut self.current else { return };
        if segment.bytes > segment.end && file.set_len(segment.end).is_ok() {
            segment.bytes = segment.end;
            if let Some(last) = self.shared.lock().segments.back_mut() {
                last.bytes = segment.end;
            }
        }
    }

    fn drop_spare(&mut self) {
        self.fresh.drop_prepared();
        self.shared.lock().spare = 0;
    }

    /// Opens a fresh, empty segment for appends; if that fails, marks the WAL unwritable and schedules a retry.
    pub(super) fn open_segment(&mut self) {
        let bytes = first_bytes(self.shared.options.segment_bytes);
        let opened = self.take_fresh(bytes).and_then(|()| {
            if let Some(current) = &self.current {
                current.file.sync()?;
            }
            self.name_current()
        });
        match opened {
            Ok(()) => {
                self.retry_at = None;
                self.shared.lock().unwritable = None;
                self.replan();
            }
            Err(error) => {
                let why = self.shared.count_failure(&error);
                self.abandon();
                self.shared.lock().unwritable = Some(why);
                self.retry_later();
            }
        }
    }

    /// Stops using the current segment: after a failure its descriptor may report bytes that are not on the disk.
    fn abandon(&mut self) {
        if let Some(current) = self.current.take()
            && !current.is_named
        {
            self.fresh.discard(&current.segment.name);
        }
    }

    fn replan(&mut self) {
        let current = self.current.as_ref().map(|current| (current.segment.bytes, current.segment.end));
        self.shared.lock().replan(self.shared.options.segment_bytes, current);
    }

    fn retry_later(&mut self) {
        self.retry_at = Some(Instant::now() + self.shared.options.retry);
    }

    /// The size of the next segment, if it is due and not completely prepared.
    fn wanted_spare(&self, state: &WalState) -> Option<u64> {
        let current = &self.current.as_ref()?.segment;
        let largest = self.shared.options.segment_bytes;
        let bytes = state.plan.next().unwrap_or_else(|| next_bytes(current.bytes, 0, largest));
        // After a failure, retry until it succeeds. Meanwhile records that need the segment are rejected.
        let is_needed = state.plan.next().is_some() || state.no_segment.is_some();
        let is_due = is_needed || current.end * 4 >= current.bytes;
        let fits = state.segment_bytes() + bytes <= self.shared.options.budget_bytes;
        (is_due && fits && self.fresh.prepared_bytes() < bytes).then_some(bytes)
    }

    /// Returns true if preparing the next segment is behind schedule: it must be complete when the current one is three
    /// quarters full.
    fn is_spare_late(&self) -> bool {
        let Some(current) = &self.current else { return false };
        if self.retry_at.is_some_and(|at| at > Instant::now()) {
            return false;
        }
        let Some(bytes) = self.wanted_spare(&self.shared.lock()) else { return false };
        let used = current.segment.end.saturating_sub(current.segment.bytes / 4);
        self.fresh.prepared_bytes() < (bytes as u128 * 2 * u128::from(used) / u128::from(current.segment.bytes)) as u64
    }

    /// Prepares more of the next segment. If that fails, records that need it are rejected.
    fn prepare(&mut self) {
        let wanted = self.wanted_spare(&self.shared.lock());
        let Some(bytes) = wanted else { return };
        match self.fresh.prepare(bytes) {
            Ok(()) => {
                self.retry_at = None;
                let mut state = self.shared.lock();
                state.spare = self.fresh.prepared_bytes();
                if state.spare >= bytes {
                    state.no_segment = None;
                }
            }
            Err(error) => {
                let why = self.shared.count_failure(&error);
                self.drop_spare();
                self.shared.lock().no_segment = Some(why);
                self.retry_later();
            }
        }
    }
}

/// Calls a record's callback, and catches its panic, which must not end the WAL.
fn call(entry: QueuedRecord, result: Result<Sequence, AppendError>) {
    let _ = catch_unwind(AssertUnwindSafe(|| (entry.done)(result)));
}
