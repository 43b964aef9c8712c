//! Thins readings of many sensors for a chart.
//!
//! By [`Shape::Extremes`], per pixel, it keeps the readings in which a field has its minimum or maximum, so that no peak is lost. It also keeps
//! the first and the last reading, and all readings of a sensor that has few.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::lttb::{PRESELECTED, largest_triangles};
use super::many::{ManySelection, SensorReadings};
use super::readings::Order;
use crate::bucket::Reading;
use crate::query::engine::directory::DirectoryEntry;
use crate::query::engine::memory::memory_of;
use crate::query::engine::number::order;
use crate::query::engine::points::{PointCursor, PointsQuery};
use crate::query::{Budget, HeldBytes, Query, QueryError};
use crate::reading::{Family, Sensor, Value};

/// The choice of readings for a chart.
#[derive(Debug, Clone, Copy)]
pub struct ChartPoints {
    /// The maximum number of readings of a sensor.
    pub max: usize,
    pub shape: Shape,
}

/// The property of a line that thinned readings keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Minimum and maximum per pixel.
    Extremes,
    /// The largest triangles; see [`largest_triangles`].
    Triangles,
}

impl ChartPoints {
    /// Returns the number of readings of a sensor to keep by extremes. The sensor has this many fields of numbers and
    /// booleans.
    fn extremes_max(self, fields: usize) -> usize {
        if self.shape == Shape::Triangles && fields > 0 { self.max.saturating_mul(PRESELECTED) } else { self.max }
    }
}

/// Sensors with their thinned readings.
#[derive(Debug)]
pub struct ThinnedReadings {
    /// The sensors in key order.
    pub series: Vec<SensorReadings>,
    /// The memory of the answer; keep it until the answer is sent.
    pub held: HeldBytes,
}

impl Query {
    /// Reads a maximum number of readings of each selected sensor: all if there are no more, else those that a chart
    /// needs. Up to two readings per number or boolean field, and two more, are returned even if the maximum is less.
    ///
    /// # Errors
    /// If the answer would be incomplete or too large.
    pub async fn read_thinned(
        &self,
        budget: &Budget,
        selection: &ManySelection,
        points: ChartPoints,
    ) -> Result<ThinnedReadings, QueryError> {
        let engine = &self.engine;
        let read = || async {
            let per_sensor = &selection.per_sensor;
            let chosen = engine.choose(budget, &per_sensor.database, &selection.selector).await?;
            let entries = &chosen.entries;
            engine.check_sensors(entries.len())?;
            let wanted =
                |name: &str| per_sensor.fields.is_empty() || per_sensor.fields.iter().any(|field| field == name);
            let names =
                entries.iter().flat_map(|entry| &*entry.fields).map(|(name, _)| name).filter(|name| wanted(name));
            let fields: Arc<[Arc<str>]> = names.cloned().collect::<BTreeSet<_>>().into_iter().collect();
            let shown = |entry: &DirectoryEntry| {
                entry.fields.iter().filter(|(name, family)| wanted(name) && *family != Family::String).count()
            };
            let bytes = Arc::default();
            let mut thinned: Vec<Thinning> = entries
                .iter()
                .map(|entry| {
                    let fields = shown(entry);
                    Thinning::new(points.extremes_max(fields), fields, &per_sensor.range, &bytes)
                })
                .collect();
            let sensors: Vec<Arc<Sensor>> = entries.iter().map(|entry| entry.stored.clone()).collect();
            let range = engine.with_readings(budget, &per_sensor.database, &per_sensor.range, true);
            let all = PointsQuery {
                database: &per_sensor.database,
                sensors: &sensors,
                range,
                fields: &fields,
                ends: false,
                only_sums: false,
                bounds: None,
                budget,
            };
            let mut held = budget.hold(0)?;
            let mut scan = engine.points(&all)?;
            while let Some((index, found)) = scan.next().await? {
                for from in (0..found.times.len()).step_by(PAUSE_ROWS) {
                    let rows = from..found.times.len().min(from + PAUSE_ROWS);
                    readings(&found, &fields, rows).for_each(|reading| thinned[index].push(reading));
                    held.set(bytes.load(Relaxed))?;
                    budget.pause().await?;
                }
            }
            let mut series = Vec::with_capacity(sensors.len());
            for (entry, thinned) in entries.iter().zip(thinned) {
                let mut readings = thinned.finish();
                if points.shape == Shape::Triangles && shown(entry) > 0 {
                    let steps = readings.len().saturating_mul(2 + shown(entry));
                    readings = budget.run_unpaused(steps, || largest_triangles(readings, points.max));
                }
                if selection.order == Order::Descending {
                    readings.reverse();
                }
                series.push(SensorReadings { sensor: entry.sensor.clone(), readings });
                budget.pause().await?;
            }
            held.set(series.iter().flat_map(|series| &series.readings).map(memory_of).sum())?;
            Ok::<_, QueryError>(ThinnedReadings { series, held })
        };
        let thinned = self.in_turn(budget, &selection.per_sensor.database, read).await?;
        self.count(thinned.series.iter().map(|series| series.readings.len()).sum());
        Ok(thinned)
    }
}

