//! Databases of writes and their valid names.

use crate::support::prelude::*;

use super::{Client, client, shared, text_at};

fn names(server: &Server) -> Vec<String> {
    let answer = server.fetch("/query?q=SHOW%20DATABASES");
    let series = &answer["results"][0]["series"][0];
    assert_eq!(series["name"], "databases", "{answer}");
    // Without a database there are no values.
    let rows = series["values"].as_array().into_iter().flatten();
    rows.map(|row| row[0].as_str().unwrap().to_owned()).collect()
}

/// Regression: only `SHOW DATABASES` listed databases, and unknown ones were answered with 400.
#[test]
fn databases_are_listed_with_what_the_caller_may_see() {
    let server = Launch::embedded().env("HOURGLASS_AUTH_FIRST_TOKEN", "true").start();
    let first = server.first_token().expect("a token");
    let ask = |method: &str, path: &str, body: &str, token: &str| {
        let headers = [("authorization", &*format!("Token {token}"))];
        http::request(method, &server.url(path), body.as_bytes(), &headers).expect("an answer")
    };
    ask("POST", "/write?db=plant&precision=s", "m,s=1 v=1 1768485600\nm,s=2 v=1 1768489200", &first).expect(204);
    ask("POST", "/write?db=other&precision=s", "m v=1 1768485600", &first).expect(204);
    let reader = ask("POST", "/api/v1/tokens", r#"{"name":"reader","read":["plant"]}"#, &first).expect(201).json();
    let writer = ask("POST", "/api/v1/tokens", r#"{"name":"writer","write":["plant"]}"#, &first).expect(201).json();
    let list = |token: &str| ask("GET", "/api/v1/databases", "", token).expect(200).json()["databases"].clone();
    let seen = json!({
        "name": "plant", "sensors": 2, "first_seen": "2026-01-15T14:00:00Z", "last_seen": "2026-01-15T15:00:00Z",
    });
    assert_eq!(list(text_at(&reader, "token")), json!([seen]));
    assert_eq!(list(text_at(&writer, "token")), json!([{ "name": "plant" }]));
    let all = list(&first);
    assert_eq!((&all[0]["name"], &all[1]["settings"]["kept"]), (&json!("other"), &json!("inf")), "{all}");
    for path in ["/api/v1/databases/nowhere", "/api/v1/jobs/nothing", "/api/v1/groups/nothing"] {
        assert_eq!(ask("GET", path, "", &first).expect(404).json()["code"], "not_found", "{path}");
    }
}

#[test]
fn csv_is_refused_where_json_is_expected() {
    let csv = [("content-type", "text/csv; charset=utf-8")];
    for (method, path) in [("PUT", "/api/v1/renames?db=csv"), ("PUT", "/api/v1/databases/csv")] {
        let refused = http::request(method, &shared().url(path), b"sensor,value\na,1\n", &csv).unwrap().expect(415);
        assert_eq!(refused.json()["code"], "unsupported_media_type", "{path}: {}", refused.text());
    }
}

#[test]
fn a_write_without_a_name_goes_to_the_default_database() {
    for (number, write) in
        ["/write", "/write?db=", "/api/v2/write", "/api/v2/write?bucket=", "/api/v3/write_lp"].into_iter().enumerate()
    {
        let sensor = format!("unnamed,case={number}");
        http::post(&shared().url(write), format!("{sensor} v=1 7"), &[]).expect(204);
        assert_eq!(client("default").readings(&sensor, "").len(), 1, "{write}");
        let unnamed = http::get(&shared().url(&format!("/api/v1/readings?sensor={}", encode(&sensor)))).expect(200);
        assert_eq!(unnamed.json()["series"][0]["readings"].as_array().unwrap().len(), 1, "{write}");
    }
}

#[test]
fn autogen_is_the_database_itself_and_the_part_before_the_slash_is_the_database() {
    let url = |path: &str, parameters: &str| shared().url(&format!("{path}?{parameters}"));
    for (number, (path, parameters)) in [
        ("/write", "db=policy"),
        ("/write", "db=policy&rp="),
        ("/write", "db=policy&rp=autogen"),
        ("/write", "db=policy&consistency=all&u=me&p=secret"),
        ("/api/v2/write", "bucket=policy"),
        ("/api/v2/write", "bucket=policy/"),
        ("/api/v2/write", "bucket=policy/autogen&org=o"),
        ("/api/v2/write", "bucket=policy%2Fautogen"),
    ]
    .into_iter()
    .enumerate()
    {
        http::post(&url(path, parameters), format!("m,case={number} v=1 1"), &[]).expect(204);
        assert_eq!(client("policy").readings(&format!("m,case={number}"), "").len(), 1, "{parameters}");
    }
    let message = "retention policy not found: weekly";
    let refused = http::post(&url("/write", "db=policy&rp=weekly"), "m v=1 1", &[]).expect(400);
    assert_eq!(refused.json(), json!({"error": message}));
    let refused = http::post(&url("/api/v2/write", "bucket=policy/weekly"), "m v=1 1", &[]).expect(400);
    assert_eq!(refused.json(), json!({"code": "invalid", "message": message}));
}

#[test]
fn the_first_write_creates_a_database_with_nearly_any_name() {
    let longest = "x".repeat(64);
    for name in ["plain", "with space", "a.b$c", "%2e", "Ünïcode-🌡", "..", "\"quoted\"", "a\\b", &longest] {
        let client = client(name);
        assert!(!names(shared()).contains(&name.to_owned()), "{name}");
        client.keep("m v=1 1");
        assert_eq!(client.readings("m", "").len(), 1, "{name}");
        assert!(names(shared()).contains(&name.to_owned()), "{name}");
    }
    // Databases are separate.
    client("plain").keep("only-here v=1 1");
    let elsewhere = client("with space").get("/api/v1/readings", "sensor=only-here").expect(200).json();
    let notice = r#"unknown sensor "only-here"; known: "m""#;
    assert_eq!(elsewhere, json!({"series": [], "next": null, "notices": [notice]}));
    for name in ["x".repeat(65), "line\nend".to_owned(), "nul\0".to_owned(), "\u{85}".to_owned()] {
        let answer = client(&name).write("m v=1 1").expect(400).json();
        let text = text_at(&answer, "error");
        assert!(text.ends_with("use 1 to 64 bytes without control characters"), "{name:?}: {text}");
    }
}

#[test]
fn the_database_limit_is_named_when_it_is_reached() {
    let server = Launch::embedded().config("[limits]\ndatabases = 2\n").start();
    let client = |database| Client { server: &server, database };
    client("one").keep("m v=1 1");
    let created = http::post(&server.url("/query?q=CREATE%20DATABASE%20two"), "", &[]).expect(200).json();
    assert_eq!(created, json!({"results": [{"statement_id": 0}]}));
    let message = "a new database \"three\" exceeds the limit of 2 (limits.databases)";
    assert_eq!(client("three").write("m v=1 1").expect(400).json(), json!({"error": message}));
    assert_eq!(
        client("three").write_json(r#"{"value":1}"#).expect(400).json(),
        json!({"error": message, "code": "too_many_databases"})
    );
    let refused = http::post(&server.url("/query?q=CREATE%20DATABASE%20three"), "", &[]).expect(200).json();
    assert_eq!(refused, json!({"results": [{"statement_id": 0, "error": message}]}));
    client("one").keep("m v=2 2");
    client("two").keep("m v=1 1");
    assert_eq!(names(&server), ["one", "two"]);
}

/// Regression: bodies without readings made names known without counting them, which bypassed the limit.
#[test]
fn queried_names_do_not_bypass_the_database_limit() {
    let server = Launch::embedded().config("[limits]\ndatabases = 2\n").start();
    let clients: Vec<String> = (0..10).map(|number| format!("met-{number}")).collect();
    for database in &clients {
        Client { server: &server, database }.write("# nothing to keep");
    }
    let write = |database: &String| Client { server: &server, database }.write("m v=1 1").text().to_owned();
    let answers: Vec<String> = clients.iter().map(write).collect();
    assert_eq!(answers.iter().filter(|text| text.is_empty()).count(), 2, "{answers:?}");
    assert_eq!(names(&server).len(), 2);
}
