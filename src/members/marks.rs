//! Marks of deletions by value.
//!
//! A deletion by value covers what is older than its **mark**, a record that it logs first. While the mark stands, this WAL's
//! watermark stays below it, so the registry's floor does too: no page and no day settles a cell that is newer than the mark,
//! and merges store renewed stamps even where no other instance writes. Every part of the deletion can therefore tell by stamps
//! what it covers, also when it is carried out once more after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::positions::WalPin;
use crate::reading::Stamp;

/// A standing mark of this process's own deletion; it ends when this is dropped.
#[derive(Debug)]
pub struct Mark {
    pub stamp: Stamp,
    marks: Arc<Marks>,
}

impl Mark {
    pub fn new(stamp: Stamp, marks: Arc<Marks>) -> Self {
        Self { stamp, marks }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.marks.end(self.stamp);
    }
}

#[derive(Debug, Default)]
pub struct Marks(Mutex<MarksState>);

#[derive(Debug, Default)]
struct MarksState {
    standing: BTreeMap<Stamp, Arc<WalPin>>,
    /// Marks that ended while parts may have held them.
    held: Vec<Weak<WalPin>>,
    /// Marks that ended before they were read back from the WAL.
    ended: BTreeSet<Stamp>,
}

impl Marks {
    /// Notes a mark, at its place in the WAL.
    pub fn set(&self, stamp: Stamp, pin: Arc<WalPin>) {
        let mut state = self.0.lock();
        if !state.ended.remove(&stamp) {
            state.standing.insert(stamp, pin);
        }
    }

    /// What keeps a mark standing; parts hold it until they are carried out.
    pub fn get(&self, stamp: Stamp) -> Option<Arc<WalPin>> {
        self.0.lock().standing.get(&stamp).cloned()
    }

    /// Whether any mark stands, or a part of a deletion that is not carried out yet holds one.
    pub fn any(&self) -> bool {
        let mut state = self.0.lock();
        state.held.retain(|pin| pin.strong_count() > 0);
        !(state.standing.is_empty() && state.held.is_empty())
    }

    /// Ends a mark: no further part of its deletion is logged. Parts that are under way still hold it.
    pub fn end(&self, stamp: Stamp) {
        let pin = {
            let mut state = self.0.lock();
            let pin = state.standing.remove(&stamp);
            match &pin {
                Some(pin) => state.held.push(Arc::downgrade(pin)),
                None => drop(state.ended.insert(stamp)),
            }
            pin
        };
        drop(pin);
    }

    /// Ends the marks of earlier processes, when everything that they logged was dispatched.
    pub fn end_through(&self, last: Stamp) {
        let ended = {
            let mut state = self.0.lock();
            let later = state.standing.split_off(&last.saturating_add(1));
            let ended = std::mem::replace(&mut state.standing, later);
            state.held.extend(ended.values().map(Arc::downgrade));
            ended
        };
        drop(ended);
    }
}
