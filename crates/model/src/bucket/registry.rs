//! The member registry: one small document in the store that all instances change by compare-and-set. It lists the WALs
//! with their watermarks, the floor that follows from them, and the remembered deletions. Callers pass the current
//! time.
//!
//! A WAL's **watermark** is below every stamp of the WAL whose readings may not be stored yet. The WAL assigns no stamp
//! at or below its watermark. The **floor** is the least watermark and never falls. An instance that knows a floor also
//! knows every deletion below it. Both are read from one document, and a WAL with a deletion keeps its watermark below
//! the deletion's stamp until the registry lists the deletion.
//!
//! An **opening** is one use of a WAL by one process, from start to end.

use super::deletions::RememberedDeletion;
use crate::reading::Stamp;
use crate::reading::stamp::{SETTLED, first_stamp};

/// Maximum number of WALs listed, including those taken over.
const LOGS_MAX: usize = 1000;

/// The registry document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberRegistry {
    /// The revision; grows by one with every write, 0 if no document is stored.
    pub rev: u64,
    /// The floor: no WAL has unflushed readings at or below this stamp.
    pub floor: Stamp,
    /// The recently seen WALs, one entry per opening.
    pub logs: Vec<RegistryEntry>,
    /// The remembered deletions, ordered by stamp.
    pub deletions: Vec<RememberedDeletion>,
    /// The instances that own sensors (`cluster`).
    pub view: View,
}

/// The folders that own sensors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// Grows with each change of `active`.
    pub number: u64,
    /// The ids of the folders, in order.
    pub active: Vec<u64>,
}

/// The part of an entry that other instances need to reach it (`cluster`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerEntry {
    /// The address of the internal listener.
    pub address: String,
    /// The number of this start of the folder.
    pub start: u32,
    /// The lowest and the highest version of the protocol.
    pub protocol: (u16, u16),
    /// The folder and the start of each opening that this one cannot reach.
    pub suspects: Vec<(u64, u32)>,
}

/// The entry of one opening of a WAL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryEntry {
    /// A random id, new for every opening.
    pub opening: u64,
    /// The WAL's id, shared by copies of its folder.
    pub log: u64,
    /// The id of the WAL's folder, not shared by copies of it.
    pub folder: u64,
    /// Every record of this opening with a stamp up to here is in the store.
    pub watermark: Stamp,
    /// A counter that grows while the process is alive.
    pub beat: u64,
    /// When `beat` last grew: milliseconds since the epoch, by the writing instance's estimate of the store's clock.
    pub seen_ms: u64,
    /// The takeover of this opening's records. An entry with a takeover no longer holds down the floor.
    pub takeover: Option<Takeover>,
    /// The host name and the process id, shown to administrators.
    pub host: String,
    /// How other instances reach it; `None` without `cluster`.
    pub peer: Option<PeerEntry>,
}

/// The opening that took over the records of an earlier, ended opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Takeover {
    /// The later opening; the ended opening itself if it left no unflushed records.
    pub successor: u64,
    /// The last stamp that the later opening took over. It holds or has stored all records up to this stamp.
    pub through: Stamp,
}

impl MemberRegistry {
    /// The entry of an opening.
    #[must_use]
    pub fn log(&self, opening: u64) -> Option<&RegistryEntry> {
        self.logs.iter().find(|log| log.opening == opening)
    }

    /// Returns true if other openings hold down the floor too: other instances may then have unflushed older values.
    #[must_use]
    pub fn has_others(&self, opening: u64) -> bool {
        self.logs.iter().any(|log| log.opening != opening && log.takeover.is_none())
    }

    /// Registers an opening, or updates its entry. A watermark never falls. The watermark of a new entry may be below
    /// the floor: its WAL has readings that are too late, and the floor does not rise until they are stored.
    pub fn publish(&mut self, mut entry: RegistryEntry) {
        match self.logs.iter_mut().find(|log| log.opening == entry.opening) {
            Some(log) => {
                entry.watermark = entry.watermark.max(log.watermark);
                entry.peer = entry.peer.or(log.peer.take());
                *log = entry;
            }
            None => self.logs.push(entry),
        }
    }

    /// Records that an opening took over the earlier openings of the same folder. Their processes have ended, because
    /// this opening holds the folder's lock. `last` is the stamp of the folder's last record when the opening began.
    pub fn take_over(&mut self, successor: u64, last: Stamp) {
        let Some((log, folder)) = self.log(successor).map(|log| (log.log, log.folder)) else { return };
        let is_earlier = |other: &&mut RegistryEntry| {
            other.log == log && other.folder == folder && other.opening != successor && other.takeover.is_none()
        };
        let takeover = Takeover { successor, through: last };
        self.logs.iter_mut().filter(is_earlier).for_each(|earlier| earlier.takeover = Some(takeover));
    }

