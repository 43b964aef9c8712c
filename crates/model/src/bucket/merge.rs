//! A bucket in memory, and the merge of new readings into it.

mod partial;
mod placement;
mod writes;

use std::ops::Range;
use std::sync::Arc;

use super::page::{Overflow, Page, StoredPage};
use super::readings::{MergeOutcome, PackedReadings, Reading, Readings};
use super::summary::distribution::FieldBounds;
use crate::reading::time::MILLI_NS;
use crate::reading::{Stamp, Value};

/// Page size limits, from the config section `[page]`.
#[derive(Debug, Clone, Copy)]
pub struct Caps {
    /// Maximum number of readings on one page.
    pub max_readings: usize,
    /// Maximum stored bytes of readings on an open page; a reading beyond it goes to a new page.
    pub max_bytes: usize,
    /// Maximum stored bytes to which overwrites may grow a page; a larger page is split.
    pub hard_bytes: usize,
}

/// Parameters of [`Bucket::apply`].
#[derive(Debug, Clone, Copy)]
pub struct MergeOptions<'a> {
    /// Page size limits.
    pub caps: &'a Caps,
    /// The registry's floor: no WAL has unflushed readings at or below this stamp. 0 for an hour that may be in a part
    /// of a sealed day, because its pages must not settle (see [`day`](super::day)).
    pub floor: Stamp,
    /// True if an unchanged value gets the newer stamp in the store. Needed while other instances may have unflushed
    /// older values, which would otherwise win over it.
    pub restamps: bool,
}

/// One incoming reading; its cells name their field by index.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Nanoseconds since the epoch.
    pub time: i64,
    /// The stamp of the WAL record that holds the reading.
    pub stamp: Stamp,
    /// The field names.
    pub names: &'a [Arc<str>],
    /// Indexes into `names`, and the values; each field at most once.
    pub cells: &'a [(u16, Value)],
}

impl<'a> Row<'a> {
    fn fields(&self) -> impl ExactSizeIterator<Item = (&'a Arc<str>, &'a Value)> + use<'a> {
        let names = self.names;
        self.cells.iter().map(move |(field, value)| (&names[usize::from(*field)], value))
    }
}

/// A bucket whose readings are packed into bytes, as the bucket cache holds it.
#[derive(Debug)]
pub struct PackedBucket {
    pages: Vec<(Page, PackedReadings)>,
}

impl PackedBucket {
    /// Restores the bucket.
    #[must_use]
    pub fn unpack(self) -> Bucket {
        let unpack = |(page, readings): (Page, PackedReadings)| Page { readings: readings.unpack(), ..page };
        Bucket { pages: self.pages.into_iter().map(unpack).collect(), set_aside: Vec::new() }
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        let memory =
            |(page, readings): &(Page, PackedReadings)| page.memory() + size_of_val(readings) + readings.memory();
        self.pages.iter().map(memory).sum::<usize>() + size_of::<Self>()
    }

    /// The approximate memory of the unpacked bucket, in bytes.
    #[must_use]
    pub fn unpacked_memory(&self) -> usize {
        self.pages.iter().map(|(page, readings)| page.memory() + readings.unpacked_memory()).sum()
    }

    /// The latest `count` readings, in time order; `None` if some of them may be on pages that are left out.
    #[must_use]
    pub fn tail(&self, count: usize) -> Option<Vec<Reading>> {
        let mut tail: Vec<Reading> = self.pages.iter().flat_map(|(_, readings)| readings.tail(count)).collect();
        tail.sort_unstable_by_key(|reading| reading.time);
        let tail = tail.split_off(tail.len().saturating_sub(count));
        let first = if tail.len() < count { None } else { tail.first().map(|reading| reading.time) };
        let is_whole = self.pages.iter().all(|(page, _)| page.left_out.is_none() || page.ends_before(first));
        is_whole.then_some(tail)
    }
}

