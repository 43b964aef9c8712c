//! [`WalPositions`]: the progress of logging, dispatch and flushing, and the ledger of readings, behind one lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use super::log_order_map::LogOrderMap;
use crate::bucket::{MergeCounts, StorageError};
use crate::memory;
use crate::telemetry::Ledger;
use crate::wal::Sequence;

/// Interval at which a dispatch that waits for memory looks again.
const ROOM_INTERVAL: Duration = Duration::from_millis(100);

/// The lag of the store behind the WAL.
#[derive(Debug, Clone, Default)]
pub struct Lag {
    pub ledger: Ledger,
    /// The time at which the oldest unflushed request was received, in nanoseconds since the epoch.
    pub oldest: Option<i64>,
    /// Bytes of unflushed readings in memory, including batches queued for the shards.
    pub unflushed_bytes: usize,
    /// True if the shards have everything that is logged.
    pub is_live: bool,
    /// The reason why dispatch is stuck, if it is.
    pub blocked: Option<String>,
}

/// A request on its way from the WAL to the shards.
#[derive(Debug, Clone, Copy)]
pub struct LoggedRequest {
    /// The request's WAL record.
    pub sequence: Sequence,
    /// The number of readings.
    pub readings: u64,
    /// The memory of its batches, in bytes.
    pub memory: usize,
    /// The time at which it was received, in nanoseconds since the epoch.
    pub received: i64,
}

/// The positions, shared by the WAL's callbacks, dispatch, the shards and waiting requests.
#[derive(Debug)]
pub struct WalPositions {
    pub(super) state: Mutex<PositionsState>,
    pub(crate) changed: Notify,
    /// Maximum bytes of unflushed readings in memory.
    pub(crate) budget: usize,
    /// Bytes of cached buckets, by shard.
    cache_bytes: Mutex<BTreeMap<usize, usize>>,
}

#[derive(Debug, Default)]
pub(crate) struct PositionsState {
    /// The last durable record.
    pub(crate) logged: Sequence,
    /// The last record that was dispatched to the shards.
    pub(crate) dispatched: Sequence,
    /// True if everything that is logged was dispatched.
    pub(crate) is_live: bool,
    /// Dispatched requests that are not completely in the store, with the time at which each was received.
    pub(crate) unflushed: LogOrderMap<i64>,
    /// Pinned records: dispatched, and still needed in the WAL.
    pub(crate) pinned: LogOrderMap<()>,
    /// Bytes of batches in the shards' inboxes.
    pub(crate) queued_bytes: usize,
    /// Bytes of memtables, by shard.
    pub(crate) shard_bytes: BTreeMap<usize, usize>,
    /// Waiting writes with ack `store`, by record.
    pub(crate) waiting: HashMap<Sequence, oneshot::Sender<Result<(), StorageError>>>,
    /// The last record that is due at once.
    pub(crate) due: Sequence,
    pub(crate) ledger: Ledger,
    /// True if WAL space is short.
    pub(crate) is_wal_pressed: bool,
    /// The last record that a caller wants truncated.
    pub(crate) wanted: Sequence,
    /// The reason why dispatch is stuck, if it is.
    pub(crate) blocked: Option<String>,
    /// The last record that can be truncated, set when a shard has dropped readings that are not in the store.
    pub(crate) sealed: Option<Sequence>,
    /// The number of pinned records when `sealed` was set. Their pins are dropped afterwards.
    pinned_at_seal: usize,
}

impl PositionsState {
    pub(crate) fn unflushed_bytes(&self) -> usize {
        self.queued_bytes + self.shard_bytes.values().sum::<usize>()
    }

    /// Returns the last record that can be truncated.
    fn truncatable(&self) -> Sequence {
        self.sealed.unwrap_or_else(|| self.pinned.first().map_or(self.dispatched, |(first, ())| first - 1))
    }
}

impl WalPositions {
    /// Creates the positions of a WAL whose records up to `truncated` are stored. The records after it, up to `last`,
    /// must be dispatched.
    pub fn new(truncated: Sequence, last: Sequence, budget: usize) -> Arc<Self> {
        let state = PositionsState {
            logged: last,
            dispatched: truncated,
            is_live: last <= truncated,
            ..PositionsState::default()
        };
        Arc::new(Self { state: Mutex::new(state), changed: Notify::new(), budget, cache_bytes: Mutex::default() })
    }

