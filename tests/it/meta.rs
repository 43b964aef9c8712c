//! Metadata of sensors: put and patched by clients, found, filtered and grouped by queries, deleted with its sensor.

mod durable;
mod import;

use crate::support::prelude::*;
use crate::support::programs;

const T: u64 = 1_768_489_200;

fn path(key: &str) -> String {
    format!("/api/v1/sensors/{}/meta?db=d", encode(key))
}

fn send(server: &Server, method: &str, key: &str, body: &Value, headers: &[(&str, &str)]) -> Answer {
    request(method, &server.url(&path(key)), body.to_string().as_bytes(), headers).unwrap()
}

/// Returns the metadata of a sensor, if any.
fn meta(server: &Server, key: &str) -> Option<Value> {
    let answer = server.fetch(&path(key));
    (answer != json!({})).then_some(answer)
}

#[test]
fn metadata_is_put_patched_and_guarded_by_its_etag() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        assert_eq!(meta(&server, "m,s=1"), None);
        let put = send(&server, "PUT", "m,s=1", &json!({"site": "lab", "at": {"x": 1, "y": 2.5}, "n": null}), &[])
            .expect(200);
        let first = put.header("etag").unwrap().to_owned();
        // Listed before any reading. Names with null are dropped, because CSV cannot express them.
        assert_eq!(meta(&server, "m,s=1"), Some(json!({"site": "lab", "at": {"x": 1, "y": 2.5}})));
        let listed = server.fetch("/api/v1/sensors?db=d");
        assert_eq!(listed["sensors"][0]["meta"]["site"], "lab", "{listed}");
        let patch = json!({"at": {"y": null, "z": 3}, "n": null, "unit": "°C"});
        send(&server, "PATCH", "m,s=1", &patch, &[("if-match", &first)]).expect(200);
        let second = json!({"site": "lab", "at": {"x": 1, "z": 3}, "unit": "°C"});
        assert_eq!(meta(&server, "m,s=1"), Some(second.clone()));
        let stale = send(&server, "PATCH", "m,s=1", &json!({"site": "roof"}), &[("if-match", &first)]).expect(412);
        assert_eq!(stale.json()["code"], "changed");
        for (body, why) in [
            (json!([1]), "not a JSON object"),
            (json!({"": 1}), "empty"),
            (json!({"x": "y".repeat(9000)}), "the limit of 8192 bytes"),
            (json!({"site": {"room": {"rack": {"slot": 1}}}}), "exceeds the limit of 3 levels: 4 levels"),
            (json!({"x": [[[1]]]}), "exceeds the limit of 3 levels: 4 levels"),
        ] {
            let refused = send(&server, "PATCH", "m,s=1", &body, &[]).expect(400);
            assert!(refused.text().contains(why), "{body}: {}", refused.text());
        }
        server.kill_and_restart();
        assert_eq!(meta(&server, "m,s=1"), Some(second.clone()));
        // Readings and metadata of one document do not affect each other.
        write_flushed(&server, format!("m,s=1 v=1 {T}\n"));
        assert_eq!(meta(&server, "m,s=1"), Some(second));
        send(&server, "PUT", "m,s=1", &json!({}), &[("x-hourglass-ack", "store")]).expect(200);
        assert_eq!(meta(&server, "m,s=1"), None);
        server.stop();
    }
}

