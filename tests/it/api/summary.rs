//! `GET /api/v1/summary`: whole hours come from summaries, partial hours from readings.

use crate::support::prelude::*;

use super::{Client, client, client_with, keys, text_at};

const PATH: &str = "/api/v1/summary";

/// Quarters add up without rounding, so sums are exact in any order.
fn value(n: i64) -> f64 {
    ((n * 37) % 101 - 50) as f64 / 4.0
}

/// A reading every 450 s from two days before the epoch to two days after it, one nanosecond off the grid.
const FIRST: i64 = -2 * DAY + 1;
const PACE: i64 = 450 * SECOND;
const COUNT: i64 = 4 * DAY / PACE;

fn create_filled(database: &str) -> Client<'_> {
    let line = |n: i64| format!("m v={:.2},i={}i {}\n", value(n), n - 300, FIRST + n * PACE);
    client_with(database, &(0..COUNT).map(line).collect::<String>())
}

/// Returns the expected answer by folding every reading of the range.
fn model(from: i64, to: i64, step: i64) -> Value {
    let mut windows: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for n in (0..COUNT).filter(|n| (from..to).contains(&(FIRST + n * PACE))) {
        windows.entry((FIRST + n * PACE).div_euclid(step)).or_default().push(n);
    }
    let window = |(number, members): (i64, Vec<i64>)| {
        let values: Vec<f64> = members.iter().map(|n| value(*n)).collect();
        let count = values.len() as f64;
        let sum = values.iter().sum::<f64>();
        let integers = members.iter().map(|n| n - 300);
        let total = members.iter().map(|n| n - 300).sum::<i64>();
        json!({
            "start": (number * step).max(from),
            "end": ((number + 1) * step).min(to),
            "fields": {
                "v": {
                    "count": count,
                    "min": values.iter().copied().fold(f64::INFINITY, f64::min),
                    "max": values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    "sum": sum,
                    "avg": sum / count,
                },
                "i": {
                    "count": count,
                    "min": integers.clone().min(),
                    "max": integers.max(),
                    "sum": total,
                    "avg": total as f64 / count,
                },
            },
        })
    };
    Value::from(windows.into_iter().map(window).collect::<Vec<_>>())
}

/// Panics at the first window that differs.
#[track_caller]
fn check(what: &str, found: &Value, expected: &Value) {
    let found = found.as_array().expect("windows");
    let expected = expected.as_array().expect("windows");
    for (found, expected) in found.iter().zip(expected) {
        assert!(same(found, expected), "{what}:\nfound    {found}\nexpected {expected}");
    }
    assert_eq!(found.len(), expected.len(), "{what}");
}

/// Returns true if both values are equal; long fractions may differ in the last bits, by JSON parsing.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            let one = one.as_f64().unwrap();
            let other = other.as_f64().unwrap();
            (one - other).abs() <= 1e-15 * other.abs()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, one)| other.get(key).is_some_and(|other| same(one, other)))
        }
        _ => one == other,
    }
}

fn windows(client: &Client<'_>, sensor: &str, more: &str) -> Value {
    let answer = client.get(PATH, &format!("sensor={sensor}&epoch=ns&precision=ns&{more}")).expect(200).json();
    assert_eq!(keys(&answer), ["next", "series"]);
    answer["series"][0]["windows"].clone()
}

