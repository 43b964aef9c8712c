//! Tests exact sums against an independent oracle: binary numbers as rows of digits.

use proptest::prelude::*;

use super::*;

/// An addend of a sum.
#[derive(Debug, Clone, Copy)]
enum Addend {
    Double(f64),
    Integer(i128),
}

/// An integer in units of 2^-1074 as binary digits, lowest first; before carrying, a digit may be any integer.
struct Digits(Vec<i64>);

impl Digits {
    fn of(addends: &[Addend]) -> Self {
        let mut digits = vec![0_i64; 2400];
        let mut add = |magnitude: u128, at: usize, sign: i64| {
            (0..128).filter(|bit| magnitude >> bit & 1 == 1).for_each(|bit| digits[at + bit] += sign);
        };
        for addend in addends {
            match addend {
                Addend::Integer(v) => add(v.unsigned_abs(), 1074, v.signum() as i64),
                Addend::Double(v) => {
                    let fraction = v.to_bits() & ((1 << 52) - 1);
                    let exponent = v.to_bits() >> 52 & 0x7ff;
                    let hidden = if exponent == 0 { 0 } else { 1 << 52 };
                    let sign = if *v < 0.0 { -1 } else { 1 };
                    add((fraction | hidden).into(), exponent.max(1) as usize - 1, sign);
                }
            }
        }
        Self(digits)
    }

    /// The sign (true if negative), and the digits of the magnitude after carrying.
    fn carried(&self) -> (bool, Vec<bool>) {
        let carry = |sign: i64| {
            let mut over = 0;
            let digits: Vec<bool> = (self.0.iter())
                .map(|digit| {
                    over += sign * digit;
                    let digit = over.rem_euclid(2) == 1;
                    over = over.div_euclid(2);
                    digit
                })
                .collect();
            (over < 0, digits)
        };
        match carry(1) {
            (true, _) => (true, carry(-1).1),
            positive => positive,
        }
    }

    /// Rounds to an odd integer (or zero) and an exponent, and subtracts the result.
    fn round(&mut self) -> (i64, i32) {
        let (is_negative, digits) = self.carried();
        let Some(top) = digits.iter().rposition(|digit| *digit) else { return (0, 0) };
        let from = top.saturating_sub(52);
        let mut number = (from..=top).rev().fold(0_i64, |number, at| number << 1 | i64::from(digits[at]));
        let half = from > 0 && digits[from - 1];
        let is_more = from > 1 && digits[..from - 1].iter().any(|digit| *digit);
        if half && (is_more || number % 2 == 1) {
            number += 1;
        }
        let sign = if is_negative { -1 } else { 1 };
        (0..54).filter(|bit| number >> bit & 1 == 1).for_each(|bit| self.0[from + bit] -= sign);
        let zeros = number.trailing_zeros();
        (sign * (number >> zeros), from as i32 - 1074 + zeros as i32)
    }
}

fn expected(addends: &[Addend]) -> Vec<(i64, i32)> {
    let mut digits = Digits::of(addends);
    std::iter::from_fn(|| Some(digits.round()).filter(|part| part.0 != 0)).collect()
}

/// All parts of a sum, starting with the rounded sum.
fn parts(sum: &ExactSum) -> Vec<(i64, i32)> {
    let (rounded, rest) = sum.parts();
    let first = SumPart::from_double(rounded, 0).into_iter();
    first.chain(rest.parts()).map(|part| (part.significand(), part.exponent())).collect()
}

fn sum(addends: &[Addend]) -> ExactSum {
    let mut sum = ExactSum::default();
    for addend in addends {
        match addend {
            Addend::Double(v) => sum.add(*v),
            Addend::Integer(v) => sum.add_integer(*v),
        }
    }
    sum
}

fn doubles() -> impl Strategy<Value = f64> {
    let finite = prop::num::f64::NORMAL | prop::num::f64::ZERO | prop::num::f64::SUBNORMAL;
    let edges = [f64::MAX, f64::MIN, f64::MIN_POSITIVE, 5e-324, 1.0, -1.0, 9_007_199_254_740_993.0, 0.1, -0.0];
    prop_oneof![
        4 => (-20_000..20_000_i32, 0..5_i32).prop_map(|(number, places)| f64::from(number) / 10_f64.powi(places)),
        2 => finite,
        1 => prop::sample::select(edges.to_vec()),
    ]
}

