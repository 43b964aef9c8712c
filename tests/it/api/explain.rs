//! The dry run of a write predicts its answer and changes nothing.

use super::{client, client_with};
use crate::support::packed::gzip;
use crate::support::prelude::*;

fn explain(server: &Server, query: &str, body: &str) -> Value {
    http::post(&server.url(&format!("/api/v1/explain?{query}")), body, &[]).expect(200).json()
}

/// Returns the parts of an answer that explain and write have in common.
fn common_parts(answer: &Answer) -> (u16, Vec<String>) {
    let text = answer.text();
    let reasons = serde_json::from_str::<Value>(text).ok().map(|body| {
        let rejected = body["rejected"].as_array().cloned().unwrap_or_default();
        rejected.iter().map(|one| one["reason"].as_str().expect("a reason").to_owned()).collect()
    });
    (answer.status, reasons.unwrap_or_default())
}

/// Returns all client-visible state that a write changes.
fn traces(server: &Server) -> Value {
    let get = |path: &str| server.fetch(path);
    json!([
        get("/query?q=SHOW+DATABASES"),
        get("/api/v1/sensors?db=d"),
        get("/api/v1/fields?db=d"),
        get("/api/v1/rejections"),
        metric(server, "hourglass_ingest_readings_accepted_total"),
        metric(server, "hourglass_ingest_sensors"),
        metric(server, "hourglass_ingest_timestamps_suspect_total"),
        metric(server, "hourglass_wal_bytes"),
    ])
}

const BODIES: &[&str] = &[
    r#"{"measurement":"m","tags":{"a":"1"},"ts":"2026-01-15T14:30:00Z","fields":{"v":1.5,"on":true,"text":"x"}}"#,
    r#"[{"sensor":"s","value":1,"ts":1768487400},{"sensor":"s","value":"text","ts":1768487401},{"sensor":"s","value":2}]"#,
    r#"[{"sensor":"s","value":"now text"},{"sensor":"new","value":1},{"measurement":7},{"sensor":"s","ts":"2026-01-15"}]"#,
    r#"[{"sensor":"s","value":true,"other":1},{"sensor":"s","other":"now text","value":3},{"sensor":"over","value":1}]"#,
    r#"{"sensor":"s","value":1,"f1":1,"f2":2,"f3":3,"f4":4}"#,
];

/// Explains each body twice, then writes it and compares.
#[test]
fn explain_predicts_the_write_and_changes_nothing() {
    let server = Launch::embedded().config("[limits]\nsensors = 3\nsensor_fields = 4\n").start();
    for body in BODIES {
        let before = traces(&server);
        let explained = explain(&server, "db=d", body);
        assert_eq!(before, traces(&server), "{body}");
        let repeated = explain(&server, "db=d", body);
        assert_eq!((&explained["write"], &explained["quota"]), (&repeated["write"], &repeated["quota"]), "{body}");
        let written = http::post(&server.url("/api/v1/readings?db=d"), body, &[]);
        let (status, reasons) = common_parts(&written);
        let lines = explained["lines"].as_array().expect("lines").iter();
        let rejected = lines.flat_map(|line| line["rejected"].as_array().expect("a list").clone());
        let rejected: Vec<String> = rejected.map(|one| one["reason"].as_str().expect("a reason").to_owned()).collect();
        assert_eq!(
            (explained["write"]["status"].as_u64(), rejected),
            (Some(u64::from(status)), reasons),
            "{body}: {explained}"
        );
        assert_eq!(explained["accepted"], written.json()["accepted"], "{body}");
        assert_eq!(explained["new_database"], json!(*body == BODIES[0]), "{body}");
    }
    // Requests that are refused as a whole.
    for query in ["db=d&rp=nope", "db=%01"] {
        let explained = explain(&server, query, "m v=1");
        let refused = http::post(&server.url(&format!("/write?{query}")), "m v=1", &[]);
        assert_eq!(explained["write"]["status"], json!(refused.status), "{explained}");
        assert_eq!(explained["write"]["error"], refused.json()["error"], "{explained}");
    }
}

