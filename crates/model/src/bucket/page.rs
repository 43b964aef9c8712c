//! One page of a bucket in memory: its readings, its marks, and the state in which it is stored.

use super::readings::Readings;
use crate::reading::time::MILLI_NS;

/// A page as read from a store.
#[derive(Debug, Clone)]
pub struct StoredPage {
    /// The page number: 0 in the collection `buckets`, 1 and up in `overflow`.
    pub number: u32,
    /// The revision. It grows by one with every write, and every write names the rev that it expects.
    pub rev: u64,
    /// True if the page is closed to new timestamps.
    pub closed: bool,
    /// On page 0: whether the bucket has, or is about to have, further pages.
    pub has_overflow: bool,
    /// The readings with their stamps; their summaries are recomputed, not read.
    pub readings: Readings,
    /// True if a remembered deletion removed readings here that the store still holds.
    pub cut: bool,
    /// Metadata of readings that were not loaded. If set, `readings` is empty.
    pub left_out: Option<LeftOut>,
}

/// Metadata of a stored page whose readings are not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftOut {
    /// The number of readings.
    pub count: usize,
    /// Their stored size in bytes before compression, or the size of their texts if that is greater.
    pub bytes: usize,
    /// The times of the first and the last reading, in milliseconds since the epoch, rounded down.
    pub span_ms: (i64, i64),
}

impl LeftOut {
    /// Returns true if the page may have a reading of this time, in nanoseconds.
    #[must_use]
    pub fn may_have(&self, time: i64) -> bool {
        (self.span_ms.0..=self.span_ms.1).contains(&time.div_euclid(MILLI_NS))
    }
}

/// The closed pages of a bucket after page 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overflow {
    /// Their number.
    pub pages: u32,
    /// The number of their readings.
    pub count: u64,
}

/// A page in memory, with the state in which it is stored.
#[derive(Debug, Clone)]
pub struct Page {
    /// The page number: 0 in the collection `buckets`, 1 and up in `overflow`.
    pub number: u32,
    /// True if the page is closed to new timestamps.
    pub closed: bool,
    /// On page 0: whether the bucket has, or is about to have, further pages.
    pub has_overflow: bool,
    /// On page 0, if it has this mark: the closed ones of these pages. Written for clients that read the store without
    /// hourglass.
    pub overflow: Option<Overflow>,
    /// The readings.
    pub readings: Readings,
    /// `None` if the page was never stored.
    pub(super) stored: Option<StoredState>,
    /// Stored readings changed, or new readings were added that must not be appended.
    pub(super) is_rewritten: bool,
    /// The page must be written although no value changed: its stamps did, or a repair recomputes its summaries.
    pub(super) is_touched: bool,
    /// The page must be removed from the store: a deletion emptied it, or its readings moved to another page.
    pub(super) is_removed: bool,
    /// The page's readings moved to or from another stored page to close a gap that a deletion left, or page 0 counts
    /// fewer readings of closed pages. All changed pages must be written in one transaction.
    pub(super) is_displaced: bool,
    /// The number of the stored page from which this page was split off. Both must be written in one transaction.
    pub(super) moved_from: Option<u32>,
    /// As in [`StoredPage`]. Such a page is stored and closed, and must be loaded before it is merged into or written.
    pub(super) left_out: Option<LeftOut>,
}

/// The state in which the store holds a page.
#[derive(Debug, Clone)]
pub(super) struct StoredState {
    pub(super) rev: u64,
    pub(super) count: usize,
    /// The last reading's time, in nanoseconds.
    last: Option<i64>,
    pub(super) closed: bool,
    pub(super) has_overflow: bool,
}

/// The cheapest write that brings the store up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    /// Insert the new page.
    Insert,
    /// Append readings that are later than all stored ones, possibly none, and update the marks.
    Append {
        /// The index of the first reading that the store does not have.
        start: usize,
    },
    /// Replace the whole page.
    Replace,
    /// Remove the page.
    Remove,
}

impl Page {
    pub(super) fn new(number: u32) -> Self {
        Self {
            number,
            closed: false,
            has_overflow: false,
            overflow: None,
            readings: Readings::default(),
            stored: None,
            is_rewritten: false,
            is_touched: false,
            is_removed: false,
            is_displaced: false,
            moved_from: None,
            left_out: None,
        }
    }

