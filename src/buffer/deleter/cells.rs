//! The cells of a database that a deletion removes.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::bucket::Readings;
use crate::catalog::deletion::{ALWAYS, DeletedTimes};
use crate::reading::{Hour, Stamp};

/// A set of deleted cells: those of a database that are older than a stamp.
pub struct DeletedCells<'a> {
    pub database: &'a str,
    pub choice: Choice<'a>,
    pub before: Stamp,
}

/// The selected times and sensors.
pub enum Choice<'a> {
    /// A time range of all sensors.
    Range(Range<i64>),
    /// Single times in ascending order, by sensor key.
    Times(HashMap<&'a str, Arc<[i64]>>),
}

impl<'a> Choice<'a> {
    /// Selects the times of a part of a deletion by value.
    pub fn times(deleted: &'a [DeletedTimes]) -> Self {
        Self::Times(deleted.iter().map(|deleted| (&*deleted.sensor.key, deleted.times.clone())).collect())
    }
}

impl DeletedCells<'_> {
    /// Removes the deleted cells from readings of one sensor. Returns the number of changed readings.
    pub fn cut(&self, sensor: &str, readings: &mut Readings) -> usize {
        match &self.choice {
            Choice::Range(range) => readings.delete(range, self.before),
            Choice::Times(_) => {
                let times = self.times_of(sensor);
                readings.delete_where(|time: i64| times.binary_search(&time).is_ok(), self.before)
            }
        }
    }

    fn times_of(&self, sensor: &str) -> &[i64] {
        match &self.choice {
            Choice::Range(_) => &[],
            Choice::Times(times) => times.get(sensor).map_or(&[], |times| &**times),
        }
    }

    /// Returns true if readings of this time are deleted for all sensors.
    pub fn has_time(&self, time: i64) -> bool {
        matches!(&self.choice, Choice::Range(range) if range.contains(&time))
    }

    /// Returns true if all times are deleted.
    pub fn is_all(&self) -> bool {
        matches!(&self.choice, Choice::Range(range) if range.start <= ALWAYS.start && range.end == ALWAYS.end)
    }

    /// Returns the hours that are completely deleted for all sensors.
    pub fn whole_hours(&self) -> Range<Hour> {
        match &self.choice {
            Choice::Range(range) => parts(range).0,
            Choice::Times(_) => Hour(0)..Hour(0),
        }
    }

    /// Returns the hours that are partly deleted for a sensor.
    pub fn cut_hours(&self, sensor: &str) -> Vec<Hour> {
        match &self.choice {
            Choice::Range(range) => parts(range).1,
            Choice::Times(_) => {
                let hours: BTreeSet<Hour> = self.times_of(sensor).iter().map(|time| Hour::from_ns(*time)).collect();
                hours.into_iter().collect()
            }
        }
    }

    /// Returns the range of hours outside of which nothing is deleted for any sensor.
    pub fn hours(&self) -> Range<Hour> {
        match &self.choice {
            Choice::Range(range) => hours_with(range),
            Choice::Times(times) => {
                let first = times.values().filter_map(|times| times.first()).min();
                let last = times.values().filter_map(|times| times.last()).max();
                first
                    .zip(last)
                    .map_or(Hour(0)..Hour(0), |(first, last)| Hour::from_ns(*first)..Hour::from_ns(*last).next())
            }
        }
    }

    /// Returns true if cells of a sensor in these hours may be deleted.
    pub fn has_some(&self, sensor: &str, hours: &Range<Hour>) -> bool {
        match &self.choice {
            Choice::Range(range) => {
                let with = hours_with(range);
                hours.start < with.end && with.start < hours.end
            }
            Choice::Times(_) => {
                let times = self.times_of(sensor);
                let first = times.partition_point(|time| Hour::from_ns(*time) < hours.start);
                times.get(first).is_some_and(|time| Hour::from_ns(*time) < hours.end)
            }
        }
    }
}

/// Returns the hours that intersect a time range.
fn hours_with(range: &Range<i64>) -> Range<Hour> {
    if range.is_empty() { Hour(0)..Hour(0) } else { Hour::from_ns(range.start)..Hour::from_ns(range.end - 1).next() }
}