/// Deeper values from before the limit are read, kept by other changes, and restored.
#[test]
fn metadata_nests_three_levels() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        let three = json!({"site": {"room": {"rack": 1}}, "parts": [[1]]});
        let four = json!({"site": {"room": {"rack": {"slot": 1}}}});
        send(&server, "PUT", "m,s=1", &three, &[("x-hourglass-ack", "store")]).expect(200);
        for method in ["PUT", "PATCH"] {
            let refused = send(&server, method, "m,s=1", &four, &[]).expect(400);
            assert!(refused.text().contains(r#"\"site\" of m,s=1"#), "{}", refused.text());
        }
        let import = |meta: &Value| {
            let line = json!({"sensor": "m,s=1", "meta": meta}).to_string();
            post(&server.url("/api/v1/meta?db=d"), line, &[("content-type", "application/x-ndjson")])
        };
        let refused = import(&four).expect(400).json();
        assert_eq!(refused["rejected"], json!(1), "{refused}");
        import(&three).expect(200);
        assert_eq!(meta(&server, "m,s=1"), Some(three));

        server.stop();
        let deep = doc! { "room": { "rack": { "slot": { "card": 1 } } } };
        Stored::from_server(&server, "d").change(Kind::Sensors, "m,s=1", |sensor| {
            drop(sensor.get_document_mut("meta").unwrap().insert("site", deep));
        });
        server.restart();
        send(&server, "PATCH", "m,s=1", &json!({"parts": null, "unit": "K"}), &[]).expect(200);
        let kept = json!({"site": {"room": {"rack": {"slot": {"card": 1}}}}, "unit": "K"});
        assert_eq!(meta(&server, "m,s=1"), Some(kept.clone()));
        send(&server, "PATCH", "m,s=1", &json!({"site": {"room": {"wall": 1}}}), &[]).expect(400);
        server.kill_and_restart();
        assert_eq!(meta(&server, "m,s=1"), Some(kept.clone()));
        let backup = Folder::new("backup");
        let folder = programs::path(backup.path());
        hourglass(&["backup", "create", folder, "--server", &server.url("")]).expect_success();
        let mut restored = Launch::embedded().start();
        restored.stop();
        let data = restored.data_dir();
        fs::remove_dir_all(&data).unwrap();
        hourglass(&["backup", "restore", folder, "--store", "embedded", "--data-dir", programs::path(&data)])
            .expect_success();
        restored.restart();
        assert_eq!(meta(&restored, "m,s=1"), Some(kept));
    }
}

/// Regression: conditions other than If-Match were ignored, and an invalid key was forbidden to everybody.
#[test]
fn unmet_conditions_are_refused() {
    let server = Launch::embedded().start();
    let change = |key: &str, name: &str, value: &str| {
        send(&server, "PATCH", key, &json!({"site": "lab"}), &[(name, value)]).status
    };
    assert_eq!(change("m,s=1", "if-none-match", "*"), 200, "there is nothing yet");
    assert_eq!(change("m,s=1", "if-none-match", "*"), 412);
    let tag = get(&server.url(&path("m,s=1"))).expect(200).header("etag").unwrap().to_owned();
    assert_eq!(change("m,s=1", "if-none-match", &tag), 412);
    assert_eq!(change("m,s=1", "if-none-match", "\"other\""), 200);
    assert_eq!(change("m,s=1", "if-unmodified-since", "Thu, 15 Jan 2026 15:00:00 GMT"), 400);
    for key in ["a\u{0}b", "m,s=1,s=2", "#"] {
        for method in ["GET", "PUT", "PATCH"] {
            assert_eq!(send(&server, method, key, &json!({}), &[]).status, 400, "{method} {key:?}");
        }
    }
    // Regression: different database names that are no UTF-8 were equal.
    for url in ["/write?db=%fe", "/api/v1/meta?db=%ff", "/write?db=d&x=%e9"] {
        post(&server.url(url), "m v=1", &[]).expect(400);
    }
    get(&server.url("/api/v1/readings?measurement=m&tag.s=%e9")).expect(400);
}