    /// Records that this opening uses the store alone (an embedded store), so that no other opening holds down the
    /// floor. A WAL with another id counts as stored only up to its own watermark.
    pub fn take_all_over(&mut self, opening: u64, last: Stamp) {
        let Some(own) = self.log(opening).map(|log| log.log) else { return };
        for other in self.logs.iter_mut().filter(|other| other.opening != opening && other.takeover.is_none()) {
            let through = if other.log == own { last } else { SETTLED };
            other.takeover = Some(Takeover { successor: opening, through });
        }
    }

    /// Records that an opening ended with all its records in the store.
    pub fn take_over_self(&mut self, opening: u64) {
        if let Some(log) = self.logs.iter_mut().find(|log| log.opening == opening) {
            log.takeover = Some(Takeover { successor: opening, through: log.watermark });
        }
    }

    /// Removes WALs that were not seen for longer than the horizon, and raises the floor. If such a WAL is used again,
    /// its records may be at or below the floor.
    pub fn settle(&mut self, now_ms: u64, horizon_ms: u64) {
        self.logs.retain(|log| now_ms.saturating_sub(log.seen_ms) <= horizon_ms);
        if self.logs.len() > LOGS_MAX {
            // Entries that were taken over are removed, the longest unseen first.
            self.logs.sort_by_key(|log| (log.takeover.is_none(), log.seen_ms));
            let taken = self.logs.iter().take_while(|log| log.takeover.is_some()).count();
            let surplus = self.logs.len() - LOGS_MAX;
            self.logs.drain(..surplus.min(taken));
        }
        let holding = self.logs.iter().filter(|log| log.takeover.is_none()).map(|log| log.watermark);
        self.floor = self.floor.max(holding.min().unwrap_or_default());
    }

    /// The stamp up to which all records of an opening are in the store, whichever instance stored them; `None` for an
    /// opening that is no longer listed.
    #[must_use]
    pub fn stored_through(&self, opening: u64) -> Option<Stamp> {
        let mut log = self.log(opening)?;
        let mut through = log.watermark;
        let mut taken_through = Stamp::MAX;
        // Each opening may have been taken over by a later one, which stored only the records that it took over.
        for _ in 0..self.logs.len() {
            let Some(takeover) = log.takeover else { break };
            let Some(next) = self.log(takeover.successor) else { break };
            taken_through = taken_through.min(takeover.through);
            through = through.max(next.watermark.min(taken_through));
            log = next;
        }
        Some(through)
    }

    /// Adds a deletion, or marks a listed one as done. A deletion that is done replaces all deletions that it covers.
    pub fn remember(&mut self, deletion: RememberedDeletion) {
        match self.deletions.iter_mut().find(|known| known.is_same(&deletion)) {
            Some(known) => known.done |= deletion.done,
            None => self.deletions.push(deletion.clone()),
        }
        // Periodic deletions, such as those of expired readings, cover their predecessors.
        if deletion.done {
            self.deletions.retain(|known| known.is_same(&deletion) || !deletion.covers(known));
        }
        self.deletions.sort_by_key(|deletion| deletion.stamp);
    }

    /// Removes the completed deletions whose stamp is at or below the floor.
    pub fn forget(&mut self, completed: &[RememberedDeletion]) {
        let is_completed = |deletion: &RememberedDeletion| completed.iter().any(|one| one.is_same(deletion));
        self.deletions.retain(|deletion| deletion.stamp > self.floor || !is_completed(deletion));
    }

    /// The deletions at or below the floor.
    #[must_use]
    pub fn passed_deletions(&self) -> Vec<RememberedDeletion> {
        self.deletions.iter().filter(|deletion| deletion.stamp <= self.floor).cloned().collect()
    }

    /// The greatest watermark of all WALs, at least the floor.
    #[must_use]
    pub fn greatest_watermark(&self) -> Stamp {
        self.logs.iter().map(|log| log.watermark).max().unwrap_or_default().max(self.floor)
    }
}

