//! `GET /api/v1/sensors`: sensors, their statistics, and outliers with more than one page per hour.

use crate::support::prelude::*;

use super::{Client, client, keys, text_at};

const PATH: &str = "/api/v1/sensors";

fn list_sensors(client: &Client<'_>, parameters: &str) -> Vec<Value> {
    let answer = client.get(PATH, parameters).expect(200).json();
    let mut keys = keys(&answer);
    // The list of a missing database has a notice.
    keys.retain(|key| *key != "notices" || answer["sensors"] != json!([]));
    assert_eq!(keys, ["next", "sensors"]);
    answer["sensors"].as_array().unwrap().clone()
}

fn names(sensors: &[Value]) -> Vec<&str> {
    sensors.iter().map(|sensor| text_at(sensor, "sensor")).collect()
}

#[test]
fn sensors_are_listed_with_their_statistics() {
    let client = client("seen");
    client.keep(
        "climate,site=a,sensor=t1 temp=1.5,ok=true 2000000000\nclimate,site=a,sensor=t1 note=\"x\",temp=2 3000000000",
    );
    // A late reading, before all others.
    client.keep("climate,site=a,sensor=t1 temp=9 1000000000");
    let expected = json!({
        "sensor": "climate,sensor=t1,site=a",
        "measurement": "climate",
        "tags": {"sensor": "t1", "site": "a"},
        "fields": {"temp": "number", "ok": "boolean", "note": "string"},
        "first_seen": "1970-01-01T00:00:01Z",
        "last_seen": "1970-01-01T00:00:03Z",
        "latest": {"ts": "1970-01-01T00:00:03Z", "note": "x", "temp": 2},
        "outlier": null,
        "silent": true,
    });
    assert_eq!(list_sensors(&client, ""), std::slice::from_ref(&expected));
    let epoch = list_sensors(&client, "epoch=s");
    assert_eq!((&epoch[0]["first_seen"], &epoch[0]["latest"]["ts"]), (&json!(1), &json!(3)));
    let mut with_recent = expected;
    with_recent["recent"] = json!([
        {"ts": "1970-01-01T00:00:01Z", "temp": 9},
        {"ts": "1970-01-01T00:00:02Z", "temp": 1.5, "ok": true},
        {"ts": "1970-01-01T00:00:03Z", "note": "x", "temp": 2},
    ]);
    assert_eq!(list_sensors(&client, "recent=true"), [with_recent]);
    // The list shows the overwritten value.
    client.keep("climate,site=a,sensor=t1 temp=7 3000000000");
    assert_eq!(list_sensors(&client, "")[0]["latest"], json!({"ts": "1970-01-01T00:00:03Z", "note": "x", "temp": 7}));
    assert!(list_sensors(&super::client("nobody-there"), "").is_empty());
}

#[test]
fn the_config_sets_the_number_of_recent_readings() {
    let server = Launch::embedded().config("[sensors]\nrecent = 3\n").start();
    let client = Client { server: &server, database: "d" };
    client.keep("m n=5i 5\nm n=1i 1\nm n=3i 3\nm n=4i 4\nm n=2i 2\nm n=6i 3600000000000");
    let recent = list_sensors(&client, "recent=true&epoch=ns")[0]["recent"].clone();
    assert_eq!(recent, json!([{"ts": 4, "n": 4}, {"ts": 5, "n": 5}, {"ts": 3_600_000_000_000_i64, "n": 6}]));
}

