//! Minimal scenarios with at most one fault. `tests/mutants.toml` lists the mistake that each must notice.

use crate::support::prelude::*;

use super::oracle::{Oracle, Violation};
use super::{NEVER, RECOVERY, World, config, ends_by_itself, flush, pair};

const OFTEN: &str = "100ms";
const CONNECTIONS: usize = 2;
/// Log message once per outage and shard after a permanently failed flush.
const FLUSH_FAILED: &str = "cannot store readings";

/// Runs a scenario and expects no violation.
#[track_caller]
fn assert_no_violation(scenario: fn() -> Oracle) {
    let oracle = scenario();
    assert!(oracle.violations().is_empty(), "{}", oracle.describe());
}

tests! {
    fn answers_and_documents_agree() => assert_no_violation(undisturbed);
    fn a_changed_hour_is_not_answered_from_the_cache() => assert_no_violation(queried_again);
    fn a_kill_before_the_flush_loses_nothing() => assert_no_violation(killed_before_the_flush);
    fn a_kill_after_the_flush_counts_nothing_twice() => assert_no_violation(|| killed_at("after_flush:1"));
    fn a_kill_after_the_truncation_loses_nothing() => assert_no_violation(|| killed_at("after_truncate:1"));
    fn an_outage_drops_no_flush() => assert_no_violation(store_away);
    fn a_write_conflict_is_no_success() => assert_no_violation(pair::conflicts);
    fn the_later_value_of_two_instances_wins() => assert_no_violation(pair::corrected_before_the_flush);
    fn a_replay_leaves_a_newer_correction_alone() => assert_no_violation(pair::corrected_before_the_replay);
    fn a_retried_write_leaves_a_newer_correction_alone() =>
        assert_no_violation(pair::corrected_before_the_outcome_is_known);
    fn a_replayed_duplicate_leaves_a_newer_correction_alone() => assert_no_violation(pair::a_duplicate_and_a_correction);
    fn a_duplicate_wins_over_unflushed_older_values() => assert_no_violation(pair::a_duplicate_over_an_unflushed_value);
    fn a_deletion_during_the_downtime_of_an_instance_holds() => assert_no_violation(pair::deleted_while_an_instance_is_down);
    fn the_floor_stays_below_unflushed_readings() => assert_no_violation(pair::unflushed_for_some_time);
    fn a_restored_folder_reuses_no_sequence() => assert_no_violation(pair::a_folder_is_restored);
    fn two_clones_of_a_folder_merge_and_the_later_value_wins() => assert_no_violation(pair::a_folder_is_cloned);
    fn a_fast_clock_makes_no_value_later() => assert_no_violation(pair::a_clock_that_is_ahead);
}

/// Traffic, and checks before and after a flush, twice, so that pages change.
fn undisturbed() -> Oracle {
    let mut world = World::start(Launch::embedded().config(config(NEVER)));
    let mut oracle = Oracle::new(21, CONNECTIONS);
    for _ in 0..2 {
        oracle.during(&world.base(), |progress| progress.await_acks(6, RECOVERY));
        world.check(&mut oracle);
    }
    oracle
}

/// Traffic, flushes and queries twice without a restart, so that queried hours change.
fn queried_again() -> Oracle {
    let world = World::start(Launch::embedded().config(config(NEVER)));
    let mut oracle = Oracle::new(25, CONNECTIONS);
    for _ in 0..2 {
        oracle.during(&world.base(), |progress| progress.await_acks(6, RECOVERY));
        if !flush(&world.server) {
            oracle.note(Violation::Late("a flush".to_owned()));
        }
        oracle.check_answers(&world.server);
    }
    oracle
}

fn killed_before_the_flush() -> Oracle {
    let launch = Launch::embedded().config(config(NEVER));
    let mut world = World::start(launch.clone());
    let mut oracle = Oracle::new(22, CONNECTIONS).with_wal_acks();
    oracle.during(&world.base(), |progress| progress.await_acks(6, RECOVERY));
    // Also records the times of undated readings.
    oracle.check_answers(&world.server);
    world.server.kill();
    world.server.restart_as(launch.clone());
    world.check(&mut oracle);
    oracle
}

fn killed_at(point: &str) -> Oracle {
    let launch = Launch::embedded().config(config(OFTEN));
    let mut world = World::start(launch.clone().env("FAULT_KILL_AT", point));
    let mut oracle = Oracle::new(23, CONNECTIONS);
    oracle.during(&world.base(), |progress| {
        if !ends_by_itself(&mut world.server) {
            progress.fail(format!("the end at {point}"));
        }
        world.server.restart_as(launch.clone());
        progress.await_acks(2, RECOVERY);
    });
    world.check(&mut oracle);
    oracle
}

fn store_away() -> Oracle {
    let mut mongod = Mongod::start();
    let mut world = World::start(Launch::with_store(mongod.uri(&fresh_database_name())).config(config(OFTEN)));
    let mut oracle = Oracle::new(24, CONNECTIONS);
    oracle.during(&world.base(), |progress| {
        progress.await_acks(3, RECOVERY);
        mongod.kill();
        if poll(RECOVERY, || world.server.stderr().contains(FLUSH_FAILED).then_some(())).is_none() {
            progress.fail("a flush that fails".to_owned());
        }
        mongod.restart();
        progress.await_acks(2, RECOVERY);
    });
    world.check(&mut oracle);
    oracle
}
