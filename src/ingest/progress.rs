//! How far the readings have come: logged, fed to the shards, in the store. From it follow what may
//! be released from the log, when a flush is done, who behind an ack `store` is answered, and the
//! account of every reading.

mod held;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

pub use self::held::{Hold, Queued, SealAtEnd, Ticket, Tracked};

use super::in_log_order::InLogOrder;
use crate::bucket::{Applied, StorageError};
use crate::log::Sequence;

/// What became of every reading since the process started. All terms are of one moment, and
/// `accepted + replayed = stored + duplicate + overwritten + deleted + dead_lettered + pending`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Kept from requests, durably in the log.
    pub accepted: u64,
    /// Read back from the log at the start.
    pub replayed: u64,
    /// In the store, for the first time.
    pub stored: u64,
    /// In the store already; nothing changed.
    pub duplicate: u64,
    /// Changed or added a field of one that was there.
    pub overwritten: u64,
    /// Deleted before they were stored.
    pub deleted: u64,
    /// Refused by the store for good, and kept in the dead-letter file.
    pub dead_lettered: u64,
    /// In the log and not in the store yet. Below zero for the moment in which a reading is stored
    /// before it is counted as accepted.
    pub pending: i64,
}

/// How far behind the store is.
#[derive(Debug, Clone, Default)]
pub struct Lag {
    /// The account of readings.
    pub ledger: Ledger,
    /// When the oldest unflushed request was received, in nanoseconds, if there is one.
    pub oldest: Option<i64>,
    /// Bytes of memory that unflushed readings take, and batches that wait before the shards.
    pub unflushed_bytes: usize,
    /// Whether the shards have everything that is logged.
    pub live: bool,
    /// Why nothing more can be fed, if so.
    pub blocked: Option<String>,
}

/// A request on its way from the log to the shards.
#[derive(Debug, Clone, Copy)]
pub struct Logged {
    /// Its place in the log.
    pub sequence: Sequence,
    /// How many readings it has.
    pub readings: u64,
    /// Memory that its batches take.
    pub memory: usize,
    /// When it was received, in nanoseconds.
    pub received: i64,
}

/// Shared by the log's callbacks, the feeder, the shards and whoever waits.
#[derive(Debug)]
pub struct Progress {
    state: Mutex<State>,
    changed: Notify,
    budget: usize,
    /// Memory of each shard's hot buckets.
    hot_bytes: Mutex<BTreeMap<usize, usize>>,
}

#[derive(Debug, Default)]
struct State {
    /// The last record that is durable.
    logged: Sequence,
    /// Everything up to here was given to the shards.
    fed: Sequence,
    live: bool,
    /// Fed requests that are not wholly in the store, with the time each was received.
    unflushed: InLogOrder<i64>,
    /// Records that something fed still needs to be in the log.
    held: InLogOrder<()>,
    /// Memory of batches that wait before the shards.
    queued_bytes: usize,
    /// Memory of what each shard has taken in.
    shard_bytes: BTreeMap<usize, usize>,
    waiting: HashMap<Sequence, oneshot::Sender<Result<(), StorageError>>>,
    /// Everything up to here is due at once.
    due: Sequence,
    ledger: Ledger,
    log_pressed: bool,
    /// Somebody waits until everything up to here may be released.
    wanted: Sequence,
    /// Why nothing more can be fed, if so.
    blocked: Option<String>,
    /// A shard has let go of readings that are not in the store: nothing behind this is released.
    sealed: Option<Sequence>,
}

impl State {
    fn unflushed_bytes(&self) -> usize {
        self.queued_bytes + self.shard_bytes.values().sum::<usize>()
    }

    fn releasable(&self) -> Sequence {
        self.sealed.unwrap_or_else(|| self.held.first().map_or(self.fed, |(first, ())| first - 1))
    }
}

