//! Lenient parameters (bare names, dates, InfluxQL names, trailing slashes), and notices for unknown names.

use serde_json::{Value, json};

use super::{Client, client, client_with, encode, text_at};

const PATH: &str = "/api/v1/readings";

fn sensors(answer: &Value) -> Vec<&str> {
    let all = answer["series"].as_array().unwrap_or_else(|| panic!("{answer}"));
    all.iter().map(|series| text_at(series, "sensor")).collect()
}

fn notices(client: &Client<'_>, path: &str, parameters: &str) -> Vec<String> {
    let answer = client.get(path, parameters).expect(200).json();
    let notices = answer["notices"].as_array().cloned().unwrap_or_default();
    notices.iter().map(|notice| notice.as_str().expect("a text").to_owned()).collect()
}

/// Regression: after a POST of `{"sensor":"temp-01","value":22.5}`, `sensor=temp-01` found nothing.
#[test]
fn a_bare_name_finds_the_only_sensor_with_that_tag() {
    let client = client("bare-names");
    client.write_json(r#"{"sensor":"temp-01","temperature":22.5,"time":"2026-01-15T14:00:00Z"}"#).expect(200);
    let read = client.readings("temp-01", "");
    assert_eq!(read, [json!({"ts": 1_768_485_600_000_000_000_i64, "temperature": 22.5})]);
    for path in ["/api/v1/readings", "/api/v1/latest", "/api/v1/summary"] {
        let answer = client.get(path, "sensor=temp-01").expect(200).json();
        assert_eq!(sensors(&answer), ["readings,sensor=temp-01"], "{path}");
        assert!(answer.get("notices").is_none(), "{path}: {answer}");
    }
    let fields = client.get("/api/v1/fields", "sensor=temp-01").expect(200).json();
    assert_eq!(fields, json!({"fields": [{"field": "temperature", "type": "number", "sensors": 1}]}));
    // Several sensors have the tag: none is chosen, all are named.
    client.keep("climate,sensor=temp-01 t=1 1");
    let answer = client.get(PATH, "sensor=temp-01").expect(200).json();
    let several =
        "2 sensors have the tag sensor=temp-01; give one of their keys: climate,sensor=temp-01 readings,sensor=temp-01";
    assert_eq!(answer, json!({"series": [], "next": null, "notices": [several]}));
    // An exact key wins.
    client.keep("temp-01 t=7 1");
    let answer = client.get(PATH, "sensor=temp-01").expect(200).json();
    assert_eq!(sensors(&answer), ["temp-01"]);
}

/// The next part covers the same sensor, even if another one has the tag by then.
#[test]
fn a_cursor_keeps_the_sensor_of_a_bare_name() {
    let client = client_with("bare-cursor", "a,sensor=s v=1 1\na,sensor=s v=2 2\na,sensor=s v=3 3");
    let first = client.get(PATH, "sensor=s&limit=2&epoch=ns").expect(200).json();
    assert_eq!(first["series"][0]["readings"].as_array().map(Vec::len), Some(2), "{first}");
    client.keep("b,sensor=s v=9 1");
    let cursor = encode(text_at(&first, "next"));
    let second = client.get(PATH, &format!("sensor=s&limit=2&epoch=ns&cursor={cursor}")).expect(200).json();
    let rest = json!([{"sensor": "a,sensor=s", "tags": {"sensor": "s"}, "readings": [{"ts": 3, "v": 3}]}]);
    assert_eq!(second, json!({"series": rest, "next": null}));
    // A cursor of another sensor is refused.
    let other = client.get(PATH, "sensor=s&cursor=3.YSxzZW5zb3I9dA").expect(200).json();
    assert_eq!(other["series"], json!([]), "{other}");
}

/// Regression: a misspelt name was answered with an empty list and no notice.
#[test]
fn an_unknown_name_is_answered_with_similar_ones() {
    let client = client("notices");
    client.keep("climate,site=lab,sensor=a temp=1,humidity=2 1\npower,site=hall,sensor=b watts=3 1");
    for (path, parameters, expected) in [
        (PATH, "measurement=climat", r#"unknown measurement "climat"; known: "climate", "power""#),
        (PATH, "tag.sit=lab", r#"unknown tag "sit"; known: "site", "sensor""#),
        (PATH, "tag.site=lap", r#"unknown value "lap" of tag "site"; known: "lab", "hall""#),
        (PATH, "measurement=climate&fields=tempp", r#"unknown field "tempp"; known: "temp", "humidity""#),
        (PATH, "sensor=climate,sensor=a,site=lab&fields=tmp", r#"unknown field "tmp"; known: "temp", "humidity""#),
        (
            PATH,
            "sensor=climate,sensor=a,site=lap",
            r#"unknown sensor "climate,sensor=a,site=lap"; known: "climate,sensor=a,site=lab", "power,sensor=b,site=hall""#,
        ),
        (
            "/api/v1/summary",
            "measurement=climate&group_by=room",
            r#"unknown tag in group_by "room"; known: "site", "sensor""#,
        ),
        ("/api/v1/latest", "measurement=climat", r#"unknown measurement "climat"; known: "climate", "power""#),
        ("/api/v1/fields", "measurement=climat", r#"unknown measurement "climat"; known: "climate", "power""#),
    ] {
        assert_eq!(notices(&client, path, parameters), [expected], "{path} {parameters}");
    }
    // Known names get no notices, with or without readings.
    for parameters in ["measurement=climate", "measurement=climate&from=2026-01-15", "tag.site=lab&fields=temp"] {
        assert_eq!(notices(&client, PATH, parameters), [""; 0], "{parameters}");
    }
    for format in ["csv", "ndjson"] {
        let answer = client.get(PATH, &format!("measurement=climat&format={format}")).expect(200);
        let expected = r#"unknown measurement "climat"; known: "climate", "power""#;
        assert_eq!(answer.header("x-hourglass-notice"), Some(expected), "{format}");
    }
    let elsewhere = notices(&super::client("noticez"), PATH, "measurement=climate");
    assert!(elsewhere[0].starts_with(r#"unknown database "noticez"; "#), "{elsewhere:?}");
    assert!(elsewhere[0].contains(r#""notices""#), "{elsewhere:?}");
}

/// Regression: `from=2026-01-15`, `agg=mean` and trailing slashes were refused, and missing zones without a hint.
#[test]
fn unambiguous_parameters_are_accepted() {
    let client = client("good-faith");
    client.keep("m v=1 1768435200000000000\nm v=3 1768435199999999999\nm v=5 1768431600000000000");
    let values = |parameters: &str| -> Vec<Value> {
        client.readings("m", parameters).iter().map(|reading| reading["v"].clone()).collect()
    };
    assert_eq!(values("from=2026-01-15"), [json!(1)]);
    assert_eq!(values("to=2026-01-15"), [json!(5), json!(3)]);
    let url = "sensor=m&agg=mean,max&step=1d&epoch=s&from=2026-01-15&to=2026-01-16";
    let summary = client.get("/api/v1/summary/", url).expect(200).json();
    let fields = json!({"v": {"mean": 1, "max": 1}});
    let day = json!({"start": 1_768_435_200, "end": 1_768_521_600, "fields": fields});
    assert_eq!(summary["series"][0]["windows"], json!([day]));
    // Midnight in the zone is an hour before midnight UTC.
    let berlin =
        client.get("/api/v1/summary", "sensor=m&agg=count&step=1d&tz=Europe/Berlin&from=2026-01-15").expect(200);
    assert_eq!(berlin.json()["series"][0]["windows"][0]["fields"], json!({"v": {"count": 3}}));
    let refused = client.get(PATH, "sensor=m&from=2026-01-15T14:00:00").expect(400).json();
    assert_eq!(
        text_at(&refused, "error"),
        "parameter from: \"2026-01-15T14:00:00\" has no zone: send from=2026-01-15T14:00:00Z for UTC, or replace Z \
         by an offset such as %2B01:00"
    );
    let refused = client.write_json(r#"{"sensor":"x","value":1,"time":"2026-01-15 14:00:00"}"#).expect(400).json();
    let reason = refused["rejected"][0].to_string();
    assert!(reason.contains(r#"send \"time\":\"2026-01-15T14:00:00Z\" if it is in UTC"#), "{reason}");
}
