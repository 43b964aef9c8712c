//! Sealed days: all readings of one sensor and UTC day, packed together once the day is over. History takes a tenth of
//! the space of hour pages in this form.
//!
//! A day is stored in parts: one for the whole day, or one per hour if the day is too large for one part. Backfilled
//! readings of past days arrive in chunks, until sealing folds them into the other parts. The readings of a day are the
//! union of its parts and of any hour pages.
//!
//! **The union is by stamps.** A settled cell counts as old as the floor of its page or part. This is exact, because of
//! three rules:
//!
//! * The floor of a page that may exist beside a part is never raised ([`may_be_sealed`]). A cell that is added to such
//!   a page keeps its stamp, which is above the floor of every part that was folded without it.
//! * Only folding settles the cells of parts, at a floor at or above all folded stamps. If a folded source could not be
//!   removed, its cells are older than the part's, or equal.
//! * Before an instance reads sources to fold, it claims the target: it writes an empty part, or remembers the rev of
//!   the stored one. A deletion removes claims and rewrites every part in its range, changed or not. So an instance
//!   that read a source before the deletion fails to write the target.
//!
//! Readings move in one direction: from pages and chunks to the part of the whole day, and from all of these to parts
//! by hour ([`DayPart::stage`]). A deletion therefore cuts pages first, then the parts stage by stage, and lists each
//! stage only after all earlier stages are cut. An instance that read a source before the cut has claimed the target by
//! then, so the listing contains the target. Either the target is written before it is cut, or its writer fails. A
//! single listing of all stages would miss a target that is claimed after the listing and filled from a source that is
//! not cut yet.
//!
//! Sealing is a merge: it folds pages and chunks, writes the part by compare-and-set, and then removes each source by
//! its rev. If it is interrupted, readings are in both, and the union is the same.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::expired::ExpiredDay;
use super::readings::Readings;
use super::stored::ScannedPage;
use crate::reading::{Day, Hour, Sensor, Stamp};

/// The name of one part of a sensor's day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DayPart {
    /// The whole day.
    Whole,
    /// An hour (0 to 23) of a day that is too large for one part.
    Hour(u8),
    /// Backfilled readings that are not folded yet.
    Chunk {
        /// The greatest stamp of its readings, which makes the name unique.
        stamp: Stamp,
        /// The hour of its first reading (0 to 23): the readings of one record may be in several chunks.
        hour: u8,
    },
}

impl DayPart {
    /// Returns true for a chunk.
    #[must_use]
    pub fn is_chunk(self) -> bool {
        matches!(self, Self::Chunk { .. })
    }

    /// The greatest stage.
    pub const LAST_STAGE: u8 = 2;

    /// The part's stage. Readings move only to parts of a later stage.
    #[must_use]
    pub fn stage(self) -> u8 {
        match self {
            Self::Chunk { .. } => 0,
            Self::Whole => 1,
            Self::Hour(_) => Self::LAST_STAGE,
        }
    }

    /// The hours of `day` that the part may have readings of.
    #[must_use]
    pub fn hours(self, day: Day) -> Range<Hour> {
        match self {
            Self::Whole | Self::Chunk { .. } => day.hours(),
            Self::Hour(number) => {
                let hour = Hour(day.hours().start.0 + i64::from(number));
                hour..hour.next()
            }
        }
    }
}

/// Identifies a stored part of a sensor's day.
#[derive(Debug, Clone, PartialEq)]
pub struct DayId {
    /// The sensor whose readings the day holds.
    pub sensor: Arc<Sensor>,
    /// The day.
    pub day: Day,
    /// The part of the day.
    pub part: DayPart,
}

impl DayId {
    /// The hours that the part may have readings of.
    #[must_use]
    pub fn hours(&self) -> Range<Hour> {
        self.part.hours(self.day)
    }
}

/// A part of a day as read from a store.
#[derive(Debug, Clone)]
pub struct StoredDay {
    /// The revision. It grows by one with every write, and every write names the rev that it expects.
    pub rev: u64,
    /// The readings; all cells are settled unless the part is a chunk. Empty, with the part's floor, if they expired.
    pub readings: Readings,
    /// The summaries that remain if the readings have expired.
    pub expired: Option<ExpiredDay>,
}

