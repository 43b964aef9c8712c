//! Sums that lose nothing: integers and floats are added exactly, and the sum is rounded once, when somebody looks.
//! Knows no summary and no stored form.
//!
//! Every finite double is a whole multiple of 2^-1074, so a sum of doubles and integers is one whole number at some scale.
//! Nearly always 127 bits at a scale near the values are enough: then an addition is a shift and an addition of integers.
//! Where they are not, what they hold moves into a number wide enough for any sum, and they begin anew.

mod wide;

use std::fmt;

use self::wide::Wide;

/// The exponent that the biased exponent of a double is above: `double = significand * 2^(biased - BIAS)`.
const BIAS: i32 = 1075;
/// The least biased exponent, of the unit 2^-1074.
const LEAST: i32 = 1;
const FRACTION: u64 = (1 << 52) - 1;
const HIDDEN: u64 = 1 << 52;
/// How far a significand of 53 bits may be shifted within the window, its sign and a carry left aside.
const SHIFT_MAX: i32 = 73;
/// The greatest scale of a window: what is infinite or no number never seems to fit.
const UNIT_MAX: i32 = 2046 - SHIFT_MAX;
/// No scale: nothing seems to fit.
const NO_UNIT: i32 = 4096;
/// Bits kept free below the value that a window begins with, for those with smaller units that come after it. Decimals of one
/// sensor rarely differ by more in magnitude.
const SLACK: i32 = 24;
/// A number below this, and what it rounds to, stay within 128 bits.
const ROUNDABLE: u128 = 1 << 126;
/// Parts of stored sums have no bits at or above this exponent: 2^50 times the greatest double stays below.
const EXPONENT_END: i32 = 1076;

/// A sum of any doubles and integers. Two are equal when they are the same number, however they came about.
#[derive(Clone)]
pub struct ExactSum {
    /// The sum is `window * 2^(unit - BIAS)`, and what is in `wide`.
    window: i128,
    unit: i32,
    wide: Option<Box<Wide>>,
}

/// One part of a sum: an odd whole number of at most 53 bits times a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    significand: i64,
    exponent: i32,
}

/// What rounding leaves of a sum: the rounding of what remains, then that of what remains beyond it, until nothing does. Nearly
/// always it is one part, of a few bits. Of a sum beyond the range of doubles, which rounds to an infinity, it is the whole sum.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rest {
    first: Option<Part>,
    more: Vec<Part>,
}

impl Default for ExactSum {
    fn default() -> Self {
        Self { window: 0, unit: NO_UNIT, wide: None }
    }
}

impl ExactSum {
    /// The sum that was rounded to this double and left this rest.
    #[must_use]
    pub fn of_rounded(sum: f64, rest: &Rest) -> Self {
        let mut exact = Self::default();
        if sum.is_finite() || rest.is_empty() {
            exact.add(sum);
        }
        rest.parts().for_each(|part| exact.add_scaled(part.significand.into(), part.exponent + BIAS));
        exact
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

    /// The double nearest to the sum, of two that are as near the even one; an infinity beyond their range. Zero is positive.
    #[must_use]
    pub fn rounded(&self) -> f64 {
        match (&self.wide, self.window) {
            (None, 0) => 0.0,
            (None, window) if window.unsigned_abs() < ROUNDABLE => scaled(nearest(window), self.unit - BIAS),
            _ => self.parts().0,
        }
    }

    /// The sum rounded once, and what that leaves. Both depend on the sum alone.
    #[must_use]
    pub fn parts(&self) -> (f64, Rest) {
        let mut parts = Vec::new();
        if self.wide.is_none() && self.window.unsigned_abs() < ROUNDABLE {
            let mut left = self.window;
            let mut one = || Part::take(&mut left, self.unit - BIAS);
            let Some(first) = one() else { return (0.0, Rest::default()) };
            let second = one();
            parts.extend(std::iter::from_fn(one));
            return Rest::behind(first, second, parts);
        }
        let mut wide = self.wide.as_deref().cloned().unwrap_or_default();
        wide.add(self.window, self.unit);
        if wide.beyond() != 0.0 {
            return (wide.beyond(), Rest::default());
        }
        parts.extend(std::iter::from_fn(|| wide.take_part()));
        let mut parts = parts.into_iter();
        let Some(first) = parts.next() else { return (0.0, Rest::default()) };
        let second = parts.next();
        Rest::behind(first, second, parts.collect())
    }

    /// Bytes of memory that it takes beside its own size.
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
        if number == 0 || self.add_at(self.unit, number, unit) {
            return;
        }
        // The greatest scale at which both are whole numbers. All are whole at that of 2^-1074.
        let finest = |number: i128, unit: i32| unit + number.trailing_zeros().cast_signed();
        let own = if self.window == 0 { NO_UNIT } else { finest(self.window, self.unit) };
        let common = own.min(finest(number, unit)).min(UNIT_MAX);
        if self.add_at((common - SLACK).max(LEAST), number, unit) || self.add_at(common, number, unit) {
            return;
        }
        let (window, own) = (std::mem::take(&mut self.window), self.unit);
        self.wide().add(window, own);
        let common = finest(number, unit).min(UNIT_MAX);
        if !self.add_at((common - SLACK).max(LEAST), number, unit) && !self.add_at(common, number, unit) {
            self.wide().add(number, unit);
        }
    }