impl Progress {
    /// Nothing fed behind `released`, and everything up to `last` still to be.
    pub fn new(released: Sequence, last: Sequence, budget: usize) -> Arc<Self> {
        let state = State { logged: last, fed: released, live: last <= released, ..State::default() };
        Arc::new(Self { state: Mutex::new(state), changed: Notify::new(), budget, hot_bytes: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a request is durable. Its ticket, when it may go to the shards at once, for which this must be so when
    /// its turn comes; else the feeder will read it from the log.
    pub fn logged_if(self: &Arc<Self>, logged: Logged, may_be_fed: impl FnOnce() -> bool) -> Option<Tracked> {
        let mut state = self.lock();
        state.logged = logged.sequence;
        state.ledger.accepted += logged.readings;
        state.ledger.pending += signed(logged.readings);
        let fed = logged.sequence <= state.fed;
        let bytes = state.unflushed_bytes();
        let has_room = bytes == 0 || bytes + logged.memory <= self.budget;
        if state.live && !fed && !(has_room && may_be_fed()) {
            state.live = false;
            drop(state);
            self.changed.notify_waiters();
            return None;
        }
        // The feeder sees a record a moment before its callback runs: then it is fed already.
        if !state.live || fed {
            return None;
        }
        Some(self.open(&mut state, logged))
    }

    /// Takes a request that the feeder read from the log.
    pub fn read_back(self: &Arc<Self>, logged: Logged, replayed: bool) -> Tracked {
        let mut state = self.lock();
        if replayed {
            state.ledger.replayed += logged.readings;
            state.ledger.pending += signed(logged.readings);
        }
        self.open(&mut state, logged)
    }

    fn open(self: &Arc<Self>, state: &mut State, logged: Logged) -> Tracked {
        state.fed = logged.sequence;
        state.unflushed.push(logged.sequence, logged.received);
        state.held.push(logged.sequence, ());
        state.queued_bytes += logged.memory;
        let urgent = state.waiting.contains_key(&logged.sequence);
        (Ticket::new(&logged, urgent, self.clone()), Queued::new(logged.memory, self.clone()))
    }

    /// The shards have everything that was logged, unless more was logged meanwhile.
    pub fn try_go_live(&self, position: Sequence) -> bool {
        let mut state = self.lock();
        // What the reader passed over (damage, gaps) needs no feeding.
        state.fed = state.fed.max(position.saturating_sub(1));
        state.live = state.fed >= state.logged;
        let live = state.live;
        drop(state);
        self.changed.notify_waiters();
        live
    }

    /// Nothing more can be fed, for this reason.
    pub fn block(&self, reason: String) {
        self.lock().blocked = Some(reason);
    }

    /// Whether the shards have everything that was logged.
    pub fn is_live(&self) -> bool {
        self.lock().live
    }

    /// Waits until the shards are behind, and returns where feeding is to begin.
    pub async fn behind(&self) -> Sequence {
        self.when(|state| (!state.live).then_some(state.fed + 1)).await
    }

    /// Waits until there is memory to feed more.
    pub async fn room(&self) {
        self.when(|state| (state.unflushed_bytes() <= self.budget / 4 * 3).then_some(())).await;
    }

    /// Waits until everything up to there is in the store.
    pub async fn flushed(&self, through: Sequence) {
        self.when(|state| {
            let fed = state.live || state.fed >= through;
            let flushed = state.unflushed.first().is_none_or(|(first, _)| first > through);
            (fed && flushed && state.sealed.is_none()).then_some(())
        })
        .await;
    }

    /// Waits until the shards have everything that is logged by now.
    pub async fn fed(&self) {
        let through = self.lock().logged;
        self.when(|state| (state.live || state.fed >= through).then_some(())).await;
    }

    async fn when<T>(&self, condition: impl Fn(&State) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(met) = condition(&self.lock()) {
                return met;
            }
            changed.await;
        }
    }

    /// Makes everything logged so far due at once; returns its last record.
    pub fn make_due(&self) -> Sequence {
        let mut state = self.lock();
        state.due = state.due.max(state.logged);
        state.logged
    }

    /// Up to which record everything is due.
    pub fn due(&self) -> Sequence {
        self.lock().due
    }

    /// Has `waiter` told when the request is in the store, for which it is due at once.
    pub fn wait_for(&self, sequence: Sequence, waiter: oneshot::Sender<Result<(), StorageError>>) {
        let mut state = self.lock();
        if sequence <= state.fed && state.unflushed.get(sequence).is_none() {
            // Let go is stored, unless it was let go behind a seal. Whoever waited may have gone.
            if state.sealed.is_none() {
                let _ = waiter.send(Ok(()));
            }
            return;
        }
        if sequence <= state.fed {
            state.due = state.due.max(sequence);
        }
        state.waiting.insert(sequence, waiter);
    }

    /// Nobody waits for the request any more.
    pub fn forget(&self, sequence: Sequence) {
        self.lock().waiting.remove(&sequence);
    }

    /// Up to which record the log is not needed any more.
    pub fn releasable(&self) -> Sequence {
        let state = self.lock();
        if crate::faults::has(crate::faults::Bug::ReleaseBeforeFlush) {
            return state.fed;
        }
        state.releasable()
    }

    /// How many records the log has to keep.
    pub fn left(&self) -> u64 {
        let state = self.lock();
        if state.logged > state.releasable() { state.held.len().max(1) as u64 } else { 0 }
    }

    /// Works towards a log that is not needed any more for what is logged by now; returns its last record.
    pub fn want_released(&self) -> Sequence {
        let mut state = self.lock();
        state.due = state.due.max(state.logged);
        state.wanted = state.wanted.max(state.logged);
        state.logged
    }

    /// Waits until the log is not needed any more up to this record.
    pub async fn released(&self, through: Sequence) {
        self.when(|state| (state.releasable() >= through).then_some(())).await;
    }

    /// Up to where everything is in the store, given that of every record up to `closed` it was told here, and that none
    /// will be given out there any more.
    pub fn stored_through(&self, closed: Sequence) -> Sequence {
        let state = self.lock();
        match state.sealed.or_else(|| state.held.first().map(|(first, ())| first - 1)) {
            Some(through) => through.min(closed),
            None if state.fed < state.logged => state.fed.min(closed),
            None => closed,
        }
    }

    /// Keeps in the log whatever is not released by now, and has no wait end well, whatever is let
    /// go from here on: the next start replays it.
    pub fn seal(&self) {
        let mut state = self.lock();
        state.sealed = Some(state.releasable());
    }

    /// Whether a shard has ended with anything unstored: nothing is released any more.
    pub fn is_sealed(&self) -> bool {
        self.lock().sealed.is_some()
    }

    /// Accounts for readings that reached the store.
    pub fn stored(&self, applied: Applied) {
        let mut state = self.lock();
        let ledger = &mut state.ledger;
        ledger.stored += applied.new;
        ledger.duplicate += applied.duplicate;
        ledger.overwritten += applied.overwritten;
        ledger.pending -= signed(applied.new + applied.duplicate + applied.overwritten);
    }

    /// Accounts for readings that were deleted before they were stored.
    pub fn deleted(&self, readings: u64) {
        let mut state = self.lock();
        state.ledger.deleted += readings;
        state.ledger.pending -= signed(readings);
    }

    /// Accounts for readings that went to the dead-letter file.
    pub fn dead_lettered(&self, readings: u64) {
        let mut state = self.lock();
        state.ledger.dead_lettered += readings;
        state.ledger.pending -= signed(readings);
    }

    /// Notes what a shard's unflushed readings take.
    pub fn note_unflushed(&self, shard: usize, bytes: usize) {
        let before = self.lock().shard_bytes.insert(shard, bytes);
        if before.is_some_and(|before| bytes < before) {
            self.changed.notify_waiters();
        }
    }

    /// Notes what a shard's hot buckets take.
    pub fn note_hot(&self, shard: usize, bytes: usize) {
        self.hot_bytes.lock().unwrap_or_else(PoisonError::into_inner).insert(shard, bytes);
    }

    /// Bytes of memory of all hot buckets.
    pub fn hot_bytes(&self) -> usize {
        self.hot_bytes.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }

    /// How far behind the store is, all of one moment.
    pub fn lag(&self) -> Lag {
        let state = self.lock();
        let oldest = state.unflushed.first().map(|(_, received)| *received);
        Lag {
            ledger: state.ledger,
            oldest,
            unflushed_bytes: state.unflushed_bytes(),
            live: state.live,
            blocked: state.blocked.clone(),
        }
    }

    /// Whether memory or log space runs short, so that everything is due.
    pub fn is_pressed(&self) -> bool {
        let state = self.lock();
        state.log_pressed || state.unflushed_bytes() > self.budget / 2
    }

    /// Whether log space runs short.
    pub fn is_log_pressed(&self) -> bool {
        let state = self.lock();
        state.log_pressed || state.wanted > state.releasable()
    }

    /// Notes whether log space runs short.
    pub fn press_log(&self, pressed: bool) {
        self.lock().log_pressed = pressed;
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
