//! Metadata of sensors survives kills, deletions and other instances, and queries filter and group by it.

use serde_json::Map;

use crate::support::prelude::*;

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
            (json!({"x": [[[[[[[[[1]]]]]]]]]}), "nests"),
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

/// Regression: lines of one record had one stamp, so the greater text won and a removal never did.
#[test]
fn a_later_line_for_the_same_sensor_wins() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        let import = |server: &Server, query: &str, kind: &str, body: &str| {
            post(&server.url(&format!("/api/v1/meta?db=d{query}")), body, &[("content-type", kind)]).expect(200).json()
        };
        let line = |key: &str, meta: Value| format!("{}\n", json!({ "sensor": key, "meta": meta }));
        let lines = line("m,s=1", json!({"site": "roof", "owner": "ann"}))
            + &line("m,s=2", json!({"site": "x"}))
            + &line("m,s=1", json!({"site": "lab", "owner": null}));
        import(&server, "", "application/x-ndjson", &lines);
        // The media type is case-insensitive.
        import(&server, "", "Text/CSV; charset=utf-8", "sensor,site\n\"m,s=3\",zoo\n\"m,s=3\",attic\n");
        let check = |server: &Server| {
            assert_eq!(meta(server, "m,s=1"), Some(json!({"site": "lab"})));
            assert_eq!(meta(server, "m,s=3"), Some(json!({"site": "attic"})));
        };
        check(&server);
        server.kill_and_restart();
        check(&server);
        // Regression: a dry run checked each 500 lines separately.
        let mut lines: String = (0..600).map(|n| line(&format!("n,s={n}"), json!({"n": 1}))).collect();
        for n in [1, 2, 2, 1, 1] {
            lines += &line("n,s=499", json!({ "n": n }));
        }
        for dry in [true, false] {
            let import_result = import(&server, &format!("&dry_run={dry}"), "application/x-ndjson", &lines);
            let counts = [&import_result["changed"], &import_result["new"], &import_result["unchanged"]];
            assert_eq!(counts, [&json!(602), &json!(600), &json!(3)], "{import_result}");
        }
        server.stop();
    }
}

