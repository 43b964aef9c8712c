//! Runs every target on its seeds and on some thousand mutations, the same in every run, on inputs that once failed,
//! and on inputs of `proptest`.

use proptest::prelude::*;
use proptest::sample::Index;

use crate::driver::{RunLimit, run};
use crate::targets::{ALL, Target};

/// Few enough for a debug build; CI also fuzzes each target for some seconds.
fn executions(target: &Target) -> u64 {
    match target.name {
        "http" => 150,
        "log" | "body" => 400,
        _ => 4000,
    }
}

#[test]
fn targets_accept_seeds_and_their_mutations() {
    for target in &ALL {
        let outcome = run(target, 1, RunLimit::Executions(executions(target)));
        let failure = outcome.failure.map(|input| input.escape_ascii().to_string());
        assert_eq!(failure, None, "{}", target.name);
    }
}

/// Regression: three files of a WAL were removed, among them the last one. The next stamp was below a lost one, which
/// only a clock can prevent. The target expected more than the WAL guarantees.
#[test]
fn a_wal_without_its_last_file_is_taken() {
    crate::targets::log::check(b"\0\xb2\xb2\xb2\xb2\xb2\xb2\xb2\xb2\xb2\0\0\0\0\0\0\x10F\xb2");
}

/// Checks that every target has a program for cargo-fuzz.
#[test]
fn each_target_has_a_program_for_cargo_fuzz() {
    let manifest = include_str!("../Cargo.toml");
    for target in &ALL {
        let path = format!("path = \"fuzz_targets/{}.rs\"", target.name);
        assert!(manifest.contains(&path), "{path}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    /// Combines pieces of seeds, words of the format and random bytes. Proptest shortens a failing input.
    #[test]
    fn targets_accept_combined_inputs(
        target in proptest::sample::select(&ALL[..]),
        pieces in proptest::collection::vec((any::<Index>(), any::<Index>(), any::<[Index; 2]>()), 0..12),
        any in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let seeds = (target.seeds)();
        let mut input = Vec::new();
        for (seed, word, ends) in &pieces {
            let seed = seed.get(&seeds);
            let mut ends = ends.map(|end| end.index(seed.len() + 1));
            ends.sort_unstable();
            input.extend(&seed[ends[0]..ends[1]]);
            if !target.words.is_empty() {
                input.extend(word.get(target.words).bytes());
            }
        }
        (target.check)(&input);
        input.extend(any);
        (target.check)(&input);
    }
}
