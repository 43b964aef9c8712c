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
    let unknown = http::post(&client.url("/api/v1/ingest/thermometer", ""), "{}", &[]).expect(400);
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
