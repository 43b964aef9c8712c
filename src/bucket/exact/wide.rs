//! A sum of any doubles and integers in one number that is wide enough: slow, and rarely needed.

use super::{BIAS, LEAST, Part};

/// Words of a wide sum: from 2^-1074 up to 2^1100, where a stored part may be, and 64 bits more for that many of them.
const WORDS: usize = 36;

/// A whole number of units of 2^-1074, in two's complement, the lowest word first.
#[derive(Debug, Clone)]
pub(super) struct Wide {
    words: [u64; WORDS],
    /// What is not finite, added up: admission lets none in, a damaged document may have it.
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
        // Below 2^-1074 there are only zeros.
        let below = (LEAST - unit).max(0);
        let number = if below < 128 { number >> below } else { 0 };
        let at = (unit - LEAST).max(0).unsigned_abs();
        let (word, bits) = (at as usize / 64, at % 64);
        let fill = (number >> 127) as u64;
        let parts = [number as u64, (number >> 64) as u64, fill];
        let part = |place: usize| match (place, bits) {
            (place, 0) => parts.get(place).copied().unwrap_or(fill),
            (0, bits) => parts[0] << bits,
            (place @ 1..=2, bits) => parts[place] << bits | parts[place - 1] >> (64 - bits),
            _ => fill,
        };
        self.add_words(word, part);
    }

    pub(super) fn add_wide(&mut self, other: &Self) {
        self.add_words(0, |place| other.words[place]);
        self.add_beyond(other.beyond);
    }

    /// Adds what is not finite.
    pub(super) fn add_beyond(&mut self, value: f64) {
        let beyond = self.beyond + value;
        // One not-a-number is as good as another.
        self.beyond = if beyond.is_nan() { f64::NAN } else { beyond };
    }

    /// What was added that is not finite; else zero.
    pub(super) fn beyond(&self) -> f64 {
        self.beyond
    }

    fn add_words(&mut self, from: usize, word: impl Fn(usize) -> u64) {
        let mut carry = false;
        for (place, sum) in self.words.iter_mut().skip(from).enumerate() {
            let (added, first) = sum.overflowing_add(word(place));
            let (added, second) = added.overflowing_add(carry.into());
            (*sum, carry) = (added, first || second);
        }
    }

    fn negated(&self) -> Self {
        let mut negated = Self { words: self.words.map(|word| !word), beyond: 0.0 };
        negated.add(1, LEAST);
        negated
    }

    /// Takes what it rounds to, at 53 bits, out of it.
    pub(super) fn take_part(&mut self) -> Option<Part> {
        let is_negative = self.words[WORDS - 1] >> 63 == 1;
        let size = if is_negative { self.negated() } else { self.clone() };
        let top = size.words.iter().rposition(|word| *word != 0)?;
        let bits = top * 64 + 63 - size.words[top].leading_zeros() as usize;
        // The highest 63 bits, of which the last one tells of all below it: they round as the whole number does.
        let from = bits.saturating_sub(62);
        let (word, shift) = (from / 64, from % 64);
        let high = size.words.get(word + 1).copied().unwrap_or(0);
        let highest = (u128::from(high) << 64 | u128::from(size.words[word])) >> shift;
        let below = size.words[..word].iter().any(|word| *word != 0)
            || size.words[word].trailing_zeros() < u32::try_from(shift).unwrap_or(0);
        let highest = i128::from(highest as u64 & (u64::MAX >> 1)) | i128::from(below);
        let mut left = if is_negative { -highest } else { highest };
        let unit = i32::try_from(from).unwrap_or(0) + LEAST;
        let part = Part::take(&mut left, unit - BIAS)?;
        self.add(-i128::from(part.significand), part.exponent + BIAS);
        Some(part)
    }
}
