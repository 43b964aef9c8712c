//! This process's view of the registry: the floor, whether others write, which records of its own WAL are stored
//! already, and which deletions are remembered. The member's task writes it, everything else reads it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::bucket::deletions::{Covers, Deletions, Masks, RememberedDeletion, StatementCompiler, covers};
use crate::bucket::registry::MemberRegistry;
use crate::catalog::deletion::ALWAYS;
use crate::members::marks::Marks;
use crate::reading::stamp::SETTLED;
use crate::reading::{Hour, Sensor, Stamp};
use crate::wal::Recovery;

/// For how long a read of the registry shows whether others write: a new member waits longer than this before it acks.
pub const FRESH: Duration = Duration::from_secs(2);

/// What merges depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeView {
    /// No WAL has anything unflushed at or below it.
    pub floor: Stamp,
    /// Whether other WALs may have unflushed older values, or a deletion by value must tell older cells by their stamps.
    pub restamps: bool,
}

pub struct RegistryView {
    masks: Masks,
    understand: StatementCompiler,
    marks: Arc<Marks>,
    /// Earlier openings of this WAL, each with its last record.
    openings: Vec<(u64, Stamp)>,
    /// Whether other instances may use the store.
    shared: bool,
    state: Mutex<RegistryState>,
}

#[derive(Debug)]
struct RegistryState {
    view: MergeView,
    /// When the registry was last read, if it was since the start.
    read: Option<Instant>,
    /// Whether the floor waits for this WAL, so that it stays below everything this process acks.
    is_joined: bool,
    /// How far the WAL's last record is ahead of the store's clock.
    ahead: Duration,
    /// The rev of the registry that was applied last; below, when that was.
    rev: u64,
    learned: Option<Instant>,
    /// The deletions of that registry.
    deletions: Vec<RememberedDeletion>,
    greatest: Stamp,
    /// Stored records of earlier openings: after the first stamp, up to and including the second.
    stored: Vec<(Stamp, Stamp)>,
}

