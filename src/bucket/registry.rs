//! What the members of one store have agreed on, as one small document that all of them change by compare-and-set: which
//! logs there are and how far each has come, the floor that follows from it, and which deletions are remembered. Pure: time
//! comes as an argument.
//!
//! A log's **watermark** lies below every stamp that it gave out and that may not be in the store yet, and the log gives
//! out no stamp at or below it. The **floor** is the least watermark and never falls. Whoever knows a floor knows every
//! deletion below it, since both are read from one document, and a deletion's own log stays below it until it is in here.

use super::deletions::Remembered;
use crate::faults::{self, Bug};
use crate::reading::Stamp;
use crate::reading::stamp::{SETTLED, first_of};

/// Most logs that are kept, with those that were taken over.
const LOGS_MAX: usize = 1000;

/// The document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registry {
    /// Grows by one with every write; 0 while there is none.
    pub rev: u64,
    /// No log has anything unflushed at or below it.
    pub floor: Stamp,
    /// All logs that were seen lately, each opening of one by itself.
    pub logs: Vec<Registered>,
    /// In the order of their stamps.
    pub deletions: Vec<Remembered>,
}

/// One opening of a log: a process from its start to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// Random, new at every opening.
    pub opening: u64,
    /// The log's name, which copies of its folder share.
    pub log: u64,
    /// The folder it lies in, which copies do not share.
    pub folder: u64,
    /// Everything that this opening gave out up to here is in the store.
    pub watermark: Stamp,
    /// Grows while the process lives.
    pub beat: u64,
    /// When it last did, in milliseconds by the store's clock as whoever wrote it knew it.
    pub seen_ms: u64,
    /// Whoever has its records now. It holds the floor no more.
    pub taken: Option<Taken>,
    /// For people: the host and the process id.
    pub host: String,
}

/// That another opening has the records of one that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// The later opening, or itself where it ended with nothing left.
    pub by: u64,
    /// Up to where that one has them, or had them before they were stored.
    pub through: Stamp,
}

impl Registry {
    /// The log of that opening.
    #[must_use]
    pub fn log(&self, opening: u64) -> Option<&Registered> {
        self.logs.iter().find(|log| log.opening == opening)
    }

    /// Whether logs of other openings hold the floor too: somebody else may have older values that are unflushed.
    #[must_use]
    pub fn has_others(&self, opening: u64) -> bool {
        self.logs.iter().any(|log| log.opening != opening && log.taken.is_none())
    }

    /// Registers an opening, or brings its watermark and beat up to date. A watermark never falls. One below the floor says
    /// what it says: the log has readings that came too late, and the floor stays where it is until they are stored.
    pub fn publish(&mut self, mut entry: Registered) {
        if faults::has(Bug::FloorRaisesWatermark) {
            entry.watermark = entry.watermark.max(self.floor);
        }
        match self.logs.iter_mut().find(|log| log.opening == entry.opening) {
            Some(log) => {
                entry.watermark = entry.watermark.max(log.watermark);
                *log = entry;
            }
            None => self.logs.push(entry),
        }
    }

    /// Notes that an opening has the records of those before it in the same folder, whose processes are gone: it holds the
    /// folder's lock. `last` is the last of its folder's records when it began.
    pub fn take_over(&mut self, by: u64, last: Stamp) {
        let Some((log, folder)) = self.log(by).map(|log| (log.log, log.folder)) else { return };
        let is_earlier = |other: &&mut Registered| {
            let is_here = other.folder == folder || faults::has(Bug::CopyAnswersForAll);
            other.log == log && is_here && other.opening != by && other.taken.is_none()
        };
        let through = if faults::has(Bug::CopyAnswersForAll) { Stamp::MAX } else { last };
        self.logs.iter_mut().filter(is_earlier).for_each(|earlier| earlier.taken = Some(Taken { by, through }));
    }

    /// Notes that nobody but this opening can have the store: no other holds the floor. What a log in another folder has is
    /// stored as far as it said itself.
    pub fn take_all_over(&mut self, by: u64, last: Stamp) {
        let Some(own) = self.log(by).map(|log| log.log) else { return };
        for other in self.logs.iter_mut().filter(|other| other.opening != by && other.taken.is_none()) {
            let through = if other.log == own { last } else { SETTLED };
            other.taken = Some(Taken { by, through });
        }
    }

    /// Notes that an opening has ended with nothing left: everything it gave out is in the store.
    pub fn take_over_self(&mut self, opening: u64) {
        if let Some(log) = self.logs.iter_mut().find(|log| log.opening == opening) {
            log.taken = Some(Taken { by: opening, through: log.watermark });
        }
    }

