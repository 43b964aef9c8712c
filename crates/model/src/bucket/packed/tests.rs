//! Tests that packed readings decode to the same values, bit for bit, in the same order.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

/// A reading: the distance from the previous reading's stamp, the time, the cells.
type TestRow = (u64, i64, Vec<(u16, Value)>);

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(|bits| Value::Float(f64::from_bits(bits))),
        (-1000..1000_i32).prop_map(|whole| Value::Float(f64::from(whole))),
        any::<i64>().prop_map(Value::Integer),
        (1 << 63..=u64::MAX).prop_map(Value::Unsigned),
        any::<bool>().prop_map(Value::Boolean),
        ".{0,12}".prop_map(|text| Value::String(text.into())),
    ]
}

fn readings() -> impl Strategy<Value = Vec<TestRow>> {
    let times = prop_oneof![any::<i64>(), (0..100_i64).prop_map(|second| second * 1_000_000_000)];
    let cells = prop::collection::vec((0..4_u16, values()), 0..4);
    let stamp_distance = prop_oneof![0..300_u64, (0..90_000_u64).prop_map(|ms| ms << 20), 0..1_u64 << 40];
    prop::collection::vec((stamp_distance, times, cells), 0..30)
}

fn pack(rows: &[TestRow]) -> PackedRows {
    let mut packed = PackedRows::default();
    let mut sequence = 1_000_000;
    for (stamp_distance, time, cells) in rows {
        sequence += stamp_distance;
        packed.push(sequence, *time, cells.iter().map(|(field, value)| (*field, value)));
    }
    packed
}

/// The readings with their stamps, times and cells as text.
fn describe(packed: &PackedRows, in_time_order: bool) -> Vec<(u64, i64, String)> {
    let mut unpacked = UnpackedRows::default();
    if in_time_order {
        unpacked.unpack_in_time_order([packed])
    } else {
        unpacked.unpack([packed])
    }
    describe_unpacked(&unpacked)
}

fn describe_unpacked(unpacked: &UnpackedRows) -> Vec<(u64, i64, String)> {
    let names: Vec<Arc<str>> = (0..4).map(|field| Arc::from(format!("f{field}"))).collect();
    let bits =
        |value: &Value| if let Value::Float(v) = value { format!("{:x}", v.to_bits()) } else { format!("{value:?}") };
    let cells = |row: &Row<'_>| row.cells.iter().map(|(field, value)| format!("{field}:{};", bits(value))).collect();
    unpacked.rows(&names).map(|row| (row.stamp, row.time, cells(&row))).collect()
}

fn describe_rows(rows: &[TestRow]) -> Vec<(u64, i64, String)> {
    let mut sequence = 1_000_000;
    let bits =
        |value: &Value| if let Value::Float(v) = value { format!("{:x}", v.to_bits()) } else { format!("{value:?}") };
    let row = |(stamp_distance, time, cells): &TestRow| {
        sequence += stamp_distance;
        (sequence, *time, cells.iter().map(|(field, value)| format!("{field}:{};", bits(value))).collect())
    };
    rows.iter().map(row).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packed_readings_round_trip(rows in readings()) {
        let packed = pack(&rows);
        let mut expected = describe_rows(&rows);
        prop_assert_eq!(packed.len(), rows.len());
        prop_assert_eq!(&describe(&packed, false), &expected);
        prop_assert_eq!(packed.stamps().collect::<Vec<_>>(), expected.iter().map(|row| row.0).collect::<Vec<_>>());
        expected.sort_by_key(|row| row.1);
        prop_assert_eq!(describe(&packed, true), expected, "a stable sort keeps the log's order within one time");
    }

    #[test]
    fn a_range_of_times_is_copied(rows in readings(), start in 0..100_i64, length in 0..60_i64) {
        let packed = pack(&rows);
        let times = start * 1_000_000_000..(start + length) * 1_000_000_000;
        let mut expected = describe_rows(&rows);
        expected.retain(|row| times.contains(&row.1));
        let mut within = PackedRows::default();
        within.append_within(&packed, &times);
        prop_assert_eq!(describe(&within, false), expected);
    }

    /// Regression: readings with the same time and stamp in two parts were not folded in order. Of two values in one
    /// request, the greater one was kept instead of the last one.
    #[test]
    fn parts_together_are_the_whole(rows in readings(), count in 1..5_usize, skipped in 0..3_usize) {
        let packed = pack(&rows);
        let mut parts = packed.parts(count);
        let mut part = UnpackedRows::default();
        let mut found = Vec::new();
        while parts.next_in_time_order(&mut part) {
            let times: Vec<i64> = part.rows(&[]).map(|row| row.time).collect();
            prop_assert!(times.len() <= count || times.first() == times.last(), "{times:?}");
            found.push(describe_unpacked(&part));
        }
        let expected = describe(&packed, true);
        prop_assert_eq!(found.concat(), expected);
        prop_assert!(found.is_sorted_by(|a, b| a[a.len() - 1].1 < b[0].1), "no time is in two parts");
        let mut later = packed.parts(count);
        later.skip(skipped);
        prop_assert_eq!(later.next_in_time_order(&mut part), skipped < found.len());
        prop_assert_eq!(describe_unpacked(&part), found.get(skipped).cloned().unwrap_or_default());
    }

    #[test]
    fn appending_one_pack_to_another_keeps_all_rows(rows in readings(), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(rows.len() + 1);
        let whole = pack(&rows);
        let mut first = pack(&rows[..cut]);
        let mut later = whole.clone();
        let last = first.stamps().count();
        let count = std::cell::Cell::new(0);
        drop(later.take_out(|_, _| count.replace(count.get() + 1) < last));
        first.append(&later);
        prop_assert_eq!(describe(&first, false), describe_rows(&rows));
    }

    #[test]
    fn taken_and_kept_rows_are_all_rows(rows in readings(), limit in 0..100_i64) {
        let mut kept = pack(&rows);
        let gone = kept.take_out(|time, _| time < limit * 1_000_000_000);
        let (gone_expected, kept_expected): (Vec<_>, Vec<_>) =
            describe_rows(&rows).into_iter().partition(|row| row.1 < limit * 1_000_000_000);
        prop_assert_eq!(describe(&gone, false), gone_expected);
        prop_assert_eq!(describe(&kept, false), kept_expected);
    }
}

#[test]
fn a_steady_sensor_takes_few_bytes() {
    let mut packed = PackedRows::default();
    for tick in 0..60 {
        let cells = [(0, Value::Float(20.07)), (1, Value::Float(45.0))];
        packed.push(
            (1_800_000_000_000 + tick * 60_000) << 20 | 77 << 12,
            1_768_435_200_000_000_000 + i64::try_from(tick).expect("small") * 60_000_000_000,
            cells.iter().map(|(field, value)| (*field, value)),
        );
    }
    assert!(packed.bytes.len() < 60 * 19, "{} bytes for 60 readings of two floats", packed.bytes.len());
}