fn readings<'a>(
    points: &'a PointCursor,
    fields: &'a [Arc<str>],
    rows: Range<usize>,
) -> impl Iterator<Item = Reading> + 'a {
    rows.map(move |index| {
        let cell = |(name, column): (&Arc<str>, &Vec<Option<Value>>)| Some((name.clone(), column.get(index)?.clone()?));
        Reading { time: points.times[index], fields: fields.iter().zip(&points.columns).filter_map(cell).collect() }
    })
}

/// Number of readings between two pauses.
const PAUSE_ROWS: usize = 1024;

/// The readings of one sensor, thinned as they come in, in time order.
struct Thinning {
    /// Maximum number of readings.
    max: usize,
    /// The bytes of all kept readings of all sensors.
    bytes: Arc<AtomicUsize>,
    /// All readings, while there are at most `max`.
    readings: Vec<Arc<ShownReading>>,
    pixels: Pixels,
}

/// A kept reading. Its memory is counted once, until its last reference is dropped.
struct ShownReading {
    reading: Reading,
    _counted: CountedReading,
}

struct CountedReading {
    bytes: usize,
    counter: Arc<AtomicUsize>,
}

/// Time ranges of equal length, each with the readings that it shows.
struct Pixels {
    /// Maximum number of pixels.
    max: usize,
    /// Start of the first pixel. No reading is earlier, so that any two pixels merge at some width.
    origin: i128,
    /// Width in nanoseconds. It is doubled repeatedly when there are too many pixels.
    width: i128,
    shown: BTreeMap<i128, Pixel>,
    first: Option<Arc<ShownReading>>,
    last: Option<Arc<ShownReading>>,
}

/// The minimum and maximum of each field, in name order, with their readings. Of several equal values, the earliest
/// counts.
#[derive(Default)]
struct Pixel {
    extremes: Vec<(Arc<str>, [Extreme; 2])>,
    /// The first reading, while all readings have only text fields.
    text_only: Option<Arc<ShownReading>>,
}

struct Extreme {
    value: Value,
    kept: Arc<ShownReading>,
}

impl ShownReading {
    fn new(reading: Reading, counter: &Arc<AtomicUsize>) -> Self {
        // Count the reading itself, and its entries in the extremes of a pixel.
        let extremes_bytes = reading.fields.len() * size_of::<(Arc<str>, [Extreme; 2])>();
        let bytes = memory_of(&reading) + size_of::<Self>() + extremes_bytes;
        counter.fetch_add(bytes, Relaxed);
        Self { reading, _counted: CountedReading { bytes, counter: counter.clone() } }
    }
}

impl Drop for CountedReading {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.bytes, Relaxed);
    }
}

