//! Values of another type than their field's: rejected, or kept beside it.

use crate::support::prelude::*;

const KEEP: &str = "[ingest]\ndrift = \"keep\"\n";
/// 2024-06-01T00:00:00Z, in seconds.
const START: i64 = 1_717_200_000;

fn write(server: &Server, lines: &str, status: u16) -> Option<String> {
    let answer = post(&server.url("/write?db=d&precision=s"), lines, &[]).expect(status);
    answer.header("x-hourglass-warning").map(str::to_owned)
}

/// Returns the readings of a sensor, strings without quotes.
fn read_rows(server: &Server, sensor: &str) -> Vec<ReadingTexts> {
    let plain = |(name, text): (String, String)| {
        let value = match serde_json::from_str(&text).expect("JSON") {
            Value::String(text) => text,
            Value::Number(number) => format!("{:?}", number.as_f64().expect("a double")),
            other => other.to_string(),
        };
        (name, value)
    };
    let rows = readings(server, "d", sensor, None, 10_000).into_iter();
    rows.map(|(time, fields)| (time, fields.into_iter().map(plain).collect())).collect()
}

fn row(time: i64, fields: &[(&str, &str)]) -> ReadingTexts {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    (time * 1_000_000_000, fields)
}

#[test]
fn values_of_another_type_are_rejected_unless_drift_is_keep() {
    let server = Launch::embedded().start();
    write(&server, "m temp=1 1717200000", 204);
    write(&server, "m temp=\"2\",w=2 1717200001\nm temp@string=3 1717200002", 400);
    let expected =
        [row(START, &[("temp", "1.0")]), row(START + 1, &[("w", "2.0")]), row(START + 2, &[("temp@string", "3.0")])];
    assert_eq!(read_rows(&server, "m"), expected);
    assert!(metric(&server, "hourglass_ingest_values_drifted_total") < 1.0);
}

#[test]
fn kept_values_are_stored_beside_their_field_and_reported() {
    let mut server = Launch::embedded().config(KEEP).start();
    assert_eq!(write(&server, "m temp=1 1717200000", 204), None);
    let lines = "m temp=\"2\",w=2 1717200001\nm temp=true 1717200001\nm temp=3 1717200001\nm w=5 1717200001";
    let warning = write(&server, lines, 204).expect("a warning");
    assert!(warning.contains("2 values") && warning.contains("temp@string"), "{warning}");
    let both = [("temp", "3.0"), ("temp@boolean", "true"), ("temp@string", "2"), ("w", "5.0")];
    let expected = vec![row(START, &[("temp", "1.0")]), row(START + 1, &both)];
    assert_eq!(read_rows(&server, "m"), expected);
    // A name with the suffix refers to the kept values only.
    write(&server, "m temp=\"4\",temp@string=\"5\" 1717200002\nm temp@string=\"6\",temp=\"7\" 1717200003", 204);
    let fields: Vec<_> = read_rows(&server, "m").into_iter().skip(2).map(|(_, fields)| fields).collect();
    assert_eq!((&fields[0]["temp@string"], &fields[1]["temp@string"]), (&"5".to_owned(), &"7".to_owned()));
    write(&server, "m temp@string=1 1717200004", 400);
    write(&server, "m x@number=\"one\" 1717200004", 400);
    write(&server, "m mail@home=1 1717200004", 204);
    let body = r#"{"measurement":"m","ts":1717200005,"fields":{"temp":"eight"}}"#;
    let answer = post(&server.url("/api/v1/readings?db=d"), body, &[]).expect(200);
    assert!(answer.header("x-hourglass-warning").is_some());
    let reported = post(&server.url("/api/v1/explain?db=d"), body, &[]).expect(200).json();
    assert!(
        reported["lines"][0]["warnings"][0].as_str().is_some_and(|text| text.contains("kept beside")),
        "{reported}"
    );
    let notices = |path: &str| server.fetch(path)["notices"].clone();
    for selection in ["sensor=m", "measurement=m"] {
        let reported = notices(&format!("/api/v1/readings?db=d&{selection}&fields=temp"));
        assert!(reported[0].as_str().is_some_and(|text| text.contains("\"temp@")), "{selection}: {reported}");
        assert_eq!(notices(&format!("/api/v1/readings?db=d&{selection}&fields=w")), Value::Null);
    }
    let answer = get(&server.url("/query?db=d&q=SELECT+temp+FROM+m")).expect(200);
    assert!(answer.notice().contains("\"temp@"), "{}", answer.notice());
    let kept = server.fetch("/query?db=d&q=SELECT+%22temp@string%22+FROM+m");
    assert_eq!(kept["results"][0]["series"][0]["values"].as_array().map(Vec::len), Some(4), "{kept}");
    assert!(metric(&server, "hourglass_ingest_values_drifted_total") >= 5.0);
    // It survives the WAL, the store and a restart.
    let before = read_rows(&server, "m");
    server.kill();
    server.restart_with(Launch::embedded().config(KEEP));
    assert_eq!(read_rows(&server, "m"), before);
    flush(&server);
    assert_eq!(read_rows(&server, "m"), before);
}

