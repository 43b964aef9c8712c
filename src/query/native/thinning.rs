//! As few readings as a chart needs, of many sensors: per pixel those in which a field has its least or its greatest
//! value, so that no peak is lost; the first and the last; and all of them where they are few enough.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::many::ManySelection;
use super::readings::{Order, memory_of};
use crate::bucket::Reading;
use crate::query::engine::Engine;
use crate::query::engine::directory::Entry;
use crate::query::engine::points::{Points, Wanted};
use crate::query::{Budget, Held, QueryError};
use crate::reading::{Family, Sensor, Value};

/// Sensors, each with its readings, and what these take.
#[derive(Debug)]
pub struct Thinned {
    /// In key order.
    pub series: Vec<(Arc<Sensor>, Vec<Reading>)>,
    /// Given back when the answer has left.
    pub held: Held,
}

/// Readings of a selection of many sensors, at most `points_max` of each: all that there are, or, where there are
/// more, those that a chart shows. Two per number or boolean of the sensor, and two more, are always shown.
///
/// # Errors
/// When the answer cannot be complete, or would be too large.
pub async fn thinned(
    engine: &Engine,
    budget: &Budget,
    selection: &ManySelection,
    points_max: usize,
) -> Result<Thinned, QueryError> {
    let of_each = &selection.of_each;
    let mut span = engine.span(&of_each.range)?;
    let chosen = engine.choose(budget, &of_each.database, &selection.choice).await?;
    let entries = &chosen.entries;
    engine.check_sensors(entries.len())?;
    let wanted = |name: &str| of_each.fields.is_empty() || of_each.fields.iter().any(|field| field == name);
    let names = entries.iter().flat_map(|entry| &*entry.fields).map(|(name, _)| name).filter(|name| wanted(name));
    let fields: Arc<[Arc<str>]> = names.cloned().collect::<BTreeSet<_>>().into_iter().collect();
    let shown =
        |entry: &Entry| entry.fields.iter().filter(|(name, family)| wanted(name) && *family != Family::String).count();
    let mut thinned: Vec<Thinning> =
        entries.iter().map(|entry| Thinning::new(points_max, shown(entry), &of_each.range)).collect();
    let sensors: Vec<Arc<Sensor>> = entries.iter().map(|entry| entry.sensor.clone()).collect();
    let range = of_each.range.clone();
    let all = Wanted { database: &of_each.database, sensors: &sensors, range, fields: &fields, budget };
    let mut held = budget.hold(0)?;
    let mut scan = engine.points(&all)?;
    while let Some((place, points)) = scan.next().await? {
        span.sees_all(&points.times)?;
        for from in (0..points.times.len()).step_by(ROWS) {
            let (one, rows) = (&mut thinned[place], from..points.times.len().min(from + ROWS));
            let before = one.bytes();
            readings(&points, &fields, rows).for_each(|reading| one.push(reading));
            held.set((held.bytes() + one.bytes()).saturating_sub(before))?;
            budget.pause().await?;
        }
    }
    let mut series = Vec::with_capacity(sensors.len());
    for (sensor, thinned) in sensors.into_iter().zip(thinned) {
        let mut readings = thinned.finish();
        if selection.order == Order::Descending {
            readings.reverse();
        }
        series.push((sensor, readings));
    }
    held.set(series.iter().flat_map(|(_, readings)| readings).map(memory_of).sum())?;
    Ok(Thinned { series, held })
}

fn readings<'a>(points: &'a Points, fields: &'a [Arc<str>], rows: Range<usize>) -> impl Iterator<Item = Reading> + 'a {
    rows.map(move |index| {
        let cell = |(name, column): (&Arc<str>, &Vec<Option<Value>>)| Some((name.clone(), column.get(index)?.clone()?));
        Reading { time: points.times[index], fields: fields.iter().zip(&points.columns).filter_map(cell).collect() }
    })
}

/// Readings that are looked at between pauses.
const ROWS: usize = 1024;

