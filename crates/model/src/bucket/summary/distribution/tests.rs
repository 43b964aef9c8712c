use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::bucket::expired::ExpiredDay;
use crate::bucket::stored::Projection;
use crate::bucket::{Bucket, Caps, MergeOptions, MonthTotals, Readings, Row, Summary, day};
use crate::reading::{Day, Value};

const HOUR: i64 = 3_600_000_000_000;

fn bounds() -> impl Strategy<Value = Arc<[f64]>> {
    proptest::collection::btree_set(-50_i32..50, 1..8)
        .prop_map(|bounds| bounds.into_iter().map(f64::from).collect::<Vec<_>>().into())
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (-60.0_f64..60.0).prop_map(Value::Float),
        2 => (-60_i64..60).prop_map(Value::Integer),
        1 => (0_u64..60).prop_map(Value::Unsigned),
        1 => any::<bool>().prop_map(Value::Boolean),
        1 => "[a-z]{0,3}".prop_map(|text| Value::String(text.into())),
    ]
}

/// A change of a day, in order of its stamp.
#[derive(Debug, Clone)]
enum Step {
    /// Readings by time within the day: new, late or corrected ones.
    Write(BTreeMap<i64, Value>),
    Delete(i64, i64),
    /// The pages get these bounds.
    Bounds(Arc<[f64]>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let time = || (0..24 * 12_i64).prop_map(|number| number * HOUR / 12);
    let step = prop_oneof![
        4 => proptest::collection::btree_map(time(), value(), 1..60).prop_map(Step::Write),
        2 => (time(), time()).prop_map(|(from, length)| Step::Delete(from, from + length / 4)),
        1 => bounds().prop_map(Step::Bounds),
    ];
    proptest::collection::vec(step, 1..8)
}

/// Counts by definition.
fn counted<'v>(bounds: &[f64], values: impl Iterator<Item = &'v Value>) -> Vec<u64> {
    let mut counts = vec![0; bounds.len() + 1];
    for value in values {
        let number = match value {
            Value::Float(v) => *v,
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            Value::Integer(v) => *v as f64,
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            Value::Unsigned(v) => *v as f64,
            Value::Boolean(_) | Value::String(_) => continue,
        };
        counts[bounds.iter().filter(|bound| **bound <= number).count()] += 1;
    }
    counts
}

fn found<'s>(summaries: impl Iterator<Item = &'s Summary>) -> Vec<u64> {
    let united = summaries.cloned().reduce(|all, later| all.union(&later));
    united.and_then(|summary| Some(summary.distribution()?.counts().to_vec())).unwrap_or_default()
}

proptest! {
    /// Pages, sealed days, expired days and months count what is there, whatever happened before.
    #[test]
    fn counts_are_those_of_the_remaining_values(first in bounds(), steps in steps()) {
        let caps = Caps { max_readings: 25, max_bytes: 1 << 20, hard_bytes: 4 << 20 };
        let names: [Arc<str>; 1] = ["t".into()];
        let of_field = |bounds: &Arc<[f64]>| FieldBounds::new([(names[0].clone(), bounds.clone())]);
        let mut bounds = first;
        let mut buckets: Vec<Bucket> = vec![Bucket::default(); 24];
        let mut model: BTreeMap<i64, Value> = BTreeMap::new();
        for (stamp, step) in (1_u64..).zip(steps) {
            match step {
                Step::Write(values) => {
                    for (hour, bucket) in (0_i64..).zip(&mut buckets) {
                        let of_hour: Vec<_> = values.range(hour * HOUR..(hour + 1) * HOUR).collect();
                        let cells: Vec<_> = of_hour.iter().map(|(_, value)| [(0_u16, (*value).clone())]).collect();
                        let rows = of_hour.iter().zip(&cells);
                        let rows = rows.map(|((time, _), cells)| Row { time: **time, stamp, names: &names, cells });
                        bucket.apply(rows, &MergeOptions { caps: &caps, floor: 0, restamps: false });
                    }
                    model.extend(values);
                }
                Step::Delete(from, to) => {
                    buckets.iter_mut().for_each(|bucket| _ = bucket.delete(&(from..to), stamp));
                    model.retain(|time, _| !(from..to).contains(time));
                }
                Step::Bounds(new) => bounds = new,
            }
            buckets.iter_mut().for_each(|bucket| bucket.set_bounds(&of_field(&bounds)));
        }
        let has_number = model.values().any(|value| !matches!(value, Value::Boolean(_) | Value::String(_)));
        let expected = if has_number { counted(&bounds, model.values()) } else { Vec::new() };
        let pages = || buckets.iter().flat_map(Bucket::pages).map(|page| &page.readings);
        prop_assert_eq!(found(pages().flat_map(|readings| readings.summaries().map(|(_, one)| one))), &*expected);
        let unpacked: Vec<Readings> = pages().map(|readings| readings.clone().pack().unpack()).collect();
        let mut whole = day::fold(unpacked.iter(), u64::MAX, day::PartBounds::DAY).expect("a small day");
        prop_assert_eq!(found(whole.summaries().map(|(_, one)| one)), &*expected);
        let hours = Projection::SUMMARIES.hour_pages(whole.clone(), &Day(0).hours());
        let totals = MonthTotals::from_pages(&hours);
        prop_assert_eq!(found(totals.days.iter().flat_map(|(_, fields)| fields.iter().map(|(_, one)| one))), &*expected);
        let expired = ExpiredDay::from_readings(&whole);
        prop_assert_eq!(found(expired.totals().iter().map(|(_, one)| one)), &*expected);
        let later = whole.split_off(whole.len() / 2);
        prop_assert_eq!(found([&whole, &later].into_iter().flat_map(|set| set.summaries().map(|(_, one)| one))), &*expected);
    }
}

#[test]
fn different_bounds_are_not_added_up() {
    let summary = |bounds: &[f64]| {
        Summary::fold_within([Value::Integer(1), Value::Integer(7)].iter(), Some(&bounds.into())).expect("numbers")
    };
    let plain = Summary::fold([Value::Integer(3)].iter()).expect("a number");
    let united = summary(&[5.0]).union(&summary(&[2.0, 5.0])).union(&plain);
    assert_eq!(united.distribution().map(|one| one.counts().to_vec()), Some(vec![1, 1]));
    assert_eq!((united.count(), united.unplaced()), (5, 3));
    assert_eq!(plain.union(&summary(&[5.0])).unplaced(), 1);
}

#[test]
fn a_percentile_lies_in_the_range_of_its_rank() {
    let distribution = Distribution::from_counts([0.0, 10.0].into(), vec![1, 8, 1]).expect("valid");
    let ranges = [0.0, 10.0, 14.9, 15.0, 50.0, 94.9, 95.0, 100.0].map(|percent| distribution.percentile(percent));
    assert_eq!(ranges, [0, 0, 0, 1, 1, 1, 2, 2].map(Some));
    assert_eq!(Distribution::new([0.0].into()).percentile(50.0), None);
    for bounds in [&[][..], &[1.0, 1.0], &[2.0, 1.0], &[f64::NAN], &[f64::INFINITY], &[0.0; 65]] {
        assert!(!are_bounds(bounds), "{bounds:?}");
    }
    assert!(Distribution::from_counts([0.0].into(), vec![1]).is_none());
}
