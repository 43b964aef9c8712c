//! Exact sums: integers and floats are added without rounding, and the sum is rounded once, when it is read.
//!
//! Every finite double is an integer multiple of 2^-1074, so a sum of doubles and integers is an integer at some scale.
//! Nearly always a window of 127 bits at a scale near the values is enough; an addition is then a shift and an integer
//! addition. If a value does not fit, the window's content moves to a number that is wide enough for any sum, and the
//! window starts again at zero.

mod wide;

use std::fmt;

use self::wide::Wide;

/// The exponent bias of a double with an integer significand: `double = significand * 2^(biased - BIAS)`.
const BIAS: i32 = 1075;
/// The least biased exponent; its unit is 2^-1074.
const LEAST: i32 = 1;
const FRACTION: u64 = (1 << 52) - 1;
const HIDDEN: u64 = 1 << 52;
/// Maximum shift of a 53-bit significand within the window, with one bit left for the sign and one for a carry.
const SHIFT_MAX: i32 = 73;
/// The greatest scale of a window. With it, infinities and NaN (biased exponent 2047) never fit.
const UNIT_MAX: i32 = 2046 - SHIFT_MAX;
/// The scale of an empty window: no value fits.
const NO_UNIT: i32 = 4096;
/// Bits left free below the first value of a window, for later values with smaller units. The magnitudes of one
/// sensor's decimals rarely differ by more.
const SLACK: i32 = 24;
/// A mask for the low bits of scales: the scales of restored sums are multiples of 8.
const SCALE_MASK: i32 = 7;
/// Numbers below this, and their roundings, fit into an `i128`.
const ROUNDABLE: u128 = 1 << 126;
/// Parts of stored sums have no bits at or above this exponent; a sum of 2^50 greatest doubles stays below it.
const EXPONENT_END: i32 = 1076;

/// An exact sum of doubles and integers. Two sums are equal if they are the same number, whatever their addends.
#[derive(Clone)]
pub struct ExactSum {
    /// The sum is `window * 2^(unit - BIAS)` plus the content of `wide`.
    window: i128,
    unit: i32,
    wide: Option<Box<Wide>>,
}

/// One part of a sum: an odd integer of at most 53 bits times a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SumPart {
    significand: i64,
    exponent: i32,
}

/// The rounding error of a sum, in parts: the error rounded to 53 bits, then the error of that rounding, and so on
/// until the rest is zero. Nearly always it is one part of a few bits. A sum beyond the range of doubles rounds to an
/// infinity; its parts are the whole sum.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SumRest {
    first: Option<SumPart>,
    others: Vec<SumPart>,
}

impl Default for ExactSum {
    fn default() -> Self {
        Self { window: 0, unit: NO_UNIT, wide: None }
    }
}

impl ExactSum {
    /// Restores a sum from its nearest double and the rounding error.
    #[must_use]
    pub fn from_rounded(sum: f64, rest: &SumRest) -> Self {
        if let Some(window) = Self::window_from_rounded(sum, rest) {
            return window;
        }
        let mut exact = Self::default();
        if sum.is_finite() || rest.is_empty() {
            exact.add(sum);
        }
        rest.parts().for_each(|part| exact.add_scaled(part.significand.into(), part.exponent + BIAS));
        exact
    }

    /// As [`ExactSum::from_rounded`], if the rest has at most one part and both fit a window, which is nearly always so.
    fn window_from_rounded(sum: f64, rest: &SumRest) -> Option<Self> {
        let bits = sum.to_bits();
        let biased = (bits >> 52 & 0x7ff) as i32;
        if !sum.is_normal() || !rest.others.is_empty() {
            return None;
        }
        let significand = bits & FRACTION | HIDDEN;
        let (part, finest) = match rest.first {
            Some(part) => (part.significand, part.exponent + BIAS),
            None => (0, biased + significand.trailing_zeros().cast_signed()),
        };
        // Sums of values of similar magnitude get the same scale, so that adding them needs no shift.
        let unit = ((finest - SLACK) & !SCALE_MASK).max(LEAST);
        let shift = biased - unit;
        if unit > UNIT_MAX || !(0..=SHIFT_MAX).contains(&shift) {
            return None;
        }
        let sign = i128::from(bits.cast_signed() >> 63);
        let rounded = ((i128::from(significand) << shift) ^ sign) - sign;
        Some(Self { window: rounded + (i128::from(part) << (finest - unit)), unit, wide: None })
    }

    /// Adds a double.
    #[inline]
    pub fn add(&mut self, value: f64) {
        let bits = value.to_bits();
        let shift = (bits >> 52 & 0x7ff) as i32 - self.unit;
        if (0..=SHIFT_MAX).contains(&shift) {
            let significand = i128::from(bits & FRACTION | HIDDEN) << shift;
            let sign = i128::from(bits.cast_signed() >> 63);
            if let Some(sum) = self.window.checked_add((significand ^ sign) - sign) {
                self.window = sum;
                return;
            }
        }
        self.add_slowly(value);
    }

