//! Tests that packed columns decode to the same values, bit for bit, and that invalid bytes are always an error.

use proptest::prelude::*;

use super::*;

fn values() -> impl Strategy<Value = Value> {
    let decimals =
        (any::<i32>(), 0..12_u32).prop_map(|(number, places)| f64::from(number) / 10_f64.powi(places.cast_signed()));
    prop_oneof![
        2 => any::<u64>().prop_map(|bits| Value::Float(f64::from_bits(bits))),
        6 => decimals.prop_map(Value::Float),
        1 => any::<f32>().prop_map(|v| Value::Float(f64::from(v))),
        3 => any::<i64>().prop_map(Value::Integer),
        1 => (1 << 63..=u64::MAX).prop_map(Value::Unsigned),
        1 => any::<bool>().prop_map(Value::Boolean),
        1 => ".{0,12}".prop_map(|text| Value::String(text.into())),
    ]
}

/// A column in which neighboring cells often have the same kind.
fn column(count: usize) -> impl Strategy<Value = Vec<Cell>> {
    let run = (prop::option::weighted(0.8, values()), values(), 1..9_usize);
    prop::collection::vec(run, 1..8).prop_map(move |runs| {
        let cells = runs.into_iter().flat_map(|(first, other, length)| {
            let mut run = vec![first; length];
            run.push(Some(other));
            run
        });
        cells.cycle().take(count).collect()
    })
}

fn times() -> impl Strategy<Value = Vec<i64>> {
    let unit = prop::sample::select(&[1, 1_000, 1_000_000, 1_000_000_000, 60_000_000_000][..]);
    let steady = (any::<i16>(), unit).prop_map(|(from, unit)| (0..40).map(|n| (i64::from(from) + n) * unit).collect());
    prop_oneof![steady, prop::collection::vec(any::<i64>(), 0..40)]
}

fn sets() -> impl Strategy<Value = (Vec<i64>, Vec<Vec<Cell>>)> {
    times().prop_flat_map(|times| {
        let count = times.len();
        (Just(times), prop::collection::vec(column(count), 0..4))
    })
}

fn packed((times, columns): &(Vec<i64>, Vec<Vec<Cell>>)) -> Vec<u8> {
    pack(times, columns.iter().map(|cells| &**cells))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packed_readings_round_trip(set in sets()) {
        // Values are equal only if all their bits are.
        prop_assert_eq!(&unpack(&packed(&set), set.1.len(), CELLS_MAX), &Ok(set.clone()));
        let one_more = unpack(&packed(&set), set.1.len() + 1, CELLS_MAX);
        prop_assert!(set.0.is_empty() || one_more.is_err(), "of another number of columns");
    }

    #[test]
    fn truncated_and_extended_bytes_are_rejected(set in sets(), more in prop::collection::vec(any::<u8>(), 1..4)) {
        let whole = packed(&set);
        for length in 0..whole.len() {
            prop_assert!(unpack(&whole[..length], set.1.len(), CELLS_MAX).is_err(), "{length} of {} bytes", whole.len());
        }
        prop_assert!(unpack(&[whole, more].concat(), set.1.len(), CELLS_MAX).is_err());
    }

    #[test]
    fn a_changed_byte_yields_a_set_or_an_error(set in sets(), other in any::<u8>()) {
        let whole = packed(&set);
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] = other;
            let Ok((times, columns)) = unpack(&changed, set.1.len(), CELLS_MAX) else { continue };
            prop_assert!(columns.iter().all(|cells| cells.len() == times.len()));
        }
    }

    #[test]
    fn numbers_equal_those_of_the_cells(cells in column(40)) {
        let mut bytes = Vec::new();
        put_cells(&mut bytes, &cells, &mut Vec::new());
        let expected: Option<Vec<Number>> = (cells.iter().flatten())
            .map(|value| (!matches!(value, Value::Boolean(_) | Value::String(_))).then(|| Number::from_value(value)))
            .collect();
        let expected = expected.filter(|numbers| numbers.len() == cells.len());
        let mut numbers = vec![Number::default(); cells.len()];
        let taken = take_numbers(&mut PackedBytes::new(&bytes), &mut numbers);
        prop_assert_eq!(taken.is_ok(), expected.is_some());
        // NaN differs from itself.
        let are_same = expected.is_none_or(|expected| format!("{expected:?}") == format!("{numbers:?}"));
        prop_assert!(are_same);
        for length in 0..bytes.len() {
            prop_assert!(take_numbers(&mut PackedBytes::new(&bytes[..length]), &mut numbers).is_err());
        }
    }

    #[test]
    fn skipping_numbers_consumes_the_same_bytes_as_decoding(cells in column(40), behind in prop::collection::vec(any::<u8>(), 0..12)) {
        let mut bytes = Vec::new();
        put_cells(&mut bytes, &cells, &mut Vec::new());
        let length = bytes.len();
        bytes.extend(&behind);
        let mut taken = vec![Number::default(); cells.len()];
        let mut skipped = vec![Number::default(); cells.len()];
        let is_taken = take_numbers(&mut PackedBytes::new(&bytes), &mut taken).is_ok();
        let mut rest = PackedBytes::new(&bytes);
        prop_assert_eq!(skip_numbers(&mut rest, &mut skipped).is_ok(), is_taken);
        if is_taken {
            prop_assert_eq!(rest.unread(), &*behind);
            let is_float = |number: &Number| matches!(number, Number::Float(_));
            prop_assert!(taken.iter().map(is_float).eq(skipped.iter().map(is_float)));
        }
        for length in 0..length {
            prop_assert!(skip_numbers(&mut PackedBytes::new(&bytes[..length]), &mut skipped).is_err());
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), columns in 0..5_usize) {
        let _ = unpack(&bytes, columns, CELLS_MAX);
        let _ = skip_numbers(&mut PackedBytes::new(&bytes), &mut vec![Number::default(); columns]);
    }
}

