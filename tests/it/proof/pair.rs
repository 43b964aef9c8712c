//! Two instances on one MongoDB, ordered only by stamps: corrections, duplicates, deletions, restored or cloned
//! folders, clock differences. See [`super::shortest`].

use hourglass::reading::Value;

use super::oracle::{Oracle, Violation};
use super::{CAPS, DATABASE, NEVER, RECOVERY, config, ends_by_itself, flush};
use crate::support::prelude::*;

const SENSOR: &str = "teeth,sensor=x";
/// Start of an update of [`DATABASE`]'s pages on MongoDB's wire.
const PAGE_UPDATE: &[u8] = b"\x02update\0\x0e\0\0\0proof.buckets\0";

/// Two instances that flush on request, and the oracle.
struct Pair {
    a: Server,
    b: Server,
    launch: Launch,
    stored: Stored,
    oracle: Oracle,
}

impl Pair {
    fn start() -> Pair {
        let name = fresh_database_name();
        Pair::with(&name, Launch::with_store(mongod().uri(&name)), |launch| launch)
    }

    /// Sets an environment variable for the first instance.
    fn with_variable(name: &str, value: &str) -> Pair {
        let database = fresh_database_name();
        Pair::with(&database, Launch::with_store(mongod().uri(&database)), |launch| launch.env(name, value))
    }

    /// Starts the first instance as given and changed, and the second one on the shared mongod.
    fn with(name: &str, a: Launch, change: impl Fn(Launch) -> Launch) -> Pair {
        let quiet = |launch: Launch| launch.config(config(NEVER));
        let launch = quiet(a);
        let b = quiet(Launch::with_store(mongod().uri(name)));
        let stored = Stored::in_mongo(mongod(), name, DATABASE);
        Pair { a: change(launch.clone()).start(), b: b.start(), launch, stored, oracle: Oracle::new(0, 0) }
    }

    /// Restarts the first instance and waits for its replay.
    fn restart_a(&mut self) {
        self.a.restart_as(self.launch.clone());
        let url = self.a.url(&format!("/api/v1/readings?db={DATABASE}&sensor={SENSOR}"));
        let is_fed = || request("GET", &url, b"", &[]).is_ok_and(|answer| [200, 404].contains(&answer.status));
        if poll(RECOVERY, || is_fed().then_some(())).is_none() {
            self.oracle.note(Violation::Late("the end of the replay".to_owned()));
        }
    }

    /// Expects these values of `x` by second in both answers, and in the store once both have flushed.
    fn expect(&mut self, expected: &[(i64, i64)]) {
        for server in [&self.a, &self.b] {
            if !flush(server) {
                self.oracle.note(Violation::Late("a flush".to_owned()));
            }
        }
        self.expect_answers(expected);
        compare(&mut self.oracle, "the store", stored_values(&self.stored), expected);
    }

    fn end(mut self, expected: &[(i64, i64)]) -> Oracle {
        self.expect(expected);
        self.oracle
    }

    fn expect_answers(&mut self, expected: &[(i64, i64)]) {
        for (server, name) in [(&self.a, "the first instance"), (&self.b, "the second instance")] {
            compare(&mut self.oracle, name, answers(server), expected);
        }
    }

    /// Waits until both have published two heartbeats.
    fn await_beats(&mut self) {
        let beats = || -> BTreeMap<String, i64> {
            let registry = self.stored.registry();
            let logs = registry.get_array("logs").expect("logs").iter().filter_map(|log| log.as_document());
            logs.map(|log| (log.get_str("opening").expect("a name").to_owned(), log.get_i64("beat").expect("a beat")))
                .collect()
        };
        let before = beats();
        let have_come = || {
            let now = beats();
            let risen = before.iter().filter(|(opening, beat)| now.get(*opening).is_some_and(|now| *now >= **beat + 2));
            (risen.count() >= 2).then_some(())
        };
        if poll(TIMEOUT, have_come).is_none() {
            self.oracle.note(Violation::Late("beats of both".to_owned()));
        }
    }
}

fn answers(server: &Server) -> Vec<(i64, i64)> {
    let rows = readings(server, DATABASE, SENSOR, None, 1000).into_iter();
    let number = |text: &String| text.parse().expect("a whole number");
    rows.filter_map(|(time, fields)| Some(((time - START) / SECOND, number(fields.get("x")?)))).collect()
}