    /// Goes live if the shards have everything that is logged, and returns true if so. `position` is the next record of
    /// the WAL's reader.
    pub fn try_go_live(&self, position: Sequence) -> bool {
        let mut state = self.state.lock();
        // The reader skips damaged and missing records, which need no dispatch.
        state.dispatched = state.dispatched.max(position.saturating_sub(1));
        state.is_live = state.dispatched >= state.logged;
        let is_live = state.is_live;
        drop(state);
        self.changed.notify_waiters();
        is_live
    }

    /// Notes the reason why dispatch cannot continue.
    pub fn block(&self, reason: String) {
        self.state.lock().blocked = Some(reason);
    }

    /// Returns true if the shards have everything that is logged.
    pub fn is_live(&self) -> bool {
        self.state.lock().is_live
    }

    /// Waits until the shards lag behind the WAL. Returns the record at which dispatch must begin.
    pub async fn wait_until_behind(&self) -> Sequence {
        self.wait_until(|state| (!state.is_live).then_some(state.dispatched + 1)).await
    }

    /// The bytes of unflushed readings that may be in memory now.
    pub fn budget(&self) -> usize {
        memory::left_of(self.budget)
    }

    /// Waits until there is memory to dispatch more.
    pub async fn wait_for_room(&self) {
        // A budget that grows again changes no position, so look from time to time.
        let has_room = || self.wait_until(|state| (state.unflushed_bytes() <= self.budget() / 4 * 3).then_some(()));
        while timeout(ROOM_INTERVAL, has_room()).await.is_err() {}
    }

    /// Waits until everything up to a record is in the store.
    pub async fn wait_until_flushed(&self, through: Sequence) {
        self.wait_until(|state| {
            let dispatched = state.is_live || state.dispatched >= through;
            let flushed = state.unflushed.first().is_none_or(|(first, _)| first > through);
            (dispatched && flushed && state.sealed.is_none()).then_some(())
        })
        .await;
    }

    /// Waits until the shards have everything that is logged now.
    pub async fn wait_until_dispatched(&self) {
        let through = self.state.lock().logged;
        self.wait_until(|state| (state.is_live || state.dispatched >= through).then_some(())).await;
    }