    /// Lets logs go that were silent for longer than the horizon, and raises the floor. A log that comes back after that
    /// finds its records below it.
    pub fn settle(&mut self, now_ms: u64, horizon_ms: u64) {
        self.logs.retain(|log| now_ms.saturating_sub(log.seen_ms) <= horizon_ms);
        if self.logs.len() > LOGS_MAX {
            // Of those that hold nothing the longest unseen go first.
            self.logs.sort_by_key(|log| (log.taken.is_none(), log.seen_ms));
            let taken = self.logs.iter().take_while(|log| log.taken.is_some()).count();
            let surplus = self.logs.len() - LOGS_MAX;
            self.logs.drain(..surplus.min(taken));
        }
        let holding = self.logs.iter().filter(|log| log.taken.is_none()).map(|log| log.watermark);
        let least = if faults::has(Bug::FloorFollowsGreatest) { holding.max() } else { holding.min() };
        self.floor = self.floor.max(least.unwrap_or_default());
    }

    /// Up to where everything is in the store of what an opening gave out, whoever brought it there; `None` where nobody
    /// remembers.
    #[must_use]
    pub fn stored_through(&self, opening: u64) -> Option<Stamp> {
        let mut log = self.log(opening)?;
        if faults::has(Bug::TakenOverIsStored) && log.taken.is_some() {
            return Some(Stamp::MAX);
        }
        let (mut through, mut had) = (log.watermark, Stamp::MAX);
        for _ in 0..self.logs.len() {
            let Some(taken) = log.taken else { break };
            let Some(next) = self.log(taken.by) else { break };
            had = had.min(taken.through);
            through = through.max(next.watermark.min(had));
            log = next;
        }
        Some(through)
    }

    /// Remembers a deletion, or that it is done.
    pub fn remember(&mut self, deletion: Remembered) {
        match self.deletions.iter_mut().find(|known| known.is_same(&deletion)) {
            Some(known) => known.done |= deletion.done,
            None => self.deletions.push(deletion),
        }
        self.deletions.sort_by_key(|deletion| deletion.stamp);
    }

    /// Takes back a deletion that the store has refused: what is left of it stays.
    pub fn give_up(&mut self, deletion: &Remembered) {
        self.deletions.retain(|known| !known.is_same(deletion));
    }

    /// Forgets deletions at or below a stamp that the floor has passed and that nothing is left of.
    pub fn forget(&mut self, gone: &[Remembered]) {
        let floor = if faults::has(Bug::DeletionForgottenEarly) { Stamp::MAX } else { self.floor };
        let is_gone = |deletion: &Remembered| gone.iter().any(|gone| gone.is_same(deletion));
        self.deletions.retain(|deletion| deletion.stamp > floor || !is_gone(deletion));
    }

    /// The deletions that the floor has passed.
    #[must_use]
    pub fn passed(&self) -> Vec<Remembered> {
        let has_passed = |stamp: Stamp| stamp <= self.floor || faults::has(Bug::DeletionForgottenEarly);
        self.deletions.iter().filter(|deletion| has_passed(deletion.stamp)).cloned().collect()
    }

    /// The greatest stamp that any log has said it gave out.
    #[must_use]
    pub fn greatest(&self) -> Stamp {
        self.logs.iter().map(|log| log.watermark).max().unwrap_or_default().max(self.floor)
    }
}

/// How much earlier than now a watermark is put that nothing holds: whole milliseconds.
#[must_use]
pub fn settled_before(now_ms: u64) -> Stamp {
    first_of(now_ms).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(opening: u64, watermark: Stamp, seen_ms: u64) -> Registered {
        Registered { opening, log: 1, folder: 1, watermark, beat: 0, seen_ms, taken: None, host: String::new() }
    }

    #[test]
    fn the_floor_is_the_least_watermark_and_never_falls() {
        let mut registry = Registry::default();
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
            "what came too late is not stored yet"
        );
    }

    #[test]
    fn a_silent_log_holds_the_floor_until_the_horizon_and_one_that_leaves_does_not() {
        let mut registry = Registry::default();
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
    fn what_was_taken_over_is_stored_as_far_as_whoever_took_it_over_says() {
        let mut registry = Registry::default();
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

    /// A copy of a folder, started while the original was down for a moment, took the original's log over: what that had
    /// logged after it was copied was then taken for stored.
    #[test]
    fn a_copy_of_a_folder_takes_nothing_over() {
        let mut registry = Registry::default();
        registry.publish(entry(1, 10, 0));
        registry.publish(Registered { folder: 2, ..entry(2, 90, 0) });
        registry.take_over(2, 70);
        assert_eq!((registry.stored_through(1), registry.has_others(2)), (Some(10), true));
    }

    /// The embedded file was opened with another log while the first one was put aside with acked records. When that came
    /// back, its records counted as stored, and were released.
    #[test]
    fn a_log_that_was_put_aside_is_stored_as_far_as_it_said_itself() {
        let mut registry = Registry::default();
        registry.publish(entry(1, 10, 0));
        registry.publish(Registered { log: 2, folder: 2, ..entry(2, 0, 0) });
        registry.take_all_over(2, 0);
        registry.publish(Registered { log: 2, folder: 2, ..entry(2, 500, 0) });
        assert_eq!((registry.stored_through(1), registry.has_others(2)), (Some(10), false));
    }
}