impl StoredDay {
    /// Returns true if the part has no readings and no summaries: it is a claim, or a deletion emptied it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.readings.is_empty() && self.expired.as_ref().is_none_or(ExpiredDay::is_empty)
    }
}

/// A part of a day to be written by compare-and-set.
#[derive(Debug, Clone)]
pub struct DayWrite<'a> {
    /// The part's id.
    pub id: &'a DayId,
    /// The rev that the store must hold; 0 for a part never stored.
    pub rev: u64,
    /// The rev that the part has after the write: `rev + 1`, or for a part never stored a number that no other writer
    /// chooses. A writer that still knows a removed part therefore cannot mistake the new one for it.
    pub next_rev: u64,
    /// The readings; only those of a chunk may have stamps. An empty set claims the part for a writer that is about to
    /// fold pages; `None` removes the part.
    pub readings: Option<&'a Readings>,
    /// The summaries of expired readings. If set, `readings` is empty and has the part's floor.
    pub expired: Option<&'a ExpiredDay>,
}

impl<'a> DayWrite<'a> {
    /// A write that replaces a stored part.
    #[must_use]
    pub fn again(id: &'a DayId, rev: u64, readings: &'a Readings, expired: Option<&'a ExpiredDay>) -> Self {
        Self { id, rev, next_rev: rev + 1, readings: Some(readings), expired }
    }

    /// A write that removes a stored part.
    #[must_use]
    pub fn removal(id: &'a DayId, rev: u64) -> Self {
        Self { id, rev, next_rev: rev + 1, readings: None, expired: None }
    }
}

/// The reason that a day cannot be sealed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsealable {
    /// A cell is above the floor, so an older value for it may still be unflushed.
    Unsettled,
    /// The part would exceed its [`PartBounds`].
    Large,
}

/// Maximum size of a part for a whole day, in bytes as stored in pages. Texts may not compress, and a MongoDB document
/// has at most 16 MiB.
pub const BYTES_MAX: usize = 12 << 20;
/// Maximum number of cells of a part for a whole day, empty ones included.
pub const CELLS_MAX: usize = 1 << 18;
/// Maximum number of cells of a part for an hour, empty ones included: four fields, a hundred times per second. Readers
/// reject more.
pub const HOUR_CELLS_MAX: usize = 6 << 18;
/// Maximum size of a part for an hour, in bytes as stored in pages. The part is packed before it is stored, and readers
/// reject more than 64 MiB.
pub const HOUR_BYTES_MAX: usize = 48 << 20;

/// Maximum size of the readings of a plain part, in bytes as stored in pages: about 300 readings of two fields. A plain
/// part has its readings as a page has them on MongoDB, and no hourly summaries.
const PLAIN_BYTES_MAX: usize = 16 << 10;

/// Returns true if a part with these readings is plain. So few readings take less space than hourly summaries of them,
/// and are read as quickly.
#[must_use]
pub fn is_plain(readings: &Readings) -> bool {
    readings.bytes() <= PLAIN_BYTES_MAX
}

/// The maximum size of one part.
#[derive(Debug, Clone, Copy)]
pub struct PartBounds {
    /// Bytes as stored in pages.
    pub bytes: usize,
    /// Cells, empty ones included.
    pub cells: usize,
}

impl PartBounds {
    /// The bounds of a part for a whole day.
    pub const DAY: Self = Self { bytes: BYTES_MAX, cells: CELLS_MAX };
    /// The bounds of a part for an hour.
    pub const HOUR: Self = Self { bytes: HOUR_BYTES_MAX, cells: HOUR_CELLS_MAX };
}

/// Folds pages and parts into one set, and settles all its cells at `floor`.
///
/// # Errors
/// [`Unsealable`] if a stamp is above the floor, or the result exceeds the bounds.
pub fn fold<'a>(
    sets: impl Iterator<Item = &'a Readings>,
    floor: Stamp,
    bounds: PartBounds,
) -> Result<Readings, Unsealable> {
    let mut all = Readings::default();
    for set in sets {
        // Of sets with different fields, the union has many more cells than both.
        if all.bytes() + set.bytes() > 2 * bounds.bytes || all.cells_with(set) > 2 * bounds.cells {
            return Err(Unsealable::Large);
        }
        if set.stamps().greatest() > floor {
            return Err(Unsealable::Unsettled);
        }
        all.unite(set);
    }
    if all.cell_count() > bounds.cells || all.bytes() > bounds.bytes {
        return Err(Unsealable::Large);
    }
    all.raise_floor(floor);
    Ok(all)
}