/// Regression: a body of a few MiB took a GiB, because it was parsed before any limit applied.
#[test]
fn oversized_metadata_is_refused_before_parsing() {
    let server = Launch::embedded().start();
    let numbers = format!("{{\"x\":[{}]}}", vec!["{\"a\":1}"; 400_000].join(","));
    let before = peak_bytes(server.pid());
    let url = server.url(&path("m,s=1"));
    for method in ["PUT", "PATCH"] {
        let refused = request(method, &url, numbers.as_bytes(), &[]).unwrap().expect(400);
        assert!(refused.text().contains("the body has more than"), "{}", refused.text());
    }
    let import = server.url("/api/v1/meta?db=d&dry_run=true");
    let line = format!("{{\"sensor\":\"m,s=1\",\"meta\":{numbers}}}\n{{\"sensor\":\"m,s=2\",\"meta\":{{\"n\":1}}}}\n");
    let import_result = post(&import, line, &[]).expect(400).json();
    assert_eq!((&import_result["changed"], &import_result["rejected"]), (&json!(1), &json!(1)), "{import_result}");
    let names = format!("sensor,{}\n{}", "n".repeat(1 << 20), "m,1\n".repeat(1000));
    let import_result = post(&import, names, &[("content-type", "text/csv")]).expect(400).json();
    assert!(import_result["error"].as_str().unwrap().contains("the CSV's header"), "{import_result}");
    let import_result = post(&import, "x\n".repeat(1 << 20), &[]).expect(400).json();
    assert_eq!((&import_result["rejected"], import_result["reasons"].as_array().unwrap().len()), (&json!(1 << 20), 20));
    let grown = (peak_bytes(server.pid()) - before) >> 20;
    assert!(grown < 100, "the server took {grown} MiB");
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
fn thousands_of_lines_are_imported_and_exported() {
    for store in stores() {
        let server = Launch::with_store(store).start();
        let line =
            |n: usize, site: usize| format!("{}\n", json!({"sensor": format!("m,s={n}"), "meta": {"site": site}}));
        let body: String = (0..2000).map(|n| line(n, n % 10)).collect();
        let import = |query: &str, body: &str, kind: &str| {
            let url = server.url(&format!("/api/v1/meta?db=d{query}"));
            let answer = post(&url, body, &[("content-type", kind)]);
            (answer.status, answer.json())
        };
        let dry = import("&dry_run=true", &body, "application/x-ndjson");
        let counts = |changed: usize, new: usize, unchanged: usize, dry: bool| json!({"dry_run": dry, "changed": changed, "new": new, "unchanged": unchanged, "rejected": 0, "reasons": []});
        assert_eq!(dry, (200, counts(2000, 2000, 0, true)));
        assert_eq!(meta(&server, "m,s=7"), None);
        assert_eq!(import("", &body, "application/x-ndjson"), (200, counts(2000, 2000, 0, false)));
        assert_eq!(import("", &body, "application/x-ndjson"), (200, counts(0, 0, 2000, false)));
        let csv = "sensor,floor,site\n\"m,s=7\",3,\n\"m,s=7\",4,roof\n\"m,s=8\",,\nm;,1,1\n";
        let (status, import_result) = import("", csv, "text/csv");
        assert_eq!(
            (status, &import_result["changed"], &import_result["unchanged"], &import_result["rejected"]),
            (200, &json!(2 + 1), &json!(1), &json!(0)),
            "{import_result}"
        );
        assert_eq!(meta(&server, "m,s=7"), Some(json!({"floor": 4, "site": "roof"})));
        let (status, import_result) = import("", "{\"sensor\":\"m\"}\n", "application/x-ndjson");
        assert_eq!(
            (status, &import_result["rejected"], &import_result["reasons"][0]["line"]),
            (400, &json!(1), &json!(1))
        );
        let mut seen = BTreeMap::new();
        let mut cursor = String::new();
        loop {
            let page = server.fetch(&format!("/api/v1/meta?db=d&limit=700{cursor}"));
            for sensor in page["sensors"].as_array().unwrap() {
                seen.insert(sensor["sensor"].as_str().unwrap().to_owned(), sensor["meta"].clone());
            }
            let Some(next) = page["next"].as_str() else { break };
            cursor = format!("&cursor={}", encode(next));
        }
        assert_eq!((seen.len(), &seen["m,s=19"]), (2001, &json!({"site": 9})));
        // One service imports the export of another; CSV in parts, with a record of two lines at the border.
        let other = Launch::embedded().start();
        let run = |arguments: &[&str], input: &[u8], server: &Server| {
            let mut command = program();
            command.arg("sensor").args(arguments).args(["--db", "d", "--server", &server.url("")]);
            let ran = run_with_input(&mut command, input);
            (ran.status, ran.stdout)
        };
        let (status, exported) = run(&["export"], b"", &server);
        assert_eq!((status, exported.lines().count()), (Some(0), 2001));
        let summary = "2001 sensors changed (2001 of them new), 0 unchanged, 0 lines rejected\n";
        assert_eq!(run(&["import"], exported.as_bytes(), &other), (Some(0), summary.to_owned()));
        assert_eq!(run(&["export"], b"", &other), (Some(0), exported.clone()));
        // As CSV, too, with any values and names.
        let odd =
            json!({"a,b": "7", "c\r\nd": {"x": [1, null]}, "sensor": "\"", "e": "", "f": "g\r\nh", "i": -1.5e300});
        send(&server, "PUT", "m,s=odd", &odd, &[]).expect(200);
        let (status, csv) = run(&["export", "--format", "csv"], b"", &server);
        assert_eq!((status, csv.starts_with("sensor,\"a,b\",")), (Some(0), true), "{csv}");
        let third = Launch::embedded().start();
        let summary = summary.replace("2001", "2002");
        assert_eq!(run(&["import", "--format", "csv", "-"], csv.as_bytes(), &third), (Some(0), summary));
        assert_eq!(meta(&third, "m,s=odd"), Some(odd));
        assert_eq!(run(&["export"], b"", &third), run(&["export"], b"", &server));
        assert_eq!(run(&["export", "--format", "csv"], b"", &third), (Some(0), csv));
        // Regression: batches of 2,000 lines exceeded the memory of a small service on every retry.
        let small = "[ingest]\nbytes_in_flight = \"6MiB\"\n[limits]\nbody_bytes = \"3MiB\"\n";
        let small = Launch::embedded().config(small).start();
        let long =
            |n: usize| json!({"sensor": format!("m,s={n}"), "meta": {"note": "x".repeat(7000)}}).to_string() + "\n";
        let lines: String = (0..300).map(long).collect();
        let summary = "300 sensors changed (300 of them new), 0 unchanged, 0 lines rejected\n";
        assert_eq!(run(&["import"], lines.as_bytes(), &small), (Some(0), summary.to_owned()));
        // A body that never fits is refused as such.
        post(&small.url("/api/v1/meta?db=d"), lines.as_str(), &[]).expect(413);
        let folder = Folder::new("metadata");
        let csv: String = (0..4500).map(|n| format!("\"m,s={n}\",\"of {n},\nof two lines\"\n")).collect();
        std::fs::write(folder.file("of.csv"), format!("sensor,note\n{csv}nothing\n")).unwrap();
        let (status, summary) = run(&["import", folder.file("of.csv").to_str().unwrap()], b"", &other);
        assert_eq!((status, summary.lines().count()), (Some(1), 2), "{summary}");
        assert!(
            summary.starts_with("line 9002: ") && summary.contains("4500 sensors changed (2500 of them new)"),
            "{summary}"
        );
        assert_eq!(meta(&other, "m,s=4499"), Some(json!({"note": "of 4499,\nof two lines"})));
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

/// Random metadata changes beside readings, flushes and kills; acked changes survive each.
#[test]
fn random_changes_survive_kills() {
    for store in stores() {
        let mut random = Random::new(17);
        let mut server = Launch::with_store(store).start();
        let mut model: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
        for step in 0..150 {
            let key = format!("m,s={}", random.below(3));
            let name = ["a", "b.c", "$d"][random.below(3) as usize];
            let value = json!(random.below(5));
            match random.below(12) {
                0 => {
                    send(&server, "PUT", &key, &json!({ name: value }), &[]).expect(200);
                    model.insert(key, [(name.to_owned(), value)].into_iter().collect());
                }
                1..5 => {
                    send(&server, "PATCH", &key, &json!({ name: value }), &[]).expect(200);
                    model.entry(key).or_default().insert(name.to_owned(), value);
                }
                5..7 => {
                    send(&server, "PATCH", &key, &json!({ name: null }), &[]).expect(200);
                    model.entry(key).or_default().remove(name);
                }
                // A file that repeats a sensor and a name.
                11 => {
                    let mut lines = String::new();
                    for _ in 0..1 + random.below(6) {
                        let key = format!("m,s={}", random.below(3));
                        let name = ["a", "b.c", "$d"][random.below(3) as usize];
                        let names = model.entry(key.clone()).or_default();
                        let value = match random.below(3) {
                            0 => Value::Null,
                            _ => json!(random.below(5)),
                        };
                        match &value {
                            Value::Null => drop(names.remove(name)),
                            value => drop(names.insert(name.to_owned(), value.clone())),
                        }
                        lines += &json!({ "sensor": key, "meta": { name: value } }).to_string();
                        lines.push('\n');
                    }
                    post(&server.url("/api/v1/meta?db=d"), lines, &[]).expect(200);
                }
                7..9 => write(&server, format!("{key} v={step} {}\n", T + step)),
                9 => drop(post(&server.url("/api/v1/flush"), "", &[]).expect(204)),
                10 => server.kill_and_restart(),
                _ => {}
            }
            for (key, expected) in &model {
                let found = meta(&server, key).unwrap_or_else(|| json!({}));
                assert_eq!(found, Value::Object(expected.clone()), "{key} after step {step}");
            }
        }
    }
}

/// On two instances the later change of a name wins, and `DROP SERIES` removes earlier metadata of the other's log.
#[test]
fn two_instances_agree_on_metadata() {
    let uri = mongod().uri(&fresh_database_name());
    let a = Launch::with_store(&uri).start();
    let b = Launch::with_store(&uri).start();
    for n in 0..10 {
        let (first, second) = if n % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let wait = || std::thread::sleep(Duration::from_millis(2));
        send(first, "PATCH", "m,s=1", &json!({"x": n, format!("of{n}"): 1}), &[]).expect(200);
        // Later by more than the clock tolerance; both instances have one clock.
        wait();
        send(second, "PATCH", "m,s=1", &json!({"x": n + 100}), &[]).expect(200);
        wait();
    }
    let all = |server: &Server| {
        let found = meta(server, "m,s=1")?;
        (found.as_object()?.len() == 11 && found["x"] == 109).then_some(found)
    };
    eventually("both have everything", WITHIN, || (all(&a)? == all(&b)?).then_some(()));
    let listed = b.fetch("/api/v1/meta?db=d");
    assert_eq!(listed["sensors"][0]["meta"]["x"], 109);
    execute(&a, "d", "DROP SERIES FROM m");
    wait_until("it is gone for both", WITHIN, || meta(&a, "m,s=1").is_none() && meta(&b, "m,s=1").is_none());
}

/// Regression: a deletion removed the document of a sensor that had just received metadata from another instance.
#[test]
fn metadata_stored_during_a_deletion_stays() {
    let uri = mongod().uri(&fresh_database_name());
    let halt = Halt::new();
    halt.set();
    let a = halt.launch(Launch::with_store(&uri), "settling").start();
    let b = Launch::with_store(&uri).start();
    write_flushed(&a, format!("m,s=1 v=1 {T}\n"));
    std::thread::scope(|scope| {
        let dropped = scope.spawn(|| execute(&a, "d", "DROP SERIES FROM m"));
        wait_until("the deletion hides the reading, and goes on to the document", WITHIN, || {
            let left = get(&b.url("/api/v1/readings?db=d&measurement=m"));
            !left.text().contains("\"v\"")
        });
        send(&b, "PUT", "m,s=1", &json!({"site": "lab"}), &[("x-hourglass-ack", "store")]).expect(200);
        halt.lift();
        dropped.join().unwrap();
    });
    assert_eq!(meta(&b, "m,s=1"), Some(json!({"site": "lab"})));
    eventually("the other instance agrees", WITHIN, || (meta(&a, "m,s=1")? == json!({"site": "lab"})).then_some(()));
}

/// Regression: a removal for a sensor without a document was lost, so an older value stored later won.
#[test]
fn a_removed_name_wins_over_an_older_value_stored_later() {
    let uri = mongod().uri(&fresh_database_name());
    let halt = Halt::new();
    halt.set();
    let a = Launch::with_store(&uri).start();
    let b = halt.launch(Launch::with_store(&uri), "writing_documents").start();
    let stored = [("x-hourglass-ack", "store")];
    // Later by more than the clock tolerance; both instances have one clock.
    let wait = || std::thread::sleep(Duration::from_millis(2));
    send(&b, "PUT", "m,s=1", &json!({"site": "lab", "unit": "K"}), &[]).expect(200);
    send(&b, "PUT", "m,s=2", &json!({"site": "lab"}), &[]).expect(200);
    wait();
    send(&a, "PATCH", "m,s=1", &json!({"site": null}), &stored).expect(200);
    send(&a, "PUT", "m,s=2", &json!({}), &stored).expect(200);
    let listed = get(&a.url("/api/v1/sensors?db=d"));
    assert!(!listed.text().contains("m,s="), "what only remembers removals is no sensor: {}", listed.text());
    halt.lift();
    flush(&b);
    send(&b, "PATCH", "m,s=1", &json!({"owner": "me"}), &stored).expect(200);
    for server in [&a, &b] {
        wait_until("the older values have lost", WITHIN, || {
            let now = [meta(server, "m,s=1"), meta(server, "m,s=2")];
            now == [Some(json!({"owner": "me", "unit": "K"})), None]
        });
    }
}

/// Regression: metadata that MongoDB refused kept its record, and so the whole log, for ever.
#[test]
fn refused_metadata_becomes_a_dead_letter() {
    let uri = mongod().uri(&fresh_database_name());
    let mut server = Launch::with_store(&uri).start();
    send(&server, "PUT", "m,s=1", &json!({"site": "lab"}), &[("x-hourglass-ack", "store")]).expect(200);
    let validator = doc! { "meta.site": { "$ne": "refused" } };
    run_command(&uri, None, doc! { "collMod": "d.sensors", "validator": validator, "validationLevel": "strict" });
    let refused =
        send(&server, "PATCH", "m,s=1", &json!({"site": "refused", "unit": null}), &[("x-hourglass-ack", "store")]);
    assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("store_refused")));
    send(&server, "PATCH", "m,s=2", &json!({"site": "roof"}), &[("x-hourglass-ack", "store")]).expect(200);
    assert_eq!(metric(&server, "hourglass_dead_letters_metadata"), 1.0);
    let health = get(&server.url("/health")).text().to_owned();
    assert!(health.contains("1 changes of metadata could not be stored"), "{health}");
    let letters: Value = server.fetch("/api/v1/dead-letters");
    let kept = &letters["letters"][0];
    assert_eq!((&kept["sensor"], &kept["meta"]), (&json!("m,s=1"), &json!({"site": "refused", "unit": null})));
    // The log is not held back: the stop completes, and everything else is stored.
    assert!(server.stop().success());
    server.restart();
    assert_eq!(meta(&server, "m,s=1"), Some(json!({"site": "lab"})));
    assert_eq!(meta(&server, "m,s=2"), Some(json!({"site": "roof"})));
}

/// Regression: a replay restored metadata whose deletion was already forgotten.
#[test]
fn deleted_metadata_stays_deleted_after_a_kill() {
    let halt = Halt::already_set();
    // Everything stays in the log, as after a kill before its truncation.
    let launch = Launch::embedded().config("[sensors]\nwrite_interval = \"200ms\"\n");
    let mut server = halt.launch(launch, "before_truncate").start();
    send(&server, "PUT", "m,s=1", &json!({"site": "lab"}), &[("x-hourglass-ack", "store")]).expect(200);
    write(&server, format!("m,s=1 v=1 {T}\nm,s=2 v=1 {T}\n"));
    execute(&server, "d", "DROP SERIES FROM m WHERE s = '1'");
    flush(&server);
    wait_until("the deletion is forgotten", WITHIN, || metric(&server, "hourglass_registry_deletions") == 0.0);
    server.kill();
    halt.lift();
    server.restart();
    assert!(metric(&server, "hourglass_ingest_readings_replayed_total") > 0.0, "the log still has all of it");
    for _ in 0..2 {
        assert_eq!(meta(&server, "m,s=1"), None);
        let listed = server.fetch("/api/v1/sensors?db=d");
        assert_eq!(listed["sensors"].as_array().unwrap().len(), 1, "{listed}");
        flush(&server);
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

/// Regression: a changed sensor document was written five times a second for ever.
#[test]
fn a_document_with_new_metadata_is_written_once() {
    let server = Launch::embedded().config("[sensors]\nwrite_interval = \"1h\"\n[ingest]\nshards = 1\n").start();
    let written = || metric(&server, "hourglass_store_sensor_writes_total");
    let stored = |writes: f64| wait_until("the document is stored", WITHIN, || written() == writes);
    write_flushed(&server, format!("m,s=1 v=1 {T}\nm,s=2 v=1 {T}"));
    stored(2.0);
    send(&server, "PUT", "m,s=1", &json!({"site": "lab"}), &[]).expect(200);
    stored(3.0);
    write_flushed(&server, format!("m,s=1 v=2 {}", T + 1));
    // This one would cause a write of the other sensor.
    send(&server, "PUT", "m,s=2", &json!({"site": "lab"}), &[]).expect(200);
    wait_until("the document is stored", WITHIN, || written() >= 4.0);
    assert_eq!(written(), 4.0);
}
