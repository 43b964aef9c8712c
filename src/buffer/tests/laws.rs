//! Properties of merges of random sets: they commute, they associate, and a repeated merge changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::{names, runner};
use crate::bucket::{Bucket, Caps, MergeOptions, Readings, Row};
use crate::reading::{Stamp, Value};

/// A record: its stamp, and a value per time and field.
type Said = (Stamp, BTreeMap<(i64, u16), i64>);
/// A set's cells: stamp and value per time and field.
type Cells = BTreeMap<(i64, String), (Stamp, String)>;

fn said() -> impl Strategy<Value = Vec<Said>> {
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

fn apply(bucket: &mut Bucket, (stamp, cells): &Said, floor: Stamp, max_readings: usize) {
    let mut rows: BTreeMap<i64, Vec<(u16, Value)>> = BTreeMap::new();
    for ((time, field), number) in cells {
        rows.entry(*time).or_default().push((*field, value(*number)));
    }
    let fields = &names().fields;
    let rows = rows.iter().map(|(time, cells)| Row { time: *time, stamp: *stamp, names: fields, cells });
    let caps = Caps { max_readings, max_bytes: 1 << 20, hard_bytes: 1 << 20 };
    bucket.apply(rows, &MergeOptions { caps: &caps, floor, restamps: true });
}

fn set(said: &[Said], floor: Stamp) -> Readings {
    let mut bucket = Bucket::default();
    said.iter().for_each(|said| apply(&mut bucket, said, floor, 100));
    bucket.pages().first().map_or_else(Readings::default, |page| page.readings.clone())
}

fn cells(set: &Readings) -> Cells {
    let mut cells = Cells::new();
    for (row, time) in set.times().iter().enumerate() {
        for (column, (name, values)) in set.columns().enumerate() {
            if let Some(value) = &values[row] {
                let said = (set.stamps().get(row, column), format!("{value:?}"));
                cells.insert((*time, name.to_string()), said);
            }
        }
    }
    cells
}

fn merged(one: &Readings, other: &Readings) -> Readings {
    let mut merged = one.clone();
    merged.merge_set(other);
    merged.pack().unpack()
}

/// Returns the value with the greatest stamp for each cell, and the greatest value if stamps are equal.
fn greatest(all: &[Said]) -> BTreeMap<(i64, Arc<str>), (Stamp, Value)> {
    let mut greatest: BTreeMap<(i64, Arc<str>), (Stamp, Value)> = BTreeMap::new();
    for (stamp, cells) in all {
        for ((time, field), number) in cells {
            let cell = (*time, names().fields[usize::from(*field)].clone());
            let value = value(*number);
            let held = greatest.entry(cell).or_insert_with(|| (*stamp, value.clone()));
            if *stamp > held.0 || (*stamp == held.0 && value.is_greater(&held.1)) {
                *held = (*stamp, value);
            }
        }
    }
    greatest
}

/// Compares sets by field name, because a column's number does not identify its field.
fn run() {
    let mut runner = runner(200_000);
    let floors = prop_oneof![2 => Just(0), 1 => 1..5_u64];
    let strategy = (said(), said(), said(), floors, 1..4_usize);
    let result = runner.run(&strategy, |(a, b, c, floor, max_readings)| {
        let [x, y, z] = [&a, &b, &c].map(|said| set(said, floor));
        prop_assert_eq!(cells(&merged(&x, &y)), cells(&merged(&y, &x)), "commutes");
        prop_assert_eq!(cells(&merged(&merged(&x, &y), &z)), cells(&merged(&x, &merged(&y, &z))), "associates");
        prop_assert_eq!(cells(&merged(&x, &x)), cells(&x), "repeats");
        let all = [a, b, c].concat();
        let greatest = greatest(&all).into_iter();
        let greatest: Cells = greatest.map(|((t, n), (s, v))| ((t, n.to_string()), (s, format!("{v:?}")))).collect();
        prop_assert_eq!(cells(&merged(&merged(&x, &y), &z)), greatest.clone(), "the greatest of each cell");
        let mut bucket = Bucket::default();
        all.iter().rev().chain(&all).for_each(|said| apply(&mut bucket, said, floor, max_readings));
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