    /// Adds a number where that goes at this scale, which becomes that of the window.
    fn add_at(&mut self, scale: i32, number: i128, unit: i32) -> bool {
        let sum = match (shifted(self.window, self.unit - scale), shifted(number, unit - scale)) {
            (Some(window), Some(number)) => window.checked_add(number),
            _ => None,
        };
        if let Some(sum) = sum {
            (self.window, self.unit) = (sum, scale);
        }
        sum.is_some()
    }

    fn wide(&mut self) -> &mut Wide {
        self.wide.get_or_insert_default()
    }
}

impl fmt::Debug for ExactSum {
    /// The same of equal sums: what it rounds to, and what that leaves.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rounded, rest) = self.parts();
        f.debug_list().entry(&rounded).entries(rest.doubles(rounded)).finish()
    }
}

impl PartialEq for ExactSum {
    fn eq(&self, other: &Self) -> bool {
        let ((a, a_rest), (b, b_rest)) = (self.parts(), other.parts());
        a.to_bits() == b.to_bits() && a_rest == b_rest
    }
}

/// A number times a power of two, where that is whole and has at most 127 bits.
fn shifted(number: i128, by: i32) -> Option<i128> {
    if number == 0 {
        return Some(0);
    }
    let places = by.unsigned_abs();
    if by < 0 {
        return (number.trailing_zeros() >= places).then(|| number >> places);
    }
    (number.unsigned_abs().leading_zeros() > places).then(|| number << places)
}

#[expect(clippy::cast_precision_loss, reason = "the nearest double is what is wanted")]
fn nearest(number: i128) -> f64 {
    number as f64
}

/// A double times a power of two: exact, or an infinity. It has no bits below 2^-1074.
fn scaled(double: f64, exponent: i32) -> f64 {
    let power = |exponent: i32| f64::from_bits(u64::from((exponent + 1023).clamp(1, 2046).unsigned_abs()) << 52);
    let half = exponent / 2;
    double * power(half) * power(exponent - half)
}

impl Part {
    fn new(number: i128, exponent: i32) -> Option<Self> {
        if number == 0 {
            return None;
        }
        let zeros = number.trailing_zeros();
        let significand = i64::try_from(number >> zeros).ok()?;
        Some(Self { significand, exponent: exponent + zeros.cast_signed() })
    }

    /// The odd number times two to the exponent: `None` for what no sum has as a part.
    #[must_use]
    pub fn of(significand: i64, exponent: i32) -> Option<Self> {
        let is_odd = significand & 1 == 1;
        let bits = (64 - significand.unsigned_abs().leading_zeros()).cast_signed();
        let is_within = (LEAST - BIAS..EXPONENT_END).contains(&exponent) && exponent + bits <= EXPONENT_END;
        (is_odd && bits <= 53 && is_within).then_some(Self { significand, exponent })
    }

    /// The odd number.
    #[must_use]
    pub fn significand(self) -> i64 {
        self.significand
    }

    /// The exponent of two.
    #[must_use]
    pub fn exponent(self) -> i32 {
        self.exponent
    }

    /// Takes what a number rounds to, at 53 bits, out of it.
    #[expect(clippy::cast_possible_truncation, reason = "a double made of a number below 2^126 is a whole one")]
    fn take(number: &mut i128, exponent: i32) -> Option<Self> {
        let rounded = nearest(*number) as i128;
        *number -= rounded;
        Self::new(rounded, exponent)
    }

    /// Of a double; `None` of zero and of what is not finite.
    fn of_double(double: f64, scale: i32) -> Option<Self> {
        let mut sum = ExactSum::default();
        sum.add(double);
        let part = sum.wide.is_none().then(|| Self::new(sum.window, sum.unit - BIAS))??;
        Self::of(part.significand, part.exponent + scale)
    }

    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    fn double(self, scale: i32) -> f64 {
        scaled(self.significand as f64, self.exponent + scale)
    }
}

/// The power of two that the first part of a sum beyond the range of doubles is divided by, to be written as a double.
const BEYOND: i32 = 64;

impl Rest {
    /// Whether rounding left nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Its parts, the greatest first.
    pub fn parts(&self) -> impl Iterator<Item = Part> {
        self.first.into_iter().chain(self.more.iter().copied())
    }

    /// Adds a part, smaller than those before it.
    pub fn push(&mut self, part: Part) {
        match self.first {
            None => self.first = Some(part),
            Some(_) => self.more.push(part),
        }
    }

    /// Its parts as doubles, beside the double that the sum was rounded to. Where that is an infinity the first is divided by
    /// 2^64, or it would be one too.
    pub fn doubles(&self, sum: f64) -> impl Iterator<Item = f64> {
        let scale = move |place| if place == 0 && sum.is_infinite() { -BEYOND } else { 0 };
        self.parts().enumerate().map(move |(place, part)| part.double(scale(place)))
    }

    /// Of its parts as doubles; `None` where one is no part.
    pub fn of_doubles(sum: f64, doubles: impl Iterator<Item = f64>) -> Option<Self> {
        let mut rest = Self::default();
        for double in doubles {
            let scale = if rest.is_empty() && sum.is_infinite() { BEYOND } else { 0 };
            rest.push(Part::of_double(double, scale)?);
        }
        Some(rest)
    }

    fn behind(first: Part, second: Option<Part>, more: Vec<Part>) -> (f64, Self) {
        let sum = first.double(0);
        if sum.is_finite() {
            return (sum, Self { first: second, more });
        }
        (sum, Self { first: Some(first), more: second.into_iter().chain(more).collect() })
    }
}

#[cfg(test)]
mod tests;
