//! A write with a key may be repeated: its undated readings get the same times.

use crate::support::prelude::*;

use super::{Client, client};

const KEY: &str = "Idempotency-Key";

fn write(server: &Server, database: &str, key: &str, lines: &str) -> Answer {
    http::post(&server.url(&format!("/write?db={database}&precision=ns")), lines, &[(KEY, key)])
}

fn readings(server: &Server, database: &str, sensor: &str) -> Vec<Value> {
    Client { server, database }.readings(sensor, "limit=1000")
}

const BODY: &str = "m,a=1 v=1\nm,a=1 v=2\nm,a=2 v=3\nm,a=1 v=4 1768485600000000000\nbad\nm,a=1 v=5\n";

fn check_body(server: &Server, database: &str) -> Vec<Value> {
    let one = readings(server, database, "m,a=1");
    let other = readings(server, database, "m,a=2");
    let values: Vec<&Value> = one.iter().map(|reading| &reading["v"]).collect();
    assert_eq!(values, [4, 1, 2, 5], "{one:?}");
    assert_eq!(other.len(), 1, "{other:?}");
    [one, other].concat()
}

#[test]
fn only_a_retry_with_the_same_key_adds_no_reading() {
    let client = client("keys");
    write(client.server, "keys", "one", BODY).expect(400);
    let first = check_body(client.server, "keys");
    // Other writes in between get their own times.
    client.keep("m,a=3 v=1\n");
    write(client.server, "keys", "one", BODY).expect(400);
    assert_eq!(check_body(client.server, "keys"), first);
    let url = client.url("/write", "precision=ns");
    http::post(&url, BODY, &[("X-Hourglass-Request-Id", "one")]).expect(400);
    assert_eq!(check_body(client.server, "keys"), first);
    // Another database, and JSON: a new first attempt and its retries.
    let json = r#"[{"sensor":"s","value":1},{"sensor":"s","value":2},{"sensor":"s","value":3,"ts":1768485600}]"#;
    for _ in 0..3 {
        http::post(&client.url("/api/v1/readings", ""), json, &[(KEY, "two")]).expect(200);
        write(client.server, "keys-other", "one", BODY).expect(400);
    }
    assert_eq!(client.readings("readings,sensor=s", "").len(), 3);
    check_body(client.server, "keys-other");
    http::post(&url, "m,a=1 v=1\n", &[]).expect(204);
    assert_eq!(readings(client.server, "keys", "m,a=1").len(), 5);
}

#[test]
fn invalid_keys_and_keys_of_other_bodies_are_refused() {
    let client = client("keys-refused");
    write(client.server, "keys-refused", &"k".repeat(255), "m v=1\n").expect(204);
    for key in ["", &"k".repeat(256)] {
        let refused = write(client.server, "keys-refused", key, "m v=1\n").expect(400);
        assert!(refused.text().contains("Idempotency-Key"), "{}", refused.text());
    }
    let two = [(KEY, "a"), ("X-Hourglass-Request-Id", "b")];
    http::post(&client.url("/write", ""), "m v=1\n", &two).expect(400);
    let refused = http::post(&client.url("/api/v1/readings", ""), "{\"value\":1}", &[(KEY, "a")]).expect(200);
    drop(refused);
    let refused = http::post(&client.url("/api/v1/readings", ""), "{\"value\":2}", &[(KEY, "a")]).expect(400);
    assert_eq!(refused.json()["code"], "key_of_other_body");
    assert_eq!(client.readings("m", "").len(), 1);
}

/// Concurrent undated readings of one sensor, with and without keys, never share a time.
#[test]
fn concurrent_writes_with_and_without_keys_lose_nothing() {
    let client = client("keys-crowd");
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let client = &client;
            scope.spawn(move || {
                for request in 0..10 {
                    let lines = format!("m v={thread}.{request}\nm v={thread}.{request}\n");
                    let key = format!("{thread} {request}");
                    let headers: &[(&str, &str)] = if thread % 2 == 0 { &[] } else { &[(KEY, &key)] };
                    for _ in 0..=headers.len() {
                        http::post(&client.url("/write", ""), &lines, headers).expect(204);
                    }
                }
            });
        }
    });
    assert_eq!(client.readings("m", "limit=1000").len(), 160);
}

/// Killed at each step of the first attempt and after its ack; the retry stores the readings once.
#[test]
fn a_retry_after_a_kill_at_any_step_stores_each_reading_once() {
    let points =
        ["in_request_keys", "before_append", "after_append", "after_sync", "before_dispatch", "after_dispatch"];
    let launch = || Launch::embedded();
    let mut server = launch().start();
    for (number, point) in points.iter().enumerate() {
        let database = format!("d{number}");
        server.kill();
        server.restart_as(launch().env("FAULT_KILL_AT", format!("{point}:1")));
        let url = server.url(&format!("/write?db={database}"));
        // The answer is lost with the process.
        let lost = http::request("POST", &url, BODY.as_bytes(), &[(KEY, "k")]);
        assert!(lost.is_err(), "{point}: an answer came");
        assert!(poll(TIMEOUT, || server.exited()).is_some(), "{point}");
        server.restart_as(launch());
        write(&server, &database, "k", BODY).expect(400);
        let kept = check_body(&server, &database);
        server.kill();
        server.restart_as(launch());
        write(&server, &database, "k", BODY).expect(400);
        assert_eq!(check_body(&server, &database), kept, "{point}");
    }
}