impl RegistryView {
    /// An empty view; `shared` says whether other instances may use the store.
    pub fn new(masks: Masks, understand: StatementCompiler, recovery: &Recovery, shared: bool) -> Self {
        let view = MergeView { floor: SETTLED, restamps: shared };
        let (deletions, stored) = (Vec::new(), Vec::new());
        let state = RegistryState {
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
        Self { masks, understand, marks: Arc::default(), openings, shared, state: Mutex::new(state) }
    }

    /// The view of a store that is not shared and in which nothing is deleted.
    #[cfg(test)]
    pub fn nothing() -> Self {
        let recovery = Recovery {
            log: 1,
            opening: 2,
            openings: Vec::new(),
            last: 0,
            truncated: 0,
            damage: Vec::new(),
            unwritable: None,
        };
        Self::new(Masks::default(), std::sync::Arc::new(|_| None), &recovery, false)
    }

    /// The marks of this WAL's deletions by value.
    pub fn marks(&self) -> Arc<Marks> {
        self.marks.clone()
    }

    /// What merges depend on now. If the registry was not read for a while, another instance may have joined since.
    pub fn view(&self) -> MergeView {
        let state = self.state.lock();
        let is_old = state.read.is_none_or(|read| read.elapsed() >= FRESH);
        MergeView { restamps: state.view.restamps || (self.shared && is_old) || self.marks.any(), ..state.view }
    }

    /// Whether the registry was read since the start. Before that, deletions are unknown.
    pub fn is_known(&self) -> bool {
        self.state.lock().read.is_some()
    }

    /// Whether the floor waits for this WAL.
    pub fn is_joined(&self) -> bool {
        self.state.lock().is_joined
    }

    /// Notes that the floor waits for this WAL.
    pub fn note_joined(&self) {
        self.state.lock().is_joined = true;
    }

    /// How far the WAL's last record is ahead of the store's clock, when last checked.
    pub fn ahead(&self) -> Duration {
        self.state.lock().ahead
    }

    pub fn note_ahead(&self, ahead: Duration) {
        self.state.lock().ahead = ahead;
    }

    /// The greatest stamp that any WAL is known to have given out.
    pub fn greatest(&self) -> Stamp {
        self.state.lock().greatest
    }

    /// Whether a database was dropped after a stamp, as far as that is remembered.
    pub fn is_dropped(&self, database: &str, after: Stamp) -> bool {
        let is_drop = |d: &RememberedDeletion| d.statement.is_none() && d.database == database && d.stamp > after;
        self.state.lock().deletions.iter().any(is_drop)
    }

    /// Whether a deletion was carried out, as far as that is remembered: itself, or a later one that covers it, which is then
    /// remembered in its place.
    pub fn is_done(&self, deletion: &RememberedDeletion) -> bool {
        self.state.lock().deletions.iter().any(|known| known.done && known.covers(deletion))
    }

    /// How many deletions are remembered.
    pub fn remembered(&self) -> usize {
        self.state.lock().deletions.len()
    }

    /// Bytes of the statements of remembered deletions.
    pub fn remembered_bytes(&self) -> usize {
        self.state.lock().deletions.iter().filter_map(|deletion| deletion.statement.as_ref()).map(String::len).sum()
    }

    /// What is deleted of a sensor's hour: ranges of times, each with the stamp below which it is deleted.
    pub fn covers(&self, database: &str, sensor: &Sensor, hour: Hour) -> Covers {
        let deletions = self.masks.now();
        if deletions.has_database(database) {
            deletions.of(database, sensor, &(hour..hour.next()))
        } else {
            Covers::new()
        }
    }

    /// The stamp below which everything of a sensor is deleted, its metadata too.
    pub fn deleted_before(&self, database: &str, sensor: &Sensor) -> Stamp {
        self.masks.now().of_sensor(database, sensor, &ALWAYS)
    }

    /// What decides the fate of a bucket's unflushed readings, whose first record is `first`.
    pub fn fates(&self, database: &str, sensor: &Sensor, hour: Hour, first: Stamp) -> FateOfReadings {
        let covers = self.covers(database, sensor, hour);
        let state = self.state.lock();
        FateOfReadings {
            covers,
            stored: state.stored.iter().filter(|(_, through)| first <= *through).copied().collect(),
        }
    }

    /// Whether a replayed record is known to be stored, whatever became of copies of the folder.
    pub fn is_stored(&self, stamp: Stamp) -> bool {
        is_within(&self.state.lock().stored, stamp)
    }

    /// Applies a registry, as `opening` sees it; returns the deletions that are new, and those that are done now: a dropped
    /// database is off the list by then only, and whoever writes to it lists it again. Ignores it if a newer revision was
    /// applied while this one was being read, which began at `read`.
    pub fn adopt(&self, registry: &MemberRegistry, opening: u64, read: Instant) -> Vec<RememberedDeletion> {
        let mut state = self.state.lock();
        if registry.rev < state.rev && state.learned.is_some_and(|learned| read < learned) {
            return Vec::new();
        }
        (state.rev, state.learned) = (registry.rev, Some(Instant::now()));
        let is_known = |deletion: &&RememberedDeletion| state.deletions.contains(deletion);
        let new = registry.deletions.iter().filter(|deletion| !is_known(deletion)).cloned().collect();
        if state.deletions != registry.deletions {
            // Before the floor: a merge must know every deletion below the floor it uses.
            self.masks.set(Deletions::new(&registry.deletions, &self.understand));
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
        state.view = MergeView {
            floor: state.view.floor.max(registry.floor),
            restamps: self.shared && (registry.has_others(opening) || registry.log(opening).is_none()),
        };
        state.greatest = registry.greatest();
        state.read = state.read.max(Some(read));
        new
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
    /// It is deleted before it is stored.
    Deleted,
    /// It was stored before a restart.
    Stored,
}

/// Decides what becomes of a bucket's unflushed readings.
#[derive(Debug)]
pub struct FateOfReadings {
    /// What is deleted.
    pub covers: Covers,
    stored: Vec<(Stamp, Stamp)>,
}

impl FateOfReadings {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two drops of one database the registry keeps the later one. The earlier one passed for not done after a crash, and
    /// took along what had been created since.
    #[test]
    fn a_deletion_is_done_with_a_later_one_that_covers_it() {
        let deletion = |stamp, database: &str, done| RememberedDeletion {
            stamp,
            database: database.to_owned(),
            statement: None,
            range: ALWAYS,
            done,
        };
        let view = RegistryView::nothing();
        let mut registry = MemberRegistry::default();
        registry.remember(deletion(5, "d", true));
        registry.remember(deletion(9, "d", true));
        registry.remember(deletion(9, "undone", false));
        view.adopt(&registry, 2, Instant::now());
        assert_eq!(view.remembered(), 2);
        let is_done = |stamp, database| view.is_done(&deletion(stamp, database, false));
        assert!(is_done(5, "d") && is_done(9, "d"));
        assert!(!is_done(10, "d") && !is_done(5, "undone") && !is_done(5, "other"));
    }
}
