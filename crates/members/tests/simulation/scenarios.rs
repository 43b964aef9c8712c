//! The tests.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::profile::{MISTAKES, Mistake, Profile};
use crate::run::run;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |value| value.parse().expect("a number"))
}

fn first_seed() -> u64 {
    setting("HOURGLASS_SIMULATION_FIRST", 1)
}

#[test]
fn every_promise_holds_under_faults() {
    let seeds = setting("HOURGLASS_SIMULATION_SEEDS", 2_000);
    let begin = Instant::now();
    let mut failures = Vec::new();
    let mut counts = BTreeMap::<String, u64>::new();
    let mut view_changes = 0;
    let mut hours = 0.0;
    for seed in first_seed()..first_seed() + seeds {
        let outcome = run(Profile::new(seed, None));
        view_changes += outcome.view_changes;
        hours += outcome.hours;
        for (name, count) in outcome.counts {
            *counts.entry(name).or_default() += count;
        }
        if let Some(violation) = outcome.violations.first() {
            println!("seed {seed}: {violation}");
            failures.push(seed);
        }
        if failures.len() >= 20 {
            break;
        }
    }
    println!("{seeds} seeds in {:.1} s: {} failures", begin.elapsed().as_secs_f64(), failures.len());
    println!("{:.1} view changes per simulated hour; {counts:?}", view_changes as f64 / hours);
    assert!(failures.is_empty(), "seeds {failures:?}");
}

/// Returns the number of seeds until a mistake breaks a promise.
fn seeds_until_caught(mistake: Mistake, seeds: u64) -> Option<(u64, String)> {
    (1..=seeds).find_map(|seed| {
        let violation = run(Profile::new(seed, Some(mistake))).violations.into_iter().next()?;
        Some((seed, violation))
    })
}

#[test]
fn seeded_mistakes_are_caught() {
    let mut missed = Vec::new();
    for mistake in MISTAKES {
        match seeds_until_caught(mistake, setting("HOURGLASS_SIMULATION_MISTAKE_SEEDS", 3_000)) {
            Some((seed, violation)) => println!("{mistake:?}: seed {seed}: {violation}"),
            None => missed.push(mistake),
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
