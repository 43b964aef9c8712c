//! Rejections in each dialect: partial writes and type conflicts.

use crate::support::prelude::*;

use super::{client, client_with, keys, text_at};

const MISSING: &str = "missing fields: a line is 'measurement[,tag=value…] field=value[,…] [timestamp]'";

#[test]
fn one_bad_line_never_takes_a_good_one_with_it() {
    let body = "m,s=a v=1 1\nbad\nm,s=a v=2 2";
    for (path, expected) in [
        (
            "/write",
            json!({"error": format!("partial write: unable to parse 'bad': line 2, column 4: {MISSING} dropped=1")}),
        ),
        (
            "/api/v2/write",
            json!({
                "code": "invalid",
                "message": format!("partial write: unable to parse 'bad': line 2, column 4: {MISSING} dropped=1"),
                "line": 2,
            }),
        ),
        (
            "/api/v3/write_lp",
            json!({
                "error": "partial write of line protocol occurred",
                "data": [{
                    "error_message": format!("line 2, column 4: {MISSING}"), "line_number": 2, "original_line": "bad",
                }],
            }),
        ),
    ] {
        let database = path.replace('/', "-");
        let client = client(&database);
        let answer = http::post(&client.url(path, "bucket=ignored&precision=ns"), body, &[]).expect(400);
        assert_eq!(answer.json(), expected, "{path}");
        assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
        let listed = answer.header("x-influxdb-error").expect("clients look for this header");
        assert!(listed.starts_with("partial write"), "{path}: {listed}");
        let code = answer.header("x-platform-error-code");
        assert_eq!(code, (path == "/api/v2/write").then_some("invalid"), "{path}");
        let read = client.readings("m,s=a", "");
        assert_eq!(read, [json!({"ts": 1, "v": 1}), json!({"ts": 2, "v": 2})], "{path}");
    }
}

/// Regression: the parameter was ignored, and readings were deleted although `dry_run=true` was sent.
#[test]
fn a_deletion_of_a_bucket_refuses_parameters_that_it_does_not_know() {
    let client = client("spared");
    client.keep("m,s=a v=1 1");
    let body = json!({"start": "1970-01-01T00:00:00Z", "stop": "1970-01-02T00:00:00Z"}).to_string();
    let delete = |more: &str| {
        let url = client.server.url(&format!("/api/v2/delete?bucket=spared&org=any{more}"));
        http::post(&url, &body, &[("content-type", "application/json")])
    };
    let refused = delete("&dry_run=true").expect(400).json();
    assert!(text_at(&refused, "message").contains("unknown parameter \"dry_run\""), "{refused}");
    assert_eq!(client.readings("m,s=a", ""), [json!({"ts": 1, "v": 1})]);
    delete("").expect(204);
    assert_eq!(client.get("/api/v1/measurements", "").expect(200).json()["measurements"], json!([]));
}

#[test]
fn a_body_of_bad_lines_is_no_partial_write() {
    let body = "bad\nm v=nan\nm v=1 x";
    for (path, key) in [("/write", "error"), ("/api/v2/write", "message"), ("/api/v3/write_lp", "error")] {
        let answer = http::post(&client("only-bad").url(path, ""), body, &[]).expect(400).json();
        let text = text_at(&answer, key);
        assert!(!text.contains("partial write") && !text.contains("dropped"), "{path}: {text}");
        if path == "/api/v3/write_lp" {
            assert_eq!(text, "line protocol parsing error");
            let lines: Vec<&Value> = answer["data"].as_array().unwrap().iter().map(|bad| &bad["line_number"]).collect();
            assert_eq!(lines, [1, 2, 3]);
            continue;
        }
        let listed: Vec<&str> = text.split('\n').collect();
        assert_eq!(listed.len(), 3, "{path}: {text}");
        for (listed, (line, place)) in
            listed.iter().zip([("bad", "line 1"), ("m v=nan", "line 2"), ("m v=1 x", "line 3")])
        {
            assert!(listed.starts_with(&format!("unable to parse '{line}': {place}")), "{path}: {listed}");
        }
    }
}

#[test]
fn the_first_hundred_refusals_are_listed_and_all_are_counted() {
    let body = format!("{}m v=1 1", "bad\n".repeat(150));
    let client = client("many-bad");
    let answer = client.write(&body).expect(400).json();
    let text = text_at(&answer, "error");
    assert_eq!(text.matches("unable to parse 'bad'").count(), 100);
    assert!(text.ends_with("and 50 more dropped=150"), "{text}");
    let answer = http::post(&client.url("/api/v3/write_lp", ""), &body, &[]).expect(400).json();
    assert_eq!(answer["data"].as_array().unwrap().len(), 100);
    let body = format!("[{}{{\"value\":1}}]", "7,".repeat(150));
    let answer = client.write_json(&body).expect(400).json();
    assert_eq!((&answer["accepted"], &answer["rejected_total"]), (&json!(1), &json!(150)));
    assert_eq!(answer["rejected"].as_array().unwrap().len(), 100);
}

#[test]
fn a_long_bad_line_is_truncated_in_the_answer() {
    let answer = client("long-bad").write(&format!("m{} v=1", "\u{e9},".repeat(5000))).expect(400);
    let text = answer.json()["error"].as_str().unwrap().to_owned();
    assert!(text.starts_with("unable to parse 'mé,é,") && text.contains("…'") && text.len() < 1000, "{text}");
    assert!(answer.header("x-influxdb-error").unwrap().len() <= 1024);
}

