//! Size of the slow proofs, by `HOURGLASS_TEST_SCALE`: `short` (default) or `long` (hours).

/// Returns the number for the scale that is set.
pub fn scaled<T>(short: T, long: T) -> T {
    match std::env::var("HOURGLASS_TEST_SCALE").as_deref() {
        Err(_) | Ok("short") => short,
        Ok("long") => long,
        Ok(other) => panic!("HOURGLASS_TEST_SCALE = {other:?} is not short or long"),
    }
}

/// Returns the seed of generated inputs, `HOURGLASS_TEST_SEED`.
pub fn seed() -> u64 {
    std::env::var("HOURGLASS_TEST_SEED").map_or(1, |seed| seed.parse().expect("HOURGLASS_TEST_SEED is a number"))
}
