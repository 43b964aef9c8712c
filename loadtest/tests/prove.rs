//! Runs `prove` on the systems that are installed: one kill each. hourglass must have no violation.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const LOADTEST: &str = env!("CARGO_BIN_EXE_hourglass-loadtest");

/// Reports a skipped test; with HOURGLASS_TEST_REQUIRE=all that is a failure, as in all tests.
fn not_run(needs: &str, is_in_ci: bool) {
    let is_required = std::env::var("HOURGLASS_TEST_REQUIRE").is_ok_and(|required| required == "all");
    assert!(!(is_in_ci && is_required), "{needs}, and HOURGLASS_TEST_REQUIRE=all");
    eprintln!("NOT RUN: prove: {needs}");
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// Runs `prove`, and returns its results for the peer and whether it succeeded.
fn prove(peer: &str, flags: &[(&str, &Path)]) -> (Value, bool) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let json = folder.join(format!("prove-{peer}-{}.json", std::process::id()));
    let mut command = Command::new(LOADTEST);
    command
        .args(["prove", "--cycles", "1", "--stream-seconds", "2", "--peer", peer, "--folder"])
        .arg(&folder)
        .arg("--json")
        .arg(&json);
    for (flag, program) in flags {
        command.arg(flag).arg(program);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let text = std::fs::read_to_string(&json).unwrap_or_else(|_| panic!("no results: {said}"));
    std::fs::remove_file(&json).unwrap();
    let found: Value = serde_json::from_str(&text).unwrap();
    if !output.status.success() {
        eprintln!("{said}");
    }
    (found["proofs"][0].clone(), output.status.success())
}

/// The binary beside the load tester; `cargo test --workspace` builds both.
fn hourglass() -> Option<PathBuf> {
    let program = Path::new(LOADTEST).with_file_name("hourglass");
    program.is_file().then_some(program)
}

#[test]
fn hourglass_holds_the_law_that_its_peers_are_asked_about() {
    let Some(hourglass) = hourglass() else { return not_run("no hourglass beside the load tester", false) };
    let (found, held) = prove("hourglass-embedded", &[("--hourglass", &hourglass)]);
    assert!(held, "{found}");
    let cycle = &found["crashes"]["cycles"][0];
    assert!(cycle["acked"].as_u64().unwrap() > 0, "nothing was acked before the kill: {cycle}");
    assert_eq!(cycle["lost"], 0);
    assert_eq!(found["retries"]["counted_after_restart"], 1000.0);
    assert_eq!(found["corrections"].as_array().unwrap().len(), 4);
    // Six aggregates (two fields) of 4 sensors in 24 hours: there must be all of them.
    assert_eq!(found["late"]["after_restart"]["aggregates"], 4 * 24 * 6);
}

/// Checks that the oracle finds the weaknesses that the systems document themselves.
#[test]
fn the_oracle_sees_that_victoriametrics_keeps_duplicates() {
    let Some(victoria) = on_path("victoria-metrics") else { return not_run("no victoria-metrics on PATH", false) };
    let (found, ran) = prove("victoriametrics", &[("--victoria", &victoria)]);
    assert!(ran);
    assert_eq!(found["retries"]["returned"], 3000);
    assert_eq!(found["late"]["after_restart"]["wrong"], 0);
}

#[test]
fn influxdb_merges_field_by_field_as_hourglass_does() {
    let Some(influxd) = on_path("influxd") else { return not_run("no influxd on PATH", true) };
    let (found, ran) = prove("influxdb", &[("--influxd", &influxd)]);
    assert!(ran);
    assert_eq!(found["retries"]["counted_after_restart"], 1000.0);
    for corrected in found["corrections"].as_array().unwrap() {
        assert_eq!(corrected["other_field_kept"], corrected["corrections"], "{corrected}");
    }
}