#[test]
fn sensors_are_paged_in_key_order() {
    let client = client("many-sensors");
    let line = |n: usize| format!("m,s={n:03} v=1 1\n");
    client.keep(&(0..25).rev().map(line).collect::<String>());
    let all_keys: Vec<String> = (0..25).map(|n| format!("m,s={n:03}")).collect();
    assert_eq!(names(&list_sensors(&client, "")), all_keys);
    for limit in [1, 7, 24, 25, 26] {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let answer = client.get(PATH, &format!("limit={limit}&cursor={}", encode(&cursor))).expect(200).json();
            let page = answer["sensors"].as_array().unwrap();
            assert!(page.len() <= limit, "{limit}");
            found.extend(page.iter().map(|sensor| text_at(sensor, "sensor").to_owned()));
            match answer["next"].as_str() {
                Some(next) => cursor = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(found, all_keys, "{limit}");
    }
    for (parameters, expected) in [
        ("outlier=perhaps", "parameter outlier: \"perhaps\" is neither true nor false"),
        ("recent=x", "parameter recent: \"x\" is neither true nor false"),
        (
            "sensor=m",
            "unknown parameter \"sensor\"; use one of db, contains, outlier, silent, recent, limit, cursor, epoch",
        ),
        ("limit=0", "parameter limit: \"0\" is not a number from 1 to 1000"),
        ("limit=1&limit=1", "parameter limit is given twice"),
    ] {
        assert_eq!(
            client.get(PATH, parameters).expect(400).json(),
            json!({"error": expected, "code": "invalid"}),
            "{parameters}"
        );
    }
}

#[test]
fn a_sensor_with_overflow_is_listed_as_an_outlier() {
    let mut server = Launch::embedded().config("[page]\nmax_readings = 10\n").start();
    let client = Client { server: &server, database: "d" };
    let readings =
        |sensor: &str, count: usize| (0..count).map(|n| format!("m,s={sensor} n={n}i {n}\n")).collect::<String>();
    client.keep(&(readings("calm", 10) + &readings("busy", 35) + &readings("other", 3)));
    flush(&server);
    assert_eq!(names(&list_sensors(&client, "outlier=true")), ["m,s=busy"]);
    assert_eq!(names(&list_sensors(&client, "outlier=false")), ["m,s=busy", "m,s=calm", "m,s=other"]);
    let all = list_sensors(&client, "");
    assert_eq!((&all[1]["outlier"], &all[2]["outlier"]), (&Value::Null, &Value::Null));
    let outlier = all[0]["outlier"].clone();
    assert_eq!(keys(&outlier), ["last_hour", "pages", "since"]);
    assert_eq!((&outlier["last_hour"], &outlier["pages"]), (&json!("1970-01-01T00:00:00Z"), &json!(4)));
    let since: jiff::Timestamp = text_at(&outlier, "since").parse().unwrap();
    assert!(jiff::Timestamp::now().duration_since(since).as_secs() < 60, "{since}");
    let numbers: Vec<Value> = client.readings("m,s=busy", "").iter().map(|reading| reading["n"].clone()).collect();
    assert_eq!(numbers, (0..35).collect::<Vec<_>>());
    // A stop writes the mark, and the next start reads it.
    server.stop_and_restart();
    let client = Client { server: &server, database: "d" };
    assert_eq!(names(&list_sensors(&client, "outlier=true")), ["m,s=busy"]);
    assert_eq!(list_sensors(&client, "outlier=true")[0]["outlier"], outlier);
}

/// Regression: neither a metric nor a list showed a sensor that had stopped sending.
#[test]
fn a_sensor_that_stops_sending_is_counted_and_listed() {
    let server = Launch::embedded().config("[sensors]\nsilent_after = \"2s\"\n").start();
    let client = Client { server: &server, database: "d" };
    let silent = || metric(&server, "hourglass_ingest_sensors_silent");
    client.keep("m,s=empty v=1\nm,s=full v=1\nother,s=full v=1");
    assert_eq!(silent(), 0.0);
    let still = eventually("one sensor is silent", || {
        client.keep("m,s=full v=1\nother,s=full v=1");
        let seen = (silent(), names(&list_sensors(&client, "silent=true")).join(" "));
        (seen.0 > 0.0 && !seen.1.is_empty()).then_some(seen)
    });
    assert_eq!(still, (1.0, "m,s=empty".to_owned()));
    assert_eq!(list_sensors(&client, "silent=false").len(), 3);
    wait_until("no sensor is silent", || {
        client.keep("m,s=empty v=1\nm,s=full v=1\nother,s=full v=1");
        silent() == 0.0 && list_sensors(&client, "silent=true").is_empty()
    });
}

/// Regression: without configuration, `silent=true` was refused. Each sensor's own readings show how often it sends.
#[test]
fn a_sensor_is_silent_after_three_of_its_usual_intervals() {
    let server = Launch::embedded().start();
    let client = Client { server: &server, database: "d" };
    let now = now();
    let sent = |sensor: &str, ages: &[i64]| {
        let line = |age: &i64| format!("m,s={sensor} v=1 {}", now - age * 1_000_000_000);
        client.keep(&ages.iter().map(line).collect::<Vec<_>>().join("\n"));
    };
    sent("gone", &[1300, 1200, 1000]);
    sent("late", &[1200, 900, 600]);
    sent("often", &[50, 49, 48]);
    sent("twice", &[100_000, 99_999]);
    assert_eq!(names(&list_sensors(&client, "silent=true")), ["m,s=gone"]);
    assert_eq!(list_sensors(&client, "silent=false").len(), 4);
}

#[test]
fn sensors_are_listed_after_a_restart() {
    let mut server = Launch::embedded().start();
    let client = Client { server: &server, database: "d" };
    client.keep("m,s=a v=1 1000001\nm,s=a v=2 7200000000000\nm,s=b w=\"x\" 5000000");
    let before = list_sensors(&client, "recent=true");
    assert_eq!(before.len(), 2);
    server.stop_and_restart();
    let client = Client { server: &server, database: "d" };
    assert_eq!(list_sensors(&client, "recent=true"), before);
    // One sends again, and its earlier values are remembered.
    client.keep("m,s=a v=3 3000000");
    let after = list_sensors(&client, "epoch=ns&recent=true");
    let recent = json!([{"ts": 1_000_001, "v": 1}, {"ts": 3_000_000, "v": 3}, {"ts": 7_200_000_000_000_i64, "v": 2}]);
    // Documents keep milliseconds, and unflushed sensors are shown alike.
    assert_eq!((&after[0]["first_seen"], &after[0]["recent"]), (&json!(1_000_000), &recent));
    // Killed before its document was written again; the restart completes it.
    server.kill_and_restart();
    let client = Client { server: &server, database: "d" };
    assert_eq!(client.readings("m,s=a", "").len(), 3);
    assert_eq!(names(&list_sensors(&client, "")), ["m,s=a", "m,s=b"]);
}
