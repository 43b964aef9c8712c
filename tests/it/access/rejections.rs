//! Administrators of a database see the lines that were rejected for it.

use crate::support::prelude::*;

use super::{await_status, create, start_with_auth, with};

const PATH: &str = "/api/v1/rejections";

#[track_caller]
fn fetch(server: &Server, token: &str, query: &str) -> Vec<Value> {
    let answer = with(token, "GET", &server.url(&format!("{PATH}?{query}")), "").expect(200).json();
    answer["rejections"].as_array().expect("a list").clone()
}

/// Maps rejections to database, token, code and text.
fn brief(rejections: &[Value]) -> Vec<Value> {
    let fields = |one: &Value| json!([one["database"], one["token"], one["code"], one["text"]]);
    rejections.iter().map(fields).collect()
}

/// Regression: the owner of a device saw `204`, or over TCP nothing, and only one log line in ten seconds.
#[test]
fn only_the_owner_of_a_database_sees_its_rejections() {
    let (mut server, admin) = start_with_auth("[tcp]\nlisten = \"127.0.0.1:0\"\ndatabase = \"a\"\n");
    let device = create(&server, &["--name", "device", "--write", "a", "--write", "b"]);
    let owner = create(&server, &["--name", "owner", "--admin", "a"]);
    let reader = create(&server, &["--name", "reader", "--read", "*", "--write", "*", "--metrics"]);
    let pinned = create(&server, &["--name", "pinned", "--write", "*", "--read", "*", "--sensor-tag", "site=lab"]);
    let lines = "m v=1 1\nbad one\nbad two\nm v=NaN\n";
    with(&device, "POST", &server.url("/write?db=a&precision=ns"), lines).expect(400);
    with(&device, "POST", &server.url("/api/v1/readings?db=b"), "{\"measurement\":7}").expect(400);
    Raw::open(server.scheme_address("tcp")).send(format!("auth {device}\nevil\u{9b}2J v=1\nm v=1 1768485600\n"));
    let seen = poll(TIMEOUT, || Some(fetch(&server, &owner, "db=a")).filter(|seen| seen.len() == 5)).expect("five");
    let expected = [
        json!(["a", "device", "unit", "m v=1 1768485600"]),
        json!(["a", "device", "encoding", "evil\\u{9b}2J v=1"]),
        json!(["a", "device", "not_finite", "m v=NaN"]),
        json!(["a", "device", "syntax", "bad two"]),
        json!(["a", "device", "syntax", "bad one"]),
    ];
    let mut found = brief(&seen);
    // Over TCP, the two lines may have been one request or two.
    found[..2].sort_by_key(|one| one[2] == "encoding");
    assert_eq!(found, expected);
    let [.., oldest] = &*seen else { panic!("{seen:?}") };
    assert_eq!((&oldest["address"], &oldest["line"]), (&json!("127.0.0.1"), &json!(2)), "{oldest}");
    assert!(oldest["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{oldest}");
    assert!(oldest["reason"].as_str().is_some_and(|reason| reason.starts_with("expected ")), "{oldest}");
    // Without a database, the list covers all that the caller administers.
    assert_eq!(fetch(&server, &owner, "").len(), 5);
    assert_eq!(fetch(&server, &admin, "").len(), 6);
    let counts = with(&owner, "GET", &server.url(&format!("{PATH}?db=a&limit=1")), "").expect(200).json();
    assert_eq!(counts["codes"], json!({"encoding": 1, "not_finite": 1, "syntax": 2, "unit": 1}));
    assert_eq!(brief(&fetch(&server, &admin, "db=b")), [json!(["b", "device", "json", "{\"measurement\":7}"])]);
    assert_eq!(fetch(&server, &admin, "limit=2").len(), 2);
    let searched = [
        ("code=syntax", 2),
        ("code=nope", 0),
        ("measurement=m", 2),
        ("measurement=bad", 2),
        ("measurement=m&code=unit", 1),
        ("contains=NaN", 1),
        ("contains=expected", 2),
        ("contains=nowhere", 0),
        ("from=-1h", 5),
        ("to=-1h", 0),
        ("from=2100-01-01T00:00:00Z", 0),
    ];
    for (query, count) in searched {
        assert_eq!(fetch(&server, &owner, &format!("db=a&{query}")).len(), count, "{query}");
    }
    with(&admin, "GET", &server.url(&format!("{PATH}?from=yesterday")), "").expect(400);
    for (token, query) in [(&owner, "db=b"), (&device, "db=a"), (&device, ""), (&reader, "db=a"), (&pinned, "db=a")] {
        let refused = with(token, "GET", &server.url(&format!("{PATH}?{query}")), "").expect(403);
        assert!(!refused.text().contains("bad one"), "{query}");
    }
    with(&admin, "GET", &server.url(&format!("{PATH}?limit=1001")), "").expect(400);
    // A stop writes the list, and the next start reads it.
    assert!(server.stop().success());
    server.restart_behind();
    await_status(&server, &owner, 403);
    assert_eq!(fetch(&server, &owner, "db=a"), seen);
    with(&admin, "POST", &server.url("/query?q=DROP+DATABASE+a"), "").expect(200);
    assert_eq!(brief(&fetch(&server, &admin, "")), [json!(["b", "device", "json", "{\"measurement\":7}"])]);
}

/// Regression: a misplaced `AUTH` or token in a line was shown in the list, its file and the log.
#[test]
fn rejected_lines_never_show_a_token() {
    let (mut server, admin) = start_with_auth("[tcp]\nlisten = \"127.0.0.1:0\"\ndatabase = \"a\"\n");
    let owner = create(&server, &["--name", "owner", "--admin", "a"]);
    let secret = admin.rsplit('_').next().expect("a secret");
    let lines = format!("auth {admin}\nAUTH {admin}\nauth\t{admin} db=a\nm v=1,auth {admin} db=x\nm,t={admin} v=1 x\n");
    Raw::open(server.scheme_address("tcp")).send(lines);
    let seen = poll(TIMEOUT, || Some(fetch(&server, &owner, "db=a")).filter(|seen| !seen.is_empty())).expect("some");
    assert!(seen.iter().any(|one| one["text"] == "auth ***"), "{seen:?}");
    with(&admin, "POST", &server.url("/write?db=a"), &format!("m,t={admin} v=")).expect(400);
    let seen = fetch(&server, &owner, "db=a");
    assert!(seen.iter().any(|one| one["text"] == "m,t=hg_*** v="), "{seen:?}");
    assert!(server.stop().success());
    let entries = std::fs::read_dir(server.data_dir().join("rejections")).expect("a folder");
    let files: String =
        entries.map(|entry| std::fs::read_to_string(entry.expect("an entry").path()).expect("a file")).collect();
    assert!(files.contains("hg_***"));
    for shown in [format!("{seen:?}"), files, server.stderr()] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

/// Written rejections survive a kill; the file is written every ten seconds.
#[test]
fn written_rejections_survive_a_kill() {
    let mut server = Launch::embedded().config("[rejections]\naddresses = \"masked\"\n").start();
    post(&server.url("/write?db=a"), "bad", &[]).expect(400);
    let folder = server.data_dir().join("rejections");
    let is_written = || {
        let mut files = std::fs::read_dir(&folder).ok()?.filter_map(|entry| std::fs::read(entry.ok()?.path()).ok());
        files.any(|file| file.ends_with(b"\n")).then_some(())
    };
    assert!(poll(TIMEOUT, is_written).is_some());
    server.kill_and_restart();
    // Without tokens, everybody sees all rejections.
    let answer = server.fetch(PATH);
    assert_eq!(answer["rejections"][0]["text"], "bad", "{answer}");
    assert_eq!(answer["rejections"][0]["address"], "127.0.0.0/24", "{answer}");
    assert_eq!(answer["rejections"][0]["token"], Value::Null, "{answer}");
}

/// A sender of bad lines fills neither the list nor the log; another sender appears in both.
#[test]
fn a_flood_of_bad_lines_hides_no_other_sender() {
    let (server, admin) = start_with_auth("[rejections]\nmax_bytes = \"256KiB\"\n");
    let loud = create(&server, &["--name", "loud", "--write", "a"]);
    let quiet = create(&server, &["--name", "quiet", "--write", "a"]);
    let url = server.url("/write?db=a");
    let bad = "loud\n".repeat(1000);
    let started = Instant::now();
    for round in 0..2 {
        with(&quiet, "POST", &url, &format!("quiet{round}")).expect(400);
        for _ in 0..50 {
            with(&loud, "POST", &url, &bad).expect(400);
        }
    }
    let answer = with(&admin, "GET", &server.url(&format!("{PATH}?contains=quiet")), "").expect(200).json();
    assert_eq!(answer["codes"], json!({"syntax": 2}), "{answer}");
    let answer = with(&admin, "GET", &server.url(&format!("{PATH}?measurement=loud")), "").expect(200).json();
    let kept = answer["codes"]["syntax"].as_u64().expect("a count");
    assert!((100..5000).contains(&kept), "{kept} of 100,000 lines");
    let log = server.stderr();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("readings were rejected")).collect();
    let warning_count = |token: &str| warnings.iter().filter(|line| line.contains(&format!("\"{token}\""))).count();
    let most = 1 + started.elapsed().as_secs() as usize / 60;
    assert!(
        (1..=most).contains(&warning_count("quiet")) && (1..=most).contains(&warning_count("loud")),
        "{warnings:?}"
    );
    let found = warnings.iter().find(|line| line.contains("\"loud\"")).expect("a warning");
    for part in ["127.0.0.1", "\"count\":1000", "missing fields", "\"a\""] {
        assert!(found.contains(part), "{part} in {found}");
    }
    assert!(warnings.iter().all(|line| line.len() < 500), "{warnings:?}");
}

/// Export, correct, write, and remove up to the last exported line; later rejections stay.
#[test]
fn rejected_lines_are_exported_corrected_and_removed() {
    let (mut server, admin) = start_with_auth("");
    let write = |body: &str, query: &str, status| {
        with(&admin, "POST", &server.url(&format!("/write?db=a&{query}")), body).expect(status);
    };
    write("m temp=1 1768485600", "precision=s", 204);
    write("m temp=\"21.5\",humidity=40i 1768485601\nm temp=\"warm\" 1768485602\nm humidity=", "precision=s", 400);
    let body = r#"[{"measurement":"m","ts":1768485604,"fields":{"temp":"4"}}]"#;
    with(&admin, "POST", &server.url("/api/v1/readings?db=a"), body).expect(400);
    let url = server.url("");
    let command = |words: &[&str]| {
        let service = ["--db", "a", "--server", &url, "--token", &admin];
        run_program(program().arg("rejections").args(words).args(service)).expect_success().stdout
    };
    let list = command(&["list"]);
    assert!(list.contains("family: 3") && list.contains("syntax: 1") && list.contains("warm"), "{list}");
    // A correction of the other field stays, because only the rejected field is exported.
    write("m humidity=41i 1768485601", "precision=s", 204);
    let exported = command(&["export"]);
    let lines: Vec<&str> = exported.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        "m temp=\"21.5\" 1768485601000000000",
        "m temp=\"warm\" 1768485602000000000",
        "m humidity=",
        "m temp=\"4\" 1768485604000000000",
    ];
    assert_eq!(lines, expected, "{exported}");
    assert_eq!(exported.lines().filter(|line| line.contains(" of token first: family: ")).count(), 3, "{exported}");
    let last = exported.lines().last().expect("a comment");
    let through = last.strip_prefix("# 4 lines through ").expect(last);
    let corrected = exported.replace("\"21.5\"", "21.5").replace("\"4\"", "4").replace("\"warm\"", "30");
    write(&corrected.replace("humidity=\n", "humidity=42i 1768485605000000000\n"), "precision=ns", 204);
    write("m temp=\"later\" 1768485606", "precision=s", 400);
    assert_eq!(command(&["done", "--through", through]), "4 rejections removed\n");
    let remaining = fetch(&server, &admin, "db=a");
    assert_eq!(brief(&remaining), [json!(["a", "first", "family", "m temp=\"later\" 1768485606"])]);
    let readings = server.url("/api/v1/readings?db=a&measurement=m&epoch=s&format=ndjson");
    let readings = with(&admin, "GET", &readings, "").expect(200);
    let humidity = readings.text().lines().filter(|line| line.contains("\"humidity\":41")).count();
    assert_eq!((readings.text().lines().count(), humidity), (5, 1), "{}", readings.text());
    // Removal is permanent and respects the filters.
    assert!(server.stop().success());
    server.restart_behind();
    let delete = |query: &str| with(&admin, "DELETE", &server.url(&format!("{PATH}?db=a&{query}")), "");
    assert_eq!(delete("through=9223372036854775807&code=syntax").expect(200).json()["removed"], 0);
    delete("").expect(400);
    delete("through=x").expect(400);
    assert_eq!(fetch(&server, &admin, "db=a"), remaining);
    assert_eq!(delete("through=9223372036854775807").expect(200).json()["removed"], 1);
    assert_eq!(with(&admin, "GET", &server.url(&format!("{PATH}?db=a&format=lp")), "").expect(200).text(), "");
    with(&admin, "GET", &server.url(&format!("{PATH}?db=a&format=xml")), "").expect(400);
}
