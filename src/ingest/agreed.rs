//! What this process knows of the registry: the floor, whether others write, what of its own log is stored already, and
//! which deletions are remembered. Written by the member's task, read by everybody.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::bucket::deletions::{Covers, Deletions, Masks, Remembered, SensorTest, Understand, covers};
use crate::bucket::registry::Registry;
use crate::log::Recovery;
use crate::reading::stamp::SETTLED;
use crate::reading::{Hour, Sensor, Stamp};

/// How long what was read of the registry says whether others write: who joins waits longer than that before it acks.
pub const FRESH: Duration = Duration::from_secs(2);

/// What merges go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// No log has anything unflushed at or below it.
    pub floor: Stamp,
    /// Whether other logs may have older values that are unflushed.
    pub restamps: bool,
}

/// What is known of the registry.
#[derive(Debug)]
pub struct Agreed {
    masks: Masks,
    understand: Understanding,
    /// The openings of this log that are over, each with its last record.
    openings: Vec<(u64, Stamp)>,
    /// Whether others may use the store.
    shared: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    view: View,
    /// When the registry was read last, since the start.
    read: Option<Instant>,
    /// Whether the floor waits for this log, so that what it acks is later than it.
    is_joined: bool,
    /// By how much the log's last record is ahead of the store's clock.
    ahead: Duration,
    /// The registry that was taken over last, and when.
    rev: u64,
    learned: Option<Instant>,
    /// What was read last.
    deletions: Vec<Remembered>,
    greatest: Stamp,
    /// Records of earlier openings that are stored: behind the first stamp, through the second.
    stored: Vec<(Stamp, Stamp)>,
}

/// What makes tests of deletions' statements.
#[derive(Clone)]
pub struct Understanding(Understand);

impl Understanding {
    /// The test that a statement is; `None` for one that nobody here understands.
    pub fn of(&self, statement: &str) -> Option<SensorTest> {
        (self.0)(statement)
    }
}

impl std::fmt::Debug for Understanding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Understanding")
    }
}

impl Agreed {
    /// Nothing known yet; others write where the store is `shared`.
    pub fn new(masks: Masks, understand: Understand, recovery: &Recovery, shared: bool) -> Self {
        let view = View { floor: SETTLED, restamps: shared };
        let (deletions, stored) = (Vec::new(), Vec::new());
        let state = State {
            view,
            read: None,
            is_joined: !shared,
            ahead: Duration::ZERO,
            rev: 0,
            learned: None,
            deletions,
            greatest: SETTLED,
            stored,
        };
        let openings = recovery.openings.iter().copied().filter(|(opening, _)| *opening != 0).collect();
        Self { masks, understand: Understanding(understand), openings, shared, state: Mutex::new(state) }
    }

    /// Of a store that nobody shares, with nothing deleted.
    #[cfg(test)]
    pub fn nothing() -> Self {
        let recovery = Recovery {
            log: 1,
            opening: 2,
            openings: Vec::new(),
            last: 0,
            released: 0,
            damage: Vec::new(),
            unwritable: None,
        };
        Self::new(Masks::default(), std::sync::Arc::new(|_| None), &recovery, false)
    }

    /// What makes tests of deletions' statements.
    pub fn understanding(&self) -> Understanding {
        self.understand.clone()
    }

    /// What merges go by now. Where the registry was not read for a while, somebody may have joined since.
    pub fn view(&self) -> View {
        let state = self.lock();
        let is_old = state.read.is_none_or(|read| read.elapsed() >= FRESH);
        View { restamps: state.view.restamps || (self.shared && is_old), ..state.view }
    }

    /// Whether the registry was read since the start. Until then nobody knows what is deleted.
    pub fn is_known(&self) -> bool {
        self.lock().read.is_some()
    }

    /// Whether the floor waits for this log.
    pub fn is_joined(&self) -> bool {
        self.lock().is_joined
    }

    /// From now on it does.
    pub fn note_joined(&self) {
        self.lock().is_joined = true;
    }

    /// By how much the log's last record is ahead of the store's clock, as last looked at.
    pub fn ahead(&self) -> Duration {
        self.lock().ahead
    }

    /// It is so much.
    pub fn note_ahead(&self, ahead: Duration) {
        self.lock().ahead = ahead;
    }