/// The readings of one sensor, thinned while they come in, in time order. Takes memory for twice what it gives.
struct Thinning {
    /// Most readings.
    max: usize,
    /// How many came, and the memory that these would take.
    met: usize,
    met_bytes: usize,
    /// While these are few enough.
    all: Vec<Reading>,
    pixels: Pixels,
}

/// Stretches of time of the same length, each with the readings that it shows.
struct Pixels {
    /// Most of them.
    max: usize,
    /// Where one of them begins.
    origin: i128,
    /// Nanoseconds; doubles when there are too many.
    width: i128,
    shown: BTreeMap<i128, Pixel>,
    first: Option<Arc<Reading>>,
    last: Option<Arc<Reading>>,
}

/// Per field its least and its greatest value, each with its reading: the earlier one where there are several.
#[derive(Default)]
struct Pixel {
    extremes: BTreeMap<Arc<str>, [Extreme; 2]>,
    /// Shown where nothing else is: a reading of text alone.
    any: Option<Arc<Reading>>,
}

#[derive(Clone)]
struct Extreme {
    value: Value,
    reading: Arc<Reading>,
}

impl Thinning {
    /// For this many fields with extremes. The pixels are parts of the range, or, where that has no ends, as long as it
    /// takes.
    fn new(max: usize, fields: usize, range: &Range<i64>) -> Self {
        let pixels_max = (max.saturating_sub(2) / (2 * fields.max(1))).max(1);
        let has_ends = range.start > crate::reading::time::TIMESTAMP_MIN && range.end < i64::MAX;
        let span = (i128::from(range.end) - i128::from(range.start)).max(1);
        let width = if has_ends { (span + pixels_max as i128 - 1) / pixels_max as i128 } else { 1 };
        let origin = if has_ends { i128::from(range.start) } else { 0 };
        let pixels = Pixels { max: pixels_max, origin, width, shown: BTreeMap::new(), first: None, last: None };
        Self { max, met: 0, met_bytes: 0, all: Vec::new(), pixels }
    }

    fn push(&mut self, reading: Reading) {
        self.met += 1;
        self.met_bytes += memory_of(&reading);
        if self.pixels.first.is_some() {
            return self.pixels.push(reading);
        }
        self.all.push(reading);
        if self.all.len() > self.max {
            std::mem::take(&mut self.all).into_iter().for_each(|reading| self.pixels.push(reading));
        }
    }

    /// About how much memory it takes.
    fn bytes(&self) -> usize {
        2 * self.len() * (self.met_bytes / self.met.max(1))
    }

    /// How many readings it holds, at most.
    fn len(&self) -> usize {
        let of_pixel = |pixel: &Pixel| 2 * pixel.extremes.len() + usize::from(pixel.any.is_some());
        self.all.len() + self.pixels.shown.values().map(of_pixel).sum::<usize>()
    }

    fn finish(self) -> Vec<Reading> {
        let mut readings: BTreeMap<i64, Reading> =
            self.all.into_iter().map(|reading| (reading.time, reading)).collect();
        let Pixels { shown, first, last, .. } = self.pixels;
        let of_pixel = |pixel: Pixel| {
            let any = pixel.any.filter(|_| pixel.extremes.is_empty());
            pixel.extremes.into_values().flatten().map(|extreme| extreme.reading).chain(any).collect::<Vec<_>>()
        };
        for reading in shown.into_values().flat_map(of_pixel).chain(first).chain(last) {
            readings.entry(reading.time).or_insert_with(|| Arc::unwrap_or_clone(reading));
        }
        readings.into_values().collect()
    }
}

impl Pixels {
    fn push(&mut self, reading: Reading) {
        let reading = Arc::new(reading);
        self.first.get_or_insert_with(|| reading.clone());
        let number = (i128::from(reading.time) - self.origin).div_euclid(self.width);
        self.shown.entry(number).or_default().push(&reading);
        self.last = Some(reading);
        while self.shown.len() > self.max {
            self.width *= 2;
            for (number, pixel) in std::mem::take(&mut self.shown) {
                self.shown.entry(number.div_euclid(2)).or_default().join(pixel);
            }
        }
    }
}