/// The tolerated difference between the clocks of instances, in nanoseconds. Within it, no query misses a part, and no
/// page settles beside one.
const CLOCKS_NS: i64 = 600 * 1_000_000_000;

/// Returns true if the hour may be in a part of a sealed day at the time `now`, in nanoseconds. No instance seals a day
/// before the day is over by its own clock.
#[must_use]
pub fn may_be_sealed(hour: Hour, now: i64) -> bool {
    hour < Day::from_hour(Hour::from_ns(now.saturating_add(CLOCKS_NS))).hours().start
}

/// Divides the readings of a day by hour.
#[must_use]
pub fn by_hour(readings: Readings) -> Vec<(Hour, Readings)> {
    readings.parts(Hour::from_ns)
}

/// Merges hour pages with the parts of days, both ordered by hour. The result is ordered by hour. An hour of a part
/// that also has other pages becomes one page with the union; all pages of such an hour must have their readings.
#[must_use]
pub fn unite(pages: Vec<ScannedPage>, sealed: Vec<ScannedPage>) -> Vec<ScannedPage> {
    if sealed.is_empty() {
        return pages;
    }
    if pages.is_empty() && sealed.is_sorted_by(|a, b| a.hour < b.hour) {
        return sealed;
    }
    let mut united: Vec<ScannedPage> = Vec::with_capacity(pages.len() + sealed.len());
    let mut pages = pages.into_iter().peekable();
    let mut sealed = sealed.into_iter().peekable();
    while let Some(hour) = sealed.peek().map(|page| page.hour) {
        united.extend(std::iter::from_fn(|| pages.next_if(|page| page.hour < hour)));
        // Pages come first, so that the order of fields is the same as without parts.
        let mut all = std::iter::from_fn(|| pages.next_if(|page| page.hour == hour))
            .chain(std::iter::from_fn(|| sealed.next_if(|page| page.hour == hour)));
        let Some(mut one) = all.next() else { break };
        let mut several: Option<Readings> = None;
        for other in all {
            one.oldest = one.oldest.min(other.oldest);
            if let (Some(held), Some(more)) = (&one.readings, &other.readings) {
                several.get_or_insert_with(|| held.explicit()).unite(more);
            }
        }
        if let Some(readings) = several {
            one.summary = readings.owned_summaries().into();
            one.readings = Some(readings);
        }
        united.push(one);
    }
    united.extend(pages);
    united
}

/// Removes all other pages of hours whose readings have expired, and keeps the summaries. Nothing can be added to those
/// hours: admission rejects later readings of them.
pub fn keep_expired(pages: &mut Vec<ScannedPage>, sealed: &mut Vec<ScannedPage>) {
    let expired: BTreeSet<Hour> = sealed.iter().filter(|page| page.is_expired).map(|page| page.hour).collect();
    if !expired.is_empty() {
        pages.retain(|page| !expired.contains(&page.hour));
        sealed.retain(|page| page.is_expired || !expired.contains(&page.hour));
    }
}

/// The hours of a day that lie in a range of hours.
#[must_use]
pub fn hours_in_range(day: Day, hours: &Range<Hour>) -> Range<Hour> {
    let day_hours = day.hours();
    day_hours.start.max(hours.start)..day_hours.end.min(hours.end)
}

/// The hours that appear in a part and also in another part or a page, in order.
#[must_use]
pub fn duplicate_hours(pages: &[ScannedPage], sealed: &[ScannedPage]) -> Vec<Hour> {
    let twice = sealed.windows(2).filter(|pair| pair[0].hour == pair[1].hour).map(|pair| pair[0].hour);
    let mut several: BTreeSet<Hour> = twice.collect();
    // History has almost no hour pages.
    if pages.is_empty() {
        return several.into_iter().collect();
    }
    let sealed: BTreeSet<Hour> = sealed.iter().map(|page| page.hour).collect();
    several.extend(pages.iter().map(|page| page.hour).filter(|hour| sealed.contains(hour)));
    several.into_iter().collect()
}

#[cfg(test)]
mod tests;
