//! Merging readings into a bucket, and what must be written after it, in which order.

use std::ops::Range;
use std::sync::Arc;

use super::legacy;
use super::page::{Page, StoredPage};
use super::readings::{Merged, PackedReadings, Reading, Readings};
use crate::faults::{self, Bug};
use crate::reading::time::MILLI_NS;
use crate::reading::{Stamp, Value};

/// When a page is full. Config section `[page]`.
#[derive(Debug, Clone, Copy)]
pub struct Caps {
    /// Most readings on one page.
    pub max_readings: usize,
    /// Most stored bytes of readings on one page that still takes new ones.
    pub max_bytes: usize,
    /// Most stored bytes that overwrites may grow a page to; beyond, it is split.
    pub hard_bytes: usize,
}

/// By what readings are merged into a bucket.
#[derive(Debug, Clone, Copy)]
pub struct MergeOptions<'a> {
    /// When a page is full.
    pub caps: &'a Caps,
    /// No log has anything unflushed at or below this.
    pub floor: Stamp,
    /// Whether equal values that were said later are to be written: others may have older ones that are unflushed.
    pub restamps: bool,
    /// The own log's name, for records of the form before stamps.
    pub log: &'a str,
}

/// No stored cell takes fewer bytes (a type, a name of one letter, a boolean), so a page of cells
/// that are all filled is full by its bytes first. Where every reading names other fields, the
/// empty cells beside them would take far more memory than the page does in the store.
const CELL_BYTES_MIN: usize = 4;

/// Most bytes of readings on new pages that are inserted in one group, unless they were split off
/// one page: a transaction must be over long before a command's deadline.
const INSERT_BYTES: usize = 8 << 20;

/// One incoming reading: a time and cells that name their field by index.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Nanoseconds since the epoch.
    pub time: i64,
    /// Its record's stamp.
    pub stamp: Stamp,
    /// The fields' names.
    pub names: &'a [Arc<str>],
    /// Index into `names`, and the value; each field at most once.
    pub cells: &'a [(u16, Value)],
}

impl<'a> Row<'a> {
    fn fields(&self) -> impl ExactSizeIterator<Item = (&'a Arc<str>, &'a Value)> + use<'a> {
        let names = self.names;
        self.cells.iter().map(move |(field, value)| (&names[usize::from(*field)], value))
    }
}

/// A bucket for as long as nobody works on it: its readings are bytes.
#[derive(Debug)]
pub struct PackedBucket {
    pages: Vec<(Page, PackedReadings)>,
}

impl PackedBucket {
    /// The bucket again.
    #[must_use]
    pub fn unpack(self) -> Bucket {
        let unpack = |(page, readings): (Page, PackedReadings)| Page { readings: readings.unpack(), ..page };
        Bucket { pages: self.pages.into_iter().map(unpack).collect(), set_aside: Vec::new() }
    }

    /// The memory it takes, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let of = |(page, readings): &(Page, PackedReadings)| page.memory() + size_of_val(readings) + readings.memory();
        self.pages.iter().map(of).sum::<usize>() + size_of::<Self>()
    }

    /// About what [`PackedBucket::unpack`] will take, in bytes.
    #[must_use]
    pub fn unpacked_memory(&self) -> usize {
        self.pages.iter().map(|(page, readings)| page.memory() + readings.unpacked_memory()).sum()
    }

    /// The latest `count` readings, in time order.
    #[must_use]
    pub fn tail(&self, count: usize) -> Vec<Reading> {
        let mut tail: Vec<Reading> = self.pages.iter().flat_map(|(_, readings)| readings.tail(count)).collect();
        tail.sort_unstable_by_key(|reading| reading.time);
        tail.split_off(tail.len().saturating_sub(count))
    }
}

/// What became of the readings of one merge. Each is one of new, duplicate, overwritten or set aside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Applied {
    /// Timestamps the bucket had not.
    pub new: u64,
    /// Readings that changed nothing: what is there is the same, or was said later.
    pub duplicate: u64,
    /// Readings that changed or added a field of one that was there.
    pub overwritten: u64,
    /// How many of the new ones lie before the latest that the bucket already had.
    pub late: u64,
    /// Readings at or below the floor that say something else than the bucket, which keeps what it has: nobody knows which
    /// is later. [`Bucket::set_aside`] tells which they are.
    pub set_aside: u64,
}

