//! Cases of JSON bodies and the readings parsed from them.

use hourglass::reading::value::RawValue;
use hourglass::reading::{Limits, Precision, Reason};
use hourglass::wire::Points;
use hourglass::wire::json::Items;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use crate::line_protocol::Outcome::{self, Bad};
use crate::line_protocol::{good, show};

fn bad(number: usize, column: usize, message: &str) -> Outcome {
    Bad(number, column, Reason::Json(message.to_owned()))
}

fn read(body: &[u8], precision: Precision, limits: Limits) -> Vec<Outcome> {
    let mut items = Items::new(body, precision, limits);
    let mut outcomes = Vec::new();
    while let Some(item) = items.next() {
        outcomes.push(match item {
            Ok(item) => {
                let fields: Vec<String> = item.fields.iter().map(|(key, value)| show(key, value)).collect();
                let timestamp = item.timestamp.map_or("-".to_owned(), |ts| ts.to_string());
                good(&format!("{} {} {} {timestamp}", item.number, item.spelling(), fields.join(",")))
            }
            Err(rejection) => Bad(rejection.line, rejection.column, rejection.reason),
        });
    }
    outcomes
}

fn check<B: AsRef<[u8]>>(cases: impl IntoIterator<Item = (B, Vec<Outcome>)>) {
    for (body, outcomes) in cases {
        let body = body.as_ref();
        assert_eq!(read(body, Precision::Auto, Limits::default()), outcomes, "of {:?}", String::from_utf8_lossy(body));
    }
}

