//! Readings without a time get their time of receipt, and none overwrites another.

use hourglass::clock::now_ns;

use crate::support::prelude::*;

use super::{Client, client, text_at};

fn times(readings: &[Value]) -> Vec<i64> {
    readings.iter().map(|reading| reading["ts"].as_i64().expect("a time")).collect()
}

/// Writes five undated readings in one body and checks that they are a nanosecond apart, in order.
fn check_one_body(client: &Client<'_>, sensor: &str, write: impl Fn()) {
    let before = now_ns();
    write();
    let after = now_ns();
    let readings = client.readings(sensor, "");
    let times = times(&readings);
    assert_eq!(times.len(), 5, "{sensor}: {readings:?}");
    assert!(times.windows(2).all(|pair| pair[1] == pair[0] + 1), "{sensor}: {times:?}");
    assert!(before <= times[0] && times[4] <= after, "{sensor}: {before} {times:?} {after}");
    let values: Vec<&Value> = readings.iter().map(|reading| &reading["value"]).collect();
    assert_eq!(values, [0, 1, 2, 3, 4], "{sensor}");
}

#[test]
fn undated_readings_of_a_body_are_a_nanosecond_apart() {
    let client = client("undated");
    let lines: String = (0..5).map(|number| format!("lines value={number}\n")).collect();
    let objects: Vec<Value> = (0..5).map(|number| json!({"sensor": "a", "value": number})).collect();
    let ndjson: String = (0..5).map(|number| format!("{{\"sensor\":\"n\",\"value\":{number}}}\n")).collect();
    check_one_body(&client, "lines", || client.keep(&lines));
    check_one_body(&client, "readings,sensor=a", || {
        client.write_json(&Value::from(objects.clone()).to_string()).expect(200);
    });
    check_one_body(&client, "readings,sensor=n", || {
        client.write_json(&ndjson).expect(200);
    });
    // A null time counts as missing.
    client.write_json(r#"{"sensor":"null","value":1,"ts":null}"#).expect(200);
    assert!(times(&client.readings("readings,sensor=null", ""))[0] > 1_700_000_000_000_000_000);
}

/// The precision is the unit of given timestamps; rounding the time of receipt would merge readings.
#[test]
fn the_precision_does_not_round_the_time_of_receipt() {
    let client = client("undated-precision");
    for _ in 0..3 {
        http::post(&client.url("/write", "precision=s"), "m v=1\nm v=2", &[]).expect(204);
    }
    assert_eq!(client.readings("m", "").len(), 6);
}

#[test]
fn concurrent_requests_lose_no_undated_reading() {
    const THREADS: usize = 8;
    const REQUESTS: usize = 10;
    let client = client("undated-crowd");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let client = &client;
            scope.spawn(move || {
                for request in 0..REQUESTS {
                    let line = format!("v={thread}.{request}");
                    let object = thread * REQUESTS + request;
                    if request % 2 == 0 {
                        // Tags in either order name the same sensor.
                        client.keep(&format!("readings,a=1,sensor=s {line}\nreadings,sensor=s,a=1 {line}\n"));
                    } else {
                        let one = json!({"sensor": "s", "tags": {"a": "1"}, "fields": {"v": object}});
                        client.write_json(&json!([one, one]).to_string()).expect(200);
                    }
                }
            });
        }
    });
    let times = times(&client.readings("readings,a=1,sensor=s", "limit=1000"));
    assert_eq!(times.len(), THREADS * REQUESTS * 2);
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
}

/// Regression: a device that sent its uptime as the timestamp got a 204, and its readings landed in 1970.
#[test]
fn early_timestamps_are_warned_of_and_counted_by_sender() {
    let server = Server::start("embedded");
    let url = server.url("/write?db=d&precision=s");
    let lines = "m v=1 12\nm v=2 13\nm v=3 946684799\nm v=4 946684800";
    let kept = http::post(&url, lines, &[]).expect(204);
    let warning =
        "3 timestamps are before 2000, the first is 1970-01-01T00:00:12Z: a device without a clock sends no timestamp";
    assert_eq!(kept.header("x-hourglass-warning"), Some(warning));
    assert_eq!(http::post(&url, "m v=5 1768485600\nm v=6", &[]).expect(204).header("x-hourglass-warning"), None);
    let overview = server.fetch("/api/v1/overview");
    assert_eq!(overview["early_timestamps"], json!({"anybody": 3}));
    assert!(http::get(&server.url("/metrics")).text().contains("\nhourglass_ingest_timestamps_early_total 3\n"));
}

/// Regression: a token that may only read metrics saw the names of other tokens.
#[test]
fn senders_of_early_timestamps_are_shown_to_administrators_only() {
    let server = Launch::embedded().env("HOURGLASS_AUTH_FIRST_TOKEN", "true").start();
    let first = server.first_token().expect("a token");
    let ask = |method: &str, path: &str, body: &str, token: &str| {
        let headers = [("authorization", &*format!("Token {token}"))];
        http::request(method, &server.url(path), body.as_bytes(), &headers).expect("an answer")
    };
    let watcher = ask("POST", "/api/v1/tokens", r#"{"name":"watcher","metrics":true}"#, &first).expect(201).json();
    let name = ask("GET", "/api/v1/caller", "", &first).expect(200).json()["name"].clone();
    ask("POST", "/write?db=d&precision=s", "m v=1 12", &first).expect(204);
    let senders =
        |token: &str| ask("GET", "/api/v1/overview", "", token).expect(200).json()["early_timestamps"].clone();
    assert_eq!(senders(&first), json!({ name.as_str().expect("a name"): 1 }));
    assert_eq!(senders(text_at(&watcher, "token")), json!(null));
}
