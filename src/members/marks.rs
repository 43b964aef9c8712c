//! Marks of deletions by value.
//!
//! A deletion by value first logs a record, its **mark**, and covers only cells older than the mark. While the mark
//! is active, this WAL's watermark stays below it, and so does the registry's floor. Newer cells therefore keep their
//! stamps in pages and days, even if no other instance writes. Each part of the deletion can decide by stamps which
//! cells it covers, also when it is repeated after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::positions::WalPin;
use crate::reading::Stamp;

/// A mark of a deletion that this process carries out. A drop ends it.
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

/// The marks in this process's WAL.
#[derive(Debug, Default)]
pub struct Marks(Mutex<MarksState>);

#[derive(Debug, Default)]
struct MarksState {
    active: BTreeMap<Stamp, Arc<WalPin>>,
    /// Ended marks that parts of their deletions may still hold.
    held: Vec<Weak<WalPin>>,
    /// Marks that ended before dispatch read them from the WAL.
    ended: BTreeSet<Stamp>,
}

impl Marks {
    /// Sets a mark, at its place in the WAL.
    pub fn set(&self, stamp: Stamp, pin: Arc<WalPin>) {
        let mut state = self.0.lock();
        if !state.ended.remove(&stamp) {
            state.active.insert(stamp, pin);
        }
    }

    /// Returns the pin of a mark. Each part of the deletion holds it until the part is done.
    pub fn get(&self, stamp: Stamp) -> Option<Arc<WalPin>> {
        self.0.lock().active.get(&stamp).cloned()
    }

    /// Returns true if a mark is active, or an unfinished part holds an ended mark.
    pub fn has_any(&self) -> bool {
        let mut state = self.0.lock();
        state.held.retain(|pin| pin.strong_count() > 0);
        !(state.active.is_empty() && state.held.is_empty())
    }

    /// Ends a mark, because no further part of its deletion will be logged. Unfinished parts still hold it.
    pub fn end(&self, stamp: Stamp) {
        // Drop the pin after the lock is released.
        let _pin = {
            let mut state = self.0.lock();
            let pin = state.active.remove(&stamp);
            if let Some(pin) = &pin {
                state.held.push(Arc::downgrade(pin));
            } else {
                state.ended.insert(stamp);
            }
            pin
        };
    }

    /// Ends the marks of earlier processes, after all their records were dispatched.
    pub fn end_through(&self, last: Stamp) {
        // Drop the pins after the lock is released.
        let _ended = {
            let mut state = self.0.lock();
            let later = state.active.split_off(&last.saturating_add(1));
            let ended = std::mem::replace(&mut state.active, later);
            state.held.extend(ended.values().map(Arc::downgrade));
            ended
        };
    }
}
