//! Status endpoints, and the headers of every answer.

use crate::support::prelude::*;

use super::{keys, shared, text_at};

fn ask(method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    http::request(method, &shared().url(path), b"", headers).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

/// A Rust client unwraps both version headers; others choose their request form by the version.
#[test]
fn every_answer_has_the_headers_that_clients_expect() {
    for (method, path, status) in [
        ("GET", "/ping", 204),
        ("HEAD", "/ping", 204),
        ("GET", "/", 200),
        ("GET", "/health", 200),
        ("POST", "/write?db=headers", 204),
        ("POST", "/write?precision=x", 400),
        ("POST", "/api/v2/write?precision=x", 400),
        ("GET", "/api/v1/readings", 400),
        ("GET", "/nowhere", 404),
        ("GET", "/write", 405),
        ("GET", "/metrics", 200),
    ] {
        let answer = ask(method, path, &[]).expect(status);
        assert!(
            answer.header("x-influxdb-version").is_some_and(|version| version.starts_with("1.")),
            "{method} {path}"
        );
        assert_eq!(answer.header("x-influxdb-build"), Some("hourglass"), "{method} {path}");
        let id = answer.header("request-id").expect("an id");
        assert_eq!(answer.header("x-request-id"), Some(id), "{method} {path}");
    }
}

#[test]
fn a_valid_request_id_is_returned_and_an_invalid_one_replaced() {
    let id_for = |sent: &[(&str, &str)]| ask("GET", "/ping", sent).header("request-id").unwrap().to_owned();
    assert_eq!(id_for(&[("x-request-id", "gateway-7.a/b")]), "gateway-7.a/b");
    let longest = "i".repeat(64);
    assert_eq!(id_for(&[("x-request-id", &longest)]), longest);
    for bad in ["", "two words", &"i".repeat(65)] {
        let id = id_for(&[("x-request-id", bad)]);
        assert!(id != bad && !id.is_empty(), "{bad:?} -> {id:?}");
    }
    assert_ne!(id_for(&[]), id_for(&[]));
}

#[test]
fn ping_is_204_unless_the_query_asks_for_more() {
    for (method, path, headers, status) in [
        ("GET", "/ping", vec![], 204),
        ("HEAD", "/ping", vec![], 204),
        ("GET", "/ping?verbose=false", vec![], 204),
        ("GET", "/ping?verbose=true", vec![], 200),
        ("GET", "/ping?verbose=1", vec![], 200),
        ("GET", "/ping?verbose=true&u=me&p=secret", vec![], 200),
        // EMQX sends `verbose` as a header (with a user also in the query) and expects 204.
        ("GET", "/ping", vec![("verbose", "true")], 204),
        ("GET", "/ping?verbose=true&u=me&p=secret", vec![("verbose", "true")], 204),
    ] {
        let answer = ask(method, path, &headers).expect(status);
        if status == 204 {
            assert_eq!(answer.text(), "", "{path}");
        } else {
            let version = answer.header("x-influxdb-version").unwrap();
            assert_eq!(answer.json(), json!({"version": version}), "{path}");
        }
    }
}

#[test]
fn health_ready_and_settings_have_the_shapes_that_clients_expect() {
    let health = ask("GET", "/health", &[]).expect(200).json();
    assert_eq!(keys(&health), ["checks", "message", "name", "status", "version"]);
    let checks: Vec<_> = health["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| (text_at(check, "name"), text_at(check, "status")))
        .collect();
    assert_eq!(checks, [("log", "pass"), ("store", "pass"), ("documents", "pass")]);
    assert_eq!(health["status"], json!("pass"));
    assert_eq!(text_at(&health, "version"), env!("CARGO_PKG_VERSION"));
    let ready = ask("GET", "/ready", &[]).expect(200).json();
    assert_eq!(keys(&ready), ["started", "status", "up"]);
    assert_eq!(ready["status"], json!("ready"));
    assert!(text_at(&ready, "started").parse::<jiff::Timestamp>().is_ok(), "{ready}");
    assert!(text_at(&ready, "up").ends_with('s'), "{ready}");
    let settings = ask("GET", "/settings", &[]).expect(200).json();
    assert_eq!(settings, json!({"config": {"line.proto.support.versions": [1]}}));
}

/// Monitoring reads these keys.
#[test]
fn the_status_has_the_documented_keys() {
    let server = Server::start("embedded");
    http::post(&server.url("/write"), "m v=1 1\nm v=2 2", &[]).expect(204);
    let status = server.fetch("/api/v1/status");
    let of_log = ["log_bytes", "log_segments", "log_damaged", "log_in_doubt", "log_torn"];
    let mut counts =
        [&["pending_readings", "hot_bytes", "unflushed_bytes", "deletions_in_progress"][..], &of_log].concat();
    for name in &counts {
        assert!(status[*name].is_u64(), "{name} in {status}");
    }
    assert!(status["oldest_pending_seconds"].is_f64(), "{status}");
    assert_eq!(status["feeding"], json!(false));
    counts.extend([
        "oldest_pending_seconds",
        "feeding",
        "blocked",
        "documents",
        "refusing",
        "store",
        "failing_databases",
        "readings",
    ]);
    counts.sort_unstable();
    assert_eq!(keys(&status), counts);
    for name in ["blocked", "documents", "refusing"] {
        assert!(status[name].is_null(), "{name} in {status}");
    }
    assert_eq!(status["store"], json!({"away": false}));
    assert_eq!(status["failing_databases"], json!([]));
    let of_readings = |accepted: u64, stored: u64| {
        json!({
            "accepted": accepted, "replayed": 0, "stored": stored, "duplicate": 0, "overwritten": 0, "deleted": 0,
            "dead_lettered": 0, "pending": accepted - stored,
        })
    };
    assert_eq!((&status["pending_readings"], &status["readings"]), (&json!(2), &of_readings(2, 0)));
    assert!(status["unflushed_bytes"].as_u64() > Some(0) && status["log_bytes"].as_u64() > Some(0), "{status}");
    flush(&server);
    let status = server.fetch("/api/v1/status");
    assert_eq!((&status["pending_readings"], &status["readings"]), (&json!(0), &of_readings(2, 2)));
    assert_eq!((&status["oldest_pending_seconds"], &status["unflushed_bytes"]), (&json!(0.0), &json!(0)));
    assert!(status["hot_bytes"].as_u64() > Some(0), "{status}");
}

/// Regression: long methods and paths broke the columns.
#[test]
fn the_columns_of_the_list_of_endpoints_are_aligned() {
    let text = ask("GET", "/", &[]).expect(200).text().to_owned();
    let list = ask("GET", "/", &[("accept", "application/json")]).expect(200).json();
    let places: Vec<_> = list["endpoints"]
        .as_array()
        .unwrap()
        .iter()
        .zip(text.lines().skip(2))
        .map(|(endpoint, line)| {
            let [path, what] = ["path", "what"].map(|name| text_at(endpoint, name));
            (line.find(&format!(" {path} ")), line.find(&format!(" {what}")))
        })
        .collect();
    assert!(places.len() > 50 && places[0].0.is_some() && places[0].1.is_some(), "{text}");
    assert!(places.iter().all(|place| *place == places[0]), "{text}");
}

#[test]
fn unknown_paths_are_answered_in_json() {
    let missing = ask("GET", "/api/v9/everything", &[]).expect(404);
    assert_eq!(
        missing.json(),
        json!({"error": "no endpoint \"/api/v9/everything\": GET / lists them", "code": "no_endpoint"})
    );
    // Regression: who came with the path of another service was only told to read the list.
    for (path, instead) in [
        ("/api/put", "/write"),
        ("/loki/api/v1/push", "/write"),
        ("/metrics/job/some", "/write"),
        ("/v2/write", "/api/v2/write"),
        ("/api/v3/query_influxql", "send InfluxQL to /query"),
        ("/api/v3/query_sql", "SQL is not supported"),
    ] {
        let answer = ask("POST", path, &[]).expect(404).json();
        assert!(text_at(&answer, "error").contains(instead), "{path}: {answer}");
    }
    for (method, path, allowed) in [
        ("GET", "/write", vec!["POST"]),
        ("PUT", "/api/v1/readings", vec!["DELETE", "GET", "HEAD", "POST"]),
        ("PUT", "/ping", vec!["GET", "HEAD"]),
        ("POST", "/health", vec!["GET", "HEAD"]),
    ] {
        let answer = ask(method, path, &[]).expect(405);
        let expected = format!("{path} does not support {method}: GET / lists the endpoints");
        assert_eq!(answer.json(), json!({"error": expected, "code": "method_not_allowed"}));
        let mut allow: Vec<&str> = answer.header("allow").expect("allow").split(',').map(str::trim).collect();
        allow.sort_unstable();
        assert_eq!(allow, allowed, "{method} {path}");
    }
}
