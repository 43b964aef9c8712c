//! Reads a group span by span, where it need not be read whole, or cannot.

use std::ops::Range;

use super::groups::ChosenSensor;
use super::{DAY, HOUR};
use crate::bucket::store::{Extent, Order, Projection};
use crate::query::QueryError;
use crate::query::engine::Engine;
use crate::query::engine::evaluate::Evaluation;
use crate::query::engine::hours::hours_of;
use crate::query::engine::points::PointsQuery;
use crate::reading::Hour;

/// The span that is tried first.
pub const FIRST_SPAN: i64 = DAY;
/// A group is begun again, with shorter spans, at most so many times.
const TRIES: usize = 4;
/// The ends of a longer range are found first.
const LONG: i64 = 100 * DAY;

impl Engine {
    /// Reads a group whose readings are too large to be held at once. `length` is the length of the first span.
    ///
    /// Returns the times that are left, if there are enough rows for a part of the answer, and a length for the next span.
    ///
    /// # Errors
    /// If the answer would be incomplete, or the shortest span is too large.
    pub async fn read_spans(
        &self,
        database: &str,
        group: &[ChosenSensor<'_>],
        range: Range<i64>,
        mut length: i64,
        evaluation: &mut Evaluation<'_>,
    ) -> Result<Option<(Range<i64>, i64)>, QueryError> {
        let order = evaluation.order_of_spans().unwrap_or(Order::Ascending);
        evaluation.empty_open()?;
        let mut rest = range.clone();
        // Spans grow up to this length, so that a gap does not make the span behind it too long again.
        let mut longest = i64::MAX;
        let mut tries = TRIES;
        while !rest.is_empty() {
            let (span, left) = split(&rest, length, order);
            let before = evaluation.open_bytes();
            let read = self.read_slice(database, group, (&span, None), evaluation).await;
            // Making the rows takes memory, too.
            let is_much = evaluation.plan.is_raw() && evaluation.open_bytes() > self.options.request_bytes / 4;
            match read {
                Ok(()) if !is_much => {}
                // Begin again: windows with some of their readings cannot give them back.
                Ok(()) | Err(QueryError::TooLarge { .. }) if tries > 0 => {
                    tries -= 1;
                    evaluation.empty_open()?;
                    length /= 8;
                    longest = length.max(1);
                    rest = range.clone();
                    continue;
                }
                read => read?,
            }
            let read = evaluation.open_bytes().saturating_sub(before);
            if read < self.part_bytes() / 4 {
                length = length.max(1).saturating_mul(2).min(longest);
            } else if read > self.part_bytes() {
                length /= 2;
            }
            evaluation.settle(span.end).await?;
            if evaluation.plan.is_raw() && !left.is_empty() && evaluation.open_bytes() >= self.part_bytes() {
                return Ok(Some((left, length)));
            }
            rest = left;
        }
        Ok(None)
    }

    /// Returns the part of a long range from the first to the last hour in which the group has readings.
    ///
    /// # Errors
    /// If the store does not answer, or acked readings are still being read back.
    pub async fn hours_with_readings(
        &self,
        database: &str,
        group: &[ChosenSensor<'_>],
        range: &Range<i64>,
    ) -> Result<Range<i64>, QueryError> {
        if range.end.saturating_sub(range.start) < LONG {
            return Ok(range.clone());
        }
        let mut found: Option<Range<i64>> = None;
        for (entry, _) in group {
            let key = &entry.stored.key;
            let Some(first) = self.first_hour(database, key, range, Order::Ascending).await? else { continue };
            let last = self.first_hour(database, key, range, Order::Descending).await?.unwrap_or(first);
            let known = found.unwrap_or(first.start_ns()..last.end_ns());
            found = Some(known.start.min(first.start_ns())..known.end.max(last.end_ns()));
        }
        let found = found.unwrap_or(range.end..range.end);
        Ok(found.start.max(range.start)..found.end.min(range.end))
    }

    /// Spans of whole hours that make up the range, in this order and each twice as long as the one before. They begin where
    /// the first sensor has readings.
    pub async fn growing_spans(&self, wanted: &PointsQuery<'_>, order: Order) -> Result<Vec<Range<i64>>, QueryError> {
        let range = &wanted.range;
        let Some(sensor) = wanted.sensors.first() else { return Ok(Vec::new()) };
        let found = self.first_hour(wanted.database, &sensor.key, range, order);
        let Some(first) = wanted.budget.waiting(found).await? else { return Ok(vec![range.clone()]) };
        let mut spans = Vec::new();
        let mut length = HOUR;
        let mut rest = range.clone();
        let is_ascending = order == Order::Ascending;
        let mut edge = if is_ascending { first.start_ns() } else { first.end_ns() };
        while !rest.is_empty() {
            edge = if is_ascending { edge.saturating_add(length) } else { edge.saturating_sub(length) };
            let at = edge.clamp(rest.start, rest.end);
            let span = if is_ascending { rest.start..at } else { at..rest.end };
            rest = if is_ascending { at..rest.end } else { rest.start..at };
            spans.extend(Some(span).filter(|span| !span.is_empty()));
            length = length.saturating_mul(2);
        }
        Ok(spans)
    }

    /// Returns the first hour of a range, in this order, in which a sensor may have readings.
    async fn first_hour(
        &self,
        database: &str,
        sensor: &str,
        range: &Range<i64>,
        order: Order,
    ) -> Result<Option<Hour>, QueryError> {
        let hours = hours_of(range);
        let unflushed = self.unflushed_of(database, sensor, &hours).await?;
        let projection = Projection::without_fields();
        let stored = self.store.scan(database, sensor, hours, order, &projection, Extent::pages(1)).await?;
        let found = stored.pages.iter().map(|page| page.hour).chain(unflushed.keys().copied());
        Ok(if order == Order::Ascending { found.min() } else { found.max() })
    }
}

/// Splits a span off a range that is not empty. A span of an hour or more ends with an hour, or with the range.
fn split(range: &Range<i64>, length: i64, order: Order) -> (Range<i64>, Range<i64>) {
    let whole = |at: i64| if length < HOUR { at } else { Hour::from_ns(at).start_ns() };
    match order {
        Order::Ascending => {
            let end = range.start.saturating_add(length.max(1));
            let at = if end < range.end { whole(end) } else { range.end };
            (range.start..at, at..range.end)
        }
        Order::Descending => {
            let at = whole(range.end.saturating_sub(length.max(1))).max(range.start);
            (at..range.end, range.start..at)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the last hour before the end of time was never read, because a span that ended with an hour was empty.
    #[test]
    fn spans_make_up_any_range() {
        for range in [i64::MIN..i64::MAX, i64::MAX - 5..i64::MAX, i64::MIN..i64::MIN + 5, -1..HOUR + 1, 0..5 * HOUR] {
            for order in [Order::Ascending, Order::Descending] {
                for first in [0, 1, HOUR / 3, HOUR, 7 * HOUR, DAY, i64::MAX] {
                    let mut rest = range.clone();
                    let mut length = first;
                    let mut spans = Vec::new();
                    while !rest.is_empty() {
                        let (span, left) = split(&rest, length, order);
                        assert!(!span.is_empty(), "{rest:?} {length}");
                        spans.push(span);
                        rest = left;
                        length = length.max(1).saturating_mul(2);
                    }
                    spans.sort_by_key(|span| span.start);
                    assert!(spans.windows(2).all(|pair| pair[0].end == pair[1].start));
                    assert_eq!((spans[0].start, spans[spans.len() - 1].end), (range.start, range.end));
                }
            }
        }
    }
}
