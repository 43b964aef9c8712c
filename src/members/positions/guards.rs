//! Guards that report progress when they are dropped, even by a panic.

use std::sync::Arc;

use parking_lot::Mutex;

use super::wal_positions::{LoggedRequest, PositionsState, WalPositions, signed};
use crate::bucket::StorageError;
use crate::wal::Sequence;

impl WalPositions {
    /// Notes that a request is durable. Returns its guards if the caller may dispatch it now. Returns `None` if there
    /// is no room in memory or `may_dispatch` returns false, in which case it is read from the WAL later.
    pub fn note_logged(
        self: &Arc<Self>,
        logged: LoggedRequest,
        may_dispatch: impl FnOnce() -> bool,
    ) -> Option<RequestGuards> {
        let mut state = self.state.lock();
        state.logged = logged.sequence;
        state.ledger.accepted += logged.readings;
        state.ledger.pending += signed(logged.readings);
        // Dispatch may read a record just before the WAL's callback for it runs.
        let is_dispatched = logged.sequence <= state.dispatched;
        if !state.is_live || is_dispatched {
            return None;
        }
        let bytes = state.unflushed_bytes();
        let has_room = bytes == 0 || bytes + logged.memory <= self.budget();
        if has_room && may_dispatch() {
            return Some(self.open(&mut state, logged));
        }
        state.is_live = false;
        drop(state);
        self.changed.notify_waiters();
        None
    }

    /// Tracks a request that dispatch reads from the WAL. `replayed` is true if an earlier process accepted it.
    pub fn read_back(self: &Arc<Self>, logged: LoggedRequest, replayed: bool) -> RequestGuards {
        let mut state = self.state.lock();
        if replayed {
            state.ledger.replayed += logged.readings;
            state.ledger.pending += signed(logged.readings);
        }
        self.open(&mut state, logged)
    }

    fn open(self: &Arc<Self>, state: &mut PositionsState, logged: LoggedRequest) -> RequestGuards {
        state.dispatched = logged.sequence;
        state.unflushed.push(logged.sequence, logged.received);
        state.pinned.push(logged.sequence, ());
        state.queued_bytes += logged.memory;
        let is_urgent = state.waiting.contains_key(&logged.sequence);
        RequestGuards {
            pending_ack: PendingAck::new(&logged, is_urgent, self.clone()),
            queued: QueuedBatches::new(logged.memory, self.clone()),
        }
    }
}

/// Seals the positions when it is dropped, even by a panic, unless everything has reached the store. Must be dropped
/// before anything that holds a [`PendingAck`] or a [`WalPin`].
#[derive(Debug)]
pub struct SealAtEnd(Option<Arc<WalPositions>>);

impl SealAtEnd {
    pub fn new(positions: &Arc<WalPositions>) -> Self {
        Self(Some(positions.clone()))
    }

    /// Drops the guard without sealing, because everything has reached the store.
    pub fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for SealAtEnd {
    fn drop(&mut self) {
        if let Some(positions) = &self.0 {
            positions.seal();
        }
    }
}

/// Keeps a record in the WAL until it is dropped.
#[derive(Debug)]
pub struct WalPin {
    sequence: Sequence,
    positions: Arc<WalPositions>,
}

impl Drop for WalPin {
    fn drop(&mut self) {
        let is_wanted = {
            let mut state = self.positions.state.lock();
            state.pinned.remove(self.sequence);
            self.sequence <= state.wanted
        };
        if is_wanted {
            self.positions.changed.notify_waiters();
        }
    }
}

/// The guards of a dispatched request.
#[derive(Debug, Clone)]
pub struct RequestGuards {
    /// Held until the request is in the store.
    pub pending_ack: Arc<PendingAck>,
    /// Held until the shards have taken the request from their inboxes.
    pub queued: Arc<QueuedBatches>,
}

/// Counts the memory of a request's batches while they wait in the shards' inboxes.
#[derive(Debug)]
pub struct QueuedBatches {
    memory: usize,
    positions: Arc<WalPositions>,
}

impl QueuedBatches {
    pub(crate) fn new(memory: usize, positions: Arc<WalPositions>) -> Arc<Self> {
        Arc::new(Self { memory, positions })
    }
}

impl Drop for QueuedBatches {
    fn drop(&mut self) {
        let mut state = self.positions.state.lock();
        state.queued_bytes = state.queued_bytes.saturating_sub(self.memory);
        drop(state);
        self.positions.changed.notify_waiters();
    }
}

/// Held by every shard that has unflushed readings of a request. When the last one drops it, the request is flushed.
#[derive(Debug)]
pub struct PendingAck {
    pin: Arc<WalPin>,
    is_urgent: bool,
    refused: Mutex<Option<StorageError>>,
}

impl PendingAck {
    pub(crate) fn new(logged: &LoggedRequest, is_urgent: bool, positions: Arc<WalPositions>) -> Arc<Self> {
        let pin = Arc::new(WalPin { sequence: logged.sequence, positions });
        Arc::new(Self { pin, is_urgent, refused: Mutex::new(None) })
    }

    /// Returns the request's WAL record.
    pub fn sequence(&self) -> Sequence {
        self.pin.sequence
    }

    /// Returns true if a write waits until the request is in the store.
    pub fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    /// Returns a pin that keeps the request's record in the WAL beyond the flush of its readings.
    pub fn pin(&self) -> Arc<WalPin> {
        self.pin.clone()
    }

    /// Notes that the store will never accept a reading of the request. The waiting write gets the error.
    pub fn refuse(&self, error: &StorageError) {
        *self.refused.lock() = Some(error.clone());
    }
}

impl Drop for PendingAck {
    fn drop(&mut self) {
        let refused = self.refused.get_mut().take();
        let positions = &self.pin.positions;
        let waiter = {
            let mut state = positions.state.lock();
            state.unflushed.remove(self.pin.sequence);
            state.waiting.remove(&self.pin.sequence).filter(|_| state.sealed.is_none())
        };
        if let Some(waiter) = waiter {
            // The receiver may be closed.
            let _ = waiter.send(refused.map_or(Ok(()), Err));
        }
        positions.changed.notify_waiters();
    }
}
