//! `GET /api/v1/readings`: ranges, fields, limits, cursors, formats and refused parameters.

use crate::support::prelude::*;

use super::{Client, client, client_with, keys, text_at};

const PATH: &str = "/api/v1/readings";

/// Writes a reading a second for 90 minutes across an hour boundary; `n` counts them.
fn seconds(database: &str) -> Client<'_> {
    let client = client(database);
    let line = |n: i64| format!("m,s=a n={n}i,half={} {}\n", n as f64 / 2.0, START + n * SECOND);
    client.keep(&(0..5400).map(line).collect::<String>());
    client
}

fn numbers(answer: &Value) -> Vec<i64> {
    let readings = answer["series"][0]["readings"].as_array().unwrap_or_else(|| panic!("{answer}"));
    readings.iter().map(|reading| reading["n"].as_i64().expect("a number")).collect()
}

#[test]
fn a_range_includes_its_start_and_excludes_its_end() {
    let client = seconds("ranges");
    let ask = |from: &str, to: &str, more: &str| {
        let parameters = format!("sensor=m,s=a&limit=100000&from={}&to={}&{more}", encode(from), encode(to));
        numbers(&client.get(PATH, &parameters).expect(200).json())
    };
    for (from, to, more, expected) in [
        ("", "", "", 0..5400),
        ("2026-01-15T14:00:10Z", "2026-01-15T14:00:20Z", "", 10..20),
        ("2026-01-15T14:59:58Z", "2026-01-15T15:00:02Z", "", 3598..3602),
        ("2026-01-15T15:00:00Z", "", "", 3600..5400),
        ("", "2026-01-15T14:00:01Z", "", 0..1),
        ("2026-01-15T14:00:10.000000001Z", "2026-01-15T14:00:20.000000001Z", "", 11..21),
        ("2026-01-15T15:00:10+01:00", "2026-01-15T09:00:20-05:00", "", 10..20),
        ("1768485610", "1768485620", "", 10..20),
        ("1768485610000", "1768485620000", "", 10..20),
        ("1768485610", "1768485620", "precision=s", 10..20),
        ("1768485610000000000", "1768485620000000000", "precision=ns", 10..20),
        ("29474760", "29474761", "precision=m", 0..60),
        ("491246", "491247", "precision=h", 0..3600),
        ("2026-01-15T14:00:10Z", "2026-01-15T14:00:10Z", "", 0..0),
        ("2027-01-01T00:00:00Z", "", "", 0..0),
        ("", "1969-01-01T00:00:00Z", "", 0..0),
    ] {
        assert_eq!(ask(from, to, more), expected.collect::<Vec<_>>(), "{from}..{to} {more}");
    }
    // An unencoded plus of an offset arrives as a space.
    let unencoded = client.get(PATH, "sensor=m,s=a&from=2026-01-15T15:00:10+01:00&limit=1").expect(200).json();
    assert_eq!(numbers(&unencoded), [10]);
}

/// Regression: no range included the last timestamp, because the nanosecond after it was refused as `to`.
#[test]
fn the_last_timestamp_can_be_queried() {
    let client = client("last");
    let last = i64::MAX - 1;
    client.keep(&format!("m v=1 {}\nm v=2 {last}", last - 1));
    let values = |more: &str| {
        let answer = client.get(PATH, &format!("sensor=m&from=9223372036854775000&{more}")).expect(200).json();
        let readings = answer["series"][0]["readings"].as_array().cloned().unwrap_or_default();
        readings.iter().map(|reading| reading["v"].as_i64().expect("a number")).collect::<Vec<_>>()
    };
    for (more, expected) in [
        ("", vec![1, 2]),
        ("to=9223372036854775806", vec![1]),
        ("to=9223372036854775807", vec![1, 2]),
        ("to=9223372036854775807&precision=ns", vec![1, 2]),
        ("to=9223372036854775807&order=desc", vec![2, 1]),
        ("to=2262-04-11T23:47:16.854775807Z", vec![1, 2]),
        ("to=2262-04-11T23:47:16.854775806Z", vec![1]),
    ] {
        assert_eq!(values(more), expected, "{more}");
    }
    for more in ["from=9223372036854775807", "to=9223372036854775808", "to=9223372036854775807&precision=ms"] {
        assert!(client.get(PATH, &format!("sensor=m&{more}")).expect(400).text().contains("parameter "), "{more}");
    }
    for step in ["1h", "1ns", "1d"] {
        let windows = format!("sensor=m&agg=count&step={step}&from=9223372036854775000&to=9223372036854775807");
        let answer = client.get("/api/v1/summary", &windows).expect(200).json();
        let windows = answer["series"][0]["windows"].as_array().expect("windows").clone();
        let count = |window: &Value| window["fields"]["v"]["count"].as_i64().expect("a count");
        assert_eq!(windows.iter().map(count).sum::<i64>(), 2, "{step}: {answer}");
    }
    let count = |condition: &str| {
        let statement = encode(&format!("SELECT count(v) FROM m WHERE {condition}"));
        let answer = client.get("/query", &format!("q={statement}")).expect(200).json();
        answer["results"][0]["series"][0]["values"][0][1].as_i64().unwrap_or_default()
    };
    for (condition, expected) in [
        ("time <= 9223372036854775806", 2),
        ("time < 9223372036854775807", 2),
        ("time < 9223372036854775806", 1),
        ("time = 9223372036854775806", 1),
        ("time <= '2262-04-11T23:47:16.854775806Z'", 2),
    ] {
        assert_eq!(count(condition), expected, "{condition}");
    }
}

