//! Relabels that are made, taken back and made final while something else goes on, and what may not come of that.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{T, WITHIN, ask, change, flush, influxql, listed, relabel, set, stores, undo, value, write};
use crate::support::eventually;
use crate::support::http::{Answer, post};
use crate::support::mongod::{fresh_database_name, mongod};
use crate::support::process::Folder;
use crate::support::server::{Launch, Server};

/// A point at which a server waits for as long as a file is there.
struct Halt {
    file: PathBuf,
    _folder: Folder,
}

impl Halt {
    fn new() -> Self {
        let folder = Folder::new("halt");
        Self { file: folder.file("halt"), _folder: folder }
    }

    fn at(&self, point: &str, launch: Launch) -> Launch {
        launch.env("FAULT_HALT_AT", format!("{point}:{}", self.file.display()))
    }

    /// Does one thing, and another one while the first one waits; returns what came of the first one.
    fn meanwhile<T: Send>(&self, one: impl FnOnce() -> T + Send, other: impl FnOnce()) -> T {
        let met = self.file.with_extension("met");
        let _ = std::fs::remove_file(&met);
        std::fs::write(&self.file, "").unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(one);
            eventually("it is halted", WITHIN, || met.exists().then_some(()));
            other();
            std::fs::remove_file(&self.file).unwrap();
            waits.join().unwrap()
        })
    }
}

fn finalize(server: &Server, id: &str) -> Answer {
    post(&server.url(&format!("/api/v1/relabels/{id}/finalize?db=d")), "", &[])
}

/// Regression: whether summaries are cached was asked after they were read. Those of two sensors that a relabel made one went to the cache of
/// the one sensor, if the relabel was taken back meanwhile, and stayed its sums.
#[test]
fn an_undo_during_a_scan_leaves_no_sums_of_both() {
    let halt = Halt::new();
    let mut server = halt.at("summaries_read", Launch::embedded()).start();
    write(&server, &format!("m,s=old v=1i {T}\nm,s=new v=10i {}\n", T + 1));
    flush(&server);
    let id = relabel(&server, &json!({"kind": "sensor", "from": "m,s=old", "to": "m,s=new"}));
    let statement =
        format!("SELECT sum(v) FROM m WHERE s = 'new' AND time >= {T}s AND time < {}s GROUP BY time(1h)", T + 7200);
    let sum = || influxql(&server, &statement)[0]["values"][0][1].clone();
    let told = halt.meanwhile(sum, || drop(undo(&server, &id).expect(200)));
    assert_eq!((told, sum(), sum()), (json!(10), json!(10), json!(10)));
    server.stop();
}

fn refused(server: &Server, body: &Value) {
    let answer = ask(server, body, "").expect(400);
    assert!(answer.text().contains("one family"), "{body}: {}", answer.text());
}

/// Regression: taking a relabel back could give sensors with values of two families one name, as could relabels in a retention policy,
/// and those by which two sensors have one name for a part of the time.
#[test]
fn sensors_of_two_families_come_to_one_name_in_no_way() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        write(&server, &format!("m,s=x v=1i {T}\nm,s=z v=\"text\" {T}\n"));
        flush(&server);
        // By an undo: while x is shown as y, the other rule has nothing to rename.
        let first = relabel(&server, &value("s", "x", "y"));
        let second = relabel(&server, &value("s", "x", "z"));
        let answer = undo(&server, &first).expect(400);
        assert!(answer.text().contains("one family"), "{}", answer.text());
        assert_eq!(listed(&server), set(&["m,s=y", "m,s=z"]));
        undo(&server, &second).expect(200);
        undo(&server, &first).expect(200);
        // For a part of the time.
        let mut later = value("s", "z", "w");
        later["since"] = json!("2026-01-15T16:00:00Z");
        let later = relabel(&server, &later);
        refused(&server, &value("s", "x", "z"));
        let mut from_then = value("s", "x", "z");
        from_then["since"] = json!("2026-01-15T17:00:00Z");
        refused(&server, &from_then);
        undo(&server, &later).expect(200);
        // In a policy.
        change(&server, "CREATE RETENTION POLICY week ON d DURATION INF REPLICATION 1");
        let lines = format!("m,s=1 v=1i {T}\nm,s=2 v=\"text\" {T}\n");
        post(&server.url("/write?db=d&rp=week&precision=s"), &lines, &[]).expect(204);
        refused(&server, &value("s", "1", "2"));
        let id = relabel(&server, &value("s", "1", "3"));
        undo(&server, &id).expect(200);
        server.stop();
    }
}

/// Regression: a text that was written under the name of now, after a relabel, left the sums of the history unanswered.
#[test]
fn a_later_text_leaves_the_sums_of_the_history() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        write(&server, &format!("m,s=x v=1i {T}\nm,s=x v=2i {}\n", T + 3600));
        relabel(&server, &value("s", "x", "a"));
        write(&server, &format!("m,s=a v=\"text\" {}\n", T + 1));
        for _ in 0..2 {
            for hours in ["", " AND time < 2026-01-16T00:00:00Z GROUP BY time(1d)"] {
                let hours = hours.replace("2026-01-16T00:00:00Z", "'2026-01-16T00:00:00Z'");
                let sums = influxql(
                    &server,
                    &format!("SELECT sum(v), mean(v) FROM m WHERE time >= '2026-01-15T00:00:00Z'{hours}"),
                );
                assert_eq!((&sums[0]["values"][0][1], &sums[0]["values"][0][2]), (&json!(3), &json!(1.5)), "{sums}");
            }
            flush(&server);
        }
        server.stop();
    }
}

/// Regression: an undo that found the relabel final by then was answered as if it were taken back, and a finalization of one that
/// was taken back as if it were there.
#[test]
fn of_an_undo_and_a_finalization_the_later_one_is_refused() {
    let (halt, store) = (Halt::new(), mongod().uri(&fresh_database_name()));
    let mut halted = halt.at("changing_relabel", Launch::with_store(store.clone())).start();
    let mut other = Launch::with_store(store).start();
    write(&other, &format!("m,s=1 v=1i {T}\n"));
    let id = relabel(&other, &value("s", "1", "2"));
    let late = halt.meanwhile(|| undo(&halted, &id), || drop(finalize(&other, &id).expect(200)));
    assert!(late.expect(400).text().contains("is final"));
    assert_eq!(listed(&other), set(&["m,s=2"]));
    let id = relabel(&other, &value("s", "2", "3"));
    let late = halt.meanwhile(|| finalize(&halted, &id), || drop(undo(&other, &id).expect(200)));
    assert!(late.expect(400).text().contains("no relabel"));
    assert_eq!(listed(&other), set(&["m,s=2"]));
    halted.stop();
    other.stop();
}

/// Relabels go with their database, and those of the next one of that name stay.
#[test]
fn a_dropped_database_takes_its_relabels_along() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        write(&server, &format!("m,s=1 v=1i {T}\n"));
        relabel(&server, &value("s", "1", "2"));
        change(&server, "DROP DATABASE d");
        write(&server, &format!("m,s=1 v=1i {T}\n"));
        assert_eq!(listed(&server), set(&["m,s=1"]));
        relabel(&server, &value("s", "1", "3"));
        flush(&server);
        assert_eq!(listed(&server), set(&["m,s=3"]));
        server.stop();
    }
}