#[test]
fn explain_shows_time_bucket_and_fields_of_each_line() {
    let client = client_with("explain", "m,a=1 v=1 1\n");
    let lines = "m,a=1 v=2i,w=\"x\" 1768487400000000000\nm,a=1 v=3 1768487400000000000\n\n# no line\nn v=1\nm,a=1 v=\"x\" 5\nbad\n";
    let explained = http::post(&client.url("/api/v1/explain", "precision=ns"), lines, &[]).expect(200).json();
    let [first, second, undated, conflict, bad] = &**explained["lines"].as_array().expect("lines") else {
        panic!("{explained}")
    };
    assert_eq!(
        *first,
        json!({
            "line": 1, "kept": true, "rejected": [], "warnings": [], "sensor": "m,a=1", "measurement": "m",
            "tags": {"a": "1"}, "new_sensor": false, "time": "2026-01-15T14:30:00Z", "ns": 1_768_487_400_000_000_000_i64,
            "undated": false,
            "bucket": {"database": "explain", "hour": "2026-01-15T14:00:00Z", "id": "2026-01-15T14 m,a=1"},
            "fields": [
                {"name": "v", "value": 2, "type": "integer", "family": "number", "known_family": "number", "conflict": false, "kept": true},
                {"name": "w", "value": "x", "type": "string", "family": "string", "known_family": null, "conflict": false, "kept": true},
            ],
        })
    );
    assert_eq!(
        second["warnings"],
        json!(["line 1 has the same sensor and timestamp: for fields in both, the later line wins"])
    );
    assert_eq!(
        (&undated["line"], &undated["undated"], &undated["new_sensor"]),
        (&json!(5), &json!(true), &json!(true))
    );
    assert_eq!((&conflict["kept"], &conflict["fields"][0]["conflict"]), (&json!(false), &json!(true)));
    assert_eq!((&conflict["rejected"][0]["code"], &bad["rejected"][0]["code"]), (&json!("family"), &json!("syntax")));
    assert_eq!(explained["quota"], json!({"readings": 3, "new_sensors": 1, "passes": true}));
    // An undeclared unit and an implausible time.
    let explained =
        http::post(&client.url("/api/v1/explain", "precision=ms"), "m v=1 1768487400\nm v=1 4102444800000", &[]);
    let explained = explained.expect(200).json();
    assert!(
        explained["lines"][0]["warnings"][0].as_str().is_some_and(|text| text.contains("looks like s")),
        "{explained}"
    );
    assert!(
        explained["lines"][1]["warnings"][0].as_str().is_some_and(|text| text.ends_with("h ahead of now")),
        "{explained}"
    );
    let explained =
        http::post(&client.url("/api/v1/explain", "accept_partial=false"), "m v=1\nbad", &[]).expect(200).json();
    assert_eq!(explained["accepted"], json!(0), "{explained}");
}

#[test]
fn explain_reads_bodies_like_writes_and_limits_them() {
    let client = client("explain-bodies");
    let packed = gzip(b"m v=1 1\n", 3);
    let url = client.url("/api/v1/explain", "");
    let explained = http::post(&url, packed, &[("Content-Encoding", "gzip")]).expect(200).json();
    assert_eq!(explained["lines"].as_array().map(Vec::len), Some(3));
    http::post(&url, "m v=1 1\n".repeat(1000), &[]).expect(200);
    let refused = http::post(&url, "m v=1 1\n".repeat(1001), &[]).expect(413);
    assert!(refused.text().contains("1000 lines"), "{}", refused.text());
    let refused = http::post(&url, "m v=1 1\n".repeat(40_000), &[]).expect(413);
    assert!(refused.text().contains("65536"), "{}", refused.text());
    for query in ["colour=red", "precision=x"] {
        http::post(&client.url("/api/v1/explain", query), "m v=1", &[]).expect(400);
    }
}

#[test]
fn the_explain_command_prints_the_answer_of_the_service() {
    let client = client("explain-command");
    let folder = Folder::new("explain");
    let file = folder.file("lines.lp");
    std::fs::write(&file, "climate,sensor=a temp=22.5 1768487400\n").expect("written");
    let run = || {
        let mut command = program();
        command.arg("explain").arg(&file).args(["--db", "explain-command", "--precision", "s"]);
        let output = command.args(["--server", &client.server.url("")]).output().expect("it runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("UTF-8"))
    };
    let (code, printed) = run();
    let lines: Vec<&str> = printed.lines().collect();
    assert!(code == Some(0) && lines.len() == 2, "{printed}");
    assert_eq!(
        lines[1].split_whitespace().collect::<Vec<_>>(),
        ["1", "true", "climate,sensor=a", "temp=22.5", "2026-01-15T14:30:00Z"]
    );
    std::fs::write(&file, "climate,sensor=a temp=\n").expect("written");
    let (code, printed) = run();
    assert!(code == Some(1) && printed.contains("\"code\":\"syntax\""), "{printed}");
}

/// Regression: kind warnings were only counted per body.
#[test]
fn explain_shows_the_kind_warning_of_each_line() {
    let kind = "[[kinds]]\nname = \"thermometer\"\nmeasurement = \"m\"\nfields = { properties = { temp = { maximum = 50 } } }\n";
    let server = Launch::embedded().config(kind).start();
    let common_parts = explain(
        &server,
        "db=d&precision=s",
        "m temp=20 1768485601\nm temp=99 1768485602\nm temp=21 1768485603\nm temp=98 1768485604",
    );
    let warnings: Vec<usize> = common_parts["lines"]
        .as_array()
        .expect("lines")
        .iter()
        .map(|line| line["warnings"].as_array().map_or(0, Vec::len))
        .collect();
    assert_eq!(warnings, [0, 1, 0, 1], "{common_parts}");
    let text = common_parts["lines"][3]["warnings"][0].as_str().expect("a text");
    assert!(text.contains("thermometer") && text.contains("98"), "{text}");
    assert!(
        common_parts["warnings"][0].as_str().is_some_and(|text| text.starts_with("2 readings are")),
        "{common_parts}"
    );
}
