//! Random numbers (splitmix64) that depend only on the seed and on their purpose, so that a run can be repeated on any
//! machine and in any order.

/// A sequence of numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence for the purpose that `parts` names.
    pub fn new(seed: u64, parts: &[u64]) -> Self {
        Self(parts.iter().fold(mix(seed ^ GOLDEN), |state, part| mix(state ^ part.wrapping_mul(GOLDEN))))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A uniformly distributed number from 0 to `count` - 1; 0 if `count` is 0.
    pub fn below(&mut self, count: u64) -> u64 {
        let product = u128::from(self.bits()) * u128::from(count);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// A uniformly distributed number from `least` to `most`, inclusive.
    pub fn between(&mut self, least: i64, most: i64) -> i64 {
        let count = most.saturating_sub(least).saturating_add(1);
        least + i64::try_from(self.below(u64::try_from(count).unwrap_or(0))).unwrap_or(0)
    }

    /// True with this probability, 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are kept, which a float holds exactly")]
    pub fn is(&mut self, share: f64) -> bool {
        // Draws no number for a probability of 0 or 1.
        share >= 1.0 || (share > 0.0 && ((self.bits() >> 11) as f64) < share * (1_u64 << 53) as f64)
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes the bits: each input bit affects all output bits.
pub fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// A hash of a text (FNV-1a, then mixed).
pub fn hash(text: &[u8]) -> u64 {
    mix(text
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |state, byte| (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_parts_give_the_same_numbers_and_others_give_others() {
        let numbers = |seed, parts: &[u64]| {
            let mut random = Random::new(seed, parts);
            [random.bits(), random.bits(), random.bits()]
        };
        assert_eq!(numbers(1, &[2, 3]), numbers(1, &[2, 3]));
        assert_ne!(numbers(1, &[2, 3]), numbers(1, &[3, 2]));
        assert_ne!(numbers(1, &[2, 3]), numbers(2, &[2, 3]));
    }

    #[test]
    fn shares_and_bounds_are_kept() {
        let mut random = Random::new(7, &[]);
        let hits = (0..100_000).filter(|_| random.is(0.3)).count();
        assert!((29_000..31_000).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| !random.is(0.0) && random.is(1.0)));
        let drawn: Vec<i64> = (0..1000).map(|_| random.between(-2, 3)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&-2), Some(&3)));
    }
}
