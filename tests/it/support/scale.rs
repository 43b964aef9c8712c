//! Size of the slow proofs, by `HOURGLASS_TEST_SCALE`: `short` (default), `ci` or `long` (hours).

/// Returns the number for the scale that is set: the first for `short`, the second for `ci`, the third for `long`.
pub fn scaled<T>([short, ci, long]: [T; 3]) -> T {
    match std::env::var("HOURGLASS_TEST_SCALE").as_deref() {
        Err(_) | Ok("short") => short,
        Ok("ci") => ci,
        Ok("long") => long,
        Ok(other) => panic!("HOURGLASS_TEST_SCALE = {other:?} is not short, ci or long"),
    }
}

/// Returns the seed of generated inputs, `HOURGLASS_TEST_SEED`.
pub fn seed() -> u64 {
    std::env::var("HOURGLASS_TEST_SEED").map_or(1, |seed| seed.parse().expect("HOURGLASS_TEST_SEED is a number"))
}
