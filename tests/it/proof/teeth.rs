//! The proof has teeth: a server with a bug seeded into it by `FAULT_BUG` is caught by the shortest scenario that
//! should catch it, and the same scenario finds nothing on a server without.
//!
//! Three seeded bugs are not here, because no kill of a process shows them: `SkipFdatasync`, `AckBeforeSync` and
//! `AcceptStaleBytes` need a disk that forgets what was not synced, and are caught on the simulated disk of `log`.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use super::oracle::{Oracle, START, Violation};
use super::{CAPS, DATABASE, RECOVERY, World, config, flush};
use crate::support::http::{post, request};
use crate::support::mongod::{Mongod, fresh_database_name, mongod};
use crate::support::pages::Stored;
use crate::support::poll;
use crate::support::proxy::{Fault, Proxy};
use crate::support::series::readings;
use crate::support::server::{Launch, Server};

/// So seldom that nothing is flushed unless it is asked for.
const NEVER: &str = "10m";
const OFTEN: &str = "100ms";
const CONNECTIONS: usize = 2;
const SECOND: i64 = 1_000_000_000;
const PATIENCE: Duration = Duration::from_secs(15);
/// What a server says, once per outage and shard, when a flush has failed for good.
const FLUSH_FAILED: &str = "readings could not be stored";
const SIGKILL: i32 = 9;

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
    bites(conflicts, &["ConflictIsSuccess"]);
}

#[test]
fn a_replay_over_a_newer_correction_is_caught_by_a_second_instance() {
    bites(corrected_before_the_replay, &["ReplayIgnoresApplied"]);
}

#[test]
fn an_unknown_outcome_taken_for_a_failure_is_caught_by_a_second_instance() {
    bites(corrected_before_the_outcome_is_known, &["UnknownIsFailed"]);
}

fn with_bug(launch: Launch, bug: Option<&str>) -> Launch {
    match bug {
        Some(bug) => launch.env("FAULT_BUG", bug),
        None => launch,
    }
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

/// Two instances on one MongoDB.
struct Pair {
    a: Server,
    b: Server,
    stored: Stored,
    oracle: Oracle,
}

impl Pair {
    /// The first one is launched as given, the second one on the shared mongod.
    fn start(a: Launch, name: &str, bug: Option<&str>) -> Pair {
        let b = with_bug(Launch::with_store(mongod().uri(name)).config(config(NEVER)), bug);
        let stored = Stored::in_mongo(mongod(), name, DATABASE);
        Pair { a: a.start(), b: b.start(), stored, oracle: Oracle::new(0, 0) }
    }

    /// Notes a violation unless this is what both answer and what is stored: values by second.
    fn expect(&mut self, expected: &[(i64, i64)]) {
        for server in [&self.a, &self.b] {
            if !flush(server) {
                self.oracle.note(Violation::Late("a flush".to_owned()));
            }
        }
        for (server, name) in [(&self.a, "the first instance"), (&self.b, "the second instance")] {
            let rows = readings(server, DATABASE, SENSOR, None, 1000).into_iter();
            let number = |text: &String| text.parse().expect("a whole number");
            let found = rows.map(|(time, fields)| ((time - START) / SECOND, number(&fields["x"]))).collect();
            compare(&mut self.oracle, name, found, expected);
        }
        compare(&mut self.oracle, "the store", stored_values(&self.stored), expected);
    }
}

fn compare(oracle: &mut Oracle, place: &str, found: Vec<(i64, i64)>, expected: &[(i64, i64)]) {
    if found != expected {
        oracle.note(Violation::Answers(format!("{place}: {found:?}, expected {expected:?}")));
    }
}

const SENSOR: &str = "teeth,sensor=x";

fn stored_values(stored: &Stored) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    stored.each_bucket(&CAPS, |pages| {
        for reading in pages.iter().flat_map(|page| &page.readings) {
            let hourglass::reading::Value::Integer(value) = reading.fields[0].1 else { panic!("{reading:?}") };
            found.push(((reading.time - START) / SECOND, value));
        }
    });
    found
}

fn write_url(server: &Server, ack: &str) -> String {
    server.url(&format!("/write?db={DATABASE}&ack={ack}"))
}