impl std::ops::AddAssign for Applied {
    fn add_assign(&mut self, other: Self) {
        self.new += other.new;
        self.duplicate += other.duplicate;
        self.overwritten += other.overwritten;
        self.late += other.late;
        self.set_aside += other.set_aside;
    }
}

/// One sensor's hour: its pages in order of their numbers. At most one of them is open.
#[derive(Debug, Clone, Default)]
pub struct Bucket {
    pages: Vec<Page>,
    set_aside: Vec<usize>,
}

impl Bucket {
    /// The bucket that these stored pages make up. Without pages: one that the store is assumed
    /// not to have, which its first write will confirm or refute.
    #[must_use]
    pub fn from_stored(pages: impl IntoIterator<Item = StoredPage>) -> Self {
        let mut pages: Vec<Page> = pages.into_iter().map(Page::from).collect();
        pages.sort_unstable_by_key(|page| page.number);
        let is_cut = pages.iter().any(|page| page.rewritten);
        let mut bucket = Self { pages, set_aside: Vec::new() };
        if is_cut {
            bucket.close_gaps();
        }
        bucket
    }

    /// The places, among the rows of the last [`Bucket::apply`], of those that were set aside.
    #[must_use]
    pub fn set_aside(&self) -> &[usize] {
        &self.set_aside
    }

    /// The pages, in order of their numbers.
    #[must_use]
    pub fn pages(&self) -> &[Page] {
        &self.pages
    }

    /// Whether these are the pages that the store had when this bucket was last the same.
    #[must_use]
    pub fn has_revs(&self, revs: &[(u32, u64)]) -> bool {
        let stored = self.pages.iter().filter(|page| page.stored.is_some());
        stored.clone().count() == revs.len() && stored.into_iter().all(|page| revs.contains(&(page.number, page.rev())))
    }

    /// Makes every stored page due for a write that says anew what can be said of its readings, and
    /// the marks true: page 0 is marked when there are several pages, and no other page is.
    pub fn mark_anew(&mut self, several: bool) {
        for page in &mut self.pages {
            page.has_overflow = page.number == 0 && (page.has_overflow || several);
            page.touched |= page.stored.is_some();
        }
    }

    /// Makes the last page page 0 of a bucket that has lost it, or never got it: without one no query finds the others.
    pub fn make_first(&mut self) {
        let several = self.pages.len() > 1;
        let Some(last) = self.pages.last_mut().filter(|last| last.number > 0) else { return };
        let (readings, closed, applied) = (std::mem::take(&mut last.readings), last.closed, last.applied.clone());
        last.removed = true;
        self.pages.insert(0, Page { readings, closed, applied, has_overflow: several, ..Page::new(0) });
    }

    /// Packs it; what is left of its pages is what the store has.
    #[must_use]
    pub fn pack(self) -> PackedBucket {
        let pack = |mut page: Page| {
            let readings = page.pack();
            (page, readings)
        };
        PackedBucket { pages: self.pages.into_iter().map(pack).collect() }
    }

    /// The latest `count` readings, in time order.
    #[must_use]
    pub fn tail(&self, count: usize) -> Vec<Reading> {
        let mut at: Vec<(i64, usize, usize)> = Vec::new();
        for (p, page) in self.pages.iter().enumerate() {
            let times = page.readings.times();
            at.extend((times.len().saturating_sub(count)..times.len()).map(|i| (times[i], p, i)));
        }
        at.sort_unstable();
        at[at.len().saturating_sub(count)..].iter().map(|(_, p, i)| self.pages[*p].readings.reading(*i)).collect()
    }

