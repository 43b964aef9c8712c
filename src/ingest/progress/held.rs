//! What is held for as long as something is not done, and says so when it is dropped, whichever way that comes.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Logged, Progress};
use crate::bucket::StorageError;
use crate::log::Sequence;

/// Seals the progress when it is dropped, which a panic does too, unless all has got to the store.
/// To be dropped before anything that holds a [`Ticket`] or a [`Hold`].
#[derive(Debug)]
pub struct SealAtEnd(Option<Arc<Progress>>);

impl SealAtEnd {
    /// Armed.
    pub fn new(progress: &Arc<Progress>) -> Self {
        Self(Some(progress.clone()))
    }

    /// All has got to the store.
    pub fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for SealAtEnd {
    fn drop(&mut self) {
        if let Some(progress) = &self.0 {
            progress.seal();
        }
    }
}

/// Held by everything that still needs a record to be in the log.
#[derive(Debug)]
pub struct Hold {
    sequence: Sequence,
    progress: Arc<Progress>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let wanted = {
            let mut state = self.progress.lock();
            state.held.remove(self.sequence);
            self.sequence <= state.wanted
        };
        if wanted {
            self.progress.changed.notify_waiters();
        }
    }
}

/// How a request is kept track of: until it is in the store, and until the shards have it.
pub type Tracked = (Arc<Ticket>, Arc<Queued>);

/// Held by the batches of a request for as long as they wait before the shards.
#[derive(Debug)]
pub struct Queued {
    memory: usize,
    progress: Arc<Progress>,
}

impl Queued {
    /// For a request whose batches take so many bytes.
    pub(super) fn new(memory: usize, progress: Arc<Progress>) -> Arc<Self> {
        Arc::new(Self { memory, progress })
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let mut state = self.progress.lock();
        state.queued_bytes = state.queued_bytes.saturating_sub(self.memory);
        drop(state);
        self.progress.changed.notify_waiters();
    }
}

/// Held by every shard that has readings of a request that are not in the store. With the last one gone the request
/// is flushed.
#[derive(Debug)]
pub struct Ticket {
    hold: Arc<Hold>,
    urgent: bool,
    refused: Mutex<Option<StorageError>>,
}

impl Ticket {
    /// For a request that is being fed.
    pub(super) fn new(logged: &Logged, urgent: bool, progress: Arc<Progress>) -> Arc<Self> {
        let hold = Arc::new(Hold { sequence: logged.sequence, progress });
        Arc::new(Self { hold, urgent, refused: Mutex::new(None) })
    }

    /// The request's place in the log.
    pub fn sequence(&self) -> Sequence {
        self.hold.sequence
    }

    /// Whether somebody waits for the request to be in the store.
    pub fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Keeps the request's record in the log beyond the flush of its readings.
    pub fn hold(&self) -> Arc<Hold> {
        self.hold.clone()
    }

    /// Notes that the store will never take a reading of the request.
    pub fn refuse(&self, error: &StorageError) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let refused = self.refused.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let progress = &self.hold.progress;
        let waiter = {
            let mut state = progress.lock();
            state.unflushed.remove(self.hold.sequence);
            state.waiting.remove(&self.hold.sequence).filter(|_| state.sealed.is_none())
        };
        if let Some(waiter) = waiter {
            // Whoever waited may have gone.
            let _ = waiter.send(refused.map_or(Ok(()), Err));
        }
        progress.changed.notify_waiters();
    }
}
