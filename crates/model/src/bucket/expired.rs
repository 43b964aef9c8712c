//! The part of a day that stays after its readings have expired: exact summaries by hour. No readings can be added to
//! such a part or read from it. Whole hours can still be removed, and all other figures are computed from the hours.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::day::by_hour;
use super::readings::Readings;
use super::summary::Summary;
use crate::reading::Hour;

/// An hour whose readings have expired.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpiredHour {
    /// The hour.
    pub hour: Hour,
    /// The number of its readings.
    pub count: u64,
    /// The time of its first reading, in nanoseconds.
    pub first: i64,
    /// The time of its last reading, in nanoseconds.
    pub last: i64,
    /// The summaries of the numeric fields, in the order of their names.
    pub summaries: Vec<(Arc<str>, Summary)>,
}

/// A part of a day whose readings have expired: its hours, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExpiredDay {
    /// The hours that had readings.
    pub hours: Vec<ExpiredHour>,
}

impl ExpiredDay {
    /// Summarizes a part's readings by hour.
    #[must_use]
    pub fn from_readings(readings: &Readings) -> Self {
        let hour = |(hour, readings): (Hour, Readings)| {
            let mut summaries = readings.owned_summaries();
            summaries.sort_by(|(one, _), (other, _)| one.cmp(other));
            let first = *readings.times().first()?;
            let last = *readings.times().last()?;
            Some(ExpiredHour { hour, count: readings.len() as u64, first, last, summaries })
        };
        Self { hours: by_hour(readings.clone()).into_iter().filter_map(hour).collect() }
    }

    /// Removes the hours that are entirely within a range of times, in nanoseconds. Returns true if there were any.
    pub fn remove(&mut self, times: &Range<i64>) -> bool {
        let before = self.hours.len();
        self.hours.retain(|one| one.hour.start_ns() < times.start || times.end < one.hour.end_ns());
        before != self.hours.len()
    }

    /// Returns true if there are no hours.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hours.is_empty()
    }

    /// The number of readings of all hours.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.hours.iter().map(|hour| hour.count).sum()
    }

    /// The names of all fields that have summaries, in order.
    #[must_use]
    pub fn names(&self) -> Vec<Arc<str>> {
        let names: BTreeSet<&Arc<str>> =
            self.hours.iter().flat_map(|hour| hour.summaries.iter().map(|(name, _)| name)).collect();
        names.into_iter().cloned().collect()
    }

    /// The summaries of all hours together, in the order of [`ExpiredDay::names`].
    #[must_use]
    pub fn totals(&self) -> Vec<(Arc<str>, Summary)> {
        let total = |name: Arc<str>| {
            let summaries = self.hours.iter().filter_map(|hour| hour.summary(&name));
            let total = summaries.cloned().reduce(|all, later| all.union(&later))?;
            Some((name, total))
        };
        self.names().into_iter().filter_map(total).collect()
    }
}

impl ExpiredHour {
    /// The summary of a field.
    #[must_use]
    pub fn summary(&self, name: &str) -> Option<&Summary> {
        self.summaries.iter().find(|(known, _)| **known == *name).map(|(_, summary)| summary)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bucket::Reading;
    use crate::reading::Value;

    const HOUR: i64 = 3_600_000_000_000;

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i64>().prop_map(Value::Integer),
            (-1e300_f64..1e300).prop_map(Value::Float),
            any::<u64>().prop_map(Value::Unsigned),
        ]
    }

    fn readings() -> impl Strategy<Value = Readings> {
        let fields = proptest::collection::vec(proptest::option::of(value()), 3);
        proptest::collection::btree_map(0..24 * HOUR, fields, 1..80).prop_map(|readings| {
            let fields = |fields: Vec<Option<Value>>| {
                let named = ["b", "a", "c"].into_iter().zip(fields);
                named.filter_map(|(name, value)| Some((Arc::from(name), value?))).collect::<Vec<_>>()
            };
            let all = readings.into_iter().map(|(time, values)| Reading { time, fields: fields(values) });
            all.filter(|reading| !reading.fields.is_empty()).collect()
        })
    }

    proptest! {
        /// A deletion of whole hours leaves the same summaries before and after the readings expire.
        #[test]
        fn totals_are_those_of_the_readings_bit_by_bit(readings in readings(), gone in 0_i64..24, length in 0_i64..12) {
            let range = gone * HOUR..(gone + length) * HOUR;
            let mut expired = ExpiredDay::from_readings(&readings);
            expired.remove(&range);
            let mut left = readings;
            left.raise_floor(1);
            left.delete(&range, 2);
            prop_assert_eq!(&expired, &ExpiredDay::from_readings(&left));
            prop_assert_eq!(expired.count(), left.len() as u64);
            for (name, total) in expired.totals() {
                let whole = left.summaries().find(|(known, _)| **known == name).map(|(_, summary)| summary.figures());
                prop_assert_eq!(whole, Some(total.figures()));
            }
            prop_assert_eq!(expired.totals().len(), left.summaries().count());
        }
    }

    #[test]
    fn partly_deleted_hours_stay() {
        let reading = |time| Reading { time, fields: vec![(Arc::from("v"), Value::Integer(time))] };
        let mut expired = ExpiredDay::from_readings(&[0, HOUR, 2 * HOUR].into_iter().map(reading).collect());
        assert!(!expired.remove(&(1..HOUR)));
        assert!(expired.remove(&(1..2 * HOUR + 5)));
        let hours: Vec<i64> = expired.hours.iter().map(|hour| hour.hour.0).collect();
        assert_eq!(hours, [0, 2]);
    }
}
