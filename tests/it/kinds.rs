//! Kinds of sensors: readings and metadata are validated by them; existing metadata stays.

mod exempt;
mod unique;

use crate::support::prelude::*;

const T: u64 = 1_768_489_200;

const KINDS: &str = r#"
[sensors]
write_interval = "50ms"

[[kinds]]
name = "thermometer"
measurement = "climate"
action = "reject"
interval = "1s"
units = { temp = "°C" }
fields = { required = ["temp"], properties = { temp = { type = "number", minimum = -60, maximum = 120 } } }
meta = { required = ["site"], properties = { site = { type = "string", pattern = "^[a-z]+$" } } }

[[kinds]]
name = "meter"
fields = { properties = { total = { type = "integer", minimum = 0 }, state = { enum = ["on", "off"] } } }
meta = { properties = { floor = { type = "integer" } } }
"#;

fn write(server: &Server, lines: &str) -> Answer {
    post(&server.url("/write?db=d&precision=s"), lines, &[])
}

fn warning(answer: &Answer) -> String {
    answer.header("x-hourglass-warning").unwrap_or_default().to_owned()
}

#[test]
fn readings_are_validated_by_the_kind_of_their_sensor() {
    for store in stores() {
        let mut server = Launch::with_store(store).config(KINDS).start();
        // By measurement, with rejection; other lines are kept.
        let answer =
            write(&server, &format!("climate,s=1 temp=20 {T}\nclimate,s=1 temp=999 {}\nfree,s=1 x=1 {T}\n", T + 1));
        let refusal = answer.text();
        assert_eq!(answer.status, 400, "{refusal}");
        assert!(
            refusal.contains("thermometer") && refusal.contains("temp") && refusal.contains("above the maximum 120"),
            "{refusal}"
        );
        let rejections = get(&server.url("/api/v1/rejections?db=d")).expect(200).text().to_owned();
        assert!(rejections.contains("\"kind\""), "its code: {rejections}");
        let missing = write(&server, &format!("climate,s=1 other=1 {T}\n")).expect(400).text().to_owned();
        assert!(missing.contains("is missing"), "{missing}");
        assert!((metric(&server, "hourglass_ingest_readings_rejected_total{reason=\"kind\"}") - 2.0).abs() < 0.5);
        // By metadata, with a warning; metadata may follow the first reading.
        let plain = write(&server, &format!("m,s=1 total=-1i {T}\n")).expect(204);
        assert_eq!(warning(&plain), "");
        describe(&server, "PUT", "m,s=1", &json!({"kind": "meter"})).expect(200);
        let line = format!("m,s=1 total=-1i,state=\"on\" {}\nm,s=1 state=\"broken\" {}\n", T + 1, T + 2);
        let warned = write(&server, &line).expect(204);
        assert!(warning(&warned).contains("2 readings") && warning(&warned).contains("meter"), "{}", warning(&warned));
        assert!(metric(&server, "hourglass_ingest_readings_unlike_kind_total") > 1.5);
        let explained = post(&server.url("/api/v1/explain?db=d&precision=s"), &line, &[]).expect(200).text().to_owned();
        assert!(explained.contains("the kind meter says"), "{explained}");
        // The kind is known after a kill.
        server.kill_and_restart();
        wait_until("a warning again", || {
            let answer = write(&server, &line);
            answer.status == 204 && warning(&answer).contains("meter")
        });
        describe(&server, "PATCH", "m,s=1", &json!({"kind": null})).expect(200);
        assert_eq!(warning(&write(&server, &line).expect(204)), "", "it is of no kind any more");
        describe(&server, "PATCH", "m,s=1", &json!({"kind": "thermometer", "site": "lab"})).expect(200);
        write(&server, &line).expect(400);
        let count = server.fetch("/query?db=d&q=SELECT%20count(total)%20FROM%20m");
        assert_eq!(count["results"][0]["series"][0]["values"][0][1], 2, "{count}");
    }
}

