//! `POST /api/v1/ingest/NAME`: messages as devices send them.

use crate::support::prelude::*;

use super::client;

/// A webhook of ChirpStack v4, shortened.
const UPLINK: &str = r#"{"time":"2026-01-15T14:00:00.5+00:00","deviceInfo":{"applicationName":"cellar",
    "devEui":"0101010101010101"},"fCnt":4,"object":{"temperature":{"1":25.5},"motion":true},
    "rxInfo":[{"rssi":-36,"snr":10.5}]}"#;
const UPLINK_SENSOR: &str = "lorawan,application=cellar,device=0101010101010101";

#[test]
fn a_webhook_is_stored_once_and_explained() {
    let client = client("ingest-webhook");
    let url = client.url("/api/v1/ingest/chirpstack", "");
    // As a service retries it.
    for _ in 0..2 {
        assert_eq!(http::post(&url, UPLINK, &[]).expect(200).json(), json!({"accepted": 1, "rejected": []}));
    }
    let expected = json!({"ts": START + 500 * 1_000_000, "f_cnt": 4, "rssi": -36, "snr": 10.5, "temperature_1": 25.5, "motion": true});
    assert_eq!(client.readings(UPLINK_SENSOR, ""), [expected]);
    let explained = http::post(&client.url("/api/v1/explain", "mapping=chirpstack"), UPLINK, &[]).expect(200).json();
    assert_eq!((&explained["accepted"], &explained["write"]["status"]), (&json!(1), &json!(200)), "{explained}");
    // Another event has no readings.
    let join = r#"{"time":"2026-01-15T14:00:00Z","deviceInfo":{"applicationName":"cellar","devEui":"01"},"devAddr":"00189440"}"#;
    assert_eq!(http::post(&url, join, &[]).expect(200).json(), json!({"accepted": 0, "rejected": []}));
}

#[test]
fn a_topic_gives_tags_and_names() {
    let client = client("ingest-topic");
    let plain = |topic: &str, value: &str| {
        http::post(&client.url("/api/v1/ingest/plain", &format!("topic={}", encode(topic))), value, &[])
    };
    plain("home/lab/temp", "21.5").expect(200);
    let latest = client.readings("home,room=lab", "");
    assert_eq!((latest.len(), &latest[0]["temp"]), (1, &json!(21.5)));
    // Without its topic, a value has no name.
    let refused = http::post(&client.url("/api/v1/ingest/plain", ""), "21.5", &[]).expect(400).json();
    assert_eq!((&refused["accepted"], &refused["rejected"][0]["line"]), (&json!(0), &json!(1)), "{refused}");
}

#[test]
fn many_messages_are_mapped_in_bulk() {
    let client = client("ingest-bulk");
    let count = 3_000;
    let times = (0..count).map(|n| format!("2026-01-15T14:{:02}:{:02}+00:00", n / 60, n % 60));
    let messages = times.map(|time| UPLINK.replace('\n', "").replace("2026-01-15T14:00:00.5+00:00", &time));
    let body = messages.collect::<Vec<_>>().join("\n");
    let answer = http::post(&client.url("/api/v1/ingest/chirpstack", ""), &body, &[]).expect(200).json();
    assert_eq!(answer["accepted"], count);
    assert_eq!(client.readings(UPLINK_SENSOR, "limit=10000").len(), count);
}

#[test]
fn unknown_mappings_and_bad_messages_are_refused() {
    let client = client("ingest-refused");
    let unknown = http::post(&client.url("/api/v1/ingest/thermometer", ""), "{}", &[]).expect(404);
    assert!(
        unknown.text().contains("there is no mapping") && unknown.text().contains("chirpstack"),
        "{}",
        unknown.text()
    );
    let url = client.url("/api/v1/ingest/chirpstack", "");
    for bad in ["{", r#"{"rxInfo":[]}"#] {
        let refused = http::post(&url, bad, &[]).expect(400).json();
        assert_eq!((&refused["accepted"], refused["rejected"].as_array().map(Vec::len)), (&json!(0), Some(1)), "{bad}");
    }
    http::post(&client.url("/api/v1/ingest/chirpstack", "precision=s"), UPLINK, &[]).expect(400);
}

