//! Deterministic pseudo-random numbers.

/// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators").
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns a number from 0 below the bound.
    pub fn below(&mut self, bound: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        i64::try_from((z ^ (z >> 31)) % u64::try_from(bound).expect("a bound is positive")).expect("below an i64")
    }

    pub fn once_in(&mut self, times: i64) -> bool {
        self.below(times) == 0
    }

    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        let length = i64::try_from(choices.len()).expect("a short list");
        choices[usize::try_from(self.below(length)).expect("an index")].clone()
    }
}