#[test]
fn summaries_equal_the_fold_over_all_readings() {
    let client = create_filled("windows");
    let ranges = [
        (-2 * DAY, 2 * DAY),
        (-DAY, DAY),
        (0, DAY),
        (-HOUR, HOUR),
        (1, 5 * HOUR),
        (HOUR / 2, 5 * HOUR - 1),
        (-5 * HOUR - 1, -HOUR + 1),
        (-5 * HOUR + 7 * MINUTE, 3 * HOUR + 11 * MINUTE),
        (FIRST, FIRST + 1),
        (FIRST + PACE, FIRST + 2 * PACE),
        (FIRST + 1, FIRST + 2),
        (HOUR + 10 * MINUTE, HOUR + 50 * MINUTE),
        (5, 5),
    ];
    let steps = [
        ("1m", MINUTE),
        ("15m", 15 * MINUTE),
        ("1h", HOUR),
        ("90m", 90 * MINUTE),
        ("6h", 6 * HOUR),
        ("1d", DAY),
        ("7d", 7 * DAY),
    ];
    for (from, to) in ranges {
        for (name, step) in steps {
            let found = windows(&client, "m", &format!("from={from}&to={to}&step={name}"));
            check(&format!("{from}..{to} by {name}"), &found, &model(from, to, step));
        }
    }
    let by_default = windows(&client, "m", "from=0&to=7200000000000");
    check("by default", &by_default, &model(0, 2 * HOUR, HOUR));
    let one_field = windows(&client, "m", "from=-3600000000000&to=1800000000000&fields=i");
    assert!(one_field.as_array().unwrap().iter().all(|window| keys(&window["fields"]) == ["i"]), "{one_field}");
}

#[test]
fn times_are_rfc_3339_without_an_epoch() {
    let client = client_with("window-times", "m v=1.5 1768485600000000000");
    let answer = client.get(PATH, "sensor=m&from=2026-01-15T14:00:00Z&to=2026-01-15T14:30:00Z").expect(200);
    assert_eq!(
        answer.text(),
        concat!(
            r#"{"series":[{"sensor":"m","tags":{},"windows":[{"start":"2026-01-15T14:00:00Z","end":"2026-01-15T14:30:00Z","#,
            r#""fields":{"v":{"count":1,"min":1.5,"max":1.5,"sum":1.5,"avg":1.5}}}]}],"next":null}"#
        )
    );
    let answer = client.get(PATH, "sensor=m&epoch=s").expect(200).json();
    assert_eq!(answer["series"][0]["windows"][0]["start"], json!(1_768_485_600));
}

#[test]
fn integers_are_summed_exactly_and_mixed_fields_as_floats() {
    let client = client_with("mixed", "whole v=9007199254740993i 1\nwhole v=1i 2");
    let answer = client.get(PATH, "sensor=whole").expect(200);
    let fold = r#"{"count":2,"min":1,"max":9007199254740993,"sum":9007199254740994,"avg":"#;
    assert!(answer.text().contains(fold), "{}", answer.text());
    client.keep("mixed v=1i 1\nmixed v=2.5 2\nmixed v=3u 3");
    let expected = json!({"v": {"count": 3, "min": 1, "max": 3, "sum": 6.5, "avg": 6.5 / 3.0}});
    let found = windows(&client, "mixed", "")[0]["fields"].clone();
    assert!(same(&found, &expected), "{found}");
}

/// Strings and booleans have no sum, but their sensors are known.
#[test]
fn fields_without_numbers_have_no_summary() {
    let client = client_with("no-numbers", "m s=\"x\",b=true 1");
    for step in ["1h", "1m"] {
        let found = client.get(PATH, &format!("sensor=m&step={step}")).expect(200).json();
        assert_eq!(found, json!({"series": [{"sensor": "m", "tags": {}, "windows": []}], "next": null}), "{step}");
    }
    client.keep("m s=\"x\",v=1 2");
    assert_eq!(keys(&windows(&client, "m", "")[0]["fields"]), ["v"]);
    let unknown = client.get(PATH, "sensor=unknown").expect(200).json();
    let notice = r#"unknown sensor "unknown"; known: "m""#;
    assert_eq!(unknown, json!({"series": [], "next": null, "notices": [notice]}));
}