    /// Adds an integer.
    pub fn add_integer(&mut self, value: i128) {
        self.add_scaled(value, BIAS);
    }

    /// Adds another sum.
    pub fn add_sum(&mut self, other: &Self) {
        if let Some(wide) = &other.wide {
            self.wide().add_wide(wide);
        }
        self.add_scaled(other.window, other.unit);
    }

    /// The sum rounded to the nearest double, ties to even; an infinity beyond the range of doubles. Zero is positive.
    #[must_use]
    pub fn rounded(&self) -> f64 {
        match (&self.wide, self.window) {
            (None, 0) => 0.0,
            (None, window) if window.unsigned_abs() < ROUNDABLE => scale_by(nearest(window), self.unit - BIAS),
            _ => self.parts().0,
        }
    }

    /// The sum rounded once, and the rounding error. Both depend on the exact sum only.
    #[must_use]
    pub fn parts(&self) -> (f64, SumRest) {
        let mut parts = Vec::new();
        if self.wide.is_none() && self.window.unsigned_abs() < ROUNDABLE {
            let mut left = self.window;
            let mut one = || SumPart::take(&mut left, self.unit - BIAS);
            let Some(first) = one() else { return (0.0, SumRest::default()) };
            let second = one();
            parts.extend(std::iter::from_fn(one));
            return SumRest::from_parts(first, second, parts);
        }
        let mut wide = self.wide.as_deref().cloned().unwrap_or_default();
        wide.add(self.window, self.unit);
        if wide.beyond() != 0.0 {
            return (wide.beyond(), SumRest::default());
        }
        parts.extend(std::iter::from_fn(|| wide.take_part()));
        let mut parts = parts.into_iter();
        let Some(first) = parts.next() else { return (0.0, SumRest::default()) };
        let second = parts.next();
        SumRest::from_parts(first, second, parts.collect())
    }

    /// Bytes of memory beyond `size_of::<Self>()`.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.wide.as_ref().map_or(0, |_| size_of::<Wide>())
    }

    #[cold]
    fn add_slowly(&mut self, value: f64) {
        if value == 0.0 {
            return;
        }
        if !value.is_finite() {
            self.wide().add_beyond(value);
            return;
        }
        let bits = value.to_bits();
        let (significand, biased) = match (bits & FRACTION, (bits >> 52 & 0x7ff) as i32) {
            (fraction, 0) => (fraction, LEAST),
            (fraction, biased) => (fraction | HIDDEN, biased),
        };
        let significand = i128::from(significand);
        self.add_scaled(if value < 0.0 { -significand } else { significand }, biased);
    }

    /// Adds `number * 2^(unit - BIAS)`.
    fn add_scaled(&mut self, number: i128, unit: i32) {
        if unit == self.unit
            && let Some(sum) = self.window.checked_add(number)
        {
            self.window = sum;
            return;
        }
        if number == 0 || self.add_at(self.unit, number, unit) {
            return;
        }
        // The greatest scale at which both are integers. At the scale 2^-1074 every number is one.
        let finest = |number: i128, unit: i32| unit + number.trailing_zeros().cast_signed();
        let own = if self.window == 0 { NO_UNIT } else { finest(self.window, self.unit) };
        let common = own.min(finest(number, unit)).min(UNIT_MAX);
        if self.add_at((common - SLACK).max(LEAST), number, unit) || self.add_at(common, number, unit) {
            return;
        }
        let window = std::mem::take(&mut self.window);
        let window_unit = self.unit;
        self.wide().add(window, window_unit);
        let common = finest(number, unit).min(UNIT_MAX);
        if !self.add_at((common - SLACK).max(LEAST), number, unit) && !self.add_at(common, number, unit) {
            self.wide().add(number, unit);
        }
    }

    /// Changes the window's scale and adds a number. Returns false, without any change, if either does not fit.
    fn add_at(&mut self, scale: i32, number: i128, unit: i32) -> bool {
        let Some(window) = shift_exact(self.window, self.unit - scale) else { return false };
        let Some(number) = shift_exact(number, unit - scale) else { return false };
        let Some(sum) = window.checked_add(number) else { return false };
        self.window = sum;
        self.unit = scale;
        true
    }

    fn wide(&mut self) -> &mut Wide {
        self.wide.get_or_insert_default()
    }
}

impl fmt::Debug for ExactSum {
    /// The rounded sum and its rest; equal sums print the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rounded, rest) = self.parts();
        f.debug_list().entry(&rounded).entries(rest.doubles(rounded)).finish()
    }
}

impl PartialEq for ExactSum {
    fn eq(&self, other: &Self) -> bool {
        let (sum, rest) = self.parts();
        let (other_sum, other_rest) = other.parts();
        sum.to_bits() == other_sum.to_bits() && rest == other_rest
    }
}

