//! Limits on readings and sensors: each refusal names its config key.

use crate::support::prelude::*;

use super::{Client, text_at};

const LIMITS: &str = r#"
[limits]
line_bytes = 128
tags = 2
fields = 3
name_bytes = 16
sensor_fields = 4
sensors = 5
"#;

fn start_limited() -> Server {
    Launch::embedded().config(LIMITS).start()
}

#[test]
fn every_limit_on_a_reading_is_enforced_and_named() {
    let server = start_limited();
    let client = Client { server: &server, database: "d" };
    let long = "n".repeat(17);
    let filler = "x".repeat(128);
    let cases = [
        (format!("m s=\"{filler}\""), "exceeds the limit of 128 (limits.line_bytes)"),
        ("m,a=1,b=2,c=3 v=1".to_owned(), "tags: 3 exceeds the limit of 2 (limits.tags)"),
        ("m a=1,b=2,c=3,d=4".to_owned(), "fields: 4 exceeds the limit of 3 (limits.fields)"),
        (format!("m {long}=1"), "bytes of a field key: 17 exceeds the limit of 16 (limits.name_bytes)"),
    ];
    for (line, reason) in &cases {
        let answer = client.write(line).expect(400).json();
        let text = text_at(&answer, "error");
        assert!(text.starts_with("unable to parse '") && text.ends_with(reason), "{line}: {text}");
    }
    let answer = client.write_json(&format!(r#"{{"sensor":"{long}","value":1}}"#)).expect(400).json();
    let text = text_at(&answer["rejected"][0], "reason");
    assert!(text.ends_with("limit of 16 (limits.name_bytes)"), "{text}");
    // Values at the limit are accepted.
    let name = "n".repeat(16);
    client.keep(&format!("{name},{name}={name},b=2 a=1,b=2,{name}=3 1"));
    let padding = "x".repeat(128 - "m s=\"\" 1".len());
    client.keep(&format!("m s=\"{padding}\" 1"));
    assert_eq!(client.readings("m", "").len(), 1);
    let too_long = client.get("/api/v1/readings", &format!("sensor={long}")).expect(400).json();
    assert!(text_at(&too_long, "error").ends_with("(limits.name_bytes)"), "{too_long}");
}

#[test]
fn fields_over_the_limit_are_refused_and_the_others_kept() {
    let server = start_limited();
    let client = Client { server: &server, database: "d" };
    client.keep("m a=1,b=1 1\nm c=1,d=1 2");
    let answer = client.write("m a=3,e=3,b=3 3").expect(400).json();
    let text = text_at(&answer, "error");
    let reason = "field \"e\": the sensor has 4 other fields already";
    assert_eq!(text, format!("partial write: {reason} (line 1) dropped=1"));
    assert_eq!(client.readings("m", "precision=ns&from=3"), [json!({"ts": 3, "a": 3, "b": 3})]);
    client.keep("m,other=sensor e=1 1");
}

#[test]
fn the_sensor_limit_refuses_only_new_sensors() {
    let server = start_limited();
    let client = Client { server: &server, database: "d" };
    let line = |number: usize, time: usize| format!("climate,s={number} v=1 {time}\n");
    client.keep(&(0..5).map(|number| line(number, 1)).collect::<String>());
    let reason = "a new sensor of measurement \"climate\" exceeds the limit of 5 sensors (limits.sensors)";
    let answer = client.write(&(0..7).map(|number| line(number, 2)).collect::<String>()).expect(400).json();
    let text = text_at(&answer, "error");
    assert!(text.starts_with("partial write: ") && text.ends_with(" dropped=2"), "{text}");
    assert_eq!(text.matches(reason).count(), 2, "{text}");
    let answer = client.write_json(r#"{"measurement":"climate","sensor":"new","value":1}"#).expect(400).json();
    let refusal_reason = text_at(&answer["rejected"][0], "reason").to_owned();
    assert_eq!(refusal_reason, format!("{reason}; its tag \"s\" has the most values"));
    // A body of new sensors only is refused, too. Regression: it was answered 204 and dropped.
    let answer = client.write(&line(7, 2)).expect(400).json();
    assert!(text_at(&answer, "error").contains(reason), "{answer}");
    // The limit applies to the instance, over all databases.
    Client { server: &server, database: "e" }.write("climate v=1 1").expect(400);
    client.keep(&(0..5).map(|number| line(number, 3)).collect::<String>());
    for number in 0..5 {
        assert_eq!(client.readings(&format!("climate,s={number}"), "").len(), 3, "{number}");
    }
    // A refused sensor leaves nothing that a query would show.
    let sensors = client.get("/api/v1/sensors", "").expect(200).json();
    assert_eq!(sensors["sensors"].as_array().unwrap().len(), 5);
}
