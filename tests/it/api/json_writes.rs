//! `POST /api/v1/readings`: object, array, NDJSON and shorthand, and their answers.

use crate::support::prelude::*;

use super::{Client, client, keys, text_at};

fn accepted_answer(count: usize) -> Value {
    json!({"accepted": count, "rejected": []})
}

#[test]
fn every_json_layout_is_accepted() {
    let one = r#"{"measurement":"m","tags":{"s":"a"},"ts":1,"fields":{"v":1}}"#;
    let two = r#"{"measurement":"m","tags":{"s":"a"},"ts":2,"fields":{"v":2}}"#;
    let spread = serde_json::to_string_pretty(&serde_json::from_str::<Value>(one).unwrap()).unwrap();
    for (name, body, count) in [
        ("object", one.to_owned(), 1),
        ("array", format!("[{one},{two}]"), 2),
        ("array-of-none", "[]".to_owned(), 0),
        ("spread-array", format!("[\n  {spread},\n  {two}\n]\n"), 2),
        ("ndjson", format!("{one}\n{two}\n"), 2),
        ("ndjson-crlf", format!("{one}\r\n\r\n{two}"), 2),
        ("spread-object", spread.clone(), 1),
        ("nothing", String::new(), 0),
        ("white", " \n\n".to_owned(), 0),
    ] {
        let database = format!("json-{name}");
        let client = client(&database);
        let url = client.url("/api/v1/readings", "precision=ns");
        for content_type in ["application/json", "application/x-ndjson", "text/plain"] {
            let answer = http::post(&url, &body, &[("content-type", content_type)]).expect(200);
            assert_eq!(answer.json(), accepted_answer(count), "{name} as {content_type}");
            assert_eq!(answer.header("content-type"), Some("application/json"));
        }
        if count > 0 {
            let expected = [json!({"ts": 1, "v": 1}), json!({"ts": 2, "v": 2})];
            assert_eq!(client.readings("m,s=a", ""), expected[..count], "{name}");
        }
    }
}

/// Regression: nothing that a script had read as NDJSON or CSV could be written to another database as it was.
#[test]
fn answers_are_written_back_as_they_are() {
    let source = client("answers-read");
    source.keep(
        "climate,k=1,site=a\\ b temp=21.5,on=true,note=\"a, \\\"b\\\"\nc\",ts=5 1768485600123456789\n\
         climate,k=1,site=a\\ b temp=-1e300,on=false,note=\"\" 1768485601000000000\n\
         climate\\,x,k=1,ts=sensor temp=9007199254740993i,note=\"12\",state=\"true\",%74s=7 1768485602000000000\n\
         plain,k=1 note=\"inf\",state=\" x\" 1768485603000000001",
    );
    let read = |client: &Client<'_>| {
        let get = |path, parameters| client.get(path, parameters).expect(200).text().to_owned();
        let lines = get("/api/v1/readings", "tag.k=1&format=ndjson&epoch=ns");
        // The order of the fields is not kept.
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        (lines, get("/api/v1/readings", "tag.k=1&format=csv"), get("/api/v1/fields", ""))
    };
    for (format, media_type, epoch) in [
        ("ndjson", "application/x-ndjson", ""),
        ("ndjson", "text/plain", "epoch=ns"),
        ("csv", "text/csv", ""),
        ("csv", "text/csv; charset=utf-8", "epoch=ns"),
    ] {
        let answer = source.get("/api/v1/readings", &format!("tag.k=1&format={format}&{epoch}")).expect(200);
        let database = format!("answers-{format}-{}", epoch.len());
        let target = client(&database);
        let precision = epoch.replace("epoch", "precision");
        let written =
            http::post(&target.url("/api/v1/readings", &precision), answer.text(), &[("content-type", media_type)]);
        assert_eq!(written.expect(200).json(), accepted_answer(4), "{format} {epoch}");
        assert_eq!(read(&target), read(&source), "{database}");
    }
}

