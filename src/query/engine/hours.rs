//! The hours of a range, and what is acked of each: its stored pages with what is not flushed yet laid over.

use std::borrow::Cow;
use std::ops::Range;

use super::Unflushed;
use crate::bucket::store::ScannedPage;
use crate::bucket::{Readings, UnflushedHour};
use crate::reading::Hour;

/// The hours that a range of nanoseconds touches.
pub fn hours_of(range: &Range<i64>) -> Range<Hour> {
    if range.is_empty() {
        return Hour(0)..Hour(0);
    }
    Hour::of(range.start)..Hour::of(range.end - 1).next()
}

/// The hours before `scanned` of stored pages and of unflushed readings, in order, each with what
/// there is of either; the unflushed ones are taken out.
pub fn by_hour<'a>(
    pages: &'a [ScannedPage],
    unflushed: &mut Unflushed,
    scanned: Hour,
) -> Vec<(Hour, &'a [ScannedPage], Option<UnflushedHour>)> {
    let rest = unflushed.split_off(&scanned);
    let taken = std::mem::replace(unflushed, rest);
    beside(pages, taken)
}

/// Stored pages, an hour's together, and unflushed readings: in order of the hours, each with what there is of either.
pub fn beside(pages: &[ScannedPage], mut unflushed: Unflushed) -> Vec<(Hour, &[ScannedPage], Option<UnflushedHour>)> {
    let mut hours: Vec<_> = pages
        .chunk_by(|a, b| a.hour == b.hour)
        .map(|pages| (pages[0].hour, pages, unflushed.remove(&pages[0].hour)))
        .collect();
    hours.extend(unflushed.into_iter().map(|(hour, readings)| (hour, &pages[..0], Some(readings))));
    hours.sort_by_key(|(hour, ..)| *hour);
    hours
}

/// The readings of one hour: those of its pages, and over them, by the stamps, what is not flushed yet. Pages share no
/// timestamp; should a page have been split while they were read, both have the same of it.
pub fn overlay<'a>(pages: &'a [ScannedPage], unflushed: Option<&UnflushedHour>) -> Cow<'a, Readings> {
    let mut sets: Vec<&Readings> = pages.iter().filter_map(|page| page.readings.as_ref()).collect();
    // One behind the other they are merged by appending.
    sets.sort_by_key(|set| set.times().first().copied());
    let unflushed = unflushed.map(UnflushedHour::readings);
    match (&*sets, unflushed) {
        ([], unflushed) => Cow::Owned(unflushed.unwrap_or_default()),
        ([only], None) => Cow::Borrowed(*only),
        ([first, rest @ ..], unflushed) => {
            let mut all = (*first).clone();
            for set in rest.iter().copied().chain(&unflushed) {
                all.merge_set(set);
            }
            Cow::Owned(all)
        }
    }
}
