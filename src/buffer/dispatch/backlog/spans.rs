//! The hours of one sensor, with the last record that is about them.

use std::ops::Range;

use crate::reading::Hour;
use crate::wal::Sequence;

/// Most spans of a sensor. Beyond it, the spans with the smallest gap are merged: queries about the hours in the gap
/// may wait without need, and no hour is lost.
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
    /// Adds hours that a record is about; removes spans of records up to `given`.
    pub fn add(&mut self, hours: Range<Hour>, sequence: Sequence, given: Sequence) {
        // Usually these are the hours of the record before.
        if let [span] = &mut *self.0
            && span.through > given
            && span.hours.start <= hours.start
            && hours.end <= span.hours.end
        {
            span.through = span.through.max(sequence);
            return;
        }
        self.0.retain(|span| span.through > given);
        if self.0.is_empty() {
            self.0.reserve_exact(1);
        }
        let at = self.0.partition_point(|span| span.hours.start < hours.start);
        self.0.insert(at, HourSpan { hours, through: sequence });
        self.0.dedup_by(|later, before| later.hours.start <= before.hours.end && before.unite(later));
        while self.0.len() > SPANS_MAX {
            let gap = |at: &usize| self.0[at + 1].hours.start.0.saturating_sub(self.0[*at].hours.end.0);
            let Some(at) = (0..self.0.len() - 1).min_by_key(gap) else { return };
            let later = self.0.remove(at + 1);
            self.0[at].unite(&later);
        }
    }

    /// Whether a record behind `given` is about any of these hours.
    pub fn are_open(&self, hours: &Range<Hour>, given: Sequence) -> bool {
        let touches = |span: &HourSpan| span.hours.start < hours.end && hours.start < span.hours.end;
        self.0.iter().any(|span| span.through > given && touches(span))
    }

    /// The last record that is about any of the spans.
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
    fn hours_that_touch_are_one_span_and_those_apart_are_not() {
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
    fn what_is_given_is_open_no_more_and_the_rest_is() {
        let mut spans = spans(&[(1..2, 1), (5..6, 2), (9..10, 3)]);
        let open = |spans: &HourSpans, given| [1, 3, 5, 9].map(|at| spans.are_open(&hours(at..at + 1), given));
        assert_eq!(open(&spans, 0), [true, false, true, true]);
        assert_eq!(open(&spans, 2), [false, false, false, true]);
        assert!(spans.are_open(&(Hour(i64::MIN)..Hour(i64::MAX)), 2) && !spans.are_open(&hours(3..3), 0));
        spans.add(hours(20..21), 4, 2);
        assert_eq!((spans.0.len(), spans.through()), (2, 4), "those given are gone");
    }

    #[test]
    fn there_are_never_many_spans_and_none_is_lost() {
        let added: Vec<_> = (0..100).map(|at: u64| ((at * at) as i64..(at * at) as i64 + 1, at + 1)).collect();
        let spans = spans(&added);
        assert_eq!(spans.0.len(), SPANS_MAX);
        assert!(spans.0.windows(2).all(|pair| pair[0].hours.end < pair[1].hours.start), "{spans:?}");
        assert!(added.iter().all(|(range, sequence)| spans.are_open(&hours(range.clone()), sequence - 1)));
    }
}