/// `number * 2^exponent`, if that is an integer of at most 127 bits.
fn shift_exact(number: i128, exponent: i32) -> Option<i128> {
    if number == 0 {
        return Some(0);
    }
    let shift = exponent.unsigned_abs();
    if exponent < 0 {
        return (number.trailing_zeros() >= shift).then(|| number >> shift);
    }
    (number.unsigned_abs().leading_zeros() > shift).then(|| number << shift)
}

#[expect(clippy::cast_precision_loss, reason = "rounding to the nearest double is intended")]
fn nearest(number: i128) -> f64 {
    number as f64
}

/// `double * 2^exponent`: exact, or an infinity. The result must not need bits below 2^-1074.
fn scale_by(double: f64, exponent: i32) -> f64 {
    let power = |exponent: i32| f64::from_bits(u64::from((exponent + 1023).clamp(1, 2046).unsigned_abs()) << 52);
    let half = exponent / 2;
    double * power(half) * power(exponent - half)
}

impl SumPart {
    fn new(number: i128, exponent: i32) -> Option<Self> {
        if number == 0 {
            return None;
        }
        let zeros = number.trailing_zeros();
        let significand = i64::try_from(number >> zeros).ok()?;
        Some(Self { significand, exponent: exponent + zeros.cast_signed() })
    }

    /// Creates the part `significand * 2^exponent`; `None` if it is not a valid part of a sum.
    #[must_use]
    pub fn from_parts(significand: i64, exponent: i32) -> Option<Self> {
        let is_odd = significand & 1 == 1;
        let bits = (64 - significand.unsigned_abs().leading_zeros()).cast_signed();
        let is_within = (LEAST - BIAS..EXPONENT_END).contains(&exponent) && exponent + bits <= EXPONENT_END;
        (is_odd && bits <= 53 && is_within).then_some(Self { significand, exponent })
    }

    /// The odd significand.
    #[must_use]
    pub fn significand(self) -> i64 {
        self.significand
    }

    /// The exponent of two.
    #[must_use]
    pub fn exponent(self) -> i32 {
        self.exponent
    }

    /// Rounds a number to 53 bits, and subtracts the result from it.
    #[expect(clippy::cast_possible_truncation, reason = "the number is below 2^126, so its rounding fits an i128")]
    fn take(number: &mut i128, exponent: i32) -> Option<Self> {
        let rounded = nearest(*number) as i128;
        *number -= rounded;
        Self::new(rounded, exponent)
    }

    /// The part `double * 2^scale`; `None` for zero and for values that are not finite.
    fn from_double(double: f64, scale: i32) -> Option<Self> {
        let bits = double.to_bits();
        let biased = (bits >> 52 & 0x7ff) as i32;
        let significand = bits & FRACTION | if biased == 0 { 0 } else { HIDDEN };
        if significand == 0 || !double.is_finite() {
            return None;
        }
        let zeros = significand.trailing_zeros();
        let odd = (significand >> zeros).cast_signed();
        let signed = if double < 0.0 { -odd } else { odd };
        Self::from_parts(signed, biased.max(LEAST) - BIAS + zeros.cast_signed() + scale)
    }

    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    fn double(self, scale: i32) -> f64 {
        scale_by(self.significand as f64, self.exponent + scale)
    }
}

/// The exponent of two by which the first part of a sum beyond the range of doubles is divided, so that it fits a
/// double.
const BEYOND: i32 = 64;

impl SumRest {
    /// Returns true if the rounded sum is exact.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The parts, greatest first.
    pub fn parts(&self) -> impl Iterator<Item = SumPart> {
        self.first.into_iter().chain(self.others.iter().copied())
    }

    /// Appends a part, which must be smaller than all earlier parts.
    pub fn push(&mut self, part: SumPart) {
        match self.first {
            None => self.first = Some(part),
            Some(_) => self.others.push(part),
        }
    }

    /// The parts as doubles; `sum` is the rounded sum. If `sum` is an infinity, the first part is divided by 2^64,
    /// because it would also be an infinity.
    pub fn doubles(&self, sum: f64) -> impl Iterator<Item = f64> {
        let scale = move |index| if index == 0 && sum.is_infinite() { -BEYOND } else { 0 };
        self.parts().enumerate().map(move |(index, part)| part.double(scale(index)))
    }

    /// The inverse of [`SumRest::doubles`]; `None` if a double is not a valid part.
    pub fn from_doubles(sum: f64, doubles: impl Iterator<Item = f64>) -> Option<Self> {
        let mut rest = Self::default();
        for double in doubles {
            let scale = if rest.is_empty() && sum.is_infinite() { BEYOND } else { 0 };
            rest.push(SumPart::from_double(double, scale)?);
        }
        Some(rest)
    }

    /// The rounded sum and its rest, from the parts of the sum.
    fn from_parts(first: SumPart, second: Option<SumPart>, others: Vec<SumPart>) -> (f64, Self) {
        let sum = first.double(0);
        if sum.is_finite() {
            return (sum, Self { first: second, others });
        }
        (sum, Self { first: Some(first), others: second.into_iter().chain(others).collect() })
    }
}

#[cfg(test)]
mod tests;
