//! Stateless noise: each value is a function of a seed and a time, so that runs are repeatable and can start at any
//! time.

/// Mixes all bits (the finalizer of SplitMix64).
pub fn hash(seed: u64, number: i64) -> u64 {
    let mut mixed = seed ^ number.cast_unsigned().wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Derives the seed of a named part.
pub fn derive_seed(seed: u64, name: &str) -> u64 {
    name.bytes().fold(hash(seed, 0), |mixed, byte| hash(mixed, i64::from(byte)))
}

/// Returns a value from 0 to below 1.
pub fn unit(seed: u64, number: i64) -> f64 {
    // A double has 53 bits of precision.
    (hash(seed, number) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Returns a value from -1 to below 1 that changes every second.
pub fn jitter(seed: u64, time_s: i64) -> f64 {
    unit(seed, time_s) * 2.0 - 1.0
}

/// Returns a value from -1 to 1 that moves smoothly, with a new direction every `period` seconds.
pub fn wander(seed: u64, time_s: i64, period: i64) -> f64 {
    let step = time_s.div_euclid(period);
    let phase = time_s.rem_euclid(period) as f64 / period as f64;
    let start = jitter(seed, step);
    let end = jitter(seed, step + 1);
    start + (end - start) * phase * phase * (3.0 - 2.0 * phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_even_within_its_bounds_and_another_one_per_seed() {
        let all: Vec<f64> = (0..10_000).map(|time_s| jitter(7, time_s)).collect();
        assert!(all.iter().all(|value| (-1.0..1.0).contains(value)));
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!(mean.abs() < 0.03, "{mean}");
        assert_ne!(jitter(7, 1), jitter(8, 1));
        assert_ne!(derive_seed(1, "ab"), derive_seed(1, "ba"));
    }

    #[test]
    fn wandering_never_jumps() {
        for time_s in -5000..5000 {
            let step = (wander(3, time_s + 1, 600) - wander(3, time_s, 600)).abs();
            assert!(step <= 2.0 * 1.5 / 600.0 + 1e-9, "{time_s}: {step}");
            assert!(wander(3, time_s, 600).abs() <= 1.0);
        }
    }
}
