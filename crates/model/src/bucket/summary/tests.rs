use proptest::prelude::*;

use super::*;

const MAX: i128 = i64::MAX as i128;

fn fold(values: &[Value]) -> Option<Summary> {
    Summary::fold(values.iter())
}

fn integers(values: &[Value]) -> Fold<i128> {
    match fold(values) {
        Some(Summary::Integers(fold)) => fold,
        other => panic!("integers stay integers: {other:?}"),
    }
}

fn floats(values: &[Value]) -> Fold<f64, ExactSum> {
    match fold(values) {
        Some(Summary::Floats(fold)) => fold,
        other => panic!("a float makes all of them floats: {other:?}"),
    }
}

/// All bits of a summary, so that `0.0` and `-0.0` differ.
fn bits(summary: Option<Summary>) -> String {
    match summary {
        Some(Summary::Floats(f)) => {
            format!("{} {:?} {:?}", f.count, [f.min, f.max, f.first, f.last].map(f64::to_bits), f.sum.parts())
        }
        other => format!("{other:?}"),
    }
}

fn values() -> impl Strategy<Value = Vec<Value>> {
    let finite = prop::num::f64::NORMAL | prop::num::f64::ZERO | prop::num::f64::SUBNORMAL;
    let value = prop_oneof![
        2 => finite.prop_map(|v| Value::Float(v / 1e10)),
        4 => any::<i64>().prop_map(Value::Integer),
        1 => (1 << 63..=u64::MAX).prop_map(Value::Unsigned),
        1 => any::<bool>().prop_map(Value::Boolean),
        1 => Just(Value::String("text".into())),
    ];
    prop::collection::vec(value, 0..12)
}

#[test]
fn integers_are_summed_exactly() {
    let sum = integers(&[Value::Integer(i64::MAX), Value::Integer(i64::MAX), Value::Unsigned(u64::MAX)]);
    assert_eq!(sum.sum, 2 * MAX + i128::from(u64::MAX));
    assert_eq!((sum.min, sum.max, sum.first, sum.last), (MAX, i128::from(u64::MAX), MAX, i128::from(u64::MAX)));
    let back = integers(&[Value::Integer(i64::MAX), Value::Integer(1), Value::Integer(i64::MIN)]);
    assert_eq!((back.sum, back.min, back.max), (0, i128::from(i64::MIN), MAX));
}

#[test]
fn floats_are_summed_exactly_and_rounded_once() {
    let [tenth, fifth, large] = [0.1, 0.2, 1e16].map(Value::Float);
    let forth = floats(&[tenth.clone(), fifth.clone(), large.clone(), Value::Float(-1e16)]);
    let back = floats(&[large, Value::Float(-1e16), fifth, tenth]);
    assert_eq!(forth.sum, back.sum, "the order does not tell");
    assert_eq!(forth.sum.rounded(), 0.1 + 0.2);
}

#[test]
fn integers_beside_floats_are_added_exactly() {
    let odd = Value::Integer((1 << 53) + 1);
    let nearest = 9_007_199_254_740_992.0;
    for values in [[odd.clone(), Value::Float(0.0)], [Value::Float(0.0), odd.clone()]] {
        let fold = floats(&values);
        assert_eq!((fold.max, fold.sum.rounded(), fold.min), (nearest, nearest, 0.0));
    }
    // Twice the value is exact as a double; adding it twice as a rounded double is not.
    let fold = floats(&[odd.clone(), odd, Value::Float(0.0)]);
    assert_eq!(fold.sum.rounded(), nearest + nearest + 2.0);
    assert_eq!(floats(&[Value::Unsigned(u64::MAX), Value::Float(1.0)]).max, 18_446_744_073_709_551_616.0);
}

#[test]
fn negative_zero_is_less_than_zero_in_any_order() {
    for values in [[0.0, -0.0], [-0.0, 0.0]] {
        let fold = floats(&values.map(Value::Float));
        assert!(fold.min.is_sign_negative() && fold.max.is_sign_positive());
        assert!(fold.sum.rounded().is_sign_positive(), "the sum of nothing but zeros is the positive one");
    }
}

/// Regression: twice 2^63-1 plus 1 was stored as the double 2^64 and nothing else. Adding -(2^63-1) twice then gave
/// 1 before a flush and 0 after it.
#[test]
fn a_sum_of_integers_beyond_64_bits_comes_back_from_its_figures() {
    let max = Value::Integer(i64::MAX);
    let stored = fold(&[max.clone(), max, Value::Integer(1)]).unwrap().figures();
    assert_eq!(stored.sum, Value::Float(18_446_744_073_709_551_616.0));
    let negative = fold(&[Value::Integer(-i64::MAX), Value::Integer(-i64::MAX)]).unwrap();
    let all = Summary::from_figures(&stored).union(&negative);
    assert_eq!(all.figures().sum, Value::Integer(1));
}

#[test]
fn values_that_are_not_numbers_are_ignored() {
    assert_eq!(fold(&[]), None);
    assert_eq!(fold(&[Value::Boolean(true), Value::String("7".into())]), None);
    let mixed = integers(&[Value::Boolean(true), Value::Integer(4), Value::String("9".into())]);
    assert_eq!((mixed.count, mixed.sum, mixed.first, mixed.last), (1, 4, 4, 4));
}

#[test]
fn the_mean_is_sum_over_count() {
    let mean = |values: &[Value]| fold(values).map(|summary| summary.avg());
    assert_eq!(mean(&[Value::Integer(1), Value::Integer(2)]), Some(1.5));
    assert_eq!(mean(&[Value::Integer(i64::MAX), Value::Integer(i64::MAX)]), Some(9_223_372_036_854_775_807.0));
    assert_eq!(mean(&[Value::Float(0.5), Value::Integer(1)]), Some(0.75));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn push_and_union_continue_a_fold(values in values(), cut in 0..12_usize) {
        let (now, later) = values.split_at(cut.min(values.len()));
        let Some(mut continued) = fold(now) else { return Ok(()) };
        let mut united = continued.clone();
        later.iter().for_each(|value| continued.push(value));
        if let Some(later) = fold(later) {
            united.unite(&later);
        }
        prop_assert_eq!(bits(Some(continued)), bits(fold(&values)));
        prop_assert_eq!(bits(Some(united)), bits(fold(&values)));
    }

    #[test]
    fn summaries_round_trip_through_figures(values in values()) {
        let Some(summary) = fold(&values) else { return Ok(()) };
        let read = Summary::from_figures(&summary.figures());
        prop_assert_eq!(bits(Some(read.clone())), bits(Some(summary.clone())));
        prop_assert_eq!(read.figures(), summary.figures());
    }

    #[test]
    fn the_order_matters_only_for_first_and_last(values in values(), turn in 0..12_usize) {
        let mut turned = values.clone();
        turned.rotate_left(turn.min(values.len()));
        turned.reverse();
        let figures = |values: &[Value]| fold(values).map(|summary| {
            let Figures { count, min, max, sum, rest, avg, .. } = summary.figures();
            (count, min, max, sum, rest, avg)
        });
        prop_assert_eq!(figures(&turned), figures(&values));
    }
}
