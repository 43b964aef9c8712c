//! Monthly documents with the totals of a sensor's days. A query over a year reads these instead of hundreds of days.
//!
//! Totals are derived from the parts of days, and stored only to save time. **They are never used if a part is newer**,
//! because of three rules:
//!
//! * A writer claims a month with an empty document before it reads the parts, and fills it by compare-and-set.
//! * After a part is written or removed, its month is removed, before any source of the part is removed: hour pages,
//!   chunks, WAL records and remembered deletions.
//! * A reader looks for such sources before it reads totals, and uses no totals of days with sources. A part that a
//!   deletion empties is first written empty and then removed, so that a deletion that is repeated after a crash finds
//!   it.
//!
//! So a reader that finds a month older than a part also finds the sources of the part, and reads the day's hours
//! instead.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::stored::ScannedPage;
use super::summary::Summary;
use crate::reading::{Day, Month};

/// Identifies a sensor's month.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MonthId {
    /// The sensor's key.
    pub sensor: Arc<str>,
    /// The month.
    pub month: Month,
}

/// The summaries of a day, by field.
pub type DaySummaries = Vec<(Arc<str>, Summary)>;

/// The totals of the days of a sensor's month.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MonthTotals {
    /// The summaries of the numeric fields over all readings of each day, in order of days.
    pub days: Vec<(Day, DaySummaries)>,
    /// Days with overlapping parts. They have no totals; queries read their hours.
    pub overlapping: Vec<Day>,
}

impl MonthTotals {
    /// Computes totals from the hours of parts, which are ordered by hour and have summaries.
    #[must_use]
    pub fn from_pages(pages: &[ScannedPage]) -> Self {
        let mut totals = Self::default();
        for day_pages in pages.chunk_by(|a, b| Day::from_hour(a.hour) == Day::from_hour(b.hour)) {
            let day = Day::from_hour(day_pages[0].hour);
            if day_pages.windows(2).any(|pair| pair[0].hour >= pair[1].hour) {
                totals.overlapping.push(day);
                continue;
            }
            let mut summaries = DaySummaries::new();
            for (name, summary) in day_pages.iter().flat_map(|page| &page.summary) {
                match summaries.iter_mut().find(|(held, _)| held == name) {
                    Some((_, held)) => held.unite(summary),
                    None => summaries.push((name.clone(), summary.clone())),
                }
            }
            totals.days.push((day, summaries));
        }
        totals
    }

    /// Keeps only these days. The days in `others` have data outside their parts, so they count as overlapping from now
    /// on, even if they had no totals.
    pub fn narrow(&mut self, days: &Range<Day>, others: impl IntoIterator<Item = Day>) {
        let all = self.overlapping.drain(..).chain(others);
        let overlapping: BTreeSet<Day> = all.filter(|day| days.contains(day)).collect();
        self.days.retain(|(day, _)| days.contains(day) && !overlapping.contains(day));
        self.overlapping = overlapping.into_iter().collect();
    }
}

/// A month as read from a store.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredMonth {
    /// The revision, different for every write of a month.
    pub rev: u64,
    /// The totals; `None` for a claim.
    pub totals: Option<MonthTotals>,
}

/// A month to be written by compare-and-set.
#[derive(Debug, Clone)]
pub struct MonthWrite<'a> {
    /// The month's id.
    pub id: &'a MonthId,
    /// The rev that the store must hold; 0 for a month that is not stored.
    pub rev: u64,
    /// The rev that the month has after the write: a number that no other writer chooses.
    pub next_rev: u64,
    /// The totals; `None` claims the month for a writer that is about to read its parts.
    pub totals: Option<&'a MonthTotals>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::{Hour, Value};

    fn page(hour: i64, value: f64) -> ScannedPage {
        let mut summary = Summary::fold(std::iter::once(&Value::Float(value))).expect("a number");
        summary.unite(&Summary::fold(std::iter::once(&Value::Float(value + 1.0))).expect("a number"));
        let summary = [(Arc::from("t"), summary)].into();
        ScannedPage { hour: Hour(hour), number: 0, summary, oldest: 0, readings: None, is_expired: false }
    }

    #[test]
    fn hours_add_up_unless_parts_overlap() {
        let totals =
            MonthTotals::from_pages(&[page(1, 1.0), page(5, 5.0), page(24, 0.0), page(24, 0.0), page(49, 9.0)]);
        let days: Vec<Day> = totals.days.iter().map(|(day, _)| *day).collect();
        assert_eq!((days, &*totals.overlapping), (vec![Day(0), Day(2)], &[Day(1)][..]));
        let figures = totals.days[0].1[0].1.figures();
        assert_eq!((figures.count, figures.min, figures.max), (4, Value::Float(1.0), Value::Float(6.0)));
        assert_eq!(
            (figures.sum, figures.first, figures.last),
            (Value::Float(14.0), Value::Float(1.0), Value::Float(6.0))
        );
    }

    #[test]
    fn a_day_with_other_data_counts_as_overlapping() {
        let mut totals =
            MonthTotals::from_pages(&[page(1, 1.0), page(24, 0.0), page(24, 0.0), page(49, 9.0), page(73, 9.0)]);
        totals.narrow(&(Day(0)..Day(3)), [Day(2), Day(3)]);
        assert_eq!(totals.days.iter().map(|(day, _)| *day).collect::<Vec<_>>(), [Day(0)]);
        assert_eq!(totals.overlapping, [Day(1), Day(2)]);
    }

    /// Regression: a day with hour pages only was in neither list, and counted as a day without readings.
    #[test]
    fn a_day_without_totals_counts_as_overlapping_if_it_has_data() {
        let mut totals = MonthTotals::from_pages(&[page(1, 1.0)]);
        totals.narrow(&(Day(0)..Day(31)), [Day(10)]);
        assert_eq!((totals.days.len(), &*totals.overlapping), (1, &[Day(10)][..]));
    }
}