impl Thinning {
    /// Creates the thinning of a sensor with this many fields that have extremes. The pixels divide the range. If the
    /// range has no start or end, they widen as readings arrive.
    fn new(max: usize, fields: usize, range: &Range<i64>, bytes: &Arc<AtomicUsize>) -> Self {
        let pixels_max = (max.saturating_sub(2) / (2 * fields.max(1))).max(1);
        let has_ends = range.start > crate::reading::time::TIMESTAMP_MIN && range.end < i64::MAX;
        let origin = i128::from(range.start);
        let span = (i128::from(range.end) - origin).max(1);
        let width = if has_ends { (span + pixels_max as i128 - 1) / pixels_max as i128 } else { 1 };
        let pixels = Pixels { max: pixels_max, origin, width, shown: BTreeMap::new(), first: None, last: None };
        Self { max, bytes: bytes.clone(), readings: Vec::new(), pixels }
    }

    fn push(&mut self, reading: Reading) {
        let kept = Arc::new(ShownReading::new(reading, &self.bytes));
        if self.pixels.first.is_some() {
            return self.pixels.push(kept);
        }
        self.readings.push(kept);
        if self.readings.len() > self.max {
            std::mem::take(&mut self.readings).into_iter().for_each(|kept| self.pixels.push(kept));
        }
    }

    fn finish(self) -> Vec<Reading> {
        let Pixels { shown, first, last, .. } = self.pixels;
        let extremes = |pixel: Pixel| pixel.extremes.into_iter().flat_map(|(_, both)| both).map(|extreme| extreme.kept);
        let shown = shown.into_values().flat_map(|mut pixel| pixel.text_only.take().into_iter().chain(extremes(pixel)));
        let kept = self.readings.into_iter().chain(shown).chain(first).chain(last);
        let by_time: BTreeMap<i64, Arc<ShownReading>> = kept.map(|kept| (kept.reading.time, kept)).collect();
        by_time.into_values().filter_map(Arc::into_inner).map(|kept| kept.reading).collect()
    }
}

impl Pixels {
    fn push(&mut self, kept: Arc<ShownReading>) {
        self.first.get_or_insert_with(|| kept.clone());
        let number = (i128::from(kept.reading.time) - self.origin).div_euclid(self.width);
        self.shown.entry(number).or_default().push(&kept);
        self.last = Some(kept);
        if self.shown.len() > self.max {
            self.widen();
        }
    }

    /// Merges pixels at the smallest width at which any two of them become one.
    fn widen(&mut self) {
        // Two pixel numbers that differ only in their lowest bits are equal without these bits.
        let bits = |(a, b): (&i128, &i128)| i128::BITS - (a ^ b).leading_zeros();
        let Some(bits) = self.shown.keys().zip(self.shown.keys().skip(1)).map(bits).min() else { return };
        self.width <<= bits;
        for (number, pixel) in std::mem::take(&mut self.shown) {
            self.shown.entry(number >> bits).or_default().join(pixel);
        }
    }
}

impl Pixel {
    fn search(&self, name: &str) -> Result<usize, usize> {
        self.extremes.binary_search_by(|(known, _)| (**known).cmp(name))
    }

    fn push(&mut self, kept: &Arc<ShownReading>) {
        let fields = &kept.reading.fields;
        if self.extremes.is_empty() {
            self.extremes.reserve_exact(fields.len());
        }
        for (name, value) in fields.iter().filter(|(_, value)| !matches!(value, Value::String(_))) {
            let extreme = || Extreme { value: value.clone(), kept: kept.clone() };
            let [least, greatest] = match self.search(name) {
                Ok(index) => &mut self.extremes[index].1,
                Err(index) => {
                    self.extremes.insert(index, (name.clone(), [extreme(), extreme()]));
                    continue;
                }
            };
            if compare(value, &least.value) == Ordering::Less {
                *least = extreme();
            }
            if compare(value, &greatest.value) == Ordering::Greater {
                *greatest = extreme();
            }
        }
        self.text_only.get_or_insert_with(|| kept.clone());
        self.text_only.take_if(|_| !self.extremes.is_empty());
    }

