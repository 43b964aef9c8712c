//! One page of a bucket in memory: its readings, its marks, and what of it the store has.

use std::sync::Arc;

use super::readings::{PackedReadings, Readings};
use crate::reading::Stamp;
use crate::reading::time::MILLI_NS;

/// A page as a store returns it.
#[derive(Debug, Clone)]
pub struct StoredPage {
    /// 0 in `buckets`, 1 and up in `overflow`.
    pub number: u32,
    /// Grows by one with every write; every write names the one it expects.
    pub rev: u64,
    /// Takes no new timestamps any more.
    pub closed: bool,
    /// On page 0: the bucket has, or is about to have, further pages.
    pub has_overflow: bool,
    /// The readings with their stamps, and with summaries made anew from them.
    pub readings: Readings,
    /// Of a page that a version without stamps wrote: the highest sequence merged into it, per log. See [`super::legacy`].
    pub applied: Vec<(Arc<str>, u64)>,
    /// A deletion that is remembered has taken readings out of it that the store still has.
    pub cut: bool,
}

/// A page, and what the store is known to hold of it.
#[derive(Debug, Clone)]
pub struct Page {
    /// 0 in `buckets`, 1 and up in `overflow`.
    pub number: u32,
    /// Takes no new timestamps any more.
    pub closed: bool,
    /// On page 0: the bucket has, or is about to have, further pages.
    pub has_overflow: bool,
    /// The readings.
    pub readings: Readings,
    /// As in [`StoredPage`]; written back as it is.
    pub applied: Vec<(Arc<str>, u64)>,
    /// `None` while the page was never stored.
    pub(super) stored: Option<Stored>,
    /// Stored readings changed, or new ones came that may not be appended.
    pub(super) rewritten: bool,
    /// The page is to be written whether any value changed or not: its stamps did, or what it says of its readings is to
    /// be said anew.
    pub(super) touched: bool,
    /// Nothing is left in it: it is to go from the store.
    pub(super) removed: bool,
    /// Readings of another stored page are here, or its own are in another one, since a deletion left a gap: until all such
    /// pages are in the store, they must be written in one transaction.
    pub(super) displaced: bool,
    /// The stored page that this one's readings were split off from: until both are in the store,
    /// they must be written in one transaction.
    pub(super) moved_from: Option<u32>,
}

/// What the store holds of a page.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) rev: u64,
    pub(super) count: usize,
    /// The last reading's time.
    last: Option<i64>,
    pub(super) closed: bool,
    pub(super) has_overflow: bool,
}

/// The cheapest write that brings the store up to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    /// The page is new.
    Insert,
    /// Readings from this index on are new and later than all stored; the marks may have changed.
    Append {
        /// Index of the first reading the store has not.
        from: usize,
    },
    /// Everything is written.
    Replace,
    /// The page goes.
    Remove,
}

impl Page {
    pub(super) fn new(number: u32) -> Self {
        Self {
            number,
            closed: false,
            has_overflow: false,
            readings: Readings::default(),
            applied: Vec::new(),
            stored: None,
            rewritten: false,
            touched: false,
            removed: false,
            displaced: false,
            moved_from: None,
        }
    }

    /// The rev that the store must hold for a write to go through; 0 for a page never stored.
    #[must_use]
    pub fn rev(&self) -> u64 {
        self.stored.as_ref().map_or(0, |stored| stored.rev)
    }

    /// The rev that the page has once it is written as it is now.
    ///
    /// The first rev of a page is its greatest stamp, so that whoever still knows a page of the same name that was deleted
    /// meanwhile cannot take this one for it.
    #[must_use]
    pub fn next_rev(&self) -> u64 {
        match &self.stored {
            Some(stored) => stored.rev + 1,
            None => self.readings.stamps().greatest().max(1),
        }
    }

    /// The write that the store needs, if any.
    #[must_use]
    pub fn pending(&self) -> Option<WriteKind> {
        let Some(stored) = &self.stored else { return Some(WriteKind::Insert) };
        let marks = self.closed != stored.closed || self.has_overflow != stored.has_overflow;
        if self.removed {
            Some(WriteKind::Remove)
        } else if self.rewritten {
            Some(WriteKind::Replace)
        } else if self.touched || marks || self.readings.len() > stored.count {
            Some(WriteKind::Append { from: stored.count })
        } else {
            None
        }
    }

    /// The write of a page that is in a group: where nothing of it changed, its rev grows all the same.
    #[must_use]
    pub fn write_in_group(&self) -> WriteKind {
        let from = self.stored.as_ref().map_or(0, |stored| stored.count);
        self.pending().unwrap_or(WriteKind::Append { from })
    }

    /// The memory it takes, in bytes.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.readings.memory() + self.applied.capacity() * size_of::<(Arc<str>, u64)>()
    }

    /// The last stored reading's time in whole milliseconds, as other writers see it.
    pub(super) fn stored_last_ms(&self) -> Option<i64> {
        self.stored.as_ref()?.last.map(|time| time.div_euclid(MILLI_NS))
    }

    /// Whether the store had the reading at `index` when the page was last written or read.
    pub(super) fn has_stored(&self, index: usize) -> bool {
        self.stored.as_ref().is_some_and(|stored| index < stored.count)
    }

    /// Settles every cell at or below a floor.
    pub(super) fn raise_floor(&mut self, floor: Stamp) {
        self.readings.raise_floor(floor);
    }

    /// Takes the place of the last page, whose readings come here.
    pub(super) fn take_over(&mut self, readings: Readings, closed: bool) {
        self.readings = readings;
        self.closed = closed;
        self.rewritten = true;
        self.displaced = true;
    }

    /// Its readings, packed; the page has none meanwhile.
    pub(super) fn pack(&mut self) -> PackedReadings {
        std::mem::take(&mut self.readings).pack()
    }

    pub(super) fn mark_written(&mut self) {
        self.stored = Some(Stored {
            rev: self.next_rev(),
            count: self.readings.len(),
            last: self.readings.times().last().copied(),
            closed: self.closed,
            has_overflow: self.has_overflow,
        });
        self.rewritten = false;
        self.touched = false;
        self.displaced = false;
        self.moved_from = None;
    }
}

impl From<StoredPage> for Page {
    fn from(page: StoredPage) -> Self {
        Self {
            stored: Some(Stored {
                rev: page.rev,
                count: page.readings.len(),
                last: page.readings.times().last().copied(),
                closed: page.closed,
                has_overflow: page.has_overflow,
            }),
            number: page.number,
            closed: page.closed,
            has_overflow: page.has_overflow,
            readings: page.readings,
            applied: page.applied,
            rewritten: page.cut,
            touched: false,
            removed: false,
            displaced: false,
            moved_from: None,
        }
    }
}
