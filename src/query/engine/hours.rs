//! The hours of a range, and the acked readings of each: stored pages with unflushed readings merged in.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use crate::bucket::store::{Order, ScannedPage};
use crate::bucket::{Readings, UnflushedHour};
use crate::reading::Hour;
use crate::reading::time::MILLI_NS;

/// The unflushed readings of one sensor, by hour.
pub type UnflushedSensor = BTreeMap<Hour, UnflushedHour>;

pub fn hours_of(range: &Range<i64>) -> Range<Hour> {
    if range.is_empty() {
        return Hour(0)..Hour(0);
    }
    Hour::from_ns(range.start)..Hour::from_ns(range.end - 1).next()
}

/// The unflushed readings with these times.
pub fn within(unflushed: UnflushedSensor, times: &Range<i64>) -> UnflushedSensor {
    unflushed.into_iter().filter_map(|(hour, readings)| Some((hour, readings.within(times)?))).collect()
}

/// The hours before `scanned`, in order, each with its stored pages and its unflushed readings. Removes these from
/// `unflushed`.
pub fn by_hour<'a>(
    pages: &'a [ScannedPage],
    unflushed: &mut UnflushedSensor,
    scanned: Hour,
) -> Vec<(Hour, &'a [ScannedPage], Option<UnflushedHour>)> {
    let rest = unflushed.split_off(&scanned);
    let taken = std::mem::replace(unflushed, rest);
    beside(pages, taken)
}

/// Joins stored pages, those of an hour next to each other, and unflushed readings: in hour order, with what each hour
/// has of both.
pub fn beside(
    pages: &[ScannedPage],
    mut unflushed: UnflushedSensor,
) -> Vec<(Hour, &[ScannedPage], Option<UnflushedHour>)> {
    let mut hours: Vec<_> = pages
        .chunk_by(|a, b| a.hour == b.hour)
        .map(|pages| (pages[0].hour, pages, unflushed.remove(&pages[0].hour)))
        .collect();
    hours.extend(unflushed.into_iter().map(|(hour, readings)| (hour, &pages[..0], Some(readings))));
    hours.sort_by_key(|(hour, ..)| *hour);
    hours
}

/// The readings of one hour: those of its pages, merged by stamp with the unflushed ones. Pages share no timestamp; if
/// a page was split while they were read, both copies of a reading are equal.
pub fn overlay<'a>(pages: &'a [ScannedPage], unflushed: Option<&UnflushedHour>) -> Cow<'a, Readings> {
    let mut sets: Vec<&Readings> = pages.iter().filter_map(|page| page.readings.as_ref()).collect();
    // Sets that follow each other in time merge by appending.
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

/// Returns the first half of the selected times of an hour, or `None` if it would be shorter than a millisecond.
pub fn first_half(order: Order, hour: Hour, times: &Range<i64>) -> Option<Range<i64>> {
    let times = times.start.max(hour.start_ns())..times.end.min(hour.end_ns());
    let middle = times.start + (times.end - times.start) / 2;
    let half = match order {
        Order::Ascending => times.start..middle,
        Order::Descending => middle..times.end,
    };
    (half.end - half.start >= MILLI_NS).then_some(half)
}
