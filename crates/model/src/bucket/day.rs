//! A sealed day: all readings of one sensor and UTC day, packed together once the day is long over. Hour pages are right
//! for what is hot; history takes a tenth of their space in this form.
//!
//! Sealing is merging: the readings of the hour pages are folded into the day, the day is written by compare-and-set, and
//! only then is each page removed by its rev. Whatever happens between, readings are in both, which is a union. Three
//! rules make that union exact without stamps per cell:
//!
//! * A day holds settled cells only: every stamp is at or below its floor, which no WAL's unflushed readings are.
//! * Where others may delete meanwhile, a day that is not stored yet is claimed, by an empty one, before its pages are read.
//!   A deletion cuts pages first and days second, and removes claims: an instance that read a page before it was cut fails
//!   to write the day.
//! * Only folding hour pages adds readings to a day. A page that stands beside a day was therefore either folded into it as
//!   it is, or has newer cells: **where both have a cell, the page's is the later one**.

use std::ops::Range;
use std::sync::Arc;

use super::page::StoredPage;
use super::readings::Readings;
use super::store::ScannedPage;
use crate::reading::{Day, Hour, Sensor, Stamp};

/// Identifies a sealed day: a sensor and a day.
#[derive(Debug, Clone, PartialEq)]
pub struct DayId {
    /// The sensor whose readings the day holds.
    pub sensor: Arc<Sensor>,
    /// The day.
    pub day: Day,
}

/// A sealed day as read from a store.
#[derive(Debug, Clone)]
pub struct StoredDay {
    /// The revision. It grows by one with every write, and every write names the rev that it expects.
    pub rev: u64,
    /// The readings, all settled.
    pub readings: Readings,
}

/// A day to be written by compare-and-set.
#[derive(Debug, Clone)]
pub struct DayWrite<'a> {
    /// The day's id.
    pub id: &'a DayId,
    /// The rev that the store must hold; 0 for a day never stored.
    pub rev: u64,
    /// The rev that the day has after the write: one more, or for a day never stored a number that no other writer chooses.
    /// A writer that still knows a removed day can then not mistake a new one for it.
    pub next_rev: u64,
    /// The readings, all settled. An empty set claims the day for a writer that is about to fold pages; `None` removes it.
    pub readings: Option<&'a Readings>,
}

/// Why a day cannot be sealed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsealable {
    /// A cell is above the floor: it may yet turn out to be older than another one that is not flushed.
    Unsettled,
    /// A page's readings were left out, or the day would be larger than a document may be.
    Large,
}

/// The largest day: its bytes as pages take them, and its cells, empty ones included. A larger one stays in hour pages.
const BYTES_MAX: usize = 16 << 20;
const CELLS_MAX: usize = 1 << 18;

/// Folds hour pages into what a day holds already.
///
/// # Errors
/// [`Unsealable`]
pub fn fold<'a>(
    held: Option<&StoredDay>,
    pages: impl Iterator<Item = &'a StoredPage>,
    floor: Stamp,
) -> Result<Readings, Unsealable> {
    let mut all = held.map(|day| day.readings.clone()).unwrap_or_default();
    let floor = floor.max(all.stamps().floor());
    all.lay_over(&Readings::default(), floor);
    for page in pages {
        let cells = all.cells_in_all() + page.readings.cells_in_all();
        if page.left_out.is_some() || all.bytes() + page.readings.bytes() > BYTES_MAX || cells > CELLS_MAX {
            return Err(Unsealable::Large);
        }
        if page.readings.stamps().greatest() > floor {
            return Err(Unsealable::Unsettled);
        }
        all.lay_over(&page.readings, floor);
    }
    if all.cells_in_all() > CELLS_MAX { Err(Unsealable::Large) } else { Ok(all) }
}

/// Whether an hour may be in a sealed day now, a time in nanoseconds: no day is sealed before it is over, by any instance's
/// clock.
#[must_use]
pub fn may_be_sealed(hour: Hour, now: i64) -> bool {
    let lately = Hour(Hour::of(now).0 - 1);
    hour < Day::of(lately).hours().start
}

/// The readings of a day by hour.
#[must_use]
pub fn by_hour(readings: Readings) -> Vec<(Hour, Readings)> {
    readings.parts(Hour::of)
}

/// Lays hour pages over what sealed days have of the same hours: the pages of both, in order of hours, and one page with
/// the union for each hour that both have. All pages of such an hour must have their readings.
#[must_use]
pub fn unite(pages: Vec<ScannedPage>, sealed: Vec<ScannedPage>) -> Vec<ScannedPage> {
    if sealed.is_empty() {
        return pages;
    }
    let mut united: Vec<ScannedPage> = Vec::with_capacity(pages.len() + sealed.len());
    let mut pages = pages.into_iter().peekable();
    for mut day in sealed {
        united.extend(std::iter::from_fn(|| pages.next_if(|page| page.hour < day.hour)));
        let mut newer: Option<Readings> = None;
        while let Some(page) = pages.next_if(|page| page.hour == day.hour) {
            day.oldest = day.oldest.min(page.oldest);
            match (&mut newer, page.readings) {
                (Some(newer), Some(more)) => drop(newer.merge_set(&more)),
                (newer, more) => *newer = more,
            }
        }
        if let (Some(mut newer), Some(older)) = (newer, &day.readings) {
            newer.fill_from(older);
            day.summary = newer.owned_summaries();
            day.readings = Some(newer);
        }
        united.push(day);
    }
    united.extend(pages);
    united
}

/// The hours of a day that lie in a range of hours.
#[must_use]
pub fn within(day: Day, hours: &Range<Hour>) -> Range<Hour> {
    let of_day = day.hours();
    of_day.start.max(hours.start)..of_day.end.min(hours.end)
}

/// The hours that both hour pages and sealed days have, in order.
#[must_use]
pub fn in_both(pages: &[ScannedPage], sealed: &[ScannedPage]) -> Vec<Hour> {
    let sealed: std::collections::BTreeSet<Hour> = sealed.iter().map(|page| page.hour).collect();
    let mut both: Vec<Hour> = pages.iter().map(|page| page.hour).filter(|hour| sealed.contains(hour)).collect();
    both.dedup();
    both
}

#[cfg(test)]
mod tests;