#[test]
fn without_accept_partial_one_bad_line_refuses_the_body() {
    let client = client("all-or-nothing");
    let url = client.url("/api/v3/write_lp", "precision=ns&accept_partial=false");
    let answer = http::post(&url, "m v=1 1\nbad\nm v=2 2", &[]).expect(400).json();
    let bad =
        json!({"error_message": format!("line 2, column 4: {MISSING}"), "line_number": 2, "original_line": "bad"});
    assert_eq!(answer, json!({"error": "line protocol parsing error", "data": [bad]}));
    assert_eq!(client.get("/api/v1/readings", "sensor=m").expect(200).json()["series"], json!([]));
    http::post(&url, "m v=1 1\nm v=2 2", &[]).expect(204);
    assert_eq!(client.readings("m", "").len(), 2);
    let answer = http::post(&client.url("/api/v3/write_lp", "accept_partial=perhaps"), "m v=1", &[]).expect(400);
    assert_eq!(text_at(&answer.json(), "error"), "parameter accept_partial: \"perhaps\" is neither true nor false");
}

/// Regression: a refused body fixed its fields' types, so a later good write met a conflict.
#[test]
fn a_refused_body_sets_no_field_type() {
    let client = client("no-trace");
    let url = client.url("/api/v3/write_lp", "precision=ns&accept_partial=false");
    http::post(&url, "m v=1 1\nbad", &[]).expect(400);
    client.keep("m v=\"text\" 2");
    assert_eq!(client.readings("m", ""), [json!({"ts": 2, "v": "text"})]);
}

#[test]
fn a_type_conflict_refuses_only_its_field() {
    let client = client_with("families", "m n=1,b=true,s=\"x\" 1\nm n=2i 2\nm n=3u 3");
    let conflict = |field: &str, sent: &str, stored: &str| {
        format!(
            "field type conflict: input field \"{field}\" on measurement \"m\" is type {sent}, already exists as type {stored} (line 1)"
        )
    };
    for (number, (value, field, sent, stored)) in [
        ("\"x\"", "n", "string", "number"),
        ("true", "n", "boolean", "number"),
        ("1", "b", "number", "boolean"),
        ("\"true\"", "b", "string", "boolean"),
        ("1i", "s", "number", "string"),
        ("false", "s", "boolean", "string"),
    ]
    .into_iter()
    .enumerate()
    {
        let time = 100 + number;
        let answer = client.write(&format!("m {field}={value},kept={number} {time}")).expect(400);
        let expected = format!("partial write: {} dropped=1", conflict(field, sent, stored));
        assert_eq!(answer.json(), json!({"error": expected}), "{field}={value}");
        let kept = client.readings("m", &format!("precision=ns&from={time}&to={}", time + 1));
        assert_eq!(kept, [json!({"ts": time, "kept": number})], "{field}={value}");
    }
    // Without another field, nothing is left of the line.
    let answer = client.write("m n=\"x\" 200").expect(400);
    assert_eq!(answer.json(), json!({"error": conflict("n", "string", "number")}));
    assert!(client.readings("m", "precision=ns&from=200&to=201").is_empty());
}

#[test]
fn v2_answers_conflicts_with_422_and_bad_lines_with_400() {
    let client = client_with("v2-conflicts", "m n=1 1");
    let url = client.url("/api/v2/write", "bucket=v2-conflicts");
    let answer = http::post(&url, "m n=2 2\nm n=\"x\",k=1 3", &[]).expect(422);
    assert_eq!(answer.header("x-platform-error-code"), Some("unprocessable entity"));
    let answer = answer.json();
    assert_eq!(keys(&answer), ["code", "line", "message"]);
    assert_eq!((&answer["code"], &answer["line"]), (&json!("unprocessable entity"), &json!(2)));
    let message = text_at(&answer, "message");
    let start = "failure writing points to database: partial write: field type conflict: input field \"n\"";
    assert!(message.starts_with(start) && message.ends_with(" dropped=1"), "{message}");
    let answer = http::post(&url, "m n=\"x\" 4\nbad", &[]).expect(400).json();
    assert_eq!(answer["code"], json!("invalid"));
    // A bad line counts even if the answer has no room for it.
    let body = format!("{}bad", "m n=\"x\" 5\n".repeat(120));
    assert_eq!(http::post(&url, body, &[]).expect(400).json()["code"], json!("invalid"));
    let answer = http::post(&client.url("/api/v3/write_lp", ""), "m n=\"x\" 6\nm n=7 7", &[]).expect(400).json();
    assert_eq!(text_at(&answer, "error"), "partial write of line protocol occurred");
    assert_eq!(answer["data"][0]["line_number"], json!(1));
}

#[test]
fn field_types_survive_a_restart() {
    let mut server = Server::start("embedded");
    http::post(&server.url("/write"), "m n=1 1", &[]).expect(204);
    server.stop_and_restart();
    let answer = http::post(&server.url("/write"), "m n=\"x\",k=1 2", &[]).expect(400).json();
    assert!(text_at(&answer, "error").contains("is type string, already exists as type number"), "{answer}");
}
