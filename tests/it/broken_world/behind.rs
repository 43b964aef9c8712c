//! Monitoring of an outage: the backlog and a requested flush.

use hourglass::bucket::Caps;

use crate::support::prelude::*;

use super::{ready, status, store_health};

const CAPS: Caps = Caps { max_readings: 3600, max_bytes: 1 << 20, hard_bytes: 4 << 20 };

/// Returns status and message of a check in `/health`.
fn check(server: &Server, name: &str) -> (String, String) {
    let health = server.fetch("/health");
    let checks = health["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["name"] == name).expect("a check with this name");
    let text = |key: &str| check[key].as_str().expect("text").to_owned();
    (text("status"), text("message"))
}

fn leading(text: &str) -> u64 {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..digits].parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

#[test]
fn metrics_show_how_far_the_store_is_behind_and_flushes_time_out() {
    let mut mongod = Mongod::start();
    let name = fresh_database_name();
    let server = Launch::with_store(mongod.uri(&name)).config("[store]\ncommand_timeout = \"1s\"\n").start();
    post(&server.url("/write?db=d"), "m v=1 1\nm v=2 2", &[]).expect(204);
    flush(&server);
    assert_eq!(count_stored(&mongod, &name), 2, "a flush that was answered is in the store");
    assert_eq!(check(&server, "store"), ("pass".to_owned(), "0 readings pending, the oldest for 0 s".to_owned()));

    mongod.pause();
    post(&server.url("/write?db=d"), "m v=3 3\nm v=4 4\nm,s=b v=5 5", &[]).expect(204);
    wait_until("the outage is noticed", || store_health(&server) == "fail");
    wait_until("the oldest grows old", || status(&server, "oldest_pending_seconds") > 1.5);
    let (word, message) = check(&server, "store");
    let (reason, behind) = message.rsplit_once("; ").expect("a reason, and how far behind");
    assert_eq!(word, "fail");
    assert!(reason.starts_with("the store"), "{reason}");
    let age = behind.strip_prefix("3 readings pending, the oldest for ").expect(behind);
    assert!(age.ends_with(" s") && leading(age) >= 2, "{behind}");
    let (word, message) = check(&server, "log");
    let (bytes, segments) = message.split_once(" bytes in ").expect(&message);
    assert!(word == "pass" && leading(bytes) > 0 && leading(segments) >= 1, "{word}: {message}");
    assert!(segments.ends_with(" segments"), "{message}");
    let health = server.fetch("/health");
    assert_eq!(health["message"], "writes are acked; the store is unavailable, so queries are not answered");
    assert_eq!((health["status"].as_str(), ready(&server)), (Some("pass"), Some(200)), "writes are acked");
    let seen = server.fetch("/api/v1/status");
    assert_eq!((&seen["store"]["away"], &seen["pending_readings"]), (&true.into(), &3.into()));
    assert!(seen["store"]["reason"].is_string() && seen["refusing"].is_null(), "{seen}");

    let refused = post(&server.url("/api/v1/flush"), "", &[]).expect(503);
    assert!(refused.header("retry-after").is_some_and(|seconds| seconds.parse::<u32>().is_ok()));
    let error = refused.json()["error"].as_str().expect("an error").to_owned();
    assert!(error.starts_with("the store did not confirm the readings within "), "{error}");

    mongod.resume();
    flush(&server);
    assert_eq!((count_stored(&mongod, &name), status(&server, "pending_readings")), (5, 0.0));
    wait_until("the store is reachable again", || store_health(&server) == "pass");
}

/// Returns the number of stored readings.
fn count_stored(mongod: &Mongod, name: &str) -> usize {
    Stored::in_mongo(mongod, name, "d").count(&CAPS)
}