    /// The greatest stamp that any log has said it gave out.
    pub fn greatest(&self) -> Stamp {
        self.lock().greatest
    }

    /// Whether a database was dropped after a stamp, as far as that is remembered.
    pub fn is_dropped(&self, database: &str, after: Stamp) -> bool {
        let is_drop = |d: &Remembered| d.statement.is_none() && d.database == database && d.stamp > after;
        self.lock().deletions.iter().any(is_drop)
    }

    /// Whether a deletion was carried out, as far as that is remembered.
    pub fn is_done(&self, deletion: &Remembered) -> bool {
        self.lock().deletions.iter().any(|known| known.done && known.is_same(deletion))
    }

    /// How many deletions are remembered.
    pub fn remembered(&self) -> usize {
        self.lock().deletions.len()
    }

    /// The bytes of their statements.
    pub fn remembered_bytes(&self) -> usize {
        self.lock().deletions.iter().filter_map(|deletion| deletion.statement.as_ref()).map(String::len).sum()
    }

    /// What is deleted of a sensor's hour.
    pub fn covers(&self, database: &str, sensor: &Sensor, hour: Hour) -> Covers {
        let deletions = self.masks.now();
        if deletions.is_about(database) { deletions.of(database, sensor, &(hour..hour.next())) } else { Covers::new() }
    }

    /// What is known of a bucket's unflushed readings whose records come from `first` on.
    pub fn judge(&self, database: &str, sensor: &Sensor, hour: Hour, first: Stamp) -> Judge {
        let covers = self.covers(database, sensor, hour);
        let state = self.lock();
        Judge { covers, stored: state.stored.iter().filter(|(_, through)| first <= *through).copied().collect() }
    }

    /// Whether a replayed record is known to be stored, by whatever became of its folder's other copies.
    pub fn is_stored(&self, stamp: Stamp) -> bool {
        is_within(&self.lock().stored, stamp)
    }

    /// Takes a registry over, as `opening` sees it, unless a later one was taken over since somebody began to `read` this
    /// one; returns the deletions that are new.
    pub fn learn(&self, registry: &Registry, opening: u64, read: Instant) -> Vec<Remembered> {
        let mut state = self.lock();
        if registry.rev < state.rev && state.learned.is_some_and(|learned| read < learned) {
            return Vec::new();
        }
        (state.rev, state.learned) = (registry.rev, Some(Instant::now()));
        let is_known = |deletion: &&Remembered| state.deletions.iter().any(|known| known.is_same(deletion));
        let new = registry.deletions.iter().filter(|deletion| !is_known(deletion)).cloned().collect();
        if state.deletions != registry.deletions {
            // Before the floor: whoever raises one knows what is deleted below it.
            self.masks.set(Deletions::new(&registry.deletions, &self.understand.0));
            state.deletions.clone_from(&registry.deletions);
        }
        let mut after = SETTLED;
        state.stored.clear();
        for (earlier, last) in &self.openings {
            if let Some(through) = registry.stored_through(*earlier) {
                state.stored.push((after, through.min(*last)));
            }
            after = *last;
        }
        state.view = View {
            floor: state.view.floor.max(registry.floor),
            restamps: self.shared && (registry.has_others(opening) || registry.log(opening).is_none()),
        };
        state.greatest = registry.greatest();
        state.read = state.read.max(Some(read));
        new
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_within(stored: &[(Stamp, Stamp)], stamp: Stamp) -> bool {
    stored.iter().any(|(after, through)| *after < stamp && stamp <= *through)
}

/// What becomes of an unflushed reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is merged with what the store has.
    Merged,
    /// It is deleted before it comes to the store.
    Deleted,
    /// It was stored before a restart.
    Stored,
}

/// Says what becomes of a bucket's unflushed readings.
#[derive(Debug)]
pub struct Judge {
    /// What is deleted.
    pub covers: Covers,
    stored: Vec<(Stamp, Stamp)>,
}

impl Judge {
    /// Whether all of them are merged.
    pub fn takes_all(&self) -> bool {
        self.covers.is_empty() && self.stored.is_empty()
    }

    /// What becomes of one.
    pub fn fate(&self, time: i64, stamp: Stamp) -> Fate {
        if covers(&self.covers, time, stamp) {
            Fate::Deleted
        } else if is_within(&self.stored, stamp) {
            Fate::Stored
        } else {
            Fate::Merged
        }
    }
}