/// Regression: a count of strings or booleans was silently omitted, unlike in InfluxQL.
#[test]
fn strings_and_booleans_are_counted_on_request() {
    let client = client_with("counted", "m s=\"x\",b=true,v=1 1\nm s=\"y\",v=2 2\nm b=false 3\nm s=\"z\" 4");
    let fields = |parameters: &str| windows(&client, "m", parameters)[0]["fields"].clone();
    let all = json!({"s": {"count": 3}, "b": {"count": 2}, "v": {"count": 2}});
    assert_eq!(fields("&agg=count"), all);
    let found = fields("&agg=count,max");
    assert!(same(&found, &json!({"s": {"count": 3}, "b": {"count": 2}, "v": {"count": 2, "max": 2}})), "{found}");
    let ends = json!({"s": {"count": 3, "first": "x", "last": "z"}});
    assert_eq!(fields("&agg=count,first,last&fields=s"), ends);
    assert_eq!(fields("&fields=b,s"), json!({"s": {"count": 3}, "b": {"count": 2}}));
    // Without named fields, only numbers are summarized.
    assert_eq!(keys(&fields("")), ["v"]);
}

/// Regression: a field that is a number in one sensor and a string in another was counted for one only.
#[test]
fn sensors_of_another_type_are_left_out_with_a_notice() {
    let client = client_with("families", "m,s=a v=1,w=1 1\nm,s=b v=2,w=\"x\" 2\nm,s=c v=\"on\",w=true 3");
    let summary = |parameters: &str| client.get(PATH, &format!("measurement=m{parameters}")).expect(200).json();
    let v = "field \"v\" is a number for 2 of 3 chosen sensors, and a string for 1, which are left out";
    let w =
        "field \"w\" is a number for 1 of 3 chosen sensors, and a string for 1 and a boolean for 1, which are left out";
    let found = summary("&fields=v&agg=count");
    assert_eq!((found["series"].as_array().map(Vec::len), &found["notices"]), (Some(2), &json!([v])), "{found}");
    assert_eq!(summary("&agg=count")["notices"], json!([v, w]));
    assert_eq!(summary("")["notices"], json!([v, w]));
    // Sensors of one type cause no notice.
    assert_eq!(summary("&fields=v&agg=count&tag.s=c")["notices"], json!(null));
}

/// Regression: without `from` and `to`, the range overflowed nanoseconds. In India days begin at 18:30 UTC.
#[test]
fn days_follow_the_time_zone_without_a_range() {
    let client = client_with("zones", "m,s=1 v=1 1768500000000000000\nm,s=1 v=2 1768503600000000000");
    let parameters = "measurement=m&tz=Asia/Kolkata&step=1d&epoch=s&agg=count";
    let answer = client.get(PATH, parameters).expect(200).json();
    let counts: Vec<&Value> = answer["series"][0]["windows"].as_array().unwrap().iter().collect();
    let window = |start: i64| json!({"start": start, "end": start + 86_400, "fields": {"v": {"count": 1}}});
    assert_eq!(counts, [&window(1_768_415_400), &window(1_768_501_800)], "{parameters}");
}

/// Regression: 480 hourly readings across the end of summer time were counted as 481, in both languages.
#[test]
fn every_reading_is_in_one_window_when_clocks_change() {
    let client = client("clocks");
    // 2026-10-15T00:00:00Z, ten days before clocks are set back.
    const START: i64 = 1_792_022_400;
    let line = |n: i64| format!("m v={n} {}\n", (START + n * 3600) * SECOND);
    client.keep(&(0..480).map(line).collect::<String>());
    for zone in ["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "UTC"] {
        for step in ["30m", "1h", "90m", "2h", "3h", "5h", "1d", "1w"] {
            let parameters = format!("measurement=m&tz={zone}&step={step}&epoch=s&agg=count");
            let answer = client.get(PATH, &parameters).expect(200).json();
            let windows = answer["series"][0]["windows"].as_array().unwrap();
            let counts = windows.iter().map(|window| window["fields"]["v"]["count"].as_i64().unwrap());
            assert_eq!(counts.sum::<i64>(), 480, "{parameters}");
            let is_behind = |pair: &[Value]| pair[0]["end"].as_i64() <= pair[1]["start"].as_i64();
            assert!(windows.windows(2).all(is_behind), "{parameters}");
            let statement = format!(
                "SELECT sum(c) FROM (SELECT count(v) AS c FROM m WHERE time >= {START}s AND time < {}s GROUP BY time({step}) tz('{zone}'))",
                START + 480 * 3600
            );
            let answer = client.get("/query", &format!("q={}", super::encode(&statement))).expect(200).json();
            assert_eq!(answer["results"][0]["series"][0]["values"][0][1], 480, "{statement}: {answer}");
        }
    }
}