    /// Merges rows, given in time order.
    ///
    /// A timestamp that a page holds is merged there, closed or not, by the rows' stamps; a new one goes to the open page,
    /// or, where a cap is reached, closes it and opens the next.
    pub fn apply<'a>(&mut self, rows: impl Iterator<Item = Row<'a>>, options: &MergeOptions<'_>) -> Applied {
        self.set_aside.clear();
        self.pages.iter_mut().for_each(|page| page.raise_floor(options.floor));
        // Rows are mostly new, and mostly of one page.
        let expected = rows.size_hint().0.min(options.caps.max_readings);
        if let Some(open) = self.pages.iter_mut().find(|page| !page.closed) {
            open.readings.reserve(expected);
        }
        let mut pass = Pass {
            stored_last_ms: self.pages.iter().filter_map(Page::stored_last_ms).max(),
            last: self.pages.iter().filter_map(|page| page.readings.times().last().copied()).max(),
            touched: vec![(false, false); self.pages.len()],
            expected,
        };
        let (mut applied, mut group) = (Applied::default(), Group::default());
        let mut rows = rows.enumerate().peekable();
        while let Some((number, row)) = rows.next() {
            let has_more = rows.peek().is_some_and(|(_, next)| counts_together(&row, next, options.floor));
            if !has_more && group.places.is_empty() {
                match self.take(&row, options, &mut pass) {
                    Some(one) => applied += one,
                    None => self.set_aside.push(number),
                }
                continue;
            }
            group.add(number, row.cells, self.what_says(&row, &group.cells));
            if !has_more {
                let Group { cells, places, said } = std::mem::take(&mut group);
                match self.take(&Row { cells: &cells, ..row }, options, &mut pass) {
                    Some(one) => applied += Applied { late: one.late, ..said },
                    None => self.set_aside.extend(places),
                }
            }
        }
        applied.set_aside = self.set_aside.len() as u64;
        for (page, (_, rewritten)) in self.pages.iter_mut().zip(&pass.touched).filter(|(_, (touched, _))| *touched) {
            page.readings.settle(*rewritten && !faults::has(Bug::StaleSummary));
        }
        self.split_oversized(options.caps);
        applied
    }

    /// Merges one row; `None` where the bucket keeps what it has, and nobody knows which is later.
    fn take(&mut self, row: &Row<'_>, options: &MergeOptions<'_>, pass: &mut Pass) -> Option<Applied> {
        if let Some((p, index)) = self.locate(row.time) {
            return match self.merge(p, index, row, options) {
                Merged::Landed => Some(Applied { new: 1, ..Applied::default() }),
                Merged::Same | Merged::Restamped => Some(Applied { duplicate: 1, ..Applied::default() }),
                Merged::Changed => {
                    pass.touched[p] = (true, true);
                    Some(Applied { overwritten: 1, ..Applied::default() })
                }
                Merged::Outdated => None,
            };
        }
        let p = self.page_with_room(row, options, pass.expected);
        pass.touched.resize(self.pages.len(), (false, false));
        pass.touched[p].0 = true;
        let page = &mut self.pages[p];
        page.readings.push(row.time, row.stamp, row.fields());
        // Only what lies after every stored reading, as others see them, may be appended.
        page.rewritten |=
            page.stored.is_some() && pass.stored_last_ms.is_some_and(|last| row.time.div_euclid(MILLI_NS) <= last);
        let is_late = pass.last.is_some_and(|last| row.time < last);
        Some(Applied { new: 1, late: u64::from(is_late), ..Applied::default() })
    }

    /// Deletes what is older than a stamp in a range of times; tells how many readings lost something. Pages that have
    /// none left go, and their places are taken by those behind them, so that the numbers have no gap.
    pub fn delete(&mut self, range: &Range<i64>, before: Stamp) -> usize {
        let mut deleted = 0;
        for page in &mut self.pages {
            let gone = page.readings.delete(range, before);
            deleted += gone;
            page.rewritten |= gone > 0;
        }
        self.close_gaps();
        deleted
    }

    fn close_gaps(&mut self) {
        let held = |page: &Page| !page.removed;
        while let Some(at) = self.pages.iter().position(|page| held(page) && page.readings.is_empty()) {
            let last = self.pages.iter().rposition(held).unwrap_or(at);
            let moved = &mut self.pages[last];
            (moved.removed, moved.displaced) = (true, true);
            if at < last {
                let (readings, closed) = (std::mem::take(&mut moved.readings), moved.closed);
                self.pages[at].take_over(readings, closed);
            }
        }
    }

    /// What a line says, after others of its request about its time.
    fn what_says(&self, row: &Row<'_>, earlier: &[(u16, Value)]) -> Applied {
        // What has this very record already counts as it did then.
        let has_landed = |(p, index): &(usize, usize)| self.pages[*p].readings.has_of(*index, row.stamp);
        let at = self.locate(row.time).filter(|at| !has_landed(at));
        if at.is_none() && earlier.is_empty() {
            return Applied { new: 1, ..Applied::default() };
        }
        let stored = |field: u16| {
            let (p, index) = at?;
            self.pages[p].readings.cells(&row.names[usize::from(field)])?[index].as_ref()
        };
        let held = |field: u16| earlier.iter().find(|(of, _)| *of == field).map(|(_, value)| value);
        match row.cells.iter().all(|(field, value)| held(*field).or_else(|| stored(*field)) == Some(value)) {
            true => Applied { duplicate: 1, ..Applied::default() },
            false => Applied { overwritten: 1, ..Applied::default() },
        }
    }

    fn locate(&self, time: i64) -> Option<(usize, usize)> {
        if faults::has(Bug::SkipDedupe) {
            return None;
        }
        self.pages.iter().enumerate().rev().find_map(|(p, page)| Some((p, page.readings.find(time)?)))
    }

    fn merge(&mut self, p: usize, index: usize, row: &Row<'_>, options: &MergeOptions<'_>) -> Merged {
        let page = &mut self.pages[p];
        if legacy::has_landed(page, index, options.log, row.stamp) {
            return Merged::Landed;
        }
        let stamp = if faults::has(Bug::ArrivalWins) { Stamp::MAX >> 2 } else { row.stamp };
        let merged = page.readings.merge(index, stamp, row.fields());
        match merged {
            Merged::Changed => page.rewritten |= page.has_stored(index),
            Merged::Restamped => page.touched |= options.restamps && page.has_stored(index),
            Merged::Landed | Merged::Same | Merged::Outdated => {}
        }
        merged
    }

    /// The open page, when it has room for the row; else the next page, the open one being closed.
    fn page_with_room(&mut self, row: &Row<'_>, options: &MergeOptions<'_>, expected: usize) -> usize {
        let caps = options.caps;
        if let Some(p) = self.pages.iter().position(|page| !page.closed && !page.removed) {
            let page = &mut self.pages[p];
            let row_bytes = super::readings::reading_bytes(row.time, row.fields().map(|(n, v)| (&**n, v)));
            let fits = page.readings.len() < caps.max_readings
                && page.readings.bytes() + row_bytes <= caps.max_bytes
                && page.readings.cells_with(row.fields().map(|(name, _)| name)) <= caps.max_bytes / CELL_BYTES_MIN;
            if fits || page.readings.is_empty() {
                return p;
            }
            page.closed = true;
        }
        // One that a deletion has emptied and that is still stored, so that the numbers have no gap.
        if let Some(p) = self.pages.iter().position(|page| page.removed) {
            let page = &mut self.pages[p];
            (page.removed, page.closed, page.rewritten) = (false, false, true);
            return p;
        }
        let mut readings = Readings::default();
        readings.raise_floor(options.floor);
        readings.reserve(expected);
        self.add_page(readings)
    }

    fn add_page(&mut self, readings: Readings) -> usize {
        let number = self.pages.last().map_or(0, |page| page.number + 1);
        if let Some(first) = self.pages.first_mut() {
            first.has_overflow = true;
        }
        self.pages.push(Page { readings, ..Page::new(number) });
        self.pages.len() - 1
    }

    /// Moves the later half of every page that overwrites made too large to a page of its own.
    fn split_oversized(&mut self, caps: &Caps) {
        let before = self.pages.len();
        let mut p = 0;
        while p < self.pages.len() {
            let page = &mut self.pages[p];
            if page.readings.bytes() <= caps.hard_bytes || page.readings.len() < 2 {
                p += 1;
                continue;
            }
            let later = page.readings.split_off(page.readings.len() / 2);
            page.closed = true;
            page.rewritten = true;
            let root = if page.stored.is_some() { Some(page.number) } else { page.moved_from };
            let applied = page.applied.clone();
            let moved = self.add_page(later);
            self.pages[moved].closed = true;
            self.pages[moved].applied = applied;
            self.pages[moved].moved_from = root;
        }
        if self.pages.len() > before {
            self.number_unstored();
        }
    }

    /// Numbers the pages that were never stored in the order in which they are to be: those split
    /// off stored pages, then those that are new, the open one last.
    ///
    /// The store then never has a gap in its numbers. A writer with an old view could fill it with
    /// an open page while another, who sees the later pages, opens one behind them. And nothing
    /// waits behind the open page, where it would wait until that is closed.
    fn number_unstored(&mut self) {
        self.pages.sort_by_key(|page| match page.stored {
            Some(_) => 0,
            None if page.moved_from.is_some() => 1,
            None if page.closed => 2,
            None => 3,
        });
        for p in 1..self.pages.len() {
            if self.pages[p].stored.is_none() {
                self.pages[p].number = self.pages[p - 1].number + 1;
            }
        }
    }

    /// The writes that may go to the store now, each a group of page indexes that must succeed or
    /// fail together. Empty when the store has everything. The indexes hold until the next
    /// [`Bucket::apply`].
    ///
    /// A page beyond the first is inserted in one group with page 0, whose rev so grows with every
    /// page that is made: whoever has an old view of the bucket, or none, or deletes it meanwhile,
    /// and whoever makes the page, cannot both succeed. The page that closes for it is in the same
    /// group, so that no other writer can put a timestamp there that the new page holds too.
    ///
    /// All pages that were split, and all that was split off them, are in that group: apart, one of
    /// them could fail and leave a gap in the numbers.
    ///
    /// Where a page goes, or readings took its place, so does all that was moved because of it, in one group.
    #[must_use]
    pub fn next_writes(&self) -> Vec<Vec<usize>> {
        let pending = (0..self.pages.len()).filter(|p| self.pages[*p].pending().is_some());
        if self.pages.iter().any(|page| page.displaced) {
            let has_new = self.pages.iter().any(|page| page.stored.is_none());
            let goes = |p: &usize| self.pages[*p].pending().is_some() || (has_new && self.pages[*p].number == 0);
            return vec![(0..self.pages.len()).filter(goes).collect()];
        }
        let new = self.next_inserts();
        if new.is_empty() {
            return pending.map(|p| vec![p]).collect();
        }
        let split = |number: u32| self.pages.iter().any(|page| page.moved_from == Some(number));
        let is_stored = |p: &usize| self.pages[*p].stored.is_some();
        let goes_along = |p: &usize| {
            let page = &self.pages[*p];
            page.number == 0 || split(page.number) || page.stored.as_ref().is_some_and(|s| s.closed != page.closed)
        };
        let (along, alone): (Vec<usize>, Vec<usize>) =
            (0..self.pages.len()).filter(|p| is_stored(p)).partition(goes_along);
        let alone = alone.into_iter().filter(|p| self.pages[*p].pending().is_some());
        let mut groups: Vec<Vec<usize>> = alone.map(|p| vec![p]).collect();
        groups.push(along.into_iter().chain(new).collect());
        groups
    }

    /// The pages that are inserted next, if there are others than page 0 to insert: all that was split
    /// off stored pages, and of the others, in order, as many as one transaction should carry.
    fn next_inserts(&self) -> Vec<usize> {
        let unstored = (0..self.pages.len()).filter(|p| self.pages[*p].stored.is_none());
        if !unstored.clone().any(|p| self.pages[p].number > 0) {
            return Vec::new();
        }
        let mut bytes = 0;
        let fits = |p: &usize| {
            let page = &self.pages[*p];
            let fits = bytes == 0 || page.moved_from.is_some() || bytes + page.readings.bytes() <= INSERT_BYTES;
            bytes += page.readings.bytes();
            fits
        };
        unstored.take_while(fits).collect()
    }

    /// Notes that the store took these pages as they are now.
    pub fn mark_written(&mut self, group: &[usize]) {
        for p in group {
            self.pages[*p].mark_written();
        }
        self.pages.retain(|page| !page.removed);
    }
}

