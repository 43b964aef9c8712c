//! Kills at every step of a deletion and during its replay: deleted readings stay deleted, all others stay.

use crate::support::prelude::*;

use super::{CONFIG, DATABASE, HOUR, SECOND, START, TIMEOUT, kill_during_replay, send, times, write};

/// Kill points, and whether the deletion is certainly in the WAL by then.
const POINTS: [(&str, Certainty); 12] = [
    ("before_append", Certainty::NotLogged),
    ("after_append", Certainty::Unknown),
    ("after_sync", Certainty::Logged),
    ("before_dispatch", Certainty::Logged),
    ("after_dispatch", Certainty::Logged),
    ("before_deletion", Certainty::Logged),
    ("during_deletion", Certainty::Logged),
    ("after_deletion", Certainty::Logged),
    ("after_removal", Certainty::Logged),
    ("before_flush", Certainty::Unknown),
    ("before_sensors", Certainty::Unknown),
    ("before_truncate", Certainty::Unknown),
];
const SIGKILL: i32 = 9;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Certainty {
    NotLogged,
    Unknown,
    Logged,
}

const CUT: &str = "DELETE FROM m WHERE t = 'a'";
const DROP: &str = "DROP DATABASE doomed";

tests! {
    fn a_killed_delete_is_atomic_in_the_embedded_store() => kills(&Launch::embedded().config(CONFIG), &range(), 0);
    fn a_killed_delete_is_atomic_in_mongodb() =>
        kills(&Launch::with_store(mongod().uri(&fresh_database_name())).config(CONFIG), &range(), 1);
    fn a_killed_delete_of_a_series_is_atomic_in_mongodb() =>
        kills(&Launch::with_store(mongod().uri(&fresh_database_name())).config(CONFIG), CUT, 0);
    fn a_killed_drop_is_atomic_in_the_embedded_store() => kills(&Launch::embedded().config(CONFIG), DROP, 1);
    fn a_killed_drop_is_atomic_in_mongodb() =>
        kills(&Launch::with_store(mongod().uri(&fresh_database_name())).config(CONFIG), DROP, 0);
}

/// A range that cuts hours at both ends.
fn range() -> String {
    format!("DELETE FROM m WHERE t = 'a' AND time >= {} AND time < {}", START + 10 * SECOND, START + 2 * HOUR)
}

/// Times in the first three hours, with several pages each.
fn every_time() -> Vec<i64> {
    (0..3).flat_map(|hour| (0..20).map(move |second| START + hour * HOUR + second * SECOND)).collect()
}

fn lines(times: &[i64], tag: &str) -> String {
    times.iter().map(|time| format!("m,t={tag} v=1 {time}\n")).collect()
}

/// Returns the times that a statement leaves of a sensor.
fn left(statement: &str, tag: &str) -> Vec<i64> {
    let stays = |time: &i64| match statement {
        DROP => false,
        CUT => tag != "a",
        _ => tag != "a" || *time < START + 10 * SECOND || *time >= START + 2 * HOUR,
    };
    every_time().into_iter().filter(stays).collect()
}

#[track_caller]
fn kills(launch: &Launch, statement: &str, first: usize) {
    let mut reached = 0;
    let points: Vec<_> = shared(POINTS, first).collect();
    let expected = points.len() * 7 / POINTS.len();
    for (point, certainty) in points {
        // A fresh log, so that this deletion is the first.
        let mut server = launch.clone().start();
        // One half is stored, the other is unflushed.
        let times = every_time();
        let (first, second) = times.split_at(times.len() / 2);
        ["a", "b"].iter().for_each(|tag| write(&server, &lines(first, tag)));
        flush(&server);
        ["a", "b"].iter().for_each(|tag| write(&server, &lines(second, tag)));
        assert_eq!((super::times(&server, "m,t=a"), super::times(&server, "m,t=b")), (times.clone(), times), "{point}");

        let answered = delete_until_killed(&mut server, launch, statement, point);
        reached += usize::from(!answered);
        // The next process also dies during replay.
        kill_during_replay(&mut server, launch, &["during_replay:1", "during_deletion:1", "before_deletion:1"]);
        server.restart_with(launch.clone());
        flush(&server);
        check(&mut server, statement, point, certainty, answered);
        super::run(&server, &format!("DROP DATABASE {DATABASE}"));
    }
    assert!(reached >= expected, "only {reached} points were reached");
}

/// Restarts the server so that it dies at a point, sends the statement, and returns true if it was answered.
fn delete_until_killed(server: &mut Server, launch: &Launch, statement: &str, point: &str) -> bool {
    server.kill();
    server.relaunch(launch.clone().env("FAULT_KILL_AT", format!("{point}:1")));
    let url = server.url("/api/v1/status");
    let is_fed = || request("GET", &url, b"", &[]).is_ok_and(|answer| answer.json()["feeding"] == false);
    poll(TIMEOUT, || (is_fed() || server.exited().is_some()).then_some(()));
    let q = encode(statement);
    let url = server.url(&format!("/query?db={DATABASE}&q={q}"));
    let answer = request("POST", &url, b"", &[]);
    let answered = answer.is_ok_and(|answer| answer.status == 200 && !answer.text().contains("error"));
    // Points in background jobs are reached a little later.
    let ended = poll(Duration::from_secs(2), || server.exited());
    if let Some(status) = ended {
        assert_eq!(status.signal(), Some(SIGKILL), "{point}: {status}");
    }
    server.kill();
    answered
}

/// After the restart, all or none of the deletion is visible, and later writes into the gap stay.
#[track_caller]
fn check(server: &mut Server, statement: &str, point: &str, certainty: Certainty, answered: bool) {
    let seen = (times(server, "m,t=a"), times(server, "m,t=b"));
    let done = (left(statement, "a"), left(statement, "b"));
    let is_done = seen == done;
    assert!(is_done || seen == (every_time(), every_time()), "{point}: half of it is there: {seen:?}");
    assert!(is_done || !answered, "{point}: what was answered was not done");
    match certainty {
        Certainty::Logged => assert!(is_done, "{point}: what is in the WAL was not done"),
        Certainty::NotLogged => assert!(!is_done, "{point}: what is not in the WAL was done"),
        Certainty::Unknown => {}
    }
    if !is_done {
        send(server, statement).expect(200);
        assert_eq!((times(server, "m,t=a"), times(server, "m,t=b")), done, "{point}");
    }
    // In the middle of the deleted range.
    let gap_time = START + HOUR + SECOND;
    write(server, &format!("m,t=a v=2 {gap_time}"));
    let mut expected = done.0.clone();
    expected.push(gap_time);
    expected.sort_unstable();
    for _ in 0..2 {
        assert_eq!((times(server, "m,t=a"), times(server, "m,t=b")), (expected.clone(), done.1.clone()), "{point}");
        server.kill_and_restart();
    }
    flush(server);
    assert_eq!((times(server, "m,t=a"), times(server, "m,t=b")), (expected, done.1), "{point}");
}