    /// Joins a later pixel into this one.
    fn join(&mut self, mut later: Self) {
        if self.extremes.is_empty() {
            std::mem::swap(&mut self.extremes, &mut later.extremes);
        }
        for (name, [least, greatest]) in later.extremes {
            let own = match self.search(&name) {
                Ok(index) => &mut self.extremes[index].1,
                Err(index) => {
                    self.extremes.insert(index, (name, [least, greatest]));
                    continue;
                }
            };
            if compare(&least.value, &own[0].value) == Ordering::Less {
                own[0] = least;
            }
            if compare(&greatest.value, &own[1].value) == Ordering::Greater {
                own[1] = greatest;
            }
        }
        self.text_only = self.text_only.take().or(later.text_only).filter(|_| self.extremes.is_empty());
    }
}

/// Compares two values of a field.
fn compare(one: &Value, other: &Value) -> Ordering {
    order(one, other).unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn thin(max: usize, fields: usize, range: Range<i64>, readings: &[Reading]) -> Vec<Reading> {
        thinning_with(max, fields, range, readings).finish()
    }

    fn thinning_with(max: usize, fields: usize, range: Range<i64>, readings: &[Reading]) -> Thinning {
        let mut thinning = Thinning::new(max, fields, &range, &Arc::default());
        readings.iter().cloned().for_each(|reading| thinning.push(reading));
        thinning
    }

    const EVER: Range<i64> = crate::reading::time::TIMESTAMP_MIN..i64::MAX;

    fn number() -> impl Strategy<Value = Value> {
        prop_oneof![
            (-40_i64..40).prop_map(Value::Integer),
            (-40_i32..40).prop_map(|v| Value::Float(f64::from(v) / 4.0)),
            Just(Value::String("x".into())),
        ]
    }

    /// Readings in time order, each with some of three fields.
    fn readings() -> impl Strategy<Value = Vec<Reading>> {
        use proptest::option::of;
        let fields = (of(number()), of(number()), of(any::<bool>().prop_map(Value::Boolean)));
        proptest::collection::btree_map(-50_000_i64..50_000, fields, 0..300).prop_map(|readings| {
            let fields = |(a, b, c): (Option<Value>, Option<Value>, Option<Value>)| {
                let named = [("a", a), ("b", b), ("c", c)].into_iter();
                named.filter_map(|(name, value)| Some((Arc::from(name), value?))).collect()
            };
            readings.into_iter().map(|(time, values)| Reading { time, fields: fields(values) }).collect()
        })
    }

    proptest! {
        #[test]
        fn thinned_readings_are_a_subset_with_the_same_extremes(
            readings in readings(), max in 8_usize..100, bounded in any::<bool>(),
        ) {
            let range = if bounded { -50_000..50_000 } else { EVER };
            let thinned = thin(max, 3, range, &readings);
            prop_assert!(thinned.len() <= max);
            prop_assert!(thinned.is_sorted_by_key(|reading| reading.time));
            prop_assert!(thinned.iter().all(|shown| readings.contains(shown)));
            if readings.len() <= max {
                prop_assert_eq!(&thinned, &readings);
            }
            prop_assert_eq!(thinned.first(), readings.first());
            prop_assert_eq!(thinned.last(), readings.last());
            for name in ["a", "b", "c"] {
                let extremes = |readings: &[Reading]| {
                    let values = readings.iter().flat_map(|reading| &reading.fields).filter(|(known, _)| **known == *name);
                    let mut values: Vec<Value> = values
                        .map(|(_, value)| value.clone())
                        .filter(|value| !matches!(value, Value::String(_)))
                        .collect();
                    values.sort_by(compare);
                    (values.first().cloned(), values.last().cloned())
                };
                let ((least, greatest), (shown_least, shown_greatest)) = (extremes(&readings), extremes(&thinned));
                for (is, shown) in [(least, shown_least), (greatest, shown_greatest)] {
                    match (is, shown) {
                        (Some(is), Some(shown)) => prop_assert_eq!(compare(&is, &shown), Ordering::Equal),
                        (is, shown) => prop_assert!(is.is_none() && shown.is_none()),
                    }
                }
            }
        }

        #[test]
        fn pixels_without_ends_have_the_first_width_that_suffices(readings in readings(), max in 8_usize..100) {
            let Pixels { max: most, origin, width, first, .. } = thinning_with(max, 3, EVER, &readings).pixels;
            let numbers = |width: i128| -> BTreeSet<i128> {
                readings.iter().map(|reading| (i128::from(reading.time) - origin) / width).collect()
            };
            let suffices = (0..).map(|doublings| 1 << doublings).find(|width| numbers(*width).len() <= most);
            prop_assert_eq!(Some(width), suffices.filter(|_| first.is_some()).or(Some(1)));
        }

        #[test]
        fn counted_memory_is_that_of_the_thinned_readings(readings in readings(), max in 8_usize..100, bounded in any::<bool>()) {
            let thinning = thinning_with(max, 3, if bounded { -50_000..50_000 } else { EVER }, &readings);
            let bytes = thinning.bytes.clone();
            let counted = bytes.load(Relaxed);
            let shown = thinning.finish();
            prop_assert_eq!(bytes.load(Relaxed), 0);
            let _shown: Vec<ShownReading> = shown.into_iter().map(|reading| ShownReading::new(reading, &bytes)).collect();
            prop_assert_eq!(counted, bytes.load(Relaxed));
        }

        #[test]
        fn every_pixel_of_a_range_shows_its_extremes(
            values in proptest::collection::vec(-1000_i64..1000, 200..400), pixels in 1_usize..20,
        ) {
            let readings: Vec<Reading> = values.iter().zip(0..).map(|(value, number)| {
                Reading { time: number * 7, fields: vec![(Arc::from("v"), Value::Integer(*value))] }
            }).collect();
            let end = 7 * i64::try_from(values.len()).expect("fits");
            let thinned = thin(2 * pixels + 2, 1, 0..end, &readings);
            let width = (end + pixels as i64 - 1) / pixels as i64;
            for pixel in 0..pixels as i64 {
                let of_pixel = |readings: &[Reading]| {
                    let within = readings.iter().filter(|reading| reading.time / width == pixel);
                    let mut values: Vec<Value> = within.map(|reading| reading.fields[0].1.clone()).collect();
                    values.sort_by(compare);
                    (values.first().cloned(), values.last().cloned())
                };
                prop_assert_eq!(of_pixel(&readings), of_pixel(&thinned));
            }
        }
    }

    /// Regression: pixels began at 1970, and two pixels on different sides of it never merge: the width was doubled
    /// until it overflowed.
    #[test]
    fn there_is_one_pixel_of_readings_before_and_after_1970() {
        let at = |time: i64| Reading { time, fields: vec![(Arc::from("v"), Value::Integer(time))] };
        let readings = [at(-3), at(-2), at(2), at(3), at(4)];
        assert_eq!(thin(4, 1, EVER, &readings), [at(-3), at(4)]);
    }

    #[test]
    fn text_alone_is_shown_once_a_pixel() {
        let text = |time: i64| Reading { time, fields: vec![(Arc::from("s"), Value::String("x".into()))] };
        let readings: Vec<Reading> = (0..100).map(text).collect();
        let times: Vec<i64> = thin(12, 0, 0..100, &readings).iter().map(|reading| reading.time).collect();
        assert_eq!(times, [0, 20, 40, 60, 80, 99]);
    }

    #[test]
    fn integers_are_compared_exactly() {
        assert_eq!(compare(&Value::Integer(i64::MAX - 1), &Value::Integer(i64::MAX)), Ordering::Less);
        assert_eq!(compare(&Value::Unsigned(u64::MAX), &Value::Integer(i64::MAX)), Ordering::Greater);
        assert_eq!(compare(&Value::Float(0.5), &Value::Integer(1)), Ordering::Less);
    }
}