/// What one merge knows of the bucket as it was before.
struct Pass {
    /// The millisecond of the latest reading as others see it in the store.
    stored_last_ms: Option<i64>,
    /// The time of the latest reading.
    last: Option<i64>,
    /// Per page whether it was touched, and whether settled readings changed. Those beyond its end were not.
    touched: Vec<(bool, bool)>,
    /// How many readings there are to come.
    expected: usize,
}

/// Whether a row and the next one are laid together, field by field, before they are merged: lines of one request about one
/// time, and what comes at or below the floor, where one log's order is known and nothing else.
fn counts_together(row: &Row<'_>, next: &Row<'_>, floor: Stamp) -> bool {
    row.time == next.time && (row.stamp == next.stamp || row.stamp.max(next.stamp) <= floor)
}

/// Rows that count together so far.
#[derive(Default)]
struct Group {
    cells: Vec<(u16, Value)>,
    /// Their places among all rows.
    places: Vec<usize>,
    /// What each is counted as, if they are merged.
    said: Applied,
}

impl Group {
    /// Lays a row's cells over the earlier ones, field by field.
    fn add(&mut self, place: usize, later: &[(u16, Value)], said: Applied) {
        self.places.push(place);
        self.said += said;
        for (field, value) in later {
            match self.cells.iter_mut().find(|(held, _)| held == field) {
                Some((_, held)) => *held = value.clone(),
                None => self.cells.push((*field, value.clone())),
            }
        }
    }
}

#[cfg(test)]
mod tests;