/// Regression: a search looked only at keys, not at the name that the page shows.
#[test]
fn sensors_are_found_by_metadata_text() {
    let server = Launch::embedded().start();
    let hall = json!({"name": "Hall, Line A \"east\"", "floor": 12, "of": {"x": "deep"}});
    send(&server, "PUT", "m,s=hall", &hall, &[]).expect(200);
    send(&server, "PUT", "m,s=mill", &json!({"name": "Mühle"}), &[]).expect(200);
    write(&server, format!("m,s=plain v=1 {T}\n"));
    for (part, keys) in [
        ("hall, line a", vec!["m,s=hall"]),
        ("A \"EAST\"", vec!["m,s=hall"]),
        ("MÜHLE", vec!["m,s=mill"]),
        ("S=PLAIN", vec!["m,s=plain"]),
        ("m,s=", vec!["m,s=hall", "m,s=mill", "m,s=plain"]),
        // Neither names, nor numbers, nor nested values.
        ("name", vec![]),
        ("12", vec![]),
        ("deep", vec![]),
    ] {
        assert_eq!(sensor_keys(&server, &format!("db=d&contains={}", encode(part))), keys, "{part}");
    }
}

#[test]
fn queries_filter_and_group_by_current_metadata() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        for s in 0..4_u64 {
            write(&server, format!("m,s={s} v={s} {T}\nm,s={s} v={} {}\n", s + 10, T + 60));
            let meta = json!({"site": if s % 2 == 0 { "lab" } else { "roof" }, "floor": s});
            send(&server, "PUT", &format!("m,s={s}"), &meta, &[]).expect(200);
        }
        let check = |server: &Server, roof: f64| {
            let path = "/api/v1/summary?db=d&measurement=m&tag.meta.site=roof&agg=sum&group_by=meta.site";
            let import_result = server.fetch(path);
            assert!(
                import_result.to_string().contains("\"meta.site\":\"roof\"")
                    && import_result.get("notices").is_none_or(|n| n == &json!([])),
                "{import_result}"
            );
            let series = influxql(server, "SELECT sum(v) FROM m WHERE \"meta.site\" = 'roof' GROUP BY \"meta.site\"");
            assert_eq!(series[0]["tags"], json!({"meta.site": "roof"}), "{series}");
            assert_eq!(series[0]["values"][0][1].as_f64(), Some(roof), "{series}");
            let all = influxql(server, "SELECT sum(v) FROM m GROUP BY \"meta.site\"");
            assert_eq!(all.as_array().unwrap().len(), 2, "{all}");
            // `SELECT *` returns only what was sent.
            let row = influxql(server, "SELECT * FROM m WHERE s = '0' LIMIT 1");
            assert_eq!(row[0]["columns"], json!(["time", "s", "v"]));
            let raw = influxql(server, "SELECT v, \"meta.floor\" FROM m WHERE \"meta.floor\" = '3' LIMIT 1");
            assert_eq!(raw[0]["values"][0][2], "3", "{raw}");
            let one = influxql(server, "SELECT sum(v) FROM m WHERE s = '1' GROUP BY \"meta.floor\"");
            assert_eq!(one[0]["tags"], json!({"meta.floor": "1"}), "{one}");
        };
        check(&server, (1 + 11 + 3 + 13) as f64);
        // A move is visible at once, before and after its flush.
        send(&server, "PATCH", "m,s=0", &json!({"site": "roof"}), &[]).expect(200);
        check(&server, (1 + 11 + 3 + 13 + 10) as f64);
        flush(&server);
        check(&server, (1 + 11 + 3 + 13 + 10) as f64);
        server.stop_and_restart();
        check(&server, (1 + 11 + 3 + 13 + 10) as f64);
        let of_one = "/api/v1/summary?db=d&sensor=m,s%3D3&agg=sum&group_by=meta.site";
        let import_result = server.fetch(of_one);
        assert!(import_result.to_string().contains("\"meta.site\":\"roof\""), "{import_result}");
    }
}

