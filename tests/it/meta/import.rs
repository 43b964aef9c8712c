//! Metadata of many sensors at once: `/api/v1/meta`, `hourglass sensor import` and `export`.

use crate::support::prelude::*;

use super::{meta, path, send};

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
        let refused = request(method, &url, numbers.as_bytes(), &[]).unwrap().expect(413);
        assert!(refused.text().contains("the maximum of metadata"), "{}", refused.text());
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