#[test]
fn a_single_reading_is_parsed() {
    check([
        (
            r#"{"measurement":"climate","tags":{"sensor":"temp-01"},"ts":"2026-01-15T14:00:00Z","fields":{"temp":22.1,"humidity":45}}"#,
            vec![good("1 climate,sensor=temp-01 temp=22.1,humidity=45.0 1768485600000000000")],
        ),
        (r#"{"sensor":"temp-01","value":22.5}"#, vec![good("1 readings,sensor=temp-01 value=22.5 -")]),
        (
            r#"{"sensor":"s","value":1,"tags":{"site":"a"},"fields":{"f":2},"measurement":"m","ts":null}"#,
            vec![good("1 m,sensor=s,site=a f=2.0,value=1.0 -")],
        ),
        (r#" {"tags":null,"fields":{"f":true}} "#, vec![good("1 readings f=true -")]),
        // A typical first body: numbers by name, and a time under a usual name.
        (
            r#"{"sensor":"x","temperature":22.5,"ok":true,"gap":null,"time":1768485600}"#,
            vec![good("1 readings,sensor=x temperature=22.5,ok=true 1768485600000000000")],
        ),
        (
            r#"{"sensor":"x","value":1,"t":2,"timestamp":"2026-01-15T14:00:00Z"}"#,
            vec![good("1 readings,sensor=x t=2.0,value=1.0 1768485600000000000")],
        ),
        // Names are literal; the key is escaped as in line protocol.
        (r#"{"sensor":"a b,c","fields":{"x=\"y\"":"z"}}"#, vec![good(r#"1 readings,sensor=a\ b\,c x="y"="z" -"#)]),
        // Nulls are omitted; the last of two equal keys wins, even a null.
        (r#"{"fields":{"a":1,"b":null,"a":"x","c":3,"c":null}}"#, vec![good(r#"1 readings a="x" -"#)]),
        ("", vec![]),
        (" \r\n\t", vec![]),
        ("[]", vec![]),
        (" [ ] \n", vec![]),
    ]);
}

#[test]
fn values_of_every_type_are_parsed() {
    for (sent, value) in [
        ("1", "1.0"),
        ("-0", "-0.0"),
        ("1.5e3", "1500.0"),
        ("1e-400", "0.0"),
        // Beyond 2^53 some integers are no floats.
        ("9007199254740992", "9007199254740992.0"),
        ("9007199254740993", "9007199254740993i"),
        ("-9007199254740993", "-9007199254740993i"),
        ("9223372036854775807", "9223372036854775807i"),
        ("-9223372036854775808", "-9.223372036854776e18"),
        ("9223372036854775808", "9.223372036854776e18"),
        ("18446744073709551615", "18446744073709551615u"),
        ("18446744073709551616", "1.8446744073709552e19"),
        ("9007199254740993.0", "9007199254740992.0"),
        // Fast float decoders return a neighbour of this number.
        ("179769313486231570814527423731704356798070567525844996", "1.7976931348623157e53"),
        ("true", "true"),
        ("false", "false"),
        (r#""""#, r#""""#),
        (r#""a\"\\\nb\u00e9\ud83d\ude00""#, r#""a\"\\\nbé😀""#),
    ] {
        check([(format!(r#"{{"fields":{{"f":{sent}}}}}"#), vec![good(&format!("1 readings f={value} -"))])]);
    }
    let wanted = |kind| format!("field \"f\": expected a number, a string or a boolean, not {kind}");
    check([
        (r#"{"fields":{"f":{"g":1}}}"#, vec![bad(1, 16, &wanted("an object"))]),
        (r#"{"fields":{"f":[1]}}"#, vec![bad(1, 16, &wanted("an array"))]),
        (r#"{"value":1e400}"#, vec![Bad(1, 10, Reason::NumberOutOfRange("1e400".to_owned()))]),
        (r#"{"value":"\ud800"}"#, vec![bad(1, 17, "invalid JSON: unexpected end of hex escape")]),
    ]);
    // Infinite and undefined numbers of Python's and other writers.
    for (word, column) in [("NaN", 14), ("Infinity", 14), ("-Infinity", 14), ("nan", 14), ("-inf", 14)] {
        let body = format!("{{\"value\":1}}\n{{\"sensor\":\"s\",\"value\":{word}}}\n{{\"value\":2}}");
        let not_finite = Bad(2, column + 9, Reason::NotFinite(word.to_owned()));
        check([(body, vec![good("1 readings value=1.0 -"), not_finite, good("3 readings value=2.0 -")])]);
    }
}

#[test]
fn timestamps() {
    let body = |ts: &str| format!(r#"{{"value":1,"ts":{ts}}}"#);
    let at = |ts: i64| vec![good(&format!("1 readings value=1.0 {ts}"))];
    let invalid = |text: &str| vec![Bad(1, 17, Reason::InvalidTimestamp(text.to_owned()))];
    let no_zone = |text: &str, in_utc: &str| {
        vec![Bad(1, 17, Reason::NoZone { text: text.to_owned(), in_utc: format!("\"ts\":\"{in_utc}\"") })]
    };
    let outside = |text: &str| vec![Bad(1, 17, Reason::TimeOutOfRange(text.to_owned()))];
    for (ts, outcome) in [
        ("1768485600", at(1_768_485_600_000_000_000)),
        ("1768485600000", at(1_768_485_600_000_000_000)),
        ("-1", at(-1_000_000_000)),
        (r#""2026-01-15T15:00:00.25+01:00""#, at(1_768_485_600_250_000_000)),
        ("9223372036854775808", outside("9223372036854775808")),
        (r#""2263-01-01T00:00:00Z""#, invalid("2263-01-01T00:00:00Z")),
        (r#""1600-01-01T00:00:00Z""#, invalid("1600-01-01T00:00:00Z")),
        ("1768485600.5", invalid("1768485600.5")),
        ("1e9", invalid("1e9")),
        (r#""1768485600""#, invalid("1768485600")),
        (r#""yesterday""#, invalid("yesterday")),
        (r#""2026-01-15T14:00:00""#, no_zone("2026-01-15T14:00:00", "2026-01-15T14:00:00Z")),
        (r#""2026-01-15 14:00""#, no_zone("2026-01-15 14:00", "2026-01-15T14:00:00Z")),
        ("true", invalid("true")),
        ("{}", invalid("{}")),
    ] {
        check([(body(ts), outcome)]);
    }
    let milliseconds = read(body("1768485600").as_bytes(), Precision::Milliseconds, Limits::default());
    assert_eq!(milliseconds, at(1_768_485_600_000_000));
    assert_eq!(read(body("1768485600000").as_bytes(), Precision::Seconds, Limits::default()), outside("1768485600000"));
}

#[test]
fn other_json_shapes_are_rejected() {
    let syntax = |column, expected, found| vec![Bad(1, column, Reason::Syntax { expected, found: Some(found) })];
    let missing = |why: &str| vec![bad(1, 0, &format!("missing fields: {why}"))];
    let nothing = "expected \"fields\", \"value\" or a number under a name of its own";
    let unknown = |key: &str, why: &str| {
        format!("unknown key {key:?}: a reading has measurement, tags, sensor, ts, fields and value; {why}")
    };
    check([
        ("{}", missing(nothing)),
        (r#"{"sensor":"s","fields":{}}"#, missing(nothing)),
        (r#"{"sensor":"s","fields":null}"#, missing(nothing)),
        (r#"{"sensor":"s","value":null}"#, missing("every field is null")),
        (
            r#"{"sensor":"s","valu":1}"#,
            vec![bad(1, 15, &unknown("valu", "did you mean \"value\"? A field of this name belongs in \"fields\""))],
        ),
        (
            r#"{"sensor":"s","Time":1,"value":1}"#,
            vec![bad(1, 15, &unknown("Time", "did you mean \"time\"? A field of this name belongs in \"fields\""))],
        ),
        (
            r#"{"sensor":"s","TS":1,"value":1}"#,
            vec![bad(1, 15, &unknown("TS", "did you mean \"ts\"? A field of this name belongs in \"fields\""))],
        ),
        (
            r#"{"sensor":"s","measurment":"m","value":1}"#,
            vec![bad(
                1,
                15,
                &unknown("measurment", "did you mean \"measurement\"? A field of this name belongs in \"fields\""),
            )],
        ),
        (
            r#"{"sensor":"s","room":"a","value":1}"#,
            vec![bad(1, 15, &unknown("room", "a text belongs in \"tags\" or in \"fields\""))],
        ),
        (r#"{"sensor":"s","fields":{"t":1},"u":2}"#, vec![bad(1, 32, &unknown("u", "it belongs in \"fields\""))]),
        (r#"{"value":1,"ts":1,"time":2}"#, vec![bad(1, 19, "the keys \"ts\" and \"time\" mean the same")]),
        (r#"{"value":1, "value":2}"#, vec![bad(1, 13, "the key \"value\" is given twice")]),
        (r#"{"fields":{"value":1},"value":2}"#, vec![bad(1, 23, "the field \"value\" is also in \"fields\"")]),
        (
            r#"{"sensor":"a","tags":{"sensor":"b"},"value":2}"#,
            vec![Bad(1, 2, Reason::DuplicateTag("sensor".to_owned()))],
        ),
        (r#"{"tags":{"a":"1", "b":"2" , "a":"1"},"value":2}"#, vec![Bad(1, 29, Reason::DuplicateTag("a".to_owned()))]),
        (r#"{"sensor":5,"value":1}"#, vec![bad(1, 11, "\"sensor\": expected a string, not a number")]),
        (r#"{"tags":{"a":true},"value":1}"#, vec![bad(1, 14, "\"a\": expected a string, not a boolean")]),
        (r#"{"tags":["a"],"value":1}"#, vec![bad(1, 9, "tags: expected an object, not an array")]),
        (r#"{"fields":1}"#, vec![bad(1, 11, "fields: expected an object, not a number")]),
        (r#"{"measurement":null,"value":1}"#, vec![bad(1, 16, "\"measurement\": expected a string, not null")]),
        (r#"{"measurement":"","value":1}"#, syntax(16, "a measurement", '"')),
        (r##"{"measurement":"#m","value":1}"##, syntax(16, "a measurement", '#')),
        (r#"{"tags":{"":"x"},"value":1}"#, syntax(10, "a tag key", '"')),
        (r#"{"tags":{"a":""},"value":1}"#, syntax(14, "a tag value", '"')),
        (r#"{"fields":{"":1}}"#, syntax(12, "a field key", '"')),
        (r#"{"sensor":"a\nb","value":1}"#, vec![Bad(1, 11, Reason::ControlCharacter(10))]),
        (r#"{"fields":{"a\u0000":1}}"#, vec![Bad(1, 12, Reason::ControlCharacter(0))]),
        (r#"{"fields":{"a\\":1}}"#, vec![Bad(1, 12, Reason::TrailingBackslash)]),
        ("42", vec![bad(1, 1, "a reading: expected an object, not a number")]),
        ("climate temp=1", vec![bad(1, 1, "invalid JSON: expected value")]),
        (r#"{"value":1}{"value":2}"#, vec![bad(1, 12, "invalid JSON: trailing characters")]),
    ]);
}

#[test]
fn exceeded_limits_name_their_key() {
    let limits = Limits { line_bytes: 60, tags: 2, fields: 2, name_bytes: 8 };
    let over = |column, what, found, limit, key| vec![Bad(1, column, Reason::Limit { what, found, limit, key })];
    for (body, outcomes) in [
        (
            r#"{"fields":{"a":"012345678901234567890123456789012345678901234"}}"#,
            over(0, "bytes of one reading", 64, 60, "limits.line_bytes"),
        ),
        (r#"{"sensor":"s","tags":{"a":"1","b":"2"},"value":1}"#, over(0, "tags", 3, 2, "limits.tags")),
        (r#"{"value":1,"fields":{"a":1,"b":2,"c":null}}"#, over(0, "fields", 4, 2, "limits.fields")),
        (r#"{"measurement":"012345678","value":1}"#, over(16, "bytes of the measurement", 9, 8, "limits.name_bytes")),
        (r#"{"tags":{"012345678":"x"},"value":1}"#, over(10, "bytes of a tag key", 9, 8, "limits.name_bytes")),
        (r#"{"sensor":"012345678","value":1}"#, over(11, "bytes of a tag value", 9, 8, "limits.name_bytes")),
        (r#"{"fields":{"012345678":1}}"#, over(12, "bytes of a field key", 9, 8, "limits.name_bytes")),
    ] {
        assert_eq!(read(body.as_bytes(), Precision::Auto, limits), outcomes, "of {body}");
    }
}

#[test]
fn a_bad_reading_leaves_the_others_valid() {
    let value = |number: usize| good(&format!("{number} readings value={number}.0 -"));
    let unread = "; the body was not read from here on";
    let not_closed = "expected ',' or ']' after an element of the array";
    let cases: Vec<(&[u8], Vec<Outcome>)> = vec![
        // One reading per line: a bad line rejects only itself.
        (
            b"{\"value\":1}\r\n\n  {\"value\":3}  \n{\"value\":\n{\"value\":5}\n]\n{\"value\":7}",
            vec![
                value(1),
                value(3),
                bad(4, 10, "invalid JSON: EOF while parsing a value"),
                value(5),
                bad(6, 1, "invalid JSON: expected value"),
                value(7),
            ],
        ),
        (b"{\"value\":1}\n{\"sensor\":\"\xff\"}\n{\"value\":3}", vec![value(1), Bad(2, 12, Reason::NotUtf8), value(3)]),
        // The same with a truncated first line.
        (b"{\"value\":\n{\"value\":2}", vec![bad(1, 10, "invalid JSON: EOF while parsing a value"), value(2)]),
        (b"{\"sensor\":\"s\n{\"value\":2}\n", vec![bad(1, 13, "invalid JSON: EOF while parsing a string"), value(2)]),
        // Readings over several lines, one of them bad: its line is where it starts.
        (b"{\n \"value\": 1\n}", vec![value(1)]),
        (b"{\n \"value\":\n1\n}\n\n{\n\"value\":6}\n{\"value\":8}", vec![value(1), value(6), value(8)]),
        (
            b"{\n \"value\":\n1\n}\n{\n \"value\": x\n}\n{\n\"value\":8}",
            vec![value(1), bad(5, 13, "invalid JSON: expected value"), value(8)],
        ),
        (b"{\n \"value\": 1,\n}", vec![bad(1, 16, "invalid JSON: trailing comma")]),
        (b"{\n \"value\": 1\n", vec![bad(1, 15, "invalid JSON: EOF while parsing an object")]),
        // In an array a bad element rejects only itself if its brackets and quotes match.
        (b"[{\"value\":1},\n\t{\"value\":2}\n]\n", vec![value(1), value(2)]),
        (
            b"[{\"value\":1}, {\"value\":1,}, 3, \"x\", {\"value\":5}, {\"value\":\"\xff\"}, , {\"value\":8}]",
            vec![
                value(1),
                bad(2, 12, "invalid JSON: trailing comma"),
                bad(3, 1, "a reading: expected an object, not a number"),
                bad(4, 1, "a reading: expected an object, not a string"),
                value(5),
                Bad(6, 11, Reason::NotUtf8),
                bad(7, 1, "invalid JSON: EOF while parsing a value"),
                value(8),
            ],
        ),
        (b"[{\"value\":1}", vec![value(1), bad(2, 0, not_closed)]),
        (b"[{\"value\":1},", vec![value(1), bad(2, 0, "the array has no end: expected an element or ']'")]),
        (b"[{\"value\":1},]", vec![value(1), bad(2, 0, "expected an element after the last ',' of the array")]),
        (b"[{\"value\":1} {\"value\":2}]", vec![value(1), bad(2, 0, &format!("{not_closed}{unread}"))]),
        (
            b"[{\"value\":1}, {\"value\":\"2}, {\"value\":3}]",
            vec![value(1), bad(2, 0, &format!("the element has no end{unread}"))],
        ),
        (
            b"[{\"value\":1}] {\"value\":2}",
            vec![value(1), bad(2, 0, &format!("expected nothing after the end of the array{unread}"))],
        ),
    ];
    check(cases);
}

/// Parts of generated bodies, so that many readings are almost valid.
const PARTS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"\\",
    b" ",
    b"\n",
    b"1",
    b"-",
    b"null",
    b"NaN",
    b"\"value\":",
    b"\"tags\":{",
    b"\"a\"",
    b"\"ts\":",
    b"{\"value\":1}",
    b"\xff",
    b"\xc3\xa9",
    b"\\ud800",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printed_json_parses_to_the_same_readings(
        tags in btree_map(r"[a, ]\PC{0,5}[a=]", r"\PC{0,5}[a\[]", 0..4),
        fields in btree_map(r"\PC{0,5}[a=]", any::<f64>().prop_filter("finite", |v| v.is_finite()), 1..20),
        text in r#"[\PC\n\r"\\]{0,8}"#,
        layout in 0..4,
    ) {
        let mut fields: serde_json::Map<String, serde_json::Value> =
            fields.into_iter().map(|(key, value)| (key, value.into())).collect();
        fields.insert("text".to_owned(), text.clone().into());
        let reading = serde_json::json!({ "tags": tags, "fields": fields });
        let body = match layout {
            0 => reading.to_string(),
            1 => format!("{reading}\n{reading}\n"),
            2 => serde_json::json!([reading, reading]).to_string(),
            _ => serde_json::to_string_pretty(&[&reading, &reading]).expect("JSON"),
        };
        let mut items = Items::new(body.as_bytes(), Precision::Auto, Limits::default());
        let mut count = 0;
        while let Some(item) = items.next() {
            count += 1;
            let item = item.map_err(|rejection| TestCaseError::fail(rejection.message()))?;
            let sent: Vec<(&str, &str)> = tags.iter().map(|(key, value)| (&**key, &**value)).collect();
            let sensor = item.sensor(&Limits::default()).expect("it is read");
            let read: Vec<(&str, &str)> = sensor.tags.iter().map(|(key, value)| (&**key, &**value)).collect();
            prop_assert_eq!(read, sent);
            prop_assert_eq!(item.fields.len(), fields.len());
            for (key, value) in item.fields {
                match value {
                    RawValue::Float(v) => prop_assert_eq!(Some(v.to_bits()), fields[&**key].as_f64().map(f64::to_bits)),
                    value => prop_assert_eq!(value, &RawValue::String(text.clone().into())),
                }
            }
        }
        prop_assert_eq!(count, if layout == 0 { 1 } else { 2 });
    }

    #[test]
    fn arbitrary_bytes_never_panic(parts in vec(proptest::sample::select(PARTS), 0..40)) {
        let body = parts.concat();
        let mut items = Items::new(&body, Precision::Auto, Limits::default());
        while let Some(item) = items.next() {
            match item {
                Ok(item) => prop_assert!(!item.fields.is_empty()),
                Err(rejection) => prop_assert!(rejection.line >= 1 && rejection.column <= body.len() + 1),
            }
        }
    }
}