/// Counts of one merge. Every reading counts as exactly one of new, duplicate, overwritten or set aside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MergeCounts {
    /// Readings whose timestamp the bucket did not have.
    pub new: u64,
    /// Readings that changed no value: the bucket has the same values, or values with greater stamps.
    pub duplicate: u64,
    /// Readings that changed or added a field of an existing reading.
    pub overwritten: u64,
    /// New readings that lie before the bucket's previous latest reading.
    pub late: u64,
    /// Readings at or below the floor that conflict with the bucket. It is unknown which value is later, so the bucket
    /// keeps its own. [`Bucket::set_aside`] returns the indexes of their rows.
    pub set_aside: u64,
}

impl std::ops::AddAssign for MergeCounts {
    fn add_assign(&mut self, other: Self) {
        self.new += other.new;
        self.duplicate += other.duplicate;
        self.overwritten += other.overwritten;
        self.late += other.late;
        self.set_aside += other.set_aside;
    }
}

/// One sensor's hour: its pages, ordered by number. At most one page is open.
#[derive(Debug, Clone, Default)]
pub struct Bucket {
    pages: Vec<Page>,
    set_aside: Vec<usize>,
}

impl Bucket {
    /// The bucket that consists of these stored pages. Without pages, the bucket is assumed to be missing in the store;
    /// its first write confirms or refutes that.
    #[must_use]
    pub fn from_stored(pages: impl IntoIterator<Item = StoredPage>) -> Self {
        let mut pages: Vec<Page> = pages.into_iter().map(Page::from).collect();
        pages.sort_unstable_by_key(|page| page.number);
        let is_cut = pages.iter().any(|page| page.is_rewritten);
        let mut bucket = Self { pages, set_aside: Vec::new() };
        if is_cut {
            bucket.close_gaps();
        }
        bucket.note_overflow();
        if is_cut {
            // The store still counts the readings that the deletion hides.
            bucket.rewrite_overflow();
        }
        bucket
    }

    /// Notes on page 0 the closed pages after it that the store will have after the next write.
    fn note_overflow(&mut self) {
        let inserted = self.next_inserts();
        let is_counted = |(index, page): &(usize, &Page)| {
            let is_next = page.stored.is_some() || inserted.contains(index);
            page.number > 0 && page.closed && !page.is_removed && is_next
        };
        let closed = self.pages.iter().enumerate().filter(is_counted);
        let overflow = closed.fold(Overflow::default(), |sum, (_, page)| Overflow {
            pages: sum.pages + 1,
            count: sum.count + page.count() as u64,
        });
        if let Some(first) = self.pages.first_mut().filter(|first| first.number == 0) {
            first.overflow = first.has_overflow.then_some(overflow);
        }
    }

    /// The indexes of the rows that the last [`Bucket::apply`] set aside.
    #[must_use]
    pub fn set_aside(&self) -> &[usize] {
        &self.set_aside
    }

    /// The pages, ordered by number.
    #[must_use]
    pub fn pages(&self) -> &[Page] {
        &self.pages
    }

    /// Returns true if the bucket's stored pages have exactly these numbers and revs.
    #[must_use]
    pub fn has_revs(&self, revs: &[(u32, u64)]) -> bool {
        let stored = self.pages.iter().filter(|page| page.stored.is_some());
        stored.clone().count() == revs.len() && stored.into_iter().all(|page| revs.contains(&(page.number, page.rev())))
    }

    /// Schedules a write of every stored page, to repair it: the write recomputes the page's summaries and stamp order.
    /// Corrects the overflow mark, which only page 0 of a bucket with several pages has.
    pub fn mark_for_rewrite(&mut self, has_several: bool) {
        for page in &mut self.pages {
            page.has_overflow = page.number == 0 && (page.has_overflow || has_several);
            page.is_touched |= page.stored.is_some();
        }
        self.note_overflow();
    }

    /// Repairs a bucket without page 0 by turning its last page into page 0. Queries do not find the other pages
    /// without page 0.
    pub fn make_first(&mut self) {
        let has_overflow = self.pages.len() > 1;
        let Some(last) = self.pages.last_mut().filter(|last| last.number > 0) else { return };
        let readings = std::mem::take(&mut last.readings);
        let closed = last.closed;
        last.is_removed = true;
        self.pages.insert(0, Page { readings, closed, has_overflow, ..Page::new(0) });
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.pages.iter().map(Page::memory).sum()
    }