    /// The rev that the store must hold for a write to succeed; 0 for a page never stored.
    #[must_use]
    pub fn rev(&self) -> u64 {
        self.stored.as_ref().map_or(0, |stored| stored.rev)
    }

    /// The rev that the page has after its next write.
    ///
    /// A page's first rev is its greatest stamp. A writer that still knows a deleted page with the same id therefore
    /// cannot mistake the new page for it.
    #[must_use]
    pub fn next_rev(&self) -> u64 {
        match &self.stored {
            Some(stored) => stored.rev + 1,
            None => self.readings.stamps().greatest().max(1),
        }
    }

    /// The write that the page needs, if any.
    #[must_use]
    pub fn pending(&self) -> Option<WriteKind> {
        let Some(stored) = &self.stored else { return Some(WriteKind::Insert) };
        let marks = self.closed != stored.closed || self.has_overflow != stored.has_overflow;
        if self.is_removed {
            Some(WriteKind::Remove)
        } else if self.is_rewritten {
            Some(WriteKind::Replace)
        } else if self.is_touched || marks || self.readings.len() > stored.count {
            Some(WriteKind::Append { start: stored.count })
        } else {
            None
        }
    }

    /// The write of a page that belongs to a group: an unchanged page is written too, so that its rev grows.
    #[must_use]
    pub fn write_in_group(&self) -> WriteKind {
        let start = self.stored.as_ref().map_or(0, |stored| stored.count);
        self.pending().unwrap_or(WriteKind::Append { start })
    }

    /// The times of the first and the last reading, in nanoseconds; rounded down to milliseconds if the readings are
    /// left out.
    #[must_use]
    pub fn span(&self) -> Option<(i64, i64)> {
        match self.left_out {
            Some(LeftOut { span_ms: (first, last), .. }) => Some((first * MILLI_NS, last * MILLI_NS)),
            None => Some((*self.readings.times().first()?, *self.readings.times().last()?)),
        }
    }

    /// Returns true if all readings of the page are before this time, compared in whole milliseconds.
    pub(super) fn ends_before(&self, time: Option<i64>) -> bool {
        let ms = |time: i64| time.div_euclid(MILLI_NS);
        self.span().is_none_or(|(_, last)| time.is_some_and(|time| ms(last) < ms(time)))
    }

    /// The number of readings.
    pub(super) fn count(&self) -> usize {
        self.left_out.map_or(self.readings.len(), |left_out| left_out.count)
    }

    /// Drops the readings of a stored, closed page.
    pub(super) fn leave_out(&mut self) {
        let Some((first, last)) = self.span() else { return };
        let span_ms = (first.div_euclid(MILLI_NS), last.div_euclid(MILLI_NS));
        self.left_out = Some(LeftOut { count: self.readings.len(), bytes: self.readings.bytes(), span_ms });
        self.readings = Readings::default();
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.readings.memory()
    }

    /// The last stored reading's time in whole milliseconds, the resolution of a stored date.
    pub(super) fn stored_last_ms(&self) -> Option<i64> {
        self.stored.as_ref()?.last.map(|time| time.div_euclid(MILLI_NS))
    }

    /// Returns true if the store had the reading at `index` when the page was last read or written.
    pub(super) fn has_stored(&self, index: usize) -> bool {
        self.stored.as_ref().is_some_and(|stored| index < stored.count)
    }

    pub(super) fn mark_written(&mut self) {
        self.stored = Some(StoredState {
            rev: self.next_rev(),
            count: self.readings.len(),
            last: self.readings.times().last().copied(),
            closed: self.closed,
            has_overflow: self.has_overflow,
        });
        self.is_rewritten = false;
        self.is_touched = false;
        self.is_displaced = false;
        self.moved_from = None;
    }
}

impl From<StoredPage> for Page {
    fn from(page: StoredPage) -> Self {
        Self {
            stored: Some(StoredState {
                rev: page.rev,
                count: page.left_out.map_or(page.readings.len(), |left_out| left_out.count),
                last: match page.left_out {
                    Some(left_out) => Some(left_out.span_ms.1 * MILLI_NS),
                    None => page.readings.times().last().copied(),
                },
                closed: page.closed,
                has_overflow: page.has_overflow,
            }),
            number: page.number,
            closed: page.closed,
            has_overflow: page.has_overflow,
            overflow: None,
            readings: page.readings,
            is_rewritten: page.cut,
            is_touched: false,
            is_removed: false,
            is_displaced: false,
            moved_from: None,
            left_out: page.left_out,
        }
    }
}