/// Splits a time range into the hours that it covers completely and those that it covers partly.
fn parts(range: &Range<i64>) -> (Range<Hour>, Vec<Hour>) {
    if range.is_empty() {
        return (Hour(0)..Hour(0), Vec::new());
    }
    // The first and last hours extend beyond the possible times.
    let first = Hour::from_ns(range.start);
    let last = Hour::from_ns(range.end - 1);
    let starts = range.start <= ALWAYS.start || first.start_ns() == range.start;
    let ends = range.end == ALWAYS.end || last.end_ns() == range.end;
    let whole = if starts { first } else { first.next() }..if ends { last.next() } else { last };
    let mut cut: Vec<Hour> = [(first, starts), (last, ends)].into_iter().filter(|part| !part.1).map(|p| p.0).collect();
    cut.dedup();
    (if whole.start < whole.end { whole } else { Hour(0)..Hour(0) }, cut)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reading::{Sensor, Value};

    #[test]
    fn hours_are_whole_or_cut() {
        let ns = |hour: i64, more: i64| Hour(hour).start_ns() + more;
        let none = Hour(0)..Hour(0);
        for (range, whole, cut) in [
            (ns(5, 0)..ns(7, 0), Hour(5)..Hour(7), vec![]),
            (ns(5, 1)..ns(7, 0), Hour(6)..Hour(7), vec![5]),
            (ns(5, 0)..ns(7, 1), Hour(5)..Hour(7), vec![7]),
            (ns(5, 1)..ns(7, -1), none.clone(), vec![5, 6]),
            (ns(5, 1)..ns(5, 2), none.clone(), vec![5]),
            (ns(5, 0)..ns(5, 1), none.clone(), vec![5]),
            (ns(-1, 0)..ns(0, 0), Hour(-1)..Hour(0), vec![]),
            (ns(5, 7)..ns(5, 7), none, vec![]),
        ] {
            assert_eq!(parts(&range), (whole, cut.into_iter().map(Hour).collect()), "{range:?}");
        }
        let (whole, cut) = parts(&ALWAYS);
        assert_eq!((whole, cut), (Hour::from_ns(ALWAYS.start)..Hour::from_ns(ALWAYS.end - 1).next(), Vec::new()));
    }

    proptest! {
        /// A deletion of single times removes exactly the cells older than the mark, including settled ones. The
        /// resolution lists the same cells.
        #[test]
        fn single_times_lose_what_is_older_than_the_mark(
            cells in prop::collection::btree_map((0..40_i64, 0..3_usize), (1..100_u64, 0..9_i64), 0..80),
            times in prop::collection::btree_set(0..40_i64, 0..30),
            floor in 0..50_u64,
            above in 1..60_u64,
        ) {
            let names: [Arc<str>; 3] = ["a".into(), "b".into(), "c".into()];
            let before = floor + above;
            let mut readings = Readings::default();
            for (time, name, stamp, value) in cells.iter().map(|((time, name), (stamp, value))| (time, name, stamp, value)) {
                let field = (&names[*name], &Value::Integer(*value));
                match readings.find(*time) {
                    Some(index) => drop(readings.merge(index, *stamp, std::iter::once(field))),
                    None => readings.push(*time, *stamp, std::iter::once(field)),
                }
                readings.settle(true);
            }
            readings.raise_floor(floor);
            let sensor = Sensor::new("m", [("t", "a")]).expect("one tag");
            let of = [DeletedTimes { sensor: sensor.clone(), times: times.iter().copied().collect() }];
            let gone = DeletedCells { database: "d", choice: Choice::times(&of), before };
            let is_gone = |time: i64, stamp: u64| times.contains(&time) && stamp.max(floor) < before;
            for (index, time) in readings.times().iter().enumerate() {
                let old: Vec<String> = readings.fields_before(index, before).map(|(name, _)| name.to_string()).collect();
                let expected = cells.iter().filter(|((of, _), (stamp, _))| of == time && (*stamp).max(floor) < before);
                let mut expected: Vec<String> = expected.map(|((_, name), _)| names[*name].to_string()).collect();
                expected.sort();
                let mut sorted = old.clone();
                sorted.sort();
                prop_assert_eq!(sorted, expected);
            }
            let mut untouched = readings.clone();
            prop_assert_eq!(gone.cut("another", &mut untouched), 0);
            gone.cut(&sensor.key, &mut readings);
            let mut left = Vec::new();
            for (index, time) in readings.times().iter().enumerate() {
                left.extend(readings.fields(index).map(|(name, value)| (*time, name.to_string(), value.clone())));
            }
            left.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
            let stays = cells.iter().filter(|((time, _), (stamp, _))| !is_gone(*time, *stamp));
            let expected: Vec<_> =
                stays.map(|((time, name), (_, value))| (*time, names[*name].to_string(), Value::Integer(*value))).collect();
            prop_assert_eq!(left, expected);
            let some = |hours: Range<Hour>| gone.has_some(&sensor.key, &hours);
            prop_assert_eq!(some(Hour(0)..Hour(1)), !times.is_empty());
            prop_assert!(!some(Hour(-1)..Hour(0)) && !some(Hour(1)..Hour(2)));
            prop_assert_eq!(gone.hours(), Hour(0)..Hour(i64::from(!times.is_empty())));
        }
    }
}
