//! Giving segments back: what is no longer needed is deleted, oldest first only, so that after any
//! crash the log begins at one place and has no gap behind it.

use std::io;
use std::sync::{Mutex, PoisonError};

use super::error::ReleaseError;
use super::shared::Shared;
use super::{Sequence, checkpoint};

/// One release at a time.
#[derive(Default)]
pub(super) struct Releases {
    turn: Mutex<Turn>,
}

#[derive(Default)]
struct Turn {
    /// What the checkpoint on the disk says, as far as known.
    written: Sequence,
    /// A removal may not be durable yet.
    unsynced: bool,
}

impl Releases {
    /// What the checkpoint says after opening.
    pub(super) fn new(written: Sequence) -> Self {
        Self { turn: Mutex::new(Turn { written, unsynced: false }) }
    }

    pub(super) fn release(&self, shared: &Shared, through: Sequence) -> Result<(), ReleaseError> {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let released = {
            let mut state = shared.lock();
            state.released = state.released.max(through.min(state.durable));
            state.released
        };
        let marked = turn.mark(shared, released);
        // Without room for the checkpoint there must still be a way to make some.
        turn.delete(shared, released)?;
        marked
    }
}

impl Turn {
    fn mark(&mut self, shared: &Shared, released: Sequence) -> Result<(), ReleaseError> {
        if released > self.written {
            checkpoint::write(&*shared.disk, shared.log, released).map_err(attempted("writing the checkpoint"))?;
            self.written = released;
        }
        Ok(())
    }

    /// Every removal is durable before the next: else a power cut might leave an older segment and
    /// take a newer one, and replay would bring back values that were overwritten since.
    fn delete(&mut self, shared: &Shared, released: Sequence) -> Result<(), ReleaseError> {
        loop {
            if self.unsynced {
                shared.disk.sync_dir().map_err(attempted("syncing the log's folder"))?;
                self.unsynced = false;
            }
            let oldest = {
                let state = shared.lock();
                let is_done = state.segments.len() > 1;
                state
                    .segments
                    .front()
                    .filter(|oldest| is_done && oldest.last <= released)
                    .map(|oldest| oldest.name.clone())
            };
            let Some(name) = oldest else { break };
            self.unsynced = true;
            let attempt = format!("removing segment {name}");
            checkpoint::remove_if_there(&*shared.disk, &name).map_err(|error| ReleaseError { attempt, error })?;
            shared.lock().segments.pop_front();
        }
        // There may be room for the writer again.
        shared.wake();
        Ok(())
    }
}

fn attempted(attempt: &str) -> impl FnOnce(io::Error) -> ReleaseError {
    move |error| ReleaseError { attempt: attempt.to_owned(), error }
}
