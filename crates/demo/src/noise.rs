//! Noise without state: each value is a function of a seed and a time, so that a run can be repeated and any time asked for.

/// Mixes all bits (the finalizer of SplitMix64).
pub fn hash(seed: u64, number: i64) -> u64 {
    let mut mixed = seed ^ number.cast_unsigned().wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The seed of something with a name.
pub fn seed_of(seed: u64, name: &str) -> u64 {
    name.bytes().fold(hash(seed, 0), |mixed, byte| hash(mixed, i64::from(byte)))
}

/// At least 0, below 1.
pub fn unit(seed: u64, number: i64) -> f64 {
    // 53 bits are what a double holds.
    (hash(seed, number) >> 11) as f64 / (1_u64 << 53) as f64
}

/// At least -1, below 1, and another one each second.
pub fn jitter(seed: u64, at: i64) -> f64 {
    unit(seed, at) * 2.0 - 1.0
}

/// From -1 to 1, smoothly: a new direction each `period` seconds.
pub fn wander(seed: u64, at: i64, period: i64) -> f64 {
    let (step, within) = (at.div_euclid(period), at.rem_euclid(period) as f64 / period as f64);
    let (from, to) = (jitter(seed, step), jitter(seed, step + 1));
    from + (to - from) * within * within * (3.0 - 2.0 * within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_even_within_its_bounds_and_another_one_per_seed() {
        let all: Vec<f64> = (0..10_000).map(|at| jitter(7, at)).collect();
        assert!(all.iter().all(|value| (-1.0..1.0).contains(value)));
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!(mean.abs() < 0.03, "{mean}");
        assert_ne!(jitter(7, 1), jitter(8, 1));
        assert_ne!(seed_of(1, "ab"), seed_of(1, "ba"));
    }

    #[test]
    fn wandering_never_jumps() {
        for at in -5000..5000 {
            let step = (wander(3, at + 1, 600) - wander(3, at, 600)).abs();
            assert!(step <= 2.0 * 1.5 / 600.0 + 1e-9, "{at}: {step}");
            assert!(wander(3, at, 600).abs() <= 1.0);
        }
    }
}
