//! This process's view of the registry: the floor, the presence of other writers, the stored records of its own WAL,
//! and the remembered deletions. The task of `Member` updates it, and everything else reads
//! it.

use std::ops::Range;
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

/// The time for which a read of the registry proves that nobody else writes. A new member waits longer than this before
/// it acks.
pub const FRESH: Duration = Duration::from_secs(2);

/// The part of the registry that merges depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeView {
    /// The stamp at or below which no WAL has unflushed readings.
    pub floor: Stamp,
    /// True if merges must store stamps: other WALs may have unflushed older values, or a deletion by value needs the
    /// stamps to recognize older cells.
    pub restamps: bool,
}

/// The view of the registry, shared by all tasks.
pub struct RegistryView {
    masks: Masks,
    compiler: StatementCompiler,
    marks: Arc<Marks>,
    /// Earlier openings of this WAL, each with its last record.
    openings: Vec<(u64, Stamp)>,
    /// True if other instances may use the store.
    is_shared: bool,
    state: Mutex<RegistryState>,
}

#[derive(Debug)]
struct RegistryState {
    view: MergeView,
    /// The time of the last read of the registry; `None` before the first one.
    read: Option<Instant>,
    /// True if the floor waits for this WAL, so that it stays below everything this process acks.
    is_joined: bool,
    /// The lead of the WAL's last record over the store's clock.
    wal_lead: Duration,
    /// The `rev` of the registry that was applied last.
    rev: u64,
    /// The time at which that registry was applied.
    applied: Option<Instant>,
    /// The deletions of that registry.
    deletions: Vec<RememberedDeletion>,
    /// The greatest stamp of any WAL in that registry.
    greatest_stamp: Stamp,
    /// The folders of the live members in that registry.
    live_folders: Vec<u64>,
    /// Stored records of earlier openings of this WAL.
    stored: Vec<StoredRecords>,
    /// The greatest stamp that a job waits for the floor to pass.
    awaited: Stamp,
}

/// A range of stored WAL records.
#[derive(Debug, Clone, Copy)]
struct StoredRecords {
    /// Exclusive start.
    after: Stamp,
    /// Inclusive end.
    through: Stamp,
}

impl RegistryView {
    /// Creates an empty view. `shared` is true if other instances may use the store.
    pub fn new(masks: Masks, compiler: StatementCompiler, recovery: &Recovery, shared: bool) -> Self {
        let state = RegistryState {
            view: MergeView { floor: SETTLED, restamps: shared },
            read: None,
            is_joined: !shared,
            wal_lead: Duration::ZERO,
            rev: 0,
            applied: None,
            deletions: Vec::new(),
            greatest_stamp: SETTLED,
            live_folders: Vec::new(),
            stored: Vec::new(),
            awaited: SETTLED,
        };
        let openings = recovery.openings.iter().copied().filter(|(opening, _)| *opening != 0).collect();
        Self { masks, compiler, marks: Arc::default(), openings, is_shared: shared, state: Mutex::new(state) }
    }

