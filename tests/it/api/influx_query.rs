//! `/query`: statements that clients send before they write.

use crate::support::prelude::*;

use super::{client, client_with, shared, text_at};

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

fn by_form(q: &str) -> Value {
    http::post(&shared().url("/query"), format!("q={}", encode(q)), &[FORM]).expect(200).json()
}

fn by_url(method: &str, q: &str) -> Value {
    let url = shared().url(&format!("/query?q={}", encode(q)));
    http::request(method, &url, b"", &[]).unwrap().expect(200).json()
}

fn names() -> Vec<Value> {
    let answer = by_url("GET", "SHOW DATABASES");
    // Without a database there are no values at all, as in InfluxDB.
    answer["results"][0]["series"][0]["values"].as_array().cloned().unwrap_or_default()
}

#[test]
fn create_database_works_in_every_form_of_post() {
    let done = json!({"results": [{"statement_id": 0}]});
    for (name, answer) in [
        ("by-form", by_form("CREATE DATABASE \"by-form\"")),
        ("by-url", by_url("POST", "CREATE DATABASE \"by-url\"")),
        ("lower", by_form("create database lower")),
        ("with", by_form("CREATE DATABASE \"with\" WITH DURATION 0s REPLICATION 1 NAME autogen")),
        ("semi;colon \"q\"", by_form("CREATE DATABASE \"semi;colon \\\"q\\\"\";")),
        // A repetition changes nothing.
        ("by-form", by_form("CREATE DATABASE \"by-form\"")),
    ] {
        assert_eq!(answer, done, "{name}");
        assert!(names().contains(&json!([name])), "{name}");
    }
    client("by-form").keep("m v=1 1");
    let listed = names();
    assert!(listed.is_sorted_by_key(|row| row[0].as_str().unwrap().to_owned()), "{listed:?}");
}

#[test]
fn a_get_changes_nothing() {
    let answer = by_url("GET", "CREATE DATABASE \"by-get\"");
    let error = "CREATE DATABASE must be sent with POST";
    assert_eq!(answer, json!({"results": [{"statement_id": 0, "error": error}]}));
    assert!(!names().contains(&json!(["by-get"])));
}

#[test]
fn every_statement_has_its_own_result() {
    let answer = by_form("SHOW DATABASES; CREATE DATABASE \"of;many\"; SHOW SHARDS; SHOW DATABASES");
    let results = answer["results"].as_array().unwrap();
    let ids: Vec<&Value> = results.iter().map(|result| &result["statement_id"]).collect();
    assert_eq!(ids, [0, 1, 2, 3]);
    let errors: Vec<&Value> = results.iter().map(|result| &result["error"]).collect();
    // Statements after a failed one are not run.
    let shards = json!("not supported: SHOW SHARDS; there are no shards: retention is by hour and day");
    assert_eq!(errors, [&Value::Null, &Value::Null, &shards, &json!("not executed")]);
    assert!(names().contains(&json!(["of;many"])));
}

#[test]
fn one_syntax_error_makes_the_whole_query_400() {
    let url = shared().url(&format!("/query?q={}", encode("CREATE DATABASE unparsed; CREATE DATABASE")));
    let refusal = http::request("POST", &url, b"", &[]).unwrap().expect(400).json();
    assert!(text_at(&refusal, "error").starts_with("error parsing query: found EOF, expected identifier"), "{refusal}");
    assert!(!names().contains(&json!(["unparsed"])));
}

#[test]
fn a_cross_site_query_changes_nothing() {
    let url = shared().url(&format!("/query?q={}", encode("CREATE DATABASE \"by-page\"")));
    let refusal =
        http::request("POST", &url, b"", &[("origin", "https://elsewhere.example")]).unwrap().expect(403).json();
    assert_eq!(
        refusal["error"],
        "forbidden: pages of https://elsewhere.example may not send requests: add the origin to cors.origins"
    );
    assert!(!names().contains(&json!(["by-page"])));
}

#[test]
fn a_query_without_q_is_400() {
    let missing = json!({"error": "missing required parameter \"q\""});
    for path in ["/query", "/query?q=", "/query?db=d&epoch=ms", "/query?q=%20"] {
        assert_eq!(http::get(&shared().url(path)).expect(400).json(), missing, "{path}");
    }
    assert_eq!(http::post(&shared().url("/query"), "", &[FORM]).expect(400).json(), missing);
    assert_eq!(http::post(&shared().url("/query"), "db=d", &[FORM]).expect(400).json(), missing);
}

