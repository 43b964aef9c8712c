//! docs/reference/mappings.md: a message of each built-in mapping as its maker documents it, its reading, and the
//! document in MongoDB. The page is checked in, and the test makes it again.

use hourglass::mapping::builtin;

use crate::support::prelude::*;

const PAGE: &str = "docs/reference/mappings.md";

const HEAD: &str = "\
# Built-in mappings

What becomes of a message as its maker documents it. [Device
messages](../how-to/device-messages.md) says how to send one, and how to write a mapping. To see
what becomes of your own messages:

```console
hourglass explain message.json --mapping chirpstack
```

For each mapping, the page shows the topic and the message, the reading, and its document in MongoDB
without the members that [every page](stored-forms.md) has, such as `summary`. A message without a
time gets that of its arrival.
";

/// A message as the maker of a device or service documents it.
struct Sample {
    mapping: &'static str,
    /// The page of the maker's documentation.
    source: &'static str,
    topic: &'static str,
    message: &'static str,
}

const SAMPLES: &[Sample] = &[
    Sample {
        mapping: "chirpstack",
        source: "ChirpStack documentation, \"Event types\", shortened",
        topic: "application/17c82e96/device/0101010101010101/event/up",
        message: r#"{"time": "2022-07-18T09:34:15.775023242+00:00",
 "deviceInfo": {"tenantName": "ChirpStack", "applicationName": "Test application",
  "deviceName": "Test device", "devEui": "0101010101010101", "tags": {"key": "value"}},
 "devAddr": "00189440", "adr": true, "dr": 1, "fCnt": 4, "fPort": 1, "confirmed": false, "data": "qg==",
 "object": {"temperatureSensor": {"1": 25.5}, "motion": true},
 "rxInfo": [{"gatewayId": "0016c001f153a14c", "rssi": -36, "snr": 10.5}],
 "txInfo": {"frequency": 868100000}}"#,
    },
    Sample {
        mapping: "esphome-binary",
        source: "ESPHome documentation, \"MQTT Client Component\"",
        topic: "livingroom/switch/relay/state",
        message: "ON",
    },
    Sample {
        mapping: "esphome-sensor",
        source: "ESPHome documentation, \"MQTT Client Component\"",
        topic: "livingroom/sensor/bme_temp/state",
        message: "23.40",
    },
    Sample {
        mapping: "homeassistant-statestream",
        source: "Home Assistant documentation, \"MQTT Statestream\"",
        topic: "homeassistant/light/master_bedroom_dimmer/state",
        message: "on",
    },
    Sample {
        mapping: "owntracks",
        source: "OwnTracks Booklet, \"JSON\"",
        topic: "owntracks/jane/phone",
        message: r#"{"_type": "location", "acc": 75, "alt": 13, "batt": 88, "lat": 48.856826, "lon": 2.292713,
 "tid": "JJ", "tst": 1376715317, "vac": 10, "vel": 54, "conn": "w", "inregions": ["home"]}"#,
    },
    Sample { mapping: "plain", source: "a value per topic", topic: "home/lab/temp", message: "21.5" },
    Sample {
        mapping: "shelly-rpc",
        source: "Shelly technical documentation, \"Notifications\"",
        topic: "shellypro4pm-f008d1d8b8b8/events/rpc",
        message: r#"{"src": "shellypro4pm-f008d1d8b8b8", "dst": "shellypro4pm-f008d1d8b8b8/events",
 "method": "NotifyStatus",
 "params": {"ts": 1631186545.04, "switch:0": {"id": 0, "output": true, "source": "button"}}}"#,
    },
    Sample {
        mapping: "shelly-status",
        source: "Shelly technical documentation, \"Switch\"",
        topic: "shellyplus1pm-a8032abe54dc/status/switch:0",
        message: r#"{"id": 0, "source": "WS_in", "output": false, "apower": 0, "voltage": 225.9, "current": 0,
 "freq": 50, "aenergy": {"total": 11.679, "by_minute": [0, 0, 0], "minute_ts": 1654511972},
 "temperature": {"tC": 53.3, "tF": 127.9}}"#,
    },
    Sample {
        mapping: "tasmota-sensor",
        source: "Tasmota documentation, \"Matter\"",
        topic: "tele/tasmota/SENSOR",
        message: r#"{"Time": "2023-05-28T20:04:27", "SCD40": {"CarbonDioxide": 618, "eCO2": 623,
 "Temperature": 23.8, "Humidity": 61.1, "DewPoint": 15.8}, "TempUnit": "C"}"#,
    },
    Sample {
        mapping: "tasmota-state",
        source: "Tasmota documentation, \"MQTT\"",
        topic: "tele/tasmota_9CF9D1/STATE",
        message: r#"{"Time": "2024-02-24T22:20:38", "Uptime": "0T00:10:11", "UptimeSec": 611, "Heap": 24,
 "SleepMode": "Dynamic", "Sleep": 50, "LoadAvg": 19, "MqttCount": 1, "POWER": "OFF",
 "Wifi": {"AP": 1, "SSId": "net", "BSSId": "E6:8D:8C:4B:BE:F7", "Channel": 3, "Mode": "11n",
  "RSSI": 44, "Signal": -78, "LinkCount": 1, "Downtime": "0T00:00:05"}}"#,
    },
    Sample {
        mapping: "the-things-stack",
        source: "The Things Stack documentation, \"Data Formats\", shortened",
        topic: "v3/app1@tenant1/devices/dev1/up",
        message: r#"{"end_device_ids": {"device_id": "dev1", "application_ids": {"application_id": "app1"}},
 "received_at": "2020-02-12T15:15:46.787Z",
 "uplink_message": {"f_port": 1, "f_cnt": 42, "frm_payload": "gkHe",
  "decoded_payload": {"temperature": 1.0, "luminosity": 0.64},
  "rx_metadata": [{"gateway_ids": {"gateway_id": "gtw1"}, "rssi": -35, "channel_rssi": -35, "snr": 5}],
  "received_at": "2020-02-12T15:15:46.583379831Z"}}"#,
    },
    Sample {
        mapping: "zigbee2mqtt",
        source: "Zigbee2MQTT documentation, \"MQTT Topics and Messages\"",
        topic: "zigbee2mqtt/my bulb",
        message: r#"{"state": "ON", "brightness": 215, "color_temp": 325, "color": {"x": 0.123, "y": 0.123},
 "update": {"state": "idle"}}"#,
    },
];

