//! `/api/v1/databases/NAME`.

use crate::support::prelude::*;

use super::{CONFIG, DAY, HOUR, STORES, ask, database_settings, start};

fn dry_run(server: &Server, name: &str, body: &str) -> Value {
    let url = server.url(&format!("/api/v1/databases/{name}?dry_run=true"));
    request("PATCH", &url, body.as_bytes(), &[]).expect("an answer").expect(200).json()
}

#[test]
fn settings_survive_a_restart() {
    for store in STORES {
        let mut server = start(&store());
        let body = r#"{"readings":"30d"}"#;
        let answer = server.set("w", body).expect(200).json();
        assert_eq!(answer, database_settings(&server, "w"));
        let midnight = (now() - 30 * DAY).div_euclid(DAY);
        let before = answer["expired_before"].as_str().expect("a time").to_owned();
        let expected = json!({
            "name": "w", "readings": "720h", "summaries": null, "default": null, "kept": "720h",
            "seal_form": null, "sealed_as": "packed", "drift": null, "drift_as": "reject",
            "expired_before": before, "policies": [],
        });
        assert_eq!(answer, expected);
        assert!(before.ends_with("T00:00:00Z") && midnight > 0, "{before}");
        // The database exists with its settings.
        let databases = ask(&server, "", "SHOW DATABASES");
        assert_eq!(databases["series"][0]["values"], json!([["w"]]));
        server.stop_and_restart();
        assert_eq!(database_settings(&server, "w")["readings"], "720h");
        assert_eq!(server.set("w", "{}").expect(200).json()["kept"], "720h");
        assert_eq!(server.set("w", r#"{"readings":null}"#).expect(200).json()["kept"], "inf");
        assert_eq!(server.set("w/week", r#"{"readings":"7d"}"#).expect(200).json()["kept"], "168h");
        let answer = server.set("w", r#"{"readings":"inf","default":"week"}"#).expect(200).json();
        assert_eq!(answer["policies"], json!([{"name": "week", "readings": "168h", "kept": "168h"}]));
        assert_eq!((&answer["readings"], &answer["default"]), (&json!("inf"), &json!("week")));
    }
}

/// Regression: a PUT of one setting reset the others, so readings expired within seconds.
#[test]
fn omitted_settings_stay() {
    let config = CONFIG.replace("[retention]", "[retention]\nreadings = \"2d\"");
    let server = Launch::embedded().config(config).start();
    server.set("w/week", r#"{"readings":"7d"}"#).expect(200);
    let all = [
        ("readings", "\"inf\""),
        ("summaries", "\"inf\""),
        ("default", "\"week\""),
        ("seal_form", "\"columns\""),
        ("drift", "\"keep\""),
    ];
    let mut expected = database_settings(&server, "w");
    for (key, value) in all {
        let body = format!("{{\"{key}\":{value}}}");
        let preview = dry_run(&server, "w", &body);
        assert!(preview["before"].is_null(), "{body}: {preview}");
        server.set("w", &body).expect(200);
        expected[key] = serde_json::from_str(value).expect("JSON");
        let found = database_settings(&server, "w");
        for (key, _) in all {
            assert_eq!(found[key], expected[key], "{key} after {body}");
        }
    }
    assert_eq!(server.set("w", r#"{"readings":null}"#).expect(200).json()["kept"], "48h");
    assert_eq!(database_settings(&server, "w")["drift"], "keep");
}

/// Regression: PUT changed single settings, which only PATCH should. A client that replaces them must not lose readings
/// because it does not know a key.
#[test]
fn a_put_replaces_all_settings_unless_data_would_be_lost() {
    let config = CONFIG.replace("[retention]", "[retention]\nreadings = \"2d\"");
    let server = Launch::embedded().config(config).start();
    let put = |parameters: &str, body: &str| {
        let url = server.url(&format!("/api/v1/databases/w{parameters}"));
        request("PUT", &url, body.as_bytes(), &[]).expect("an answer")
    };
    server.set("w/week", r#"{"readings":"7d"}"#).expect(200);
    let all = r#"{"readings":"30d","summaries":"inf","default":"week","seal_form":"columns","drift":"keep"}"#;
    let set = put("", all).expect(200).json();
    for (body, key) in [
        ("{}", "readings"),
        (r#"{"drift":"reject"}"#, "readings"),
        (r#"{"summaries":"inf"}"#, "readings"),
        (r#"{"readings":"90d"}"#, "summaries"),
    ] {
        for parameters in ["", "?dry_run=true"] {
            let refused = put(parameters, body).expect(400).json();
            let text = refused["error"].as_str().expect("a text");
            assert!(text.starts_with(&format!("{key} is not sent")) && text.contains("PATCH"), "{body}: {refused}");
        }
    }
    assert_eq!(database_settings(&server, "w"), set);
    let replaced = put("", r#"{"readings":"10d","summaries":null}"#).expect(200).json();
    let shown = ["readings", "summaries", "default", "seal_form", "drift"].map(|key| replaced[key].clone());
    assert_eq!(shown, [json!("240h"), json!(null), json!(null), json!(null), json!(null)], "{replaced}");
    // A default that keeps more is no loss.
    server.set("w", r#"{"readings":"1d"}"#).expect(200);
    assert_eq!(put("", "{}").expect(200).json()["kept"], "48h");
}

/// Regression: a PATCH between the check and the write of a PUT was lost, and with it readings.
#[test]
fn a_put_does_not_undo_a_change_that_it_did_not_see() {
    let config = CONFIG.replace("[retention]", "[retention]\nreadings = \"2d\"");
    let halt = Halt::already_set();
    let server = halt.launch(Launch::embedded().config(config), "replacing_settings").start();
    server.set("w", r#"{"drift":"keep"}"#).expect(200);
    std::thread::scope(|scope| {
        let url = server.url("/api/v1/databases/w");
        let put = scope.spawn(move || request("PUT", &url, b"{}", &[]).expect("an answer"));
        halt.await_met("it is checked");
        server.set("w", r#"{"readings":"30d"}"#).expect(200);
        halt.lift();
        let refused = put.join().expect("an answer").expect(400).json();
        assert!(refused["error"].as_str().is_some_and(|text| text.starts_with("readings is not sent")), "{refused}");
    });
    let left = database_settings(&server, "w");
    assert_eq!((&left["readings"], &left["drift"]), (&json!("720h"), &json!("keep")));
}

/// Regression: a PUT of the values shown by GET shortened the retention of summaries.
#[test]
fn returned_settings_can_be_sent_back() {
    let config = CONFIG.replace("[retention]", "[retention]\nsummaries = \"3650d\"");
    let server = Launch::embedded().config(config).start();
    for set in [
        r#"{"readings":"10d"}"#,
        r#"{"readings":"10d","summaries":"20d","drift":"keep"}"#,
        // Summaries are never kept shorter than readings.
        r#"{"readings":"30d"}"#,
        r#"{"readings":null,"summaries":null}"#,
    ] {
        let first = server.set("w", set).expect(200).json();
        let settings = ["readings", "summaries", "default", "seal_form", "drift"];
        let back: serde_json::Map<_, _> = settings.iter().map(|key| ((*key).to_owned(), first[key].clone())).collect();
        let second = server.set("w", &json!(back).to_string()).expect(200).json();
        for key in settings.iter().chain(&["kept", "summaries_kept", "drift_as"]) {
            assert_eq!(first[key], second[key], "{key} of {set}");
        }
    }
    let found = server.set("w", r#"{"readings":"10d"}"#).expect(200).json();
    assert_eq!((&found["summaries"], &found["summaries_kept"]), (&json!(null), &json!("87600h")), "{found}");
}

#[test]
fn unknown_settings_are_refused_by_name() {
    let server = start("embedded");
    for (body, part) in [
        ("", "send a JSON object"),
        (r#"{"reading":"1d"}"#, "unknown key \"reading\""),
        (r#"{"readings":"1d","keep":1}"#, "unknown key \"keep\""),
        (r#"{"readings":"30m"}"#, "at least 1h0m0s"),
        (r#"{"readings":7}"#, "readings is 7"),
        (r#"{"seal_form":"zip"}"#, "seal_form is \"zip\""),
        (r#"{"drift":true}"#, "drift is true"),
        (r#"{"readings":"7d","summaries":"1d"}"#, "summaries cannot be kept shorter"),
        (r#"{"default":"week"}"#, "retention policy not found: week"),
        (r#"{"default":1}"#, "default is 1: send the name"),
    ] {
        let refused = server.set("w", body).expect(400).json();
        assert!(refused["error"].as_str().expect("a text").contains(part), "{body}: {refused}");
    }
    for name in ["w/a/b", "w/", "/week", "w/..", &"x".repeat(65)] {
        assert_eq!(server.set(name, "{}").status, 400, "{name}");
    }
    assert_eq!(ask(&server, "", "SHOW DATABASES")["series"][0]["values"], json!(null));
    let unknown = request("GET", &server.url("/api/v1/databases/w"), b"", &[]).expect("an answer").expect(404).json();
    assert_eq!(unknown, json!({"error": "database not found: w", "code": "not_found"}));
}

#[test]
fn a_settings_dry_run_counts_losses_and_changes_nothing() {
    let server = start("embedded");
    let midnight = now().div_euclid(DAY) * DAY;
    // Two sensors with a reading every six hours for ten days, one of them today.
    for sensor in 0..2 {
        let lines = (1..=40).map(|n| format!("m,s={sensor} a={n},b={n} {}\n", midnight - n * 6 * HOUR));
        post(&server.url("/write?db=w"), lines.collect::<String>(), &[]).expect(204);
    }
    post(&server.url("/write?db=w"), format!("m,s=new a=1 {}", now()), &[]).expect(204);
    let dry = |body: &str| dry_run(&server, "w", body);
    flush(&server);
    wait_until("the sensors' documents are written", || dry(r#"{"readings":"7d"}"#)["sensors"] == 2);
    let preview = dry(r#"{"readings":"7d"}"#);
    assert_eq!(
        (&preview["readings"], &preview["days"], &preview["sensors_wholly"]),
        (&json!(24), &json!(3), &json!(0))
    );
    assert_eq!(dry(r#"{"readings":"30d"}"#)["readings"], 0);
    assert_eq!(dry("{}")["before"], json!(null));
    let count = ask(&server, "db=w", "SELECT count(a) FROM m");
    assert_eq!(count["series"][0]["values"][0][1], 81);
    assert_eq!(database_settings(&server, "w")["readings"], json!(null));
}

/// Regression: a dry run missed sensors without a stored document and readings without numbers.
#[test]
fn a_dry_run_counts_readings_of_new_sensors() {
    for store in STORES {
        let config = CONFIG.replace("write_interval = \"200ms\"", "write_interval = \"1h\"");
        let server = Launch::with_store(store()).config(config).start();
        let dry = || dry_run(&server, "w", r#"{"readings":"2h"}"#);
        // Noon of the day before the last affected one, at any time of day.
        let time = ((now() - 2 * HOUR).div_euclid(HOUR) * HOUR - 1).div_euclid(DAY) * DAY - DAY / 2;
        // A field that is a number in other sensors.
        let state = format!("m,s=b state=\"on\" {time}\nm,s=new v=3,state=4 {}", now());
        let lines = format!("m,s=a v=1 {time}\nm,s=a v=2 {}\n{state}", time + 1);
        post(&server.url("/write?db=w"), lines, &[]).expect(204);
        for flushes in [false, true] {
            if flushes {
                flush(&server);
            }
            let preview = dry();
            assert_eq!(
                (&preview["readings"], &preview["sensors"], &preview["days"]),
                (&json!(3), &json!(2), &json!(2)),
                "{preview}"
            );
            assert_eq!((&preview["sensors_wholly"], preview["oldest"].is_string()), (&json!(2), true), "{preview}");
        }
    }
}

/// The config key applies to databases without their own setting, not to policies.
#[test]
fn the_config_sets_the_default_retention() {
    let config = CONFIG.replace("[retention]", "[retention]\nreadings = \"2d\"");
    let server = Launch::embedded().config(config).start();
    let write = |parameters: &str| {
        post(&server.url(&format!("/write?{parameters}")), format!("m v=1 {}", now() - 3 * DAY), &[]).status
    };
    server.set("own", r#"{"readings":"inf"}"#).expect(200);
    server.set("plain/all", "{}").expect(200);
    assert_eq!([write("db=plain"), write("db=own"), write("db=plain&rp=all")], [400, 204, 204]);
    assert_eq!(database_settings(&server, "plain")["kept"], "48h");
}