/// Regression: `SELECT temp FROM climat` was answered with nothing, so Grafana drew an empty panel.
#[test]
fn an_empty_answer_names_the_unknown_name() {
    let client = client_with("hints", "climate,site=lab temp=1,humidity=2 1000000000");
    let notice = |q: &str| {
        let answer = client.get("/query", &format!("q={}", encode(q))).expect(200);
        answer.header("x-hourglass-notice").map(str::to_owned)
    };
    let measurement = "unknown measurement \"climat\"; known: \"climate\"";
    let column = "unknown field or tag \"tmp\"; known: \"temp\", \"site\", \"humidity\"";
    for (q, expected) in [
        ("SELECT temp FROM climat", Some(measurement)),
        ("SELECT tmp FROM climat", Some(measurement)),
        ("SELECT mean(tmp) FROM climate WHERE time > 0 GROUP BY time(1m)", Some(column)),
        ("SELECT tmp::field FROM climate", Some("unknown field \"tmp\"; known: \"temp\", \"humidity\"")),
        ("SELECT x FROM (SELECT temp AS x FROM climat)", Some(measurement)),
        ("SHOW TAG VALUES FROM climate WITH KEY = sit", Some("unknown tag \"sit\"; known: \"site\"")),
        ("SHOW FIELD KEYS FROM climat", Some(measurement)),
        ("SHOW MEASUREMENTS WITH MEASUREMENT = climat", Some(measurement)),
        ("SHOW SERIES FROM climate WHERE sit = 'lab'", Some("unknown tag \"sit\"; known: \"site\"")),
        // Known names without readings, and regular expressions, which are no names.
        ("SELECT temp FROM climate WHERE time > now()", None),
        ("SELECT temp FROM climate WHERE site = 'attic'", None),
        ("SELECT temp FROM /climat$/", None),
        ("SELECT temp, tmp FROM climate", None),
        ("SHOW MEASUREMENTS", None),
    ] {
        assert_eq!(notice(q).as_deref(), expected, "{q}");
    }
    let elsewhere = http::get(&shared().url("/query?db=hint&q=SELECT+temp+FROM+climate")).expect(200);
    assert_eq!(elsewhere.json()["results"][0]["error"], json!("database not found: hint"));
    let names = elsewhere.notice().strip_prefix("unknown database \"hint\"; ").and_then(|rest| rest.split_once(": "));
    assert!(names.is_some_and(|(_, names)| names.starts_with("\"hints\"")), "{}", elsewhere.notice());
    // Bodies are those of InfluxDB.
    let answer_text = |q: &str| client.get("/query", &format!("q={}", encode(q))).expect(200).text().to_owned();
    assert_eq!(answer_text("SELECT temp FROM climat"), "{\"results\":[{\"statement_id\":0}]}\n");
    let url = shared().url("/query?db=hints&q=SELECT+temp+FROM+climat");
    let csv = http::request("GET", &url, b"", &[("accept", "text/csv")]).unwrap().expect(200);
    assert_eq!((csv.text(), csv.header("x-hourglass-notice")), ("", Some(measurement)));
}

/// A dashboard's runaway query can be found and ended.
#[test]
fn a_running_query_is_listed_and_killed() {
    let halt = Halt::new();
    let server = halt.launch(Launch::embedded(), "summaries_read").start();
    write_flushed(&server, "m v=1 1768485600");
    halt.set();
    let url = |q: &str| server.url(&format!("/query?db=d&q={}", encode(q)));
    let long = url("SELECT mean(v) FROM m WHERE time >= 1768485600s AND time < 1768489200s GROUP BY time(1h)");
    let asking = std::thread::spawn(move || get(&long));
    halt.await_met("the query runs");
    let listed = get(&url("SHOW QUERIES")).expect(200).json();
    let rows = listed["results"][0]["series"][0]["values"].as_array().expect("rows").clone();
    let row = rows.iter().find(|row| row[1].as_str().is_some_and(|text| text.contains("mean(v)")));
    let id = row.unwrap_or_else(|| panic!("{listed}"))[0].as_u64().expect("a number");
    let killed = post(&url(&format!("KILL QUERY {id}")), "", &[]).expect(200);
    assert!(killed.json()["results"][0]["error"].is_null(), "{}", killed.text());
    let answer = asking.join().expect("an answer");
    assert!(answer.text().contains("query interrupted"), "{}", answer.text());
    let unknown = post(&url("KILL QUERY 123456"), "", &[]).expect(200);
    assert!(unknown.text().contains("no such query id"), "{}", unknown.text());
    halt.lift();
}

/// Regression: a field of integers was shown as float if the first hour of its only sensor lacked it.
#[test]
fn the_type_of_a_rare_field_is_known() {
    let server = Launch::embedded().start();
    write_flushed(&server, (0..9).map(|n| format!("m v=1.5 {}\n", 1_768_485_600 + n * 3600)).collect::<String>());
    write_flushed(&server, "m i=1i 1768521600");
    let shown = influxql(&server, "SHOW FIELD KEYS FROM m");
    assert_eq!(shown[0]["values"], json!([["i", "integer"], ["v", "float"]]), "{shown}");
}