    /// Returns true if a loaded page has a reading at this time, in nanoseconds.
    #[must_use]
    pub fn has(&self, time: i64) -> bool {
        self.locate(time).is_some()
    }

    /// The times of the first and the last reading, in nanoseconds; exact to the millisecond.
    #[must_use]
    pub fn span(&self) -> Option<(i64, i64)> {
        self.pages.iter().filter_map(Page::span).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Packs the readings. The pages keep their state; the list of rows set aside is dropped.
    #[must_use]
    pub fn pack(self) -> PackedBucket {
        let pack = |mut page: Page| {
            let readings = std::mem::take(&mut page.readings).pack();
            (page, readings)
        };
        PackedBucket { pages: self.pages.into_iter().map(pack).collect() }
    }

    /// The latest `count` readings, in time order.
    #[must_use]
    pub fn tail(&self, count: usize) -> Vec<Reading> {
        let mut tail: Vec<(i64, Location)> = Vec::new();
        for (page, times) in self.pages.iter().map(|page| page.readings.times()).enumerate() {
            let last = times.iter().enumerate().rev().take(count);
            tail.extend(last.map(|(index, time)| (*time, Location { page, index })));
        }
        tail.sort_unstable();
        let latest = &tail[tail.len().saturating_sub(count)..];
        latest.iter().map(|(_, location)| self.pages[location.page].readings.reading(location.index)).collect()
    }

    /// Merges rows, given in time order. If pages are left out, those in [`Bucket::always_needed`] must be loaded
    /// first, and those in [`Bucket::needed_for`] the times of the rows.
    ///
    /// A timestamp that some page holds, open or closed, is merged there by stamp. A new timestamp goes to the open
    /// page; if that page is full, it is closed and the next one is opened.
    pub fn apply<'a>(&mut self, rows: impl Iterator<Item = Row<'a>>, options: &MergeOptions<'_>) -> MergeCounts {
        self.set_aside.clear();
        self.pages.iter_mut().for_each(|page| page.readings.raise_floor(options.floor));
        // Most rows are new and go to one page.
        let expected = rows.size_hint().0.min(options.caps.max_readings);
        if let Some(open) = self.pages.iter_mut().find(|page| !page.closed) {
            open.readings.reserve(expected);
        }
        let mut pass = MergePass {
            stored_last_ms: self.pages.iter().filter_map(Page::stored_last_ms).max(),
            last: self.pages.iter().filter_map(|page| Some(page.span()?.1)).max(),
            pages: vec![PageChange::default(); self.pages.len()],
            expected,
        };
        let mut applied = MergeCounts::default();
        let mut group = RowGroup::default();
        let mut rows = rows.enumerate().peekable();
        while let Some((number, row)) = rows.next() {
            let has_more = rows.peek().is_some_and(|(_, next)| is_one_group(&row, next, options.floor));
            if !has_more && group.places.is_empty() {
                match self.take(&row, options, &mut pass) {
                    Some(one) => applied += one,
                    None => self.set_aside.push(number),
                }
                continue;
            }
            group.add(number, row.cells, self.counts_of_row(&row, &group.cells));
            if !has_more {
                let RowGroup { cells, places, counts } = std::mem::take(&mut group);
                match self.take(&Row { cells: &cells, ..row }, options, &mut pass) {
                    Some(one) => applied += MergeCounts { late: one.late, ..counts },
                    None => self.set_aside.extend(places),
                }
            }
        }
        applied.set_aside = self.set_aside.len() as u64;
        for (page, change) in self.pages.iter_mut().zip(&pass.pages).filter(|(_, change)| change.is_changed) {
            page.readings.settle(change.is_rewritten);
        }
        self.split_oversized(options.caps);
        self.note_overflow();
        applied
    }

