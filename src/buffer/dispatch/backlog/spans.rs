//! The hours of one sensor, with the last record that has readings in them.

use std::ops::Range;

use crate::reading::Hour;
use crate::wal::Sequence;

/// Maximum number of spans per sensor. Beyond it, the spans with the smallest gap are merged. No hour is lost, but
/// queries for the hours of the gap may wait without need.
const SPANS_MAX: usize = 8;

/// Spans of hours, sorted and disjoint.
#[derive(Debug, Default)]
pub struct HourSpans(Vec<HourSpan>);

#[derive(Debug, Clone, PartialEq)]
struct HourSpan {
    hours: Range<Hour>,
    through: Sequence,
}

impl HourSpans {
    /// Adds hours of a record, and removes the spans of records up to `dispatched`.
    pub fn add(&mut self, hours: Range<Hour>, sequence: Sequence, dispatched: Sequence) {
        // Usually the hours are those of the previous record.
        if let [span] = &mut *self.0
            && span.through > dispatched
            && span.hours.start <= hours.start
            && hours.end <= span.hours.end
        {
            span.through = span.through.max(sequence);
            return;
        }
        self.0.retain(|span| span.through > dispatched);
        if self.0.is_empty() {
            self.0.reserve_exact(1);
        }
        let index = self.0.partition_point(|span| span.hours.start < hours.start);
        self.0.insert(index, HourSpan { hours, through: sequence });
        self.0.dedup_by(|later, before| later.hours.start <= before.hours.end && before.unite(later));
        while self.0.len() > SPANS_MAX {
            let gap = |index: &usize| self.0[index + 1].hours.start.0.saturating_sub(self.0[*index].hours.end.0);
            let Some(index) = (0..self.0.len() - 1).min_by_key(gap) else { return };
            let later = self.0.remove(index + 1);
            self.0[index].unite(&later);
        }
    }

    /// Returns true if a record after `dispatched` may have readings in any of these hours.
    pub fn are_open(&self, hours: &Range<Hour>, dispatched: Sequence) -> bool {
        let touches = |span: &HourSpan| span.hours.start < hours.end && hours.start < span.hours.end;
        self.0.iter().any(|span| span.through > dispatched && touches(span))
    }

    /// Returns the last record of all spans.
    pub fn through(&self) -> Sequence {
        self.0.iter().map(|span| span.through).max().unwrap_or_default()
    }
}

impl HourSpan {
    fn unite(&mut self, later: &Self) -> bool {
        self.hours.end = self.hours.end.max(later.hours.end);
        self.through = self.through.max(later.through);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(hours: Range<i64>) -> Range<Hour> {
        Hour(hours.start)..Hour(hours.end)
    }

    fn spans(added: &[(Range<i64>, Sequence)]) -> HourSpans {
        let mut spans = HourSpans::default();
        added.iter().for_each(|(range, sequence)| spans.add(hours(range.clone()), *sequence, 0));
        spans
    }

    #[test]
    fn adjacent_hours_are_merged() {
        for (added, expected) in [
            (vec![(3..4, 1), (3..4, 2)], vec![(3..4, 2)]),
            (vec![(3..4, 1), (4..5, 2), (2..3, 3)], vec![(2..5, 3)]),
            (vec![(8..9, 1), (3..4, 2), (5..6, 3)], vec![(3..4, 2), (5..6, 3), (8..9, 1)]),
            (vec![(1..9, 7), (3..4, 2)], vec![(1..9, 7)]),
            (vec![(3..4, 7), (5..6, 2), (1..9, 3)], vec![(1..9, 7)]),
        ] {
            let found: Vec<_> = spans(&added).0.iter().map(|s| (s.hours.start.0..s.hours.end.0, s.through)).collect();
            assert_eq!(found, expected, "{added:?}");
        }
    }

    #[test]
    fn hours_of_dispatched_records_are_not_open() {
        let mut spans = spans(&[(1..2, 1), (5..6, 2), (9..10, 3)]);
        let open =
            |spans: &HourSpans, dispatched| [1, 3, 5, 9].map(|hour| spans.are_open(&hours(hour..hour + 1), dispatched));
        assert_eq!(open(&spans, 0), [true, false, true, true]);
        assert_eq!(open(&spans, 2), [false, false, false, true]);
        assert!(spans.are_open(&(Hour(i64::MIN)..Hour(i64::MAX)), 2) && !spans.are_open(&hours(3..3), 0));
        spans.add(hours(20..21), 4, 2);
        assert_eq!((spans.0.len(), spans.through()), (2, 4), "dispatched spans are removed");
    }

    #[test]
    fn the_number_of_spans_is_bounded_and_no_hour_is_lost() {
        let added: Vec<_> = (0..100).map(|n: u64| ((n * n) as i64..(n * n) as i64 + 1, n + 1)).collect();
        let spans = spans(&added);
        assert_eq!(spans.0.len(), SPANS_MAX);
        assert!(spans.0.windows(2).all(|pair| pair[0].hours.end < pair[1].hours.start), "{spans:?}");
        assert!(added.iter().all(|(range, sequence)| spans.are_open(&hours(range.clone()), sequence - 1)));
    }
}
