//! [`WalPositions`]: how far logging, dispatch and flushing have come, behind one lock, and the ledger of readings.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::in_log_order::InLogOrder;
use crate::bucket::{Applied, StorageError};
use crate::telemetry::Ledger;
use crate::wal::Sequence;

/// How far the store lags behind.
#[derive(Debug, Clone, Default)]
pub struct Lag {
    pub ledger: Ledger,
    /// When the oldest unflushed request was received, in nanoseconds.
    pub oldest: Option<i64>,
    /// Bytes of unflushed readings in memory, batches queued for the shards included.
    pub unflushed_bytes: usize,
    /// Whether the shards have everything that is logged.
    pub live: bool,
    /// Why dispatch is stuck, if it is.
    pub blocked: Option<String>,
}

/// A request on its way from the WAL to the shards.
#[derive(Debug, Clone, Copy)]
pub struct LoggedRequest {
    /// WAL position.
    pub sequence: Sequence,
    pub readings: u64,
    /// Bytes of memory of its batches.
    pub memory: usize,
    /// When it was received, in nanoseconds.
    pub received: i64,
}

/// Shared by the WAL's callbacks, dispatch, the shards and requests that wait.
#[derive(Debug)]
pub struct WalPositions {
    pub(super) state: Mutex<PositionsState>,
    pub(crate) changed: Notify,
    pub(crate) budget: usize,
    /// Bytes of each shard's cached buckets.
    cache_bytes: Mutex<BTreeMap<usize, usize>>,
}

#[derive(Debug, Default)]
pub(crate) struct PositionsState {
    /// The last record that is durable.
    pub(crate) logged: Sequence,
    /// Everything up to here was dispatched to the shards.
    pub(crate) dispatched: Sequence,
    pub(crate) live: bool,
    /// Dispatched requests that are not wholly in the store, with the time each was received.
    pub(crate) unflushed: InLogOrder<i64>,
    /// Pinned records: dispatched, and still needed in the WAL.
    pub(crate) held: InLogOrder<()>,
    /// Bytes of batches that wait in the shards' inboxes.
    pub(crate) queued_bytes: usize,
    /// Bytes of each shard's memtables.
    pub(crate) shard_bytes: BTreeMap<usize, usize>,
    pub(crate) waiting: HashMap<Sequence, oneshot::Sender<Result<(), StorageError>>>,
    /// Everything up to here is due at once.
    pub(crate) due: Sequence,
    pub(crate) ledger: Ledger,
    pub(crate) wal_pressed: bool,
    /// A caller waits until everything up to here can be truncated.
    pub(crate) wanted: Sequence,
    /// Why dispatch is stuck, if it is.
    pub(crate) blocked: Option<String>,
    /// Set when a shard has dropped readings that are not in the store: nothing after this is truncated.
    pub(crate) sealed: Option<Sequence>,
    /// How many records were held when that was set: those who hold them are dropped after it.
    left_at_seal: usize,
}

impl PositionsState {
    pub(crate) fn unflushed_bytes(&self) -> usize {
        self.queued_bytes + self.shard_bytes.values().sum::<usize>()
    }

    fn truncatable(&self) -> Sequence {
        self.sealed.unwrap_or_else(|| self.held.first().map_or(self.dispatched, |(first, ())| first - 1))
    }
}

impl WalPositions {
    /// Everything up to `truncated` counts as dispatched; the records after it, up to `last`, are to be dispatched.
    pub fn new(truncated: Sequence, last: Sequence, budget: usize) -> Arc<Self> {
        let state = PositionsState {
            logged: last,
            dispatched: truncated,
            live: last <= truncated,
            ..PositionsState::default()
        };
        Arc::new(Self { state: Mutex::new(state), changed: Notify::new(), budget, cache_bytes: Mutex::default() })
    }

    /// Goes live if the shards have everything that was logged; returns whether they do. `position` is what the WAL's
    /// reader reads next.
    pub fn try_go_live(&self, position: Sequence) -> bool {
        let mut state = self.state.lock();
        // Records that the reader skipped (damage, gaps) need no dispatch.
        state.dispatched = state.dispatched.max(position.saturating_sub(1));
        state.live = state.dispatched >= state.logged;
        let live = state.live;
        drop(state);
        self.changed.notify_waiters();
        live
    }

    /// Notes why dispatch cannot go on.
    pub fn block(&self, reason: String) {
        self.state.lock().blocked = Some(reason);
    }

    /// Whether the shards have everything that was logged.
    pub fn is_live(&self) -> bool {
        self.state.lock().live
    }

    /// Waits until the shards are behind; returns the record at which dispatch is to begin.
    pub async fn behind(&self) -> Sequence {
        self.when(|state| (!state.live).then_some(state.dispatched + 1)).await
    }

    /// Waits until there is memory to dispatch more.
    pub async fn room(&self) {
        self.when(|state| (state.unflushed_bytes() <= self.budget / 4 * 3).then_some(())).await;
    }

