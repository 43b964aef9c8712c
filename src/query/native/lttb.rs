//! Chooses the readings that best keep the look of a line: Largest-Triangle-Three-Buckets (Steinarsson, 2013).
//!
//! Its input is thinned by extremes before, as in MinMaxLTTB (Van Der Donckt et al., 2023), so that its memory does not
//! depend on the number of stored readings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::bucket::Reading;
use crate::query::engine::number::number;
use crate::reading::Value;

/// Number of readings that extremes preselect for each shown one.
pub(super) const PRESELECTED: usize = 4;

/// A value of a field.
struct Point {
    /// The index of its reading.
    index: usize,
    /// Time since the first point, in nanoseconds.
    x: f64,
    y: f64,
}

/// Returns at most `max` of these readings, which are in order of time. All fields have the same number of buckets; the
/// first and the last value of each field are kept, even if `max` is less.
pub(super) fn largest_triangles(readings: Vec<Reading>, max: usize) -> Vec<Reading> {
    if readings.len() <= max {
        return readings;
    }
    let lines = lines(&readings);
    let mut kept = BTreeSet::from([0, readings.len() - 1]);
    for line in lines.values() {
        kept.extend(line.first().iter().chain(&line.last()).map(|point| point.index));
    }
    let buckets = max.saturating_sub(kept.len()) / lines.len().max(1);
    for line in lines.values() {
        keep(line, buckets, &mut kept);
    }
    let is_kept = |(index, _): &(usize, Reading)| kept.contains(index);
    readings.into_iter().enumerate().filter(is_kept).map(|(_, reading)| reading).collect()
}

#[expect(clippy::cast_precision_loss, reason = "the places of points on a chart")]
fn lines(readings: &[Reading]) -> BTreeMap<Arc<str>, Vec<Point>> {
    let mut lines: BTreeMap<Arc<str>, Vec<Point>> = BTreeMap::new();
    let origin = readings.first().map_or(0, |reading| reading.time);
    for (index, reading) in readings.iter().enumerate() {
        for (name, value) in &reading.fields {
            let y = if let Value::Boolean(value) = value { Some(f64::from(*value)) } else { number(value) };
            if let Some(y) = y {
                let x = reading.time.saturating_sub(origin) as f64;
                lines.entry(name.clone()).or_default().push(Point { index, x, y });
            }
        }
    }
    lines
}

/// Keeps the point of each bucket that makes the largest triangle with the point kept before and the mean of the next
/// bucket; of equal ones the earliest. Buckets divide the points between the first and the last one evenly.
#[expect(clippy::cast_precision_loss, reason = "a number of points")]
fn keep(line: &[Point], buckets: usize, kept: &mut BTreeSet<usize>) {
    let inner = line.len().saturating_sub(2);
    if inner <= buckets {
        kept.extend(line.iter().map(|point| point.index));
        return;
    }
    let start = |bucket: usize| 1 + bucket * inner / buckets.max(1);
    let mut before = &line[0];
    for bucket in 0..buckets {
        let next = &line[start(bucket + 1)..start(bucket + 2).min(line.len())];
        let count = next.len() as f64;
        let mean_x = next.iter().map(|point| point.x).sum::<f64>() / count;
        let mean_y = next.iter().map(|point| point.y).sum::<f64>() / count;
        let area = |point: &Point| {
            ((before.x - mean_x) * (point.y - before.y) - (before.x - point.x) * (mean_y - before.y)).abs()
        };
        let points = &line[start(bucket)..start(bucket + 1)];
        let Some(first) = points.first() else { continue };
        let mut largest = (first, area(first));
        for point in &points[1..] {
            let area = area(point);
            if area > largest.1 {
                largest = (point, area);
            }
        }
        before = largest.0;
        kept.insert(before.index);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn readings(values: &[(Option<i64>, Option<i64>)]) -> Vec<Reading> {
        let field = |name: &str, value: &Option<i64>| Some((Arc::from(name), Value::Integer((*value)?)));
        let fields =
            |(a, b): &(Option<i64>, Option<i64>)| [field("a", a), field("b", b)].into_iter().flatten().collect();
        values.iter().zip(0..).map(|(values, time)| Reading { time: time * 10, fields: fields(values) }).collect()
    }

    #[test]
    fn a_peak_and_a_step_are_kept() {
        let values: Vec<_> =
            (0..100).map(|n| (Some(if n == 40 { 100 } else { i64::from(n >= 70) * 50 }), None)).collect();
        let shown = largest_triangles(readings(&values), 12);
        let times: Vec<i64> = shown.iter().map(|reading| reading.time / 10).collect();
        assert_eq!(times.len(), 12);
        assert!(times.contains(&40), "{times:?}");
        assert!(times.windows(2).any(|pair| pair[0] < 70 && pair[1] >= 70), "{times:?}");
    }

    proptest! {
        #[test]
        fn chosen_readings_are_a_subset_with_the_ends_of_each_field(
            values in proptest::collection::vec((proptest::option::of(-50_i64..50), proptest::option::of(-50_i64..50)), 1..300),
            max in 6_usize..100,
        ) {
            let readings = readings(&values);
            let shown = largest_triangles(readings.clone(), max);
            prop_assert!(shown.len() <= max);
            prop_assert!(shown.is_sorted_by_key(|reading| reading.time));
            prop_assert!(shown.iter().all(|reading| readings.contains(reading)));
            if readings.len() <= max {
                prop_assert_eq!(&shown, &readings);
            }
            for name in ["a", "b"] {
                let with = |readings: &[Reading]| -> Vec<i64> {
                    let has = |reading: &&Reading| reading.fields.iter().any(|(known, _)| **known == *name);
                    readings.iter().filter(has).map(|reading| reading.time).collect()
                };
                let times = with(&readings);
                let shown = with(&shown);
                prop_assert_eq!(times.first(), shown.first());
                prop_assert_eq!(times.last(), shown.last());
            }
        }
    }
}
