//! How much a question may be about: a span of time and a number of sensors.

use std::ops::Range;
use std::time::Duration;

use super::Engine;
use crate::clock::now_ns;
use crate::query::QueryError;
use crate::reading::time::TIMESTAMP_MIN;

/// The times that were asked for or met so far. A range without a beginning is as long as what is found in it.
#[derive(Debug)]
pub struct Span {
    limit: Duration,
    ends: Option<(i64, i64)>,
}

impl Span {
    /// Takes note that there is a reading somewhere in this stretch.
    ///
    /// # Errors
    /// When it lies too far from one seen before, wherever in its stretch each of them is.
    pub fn sees(&mut self, stretch: &Range<i64>) -> Result<(), QueryError> {
        self.reach(stretch.end.saturating_sub(1), stretch.start)
    }

    /// Takes in what another is about.
    ///
    /// # Errors
    /// When both together are too long.
    pub fn join(&mut self, other: &Self) -> Result<(), QueryError> {
        other.ends.map_or(Ok(()), |(first, last)| self.reach(first, last))
    }

    fn reach(&mut self, first: i64, last: i64) -> Result<(), QueryError> {
        let (known_first, known_last) = self.ends.unwrap_or((i64::MAX, i64::MIN));
        let (first, last) = (first.min(known_first), last.max(known_last));
        self.ends = Some((first, last));
        if is_longer(first, last, self.limit) { Err(QueryError::TooLong { limit: self.limit }) } else { Ok(()) }
    }

    /// Takes note of readings in time order.
    ///
    /// # Errors
    /// As [`Span::sees`].
    pub fn sees_all(&mut self, times: &[i64]) -> Result<(), QueryError> {
        let ends = times.first().into_iter().chain(times.last());
        ends.copied().try_for_each(|time| self.sees(&(time..time.saturating_add(1))))
    }
}

impl Engine {
    /// Judges a range by its beginning, if it has one, and its end, or now where that comes first.
    ///
    /// # Errors
    /// When it is too long.
    pub fn span(&self, range: &Range<i64>) -> Result<Span, QueryError> {
        let mut span = Span { limit: self.options.span_max, ends: None };
        if range.start > TIMESTAMP_MIN {
            span.reach(range.start, range.end.min(now_ns()))?;
        }
        Ok(span)
    }

    /// Judges a number of sensors.
    ///
    /// # Errors
    /// When there are too many.
    pub fn check_sensors(&self, count: usize) -> Result<(), QueryError> {
        let limit = self.options.series_max;
        if count > limit { Err(QueryError::TooManySensors { count, limit }) } else { Ok(()) }
    }
}

fn is_longer(first: i64, last: i64, limit: Duration) -> bool {
    i128::from(last) - i128::from(first) > limit.as_nanos().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_what_lies_between_the_times_met() {
        let limit = Duration::from_nanos(10);
        let mut span = Span { limit, ends: None };
        for (stretch, fits) in [(0..6, true), (15..20, true), (6..7, true), (16..17, false)] {
            assert_eq!(span.sees(&stretch).is_ok(), fits, "{stretch:?}");
        }
        assert!(span.join(&Span { limit, ends: Some((6, 14)) }).is_err(), "what is too long stays so");
        let mut both = Span { limit, ends: Some((20, 24)) };
        assert!(both.join(&Span { limit, ends: None }).is_ok());
        assert!(both.join(&Span { limit, ends: Some((14, 16)) }).is_ok());
        assert!(both.join(&Span { limit, ends: Some((13, 13)) }).is_err(), "with both that came before");
        assert!(is_longer(i64::MIN, i64::MAX, Duration::from_secs(u64::MAX / 1_000_000_000)));
    }
}
