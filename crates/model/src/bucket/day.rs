//! Days: all readings of one sensor and UTC day, packed together once the day is long over. Hour pages are right for what is
//! hot; history takes a tenth of their space in this form.
//!
//! A day is stored in parts: one for the whole day, or one per hour where the day is too large for that, and chunks, in which
//! readings of long-over days arrive (backfill) until sealing folds them into the others. The readings of a day are the
//! union of its parts and of the hour pages that stand beside them.
//!
//! **The union goes by stamps.** A settled cell counts as old as the floor of its page or part. That is exact, because of three
//! rules:
//!
//! * The floor of a page that may stand beside a part is never raised ([`may_be_sealed`]): a cell that comes to such a page
//!   keeps its stamp, which is above the floor of every part that was folded without it.
//! * Only folding settles cells of parts, at a floor that no stamp of what it folded exceeds. What it folded and could not remove is older,
//!   or equal.
//! * Where others may delete meanwhile, a part that is not stored yet is claimed, by an empty one, before anything is read that
//!   is to be folded into it; of a stored one the rev is. A deletion removes claims, and writes every part of its range
//!   anew, changed or not: an instance that read something before it was cut, and folds it into that part, fails to write it.
//!
//! Readings only move on, from pages and chunks to the part for the whole day, and from all of these to parts by hour
//! ([`DayPart::stage`]). So a deletion cuts pages first and then the parts stage by stage, and lists each stage only after everything
//! before it is cut. Who read a source before that had its target claimed, or knew its rev, by then: the listing meets the
//! target, and either it is written before it is cut, or its writer fails. One listing for all stages would miss a target that was claimed
//! after it, and filled from a source that was cut, or gone, only later.
//!
//! Sealing is merging: the pages and chunks are folded, the part is written by compare-and-set, and only then is each of them
//! removed by its rev. Whatever happens between, readings are in both, which is a union.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::expired::ExpiredDay;
use super::readings::Readings;
use super::stored::ScannedPage;
use crate::reading::{Day, Hour, Sensor, Stamp};

/// Which part of a sensor's day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DayPart {
    /// The whole day.
    Whole,
    /// An hour (0 to 23) of a day that is too large for one part.
    Hour(u8),
    /// Readings that came when the day was long over, and are not folded yet.
    Chunk {
        /// The greatest stamp of its readings, which makes it the only chunk of this name.
        stamp: Stamp,
        /// The hour of its first reading (0 to 23): the readings of one record may be in several chunks.
        hour: u8,
    },
}

impl DayPart {
    /// Whether it is a chunk.
    #[must_use]
    pub fn is_chunk(self) -> bool {
        matches!(self, Self::Chunk { .. })
    }

    /// The last stage that readings come to.
    pub const LAST_STAGE: u8 = 2;

    /// How far its readings have come: they move only from parts of one stage to parts of a later one.
    #[must_use]
    pub fn stage(self) -> u8 {
        match self {
            Self::Chunk { .. } => 0,
            Self::Whole => 1,
            Self::Hour(_) => Self::LAST_STAGE,
        }
    }

    /// The hours that it may have readings of.
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
    /// The readings, all settled but in a chunk. Of a part whose readings have expired an empty set with the part's floor.
    pub readings: Readings,
    /// What is left of a part whose readings have expired.
    pub expired: Option<ExpiredDay>,
}

impl StoredDay {
    /// Whether it has no readings and no summaries: it is a claim, or everything of it was deleted.
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
    /// The rev that the part has after the write: one more, or for a part never stored a number that no other writer chooses.
    /// A writer that still knows a removed part can then not mistake a new one for it.
    pub next_rev: u64,
    /// The readings; only those of a chunk may have stamps. An empty set claims the part for a writer that is about to fold
    /// pages; `None` removes it.
    pub readings: Option<&'a Readings>,
    /// What is kept of readings that have expired; the set of readings is then empty, and has the part's floor.
    pub expired: Option<&'a ExpiredDay>,
}

impl<'a> DayWrite<'a> {
    /// Writes a stored part again.
    #[must_use]
    pub fn again(id: &'a DayId, rev: u64, readings: &'a Readings, expired: Option<&'a ExpiredDay>) -> Self {
        Self { id, rev, next_rev: rev + 1, readings: Some(readings), expired }
    }

    /// Removes a stored part.
    #[must_use]
    pub fn removal(id: &'a DayId, rev: u64) -> Self {
        Self { id, rev, next_rev: rev + 1, readings: None, expired: None }
    }
}

/// Why a day cannot be sealed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsealable {
    /// A cell is above the floor: it may yet turn out to be older than another one that is not flushed.
    Unsettled,
    /// The part would be larger than a document may be.
    Large,
}

