//! `/query` beside InfluxDB 1.x with equal readings and statements. `HOURGLASS_TEST_STATEMENTS` filters them by text;
//! answers are kept in `target/tmp/influxql` (`answers.jsonl`, `differences.txt`).

mod cli;
mod compare;
mod data;
mod generated;
mod parts;
mod run;
mod statements;
mod teeth;

use self::run::{Outcome, Side, run, run_dashboards};
use crate::support::prelude::*;

/// Small pages, so that an hour of readings has several.
const CONFIG: &str = "
[page]
max_readings = 100
";
/// Differences printed on failure; the file has all of them.
const SHOWN: usize = 10;

#[test]
fn influxdb_and_hourglass_answer_alike() {
    let Some(influxd) = Influxd::start() else { return };
    let server = Launch::embedded().config(CONFIG).start();
    let outcomes = run(&Side::influxd(&influxd), &Side::hourglass(&server), "answers.jsonl");
    judge("hourglass", &outcomes);
}

#[test]
fn influxdb_and_hourglass_answer_dashboard_statements_alike() {
    let Some(influxd) = Influxd::start() else { return };
    let server = Launch::embedded().config(CONFIG).start();
    let outcomes = run_dashboards(&Side::influxd(&influxd), &Side::hourglass(&server));
    let different: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.difference.is_some()).collect();
    assert!(different.is_empty(), "{}", describe_differences("hourglass", &different, SHOWN));
    let empty = outcomes.iter().find(|outcome| !outcome.actual.body.contains("\"values\""));
    assert!(empty.is_none(), "a panel that shows nothing: {}", empty.unwrap().key);
}

#[test]
fn influxdb_answers_are_repeatable() {
    let Some(one) = Influxd::start() else { return };
    let Some(other) = Influxd::start() else { return };
    let outcomes = run(&Side::influxd(&one), &Side::influxd(&other), "answers-again.jsonl");
    let different: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.difference.is_some()).collect();
    assert!(different.is_empty(), "{}", describe_differences("another influxd", &different, usize::MAX));
    let broken = outcomes.iter().find(|outcome| outcome.expected.status >= 500);
    assert!(broken.is_none(), "influxd breaks at {}", broken.unwrap().key);
}

/// Checks that the differences are exactly those that `differences.txt` accepts.
fn judge(other: &str, outcomes: &[Outcome]) {
    let accepted = statements::accepted();
    let is_accepted = |outcome: &Outcome| accepted.iter().any(|(key, _)| *key == outcome.key);
    let different: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.difference.is_some()).collect();
    let surprising: Vec<&Outcome> = different.iter().copied().filter(|outcome| !is_accepted(outcome)).collect();
    let file = folder().join("differences.txt");
    std::fs::write(&file, describe_differences(other, &different, usize::MAX)).expect("the differences can be written");
    let mut summary = format!("{} statements, {} answered otherwise:", outcomes.len(), different.len());
    for topic in topics(outcomes) {
        let count = |all: &[&Outcome]| all.iter().filter(|outcome| outcome.topic == topic).count();
        let _ = write!(summary, " {topic} {}/{}", count(&different), count(&outcomes.iter().collect::<Vec<_>>()));
    }
    eprintln!("{summary}");
    let stale: Vec<&str> = outcomes
        .iter()
        .filter(|outcome| outcome.difference.is_none() && is_accepted(outcome))
        .map(|outcome| outcome.key.as_str())
        .collect();
    assert!(stale.is_empty(), "listed in differences.txt, and answered alike now: {stale:#?}");
    if std::env::var_os("HOURGLASS_TEST_STATEMENTS").is_none() {
        let unknown = accepted.iter().find(|(key, _)| outcomes.iter().all(|outcome| outcome.key != *key));
        assert!(unknown.is_none(), "listed in differences.txt, and no statement: {unknown:?}");
    } else {
        not_run("all statements: HOURGLASS_TEST_STATEMENTS picks some");
    }
    assert!(
        surprising.is_empty(),
        "{}\n{summary}\nall of them: {}",
        describe_differences(other, &surprising, SHOWN),
        file.display()
    );
}

/// Returns the statement files in the order they were run.
fn topics(outcomes: &[Outcome]) -> Vec<&str> {
    let mut topics: Vec<&str> = outcomes.iter().map(|outcome| outcome.topic.as_str()).collect();
    topics.dedup();
    topics
}

fn describe_differences(other: &str, different: &[&Outcome], most: usize) -> String {
    let mut report = format!("{} statements are answered otherwise\n", different.len());
    for outcome in different.iter().take(most) {
        let difference = outcome.difference.as_deref().unwrap_or_default();
        let _ = write!(report, "\n{}: {}\n  {difference}\n", outcome.topic, outcome.key);
        let _ = write!(report, "  influxd: {}\n  {other}: {}\n", outcome.expected.summary(), outcome.actual.summary());
    }
    report
}

/// Returns the folder of kept answers.
fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("influxql");
    std::fs::create_dir_all(&folder).expect("a folder for the answers can be made");
    folder
}
