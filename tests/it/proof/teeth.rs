//! The proof has teeth: a server with a bug seeded into it by `FAULT_BUG` is caught by the shortest scenario that
//! should catch it, and the same scenario finds nothing on a server without.
//!
//! Three seeded bugs are not here, because no kill of a process shows them: `SkipFdatasync`, `AckBeforeSync` and
//! `AcceptStaleBytes` need a disk that forgets what was not synced, and are caught on the simulated disk of `log`.

use std::io::Write;

use super::oracle::{Oracle, Violation};
use super::{NEVER, RECOVERY, World, config, ends_by_itself, flush, pair, with_bug};
use crate::support::mongod::{Mongod, fresh_database_name};
use crate::support::poll;
use crate::support::server::Launch;

const OFTEN: &str = "100ms";
const CONNECTIONS: usize = 2;
/// What a server says, once per outage and shard, when a flush has failed for good.
const FLUSH_FAILED: &str = "readings could not be stored";

/// A fault and the checks after it, with or without a bug.
type Scenario = fn(Option<&str>) -> Oracle;

/// Without a bug nothing is found, with each of these something is.
#[track_caller]
fn bites(scenario: Scenario, bugs: &[&str]) {
    let clean = scenario(None);
    assert!(clean.violations().is_empty(), "found on a server without a bug:\n{}", clean.shown());
    for bug in bugs {
        let found = scenario(Some(bug));
        let _ = writeln!(std::io::stderr(), "teeth: {bug}: {} violations", found.violations().len());
        assert!(!found.violations().is_empty(), "{bug} was not caught");
    }
}

#[test]
fn bugs_of_reads_and_merges_are_caught_without_any_fault() {
    bites(undisturbed, &["QueryIgnoresHot", "CountOverflowTwice", "StaleSummary"]);
}

#[test]
fn what_is_remembered_of_a_changed_hour_is_caught_by_asking_again() {
    bites(asked_again, &["CacheForgetsToInvalidate"]);
}

#[test]
fn bugs_of_the_replay_are_caught_by_a_kill_before_the_flush() {
    bites(killed_before_the_flush, &["LoseHalfARequest", "ReplaySkipsOne", "RestampAtReplay"]);
}

#[test]
fn records_that_are_fed_twice_are_caught_by_a_kill_behind_the_flush() {
    bites(|bug| killed_at("after_flush:1", bug), &["SkipDedupe"]);
}

#[test]
fn a_release_before_the_flush_is_caught_by_a_kill_behind_the_release() {
    bites(|bug| killed_at("after_release:1", bug), &["ReleaseBeforeFlush"]);
}

#[test]
fn a_failed_flush_that_is_dropped_is_caught_by_an_outage() {
    bites(store_away, &["DropFailedFlight"]);
}

#[test]
fn a_conflict_taken_for_success_is_caught_by_a_second_instance() {
    bites(pair::conflicts, &["ConflictIsSuccess"]);
}

#[test]
fn the_later_of_two_instances_values_wins_without_any_fault() {
    bites(pair::corrected_before_the_flush, &["ArrivalWins"]);
}

#[test]
fn a_replay_leaves_a_newer_correction_alone() {
    bites(pair::corrected_before_the_replay, &["ArrivalWins"]);
}

#[test]
fn a_write_that_is_tried_again_leaves_a_newer_correction_alone() {
    bites(pair::corrected_before_the_outcome_is_known, &["ArrivalWins"]);
}

#[test]
fn a_duplicates_replay_leaves_a_newer_correction_alone() {
    bites(pair::a_duplicate_and_a_correction, &["ArrivalWins"]);
}

#[test]
fn a_duplicate_counts_against_what_others_have_not_flushed() {
    bites(pair::a_duplicate_over_an_unflushed_value, &["DuplicateLeavesNoStamp"]);
}

#[test]
fn what_is_deleted_while_an_instance_is_down_stays_deleted() {
    bites(pair::deleted_while_an_instance_is_down, &["DeletionNotRemembered"]);
}

#[test]
fn no_floor_passes_what_is_not_flushed() {
    bites(pair::unflushed_for_some_time, &["WatermarkIgnoresUnflushed"]);
}

#[test]
fn a_restored_folder_uses_no_sequence_again() {
    bites(pair::a_folder_is_restored, &["StampsCountOn"]);
}

#[test]
fn two_clones_of_a_folder_make_a_union_in_which_the_later_value_stands() {
    bites(pair::a_folder_is_cloned, &["StampsCountOn"]);
}

#[test]
fn a_clock_that_is_ahead_makes_nothing_later() {
    bites(pair::a_clock_that_is_ahead, &["ClockNotCompared"]);
}

/// Traffic, what queries say before and after it is flushed, and the documents; twice, so that pages are changed.
fn undisturbed(bug: Option<&str>) -> Oracle {
    let mut world = World::embedded(with_bug(Launch::embedded().config(config(NEVER)), bug));
    let mut oracle = Oracle::new(21, CONNECTIONS);
    for _ in 0..2 {
        oracle.during(&world.base(), |progress| progress.await_acks(6, RECOVERY));
        world.check(&mut oracle);
    }
    oracle
}

/// Traffic, flushed and asked for, twice and without a restart, so that hours change that were asked for.
fn asked_again(bug: Option<&str>) -> Oracle {
    let world = World::embedded(with_bug(Launch::embedded().config(config(NEVER)), bug));
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

fn killed_before_the_flush(bug: Option<&str>) -> Oracle {
    let launch = with_bug(Launch::embedded().config(config(NEVER)), bug);
    let mut world = World::embedded(launch.clone());
    let mut oracle = Oracle::new(22, CONNECTIONS).acked_by_the_log();
    oracle.during(&world.base(), |progress| progress.await_acks(6, RECOVERY));
    // Also to learn the stamps of undated readings.
    oracle.check_answers(&world.server);
    world.server.kill();
    world.restart(&launch);
    world.check(&mut oracle);
    oracle
}

fn killed_at(point: &str, bug: Option<&str>) -> Oracle {
    let launch = with_bug(Launch::embedded().config(config(OFTEN)), bug);
    let mut world = World::embedded(launch.clone().env("FAULT_KILL_AT", point));
    let mut oracle = Oracle::new(23, CONNECTIONS);
    oracle.during(&world.base(), |progress| {
        if !ends_by_itself(&mut world.server) {
            progress.fail(format!("the end at {point}"));
        }
        world.restart(&launch);
        progress.await_acks(2, RECOVERY);
    });
    world.check(&mut oracle);
    oracle
}

fn store_away(bug: Option<&str>) -> Oracle {
    let mut mongod = Mongod::start();
    let name = fresh_database_name();
    let uri = mongod.uri(&name);
    let mut world = World::mongo(with_bug(Launch::with_store(&uri).config(config(OFTEN)), bug), &uri, &name);
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
