//! Rejected lines are fixed and written again, with the rights of those who sent them.

use serde_json::{Value, json};

use super::{PATIENCE, await_status, create, guarded, token_command, with};
use crate::support::http::{get, post, request};
use crate::support::mongod::{Mongod, fresh_database_name};
use crate::support::server::{Launch, Server, program};
use crate::support::{eventually, poll};

const PATH: &str = "/api/v1/rejections/replay";

#[track_caller]
fn replay(server: &Server, token: &str, query: &str, rule: &str) -> Value {
    with(token, "POST", &server.url(&format!("{PATH}?db=a&{query}")), rule).expect(200).json()
}

/// The lines as before, after, and whether they are taken.
fn brief(told: &Value) -> Vec<Value> {
    let lines = told["lines"].as_array().expect("lines");
    lines.iter().map(|line| json!([line["before"], line["after"], line["taken"]])).collect()
}

#[track_caller]
fn readings(server: &Server, token: &str, measurement: &str) -> Value {
    let url = server.url(&format!("/api/v1/readings?db=a&measurement={measurement}&epoch=ns"));
    rows(&with(token, "GET", &url, "").expect(200).json())
}

/// The readings of all series: time and fields, in time order.
fn rows(answer: &Value) -> Value {
    let series = answer["series"].as_array().expect("series").iter();
    let mut rows: Vec<Value> =
        series.flat_map(|series| series["readings"].as_array().expect("readings").clone()).collect();
    rows.sort_by_key(|row| row["ts"].as_i64());
    let of = |mut row: Value| {
        let time = row.as_object_mut().and_then(|row| row.remove("ts"));
        json!([time, row])
    };
    rows.into_iter().map(of).collect()
}