/// Every function of the engine's table works in both languages.
#[test]
fn every_documented_aggregate_works_in_both_languages() {
    let client = client_with("table", "m v=1 1\nm v=4 2\nm v=4 3\nm v=2.5 4\nm v=9 5");
    for (name, expected) in [("median", 4.0), ("mode", 4.0)] {
        let answer = client.get(PATH, &format!("sensor=m&agg={name}")).expect(200).json();
        let aggregate = &answer["series"][0]["windows"][0]["fields"]["v"][name];
        let statement = super::encode(&format!("SELECT {name}(v) FROM m"));
        let other = client.get("/query", &format!("q={statement}")).expect(200).json();
        let other = &other["results"][0]["series"][0]["values"][0][1];
        assert_eq!((aggregate.as_f64(), other.as_f64()), (Some(expected), Some(expected)), "{name}");
    }
}

#[test]
fn too_many_windows_and_invalid_steps_are_refused() {
    let server = Launch::embedded().config("[query]\nrequest_bytes = \"1MiB\"\n").start();
    let client = Client { server: &server, database: "d" };
    let line = |n: i64| format!("m v={n} {}\n", n * HOUR);
    client.keep(&(0..11).map(line).collect::<String>());
    let ten = format!("from=0&to={}", 10 * HOUR);
    assert_eq!(windows(&client, "m", &ten).as_array().unwrap().len(), 10);
    assert_eq!(windows(&client, "m", "step=2h").as_array().unwrap().len(), 6);
    for step in ["1s", "1ms"] {
        let answer = client.get(PATH, &format!("sensor=m&step={step}&fill=null")).expect(400).json();
        let message = text_at(&answer, "error");
        assert!(message.contains("more than 1048576 bytes of memory (half of query.bytes)"), "{step}: {message}");
    }
    for step in ["0h", "-1h", "1", "h", "1.5h", "1 y", "1 h", "99999999999999999999h", "9999999999d"] {
        let answer = client.get(PATH, &format!("sensor=m&step={}", super::encode(step))).expect(400).json();
        let expected = format!(
            "parameter step: {step:?} is neither a duration such as 30s, 15m, 1h or 1d, nor weeks, months, quarters or years such as 1w, 3mo, 1q or 1y"
        );
        assert_eq!(text_at(&answer, "error"), expected);
    }
    for unknown in ["limit=0", "cursor=1", "format=xml", "stepp=1h"] {
        client.get(PATH, &format!("sensor=m&{unknown}")).expect(400);
    }
}

/// Regression: a window with too few readings for a percentile was filled as if it had none, and one without any figure
/// was shown as an empty window.
#[test]
fn a_window_with_readings_is_not_filled() {
    let client = client_with("few", &(0..3).map(|n| format!("m v={n} {}\n", n * HOUR)).collect::<String>());
    let shown = |more: &str| windows(&client, "m", &format!("from=0&to={}&fields=v&{more}", 4 * HOUR));
    let filled = shown("agg=p5,count&fill=7");
    let figures = |window: usize| filled[window]["fields"]["v"].clone();
    assert_eq!([figures(2), figures(3)], [json!({"p5": null, "count": 1}), json!({"p5": 7, "count": 7})]);
    assert_eq!([shown("agg=stddev"), shown("agg=p5")], [json!([]), json!([])]);
}
