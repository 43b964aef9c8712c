//! Ack levels: requested by query parameter or header, with the configured default, and reported in every ack.

use crate::support::prelude::*;

use super::writes::ENDPOINTS;
use super::{client, shared};

const HEADER: &str = "x-hourglass-ack";

/// Query level, header level, and the reported level with `log` and with `store` as the configured default.
const CASES: [(&str, Option<&str>, &str, &str); 9] = [
    ("", None, "log", "store"),
    ("ack=", Some(""), "log", "store"),
    ("ack=log", None, "log", "log"),
    ("ack=store", None, "store", "store"),
    ("", Some("log"), "log", "log"),
    ("", Some("store"), "store", "store"),
    ("ack=log", Some("store"), "log", "log"),
    ("ack=store", Some("log"), "store", "store"),
    ("ack=log", Some("nonsense"), "log", "log"),
];

fn headers(level: Option<&str>) -> Vec<(&str, &str)> {
    level.map(|level| (HEADER, level)).into_iter().collect()
}

/// Returns the number of readings that are not in the store yet.
fn pending(server: &Server) -> serde_json::Value {
    server.fetch("/api/v1/status")["pending_readings"].clone()
}

#[test]
fn the_ack_level_comes_from_query_then_header_then_config() {
    let config = |level: &str| Launch::embedded().config(format!("[ingest]\nack = \"{level}\"\n")).start();
    for (server, says_store) in [(Server::start("embedded"), false), (config("log"), false), (config("store"), true)] {
        let mut time = 0;
        let of_lines = ENDPOINTS.map(|(path, _)| (path, false));
        for (path, is_json) in of_lines.into_iter().chain([("/api/v1/readings", true)]) {
            for (query, header, log, store) in CASES {
                time += 1;
                let url = server.url(&format!("{path}?precision=ns&{query}"));
                let json = format!(r#"{{"measurement":"m","fields":{{"v":1}},"ts":{time}}}"#);
                let (body, status) = if is_json { (json, 200) } else { (format!("m v=1 {time}"), 204) };
                let answer = post(&url, body, &headers(header)).expect(status);
                let expected = if says_store { store } else { log };
                assert_eq!(answer.header(HEADER), Some(expected), "{path} {query} {header:?}");
                // This hour's page is not due, so only the ack level causes the flush.
                let pending = pending(&server);
                assert_eq!(pending == json!(0), expected == "store", "{path} {query} {header:?}: {pending} pending");
            }
        }
    }
}

#[test]
fn an_unknown_ack_level_is_refused_with_the_known_ones() {
    let client = client("ack-refused");
    for (path, key) in [("/write", "error"), ("/api/v2/write", "message"), ("/api/v3/write_lp", "error")] {
        for (query, header) in [("ack=both", None), ("", Some("both")), ("ack=both", Some("log"))] {
            let answer = post(&client.url(path, query), "m v=1 1", &headers(header)).expect(400);
            assert_eq!(
                answer.json()[key],
                "invalid ack level \"both\" (use log or store)",
                "{path} {query} {header:?}"
            );
            assert_eq!(answer.header(HEADER), None, "{path}: nothing is promised");
        }
    }
    let answer = client.url("/api/v1/readings", "ack=LOG");
    let answer = post(&answer, r#"{"sensor":"s","value":1,"ts":1}"#, &[]).expect(400);
    assert_eq!(answer.json(), json!({"error": "invalid ack level \"LOG\" (use log or store)", "code": "invalid"}));
    client.keep("m v=2 2");
    assert_eq!(client.readings("m", "").len(), 1, "nothing else was kept");
}

#[test]
fn an_ack_reports_its_level_only_when_readings_were_kept() {
    for (body, status, expected) in [
        ("m v=1 1\nbad", 400, Some("store")),
        ("bad", 400, None),
        ("# nothing", 204, None),
        ("m v=1 1", 204, Some("store")),
    ] {
        let url = shared().url("/write?db=ack-parts&ack=store");
        assert_eq!(post(&url, body, &[]).expect(status).header(HEADER), expected, "{body}");
    }
}