    /// Sets the bounds of the distributions of all loaded pages. The store gets them with the next write of each page.
    pub fn set_bounds(&mut self, bounds: &FieldBounds) {
        self.pages.iter_mut().filter(|page| page.left_out.is_none()).for_each(|page| page.readings.set_bounds(bounds));
    }

    /// Merges one row; `None` if the row must be set aside.
    fn take(&mut self, row: &Row<'_>, options: &MergeOptions<'_>, pass: &mut MergePass) -> Option<MergeCounts> {
        if let Some(location) = self.locate(row.time) {
            return match self.merge(location, row, options) {
                MergeOutcome::Landed => Some(MergeCounts { new: 1, ..MergeCounts::default() }),
                MergeOutcome::Same | MergeOutcome::Restamped => {
                    Some(MergeCounts { duplicate: 1, ..MergeCounts::default() })
                }
                MergeOutcome::Changed => {
                    pass.pages[location.page] = PageChange { is_changed: true, is_rewritten: true };
                    Some(MergeCounts { overwritten: 1, ..MergeCounts::default() })
                }
                MergeOutcome::Outdated => None,
            };
        }
        let page_index = self.page_with_room(row, options, pass.expected);
        pass.pages.resize(self.pages.len(), PageChange::default());
        pass.pages[page_index].is_changed = true;
        let page = &mut self.pages[page_index];
        page.readings.push(row.time, row.stamp, row.fields());
        // A reading can be appended only if its millisecond is after that of every stored reading.
        page.is_rewritten |=
            page.stored.is_some() && pass.stored_last_ms.is_some_and(|last| row.time.div_euclid(MILLI_NS) <= last);
        let is_late = pass.last.is_some_and(|last| row.time < last);
        Some(MergeCounts { new: 1, late: u64::from(is_late), ..MergeCounts::default() })
    }

    /// Deletes the cells in a time range whose stamp is below `limit`; returns the number of readings that lost a
    /// cell. Emptied pages are removed, and later pages take their numbers, so that the numbers have no gap.
    pub fn delete(&mut self, range: &Range<i64>, limit: Stamp) -> usize {
        self.cut(|readings| readings.delete(range, limit))
    }

    /// As [`Bucket::delete`], for any choice of cells: `cut` removes cells from a page's readings, and returns the
    /// number of readings that lost a cell.
    pub fn cut(&mut self, cut: impl Fn(&mut Readings) -> usize) -> usize {
        let mut deleted = 0;
        for page in &mut self.pages {
            let count = cut(&mut page.readings);
            deleted += count;
            page.is_rewritten |= count > 0;
        }
        self.close_gaps();
        let noted = self.pages.first().and_then(|first| first.overflow);
        self.note_overflow();
        if self.pages.first().is_some_and(|first| first.overflow != noted) {
            self.rewrite_overflow();
        }
        deleted
    }

    /// Schedules a write of what page 0 says of the closed pages, in one transaction with theirs.
    fn rewrite_overflow(&mut self) {
        if let Some(first) = self.pages.first_mut().filter(|first| first.overflow.is_some()) {
            first.is_touched |= first.stored.is_some();
            first.is_displaced |= first.stored.is_some();
        }
    }

    /// Moves the readings of the last pages to emptied pages, so that page numbers have no gap. Requires that all pages
    /// are loaded.
    fn close_gaps(&mut self) {
        let is_kept = |page: &Page| !page.is_removed;
        while let Some(empty) = self.pages.iter().position(|page| is_kept(page) && page.readings.is_empty()) {
            let last = self.pages.iter().rposition(is_kept).unwrap_or(empty);
            let moved = &mut self.pages[last];
            moved.is_removed = true;
            moved.is_displaced = true;
            if empty < last {
                let readings = std::mem::take(&mut moved.readings);
                let closed = moved.closed;
                let refilled = &mut self.pages[empty];
                refilled.readings = readings;
                refilled.closed = closed;
                refilled.is_rewritten = true;
                refilled.is_displaced = true;
            }
        }
        let is_alone = self.pages.iter().filter(|page| is_kept(page)).count() == 1;
        if let Some(first) = self.pages.first_mut().filter(|first| is_alone && first.has_overflow) {
            first.has_overflow = false;
            first.is_rewritten |= first.stored.is_some();
            first.is_displaced |= first.stored.is_some();
        }
    }