fn addends() -> impl Strategy<Value = Vec<Addend>> {
    let addend = prop_oneof![
        4 => doubles().prop_map(Addend::Double),
        1 => any::<i64>().prop_map(|v| Addend::Integer(v.into())),
        1 => any::<u64>().prop_map(|v| Addend::Integer(v.into())),
        1 => prop::sample::select(vec![i128::from(i64::MAX), i128::from(i64::MIN), (1 << 53) + 1]).prop_map(Addend::Integer),
    ];
    prop::collection::vec(addend, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn a_sum_is_exact_and_rounded_once(addends in addends()) {
        let sum = sum(&addends);
        prop_assert_eq!(sum.rounded().to_bits(), sum.parts().0.to_bits());
        prop_assert_eq!(parts(&sum), expected(&addends));
        prop_assert!(!sum.rounded().is_nan());
        prop_assert!(sum.rounded() != 0.0 || sum.rounded().is_sign_positive());
    }

    #[test]
    fn order_and_grouping_do_not_matter(addends in addends(), order in any::<u64>(), cuts in prop::collection::vec(0..40_usize, 0..5)) {
        let whole = sum(&addends);
        let mut shuffled = addends.clone();
        let mut seed = order;
        for at in (1..shuffled.len()).rev() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            shuffled.swap(at, (seed >> 33) as usize % (at + 1));
        }
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(addends.len())).collect();
        cuts.extend([0, addends.len()]);
        cuts.sort_unstable();
        let mut united = ExactSum::default();
        let mut stored = ExactSum::default();
        for pair in cuts.windows(2) {
            let part = sum(&shuffled[pair[0]..pair[1]]);
            united.add_sum(&part);
            let (rounded, rest) = part.parts();
            let doubles: Vec<f64> = rest.doubles(rounded).collect();
            let read = SumRest::from_doubles(rounded, doubles.into_iter());
            prop_assert_eq!(read.as_ref(), Some(&rest), "as doubles");
            stored.add_sum(&ExactSum::from_rounded(rounded, &rest));
        }
        for other in [&united, &stored] {
            prop_assert_eq!(parts(other), parts(&whole));
            prop_assert_eq!(other, &whole);
        }
    }

    #[test]
    fn decimals_of_one_sensor_never_need_a_wide_sum(values in prop::collection::vec(-2_000_000..2_000_000_i32, 1..4000), places in 0..4) {
        let sum = sum(&values.iter().map(|v| Addend::Double(f64::from(*v) / 10_f64.powi(places))).collect::<Vec<_>>());
        prop_assert!(sum.wide.is_none());
        prop_assert!(sum.parts().1.others.is_empty());
    }
}

#[test]
fn beyond_the_range_of_doubles_the_exact_sum_is_kept() {
    let mut sum = ExactSum::default();
    for _ in 0..5 {
        sum.add(f64::MAX);
    }
    sum.add(5e-324);
    let (rounded, rest) = sum.parts();
    assert_eq!(rounded, f64::INFINITY);
    let mut read = ExactSum::from_rounded(rounded, &rest);
    assert_eq!(read, sum);
    (0..4).for_each(|_| read.add(-f64::MAX));
    assert_eq!(
        read.parts(),
        ExactSum::from_rounded(f64::MAX, &SumRest::from_doubles(f64::MAX, [5e-324].into_iter()).unwrap()).parts()
    );
    read.add(-f64::MAX);
    assert_eq!(read.parts(), (5e-324, SumRest::default()));
}

#[test]
fn ties_round_to_even() {
    let odd = 9_007_199_254_740_992.0;
    let of =
        |more: &[f64]| sum(&[odd, 1.0].iter().chain(more).map(|v| Addend::Double(*v)).collect::<Vec<_>>()).rounded();
    assert_eq!((of(&[]), of(&[5e-324]), of(&[-5e-324])), (odd, odd + 2.0, odd));
    assert_eq!(of(&[2.0]), odd + 4.0);
}

#[test]
fn non_finite_values_are_added_as_doubles() {
    let of = |values: &[f64]| sum(&values.iter().map(|v| Addend::Double(*v)).collect::<Vec<_>>());
    let infinite = of(&[1.0, f64::INFINITY, 2.0]);
    let undefined = of(&[f64::INFINITY, f64::NEG_INFINITY]);
    assert_eq!(infinite.parts(), (f64::INFINITY, SumRest::default()));
    assert_ne!(infinite, of(&[f64::MAX, f64::MAX]), "whose rest is kept");
    assert!(undefined.rounded().is_nan());
    assert_eq!(undefined, of(&[f64::NAN]));
}

#[test]
fn parts_that_no_sum_has_are_rejected() {
    for (significand, exponent) in
        [(0, 0), (2, 0), (1, -1075), (1, 1076), ((1 << 53) + 1, 0), (i64::MIN, 0), (1, i32::MIN), (3, i32::MAX)]
    {
        assert_eq!(SumPart::from_parts(significand, exponent), None, "{significand} {exponent}");
    }
    for doubles in [[0.0], [f64::NAN], [f64::INFINITY]] {
        assert_eq!(SumRest::from_doubles(1.0, doubles.into_iter()), None);
    }
}
