//! Bugs put in on purpose, and the model run on them: it must fail, or its passing proves nothing.

use std::process::{Command, Stdio};

use crate::faults::Bug;

/// Whether a test of the model passes with the bug in.
fn pass_with(bug: Option<Bug>, test: &str, cases: u32) -> bool {
    let mut suite = Command::new(std::env::current_exe().expect("the test binary"));
    suite.args([test, "--exact", "--test-threads=1", "-q"]).stdout(Stdio::null()).stderr(Stdio::null());
    suite.env("HOURGLASS_LAW_CASES", cases.to_string()).env_remove("FAULT_BUG");
    suite.env("PROPTEST_MAX_SHRINK_ITERS", "0").env("RUST_BACKTRACE", "0");
    if let Some(bug) = bug {
        suite.env("FAULT_BUG", format!("{bug:?}"));
    }
    suite.status().expect("the model runs").success()
}

const LAW: &str = "ingest::law::steps::the_greatest_stamp_of_every_cell_stands";
const HORIZON: &str = "ingest::law::steps::only_what_was_silent_beyond_the_horizon_is_set_aside";
const MERGE: &str = "ingest::law::laws::merging_commutes_associates_and_repeats";

#[test]
fn mistakes_in_the_law_are_noticed() {
    let bugs = [
        (Bug::ArrivalWins, LAW),
        (Bug::DuplicateLeavesNoStamp, LAW),
        (Bug::WatermarkIgnoresUnflushed, LAW),
        (Bug::DeletionNotRemembered, LAW),
        (Bug::SkipDedupe, LAW),
        (Bug::StaleSummary, LAW),
        (Bug::SplitLosesStamps, LAW),
        (Bug::CellTakesItsReadingsStamp, LAW),
        (Bug::CellTakesItsReadingsStamp, MERGE),
        (Bug::EqualStampsByArrival, LAW),
        (Bug::EqualStampsByArrival, MERGE),
        (Bug::TakenOverIsStored, LAW),
        (Bug::CopyAnswersForAll, LAW),
        (Bug::FloorFollowsGreatest, LAW),
        (Bug::DeletionForgottenEarly, LAW),
        (Bug::SettledIsOlderThanAll, LAW),
        (Bug::FloorRaisesWatermark, HORIZON),
    ];
    for test in [LAW, HORIZON, MERGE] {
        assert!(pass_with(None, test, 500), "{test} fails without any bug");
    }
    let missed: Vec<_> = bugs.into_iter().filter(|(bug, test)| pass_with(Some(*bug), test, 30_000)).collect();
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
