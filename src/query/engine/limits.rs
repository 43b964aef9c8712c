//! Limits on a query: the span of time and the number of sensors it covers.

use std::ops::Range;
use std::time::Duration;

use super::Engine;
use crate::clock::now_ns;
use crate::query::QueryError;
use crate::reading::time::TIMESTAMP_MIN;

/// The span of time that a query covers so far. A range without a start is as long as the readings found in it.
#[derive(Debug)]
pub struct TimeSpan {
    limit: Duration,
    ends: Option<(i64, i64)>,
}

impl TimeSpan {
    /// Notes that there is a reading somewhere in this stretch.
    ///
    /// # Errors
    /// If it is too far from an earlier one even where both lie at the nearest ends of their stretches.
    pub fn sees(&mut self, stretch: &Range<i64>) -> Result<(), QueryError> {
        self.reach(stretch.end.saturating_sub(1), stretch.start)
    }

    /// Adds the span of another read.
    ///
    /// # Errors
    /// If both together are too long.
    pub fn join(&mut self, other: &Self) -> Result<(), QueryError> {
        other.ends.map_or(Ok(()), |(first, last)| self.reach(first, last))
    }

    fn reach(&mut self, first: i64, last: i64) -> Result<(), QueryError> {
        let (known_first, known_last) = self.ends.unwrap_or((i64::MAX, i64::MIN));
        let (first, last) = (first.min(known_first), last.max(known_last));
        self.ends = Some((first, last));
        if is_longer(first, last, self.limit) { Err(QueryError::TooLong { limit: self.limit }) } else { Ok(()) }
    }

    /// Notes readings, which are in time order.
    ///
    /// # Errors
    /// As [`TimeSpan::sees`].
    pub fn sees_all(&mut self, times: &[i64]) -> Result<(), QueryError> {
        let ends = times.first().into_iter().chain(times.last());
        ends.copied().try_for_each(|time| self.sees(&(time..time.saturating_add(1))))
    }
}

impl Engine {
    /// Checks the length of a range that has a start; its end is at most now.
    ///
    /// # Errors
    /// If it is too long.
    pub fn span(&self, range: &Range<i64>) -> Result<TimeSpan, QueryError> {
        let mut span = TimeSpan { limit: self.options.span_max, ends: None };
        if range.start > TIMESTAMP_MIN {
            span.reach(range.start, range.end.min(now_ns()))?;
        }
        Ok(span)
    }

    /// Checks the number of sensors.
    ///
    /// # Errors
    /// If there are too many.
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
        let mut span = TimeSpan { limit, ends: None };
        for (stretch, fits) in [(0..6, true), (15..20, true), (6..7, true), (16..17, false)] {
            assert_eq!(span.sees(&stretch).is_ok(), fits, "{stretch:?}");
        }
        assert!(span.join(&TimeSpan { limit, ends: Some((6, 14)) }).is_err(), "a span that is too long stays too long");
        let mut both = TimeSpan { limit, ends: Some((20, 24)) };
        assert!(both.join(&TimeSpan { limit, ends: None }).is_ok());
        assert!(both.join(&TimeSpan { limit, ends: Some((14, 16)) }).is_ok());
        assert!(both.join(&TimeSpan { limit, ends: Some((13, 13)) }).is_err(), "together with both earlier spans");
        assert!(is_longer(i64::MIN, i64::MAX, Duration::from_secs(u64::MAX / 1_000_000_000)));
    }
}
