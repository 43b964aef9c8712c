//! Exact sums, independent of the program's code: multiples of 2^-1074 in lanes of 32 bits.

use hourglass::reading::Value;

pub struct Exact(Vec<i64>);

/// Enough for a few billion of the greatest double.
const LANES: usize = 70;

impl Exact {
    /// Adds these values; other types count as nothing.
    pub fn sum<'a>(values: impl Iterator<Item = &'a Value>) -> Exact {
        let mut exact = Exact(vec![0; LANES]);
        for value in values {
            match value {
                Value::Float(v) => exact.add_double(*v),
                Value::Integer(v) => exact.add(v.unsigned_abs(), 1074, v.signum()),
                Value::Unsigned(v) => exact.add(*v, 1074, 1),
                Value::Boolean(_) | Value::String(_) => {}
            }
        }
        exact
    }

    /// Adds these doubles.
    pub fn sum_of_doubles(doubles: impl Iterator<Item = f64>) -> Exact {
        let mut exact = Exact(vec![0; LANES]);
        doubles.for_each(|double| exact.add_double(double));
        exact
    }

    fn add_double(&mut self, double: f64) {
        assert!(double.is_finite());
        let fraction = double.to_bits() & ((1 << 52) - 1);
        let exponent = double.to_bits() >> 52 & 0x7ff;
        let hidden = if exponent == 0 { 0 } else { 1 << 52 };
        let shift = usize::try_from(exponent.max(1) - 1).expect("small");
        self.add(fraction | hidden, shift, if double < 0.0 { -1 } else { 1 });
    }

    fn add(&mut self, number: u64, shift: usize, sign: i64) {
        let moved = u128::from(number) << (shift % 32);
        for lane in 0..3 {
            let bits = i64::try_from(moved >> (32 * lane) & 0xffff_ffff).expect("32 bits");
            self.0[shift / 32 + lane] += sign * bits;
        }
        // A lane has room for two billion additions.
    }

    /// Returns the sum rounded to the nearest double (ties to even), then the rounded rest, until nothing is left.
    pub fn parts(mut self) -> Vec<f64> {
        std::iter::from_fn(|| self.take()).collect()
    }

    /// Returns the sum rounded once.
    pub fn rounded(mut self) -> f64 {
        self.take().unwrap_or(0.0)
    }

    fn take(&mut self) -> Option<f64> {
        let (is_negative, bits) = match self.bits(1) {
            (true, _) => (true, self.bits(-1).1),
            positive => positive,
        };
        let top = bits.iter().rposition(|bit| *bit)?;
        let from = top.saturating_sub(52);
        let mut number = (from..=top).rev().fold(0_u64, |number, at| number << 1 | u64::from(bits[at]));
        let is_half = from > 0 && bits[from - 1];
        if is_half && (number % 2 == 1 || bits[..from - 1].contains(&true)) {
            number += 1;
        }
        self.add(number, from, if is_negative { 1 } else { -1 });
        #[allow(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let double = times_power_of_two(number as f64, i32::try_from(from).expect("small") - 1074);
        Some(if is_negative { -double } else { double })
    }

    /// Returns (is negative, bits) of the sum, or with -1 of its negative.
    fn bits(&self, sign: i64) -> (bool, Vec<bool>) {
        let mut carry = 0;
        let mut bits = Vec::with_capacity(LANES * 32);
        for lane in &self.0 {
            carry += sign * lane;
            bits.extend((0..32).map(|bit| carry >> bit & 1 == 1));
            carry >>= 32;
        }
        (carry < 0, bits)
    }
}

/// Exact, down to the least double.
pub fn times_power_of_two(double: f64, exponent: i32) -> f64 {
    match exponent {
        ..-500 => double * 2_f64.powi(exponent + 500) * 2_f64.powi(-500),
        _ => double * 2_f64.powi(exponent),
    }
}