#[test]
fn readings_are_sorted_by_time_in_every_format() {
    let client = client("forms");
    client.keep("m t=3 1768485600123456789\nm t=1,u=true -1\nm t=2 1768485600000000000\nm t=2.5 1768485600120000000");
    let ask = |more: &str| client.get(PATH, &format!("sensor=m&{more}")).expect(200);
    assert_eq!(
        ask("").text(),
        concat!(
            r#"{"series":[{"sensor":"m","tags":{},"readings":["#,
            r#"{"ts":"1969-12-31T23:59:59.999999999Z","t":1,"u":true},"#,
            r#"{"ts":"2026-01-15T14:00:00Z","t":2},"#,
            r#"{"ts":"2026-01-15T14:00:00.120Z","t":2.5},"#,
            r#"{"ts":"2026-01-15T14:00:00.123456789Z","t":3}"#,
            r#"]}],"next":null}"#
        )
    );
    assert_eq!(ask("format=json").header("content-type"), Some("application/json"));
    for (epoch, times) in [
        ("ns", [-1_i64, 1_768_485_600_000_000_000, 1_768_485_600_120_000_000, 1_768_485_600_123_456_789]),
        ("u", [-1, 1_768_485_600_000_000, 1_768_485_600_120_000, 1_768_485_600_123_456]),
        ("ms", [-1, 1_768_485_600_000, 1_768_485_600_120, 1_768_485_600_123]),
        ("s", [-1, 1_768_485_600, 1_768_485_600, 1_768_485_600]),
    ] {
        let answer = ask(&format!("epoch={epoch}")).json();
        let found: Vec<&Value> = answer["series"][0]["readings"].as_array().unwrap().iter().map(|r| &r["ts"]).collect();
        assert_eq!(found, times.to_vec(), "{epoch}");
    }
    let lines = ask("format=ndjson&epoch=ms&fields=t");
    assert_eq!(lines.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(lines.header("x-next-cursor"), None);
    let expected = [(-1, "1"), (1_768_485_600_000, "2"), (1_768_485_600_120, "2.5"), (1_768_485_600_123, "3")];
    let line =
        |(ts, t): (i64, &str)| format!("{{\"sensor\":\"m\",\"tags\":{{}},\"reading\":{{\"ts\":{ts},\"t\":{t}}}}}\n");
    assert_eq!(lines.text(), expected.map(line).concat());
}

/// An answer ends at its byte limit, in both orders.
#[test]
fn answers_split_by_bytes_add_up_in_both_orders() {
    let server = Launch::embedded().config("[query]\nrequest_bytes = \"1MiB\"\n").start();
    let client = Client { server: &server, database: "d" };
    let line = |n: i64| format!("m,s=a n={n}i,half={} {}\n", n as f64 / 2.0, START + n * 10 * SECOND);
    client.keep(&(0..4000).map(line).collect::<String>());
    for order in ["asc", "desc"] {
        let mut expected: Vec<i64> = (0..4000).collect();
        if order == "desc" {
            expected.reverse();
        }
        // Skipped fields count, too, and an hour may have nothing to show.
        for more in ["", "&fields=n", "&fields=nothing"] {
            let mut found = Vec::new();
            let mut cursor = String::new();
            let mut parts = 0;
            loop {
                let parameters = format!("sensor=m,s=a&limit=100000&order={order}{more}&cursor={}", encode(&cursor));
                let answer = client.get(PATH, &parameters).expect(200).json();
                found.extend(numbers(&answer));
                parts += 1;
                let Some(next) = answer["next"].as_str() else { break };
                cursor = next.to_owned();
            }
            if more == "&fields=nothing" {
                assert!(found.is_empty(), "{order}");
            } else {
                assert_eq!(found, expected, "{order}{more}");
                assert!(parts > 1, "{order}{more}");
            }
        }
    }
}

#[test]
fn a_downsampled_chart_keeps_every_peak() {
    let client = client("charts");
    // A flat line with a peak of one reading and one string.
    let value = |n: i64| if n == 1234 { 99.5 } else { 1.0 };
    client.keep(&(0..5400).map(|n| format!("m v={} {}\n", value(n), START + n * SECOND)).collect::<String>());
    client.keep("text s=\"a\" 1\ntext s=\"b\" 2");
    let times = |readings: &[Value]| -> Vec<i64> { readings.iter().map(|r| r["ts"].as_i64().unwrap()).collect() };
    let end = START + 5400 * SECOND;
    for range in [String::new(), format!("&precision=ns&from={START}&to={end}")] {
        let shown = client.readings("m", &format!("max_points=20{range}"));
        assert!((4..=20).contains(&shown.len()), "{}", shown.len());
        assert!(shown.contains(&json!({"ts": START + 1234 * SECOND, "v": 99.5})), "{range}");
        assert_eq!(times(&shown)[0], START, "{range}");
        assert_eq!(*times(&shown).last().unwrap(), START + 5399 * SECOND, "{range}");
    }
    assert_eq!(client.readings("m", "max_points=5400").len(), 5400);
    assert_eq!(times(&client.readings("text", "max_points=2&order=desc")), [2, 1]);
    let nothing = json!({"series": [{"sensor": "text", "tags": {}, "readings": []}], "next": null});
    assert_eq!(client.get(PATH, "sensor=text&max_points=2&from=2026-01-01T00:00:00Z").expect(200).json(), nothing);
    let server = Launch::embedded().config("[query]\nrequest_bytes = \"4MiB\"\n").start();
    let limited = Client { server: &server, database: "d" };
    limited.keep(&(0..20_000).map(|n| format!("m v={n} {n}\n")).collect::<String>());
    assert!((200..=500).contains(&limited.readings("m", "max_points=500").len()));
    let error = limited.get(PATH, "sensor=m&max_points=20000").expect(400).json();
    assert!(text_at(&error, "error").contains("(half of query.bytes)"), "{error}");
}

#[test]
fn the_fields_parameter_selects_fields_and_skips_other_readings() {
    let client = client_with("chosen-fields", "m a=1,b=2,c=3 1\nm a=4 2\nm b=5 3\nm d=\"x\" 4");
    for (fields, expected) in [
        ("a", vec![json!({"ts": 1, "a": 1}), json!({"ts": 2, "a": 4})]),
        ("b,c", vec![json!({"ts": 1, "b": 2, "c": 3}), json!({"ts": 3, "b": 5})]),
        ("d,a", vec![json!({"ts": 1, "a": 1}), json!({"ts": 2, "a": 4}), json!({"ts": 4, "d": "x"})]),
        ("nothing", vec![]),
    ] {
        assert_eq!(client.readings("m", &format!("fields={}", encode(fields))), expected, "{fields}");
    }
    assert_eq!(client.readings("m", "fields=").len(), 4);
    // The limit counts the readings shown.
    assert_eq!(client.readings("m", "fields=b&limit=2").len(), 2);
}

#[test]
fn pages_read_by_cursor_add_up() {
    let client = seconds("cursors");
    let all_numbers: Vec<i64> = (0..5400).collect();
    for (limit, ndjson) in [(1000, false), (1000, true), (599, false), (5400, false), (5399, true), (100_000, false)] {
        let mut found = Vec::new();
        let mut cursor = String::new();
        let mut requests = 0;
        loop {
            let form = if ndjson { "ndjson" } else { "json" };
            let parameters = format!("sensor=m,s=a&limit={limit}&format={form}&cursor={}", encode(&cursor));
            let answer = client.get(PATH, &parameters).expect(200);
            let next = if ndjson {
                let line = |line: &str| serde_json::from_str::<Value>(line).unwrap()["reading"]["n"].as_i64().unwrap();
                found.extend(answer.text().lines().map(line));
                answer.header("x-next-cursor").map(str::to_owned)
            } else {
                found.extend(numbers(&answer.json()));
                answer.json()["next"].as_str().map(str::to_owned)
            };
            requests += 1;
            match next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        assert_eq!(found, all_numbers, "limit={limit} ndjson={ndjson}");
        assert_eq!(requests, 5400_usize.div_ceil(limit), "limit={limit}");
    }
    // Without a limit, the default applies.
    let answer = client.get(PATH, "sensor=m,s=a").expect(200).json();
    assert_eq!(numbers(&answer).len(), 1000);
    assert!(answer["next"].is_string());
    // A cursor stays in its range, also before the epoch.
    client.keep("old n=1i -3\nold n=2i -2\nold n=3i -1\nold n=4i 0");
    let first = client.get(PATH, "sensor=old&limit=2&to=0").expect(200).json();
    assert_eq!(numbers(&first), [1, 2]);
    let rest = format!("sensor=old&limit=2&to=0&cursor={}", encode(text_at(&first, "next")));
    let rest = client.get(PATH, &rest).expect(200).json();
    assert_eq!((numbers(&rest), &rest["next"]), (vec![3], &Value::Null));
}

/// Writes between pages neither repeat nor hide earlier readings.
#[test]
fn a_cursor_survives_writes_on_both_sides() {
    let client = client_with("moving-cursor", "m n=10i 10\nm n=20i 20\nm n=30i 30");
    let first = client.get(PATH, "sensor=m&limit=1&precision=ns").expect(200).json();
    client.keep("m n=5i 5\nm n=25i 25");
    let rest = format!("sensor=m&limit=10&precision=ns&cursor={}", text_at(&first, "next"));
    assert_eq!((numbers(&first), numbers(&client.get(PATH, &rest).expect(200).json())), (vec![10], vec![20, 25, 30]));
}

#[test]
fn every_spelling_of_a_key_finds_the_sensor() {
    let client = client_with("spellings", "climate,site=a,sensor=temp-01 t=1 1\nclimate,sensor=temp-01,site=a t=2 2");
    client.keep(r"wi\ nd,na\,me=x\=y v=1 1");
    for (spelled, key, count) in [
        ("climate,sensor=temp-01,site=a", "climate,sensor=temp-01,site=a", 2),
        ("climate,site=a,sensor=temp-01", "climate,sensor=temp-01,site=a", 2),
        (r"wi\ nd,na\,me=x\=y", r"wi\ nd,na\,me=x\=y", 1),
    ] {
        let answer = client.get(PATH, &format!("sensor={}", encode(spelled))).expect(200).json();
        assert_eq!(text_at(&answer["series"][0], "sensor"), key);
        assert_eq!(answer["series"][0]["readings"].as_array().unwrap().len(), count, "{spelled}");
    }
    // Commas and equals signs need no encoding in a URL.
    let plain = client.get(PATH, "sensor=climate,site=a,sensor=temp-01").expect(200).json();
    assert_eq!(keys(&plain["series"][0]), ["readings", "sensor", "tags"]);
}

#[test]
fn an_unknown_sensor_has_no_series_and_a_silent_one_an_empty_series() {
    let client = client_with("unknown-sensor", "known v=1 1");
    for unknown in ["unknown", "known,but=other"] {
        let notice = format!("unknown sensor {unknown:?}; known: \"known\"");
        let nothing = json!({"series": [], "next": null, "notices": [notice]});
        assert_eq!(client.get(PATH, &format!("sensor={unknown}")).expect(200).json(), nothing);
    }
    let elsewhere = super::client("no-such-database").get(PATH, "sensor=known").expect(200).json();
    assert_eq!(elsewhere["series"], json!([]));
    let empty = client.get(PATH, "sensor=known&from=2026-01-01T00:00:00Z").expect(200).json();
    assert_eq!(empty, json!({"series": [{"sensor": "known", "tags": {}, "readings": []}], "next": null}));
    assert_eq!(client.get(PATH, "sensor=unknown&format=ndjson").expect(200).text(), "");
}

#[test]
fn invalid_parameters_are_refused_by_name() {
    let client = client_with("parameters", "m v=1 1");
    for (parameters, expected) in [
        ("", "no sensors selected: give sensor=climate,sensor=temp-01, or measurement=climate, or tag.KEY=value"),
        ("sensor=", "no sensors selected: give "),
        ("sensor=m,", "parameter sensor, column "),
        ("sensor=m,a=1,a=2", "parameter sensor, column "),
        ("sensor=m&sensor=m", "parameter sensor is given twice"),
        ("sensor=m&colour=red", "unknown parameter \"colour\"; use one of db, sensor, measurement, "),
        ("sensor=m&limit=0", "parameter limit: \"0\" is not a number from 1 to 100000"),
        ("sensor=m&limit=100001", "parameter limit: \"100001\" is not a number from 1 to 100000"),
        ("sensor=m&limit=many", "parameter limit: \"many\" is not a number from 1 to 100000"),
        ("sensor=m&from=yesterday", "parameter from: \"yesterday\" is neither RFC 3339, an integer in range"),
        ("sensor=m&to=2026-01-32", "parameter to: \"2026-01-32\" is neither RFC 3339, an integer in range"),
        ("sensor=m&to=9999999&precision=h", "parameter to: \"9999999\" is neither RFC 3339, an integer in range"),
        ("sensor=m&from=2&to=1", "parameter from is later than to"),
        ("sensor=m&from=1&precision=fortnight", "invalid precision \"fortnight\" (use auto, n, u, ms, s, m or h)"),
        ("sensor=m&epoch=auto", "parameter epoch: \"auto\" is not one of ns, u, ms, s, m, h"),
        ("sensor=m&format=xml", "parameter format: \"xml\" is not one of json, ndjson, csv"),
        ("sensor=m&max_points=0", "parameter max_points: \"0\" is not a number from 1 to 100000"),
        ("sensor=m&max_points=5&limit=5", "parameter max_points covers the whole range: leave out limit"),
        ("sensor=m&max_points=5&cursor=5", "parameter max_points covers the whole range: leave out cursor"),
        ("sensor=m&order=up", "parameter order: \"up\" is neither asc nor desc"),
        ("sensor=m&cursor=!", "parameter cursor: \"!\" is not of this range: send the value of next unchanged"),
        ("sensor=m&from=5&precision=ns&cursor=1", "parameter cursor: \"1\" is not of this range: send the value"),
        ("sensor=m&step=1h", "unknown parameter \"step\"; use one of db, sensor, "),
    ] {
        let answer = client.get(PATH, parameters).expect(400).json();
        assert_eq!(keys(&answer), ["code", "error"], "{parameters}");
        let error = text_at(&answer, "error");
        assert!(error.starts_with(expected), "{parameters}: {error}");
    }
    assert!(client.get(PATH, "sensor=m&limit=100000").status == 200);
}

#[test]
fn query_limits_come_from_the_config() {
    let server = Launch::embedded().config("[query]\nlimit_default = 2\nlimit_max = 3\nsensors_max = 4\n").start();
    let client = Client { server: &server, database: "d" };
    client.keep("m n=1i 1\nm n=2i 2\nm n=3i 3\nm n=4i 4");
    assert_eq!(numbers(&client.get(PATH, "sensor=m").expect(200).json()), [1, 2]);
    assert_eq!(numbers(&client.get(PATH, "sensor=m&limit=3").expect(200).json()), [1, 2, 3]);
    client.get("/api/v1/sensors", "limit=4").expect(200);
    for (path, parameters, bound) in [(PATH, "sensor=m&limit=4", "1 to 3"), ("/api/v1/sensors", "limit=5", "1 to 4")] {
        let answer = client.get(path, parameters).expect(400).json();
        assert!(text_at(&answer, "error").ends_with(&format!("is not a number from {bound}")), "{path}: {answer}");
    }
}