#[test]
fn the_page_of_built_in_mappings_is_current() {
    let names = builtin::all().iter().map(|mapping| &*mapping.name);
    assert!(names.eq(SAMPLES.iter().map(|sample| sample.mapping)), "each built-in mapping has a sample, in this order");
    let store = mongod().uri(&fresh_database_name());
    let server = Launch::with_store(&store).config("[seal]\nform = \"off\"\n").start();
    let mut page = HEAD.to_owned();
    for sample in SAMPLES {
        page += &section(&server, &store, sample);
    }
    let kept = root().join(PAGE);
    if fs::read_to_string(&kept).unwrap_or_default() != page {
        let renewed = root().join("target/mappings.md");
        fs::write(&renewed, page).unwrap();
        panic!("{PAGE} is outdated: copy {} over it", renewed.display());
    }
}

/// Stores the message of a sample, and returns its section.
fn section(server: &Server, store: &str, sample: &Sample) -> String {
    let Sample { mapping, source, topic, message } = sample;
    let url = |path: &str, more: &str| server.url(&format!("{path}?db={mapping}&topic={}{more}", encode(topic)));
    let explained = post(&url("/api/v1/explain", &format!("&mapping={mapping}")), *message, &[]).expect(200).json();
    let line = &explained["lines"][0];
    let is_undated = line["undated"] == true;
    let sensor = line["sensor"].as_str().unwrap_or_else(|| panic!("{mapping}: {explained}"));
    let fields = line["fields"].as_array().unwrap();
    let fields: Vec<String> =
        fields.iter().map(|field| format!("{}={}", field["name"].as_str().unwrap(), field["value"])).collect();
    let time = if is_undated { "(arrival)" } else { line["time"].as_str().unwrap() };
    let stored = post(&url(&format!("/api/v1/ingest/{mapping}"), ""), *message, &[]).expect(200).json();
    assert_eq!(stored["accepted"], 1, "{mapping}: {stored}");
    flush(server);
    let page = find(store, &format!("{mapping}.buckets"), doc! {}).pop().expect("a page");
    let mut id = page.get_str("_id").unwrap().to_owned();
    let mut reading = page.get_array("readings").unwrap()[0].as_document().unwrap().clone();
    if is_undated {
        let (_, rest) = id.split_once(' ').unwrap();
        id = format!("(hour of arrival) {rest}");
        reading.insert("ts", doc! { "$date": "(arrival)" });
        reading.remove("ns");
    }
    let language = if message.starts_with('{') { "json" } else { "" };
    format!(
        "\n## {mapping}\n\nSource: {source}.\nTopic: `{topic}`.\n\n```{language}\n{message}\n```\n\n```\n{sensor}\n{}\n{time}\n```\n\n\
         ```json\n{{\"_id\": {},\n \"readings\": [{}]}}\n```\n",
        fields.join("\n"),
        json!(id),
        wrapped(&reading),
    )
}

/// Prints a reading on lines of at most 90 characters or one member.
fn wrapped(reading: &Document) -> String {
    let shown = |value: &Bson| match value {
        Bson::DateTime(time) => json!({ "$date": time.try_to_rfc3339_string().unwrap() }),
        Bson::Document(time) => json!({ "$date": time.get_str("$date").unwrap() }),
        Bson::Double(number) => json!(number),
        Bson::Int32(number) => json!(number),
        Bson::Int64(number) => json!(number),
        Bson::Boolean(flag) => json!(flag),
        Bson::String(text) => json!(text),
        other => panic!("{other:?}"),
    };
    let members: Vec<String> =
        reading.iter().map(|(name, value)| format!("{}: {}", json!(name), shown(value))).collect();
    let mut text = "{".to_owned();
    let mut length = 0;
    for (index, member) in members.iter().enumerate() {
        if index > 0 {
            let is_full = length + member.len() > 90;
            text += if is_full { ",\n   " } else { ", " };
            length = if is_full { 0 } else { length };
        }
        length += member.len();
        text += member;
    }
    text + "}"
}