#[test]
fn metadata_is_validated_by_its_kind_unless_it_was_invalid_before() {
    for store in stores() {
        let mut server = Launch::with_store(store.clone()).start();
        // From before there were kinds.
        describe(&server, "PUT", "climate,s=old", &json!({"site": "LAB", "n": 1})).expect(200);
        server.stop();
        server.restart_as(Launch::with_store(store).config(KINDS));
        let refused = describe(&server, "PUT", "climate,s=1", &json!({"site": "LAB"})).expect(400).text().to_owned();
        assert!(refused.contains("thermometer") && refused.contains("site"), "{refused}");
        describe(&server, "PUT", "climate,s=1", &json!({"owner": "x"})).expect(400);
        describe(&server, "PUT", "climate,s=1", &json!({"site": "lab"})).expect(200);
        describe(&server, "PATCH", "climate,s=1", &json!({"site": null})).expect(400);
        // Invalid metadata may stay, change and be corrected; then its kind applies.
        describe(&server, "PATCH", "climate,s=old", &json!({"n": 2})).expect(200);
        describe(&server, "PATCH", "climate,s=old", &json!({"site": "lab"})).expect(200);
        describe(&server, "PATCH", "climate,s=old", &json!({"site": "LAB"})).expect(400);
        // First metadata of a sensor is new, with or without readings.
        write(&server, &format!("climate,s=4 temp=20 {T}\n")).expect(204);
        describe(&server, "PATCH", "climate,s=4", &json!({"owner": "Kim"})).expect(400);
        describe(&server, "PATCH", "climate,s=4", &json!({"owner": "Kim", "site": "lab"})).expect(200);
        let warned = describe(&server, "PUT", "m,s=1", &json!({"kind": "meter", "floor": "third"})).expect(200);
        assert!(warning(&warned).contains("floor"), "{}", warning(&warned));
        let lines = "{\"sensor\":\"climate,s=2\",\"meta\":{\"site\":\"roof\"}}\n{\"sensor\":\"climate,s=3\",\"meta\":{\"site\":3}}\n";
        let refusal = post(&server.url("/api/v1/meta?db=d"), lines, &[]).expect(400).json();
        assert_eq!((&refusal["changed"], &refusal["rejected"]), (&json!(1), &json!(1)), "{refusal}");
        // The list shows kind and units.
        let listed = server.fetch("/api/v1/sensors?db=d");
        let listed_sensor =
            |key: &str| listed["sensors"].as_array().unwrap().iter().find(|one| one["sensor"] == key).unwrap().clone();
        assert_eq!(
            (&listed_sensor("climate,s=1")["kind"], &listed_sensor("climate,s=1")["units"]["temp"]),
            (&json!("thermometer"), &json!("°C"))
        );
        assert_eq!(listed_sensor("m,s=1")["kind"], "meter");
    }
}

#[test]
fn a_sensor_is_silent_after_three_intervals_of_its_kind() {
    let server = Launch::embedded().config(KINDS).start();
    write(&server, "climate,s=1 temp=20\nfree,s=1 x=1\n").expect(204);
    wait_until("it is silent", || {
        let listed = server.fetch("/api/v1/sensors?db=d&silent=true");
        listed["sensors"].as_array().unwrap().len() == 1 && listed["sensors"][0]["sensor"] == "climate,s=1"
    });
    wait_until("the metric shows it", || (metric(&server, "hourglass_ingest_sensors_silent") - 1.0).abs() < 0.5);
}