/// The order: a dry run by default, which shows lines before and after; only the field that was rejected is written, at the time of
/// the reading that it belongs to; what is written is not offered again.
#[test]
fn lines_are_fixed_by_a_rule_and_written_once() {
    let (mut server, admin) = guarded("");
    let device = create(&server, &["--name", "device", "--write", "a"]);
    let owner = create(&server, &["--name", "owner", "--admin", "a", "--read", "a", "--write", "a"]);
    await_status(&server, &device, 403);
    await_status(&server, &owner, 403);
    let write = |body: &str, query: &str, status| {
        with(&device, "POST", &server.url(&format!("/write?db=a&{query}")), body).expect(status);
    };
    write("m temp=1 1768485600000000000", "precision=ns", 204);
    write("m temp=\"21.5\",humidity=40i 1768485601", "precision=s", 400);
    write("m temp=\"warm\" 1768485602", "precision=s", 400);
    write("m temp=3 1768485603", "", 400);
    let body = r#"[{"measurement":"m","ts":1768485604,"fields":{"temp":"4"}}]"#;
    with(&device, "POST", &server.url("/api/v1/readings?db=a"), body).expect(400);
    let dry = replay(&server, &owner, "", r#"{"cast":{"temp":"float"}}"#);
    assert_eq!((&dry["dry_run"], &dry["taken"], &dry["refused"]), (&json!(true), &json!(2), &json!(2)), "{dry}");
    let element = &body[1..body.len() - 1];
    let expected = [
        json!(["m temp=\"21.5\",humidity=40i 1768485601", "m temp=2.15e1 1768485601000000000", true]),
        json!(["m temp=\"warm\" 1768485602", null, false]),
        json!(["m temp=3 1768485603", "m temp=3e0 1768485603", false]),
        json!([element, "m temp=4e0 1768485604000000000", true]),
    ];
    assert_eq!(brief(&dry), expected, "{dry}");
    let why = dry["lines"][1]["refused"][0].as_str().expect("a reason");
    assert!(why.contains("no float"), "{why}");
    assert_eq!(readings(&server, &owner, "m").as_array().expect("a list").len(), 2, "a dry run writes nothing");
    let url = server.url("");
    let words = ["--db", "a", "--server", &url, "--token", &owner];
    let list = program().args(["rejections", "list"]).args(words).output().expect("it runs");
    assert!(list.status.success() && String::from_utf8_lossy(&list.stdout).contains("warm"), "{list:?}");
    let dry = program().args(["rejections", "replay", "--cast", "temp=float"]).args(words).output().expect("it runs");
    let told = String::from_utf8_lossy(&dry.stdout);
    assert!(told.contains("  + m temp=2.15e1 ") && told.contains("2 lines would be written, 2 refused"), "{told}");
    // A correction of the other field stays.
    with(&owner, "POST", &server.url("/write?db=a&precision=s"), "m humidity=41i 1768485601").expect(204);
    let done = replay(&server, &owner, "dry_run=false", r#"{"cast":{"temp":"float"}}"#);
    assert_eq!((&done["taken"], &done["refused"]), (&json!(2), &json!(2)), "{done}");
    let expected = json!([
        [1_768_485_600_000_000_000_i64, {"temp": 1}],
        [1_768_485_601_000_000_000_i64, {"temp": 21.5, "humidity": 41}],
        [1_768_485_604_000_000_000_i64, {"temp": 4}],
    ]);
    assert_eq!(readings(&server, &owner, "m"), expected);
    let left = replay(&server, &owner, "code=unit&dry_run=false", r#"{"precision":"s","rename":{"temp":"t"}}"#);
    assert_eq!(brief(&left), [json!(["m temp=3 1768485603", "m t=3e0 1768485603000000000", true])]);
    // A restart forgets neither.
    assert!(server.stop().success());
    server.restart_behind("127.0.0.1:0");
    let rest = replay(&server, &owner, "", "");
    assert_eq!(rest["lines"].as_array().map(Vec::len), Some(1), "{rest}");
    assert_eq!(rest["lines"][0]["token"], "device");
    assert_eq!(replay(&server, &owner, "measurement=other", "")["lines"], json!([]));
    for rule in ["[]", "{\"cast\":{\"temp\":\"decimal\"}}", "{\"precision\":\"x\"}", "{\"rule\":1}"] {
        with(&owner, "POST", &server.url(&format!("{PATH}?db=a")), rule).expect(400);
    }
    for (token, db) in [(&device, "a"), (&owner, "b")] {
        let refused = with(token, "POST", &server.url(&format!("{PATH}?db={db}")), "").expect(403);
        assert!(!refused.text().contains("warm"));
    }
    with(&admin, "POST", &server.url(&format!("{PATH}?db=b")), "").expect(200);
}

/// An admin must not be able to write by way of a device what the device could not, nor a device that is no more.
#[test]
fn nothing_is_written_that_its_sender_could_not_write_now() {
    let (server, _) = guarded("");
    let owner = create(&server, &["--name", "owner", "--admin", "a", "--read", "a", "--write", "*"]);
    let make = |name: &str, more: &[&str]| {
        let words: Vec<&str> = ["--name", name].iter().chain(more).copied().collect();
        let token = create(&server, &words);
        await_status(&server, &token, if more.contains(&"--read") { 200 } else { 403 });
        token
    };
    let pinned = make("pinned", &["--write", "a", "--sensor-tag", "site=lab"]);
    let revoked = make("revoked", &["--write", "a"]);
    let lives = make("lives", &["--write", "a"]);
    await_status(&server, &owner, 403);
    let bad = |token: &str, line: &str| {
        with(token, "POST", &server.url("/write?db=a"), line).expect(400);
    };
    bad(&pinned, "m,site=lab v=1 1768485600");
    with(&pinned, "POST", &server.url("/write?db=a&precision=s"), "m,site=other v=2 1768485600").expect(403);
    bad(&revoked, "m,site=lab v=3 1768485601");
    bad(&lives, "m,site=else v=4 1768485602");
    let ended = token_command(&server.data_dir(), &["revoke", "revoked"]);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let gone = || (with(&revoked, "POST", &server.url("/write?db=a"), "probe v=1").status == 401).then_some(());
    assert!(poll(PATIENCE, gone).is_some());
    let told = replay(&server, &owner, "dry_run=false", r#"{"precision":"s"}"#);
    let lines = told["lines"].as_array().expect("lines");
    let outcome = |line: &Value| json!([line["token"], line["taken"]]);
    let outcomes: Vec<Value> = lines.iter().map(outcome).collect();
    let expected =
        [json!(["pinned", true]), json!(["pinned", false]), json!(["revoked", false]), json!(["lives", true])];
    assert_eq!(outcomes, expected, "{told}");
    let why = |place: usize| lines[place]["refused"][0].as_str().expect("a reason").to_owned();
    assert!(why(1).contains("site=lab") && why(2).contains("revoked"), "{told}");
    let values = readings(&server, &owner, "m");
    assert_eq!(values, json!([[1_768_485_600_000_000_000_i64, {"v": 1}], [1_768_485_602_000_000_000_i64, {"v": 4}]]));
    assert_eq!(replay(&server, &owner, "", "")["lines"].as_array().map(Vec::len), Some(2), "the others stay");
}

#[test]
fn a_kill_between_the_write_and_its_mark_stores_nothing_twice_in_the_embedded_store() {
    kills(&Launch::embedded());
}

#[test]
fn a_kill_between_the_write_and_its_mark_stores_nothing_twice_in_mongodb() {
    let mongod = Mongod::start();
    kills(&Launch::with_store(mongod.uri(&fresh_database_name())));
}

/// Undated lines, too, have one time in every replay, and no other reading has it.
fn kills(launch: &Launch) {
    let mut server = launch.clone().start();
    for round in 0..2 {
        let point = ["rejections_written:1", "rejections_marked:1"][round];
        let address = server.address();
        server.kill();
        server.restart_as(launch.clone().listen(address).env("FAULT_KILL_AT", point));
        let url = server.url(&format!("/write?db=k{round}"));
        post(&url, "k v=1", &[]).expect(204);
        post(&url, "k v=\"2\"\nk v=3\nk v=\"4\"\nk w=5,v=\"6\"\nk v=\"7\" 1768485600000000000", &[]).expect(400);
        let path = server.url(&format!("{PATH}?db=k{round}&dry_run=false"));
        let rule = br#"{"cast":{"v":"float"}}"#;
        // What was rejected in the last seconds before a kill would be lost: the dry run writes it first.
        let dry =
            post(&server.url(&format!("{PATH}?db=k{round}")), r#"{"cast":{"v":"float"}}"#, &[]).expect(200).json();
        assert_eq!(dry["taken"], 4, "{dry}");
        assert!(request("POST", &path, rule, &[]).is_err(), "{point}");
        eventually("the process ends", PATIENCE, || server.exited().map(drop));
        server.restart_as(launch.clone().listen(address));
        let again = request("POST", &path, rule, &[]).expect("an answer").expect(200).json();
        assert_eq!(again["taken"], if round == 0 { 4 } else { 0 }, "{point}: {again}");
        let once_more = request("POST", &path, rule, &[]).expect("an answer").expect(200).json();
        assert_eq!(once_more["lines"], json!([]), "{point}");
        let all = get(&server.url(&format!("/api/v1/readings?db=k{round}&measurement=k&epoch=ns"))).expect(200).json();
        let all = rows(&all).as_array().expect("readings").clone();
        let mut values: Vec<String> =
            all.iter().filter_map(|row| row[1]["v"].as_f64()).map(|v| v.to_string()).collect();
        values.sort_unstable();
        assert_eq!(values, ["1", "2", "3", "4", "6", "7"], "{point}: {all:?}");
        let whole = all.iter().find(|reading| reading[1]["w"] == 5.0).expect("the accepted field");
        assert_eq!(whole[1]["v"], 6.0, "{point}: both are one reading");
    }
}

fn ask(server: &Server, token: &str, query: &str) -> Value {
    with(token, "POST", &server.url(&format!("/query?{}", query.replace(' ', "+"))), "").expect(200).json()
}

/// Regression: a line that was rejected in the database itself was written to the retention policy that was the default by the time of its
/// replay.
#[test]
fn a_line_is_written_to_the_policy_that_it_was_sent_to() {
    let (server, admin) = guarded("");
    let write = |line: &str, query: &str, status| {
        with(&admin, "POST", &server.url(&format!("/write?db=a&{query}")), line).expect(status);
    };
    write("m v=1 1768485600", "precision=s", 204);
    write("m v=2 1768485601", "", 400);
    ask(&server, &admin, "q=CREATE RETENTION POLICY week ON a DURATION INF REPLICATION 1 DEFAULT");
    write("m v=3 1768485602", "precision=s", 204);
    write("m v=4 1768485603", "", 400);
    ask(&server, &admin, "q=ALTER RETENTION POLICY autogen ON a DEFAULT");
    for (database, default) in [("a/week", "autogen"), ("a", "week")] {
        ask(&server, &admin, &format!("q=ALTER RETENTION POLICY {default} ON a DEFAULT"));
        let url = server.url(&format!("{PATH}?db={database}&dry_run=false"));
        let told = with(&admin, "POST", &url, r#"{"precision":"s"}"#).expect(200).json();
        assert_eq!(told["taken"], 1, "{told}");
    }
    for (policy, sum) in [("autogen", 3.0), ("week", 7.0)] {
        let told = ask(&server, &admin, &format!("db=a&rp={policy}&q=SELECT sum(v) FROM m"));
        assert_eq!(told["results"][0]["series"][0]["values"][0][1].as_f64(), Some(sum), "{policy}: {told}");
    }
}

/// Regression: a rule that gave the rejected field the name of another field of its line wrote over that one's acked value.
#[test]
fn a_rename_writes_over_no_other_field_of_the_reading() {
    let (server, admin) = guarded("");
    let write = |line: &str, status| {
        with(&admin, "POST", &server.url("/write?db=a&precision=s"), line).expect(status);
    };
    write("m temp=1,humidity=40 1768485600", 204);
    write("m temp=\"21.5\",humidity=41 1768485601", 400);
    let told = replay(&server, &admin, "dry_run=false", r#"{"rename":{"temp":"humidity"},"cast":{"temp":"float"}}"#);
    assert_eq!(told["taken"], 0, "{told}");
    assert!(told["lines"][0]["refused"][0].as_str().is_some_and(|why| why.contains("two fields")), "{told}");
    let values = readings(&server, &admin, "m");
    assert_eq!(values[1], json!([1_768_485_601_000_000_000_i64, {"humidity": 41}]));
    let told = replay(&server, &admin, "dry_run=false", r#"{"rename":{"temp":"t"},"cast":{"temp":"float"}}"#);
    assert_eq!(told["taken"], 1, "{told}");
    let values = readings(&server, &admin, "m");
    assert_eq!(values[1], json!([1_768_485_601_000_000_000_i64, {"humidity": 41, "t": 21.5}]));
}

/// Regression: of a body with a key whose undated lines were all rejected the times were forgotten. Its retry kept the lines with other
/// times, and a replay wrote each twice.
#[test]
fn a_retry_of_rejected_lines_keeps_their_times() {
    let (server, admin) = guarded("");
    with(&admin, "POST", &server.url("/write?db=a"), "m v=1").expect(204);
    let headers = [("Authorization", &*format!("Token {admin}")), ("Idempotency-Key", "one")];
    for _ in 0..2 {
        request("POST", &server.url("/write?db=a"), b"m v=\"2\"\nm v=\"3\"", &headers).expect("an answer").expect(400);
    }
    let told = replay(&server, &admin, "dry_run=false", r#"{"cast":{"v":"float"}}"#);
    assert_eq!(told["refused"], 0, "{told}");
    let rows = readings(&server, &admin, "m");
    let values: Vec<f64> = rows.as_array().expect("rows").iter().filter_map(|row| row[1]["v"].as_f64()).collect();
    assert_eq!(values, [1.0, 2.0, 3.0], "{rows}");
}

/// A kind that requires a field refused the rest of a reading whose other fields, that one among them, are stored.
#[test]
fn the_rest_of_a_reading_has_what_its_kind_requires() {
    let kind = r#"
[[kinds]]
name = "thermometer"
measurement = "m"
action = "reject"
fields = { required = ["temp"], properties = { hum = { maximum = 100 } } }
"#;
    let (server, _) = guarded(kind);
    let owner = create(&server, &["--name", "owner", "--admin", "a", "--read", "a", "--write", "a"]);
    await_status(&server, &owner, 403);
    let write = |body: &str, status| {
        with(&owner, "POST", &server.url("/write?db=a&precision=s"), body).expect(status);
    };
    write("m temp=19,hum=40 1768485600", 204);
    write("m temp=20,hum=\"44\" 1768485601\nm temp=21,hum=\"144\" 1768485602\nm hum=45 1768485603", 400);
    let done = replay(&server, &owner, "code=family&dry_run=false", r#"{"cast":{"hum":"float"}}"#);
    assert_eq!((&done["taken"], &done["refused"]), (&json!(1), &json!(1)), "{done}");
    assert!(done["lines"][1]["refused"][0].as_str().is_some_and(|why| why.contains("maximum")), "{done}");
    let whole = replay(&server, &owner, "code=kind", "");
    assert_eq!((&whole["taken"], &whole["refused"]), (&json!(0), &json!(1)), "{whole}");
    let expected = json!([
        [1_768_485_600_000_000_000_i64, {"temp": 19, "hum": 40}],
        [1_768_485_601_000_000_000_i64, {"temp": 20, "hum": 44}],
        [1_768_485_602_000_000_000_i64, {"temp": 21}],
    ]);
    assert_eq!(readings(&server, &owner, "m"), expected);
}

/// The list has the first line of each code of a request only. A search in it missed all other lines, which are kept whole.
#[test]
fn the_list_is_searched_with_the_lines_that_are_kept_whole() {
    let (server, admin) = guarded("");
    let lines: String = (0..50).map(|n| format!("m{n} temp={n}oops\n")).collect();
    with(&admin, "POST", &server.url("/write?db=a"), &lines).expect(400);
    let list = |query: &str| {
        let answer = with(&admin, "GET", &server.url(&format!("/api/v1/rejections?db=a&{query}")), "").expect(200);
        let told = answer.json()["rejections"].as_array().expect("a list").clone();
        told.iter().map(|one| json!([one["line"], one["text"]])).collect::<Vec<_>>()
    };
    let first = json!([1, "m0 temp=0oops"]);
    assert_eq!(list(""), std::slice::from_ref(&first));
    assert_eq!(list("contains=41oops"), [json!([42, "m41 temp=41oops"])]);
    assert_eq!(list("measurement=m7"), [json!([8, "m7 temp=7oops"])]);
    assert_eq!(list("measurement=m0"), [first], "once");
    assert_eq!((list("contains=oops").len(), list("contains=oops&limit=3").len()), (50, 3));
    assert_eq!(list("contains=nothing"), Vec::<Value>::new());
}