    /// Waits until everything up to a record is in the store.
    pub async fn flushed(&self, through: Sequence) {
        self.when(|state| {
            let dispatched = state.live || state.dispatched >= through;
            let flushed = state.unflushed.first().is_none_or(|(first, _)| first > through);
            (dispatched && flushed && state.sealed.is_none()).then_some(())
        })
        .await;
    }

    /// Waits until the shards have everything that is logged by now.
    pub async fn dispatched(&self) {
        let through = self.state.lock().logged;
        self.when(|state| (state.live || state.dispatched >= through).then_some(())).await;
    }

    async fn when<T>(&self, condition: impl Fn(&PositionsState) -> Option<T>) -> T {
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

    /// Makes everything logged so far due at once; returns its last record.
    pub fn make_due(&self) -> Sequence {
        let mut state = self.state.lock();
        state.due = state.due.max(state.logged);
        state.logged
    }

    /// Everything up to this record is due.
    pub fn due(&self) -> Sequence {
        self.state.lock().due
    }

    /// Answers `waiter` when the request is in the store, and makes it due at once.
    pub fn wait_for(&self, sequence: Sequence, waiter: oneshot::Sender<Result<(), StorageError>>) {
        let mut state = self.state.lock();
        if sequence <= state.dispatched && state.unflushed.get(sequence).is_none() {
            // The request's pending ack is gone: it is stored, unless the positions are sealed. The receiver may be
            // gone too.
            if state.sealed.is_none() {
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

    /// Up to which record the WAL can be truncated.
    pub fn truncatable(&self) -> Sequence {
        let state = self.state.lock();
        state.truncatable()
    }

    /// How many records the WAL must keep.
    pub fn left(&self) -> u64 {
        let state = self.state.lock();
        if state.logged > state.truncatable() { state.held.len().max(state.left_at_seal).max(1) as u64 } else { 0 }
    }

    /// Makes what is logged so far, at most up to a record, due and wanted for truncation; returns its last record.
    pub fn want_truncated_through(&self, through: Sequence) -> Sequence {
        let mut state = self.state.lock();
        let through = through.min(state.logged);
        state.due = state.due.max(through);
        state.wanted = state.wanted.max(through);
        through
    }

    /// Waits until the WAL can be truncated up to this record.
    pub async fn truncated(&self, through: Sequence) {
        self.when(|state| (state.truncatable() >= through).then_some(())).await;
    }

    /// Up to where, at most `closed`, everything is in the store. The caller guarantees that all records up to `closed`
    /// were reported here and that no new ones will be added there.
    pub fn stored_through(&self, closed: Sequence) -> Sequence {
        let state = self.state.lock();
        match state.sealed.or_else(|| state.held.first().map(|(first, ())| first - 1)) {
            Some(through) => through.min(closed),
            None if state.dispatched < state.logged => state.dispatched.min(closed),
            None => closed,
        }
    }

    /// Stops truncation and fails all waits from here on, even though pending acks and pins are dropped: the next start
    /// replays their records.
    pub fn seal(&self) {
        let mut state = self.state.lock();
        if state.sealed.is_none() {
            state.left_at_seal = state.held.len();
        }
        state.sealed = Some(state.truncatable());
    }

    /// Whether a shard has ended with unstored readings: nothing more is truncated.
    pub fn is_sealed(&self) -> bool {
        self.state.lock().sealed.is_some()
    }

    /// Counts readings that reached the store.
    pub fn stored(&self, applied: Applied) {
        let mut state = self.state.lock();
        let ledger = &mut state.ledger;
        ledger.stored += applied.new;
        ledger.duplicate += applied.duplicate;
        ledger.overwritten += applied.overwritten;
        ledger.pending -= signed(applied.new + applied.duplicate + applied.overwritten);
    }

    /// Counts readings that were deleted before they were stored.
    pub fn deleted(&self, readings: u64) {
        let mut state = self.state.lock();
        state.ledger.deleted += readings;
        state.ledger.pending -= signed(readings);
    }

    /// Counts readings that went to the dead-letter file.
    pub fn dead_lettered(&self, readings: u64) {
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

    /// Bytes of all cached buckets.
    pub fn bucket_cache_bytes(&self) -> usize {
        self.cache_bytes.lock().values().sum()
    }

    /// How far the store lags behind, all of one moment.
    pub fn lag(&self) -> Lag {
        let state = self.state.lock();
        let oldest = state.unflushed.first().map(|(_, received)| *received);
        Lag {
            ledger: state.ledger,
            oldest,
            unflushed_bytes: state.unflushed_bytes(),
            live: state.live,
            blocked: state.blocked.clone(),
        }
    }

    /// Whether memory or WAL space is short, so that everything is due.
    pub fn is_pressed(&self) -> bool {
        let state = self.state.lock();
        state.wal_pressed || state.unflushed_bytes() > self.budget / 2
    }

    /// Whether WAL space is short, or a caller waits for truncation.
    pub fn is_wal_pressed(&self) -> bool {
        let state = self.state.lock();
        state.wal_pressed || state.wanted > state.truncatable()
    }

    /// Notes whether WAL space is short.
    pub fn press_wal(&self, pressed: bool) {
        self.state.lock().wal_pressed = pressed;
    }
}

pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
