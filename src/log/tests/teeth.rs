//! Bugs put in on purpose, and this very suite run on them: it must fail, or its passing proves nothing.

use std::process::{Command, Stdio};

use crate::faults::Bug;

/// Whether these tests pass with the bug in.
fn pass_with(bug: Option<Bug>, tests: &str) -> bool {
    let mut suite = Command::new(std::env::current_exe().expect("the test binary"));
    suite.args([tests, "--test-threads=1", "-q"]).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(bug) = bug {
        suite.env("FAULT_BUG", format!("{bug:?}"));
    }
    suite.status().expect("the suite runs").success()
}

#[test]
fn what_the_disk_forgets_or_keeps_from_before_is_noticed() {
    for (bug, tests) in [
        (Bug::SkipFdatasync, "log::tests::faults::the_power_may_be_cut_after_any_operation"),
        (Bug::AckBeforeSync, "log::tests::faults::the_power_may_be_cut_after_any_operation"),
        (Bug::AcceptStaleBytes, "log::tests::damage::any_byte_may_flip"),
    ] {
        assert!(pass_with(None, tests), "{tests} fails without any bug");
        assert!(!pass_with(Some(bug), tests), "{tests} does not notice {bug:?}");
    }
}
