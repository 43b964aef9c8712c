//! Totals of days, a sensor's month together: what a question about a year reads instead of hundreds of days.
//!
//! Totals follow from the parts of days, and stores keep them only to save time. **They are never trusted when a part is
//! newer**, because of three rules:
//!
//! * A month is claimed, by an empty one, before its parts are read, and filled by compare-and-set.
//! * Who writes or removes a part removes its month afterwards, and before anything goes away that the part replaces or that
//!   stands for it: hour pages, chunks, records of the WAL, remembered deletions.
//! * Who reads totals has looked for those before, and takes no totals of a day that has some. A part that a deletion empties is
//!   written empty, and only then removed: a deletion that is tried again after a kill finds it.
//!
//! So a reader that finds a month older than a part also finds what the part was made of, and reads the day's hours instead.

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

/// Totals of the days of a sensor's month.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MonthTotals {
    /// In order of days: the summaries of the numeric fields over all readings of the day.
    pub days: Vec<(Day, DaySummaries)>,
    /// Days whose parts overlap: only their hours tell.
    pub overlapping: Vec<Day>,
}

impl MonthTotals {
    /// The totals of the hours of parts, which are in order of hours and have their summaries.
    #[must_use]
    pub fn of(pages: &[ScannedPage]) -> Self {
        let mut totals = Self::default();
        for of_day in pages.chunk_by(|a, b| Day::of(a.hour) == Day::of(b.hour)) {
            let day = Day::of(of_day[0].hour);
            if of_day.windows(2).any(|pair| pair[0].hour >= pair[1].hour) {
                totals.overlapping.push(day);
                continue;
            }
            let mut of_fields = DaySummaries::new();
            for (name, summary) in of_day.iter().flat_map(|page| &page.summary) {
                match of_fields.iter_mut().find(|(held, _)| held == name) {
                    Some((_, held)) => held.unite(summary),
                    None => of_fields.push((name.clone(), summary.clone())),
                }
            }
            totals.days.push((day, of_fields));
        }
        totals
    }

    /// Leaves only these days. Those in `others`, which have something beside their parts, or without one, count as overlapping from
    /// then on, whether the totals have them or not.
    pub fn narrow(&mut self, days: &Range<Day>, others: impl IntoIterator<Item = Day>) {
        let others: BTreeSet<Day> = self.overlapping.drain(..).chain(others).filter(|day| days.contains(day)).collect();
        self.days.retain(|(day, _)| days.contains(day) && !others.contains(day));
        self.overlapping = others.into_iter().collect();
    }
}

/// A month as read from a store.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredMonth {
    /// The revision. No two writes of a month have the same.
    pub rev: u64,
    /// The totals; `None` of a claim.
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
    use crate::bucket::readings::Readings;
    use crate::reading::{Hour, Value};

    fn page(hour: i64, value: f64) -> ScannedPage {
        let mut summary = Summary::fold(std::iter::once(&Value::Float(value))).expect("a number");
        summary.unite(&Summary::fold(std::iter::once(&Value::Float(value + 1.0))).expect("a number"));
        let (summary, readings) = ([(Arc::from("t"), summary)].into(), None::<Readings>);
        ScannedPage { hour: Hour(hour), number: 0, summary, oldest: 0, readings, is_expired: false }
    }

    #[test]
    fn hours_add_up_unless_one_is_there_twice() {
        let totals = MonthTotals::of(&[page(1, 1.0), page(5, 5.0), page(24, 0.0), page(24, 0.0), page(49, 9.0)]);
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
    fn a_day_that_has_something_else_is_read_by_hour() {
        let mut totals = MonthTotals::of(&[page(1, 1.0), page(24, 0.0), page(24, 0.0), page(49, 9.0), page(73, 9.0)]);
        totals.narrow(&(Day(0)..Day(3)), [Day(2), Day(3)]);
        assert_eq!(totals.days.iter().map(|(day, _)| *day).collect::<Vec<_>>(), [Day(0)]);
        assert_eq!(totals.overlapping, [Day(1), Day(2)]);
    }

    /// A day that had only hour pages was in neither list, and taken for one without readings.
    #[test]
    fn a_day_of_which_the_totals_say_nothing_is_read_by_hour_if_it_has_something() {
        let mut totals = MonthTotals::of(&[page(1, 1.0)]);
        totals.narrow(&(Day(0)..Day(31)), [Day(10)]);
        assert_eq!((totals.days.len(), &*totals.overlapping), (1, &[Day(10)][..]));
    }
}
