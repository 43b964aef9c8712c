//! Runs every command at a small size. `prove` runs on the systems that are installed, one kill each: hourglass must
//! have no violation.
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

/// The figures that a command wrote: by table, row and column.
struct Figures(Value);

impl Figures {
    /// The median of a cell.
    fn get(&self, table: &str, row: &str, column: &str) -> f64 {
        let find = |list: &Value, key: &str, name: &str| {
            let found = list.as_array().unwrap().iter().find(|one| one[key] == name).cloned();
            found.unwrap_or_else(|| panic!("no {name} in {list}"))
        };
        let table = find(&self.0["tables"], "title", table);
        let row = find(&table["rows"], "name", row);
        let values = find(&row["cells"], "column", column)["values"].clone();
        let mut values: Vec<f64> = serde_json::from_value(values).unwrap();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }
}

/// Runs a command of the load tester, and returns its figures and whether it succeeded.
fn measure(flags: &[&str]) -> (Figures, bool) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let json = folder.join(format!("{}-{}.json", flags.join("-").replace('/', "_"), std::process::id()));
    let mut command = Command::new(LOADTEST);
    let output = command.args(flags).arg("--folder").arg(&folder).arg("--json").arg(&json).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let text = std::fs::read_to_string(&json).unwrap_or_else(|_| panic!("no results: {said}"));
    std::fs::remove_file(&json).unwrap();
    if !output.status.success() {
        eprintln!("{said}");
    }
    (Figures(serde_json::from_str(&text).unwrap()), output.status.success())
}

/// Runs `prove` with one kill.
fn prove(peer: &str, program: &str, path: &Path) -> (Figures, bool) {
    measure(&["prove", "--cycles", "1", "--stream-seconds", "2", "--peer", peer, program, path.to_str().unwrap()])
}

/// The binary beside the load tester; `cargo test --workspace` builds both.
fn hourglass() -> Option<PathBuf> {
    let program = Path::new(LOADTEST).with_file_name("hourglass");
    program.is_file().then_some(program)
}

#[test]
fn hourglass_holds_the_law_that_its_peers_are_asked_about() {
    let Some(hourglass) = hourglass() else { return not_run("no hourglass beside the load tester", false) };
    let (found, held) = prove("hourglass-embedded", "--hourglass", &hourglass);
    assert!(held);
    let of = |table, column| found.get(table, "hourglass, embedded", column);
    assert!(of("acked and lost", "acked") > 0.0, "nothing was acked before the kill");
    assert_eq!(of("acked and lost", "acked and lost"), 0.0);
    assert_eq!(of("duplicates kept", "count after restart and retry"), 1000.0);
    assert_eq!(of("winning corrections, of 40 each", "lowered after a restart"), 40.0);
    // Six aggregates (two fields) of 4 sensors in 24 hours: there must be all of them.
    assert_eq!(of("late data in aggregates", "aggregates"), 4.0 * 24.0 * 6.0);
}

/// Checks that the oracle finds the weaknesses that the systems document themselves.
#[test]
fn the_oracle_sees_that_victoriametrics_keeps_duplicates() {
    let Some(victoria) = on_path("victoria-metrics") else { return not_run("no victoria-metrics on PATH", false) };
    let (found, ran) = prove("victoriametrics", "--victoria", &victoria);
    assert!(ran);
    assert_eq!(found.get("duplicates kept", "VictoriaMetrics", "values returned"), 3000.0);
    assert_eq!(found.get("late data in aggregates", "VictoriaMetrics", "wrong after a restart"), 0.0);
}

#[test]
fn influxdb_merges_field_by_field_as_hourglass_does() {
    let Some(influxd) = on_path("influxd") else { return not_run("no influxd on PATH", true) };
    let (found, ran) = prove("influxdb", "--influxd", &influxd);
    assert!(ran);
    assert_eq!(found.get("duplicates kept", "InfluxDB", "count after restart and retry"), 1000.0);
    assert_eq!(found.get("winning corrections, of 40 each", "InfluxDB", "other field changed"), 0.0);
}

/// Runs every other command of hourglass with the embedded store, at a small size.
#[test]
fn every_command_measures_at_a_small_size() {
    let Some(hourglass) = hourglass() else { return not_run("no hourglass beside the load tester", false) };
    let name = "hourglass, embedded";
    let measure = |flags: &str| {
        let mut flags: Vec<&str> = flags.split(' ').collect();
        flags.extend(["--hourglass", hourglass.to_str().unwrap(), "--peer", "hourglass-embedded"]);
        measure(&flags).0
    };
    let found = measure("run late-data --duration 2s --rate 5000 --verify");
    assert_eq!(found.get("late-data", "POSTs never acked", "value"), 0.0);
    let found = measure("peers --rounds 1 --offered-seconds 1 --scenario gateway-batches --scale 0.01");
    let table = "gateway-batches: 20,000 readings, 1,000 sensors, 5,000 per POST, 8 connections";
    assert!(found.get(table, name, "acked/s") > 0.0 && found.get(table, name, "offered p99 ms") > 0.0);
    let found = measure("growth --scale 0.01 --only stored --filled 1000000");
    assert!(found.get("readings in the store before", "10,000", "disk MiB") > 0.0);
    let found = measure("queries --rounds 1 --runs 1 --cold 1 --sensors 20");
    assert!(found.get("p50 ms", "24 hourly means of all sensors by site, after a restart", name) > 0.0);
    let found = measure("history --days 2 --sensors 12 --tries 1");
    assert!(found.get("cold, p50 ms", "one sensor, chart (least and greatest of 3 h)", name) > 0.0);
    for (what, row, column) in [
        ("year", "ms: daily means by site, all days", name),
        ("time-major", "written to the store, by what is stored", name),
        ("sealing", "ack p99, ms", "hourglass, embedded, sealing"),
        ("memory", "readings sealed", "hourglass, embedded, a fast sensor"),
    ] {
        let flags = format!("history --days 2 --sensors 12 --tries 1 --seconds 2 --hertz 2 --measure {what}");
        assert!(measure(&flags).get("history", row, column) > 0.0, "{what}");
    }
    let found = measure("metadata --sensors 500 --asked 2");
    assert!(found.get("hourly means of a day, ms", "by site", "by metadata") > 0.0);
    let found = measure("listeners --clients 20 --at-once 4 --rounds 1 --round 2s");
    assert_eq!(found.get("come and go", "clients that listened", "4 listeners at once"), 20.0);
    assert_eq!(found.get("how soon", "4 listeners", "arrived"), 160.0);
}