impl Pixel {
    fn push(&mut self, reading: &Arc<Reading>) {
        for (name, value) in reading.fields.iter().filter(|(_, value)| !matches!(value, Value::String(_))) {
            let extreme = || Extreme { value: value.clone(), reading: reading.clone() };
            let [least, greatest] = self.extremes.entry(name.clone()).or_insert_with(|| [extreme(), extreme()]);
            if compare(value, &least.value) == Ordering::Less {
                *least = extreme();
            }
            if compare(value, &greatest.value) == Ordering::Greater {
                *greatest = extreme();
            }
        }
        self.any.get_or_insert_with(|| reading.clone());
    }

    /// Takes in a later one.
    fn join(&mut self, later: Self) {
        for (name, [least, greatest]) in later.extremes {
            let Some(own) = self.extremes.get_mut(&name) else {
                self.extremes.insert(name, [least, greatest]);
                continue;
            };
            if compare(&least.value, &own[0].value) == Ordering::Less {
                own[0] = least;
            }
            if compare(&greatest.value, &own[1].value) == Ordering::Greater {
                own[1] = greatest;
            }
        }
        self.any = self.any.take().or(later.any);
    }
}

/// Which of two values of a field is greater: integers exactly, floats and what is mixed with them as floats. True is
/// greater than false.
fn compare(one: &Value, other: &Value) -> Ordering {
    let whole = |value: &Value| match value {
        Value::Integer(v) => Some(i128::from(*v)),
        Value::Unsigned(v) => Some(i128::from(*v)),
        Value::Boolean(v) => Some(i128::from(*v)),
        Value::Float(_) | Value::String(_) => None,
    };
    #[expect(clippy::cast_precision_loss, reason = "the nearest double, as summaries count with")]
    let float = |value: &Value| match value {
        Value::Float(v) => *v,
        other => whole(other).unwrap_or_default() as f64,
    };
    match (whole(one), whole(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => float(one).total_cmp(&float(other)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn thin(max: usize, fields: usize, range: Range<i64>, readings: &[Reading]) -> Vec<Reading> {
        let mut thinning = Thinning::new(max, fields, &range);
        readings.iter().cloned().for_each(|reading| thinning.push(reading));
        thinning.finish()
    }

    const EVER: Range<i64> = crate::reading::time::TIMESTAMP_MIN..i64::MAX;

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            (-40_i64..40).prop_map(Value::Integer),
            (-40_i32..40).prop_map(|v| Value::Float(f64::from(v) / 4.0)),
            any::<bool>().prop_map(Value::Boolean),
            Just(Value::String("x".into())),
        ]
    }

    /// In time order, each with some of three fields.
    fn readings() -> impl Strategy<Value = Vec<Reading>> {
        let fields = proptest::collection::vec(proptest::option::of(value()), 3);
        proptest::collection::btree_map(0_i64..100_000, fields, 0..300).prop_map(|readings| {
            let fields = |fields: Vec<Option<Value>>| {
                let named = ["a", "b", "c"].into_iter().zip(fields);
                named.filter_map(|(name, value)| Some((Arc::from(name), value?))).collect()
            };
            readings.into_iter().map(|(time, values)| Reading { time, fields: fields(values) }).collect()
        })
    }

    proptest! {
        #[test]
        fn what_is_shown_is_of_what_there_is_and_has_its_extremes(
            readings in readings(), max in 8_usize..100, bounded in any::<bool>(),
        ) {
            let range = if bounded { 0..100_000 } else { EVER };
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
        fn every_pixel_of_a_range_shows_its_extremes(
            values in proptest::collection::vec(-1000_i64..1000, 200..400), pixels in 1_usize..20,
        ) {
            let readings: Vec<Reading> = values.iter().zip(0..).map(|(value, number)| {
                Reading { time: number * 7, fields: vec![(Arc::from("v"), Value::Integer(*value))] }
            }).collect();
            let end = 7 * i64::try_from(values.len()).expect("few");
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
