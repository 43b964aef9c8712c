//! Properties of merges of random sets: they commute, they associate, and a repeated merge changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::{names, runner};
use crate::bucket::{Bucket, Caps, MergeOptions, Readings, Row};
use crate::reading::{Stamp, Value};

/// A record: its stamp, and a value per time and field.
type WrittenRecord = (Stamp, BTreeMap<(i64, u16), i64>);
/// A set's cells: stamp and value per time and field.
type Cells = BTreeMap<(i64, String), (Stamp, String)>;

fn records() -> impl Strategy<Value = Vec<WrittenRecord>> {
    let cells = prop::collection::btree_map((0..3_i64, 0..3_u16), 0..3_i64, 1..4);
    prop::collection::vec((5..9_u64, cells), 0..5)
}

fn value(number: i64) -> Value {
    match number {
        0 => Value::Integer(1),
        1 => Value::Float(1.0),
        _ => Value::String("one".into()),
    }
}

fn apply(bucket: &mut Bucket, (stamp, cells): &WrittenRecord, floor: Stamp, max_readings: usize) {
    let mut rows: BTreeMap<i64, Vec<(u16, Value)>> = BTreeMap::new();
    for ((time, field), number) in cells {
        rows.entry(*time).or_default().push((*field, value(*number)));
    }
    let fields = &names().fields;
    let rows = rows.iter().map(|(time, cells)| Row { time: *time, stamp: *stamp, names: fields, cells });
    let caps = Caps { max_readings, max_bytes: 1 << 20, hard_bytes: 1 << 20 };
    bucket.apply(rows, &MergeOptions { caps: &caps, floor, restamps: true });
}

fn set(records: &[WrittenRecord], floor: Stamp) -> Readings {
    let mut bucket = Bucket::default();
    records.iter().for_each(|record| apply(&mut bucket, record, floor, 100));
    bucket.pages().first().map_or_else(Readings::default, |page| page.readings.clone())
}

fn cells(set: &Readings) -> Cells {
    let mut cells = Cells::new();
    for (row, time) in set.times().iter().enumerate() {
        for (column, (name, values)) in set.columns().enumerate() {
            if let Some(value) = &values[row] {
                let cell = (set.stamps().get(row, column), format!("{value:?}"));
                cells.insert((*time, name.to_string()), cell);
            }
        }
    }
    cells
}

fn merge(one: &Readings, other: &Readings) -> Readings {
    let mut sum = one.clone();
    sum.merge_set(other);
    sum.pack().unpack()
}

/// Returns the value with the greatest stamp for each cell, and the greatest value if stamps are equal.
fn greatest_values(all: &[WrittenRecord]) -> BTreeMap<(i64, Arc<str>), (Stamp, Value)> {
    let mut greatest: BTreeMap<(i64, Arc<str>), (Stamp, Value)> = BTreeMap::new();
    for (stamp, cells) in all {
        for ((time, field), number) in cells {
            let cell = (*time, names().fields[usize::from(*field)].clone());
            let value = value(*number);
            let winner = greatest.entry(cell).or_insert_with(|| (*stamp, value.clone()));
            if *stamp > winner.0 || (*stamp == winner.0 && value.is_greater(&winner.1)) {
                *winner = (*stamp, value);
            }
        }
    }
    greatest
}

/// Compares sets by field name, because a column's number does not identify its field.
fn run() {
    let mut runner = runner(100_000);
    let floors = prop_oneof![2 => Just(0), 1 => 1..5_u64];
    let strategy = (records(), records(), records(), floors, 1..4_usize);
    let result = runner.run(&strategy, |(a, b, c, floor, max_readings)| {
        let [x, y, z] = [&a, &b, &c].map(|records| set(records, floor));
        prop_assert_eq!(cells(&merge(&x, &y)), cells(&merge(&y, &x)), "commutes");
        prop_assert_eq!(cells(&merge(&merge(&x, &y), &z)), cells(&merge(&x, &merge(&y, &z))), "associates");
        prop_assert_eq!(cells(&merge(&x, &x)), cells(&x), "repeats");
        let all = [a, b, c].concat();
        let greatest = greatest_values(&all).into_iter();
        let greatest: Cells = greatest.map(|((t, n), (s, v))| ((t, n.to_string()), (s, format!("{v:?}")))).collect();
        prop_assert_eq!(cells(&merge(&merge(&x, &y), &z)), greatest.clone(), "the greatest of each cell");
        let mut bucket = Bucket::default();
        all.iter().rev().chain(&all).for_each(|record| apply(&mut bucket, record, floor, max_readings));
        let paged: Cells = bucket.pages().iter().flat_map(|page| cells(&page.readings)).collect();
        prop_assert_eq!(paged, greatest, "over pages, in any order, twice");
        Ok(())
    });
    if let Err(failed) = result {
        panic!("{failed}");
    }
}

#[test]
fn merging_commutes_associates_and_repeats() {
    run();
}