#[test]
fn a_declared_size_beyond_the_bytes_allocates_nothing() {
    let mut many = Vec::new();
    put_varint(&mut many, u64::MAX);
    assert!(matches!(unpack(&many, 1, CELLS_MAX), Err(ColumnsDamage::Large { readings: u64::MAX, columns: 1 })));
    // A run of empty cells takes few bytes, so the decoded cells could number the square of the bytes.
    let cells = vec![None; 5000];
    let columns = vec![&*cells; 5000];
    let times: Vec<i64> = (0..5000).collect();
    let wide = pack(&times, columns.into_iter());
    assert!(matches!(unpack(&wide, 5000, CELLS_MAX), Err(ColumnsDamage::Large { readings: 5000, columns: 5000 })));
    assert!(unpack(&wide, usize::MAX, CELLS_MAX).is_err());
    assert!(unpack(&wide, 5000, usize::MAX).is_ok(), "it never left the process");
    let mut run = pack(&[1, 2, 3], std::iter::empty());
    put_varint(&mut run, u64::MAX);
    assert_eq!(unpack(&run, 1, CELLS_MAX), Err(ColumnsDamage::Unknown { what: "a run of cells", found: u64::MAX }));
}

#[test]
fn only_exact_decimals_are_stored_as_decimals() {
    for (value, expected) in [
        (0.1, Some((1, 1))),
        (-20.07, Some((-2007, 2))),
        (1e9, Some((1_000_000_000, 0))),
        (0.000_000_001, Some((1, 9))),
        (4_503_599_627_370_495.0, Some((4_503_599_627_370_495, 0))),
        (9_007_199_254_740_992.0, None),
        (0.1 + 0.2, None),
        (-0.0, None),
        (f64::NAN, None),
        (f64::INFINITY, None),
        (f64::MIN_POSITIVE, None),
    ] {
        let found = (0..POWERS.len()).find_map(|places| Some((scale(value, places)?, places)));
        assert_eq!(found, expected, "{value}");
    }
}

#[test]
fn a_steady_sensor_takes_few_bytes() {
    let times: Vec<i64> = (0..60).map(|minute| 1_768_435_200_000_000_000 + minute * 60_000_000_000).collect();
    let column = |value: fn(u32) -> f64| (0..60).map(|n| Some(Value::Float(value(n)))).collect::<Vec<Cell>>();
    let columns = [column(|n| 20.0 + f64::from(n * 37 % 100) / 100.0), column(|n| 45.0 + f64::from(n % 7) / 10.0)];
    let bytes = pack(&times, columns.iter().map(|cells| &**cells)).len();
    assert!(bytes < 60 * 5, "{bytes} bytes for 60 readings of two floats");
}