fn compare(oracle: &mut Oracle, place: &str, found: Vec<(i64, i64)>, expected: &[(i64, i64)]) {
    if found != expected {
        oracle.note(Violation::Answers(format!("{place}: {found:?}, expected {expected:?}")));
    }
}

fn stored_values(stored: &Stored) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    stored.each_bucket(&CAPS, |pages| {
        for reading in pages.iter().flat_map(|page| &page.readings) {
            let Value::Integer(value) = reading.fields[0].1 else { panic!("{reading:?}") };
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

/// Writes with the WAL's ack; flushed on request only.
fn log(server: &Server, second: i64, value: i64) {
    wait_for_later_stamp();
    post(&write_url(server, "log"), line(second, value), &[]).expect(204);
}

/// Waits for longer than the milliseconds by which the clocks of two instances may differ.
fn wait_for_later_stamp() {
    std::thread::sleep(Duration::from_millis(3));
}

/// Writes with the store's ack.
fn store(server: &Server, second: i64, value: i64) {
    wait_for_later_stamp();
    post(&write_url(server, "store"), line(second, value), &[]).expect(204);
}

/// Each instance writes to a bucket that the other one has changed since.
pub fn conflicts() -> Oracle {
    let pair = Pair::start();
    for (second, server) in (0..).zip([&pair.a, &pair.b, &pair.a, &pair.b]) {
        store(server, second, second);
    }
    pair.end(&[(0, 0), (1, 1), (2, 2), (3, 3)])
}

/// Regression: a value acked by the first's log and flushed late replaced the correction that the second had stored.
pub fn corrected_before_the_flush() -> Oracle {
    let pair = Pair::start();
    log(&pair.a, 0, 5);
    store(&pair.b, 0, 2);
    pair.end(&[(0, 2)])
}

/// One instance dies between flush and log truncation; then the other one corrects the reading.
pub fn corrected_before_the_replay() -> Oracle {
    let mut pair = Pair::with_variable("FAULT_KILL_AT", "after_flush:1");
    log(&pair.a, 0, 5);
    let _ = request("POST", &pair.a.url("/api/v1/flush"), b"", &[]);
    if !ends_by_itself(&mut pair.a) {
        pair.oracle.note(Violation::Late("the end behind a flush".to_owned()));
    }
    store(&pair.b, 0, 2);
    pair.restart_a();
    pair.expect_answers(&[(0, 2)]);
    pair.end(&[(0, 2)])
}

/// Regression: an equal value left no stamp in the store, so its replay after a kill replaced a newer correction.
pub fn a_duplicate_and_a_correction() -> Oracle {
    let mut pair = Pair::start();
    store(&pair.b, 0, 5);
    store(&pair.a, 0, 5);
    pair.a.kill();
    store(&pair.b, 0, 2);
    pair.restart_a();
    pair.expect_answers(&[(0, 2)]);
    pair.end(&[(0, 2)])
}

/// A stored value is repeated while the first instance has another one unflushed; the repetition is later and wins.
pub fn a_duplicate_over_an_unflushed_value() -> Oracle {
    let pair = Pair::start();
    store(&pair.b, 0, 2);
    log(&pair.a, 0, 5);
    store(&pair.b, 0, 2);
    pair.end(&[(0, 2)])
}

/// One instance's write succeeds but its answer is lost; the other one corrects it before the retry.
pub fn corrected_before_the_outcome_is_known() -> Oracle {
    let name = fresh_database_name();
    let proxy = Proxy::start(mongod().port());
    // Long heartbeats: a driver sends nothing after a lost one, and the write would not happen.
    let options = "directConnection=true&heartbeatFrequencyMS=600000";
    let uri = format!("mongodb://127.0.0.1:{}/{name}?{options}", proxy.port());
    let mut pair = Pair::with(&name, Launch::with_store(uri), |launch| launch);
    // Creates a page to update.
    store(&pair.a, 0, 1);
    // Only replies to page updates; on a busy machine another reply was cut instead.
    proxy.set(Fault::CutReplyTo(PAGE_UPDATE));
    let url = write_url(&pair.a, "store");
    let writing = std::thread::spawn(move || request("POST", &url, line(1, 5).as_bytes(), &[]));
    let landed = || stored_values(&pair.stored).contains(&(1, 5)).then_some(());
    if poll(TIMEOUT, landed).is_none() {
        pair.oracle.note(Violation::Late("a write whose answer is cut".to_owned()));
    }
    store(&pair.b, 1, 2);
    proxy.set(Fault::Pass);
    let answer = writing.join().expect("the client does not panic").expect("an answer");
    assert!([204, 503].contains(&answer.status), "{}", answer.text());
    pair.end(&[(0, 1), (1, 2)])
}

/// Regression: a series dropped while an instance was down came back with that instance's replay.
pub fn deleted_while_an_instance_is_down() -> Oracle {
    let mut pair = Pair::start();
    store(&pair.a, 0, 5);
    log(&pair.a, 1, 5);
    pair.a.kill();
    execute(&pair.b, DATABASE, "DROP SERIES FROM teeth");
    store(&pair.b, 2, 7);
    pair.restart_a();
    pair.expect_answers(&[(2, 7)]);
    pair.end(&[(2, 7)])
}

/// The floor stays below an unflushed reading while both instances publish their watermarks.
pub fn unflushed_for_some_time() -> Oracle {
    let mut pair = Pair::start();
    store(&pair.b, 0, 5);
    log(&pair.a, 0, 2);
    pair.await_beats();
    // The page's floor rises.
    store(&pair.b, 1, 1);
    pair.end(&[(0, 2), (1, 1)])
}

/// Regression: a restored folder reused sequences, so acked writes were never stored.
pub fn a_folder_is_restored() -> Oracle {
    let mut pair = Pair::start();
    let folder = pair.a.data_dir();
    let copy = folder.with_extension("copy");
    // The second instance's unflushed reading holds the floor; above it, all stamps are new.
    log(&pair.b, 9, 1);
    store(&pair.a, 0, 1);
    assert!(pair.a.stop().success(), "a stop");
    copy_folder(&folder, &copy);
    pair.restart_a();
    (1..4).for_each(|second| store(&pair.a, second, 5));
    assert!(pair.a.stop().success(), "a stop");
    std::fs::remove_dir_all(&folder).expect("the folder goes");
    copy_folder(&copy, &folder);
    pair.restart_a();
    store(&pair.a, 1, 2);
    post(&write_url(&pair.a, "store"), format!("{SENSOR} y=9i {}\n", START + 2 * SECOND), &[]).expect(204);
    pair.expect(&[(0, 1), (1, 2), (2, 5), (3, 5), (9, 1)]);
    for server in [&pair.a, &pair.b] {
        let rows = readings(server, DATABASE, SENSOR, None, 1000);
        if rows.get(2).is_none_or(|(_, fields)| fields.get("y").is_none_or(|y| y != "9")) {
            pair.oracle.note(Violation::Answers(format!("a field that was added: {rows:?}")));
        }
    }
    pair.oracle
}

/// Two instances run on copies of one folder and correct each other's values.
pub fn a_folder_is_cloned() -> Oracle {
    let mut pair = Pair::start();
    store(&pair.a, 0, 1);
    log(&pair.a, 1, 1);
    pair.a.kill();
    pair.b.kill();
    let folder = pair.b.data_dir();
    std::fs::remove_dir_all(&folder).expect("the folder goes");
    copy_folder(&pair.a.data_dir(), &folder);
    pair.restart_a();
    pair.b.restart_as(pair.launch.clone());
    for turn in 0..3 {
        log(&pair.a, 0, 20 - 2 * turn);
        store(&pair.b, 0, 19 - 2 * turn);
        store(&pair.b, 2 + turn, 5);
        store(&pair.a, 2 + turn, 4);
    }
    pair.end(&[(0, 15), (1, 1), (2, 4), (3, 4), (4, 4)])
}

/// The first instance's clock is half a minute fast; later writes of the other one win.
pub fn a_clock_that_is_ahead() -> Oracle {
    let mut pair = Pair::with_variable("FAULT_CLOCK_MS", "30000");
    store(&pair.a, 0, 5);
    // By more than the tolerance of two clocks.
    pair.await_beats();
    store(&pair.b, 0, 2);
    pair.end(&[(0, 2)])
}

fn copy_folder(from: &Path, to: &Path) {
    run_program(Command::new("cp").args(["-r", "--no-target-directory"]).args([from, to])).expect_success();
}
