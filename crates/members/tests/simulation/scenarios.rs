//! The tests.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::faults::{Fault, FaultKind};
use crate::profile::{MISTAKES, Mistake, Profile};
use crate::run::run;
use crate::world::World;

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

/// Runs three instances, or two, without clients for an hour with one cut link, and returns the changes of the view
/// after the start.
fn view_changes_in_an_hour(nodes: usize, kind: FaultKind, away_us: u64, back_us: u64) -> u64 {
    let mut world = World::new(Profile { nodes, ..Profile::quiet() });
    world.start_all();
    world.run_until(10_000_000);
    let before = world.store.registry.view;
    let fault = Fault { kind, node: 0, other: 1 };
    while world.now_us < 3_610_000_000 {
        world.begin_fault(fault);
        world.run_until(world.now_us + away_us);
        world.end_fault(fault);
        world.run_until(world.now_us + back_us);
    }
    world.store.registry.view - before
}

#[test]
fn views_change_seldom() {
    const SECOND: u64 = 1_000_000;
    let hour = 3_600 * SECOND;
    let cases = [
        ("a link of three cut for an hour", 3, FaultKind::Cut, hour, SECOND, 0),
        ("one direction of a link of three cut for an hour", 3, FaultKind::OneWayCut, hour, SECOND, 0),
        ("a link of three cut every other minute", 3, FaultKind::Cut, 60 * SECOND, 60 * SECOND, 0),
        ("the link of two cut for an hour", 2, FaultKind::Cut, hour, 10 * SECOND, 2),
        ("the link of two cut every other minute", 2, FaultKind::Cut, 60 * SECOND, 60 * SECOND, 60),
        ("one of three isolated for an hour", 3, FaultKind::Isolation, hour, 10 * SECOND, 2),
        ("one of three isolated every other 30 s", 3, FaultKind::Isolation, 30 * SECOND, 30 * SECOND, 0),
        ("a disk of three hung for an hour", 3, FaultKind::HungDisk, hour, 10 * SECOND, 2),
        ("MongoDB away from one of three for an hour", 3, FaultKind::MongoAway, hour, 10 * SECOND, 2),
        ("MongoDB away from all for an hour", 3, FaultKind::MongoAwayForAll, hour, 10 * SECOND, 0),
        ("a restart of 20 s every minute", 3, FaultKind::Terminate, 20 * SECOND, 40 * SECOND, 0),
        ("a kill of 40 s every two minutes", 3, FaultKind::Kill { loses_disk: false }, 40 * SECOND, 80 * SECOND, 0),
        ("a freeze of 40 s every two minutes", 3, FaultKind::Freeze, 40 * SECOND, 80 * SECOND, 0),
    ];
    for (name, nodes, kind, away_us, back_us, expected) in cases {
        let changes = view_changes_in_an_hour(nodes, kind, away_us, back_us);
        println!("{name}: {changes} view changes");
        assert!(changes <= expected, "{name}: {changes} view changes, {expected} expected");
    }
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