/// Drift is set per database; a policy inherits it unless it has its own setting.
#[test]
fn drift_is_set_per_database() {
    let mut server = Launch::embedded().start();
    let set = |server: &Server, name: &str, body: &str| server.set(name, body).expect(200).json();
    let kept = |server: &Server, name: &str| {
        let (database, policy) = name.split_once('/').unwrap_or((name, "autogen"));
        let url = server.url(&format!("/write?db={database}&rp={policy}&precision=s"));
        post(&url, "m temp=1 1717200000", &[]).expect(204);
        post(&url, "m temp=\"2\" 1717200001", &[]).status == 204
    };
    let keep = r#"{"drift":"keep"}"#;
    let reject = r#"{"drift":"reject"}"#;
    let reported = set(&server, "plant", keep);
    assert_eq!((&reported["drift"], &reported["drift_as"]), (&json!("keep"), &json!("keep")), "{reported}");
    let reported = set(&server, "plant/week", r#"{"readings":"inf"}"#);
    assert_eq!((&reported["drift"], &reported["drift_as"]), (&Value::Null, &json!("keep")), "{reported}");
    set(&server, "plant/day", reject);
    let all = ["plant", "plant/week", "plant/day", "other"];
    for _ in 0..2 {
        assert_eq!(all.map(|name| kept(&server, name)), [true, true, false, false]);
        let answer = get(&server.url("/query?db=plant&q=SELECT+temp+FROM+m")).expect(200);
        assert!(answer.notice().contains("\"temp@"), "{}", answer.notice());
        server.kill_and_restart();
    }
    assert_eq!(set(&server, "plant", "{}")["drift_as"], "keep", "what is not sent stays");
    // The configured default applies again. Kept values stay.
    assert_eq!(set(&server, "plant", r#"{"drift":null}"#)["drift_as"], "reject");
    assert_eq!(all.map(|name| kept(&server, name)), [false; 4]);
    let seen = readings(&server, "plant", "m", None, 10);
    assert_eq!(seen[1].1.keys().next().map(String::as_str), Some("temp@string"), "{seen:?}");
    server.stop();
    server.restart_with(Launch::embedded().config(KEEP));
    assert_eq!(all.map(|name| kept(&server, name)), [true, true, false, true]);
}

/// Regression: the notice was missing with empty answers, counted fields as sensors, and outlived the values.
#[test]
fn notices_mention_only_existing_values() {
    let server = Launch::embedded().config(KEEP).start();
    write(&server, "m,s=a temp=1 1717200000\nm,s=b temp=1 1717200000\nm,s=b temp=\"x\" 1717200010", 204);
    write(&server, "m,s=a temp=\"2\" 1717200001\nm,s=a temp=true 1717200002", 204);
    let of_influx = |condition: &str| -> Vec<String> {
        let q = format!("SELECT temp FROM m WHERE {condition}").replace(' ', "%20").replace('>', "%3E");
        let answer = get(&server.url(&format!("/query?db=d&q={q}"))).expect(200);
        answer.header("x-hourglass-notice").into_iter().map(str::to_owned).collect()
    };
    let of_native = |range: &str| -> Vec<String> {
        let path = format!("/api/v1/readings?db=d&measurement=m&fields=temp&{range}");
        let reported = server.fetch(&path)["notices"].clone();
        reported.as_array().into_iter().flatten().map(|one| one.as_str().expect("a text").to_owned()).collect()
    };
    let both = of_influx("time > 0");
    assert!(both.len() == 1 && both[0].contains("of 2 sensors"), "{both:?}");
    assert_eq!(of_native(""), both);
    // Only within the requested time, and also without an answer.
    let one = of_influx("time > 1717200005s");
    assert!(one.len() == 1 && one[0].contains("of 1 sensor ") && one[0].contains("\"temp@string\""), "{one:?}");
    assert_eq!(of_native("from=1717200005"), one);
    assert_eq!(of_influx("time > 1717200020s"), [""; 0]);
    post(&server.url("/query?db=d&q=DELETE+FROM+m+WHERE+time+%3E+1717200005s"), "", &[]).expect(200);
    let left = of_influx("time > 0");
    assert!(left.len() == 1 && left[0].contains("of 1 sensor "), "{left:?}");
    post(&server.url("/query?db=d&q=DELETE+FROM+m+WHERE+time+%3E+1717200000s"), "", &[]).expect(200);
    assert_eq!((of_influx("time > 0"), of_native("")), (vec![], vec![]));
}