    /// Waits until `condition` returns a value.
    async fn wait_until<T>(&self, condition: impl Fn(&PositionsState) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(value) = condition(&self.state.lock()) {
                return value;
            }
            changed.await;
        }
    }

    /// Makes everything that is logged due at once. Returns its last record.
    pub fn make_due(&self) -> Sequence {
        let mut state = self.state.lock();
        state.due = state.due.max(state.logged);
        state.logged
    }

    /// Returns the last record that is due at once.
    pub fn due(&self) -> Sequence {
        self.state.lock().due
    }

    /// Answers `waiter` when the request is in the store, and makes it due at once.
    pub fn wait_for(&self, sequence: Sequence, waiter: oneshot::Sender<Result<(), StorageError>>) {
        let mut state = self.state.lock();
        if sequence <= state.dispatched && state.unflushed.get(sequence).is_none() {
            // The request has no unflushed readings, so it is stored. Sealed positions give no answer.
            if state.sealed.is_none() {
                // The receiver may be closed.
                let _ = waiter.send(Ok(()));
            }
            return;
        }
        if sequence <= state.dispatched {
            state.due = state.due.max(sequence);
        }
        state.waiting.insert(sequence, waiter);
    }

    /// Stops waiting for a request.
    pub fn forget(&self, sequence: Sequence) {
        self.state.lock().waiting.remove(&sequence);
    }

    /// Returns the last record that can be truncated.
    pub fn truncatable(&self) -> Sequence {
        let state = self.state.lock();
        state.truncatable()
    }

    /// Returns the number of records that the WAL must keep.
    pub fn kept_records(&self) -> u64 {
        let state = self.state.lock();
        if state.logged <= state.truncatable() {
            return 0;
        }
        state.pinned.len().max(state.pinned_at_seal).max(1) as u64
    }

    /// Makes the logged records up to `through` due, and requests their truncation. Returns the last of them.
    pub fn want_truncated_through(&self, through: Sequence) -> Sequence {
        let mut state = self.state.lock();
        let through = through.min(state.logged);
        state.due = state.due.max(through);
        state.wanted = state.wanted.max(through);
        through
    }

    /// Waits until the WAL can be truncated up to this record.
    pub async fn wait_until_truncatable(&self, through: Sequence) {
        self.wait_until(|state| (state.truncatable() >= through).then_some(())).await;
    }

    /// Returns the last record, at most `closed`, up to which everything is in the store. The caller guarantees that
    /// all records up to `closed` were reported here and that no new ones will be.
    pub fn stored_through(&self, closed: Sequence) -> Sequence {
        let state = self.state.lock();
        match state.sealed.or_else(|| state.pinned.first().map(|(first, ())| first - 1)) {
            Some(through) => through.min(closed),
            None if state.dispatched < state.logged => state.dispatched.min(closed),
            None => closed,
        }
    }

    /// Stops truncation and fails all further waits, although pending acks and pins will be dropped. The next start
    /// replays their records.
    pub fn seal(&self) {
        let mut state = self.state.lock();
        if state.sealed.is_none() {
            state.pinned_at_seal = state.pinned.len();
        }
        state.sealed = Some(state.truncatable());
    }

    /// Returns true if a shard has ended with unstored readings, so that nothing more is truncated.
    pub fn is_sealed(&self) -> bool {
        self.state.lock().sealed.is_some()
    }

    /// Counts readings that reached the store.
    pub fn count_stored(&self, applied: MergeCounts) {
        let mut state = self.state.lock();
        let ledger = &mut state.ledger;
        ledger.stored += applied.new;
        ledger.duplicate += applied.duplicate;
        ledger.overwritten += applied.overwritten;
        ledger.pending -= signed(applied.new + applied.duplicate + applied.overwritten);
    }

    /// Counts readings that were deleted before they were stored.
    pub fn count_deleted(&self, readings: u64) {
        let mut state = self.state.lock();
        state.ledger.deleted += readings;
        state.ledger.pending -= signed(readings);
    }

    /// Counts readings that went to the dead-letter file.
    pub fn count_dead_lettered(&self, readings: u64) {
        let mut state = self.state.lock();
        state.ledger.dead_lettered += readings;
        state.ledger.pending -= signed(readings);
    }

    /// Notes the bytes of a shard's memtables.
    pub fn note_unflushed(&self, shard: usize, bytes: usize) {
        let before = self.state.lock().shard_bytes.insert(shard, bytes);
        if before.is_some_and(|before| bytes < before) {
            self.changed.notify_waiters();
        }
    }

    /// Notes the bytes of a shard's cached buckets.
    pub fn note_cache(&self, shard: usize, bytes: usize) {
        self.cache_bytes.lock().insert(shard, bytes);
    }

    /// Returns the bytes of all cached buckets.
    pub fn bucket_cache_bytes(&self) -> usize {
        self.cache_bytes.lock().values().sum()
    }

    /// Returns a consistent snapshot of the lag.
    pub fn lag(&self) -> Lag {
        let state = self.state.lock();
        let oldest = state.unflushed.first().map(|(_, received)| *received);
        Lag {
            ledger: state.ledger,
            oldest,
            unflushed_bytes: state.unflushed_bytes(),
            is_live: state.is_live,
            blocked: state.blocked.clone(),
        }
    }

    /// Returns true if memory or WAL space is short, so that everything is due.
    pub fn is_pressed(&self) -> bool {
        let state = self.state.lock();
        state.is_wal_pressed || state.unflushed_bytes() > self.budget() / 2
    }

    /// Returns true if WAL space is short, or a caller waits for truncation.
    pub fn is_wal_pressed(&self) -> bool {
        let state = self.state.lock();
        state.is_wal_pressed || state.wanted > state.truncatable()
    }

    /// Notes whether WAL space is short.
    pub fn note_wal_pressure(&self, is_pressed: bool) {
        self.state.lock().is_wal_pressed = is_pressed;
    }
}

pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