/// `DROP SERIES` and `DROP DATABASE` remove metadata; deletions by range keep it.
#[test]
fn metadata_is_deleted_only_with_its_sensor() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        write(&server, format!("m,s=1 v=1 {T}\nm,s=2 v=1 {T}\n"));
        for s in 1..3 {
            send(&server, "PUT", &format!("m,s={s}"), &json!({"site": s}), &[]).expect(200);
        }
        execute(&server, "d", &format!("DELETE FROM m WHERE time < {}s", T + 1));
        assert_eq!([1, 2].map(|s| meta(&server, &format!("m,s={s}"))), [1, 2].map(|s| Some(json!({"site": s}))));
        flush(&server);
        // Regression: it dropped whatever had this metadata at the moment, which no replay could know.
        let refused = encode("DROP SERIES FROM m WHERE \"meta.site\" = '2'");
        post(&server.url(&format!("/query?db=d&q={refused}")), "", &[]).expect(200);
        assert_eq!(meta(&server, "m,s=2"), Some(json!({"site": 2})));
        execute(&server, "d", "DROP SERIES FROM m WHERE s = '1'");
        assert_eq!(meta(&server, "m,s=1"), None);
        send(&server, "PATCH", "m,s=1", &json!({"unit": "K"}), &[]).expect(200);
        server.kill_and_restart();
        assert_eq!(meta(&server, "m,s=1"), Some(json!({"unit": "K"})));
        assert_eq!(meta(&server, "m,s=2"), Some(json!({"site": 2})));
        // Regression: nothing was deleted for a sensor without readings, so its metadata stayed.
        send(&server, "PUT", "m,s=3", &json!({"site": 3}), &[("x-hourglass-ack", "store")]).expect(200);
        server.kill_and_restart();
        let found = |server: &Server| {
            let answer = server.fetch("/api/v1/readings?db=d&measurement=m&tag.meta.site=3");
            answer["series"].as_array().unwrap().len()
        };
        assert_eq!(found(&server), 0);
        execute(&server, "d", "DROP SERIES FROM m WHERE s = '3'");
        write(&server, format!("m,s=3 v=1 {T}\n"));
        assert_eq!((found(&server), meta(&server, "m,s=3")), (0, None));
        execute(&server, "d", "DROP DATABASE d");
        assert_eq!([1, 2].map(|s| meta(&server, &format!("m,s={s}"))), [None, None]);
    }
}

/// Regression: `SHOW TAG VALUES WITH KEY = "meta.site"`, which Grafana sends, had no values.
#[test]
fn show_tag_values_lists_metadata_names() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        write(&server, format!("m,s=1 v=1 {T}\nm,s=2 v=2 {T}\nn,meta.site=tag,s=3 v=3 {T}\nn,s=4 v=4 {T}\n"));
        for (key, site) in [("m,s=1", json!("lab")), ("m,s=2", json!("a \"b\"")), ("n,s=4", json!(7))] {
            send(&server, "PUT", key, &json!({"site": site, "empty": ""}), &[]).expect(200);
        }
        let site = json!([
            {"name": "m", "columns": ["key", "value"], "values": [["meta.site", "a \"b\""], ["meta.site", "lab"]]},
            {"name": "n", "columns": ["key", "value"], "values": [["meta.site", "7"], ["meta.site", "tag"]]},
        ]);
        assert_eq!(influxql(&server, "SHOW TAG VALUES WITH KEY = \"meta.site\""), site);
        assert_eq!(influxql(&server, "SHOW TAG VALUES WITH KEY IN (\"meta.site\", \"meta.empty\")"), site);
        let of_m = "SHOW TAG VALUES FROM m WITH KEY = \"meta.site\" WHERE s = '1' OR \"meta.site\" = 'nowhere'";
        assert_eq!(influxql(&server, of_m)[0]["values"], json!([["meta.site", "lab"]]));
        let count = influxql(&server, "SHOW TAG VALUES EXACT CARDINALITY FROM m WITH KEY = \"meta.site\"");
        assert_eq!(count[0]["values"], json!([[2]]), "{count}");
        // Without naming metadata, only tags are shown.
        let all = influxql(&server, "SHOW TAG VALUES WITH KEY =~ /./");
        assert!(!all.to_string().contains("lab"), "{all}");
        server.stop();
    }
}