#[test]
fn other_tables_and_rows_without_a_time_are_rejected() {
    let client = client("answers-rejected");
    let csv = [("content-type", "text/csv")];
    let post = |body: &str, headers: &[(&str, &str)]| {
        let refused = http::post(&client.url("/api/v1/readings", ""), body, headers).expect(400).json();
        text_at(&refused, "error").to_owned()
    };
    let text = post("sensor,value\na,1\n", &csv);
    assert!(text.contains("hourglass import"), "{text}");
    for row in ["m,,1", "m,1", "m,2026-01-15T14:00:00Z,"] {
        post(&format!("sensor,ts,v\n{row}\n"), &csv);
    }
    for line in [
        r#"{"sensor":"m","tags":{},"reading":{"v":1}}"#,
        r#"{"sensor":"m","tags":{},"reading":{"ts":null,"v":1}}"#,
        r#"{"sensor":"m","ts":1,"reading":{"ts":1,"v":1}}"#,
        r#"{"tags":{},"reading":{"ts":1,"v":1}}"#,
    ] {
        post(line, &[]);
    }
    // A field of this name is still one.
    client.write_json(r#"{"sensor":"meter","reading":21.5}"#).expect(200);
}

/// Compared as text, because JSON libraries that read numbers as doubles hide differences.
#[test]
fn numbers_are_returned_exactly_as_sent() {
    let client = client("json-numbers");
    let integers = "9007199254740993 -9007199254740993 9223372036854775807 -9223372036854775807 9223372036854775809 \
                    18446744073709551615";
    let others = "0.1 1.7976931348623157e308 5e-324 -0.30000000000000004 45";
    for (number, value) in integers.split(' ').chain(others.split(' ')).enumerate() {
        let body = format!(r#"{{"sensor":"{number}","ts":"2026-01-15T14:00:00Z","fields":{{"v":{value}}}}}"#);
        assert_eq!(client.write_json(&body).expect(200).json(), accepted_answer(1), "{value}");
        let read = client.get("/api/v1/readings", &format!("sensor=readings,sensor={number}")).expect(200);
        let expected = format!(
            r#"{{"series":[{{"sensor":"readings,sensor={number}","tags":{{"sensor":"{number}"}},"readings":[{{"ts":"2026-01-15T14:00:00Z","v":{value}}}]}}],"next":null}}"#
        );
        assert_eq!(read.text(), expected);
    }
    for (number, value) in
        ["9007199254740993i", "18446744073709551615u", "9223372036854775808u"].into_iter().enumerate()
    {
        client.keep(&format!("line,n={number} v={value} 1"));
        let read = client.get("/api/v1/readings", &format!("sensor=line,n={number}")).expect(200);
        assert!(read.text().contains(&format!("\"v\":{}}}", &value[..value.len() - 1])), "{}", read.text());
    }
}

#[test]
fn every_type_is_returned_and_null_is_omitted() {
    let client = client("json-families");
    let fields =
        json!({"f": 1.5, "i": -3, "yes": true, "no": false, "text": "a \"b\"\n\\ é 🌡", "empty": "", "none": null});
    let body = json!({"measurement": "m", "ts": 1, "fields": fields}).to_string();
    assert_eq!(client.write_json(&body).expect(200).json(), accepted_answer(1));
    let expected = json!({
        "ts": 1_000_000_000, "f": 1.5, "i": -3, "yes": true, "no": false, "text": "a \"b\"\n\\ é 🌡", "empty": "",
    });
    assert_eq!(client.readings("m", ""), [expected]);
}

#[test]
fn rejected_json_values_are_listed_and_the_rest_is_kept() {
    let client = client("json-rejected");
    let bad = [r#"{"sensor":"s"}"#, r#"{"sensor":"s","value":1,"ts":"yesterday"}"#, "not JSON"];
    let good = r#"{"sensor":"good","value":1}"#;
    for (number, bad) in bad.iter().enumerate() {
        let answer = client.write_json(&format!("{good}\n{bad}\n{good}")).expect(400).json();
        assert_eq!(answer["accepted"], json!(2), "{bad}: {answer}");
        let rejected = answer["rejected"].as_array().unwrap();
        assert_eq!(rejected.len(), 1, "{bad}: {answer}");
        assert_eq!(keys(&rejected[0]), ["column", "line", "reason", "text"], "{bad}");
        assert_eq!((&rejected[0]["line"], &rejected[0]["text"]), (&json!(2), &json!(bad)), "{bad}");
        assert!(!text_at(&rejected[0], "reason").is_empty(), "{bad}");
        assert_eq!(client.readings("readings,sensor=good", "").len(), 2 * (number + 1), "{bad}");
    }
    let answer = client.write_json(&format!("[{good},{},{good}]", bad[0])).expect(400).json();
    assert_eq!((&answer["accepted"], &answer["rejected"][0]["line"]), (&json!(2), &json!(2)), "{answer}");
    // A conflict refuses one field of the second reading and keeps the other.
    let body = r#"[{"sensor":"f","fields":{"a":1},"ts":1},{"sensor":"f","fields":{"a":"x","b":2},"ts":2}]"#;
    let answer = client.write_json(body).expect(400).json();
    assert_eq!((&answer["accepted"], &answer["rejected"][0]["line"]), (&json!(2), &json!(2)), "{answer}");
    let expected = [json!({"ts": 1_000_000_000_i64, "a": 1}), json!({"ts": 2_000_000_000_i64, "b": 2})];
    assert_eq!(client.readings("readings,sensor=f", ""), expected);
}