/// The last stamp before this millisecond: the watermark of a WAL without unflushed readings.
#[must_use]
pub fn settled_before(now_ms: u64) -> Stamp {
    first_stamp(now_ms).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(opening: u64, watermark: Stamp, seen_ms: u64) -> RegistryEntry {
        RegistryEntry {
            opening,
            log: 1,
            folder: 1,
            watermark,
            beat: 0,
            seen_ms,
            takeover: None,
            host: String::new(),
            peer: None,
        }
    }

    #[test]
    fn the_floor_is_the_least_watermark_and_never_falls() {
        let mut registry = MemberRegistry::default();
        registry.publish(entry(1, 100, 0));
        registry.publish(entry(2, 50, 0));
        registry.settle(0, 1000);
        assert_eq!(registry.floor, 50);
        registry.publish(entry(2, 80, 10));
        registry.publish(entry(1, 90, 10));
        registry.settle(10, 1000);
        assert_eq!((registry.floor, registry.log(1).map(|log| log.watermark)), (80, Some(100)), "nothing falls");
        registry.publish(entry(3, 10, 10));
        registry.settle(10, 1000);
        assert_eq!(
            (registry.floor, registry.stored_through(3)),
            (80, Some(10)),
            "readings that came too late are not stored yet"
        );
    }

    #[test]
    fn a_silent_log_holds_the_floor_until_the_horizon() {
        let mut registry = MemberRegistry::default();
        registry.publish(entry(1, 10, 0));
        registry.publish(entry(2, 500, 900));
        registry.settle(900, 1000);
        assert_eq!(registry.floor, 10);
        registry.settle(1001, 1000);
        assert_eq!((registry.floor, registry.logs.len()), (500, 1));
        registry.publish(entry(3, 700, 1001));
        registry.take_over_self(2);
        registry.settle(1001, 1000);
        assert_eq!(registry.floor, 700);
    }

    #[test]
    fn records_taken_over_are_stored_up_to_the_successors_watermark() {
        let mut registry = MemberRegistry::default();
        registry.publish(entry(1, 10, 0));
        registry.publish(entry(2, 10, 0));
        assert!(registry.has_others(2));
        registry.take_over(2, 40);
        assert!(!registry.has_others(2));
        registry.publish(entry(2, 60, 0));
        registry.publish(entry(3, 60, 0));
        registry.take_over(3, 80);
        registry.publish(entry(3, 90, 0));
        assert_eq!([1, 2, 3, 4].map(|opening| registry.stored_through(opening)), [Some(40), Some(80), Some(90), None]);
        registry.settle(0, 1000);
        assert_eq!(registry.floor, 90);
        registry.take_over_self(3);
        assert_eq!(registry.stored_through(1), Some(40), "a copy of its folder may come back");
    }

    #[test]
    fn a_completed_deletion_replaces_those_that_it_covers() {
        let deletion = |stamp, end, done| RememberedDeletion {
            stamp,
            database: "d".to_owned(),
            statement: Some("DELETE WHERE time < now()".to_owned()),
            range: 0..end,
            done,
        };
        let mut registry = MemberRegistry::default();
        let other = RememberedDeletion { statement: Some("DROP SERIES FROM m".to_owned()), ..deletion(3, 10, true) };
        for remembered in [deletion(5, 10, true), other.clone(), deletion(9, 20, false)] {
            registry.remember(remembered);
        }
        assert_eq!(registry.deletions.len(), 3, "an incomplete deletion may still fail");
        registry.remember(deletion(9, 20, true));
        assert_eq!(registry.deletions, [other.clone(), deletion(9, 20, true)]);
        // Neither covers the other: later with a narrower range, and earlier with a wider range.
        registry.remember(deletion(11, 15, true));
        registry.remember(deletion(7, 30, true));
        assert_eq!(registry.deletions.len(), 4);
    }

    /// Regression: a copy of a folder, started while the original was down for a moment, took over the original's WAL.
    /// Records logged by the original after the copy was made then counted as stored.
    #[test]
    fn a_copy_of_a_folder_takes_nothing_over() {
        let mut registry = MemberRegistry::default();
        registry.publish(entry(1, 10, 0));
        registry.publish(RegistryEntry { folder: 2, ..entry(2, 90, 0) });
        registry.take_over(2, 70);
        assert_eq!((registry.stored_through(1), registry.has_others(2)), (Some(10), true));
    }

    /// Regression: the embedded file was opened with another WAL, while the first WAL was put aside with acked records.
    /// When the first WAL came back, its records counted as stored and were truncated.
    #[test]
    fn a_log_put_aside_is_stored_up_to_its_own_watermark() {
        let mut registry = MemberRegistry::default();
        registry.publish(entry(1, 10, 0));
        registry.publish(RegistryEntry { log: 2, folder: 2, ..entry(2, 0, 0) });
        registry.take_all_over(2, 0);
        registry.publish(RegistryEntry { log: 2, folder: 2, ..entry(2, 500, 0) });
        assert_eq!((registry.stored_through(1), registry.has_others(2)), (Some(10), false));
    }
}