    /// Creates the view of a store that is not shared and has no deletions.
    #[cfg(test)]
    pub fn unshared() -> Self {
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

    /// Returns the marks of this WAL's deletions by value.
    pub fn marks(&self) -> Arc<Marks> {
        self.marks.clone()
    }

    /// Returns what merges depend on now.
    pub fn view(&self) -> MergeView {
        let state = self.state.lock();
        // Another instance may have joined since an old read.
        let is_old = state.read.is_none_or(|read| read.elapsed() >= FRESH);
        let restamps = state.view.restamps || (self.is_shared && is_old) || self.marks.has_any();
        MergeView { restamps, ..state.view }
    }

    /// Makes the floor pass a stamp even while no readings arrive.
    pub fn await_floor(&self, stamp: Stamp) {
        let mut state = self.state.lock();
        state.awaited = state.awaited.max(stamp);
    }

    /// Returns true if a job waits for one of these floors.
    pub fn is_awaited(&self, floors: Range<Stamp>) -> bool {
        floors.contains(&self.state.lock().awaited)
    }

    /// Returns true if the registry was read since the start. Before that, deletions are unknown.
    pub fn is_known(&self) -> bool {
        self.state.lock().read.is_some()
    }

    /// Returns true if the floor waits for this WAL.
    pub fn is_joined(&self) -> bool {
        self.state.lock().is_joined
    }

    /// Notes that the floor waits for this WAL.
    pub fn note_joined(&self) {
        self.state.lock().is_joined = true;
    }

    /// Returns the lead of the WAL's last record over the store's clock at the last check.
    pub fn wal_lead(&self) -> Duration {
        self.state.lock().wal_lead
    }

    pub fn note_wal_lead(&self, lead: Duration) {
        self.state.lock().wal_lead = lead;
    }

    /// Returns the greatest stamp that any WAL is known to have issued.
    pub fn greatest_stamp(&self) -> Stamp {
        self.state.lock().greatest_stamp
    }

    /// Returns the folders of the live members, and true if they were read within this time.
    pub fn live_folders(&self, within: Duration) -> (Vec<u64>, bool) {
        let state = self.state.lock();
        (state.live_folders.clone(), state.read.is_some_and(|read| read.elapsed() < within))
    }

    pub fn note_live_folders(&self, folders: Vec<u64>) {
        self.state.lock().live_folders = folders;
    }

    /// Returns true if a remembered deletion dropped the database after a stamp.
    pub fn is_dropped(&self, database: &str, stamp: Stamp) -> bool {
        let is_drop = |d: &RememberedDeletion| d.statement.is_none() && d.database == database && d.stamp > stamp;
        self.state.lock().deletions.iter().any(is_drop)
    }

    /// Returns true if a deletion is remembered as done. A later deletion that covers it may be remembered in its
    /// place.
    pub fn is_done(&self, deletion: &RememberedDeletion) -> bool {
        self.state.lock().deletions.iter().any(|known| known.done && known.covers(deletion))
    }

    /// Returns true if the deletion with this stamp is remembered.
    pub fn is_remembered(&self, stamp: Stamp) -> bool {
        self.state.lock().deletions.iter().any(|deletion| deletion.stamp == stamp)
    }

    /// Returns the number of remembered deletions.
    pub fn deletion_count(&self) -> usize {
        self.state.lock().deletions.len()
    }

    /// Returns the number of remembered deletions in a database.
    pub fn deletion_count_of(&self, database: &str) -> usize {
        self.state.lock().deletions.iter().filter(|deletion| deletion.database == database).count()
    }

    /// Returns the size of the statements of remembered deletions, in bytes.
    pub fn statement_bytes(&self) -> usize {
        self.state.lock().deletions.iter().filter_map(|deletion| deletion.statement.as_ref()).map(String::len).sum()
    }

    /// Returns the deleted time ranges of a sensor's hour, each with the stamp below which cells are deleted.
    pub fn covers(&self, database: &str, sensor: &Sensor, hour: Hour) -> Covers {
        let deletions = self.masks.now();
        if deletions.has_database(database) {
            deletions.covers_for(database, sensor, &(hour..hour.next()))
        } else {
            Covers::new()
        }
    }

    /// Returns the stamp below which everything of a sensor is deleted, metadata included.
    pub fn deleted_before(&self, database: &str, sensor: &Sensor) -> Stamp {
        self.masks.now().sensor_deleted_below(database, sensor, &ALWAYS)
    }

    /// Returns the rules for a bucket's unflushed readings, the first of which are in the record `first`.
    pub fn fates(&self, database: &str, sensor: &Sensor, hour: Hour, first: Stamp) -> ReadingFates {
        let covers = self.covers(database, sensor, hour);
        let state = self.state.lock();
        ReadingFates { covers, stored: state.stored.iter().filter(|stored| first <= stored.through).copied().collect() }
    }

    /// Returns true if a replayed record is known to be stored.
    pub fn is_stored(&self, stamp: Stamp) -> bool {
        is_within(&self.state.lock().stored, stamp)
    }

    /// Applies a registry, as `opening` sees it. Returns the deletions that are new, and those that are now done: a
    /// dropped database leaves the list of databases only when its deletion is done, and the next write lists it again.
    ///
    /// Ignores the registry if a newer revision was applied after `read`, when the read of this one began.
    pub fn adopt(&self, registry: &MemberRegistry, opening: u64, read: Instant) -> Vec<RememberedDeletion> {
        let mut state = self.state.lock();
        if registry.rev < state.rev && state.applied.is_some_and(|applied| read < applied) {
            return Vec::new();
        }
        state.rev = registry.rev;
        state.applied = Some(Instant::now());
        let is_known = |deletion: &&RememberedDeletion| state.deletions.contains(deletion);
        let new = registry.deletions.iter().filter(|deletion| !is_known(deletion)).cloned().collect();
        if state.deletions != registry.deletions {
            // Set the deletions before the floor, because a merge must know every deletion below the floor that it
            // uses.
            self.masks.set(Deletions::new(&registry.deletions, &self.compiler));
            state.deletions.clone_from(&registry.deletions);
        }
        let mut after = SETTLED;
        state.stored.clear();
        for (earlier, last) in &self.openings {
            if let Some(through) = registry.stored_through(*earlier) {
                state.stored.push(StoredRecords { after, through: through.min(*last) });
            }
            after = *last;
        }
        state.view = MergeView {
            floor: state.view.floor.max(registry.floor),
            restamps: self.is_shared && (registry.has_others(opening) || registry.log(opening).is_none()),
        };
        state.greatest_stamp = registry.greatest_watermark();
        state.read = state.read.max(Some(read));
        new
    }
}

fn is_within(stored: &[StoredRecords], stamp: Stamp) -> bool {
    stored.iter().any(|records| records.after < stamp && stamp <= records.through)
}

/// The fate of an unflushed reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is merged with the stored readings.
    Merged,
    /// It is deleted before it is stored.
    Deleted,
    /// It was stored before a restart.
    Stored,
}

/// The rules that decide the fate of a bucket's unflushed readings.
#[derive(Debug)]
pub struct ReadingFates {
    /// The deleted time ranges.
    pub covers: Covers,
    stored: Vec<StoredRecords>,
}

impl ReadingFates {
    /// Returns true if all readings are merged.
    pub fn merges_all(&self) -> bool {
        self.covers.is_empty() && self.stored.is_empty()
    }

    /// Returns the fate of the reading at `time` in the record `stamp`.
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

    /// Regression: of two drops of one database, the registry keeps the later one. After a crash, the earlier drop did
    /// not count as done, and its repetition deleted newer data.
    #[test]
    fn a_deletion_is_done_with_a_later_one_that_covers_it() {
        let deletion = |stamp, database: &str, done| RememberedDeletion {
            stamp,
            database: database.to_owned(),
            statement: None,
            range: ALWAYS,
            done,
        };
        let view = RegistryView::unshared();
        let mut registry = MemberRegistry::default();
        registry.remember(deletion(5, "d", true));
        registry.remember(deletion(9, "d", true));
        registry.remember(deletion(9, "undone", false));
        view.adopt(&registry, 2, Instant::now());
        assert_eq!(view.deletion_count(), 2);
        let is_done = |stamp, database| view.is_done(&deletion(stamp, database, false));
        assert!(is_done(5, "d") && is_done(9, "d"));
        assert!(!is_done(10, "d") && !is_done(5, "undone") && !is_done(5, "other"));
    }
}