#[test]
fn an_invalid_kind_is_a_configuration_problem() {
    for (config, why) in [
        ("[[kinds]]\nmeasurement = \"m\"\n", "name"),
        ("[[kinds]]\nname = \"a\"\n[[kinds]]\nname = \"a\"\n", "two kinds"),
        ("[[kinds]]\nname = \"a\"\nfields = { \"$ref\" = \"#/x\" }\n", "$ref is not supported"),
        ("[[kinds]]\nname = \"a\"\nfields = { properties = { x = { pattern = \"(\" } } }\n", "pattern"),
        ("[[kinds]]\nname = \"a\"\ninterval = \"soon\"\n", "not a duration"),
        ("[[kinds]]\nname = \"a\"\naction = \"drop\"\n", "drop"),
        (
            "[[kinds]]\nname = \"a\"\nbuckets = { x = [2, 1] }\n",
            "buckets.x is not a list of 1 to 64 finite, ascending numbers",
        ),
        ("[[kinds]]\nname = \"a\"\nbuckets = { x = [] }\n", "buckets.x is not"),
        ("[[kinds]]\nname = \"a\"\nbuckets = { x = [nan] }\n", "buckets.x is not"),
        ("[[kinds]]\nname = \"a\"\nunit = \"K\"\n", "unit"),
        ("[[meta.copy]]\nnames = \"a\"\n", "names"),
        ("[[meta.copy]]\nname = \"\"\n", "name is empty"),
        ("kinds = 3\n", "kinds"),
        ("[[groups]]\nname = \"a b\"\nby = \"site\"\n", "letters, digits"),
        ("[[groups]]\nname = \"a\"\nby = \"meta.\"\n", "by is empty"),
        ("[[groups]]\nname = \"a\"\n", "by"),
        ("[[groups]]\nname = \"a\"\nby = \"s\"\n[[groups]]\nname = \"a\"\nby = \"t\"\n", "two groups"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kinds.toml");
        std::fs::write(&file, config).unwrap();
        let refusal = hourglass(&["config", "check", "--config", path(&file)]);
        assert!(refusal.status != Some(0) && refusal.output().contains(why), "{config}: {refusal:?}");
    }
}

/// Regression: a reading with a new field read the sensor document with the old kind and reverted the change.
#[test]
fn a_changed_kind_applies_before_and_after_its_flush() {
    let halt = Halt::new();
    let launch = Launch::embedded().config(KINDS);
    let server = halt.launch(launch, "writing_documents").start();
    describe(&server, "PUT", "m,s=1", &json!({"kind": "meter", "site": "lab"})).expect(200);
    write(&server, &format!("m,s=1 total=1i {T}\n")).expect(204);
    flush(&server);
    halt.set();
    let url = server.url("/api/v1/sensors/m%2Cs%3D1/meta?db=d");
    request("PATCH", &url, br#"{"kind":"thermometer"}"#, &[]).unwrap().expect(200);
    let line = format!("m,s=1 temp=20,extra=1 {}\n", T + 1);
    let stored = [("x-hourglass-ack", "store")];
    post(&server.url("/write?db=d&precision=s"), &line, &stored).expect(204);
    let without = |time: u64| write(&server, &format!("m,s=1 total=1i {time}\n")).expect(400).text().to_owned();
    assert!(without(T + 2).contains("is missing"));
    halt.lift();
    flush(&server);
    assert!(without(T + 3).contains("is missing"));
}

/// Regression: after a rename of a measurement, readings used the kind of the old name, lists that of the new one.
#[test]
fn a_rename_keeps_the_kind() {
    let config = format!("{KINDS}[[groups]]\nname = \"all\"\nby = \"s\"\n");
    for store in stores() {
        let mut server = Launch::with_store(store).config(&config).start();
        write(&server, &format!("climate,s=1 temp=20 {T}\n")).expect(204);
        let rule = json!({"kind": "measurement", "from": "climate", "to": "weather"});
        request("PUT", &server.url("/api/v1/renames?db=d"), rule.to_string().as_bytes(), &[]).unwrap().expect(200);
        let silent = || server.fetch("/api/v1/sensors?db=d&silent=true")["sensors"].clone();
        let refusal = eventually("the metric counts it", || {
            (metric(&server, "hourglass_ingest_sensors_silent") > 0.5).then(silent)
        });
        assert_eq!(
            (&refusal[0]["sensor"], &refusal[0]["kind"]),
            (&json!("weather,s=1"), &json!("thermometer")),
            "{refusal}"
        );
        assert_eq!(refusal[0]["units"], json!({"temp": "°C"}), "{refusal}");
        let of_group = server.fetch("/api/v1/groups/all/1?db=d");
        assert_eq!(of_group["sensors"][0]["kind"], "thermometer", "{of_group}");
        write(&server, &format!("climate,s=1 temp=999 {}\n", T + 1)).expect(400);
        for key in ["climate,s=1", "weather,s=1"] {
            describe(&server, "PUT", key, &json!({"site": "LAB"})).expect(400);
        }
        // A new sensor gets the stored name and the kind of either name.
        write(&server, &format!("weather,s=2 temp=999 {T}\n")).expect(400);
        server.stop();
    }
}

/// The kind of a sensor is metadata in queries, also where its measurement decides.
#[test]
fn queries_choose_sensors_by_their_kind() {
    for store in stores() {
        let server = Launch::with_store(store).config(KINDS).start();
        describe(&server, "PUT", "m,s=1", &json!({"kind": "meter"})).expect(200);
        describe(&server, "PUT", "climate,s=2", &json!({"site": "lab", "kind": "other"})).expect(200);
        write(
            &server,
            &format!("climate,s=1 temp=20 {T}\nclimate,s=2 temp=30 {T}\nm,s=1 total=7i {T}\nfree,s=1 x=1 {T}\n"),
        )
        .expect(204);
        for _ in 0..2 {
            let readings = |query: &str| get(&server.url(&format!("/api/v1/readings?db=d&{query}&from=0"))).expect(200);
            let answer = readings("measurement=climate&tag.meta.kind=thermometer").text().to_owned();
            assert!(answer.contains("20") && !answer.contains("30"), "{answer}");
            let answer = readings("sensor=climate,s=1").text().to_owned();
            assert!(answer.contains("20"), "{answer}");
            let by_kind = influxql(&server, "SELECT count(temp) FROM climate GROUP BY \"meta.kind\"");
            let kinds: Vec<&Value> =
                by_kind.as_array().unwrap().iter().map(|series| &series["tags"]["meta.kind"]).collect();
            assert_eq!(kinds, [&json!("other"), &json!("thermometer")], "{by_kind}");
            let values = server.fetch("/api/v1/tags/meta.kind?db=d").to_string();
            assert!(values.contains("meter") && values.contains("thermometer"), "{values}");
            flush(&server);
        }
    }
}
