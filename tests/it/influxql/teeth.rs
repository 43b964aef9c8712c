//! The comparison finds every difference and nothing else.

use super::compare::{Answer, difference};
use super::statements::{Options, statement};

const JSON: &str = "application/json";
const BODY: &str = r#"{"results":[{"statement_id":0,"series":[{"name":"cpu","tags":{"host":"a"},
    "columns":["time","mean"],"values":[["2024-06-03T10:00:00Z",1],["2024-06-03T10:10:00Z",null]]},
    {"name":"cpu","tags":{"host":"b"},"columns":["time","mean"],"values":[["2024-06-03T10:00:00Z",0.3]]}]},
    {"statement_id":1,"error":"database not found: x"}]}"#;

fn differs(media: &str, one: &str, other: &str) -> Option<String> {
    let answer = |body: &str| Answer { status: 200, media: media.to_owned(), body: body.to_owned() };
    difference(&answer(one), &answer(other))
}

/// Returns `BODY` with one change.
fn difference_after(from: &str, to: &str) -> Option<String> {
    assert!(BODY.contains(from), "{from}");
    differs(JSON, BODY, &BODY.replacen(from, to, 1))
}

#[test]
fn equal_answers_compare_as_equal() {
    assert_eq!(differs(JSON, BODY, BODY), None);
    assert_eq!(difference_after("Z\",1]", "Z\",1.0]"), None);
    assert_eq!(difference_after("0.3", "0.30000000000000004"), None);
    assert_eq!(
        difference_after(r#"{"name":"cpu","tags":{"host":"a"},"#, r#"{"tags":{"host":"a"},"name":"cpu","#),
        None
    );
    assert_eq!(differs("text/csv", "name,time,v\ncpu,1,0.3\n", "name,time,v\ncpu,1,0.30000000000000004\n"), None);
    assert_eq!(differs("text/plain", "no JSON\n", "no JSON"), None);
}

#[test]
fn changed_missing_and_new_cells_are_found() {
    for (from, to) in [
        ("0.3", "0.300001"),
        ("null", "0"),
        ("Z\",1]", "Z\",\"1\"]"),
        ("Z\",1]", "Z\",true]"),
        ("Z\",1]", "Z\",null]"),
        ("10:10:00Z", "10:10:01Z"),
        ("\"mean\"", "\"max\""),
        ("\"host\":\"a\"", "\"host\":\"c\""),
        ("\"statement_id\":1", "\"statement_id\":2"),
        ("database not found: x", "database not found: y"),
        (r#","tags":{"host":"a"}"#, ""),
        (r#""name":"cpu","#, ""),
        (r#"["2024-06-03T10:10:00Z",null]"#, r#"["2024-06-03T10:10:00Z",null],["2024-06-03T10:20:00Z",null]"#),
        (r#","error":"database not found: x""#, ""),
        (r#""columns":["time","mean"],"#, r#""partial":true,"columns":["time","mean"],"#),
    ] {
        assert!(difference_after(from, to).is_some(), "{from} became {to}");
    }
    let found = difference_after("Z\",1]", "Z\",2]").expect("a difference");
    assert_eq!(found, "part 0.results[0].series[0].values[0][1] is 2 instead of 1");
    let series = BODY.split_once("},\n    {\"name\"").expect("two series").0.to_owned();
    let without = format!("{series}}}]}},{{\"statement_id\":1,\"error\":\"database not found: x\"}}]}}");
    let found = differs(JSON, BODY, &without).expect("a difference");
    assert_eq!(found, "part 0.results[0].series has 1 entries instead of 2");
}

#[test]
fn differences_in_order_status_type_and_text_are_found() {
    for (media, one, other) in [
        // Integers of 64 bits are not compared as floats.
        (JSON, "[9007199254740993]", "[9007199254740992]"),
        (JSON, "[0]", "[1e-300]"),
        (JSON, r#"{"values":[[1],[2]]}"#, r#"{"values":[[2],[1]]}"#),
        (JSON, "{\"results\":[]}\n{\"results\":[]}\n", "{\"results\":[]}\n"),
        (JSON, "{\n  \"results\": []\n}", "{\"results\":[]}"),
        ("text/plain", "one text", "another"),
        ("text/csv", "a,1\n", "a,2\n"),
        ("text/csv", "a,1\n", "a,1,\n"),
        ("text/csv", "a,1\n", "a,1\n\n"),
        ("text/csv", "a,1\n", "b,1\n"),
        ("text/csv", "", "a\n"),
    ] {
        assert!(differs(media, one, other).is_some(), "{one:?} became {other:?}");
    }
    let answer = |status, media: &str| Answer { status, media: media.to_owned(), body: BODY.to_owned() };
    let found = difference(&answer(200, JSON), &answer(400, JSON)).expect("a difference");
    assert_eq!(found, "status 400 instead of 200");
    assert!(difference(&answer(200, JSON), &answer(200, "text/csv")).is_some());
    assert_eq!(difference(&answer(200, JSON), &answer(200, "application/json; charset=utf-8")), None);
}

#[test]
fn statement_prefixes_set_the_request_form() {
    let plain = statement("t", "SELECT v FROM /[ab]/ WHERE x =~ /[c] d/");
    assert_eq!((plain.options, plain.text.as_str()), (Options::default(), plain.key.as_str()));
    let all = statement("t", r#"[csv mixed nodb epoch=ms params={"a":1}] SELECT 1"#);
    let parameters = [("epoch", "ms"), ("params", r#"{"a":1}"#)].map(|(key, value)| (key.into(), value.into()));
    let accept = Some("application/csv".to_owned());
    assert_eq!(all.options, Options { parameters: parameters.to_vec(), accept, post: true, mixed: true, nodb: true });
    assert_eq!((all.text.as_str(), all.topic.as_str()), ("SELECT 1", "t"));
}
