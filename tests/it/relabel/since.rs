//! Deletions in databases that have relabels with `since`.

use serde_json::{Value, json};

use super::{T, change, escaped, flush, influxql, listed, readings, relabel, set, stores, value, write};
use crate::support::http::{get, post, request};
use crate::support::server::{Launch, Server};

/// The time of [`T`] and some seconds more.
fn since(seconds: i64) -> String {
    format!("2026-01-15T15:{:02}:{:02}Z", seconds / 60, seconds % 60)
}

fn relabel_since(server: &Server, from: &str, to: &str, seconds: i64) {
    let mut body = value("s", from, to);
    body["since"] = json!(since(seconds));
    relabel(server, &body);
}

fn describe(server: &Server, key: &str) {
    let url = server.url(&format!("/api/v1/sensors/{}/meta?db=d", escaped(key)));
    request("PUT", &url, br#"{"site":"lab"}"#, &[]).expect("an answer").expect(200);
}

fn meta(server: &Server, key: &str) -> Value {
    get(&server.url(&format!("/api/v1/sensors/{}/meta?db=d", escaped(key)))).expect(200).json()
}

fn answer_of(server: &Server, statement: &str, more: &str) -> Value {
    post(&server.url(&format!("/query?db=d&q={}{more}", escaped(statement))), "", &[]).json()
}

/// Regression: one relabel with `since`, of whatever sensor, split every deletion of its database at that time. None of the parts was of all
/// times, so the metadata of what was dropped stayed, and held the sensor.
#[test]
fn what_is_dropped_goes_with_its_metadata_though_another_name_changes_in_time() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        relabel_since(&server, "8", "9", 60);
        let statements = ["DROP SERIES FROM m WHERE s = '1'", "DELETE FROM m WHERE s = '1'", "DROP MEASUREMENT m"];
        for statement in statements {
            write(&server, &format!("m,s=1 v=1i {T}\nm,s=8 v=2i {T}\nm,s=8 v=3i {}\n", T + 90));
            describe(&server, "m,s=1");
            flush(&server);
            let told = answer_of(&server, statement, "&dry_run=true");
            let [sensors, count] = if statement.starts_with("DROP M") { [2, 3] } else { [1, 1] };
            let rows = &told["results"][0]["series"][0]["values"];
            assert_eq!(*rows, json!([["d", sensors, count, 0]]), "{statement}: {told}");
            change(&server, statement);
            assert_eq!(meta(&server, "m,s=1"), json!({}), "{statement}");
            assert!(!listed(&server).contains("m,s=1"), "{statement}: {:?}", listed(&server));
        }
        assert_eq!(listed(&server), set(&[]));
        // A sensor that has the name for a part of the time loses that part, and keeps what is said of it.
        write(&server, &format!("m,s=8 v=2i {T}\nm,s=8 v=3i {}\n", T + 90));
        describe(&server, "m,s=8");
        change(&server, "DROP SERIES FROM m WHERE s = '9'");
        assert_eq!(readings(&server, "m,s=8"), [(T, 2)]);
        assert_eq!(meta(&server, "m,s=8"), json!({"site": "lab"}));
        server.kill();
        server.restart("127.0.0.1:0");
        crate::support::series::await_fed(&server);
        assert_eq!(readings(&server, "m,s=8"), [(T, 2)]);
        server.stop();
    }
}

/// Regression: a deletion took room in the registry for each time at which a name changes, one after the other: without room for all
/// of them it ended halfway, with what it had logged by then.
#[test]
fn a_deletion_that_does_not_fit_deletes_nothing_and_one_of_whole_names_fits() {
    for store in stores() {
        let is_alone = store == "embedded";
        let mut server = Launch::with_store(store).config("[limits]\ndeletions = 3\n").start();
        let line = |n: i64| format!("m,s=a{n} v={n}i {T}\nm,s=a{n} v={n}i {}\nm,s=w v={n}i {}\n", T + 600, T + n);
        write(&server, &(0..6).map(line).collect::<String>());
        flush(&server);
        (0..6).for_each(|n| relabel_since(&server, &format!("a{n}"), &format!("b{n}"), 60 * (n + 1)));
        let count = || influxql(&server, "SELECT count(v) FROM m")[0]["values"][0][1].clone();
        let refused = answer_of(&server, "DROP SERIES FROM m WHERE s =~ /b/", "");
        assert!(refused.to_string().contains("remembered deletions"), "{refused}");
        assert_eq!(count(), 18, "nothing is deleted");
        let of_whole = answer_of(&server, "DROP SERIES FROM m WHERE s = 'w'", "");
        // Where others may have acked readings of sensors that nobody knows here, each part of time must be remembered.
        let expected = if is_alone { 12 } else { 18 };
        assert_eq!(count(), expected, "{of_whole}");
        assert_eq!(of_whole.to_string().contains("remembered deletions"), !is_alone, "{of_whole}");
        let part = format!("DELETE FROM m WHERE s = 'b0' AND time >= {}s", T + 420);
        change(&server, &part);
        assert_eq!(count(), expected - 1, "in a range in which no name changes");
        server.stop();
    }
}

/// Regression: the old name of a sensor that had sent more than a document keeps since it got another name was not in `GET /api/v1/latest`, and
/// lists told times at which nothing was read: the relabel's as its first one, and 1 ns before it as its last one.
#[test]
fn both_names_have_their_latest_reading_and_no_time_at_which_nothing_was_read() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        relabel_since(&server, "1", "2", 60);
        let line = |time: i64| format!("m,s=1 v={time}i {time}\n");
        write(&server, &(T..T + 3).map(line).collect::<String>());
        write(&server, &(T + 61..T + 161).map(line).collect::<String>());
        for _ in 0..2 {
            let latest = get(&server.url("/api/v1/latest?db=d&epoch=s")).expect(200).json();
            let of = |place: usize| (&latest["series"][place]["sensor"], &latest["series"][place]["readings"][0]["ts"]);
            assert_eq!(of(0), (&json!("m,s=1"), &json!(T + 2)), "{latest}");
            assert_eq!(of(1), (&json!("m,s=2"), &json!(T + 160)), "{latest}");
            let answer = get(&server.url("/api/v1/sensors?db=d&epoch=s")).expect(200).json();
            let seen = |place: usize| {
                let of = &answer["sensors"][place];
                (of["sensor"].clone(), of["first_seen"].clone(), of["last_seen"].clone())
            };
            assert_eq!(seen(0), (json!("m,s=1"), json!(T), json!(T + 2)), "{answer}");
            assert_eq!(seen(1), (json!("m,s=2"), Value::Null, json!(T + 160)), "{answer}");
            flush(&server);
        }
        server.stop();
    }
}
