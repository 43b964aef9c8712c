//! Pinned tokens read and write only sensors with their tag, by any request.

use crate::support::prelude::*;

use super::{create, start_with_auth, with};

#[test]
fn a_pinned_token_writes_only_its_sensors() {
    let (server, admin) = start_with_auth("");
    let lab = create(&server, &["--name", "lab", "--write", "a", "--read", "a", "--sensor-tag", "site=lab"]);
    let url = server.url("/write?db=a");
    with(&lab, "POST", &url, "m,site=lab v=1 1").expect(204);
    // Known and unknown sensors, in any spelling.
    with(&admin, "POST", &url, "m,site=plant v=1 1\nm,room=1,site=plant v=1 1").expect(204);
    for body in
        ["m,site=plant v=2 2", "m,site=new v=2 2", "m v=2 2", "m,site=plant,room=1 v=2 2", "m,sit\\ e=lab v=2 2"]
    {
        let refused = with(&lab, "POST", &url, body).expect(403);
        assert!(refused.text().contains("sensors with the tag site=lab"), "{}", refused.text());
    }
    let partial = with(&lab, "POST", &url, "m,site=lab v=3 3\nm,site=plant v=3 3").expect(400);
    assert!(partial.text().contains("partial write") && partial.text().contains("dropped=1"), "{}", partial.text());
    let reading =
        |site: &str| format!("{{\"measurement\":\"m\",\"tags\":{{\"site\":\"{site}\"}},\"fields\":{{\"v\":2}}}}");
    let body = format!("[{},{}]", reading("plant"), reading("other"));
    with(&lab, "POST", &server.url("/api/v1/readings?db=a"), &body).expect(403);
    let all = with(&admin, "GET", &server.url("/api/v1/readings?db=a&measurement=m"), "").expect(200).json();
    let counts: Vec<(&str, usize)> = all["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|series| (series["sensor"].as_str().unwrap(), series["readings"].as_array().unwrap().len()))
        .collect();
    assert_eq!(counts, [("m,room=1,site=plant", 1), ("m,site=lab", 2), ("m,site=plant", 1)]);
}

/// Words of the other site; no answer to a pinned token may contain one.
const SECRETS: [&str; 4] = ["plant", "hidden_m", "hidden_f", "hidden_t"];

/// Endpoints that list sensors or their properties.
const PATHS: &[&str] = &[
    "/api/v1/readings?db=a&measurement=m",
    "/api/v1/readings?db=a&tag.room=~.",
    "/api/v1/readings?db=a&measurement=m&tag.site!=lab",
    "/api/v1/readings?db=a&measurement=m&tag.site=plant",
    "/api/v1/readings?db=a&measurement=m&format=csv",
    "/api/v1/readings?db=a&measurement=m&max_points=5",
    "/api/v1/summary?db=a&measurement=m&group_by=site",
    "/api/v1/summary?db=a&measurement=m&group_by=measurement",
    "/api/v1/sensors?db=a",
    "/api/v1/sensors?db=a&limit=1",
    "/api/v1/latest?db=a&limit=1",
    "/api/v1/sensors?db=a&recent=true",
    "/api/v1/latest?db=a",
    "/api/v1/latest?db=a&format=csv",
    "/api/v1/measurements?db=a",
    "/api/v1/tags?db=a",
    "/api/v1/tags/site?db=a",
    "/api/v1/tags/room?db=a",
    "/api/v1/fields?db=a",
    "/api/v1/groups?db=a",
    "/api/v1/groups/site?db=a",
    "/api/v1/groups/room?db=a",
    "/api/v1/groups/site/lab?db=a",
    "/api/v1/groups/site/plant?db=a",
    "/api/v1/groups/room/b?db=a&limit=1",
];

/// Groups by tag.
const GROUPS: &str = "[[groups]]\nname = \"site\"\nby = \"site\"\n[[groups]]\nname = \"room\"\nby = \"room\"\n";

/// Equivalent statements in InfluxQL.
const STATEMENTS: &[&str] = &[
    "SELECT * FROM m",
    "SELECT * FROM /.*/",
    "SELECT sum(v) FROM m",
    "SELECT mean(v) FROM m GROUP BY site",
    "SELECT v FROM m WHERE site = 'plant'",
    "SELECT v FROM m WHERE site != 'lab' OR room = 'c'",
    "SELECT max(v) FROM (SELECT v FROM m)",
    "SELECT count(v) FROM a..m",
    "SHOW SERIES",
    "SHOW MEASUREMENTS",
    "SHOW TAG KEYS",
    "SHOW TAG VALUES WITH KEY = site",
    "SHOW TAG VALUES WITH KEY =~ /.*/",
    "SHOW FIELD KEYS",
    "SHOW SERIES CARDINALITY",
    "SHOW MEASUREMENTS WHERE room = 'b'",
];

/// Readings of an own sensor, of the other site, and of none.
const LINES: &str = "m,site=lab,room=a v=1 1000\nm,site=plant,room=b v=2,hidden_f=3 2000\n\
                     hidden_m,site=plant,hidden_t=x v=3 3000\nm,room=c v=4 4000";

fn query(statement: &str) -> String {
    format!("/query?db=a&q={}", statement.replace('%', "%25").replace('=', "%3D").replace(' ', "+"))
}

#[test]
fn a_pinned_token_reads_only_its_sensors() {
    let (server, admin) = start_with_auth(GROUPS);
    with(&admin, "POST", &server.url("/write?db=a"), LINES).expect(204);
    let lab = create(&server, &["--name", "lab", "--read", "a", "--sensor-tag", "site=lab"]);
    check_what_is_seen(&server, &lab);
    with(&admin, "POST", &server.url("/api/v1/flush"), "").expect(204);
    check_what_is_seen(&server, &lab);
    let databases = with(&lab, "GET", &server.url("/query?q=SHOW+DATABASES"), "").expect(200);
    assert!(!databases.text().contains("default"), "{}", databases.text());
}

fn check_what_is_seen(server: &Server, lab: &str) {
    for path in PATHS.iter().map(|path| (*path).to_owned()).chain(STATEMENTS.iter().map(|one| query(one))) {
        let answer = with(lab, "GET", &server.url(&path), "").expect(200);
        let text = answer.text();
        // An answer may repeat the words of its request.
        let learned = SECRETS.iter().find(|secret| !path.contains(**secret) && text.contains(**secret));
        assert!(learned.is_none(), "{path} reveals {learned:?}: {text}");
        assert!(!text.contains("4000") && !text.contains("00:00:00.000004"), "{path}: {text}");
    }
    let sum = with(lab, "GET", &server.url("/query?db=a&q=SELECT+sum(v)+FROM+m"), "").expect(200).json();
    assert_eq!(sum["results"][0]["series"][0]["values"][0][1], 1, "{sum}");
    for sensor in ["m,site=plant,room=b", "m,room=c", "hidden_m,site=plant,hidden_t=x"] {
        with(lab, "GET", &server.url(&format!("/api/v1/readings?db=a&sensor={sensor}")), "").expect(403);
        with(lab, "GET", &server.url(&format!("/api/v1/summary?db=a&sensor={sensor}")), "").expect(403);
    }
}

#[test]
fn a_pinned_token_must_match_shown_names_to_read_and_both_names_to_write() {
    let (server, admin) = start_with_auth("");
    let pinned = |site: &str| {
        let tag = format!("site={site}");
        create(&server, &["--name", site, "--write", "a", "--read", "a", "--sensor-tag", &tag])
    };
    let lab = pinned("lab");
    let hall = pinned("hall");
    let write = server.url("/write?db=a");
    let renames = server.url("/api/v1/renames?db=a");
    with(&lab, "POST", &write, "m,site=lab v=1 1").expect(204);
    with(&hall, "POST", &write, "m,site=hall,s=2 v=1 1").expect(204);
    let body = r#"{"kind":"tag_value","tag":"site","from":"lab","to":"hall"}"#;
    let entry = format!("{renames}&kind=tag_value&tag=site&from=lab");
    for token in [&lab, &hall] {
        with(token, "PUT", &renames, body).expect(403);
        with(token, "GET", &renames, "").expect(403);
        with(token, "DELETE", &entry, "").expect(403);
    }
    with(&admin, "PUT", &renames, body).expect(200);
    for line in ["m,site=lab v=2 2", "m,site=hall v=2 2", "m,site=lab,s=3 v=2 2", "m,site=hall,s=3 v=2 2"] {
        for token in [&lab, &hall] {
            with(token, "POST", &write, line).expect(403);
            let explained = with(token, "POST", &server.url("/api/v1/explain?db=a"), line).expect(200).json();
            assert_eq!(explained["lines"][0]["rejected"][0]["code"], "forbidden", "{line}: {explained}");
        }
    }
    // Stored and shown under the token's tag.
    with(&hall, "POST", &write, "m,site=hall,s=2 v=3 3").expect(204);
    with(&admin, "POST", &write, "m,site=hall v=4 4").expect(204);
    let count = |token: &str, query: &str| {
        let answer = with(token, "GET", &server.url(&format!("/api/v1/readings?db=a&{query}")), "").expect(200).json();
        answer["series"]
            .as_array()
            .unwrap()
            .iter()
            .map(|series| series["readings"].as_array().unwrap().len())
            .sum::<usize>()
    };
    // History follows the shown name.
    assert_eq!((count(&hall, "measurement=m"), count(&lab, "measurement=m")), (4, 0));
    assert_eq!((count(&hall, "sensor=m,site%3Dhall"), count(&admin, "sensor=m,site%3Dhall")), (2, 2));
    let lab_key = with(&lab, "GET", &server.url("/api/v1/readings?db=a&sensor=m,site%3Dlab"), "");
    assert!(!lab_key.text().contains("\"v\""), "{}", lab_key.text());
    // Metadata follows it, too.
    let meta = |site: &str| server.url(&format!("/api/v1/sensors/m,site={site}/meta?db=a"));
    let learned = |token: &str| with(token, "GET", &server.url("/api/v1/meta?db=a"), "").expect(200).json();
    with(&admin, "PATCH", &meta("hall"), r#"{"x":1}"#).expect(200);
    let shown = serde_json::json!([{"sensor": "m,site=hall", "meta": {"x": 1}}]);
    assert_eq!((&learned(&hall)["sensors"], &learned(&lab)["sensors"]), (&shown, &serde_json::json!([])));
    assert_eq!(with(&lab, "GET", &meta("lab"), "").expect(200).json(), serde_json::json!({}));
    for (token, site) in [(&hall, "hall"), (&lab, "lab")] {
        let refused = with(token, "PATCH", &meta(site), r#"{"y":2}"#).expect(403);
        assert!(refused.text().contains("another tag"), "{}", refused.text());
    }
    with(&admin, "DELETE", &entry, "").expect(200);
    assert_eq!((count(&hall, "measurement=m"), count(&lab, "measurement=m")), (2, 2));
}

/// Regression: a token pinned to the old room could read a renamed sensor by its bare name.
#[test]
fn a_bare_name_reads_no_more_than_its_full_key() {
    let (server, admin) = start_with_auth("");
    let lab = create(&server, &["--name", "lab", "--read", "a", "--sensor-tag", "room=lab"]);
    let lines = "climate,room=lab,sensor=s1 temp=1 1768489140\nclimate,room=lab,sensor=s1 temp=2 1768489260\n\
                 climate,room=lab,sensor=s2 temp=3 1768489260";
    with(&admin, "POST", &server.url("/write?db=a&precision=s"), lines).expect(204);
    let body = r#"{"kind":"sensor","from":"climate,room=lab,sensor=s1","to":"climate,room=hall,sensor=s1"}"#;
    with(&admin, "PUT", &server.url("/api/v1/renames?db=a"), body).expect(200);
    for path in ["readings", "summary", "latest", "tail"] {
        for (name, status) in [("climate,room%3Dhall,sensor%3Ds1", 403), ("s1", 403)] {
            let url = server.url(&format!("/api/v1/{path}?db=a&sensor={name}"));
            let refused = with(&lab, "GET", &url, "").expect(status);
            assert!(!refused.text().contains("hall"), "{path}: {}", refused.text());
        }
    }
    let old = with(&lab, "GET", &server.url("/api/v1/readings?db=a&sensor=climate,room%3Dlab,sensor%3Ds1"), "");
    assert!(!old.text().contains("hall") && !old.text().contains("\"temp\""), "{}", old.text());
    let other = with(&lab, "GET", &server.url("/api/v1/readings?db=a&sensor=s2"), "").expect(200).json();
    assert_eq!(other["series"][0]["sensor"], "climate,room=lab,sensor=s2");
}

/// Regression: rejections and dry runs revealed other sensors and their field types to pinned tokens.
#[test]
fn a_dry_run_hides_sensors_that_the_token_cannot_write() {
    let (server, admin) = start_with_auth("");
    let lab = create(&server, &["--name", "lab", "--write", "a", "--sensor-tag", "site=lab"]);
    with(&admin, "POST", &server.url("/write?db=a"), "m,site=plant v=\"text\" 1").expect(204);
    for _ in 0..2 {
        let lines = "m,site=plant v=1 2\nm,site=other v=1 2\nm,site=lab v=1 2";
        let answered = with(&lab, "POST", &server.url("/api/v1/explain?db=a"), lines).expect(200).json();
        for line in &answered["lines"].as_array().expect("lines")[..2] {
            assert_eq!(line["rejected"][0]["code"], "forbidden", "{answered}");
            assert_eq!(line["rejected"][0]["column"], answered["lines"][1]["rejected"][0]["column"], "{answered}");
            let field = &line["fields"][0];
            let learned = (&line["new_sensor"], &field["known_family"], &field["conflict"]);
            assert_eq!(
                learned,
                (&serde_json::Value::Null, &serde_json::Value::Null, &serde_json::json!(false)),
                "{answered}"
            );
        }
        assert_eq!(
            (&answered["lines"][2]["new_sensor"], &answered["quota"]["new_sensors"]),
            (&true.into(), &1.into()),
            "{answered}"
        );
        // This process now knows the existing sensor, too.
        let url = server.url("/write?db=a");
        let column = |site: &str| {
            let refused = with(&lab, "POST", &url, &format!("m,site={site} v=1 2")).expect(403).text().to_owned();
            refused.replace(site, "SITE")
        };
        assert_eq!(column("plant"), column("other"));
    }
}

/// Regression: dry runs of a write-only token revealed metadata and sensors.
#[test]
fn a_write_only_token_learns_no_stored_metadata() {
    let (server, admin) = start_with_auth("");
    let writer = create(&server, &["--name", "writer", "--write", "a"]);
    with(&admin, "PUT", &server.url("/api/v1/sensors/m%2Cs%3D1/meta?db=a"), r#"{"code":"4711"}"#).expect(200);
    for (sensor, code) in [("m,s=1", "4711"), ("m,s=1", "4710"), ("m,s=2", "4711")] {
        let line = json!({"sensor": sensor, "meta": {"code": code}}).to_string();
        let learned = with(&writer, "POST", &server.url("/api/v1/meta?db=a&dry_run=true"), &line).expect(200).json();
        assert_eq!(learned, json!({"dry_run": true, "changed": 1, "rejected": 0, "reasons": []}), "{line}");
    }
    let headers = [("Authorization", &*format!("Token {writer}")), ("If-Match", "\"0000000000000000\"")];
    let url = server.url("/api/v1/sensors/m%2Cs%3D1/meta?db=a");
    request("PATCH", &url, b"{}", &headers).unwrap().expect(403);
    let long = json!({"x": "y".repeat(9000)}).to_string();
    let refused = with(&writer, "PATCH", &url, &long).expect(400).text().to_owned();
    assert!(refused.ends_with("the limit of 8192 bytes\"}") && !refused.contains("90"), "{refused}");
}