const PLUG: &str = r#"name = "plug"
measurement = "plug"
tags = { device = { topic = 2 } }
topics = ["plugs/+"]
fields = [{ path = "/watts", type = "float" }]
"#;

fn put_mapping(client: &super::Client<'_>, name: &str, text: &str) -> Answer {
    request("PUT", &client.url(&format!("/api/v1/mappings/{name}"), ""), text.as_bytes(), &[]).unwrap()
}

fn remove_mapping(client: &super::Client<'_>, name: &str) -> Answer {
    request("DELETE", &client.url(&format!("/api/v1/mappings/{name}"), ""), b"", &[]).unwrap()
}

/// The text of a mapping and whether it is built in.
fn listed(client: &super::Client<'_>, name: &str) -> Option<(String, bool)> {
    let answer = client.get("/api/v1/mappings", "").expect(200).json();
    let found = answer["mappings"].as_array().unwrap().iter().find(|mapping| mapping["name"] == name)?.clone();
    Some((found["text"].as_str().unwrap().to_owned(), found["built_in"] == true))
}

#[test]
fn a_database_has_mappings_of_its_own() {
    let client = client("ingest-own");
    let parameters = "topic=plugs/p1";
    let ingest =
        |name: &str| http::post(&client.url(&format!("/api/v1/ingest/{name}"), parameters), r#"{"watts":"7"}"#, &[]);
    ingest("plug").expect(404);
    assert_eq!(
        put_mapping(&client, "plug", PLUG).expect(200).json(),
        json!({"name": "plug", "built_in": false, "text": PLUG})
    );
    ingest("plug").expect(200);
    assert_eq!(client.readings("plug,device=p1", "fields=watts")[0]["watts"], 7.0);
    assert_eq!(listed(&client, "plug"), Some((PLUG.to_owned(), false)));
    // Another database does not have it.
    let other = super::client("ingest-own-2");
    http::post(&other.url("/api/v1/ingest/plug", parameters), "{}", &[]).expect(404);
    assert_eq!(listed(&other, "plug"), None);
    // Replace it, in JSON.
    let json = r#"{"name":"plug","measurement":"meter","fields":[{"path":"/watts"}]}"#;
    put_mapping(&client, "plug", json).expect(200);
    let explained =
        http::post(&client.url("/api/v1/explain", "mapping=plug"), r#"{"watts":7}"#, &[]).expect(200).json();
    assert_eq!(explained["lines"][0]["sensor"], "meter", "{explained}");
    remove_mapping(&client, "plug").expect(204);
    ingest("plug").expect(404);
    remove_mapping(&client, "plug").expect(404);
}

#[test]
fn an_own_mapping_hides_the_built_in_one() {
    let client = client("ingest-hides");
    let explain = || {
        let url = client.url("/api/v1/explain", "mapping=plain&topic=home/lab/temp");
        http::post(&url, "21.5", &[]).expect(200).json()["lines"][0]["sensor"].clone()
    };
    assert_eq!((explain(), listed(&client, "plain").unwrap().1), (json!("home,room=lab"), true));
    let text = "name = \"plain\"\nbody = \"plain\"\nmeasurement = \"mine\"\nfields = [{ path = \"\", name = \"v\" }]\n";
    put_mapping(&client, "plain", text).expect(200);
    assert_eq!((explain(), listed(&client, "plain").unwrap().1), (json!("mine"), false));
    remove_mapping(&client, "plain").expect(204);
    assert_eq!(explain(), json!("home,room=lab"));
}

#[test]
fn a_mapping_with_a_mistake_is_refused_with_its_place() {
    let client = client("ingest-mistakes");
    for (name, text, expected) in [
        ("plug", "name = \"plug\"\nmeasurement = \n", "line 2, column 15"),
        ("plug", "{\"name\": \"plug\",\n \"fields\": 7}", "line 2 column 12"),
        ("plug", &*PLUG.replace("type", "kind"), "unknown field `kind`"),
        ("plug", &*PLUG.replace("topic = 2", "topic = 3"), "tags.device: topic level 3, but \"plugs/+\" has 2 levels"),
        ("plug", &*PLUG.replace("float", "number"), "line 5, column 37"),
        ("other", PLUG, "the mapping is named \"plug\", but the path names \"other\""),
        ("plug", &*format!("{PLUG}#{}", "x".repeat(65 << 10)), "the maximum of a mapping"),
    ] {
        let refused = put_mapping(&client, name, text);
        assert!([400, 413].contains(&refused.status), "{}", refused.status);
        let error = refused.json()["error"].as_str().unwrap().to_owned();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let policy = super::client("ingest-mistakes/week");
    assert!(put_mapping(&policy, "plug", PLUG).expect(400).text().contains("is a retention policy"));
}

/// The limits are `MAPPINGS_MAX` and `MAPPINGS_BYTES_MAX`.
#[test]
fn own_mappings_are_bounded() {
    let client = client("ingest-bounded");
    let named =
        |number: usize, bytes: usize| PLUG.replace("\"plug\"", &format!("\"plug-{number}\"")) + &"#".repeat(bytes);
    for number in 0..32 {
        put_mapping(&client, &format!("plug-{number}"), &named(number, 0)).expect(200);
    }
    assert!(put_mapping(&client, "plug-32", &named(32, 0)).expect(400).text().contains("more than 32 own mappings"));
    put_mapping(&client, "plug-0", &named(0, 50 << 10)).expect(200);
    let refused = put_mapping(&client, "plug-1", &named(1, 20 << 10)).expect(400);
    assert!(refused.text().contains("exceed the limit of 65536"), "{}", refused.text());
    assert_eq!(listed(&client, "plug-1"), Some((named(1, 0), false)));
}

/// Regression: a rejected message was kept without its mapping and topic, so that it was read as plain JSON when it was
/// sent again.
#[test]
fn a_rejected_message_keeps_its_mapping_and_topic() {
    let client = client("ingest-kept");
    let body = r#"{"measurement":"m","fields":{"v":1},"rxInfo":[]}"#;
    http::post(&client.url("/api/v1/ingest/chirpstack", "topic=a/b"), body, &[]).expect(400);
    let kept = client.get("/api/v1/rejections", "").expect(200).json()["rejections"][0].clone();
    assert_eq!(
        (&kept["mapping"], &kept["topic"], &kept["text"]),
        (&json!("chirpstack"), &json!("a/b"), &json!(body)),
        "{kept}"
    );
    let exported = client.get("/api/v1/rejections", "format=lp").expect(200).text().to_owned();
    assert!(exported.lines().all(|line| line.starts_with("# ")), "{exported}");
    assert!(exported.contains("mapping chirpstack, topic a/b") && exported.contains(body), "{exported}");
    client.write("bad").expect(400);
    let kept = client.get("/api/v1/rejections", "").expect(200).json()["rejections"][0].clone();
    assert!(kept.get("mapping").is_none() && kept.get("topic").is_none(), "{kept}");
}

#[test]
fn commands_store_show_and_try_mappings() {
    let client = client("ingest-commands");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plug.toml");
    let message = folder.path().join("message.json");
    fs::write(&file, PLUG).unwrap();
    fs::write(&message, r#"{"watts":"7"}"#).unwrap();
    let service = ["--db", "ingest-commands", "--server", &client.server.url("")];
    let run = |words: &[&str]| hourglass(&[words, &service[..]].concat()).expect_success().stdout;
    run(&["mapping", "set", "plug", path(&file)]);
    let listed = run(&["mapping", "list"]);
    assert!(listed.lines().any(|line| line.starts_with("plug ") && line.ends_with(" false")), "{listed}");
    assert_eq!(run(&["mapping", "show", "plug"]), PLUG);
    let explained = run(&["explain", "--mapping", "plug", "--topic", "plugs/p1", path(&message)]);
    assert!(explained.contains("plug,device=p1") && explained.contains("watts=7"), "{explained}");
    run(&["mapping", "remove", "plug"]);
    // Without a service.
    let tried =
        hourglass(&["mapping", "try", path(&file), path(&message), "--topic", "plugs/p1"]).expect_success().stdout;
    assert!(tried.contains("reading: plug,device=p1 with 1 fields at its arrival"), "{tried}");
    assert!(hourglass(&["mapping", "try", "chirpstack"]).expect_success().stdout.contains("is valid"));
    fs::write(&file, "name = 7").unwrap();
    assert!(hourglass(&["mapping", "try", path(&file)]).stderr.contains("line 1"));
}