    /// Counts one row of a group as new, duplicate or overwritten. The earlier rows of the group count as stored.
    fn counts_of_row(&self, row: &Row<'_>, earlier: &[(u16, Value)]) -> MergeCounts {
        // If an earlier attempt already merged this record, its readings count as they did then.
        let has_landed = |location: &Location| self.pages[location.page].readings.has_stamp(location.index, row.stamp);
        let location = self.locate(row.time).filter(|location| !has_landed(location));
        if location.is_none() && earlier.is_empty() {
            return MergeCounts { new: 1, ..MergeCounts::default() };
        }
        let stored = |field: u16| {
            let Location { page, index } = location?;
            self.pages[page].readings.cells(&row.names[usize::from(field)])?[index].as_ref()
        };
        let held = |field: u16| earlier.iter().find(|(known, _)| *known == field).map(|(_, value)| value);
        if row.cells.iter().all(|(field, value)| held(*field).or_else(|| stored(*field)) == Some(value)) {
            MergeCounts { duplicate: 1, ..MergeCounts::default() }
        } else {
            MergeCounts { overwritten: 1, ..MergeCounts::default() }
        }
    }

    fn locate(&self, time: i64) -> Option<Location> {
        let find = |page: usize| Some(Location { page, index: self.pages[page].readings.find(time)? });
        (0..self.pages.len()).rev().find_map(find)
    }

    fn merge(&mut self, Location { page, index }: Location, row: &Row<'_>, options: &MergeOptions<'_>) -> MergeOutcome {
        let page = &mut self.pages[page];
        let merged = page.readings.merge(index, row.stamp, row.fields());
        match merged {
            MergeOutcome::Changed => page.is_rewritten |= page.has_stored(index),
            MergeOutcome::Restamped => page.is_touched |= options.restamps && page.has_stored(index),
            MergeOutcome::Landed | MergeOutcome::Same | MergeOutcome::Outdated => {}
        }
        merged
    }
}

/// The location of a reading in a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Location {
    /// The index of the page.
    page: usize,
    /// The index of the reading on the page.
    index: usize,
}

/// The state of one [`Bucket::apply`] call.
struct MergePass {
    /// The millisecond of the latest stored reading, before the merge.
    stored_last_ms: Option<i64>,
    /// The time of the latest reading before the merge, in nanoseconds.
    last: Option<i64>,
    /// The changes of each page. Pages beyond its end are unchanged.
    pages: Vec<PageChange>,
    /// The expected number of new readings on a page, for reserving memory.
    expected: usize,
}

/// The changes of one page in one [`Bucket::apply`] call.
#[derive(Debug, Clone, Copy, Default)]
struct PageChange {
    /// Readings were added or changed.
    is_changed: bool,
    /// Existing readings changed.
    is_rewritten: bool,
}

/// Returns true if a row and the next one are folded into one, field by field, before they are merged. They must have
/// the same time. Either one request wrote both, so that they share a stamp, or both are at or below the floor, where
/// only their order in the WAL is known.
fn is_one_group(row: &Row<'_>, next: &Row<'_>, floor: Stamp) -> bool {
    row.time == next.time && (row.stamp == next.stamp || row.stamp.max(next.stamp) <= floor)
}

/// Rows of one time that are combined before they are merged.
#[derive(Default)]
struct RowGroup {
    cells: Vec<(u16, Value)>,
    /// The indexes of the rows.
    places: Vec<usize>,
    /// The counts of the rows, unless they are set aside.
    counts: MergeCounts,
}

impl RowGroup {
    /// Adds a row; its cells replace earlier cells of the same fields.
    fn add(&mut self, place: usize, later: &[(u16, Value)], counts: MergeCounts) {
        self.places.push(place);
        self.counts += counts;
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
