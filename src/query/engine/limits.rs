//! How much a question may be about: a span of time and a number of sensors.

use std::ops::Range;
use std::time::Duration;

use super::Engine;
use crate::clock::now_ns;
use crate::query::QueryError;
use crate::reading::time::TIMESTAMP_MIN;

/// Where readings were met so far. A range without a beginning is as long as what is found in it.
#[derive(Debug)]
pub struct Span {
    limit: Duration,
    met: Option<(i64, i64)>,
}

impl Span {
    /// Takes note that there is a reading somewhere in this stretch.
    ///
    /// # Errors
    /// When it lies too far from one seen before, wherever in its stretch each of them is.
    pub fn sees(&mut self, stretch: &Range<i64>) -> Result<(), QueryError> {
        let (first, last) = self.met.unwrap_or((i64::MAX, i64::MIN));
        let (first, last) = (first.min(stretch.end.saturating_sub(1)), last.max(stretch.start));
        self.met = Some((first, last));
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
        let limit = self.options.span_max;
        let has_start = range.start > TIMESTAMP_MIN;
        if has_start && is_longer(range.start, range.end.min(now_ns()), limit) {
            return Err(QueryError::TooLong { limit });
        }
        Ok(Span { limit, met: None })
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
        let mut span = Span { limit, met: None };
        for (stretch, fits) in [(0..6, true), (15..20, true), (6..7, true), (16..17, false)] {
            assert_eq!(span.sees(&stretch).is_ok(), fits, "{stretch:?}");
        }
        assert!(is_longer(i64::MIN, i64::MAX, Duration::from_secs(u64::MAX / 1_000_000_000)));
    }
}