/// The largest part: its bytes as pages take them. Texts may not compress, and a document of MongoDB has at most 16 MiB.
pub const BYTES_MAX: usize = 12 << 20;
/// The most cells of a part for a whole day, empty ones included.
pub const CELLS_MAX: usize = 1 << 18;
/// The same for an hour: four fields, a hundred times a second. Readers take no more either.
pub const HOUR_CELLS_MAX: usize = 6 << 18;
/// The most bytes of an hour: they are packed before they are stored. A reader takes no more than 64 MiB.
pub const HOUR_BYTES_MAX: usize = 48 << 20;

/// How much one part may hold.
#[derive(Debug, Clone, Copy)]
pub struct PartBounds {
    /// Bytes as pages take them.
    pub bytes: usize,
    /// Cells, empty ones included.
    pub cells: usize,
}

impl PartBounds {
    /// Those of a part for a whole day.
    pub const DAY: Self = Self { bytes: BYTES_MAX, cells: CELLS_MAX };
    /// Those of a part for an hour.
    pub const HOUR: Self = Self { bytes: HOUR_BYTES_MAX, cells: HOUR_CELLS_MAX };
}

/// Folds pages and parts into one set, all settled.
///
/// # Errors
/// [`Unsealable`]
pub fn fold<'a>(
    sets: impl Iterator<Item = &'a Readings>,
    floor: Stamp,
    bounds: PartBounds,
) -> Result<Readings, Unsealable> {
    let mut all = Readings::default();
    for set in sets {
        let cells = all.cells_in_all() + set.cells_in_all();
        if all.bytes() + set.bytes() > 2 * bounds.bytes || cells > 2 * bounds.cells {
            return Err(Unsealable::Large);
        }
        if set.stamps().greatest() > floor {
            return Err(Unsealable::Unsettled);
        }
        all.unite(set);
    }
    if all.cells_in_all() > bounds.cells || all.bytes() > bounds.bytes {
        return Err(Unsealable::Large);
    }
    all.raise_floor(floor);
    Ok(all)
}

/// How far clocks may be apart, in nanoseconds, without a query missing a part, or a page settling beside one.
const CLOCKS_NS: i64 = 600 * 1_000_000_000;

/// Whether an hour may be in a part now, a time in nanoseconds: no day is sealed before it is over, by any instance's
/// clock.
#[must_use]
pub fn may_be_sealed(hour: Hour, now: i64) -> bool {
    hour < Day::of(Hour::of(now.saturating_add(CLOCKS_NS))).hours().start
}

/// The readings of a day by hour.
#[must_use]
pub fn by_hour(readings: Readings) -> Vec<(Hour, Readings)> {
    readings.parts(Hour::of)
}

/// Lays hour pages and the parts of days over each other: the pages of both, in order of hours, and one page with
/// the union for each hour that a part has and something else, too. All pages of such an hour must have their readings. `sealed`
/// is in order of hours, as `pages` is.
#[must_use]
pub fn unite(pages: Vec<ScannedPage>, sealed: Vec<ScannedPage>) -> Vec<ScannedPage> {
    if sealed.is_empty() {
        return pages;
    }
    if pages.is_empty() && sealed.is_sorted_by(|a, b| a.hour < b.hour) {
        return sealed;
    }
    let mut united: Vec<ScannedPage> = Vec::with_capacity(pages.len() + sealed.len());
    let (mut pages, mut sealed) = (pages.into_iter().peekable(), sealed.into_iter().peekable());
    while let Some(hour) = sealed.peek().map(|page| page.hour) {
        united.extend(std::iter::from_fn(|| pages.next_if(|page| page.hour < hour)));
        // The pages first: their fields come first, as if there were no parts.
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

/// Leaves of hours whose readings have expired only what was kept of them. Nothing can be added to that, and what came later
/// should have been refused.
pub fn keep_expired(pages: &mut Vec<ScannedPage>, sealed: &mut Vec<ScannedPage>) {
    let expired: BTreeSet<Hour> = sealed.iter().filter(|page| page.is_expired).map(|page| page.hour).collect();
    if !expired.is_empty() {
        pages.retain(|page| !expired.contains(&page.hour));
        sealed.retain(|page| page.is_expired || !expired.contains(&page.hour));
    }
}

/// The hours of a day that lie in a range of hours.
#[must_use]
pub fn within(day: Day, hours: &Range<Hour>) -> Range<Hour> {
    let of_day = day.hours();
    of_day.start.max(hours.start)..of_day.end.min(hours.end)
}

/// The hours that a part has and something else, too, in order.
#[must_use]
pub fn in_several(pages: &[ScannedPage], sealed: &[ScannedPage]) -> Vec<Hour> {
    let twice = sealed.windows(2).filter(|pair| pair[0].hour == pair[1].hour).map(|pair| pair[0].hour);
    let mut several: BTreeSet<Hour> = twice.collect();
    // As nearly always in history.
    if pages.is_empty() {
        return several.into_iter().collect();
    }
    let sealed: BTreeSet<Hour> = sealed.iter().map(|page| page.hour).collect();
    several.extend(pages.iter().map(|page| page.hour).filter(|hour| sealed.contains(hour)));
    several.into_iter().collect()
}

#[cfg(test)]
mod tests;
