//! A number that is wide enough for any sum of doubles and integers. It is slow and rarely needed.

use super::{BIAS, LEAST, SumPart};

/// 64-bit words of a wide sum: bits from 2^-1074 up to 2^1100, which covers every stored part, plus more than 64 bits
/// of headroom for adding many of them.
const WORDS: usize = 36;

/// An integer in units of 2^-1074, in two's complement, lowest word first.
#[derive(Debug, Clone)]
pub(super) struct Wide {
    words: [u64; WORDS],
    /// The sum of non-finite values. Admission rejects them, but a damaged document may contain some.
    beyond: f64,
}

impl Default for Wide {
    fn default() -> Self {
        Self { words: [0; WORDS], beyond: 0.0 }
    }
}

impl Wide {
    /// Adds `number * 2^(unit - BIAS)`.
    pub(super) fn add(&mut self, number: i128, unit: i32) {
        // Bits below 2^-1074 are zero.
        let below = (LEAST - unit).max(0);
        let number = if below < 128 { number >> below } else { 0 };
        let first_bit = (unit - LEAST).max(0).unsigned_abs();
        let word = first_bit as usize / 64;
        let bits = first_bit % 64;
        let fill = (number >> 127) as u64;
        let parts = [number as u64, (number >> 64) as u64, fill];
        let part = |index: usize| match (index, bits) {
            (index, 0) => parts.get(index).copied().unwrap_or(fill),
            (0, bits) => parts[0] << bits,
            (index @ 1..=2, bits) => parts[index] << bits | parts[index - 1] >> (64 - bits),
            _ => fill,
        };
        self.add_words(word, part);
    }

    pub(super) fn add_wide(&mut self, other: &Self) {
        self.add_words(0, |index| other.words[index]);
        self.add_beyond(other.beyond);
    }

    /// Adds a non-finite value.
    pub(super) fn add_beyond(&mut self, value: f64) {
        let beyond = self.beyond + value;
        // Use one NaN for all, so that equal sums have equal bits.
        self.beyond = if beyond.is_nan() { f64::NAN } else { beyond };
    }

    /// The sum of the non-finite values; zero if there are none.
    pub(super) fn beyond(&self) -> f64 {
        self.beyond
    }

    fn add_words(&mut self, first: usize, word: impl Fn(usize) -> u64) {
        let mut carry = false;
        for (index, sum) in self.words.iter_mut().skip(first).enumerate() {
            let (added, is_full) = sum.overflowing_add(word(index));
            let (added, is_carry_full) = added.overflowing_add(carry.into());
            *sum = added;
            carry = is_full || is_carry_full;
        }
    }

    fn negated(&self) -> Self {
        let mut negated = Self { words: self.words.map(|word| !word), beyond: 0.0 };
        negated.add(1, LEAST);
        negated
    }

    /// Rounds the number to 53 bits, and subtracts the result from it.
    pub(super) fn take_part(&mut self) -> Option<SumPart> {
        let is_negative = self.words[WORDS - 1] >> 63 == 1;
        let size = if is_negative { self.negated() } else { self.clone() };
        let top = size.words.iter().rposition(|word| *word != 0)?;
        let bits = top * 64 + 63 - size.words[top].leading_zeros() as usize;
        // Take the highest 63 bits. The lowest of them is set if any bit below is set, so that they round like the
        // whole number.
        let from = bits.saturating_sub(62);
        let word = from / 64;
        let shift = from % 64;
        let high = size.words.get(word + 1).copied().unwrap_or(0);
        let highest = (u128::from(high) << 64 | u128::from(size.words[word])) >> shift;
        let below = size.words[..word].iter().any(|word| *word != 0)
            || size.words[word].trailing_zeros() < u32::try_from(shift).unwrap_or(0);
        let highest = i128::from(highest as u64 & (u64::MAX >> 1)) | i128::from(below);
        let mut left = if is_negative { -highest } else { highest };
        let unit = i32::try_from(from).unwrap_or(0) + LEAST;
        let part = SumPart::take(&mut left, unit - BIAS)?;
        self.add(-i128::from(part.significand), part.exponent + BIAS);
        Some(part)
    }
}