fn line(second: i64, value: i64) -> String {
    format!("{SENSOR} x={value}i {}\n", START + second * SECOND)
}

/// Each of them writes to a bucket that the other one has changed since.
fn conflicts(bug: Option<&str>) -> Oracle {
    let name = fresh_database_name();
    let launch = with_bug(Launch::with_store(mongod().uri(&name)).config(config(NEVER)), bug);
    let mut pair = Pair::start(launch, &name, bug);
    for (second, server) in [&pair.a, &pair.b, &pair.a, &pair.b].into_iter().enumerate() {
        let second = i64::try_from(second).expect("small");
        post(&write_url(server, "store"), line(second, second), &[]).expect(204);
    }
    pair.expect(&[(0, 0), (1, 1), (2, 2), (3, 3)]);
    pair.oracle
}

/// One instance dies when its reading is stored and its log does not know that; then the other one corrects it.
fn corrected_before_the_replay(bug: Option<&str>) -> Oracle {
    let name = fresh_database_name();
    let launch = with_bug(Launch::with_store(mongod().uri(&name)).config(config(NEVER)), bug);
    let mut pair = Pair::start(launch.clone().env("FAULT_KILL_AT", "after_flush:1"), &name, bug);
    post(&write_url(&pair.a, "log"), line(0, 1), &[]).expect(204);
    // There is no answer: it dies on the way.
    let _ = request("POST", &pair.a.url("/api/v1/flush"), b"", &[]);
    if !ends_by_itself(&mut pair.a) {
        pair.oracle.note(Violation::Late("the end behind a flush".to_owned()));
    }
    post(&write_url(&pair.b, "store"), line(0, 2), &[]).expect(204);
    pair.a.restart_as(launch);
    let url = pair.a.url(&format!("/api/v1/readings?db={DATABASE}&sensor={SENSOR}"));
    let fed = || request("GET", &url, b"", &[]).is_ok_and(|answer| answer.status == 200).then_some(());
    if poll(RECOVERY, fed).is_none() {
        pair.oracle.note(Violation::Late("the end of the replay".to_owned()));
        return pair.oracle;
    }
    pair.expect(&[(0, 2)]);
    pair.oracle
}

/// One instance's write lands and its answer is lost on the way; before it can look, the other one corrects it.
fn corrected_before_the_outcome_is_known(bug: Option<&str>) -> Oracle {
    let (name, proxy) = (fresh_database_name(), Proxy::start(mongod().port()));
    // No heartbeat is cut: behind one, a driver sends nothing more, and the write would land behind the correction.
    let options = "directConnection=true&heartbeatFrequencyMS=600000";
    let uri = format!("mongodb://127.0.0.1:{}/{name}?{options}", proxy.port());
    let launch = with_bug(Launch::with_store(uri).config(config(NEVER)), bug);
    let mut pair = Pair::start(launch, &name, bug);
    // So that the sensor and its bucket are known, and the next command is the page's write.
    post(&write_url(&pair.a, "store"), line(0, 1), &[]).expect(204);
    proxy.set(Fault::CutReply { after: 0 });
    let url = write_url(&pair.a, "store");
    let writing = std::thread::spawn(move || request("POST", &url, line(1, 1).as_bytes(), &[]));
    let landed = || stored_values(&pair.stored).contains(&(1, 1)).then_some(());
    if poll(PATIENCE, landed).is_none() {
        pair.oracle.note(Violation::Late("a write whose answer is cut".to_owned()));
    }
    post(&write_url(&pair.b, "store"), line(1, 2), &[]).expect(204);
    proxy.set(Fault::Pass);
    let answer = writing.join().expect("the client does not panic").expect("an answer");
    assert!([204, 503].contains(&answer.status), "{}", answer.text());
    pair.expect(&[(0, 1), (1, 2)]);
    pair.oracle
}

/// Waits for a server that was told to kill itself. One that does not is killed, so that the test can go on.
fn ends_by_itself(server: &mut Server) -> bool {
    let ended = poll(PATIENCE, || server.exited());
    server.kill();
    ended.is_some_and(|status| status.signal() == Some(SIGKILL))
}
