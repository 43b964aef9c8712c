//! Deletions remove exactly what they should: random statements, kills, concurrent writers, instances, outages.

mod created;
mod instances;
mod kills;
mod model;
mod racing;
mod values;

use crate::support::prelude::*;

const DATABASE: &str = "doomed";
const START: i64 = 1_717_200_000 * SECOND;
const UNAUTHORIZED: i32 = 13;
const EXCEEDED_TIME_LIMIT: i32 = 262;
/// Small pages, so that hours have several, and minimal hot memory, so that buckets are evicted.
const CONFIG: &str = r#"
[page]
max_readings = 8
[memtable]
max_bytes = "1MiB"
[flush]
interval = "200ms"
[sensors]
write_interval = "200ms"
recent = 5
"#;
const CAPS: hourglass::bucket::Caps =
    hourglass::bucket::Caps { max_readings: 8, max_bytes: 1 << 20, hard_bytes: 4 << 20 };

#[track_caller]
fn send(server: &Server, statement: &str) -> Answer {
    let body = format!("q={}", encode(statement));
    let form = [("content-type", "application/x-www-form-urlencoded")];
    post(&server.url(&format!("/query?db={DATABASE}")), body, &form)
}

/// Runs statements that must succeed.
#[track_caller]
fn run(server: &Server, statements: &str) {
    let answer = send(server, statements).expect(200).json();
    let results = answer["results"].as_array().expect("results");
    let is_done = |result: &serde_json::Value| result["error"].is_null() && result["series"].is_null();
    assert!(results.iter().all(is_done), "{statements}: {answer}");
}

#[track_caller]
fn write(server: &Server, lines: &str) {
    write_to(server, &format!("db={DATABASE}"), lines);
}

/// Kills the server at each of these points during replay, unless it has flushed everything before.
#[track_caller]
fn kill_during_replay(server: &mut Server, launch: &Launch, points: &[&str]) {
    for point in points {
        server.relaunch(launch.clone().env("FAULT_KILL_AT", point));
        let url = server.url("/api/v1/flush");
        wait_until("it ends or goes on", || {
            let flushed = request("POST", &url, b"", &[]).is_ok_and(|answer| answer.status == 204);
            flushed || server.exited().is_some()
        });
        server.kill();
    }
}

/// Returns the times of a sensor's readings.
#[track_caller]
fn times(server: &Server, sensor: &str) -> Vec<i64> {
    readings(server, DATABASE, sensor, None, 1000).into_iter().map(|(time, _)| time).collect()
}

#[track_caller]
fn list_sensors(server: &Server) -> Vec<String> {
    sensor_keys(server, &format!("db={DATABASE}"))
}

/// `/status` accounts for everything, including readings that were deleted before they were stored.
#[test]
fn readings_deleted_before_their_flush_are_counted() {
    let server = Launch::embedded().config("[flush]\ninterval = \"1h\"\nquiet = \"10m\"\n").start();
    write(&server, &format!("m,t=a v=1 {START}\nm,t=a v=2 {}\nm,t=b v=3 {START}", START + SECOND));
    run(&server, &format!("DELETE FROM m WHERE time = {START}"));
    assert_eq!(metric(&server, "hourglass_ingest_readings_deleted_total"), 2.0);
    flush(&server);
    assert_eq!(metric(&server, "hourglass_ingest_readings_stored_total"), 1.0);
    assert_eq!(metric(&server, "hourglass_ingest_readings_pending"), 0.0);
    assert_eq!((times(&server, "m,t=a"), times(&server, "m,t=b")), (vec![START + SECOND], vec![]));
}

/// A deletion is logged first: it is reported as unfinished and done once the store is back.
#[test]
fn a_deletion_during_an_outage_is_applied_later() {
    let mut mongod = Mongod::start();
    let name = fresh_database_name();
    let config = format!("{CONFIG}\n[ingest]\nack_timeout = \"15s\"\n[store]\ncommand_timeout = \"1s\"\n");
    let mut server = Launch::with_store(mongod.uri(&name)).config(config).start();
    write(&server, &format!("m,t=a v=1 {START}\nm,t=b v=2 {START}"));
    flush(&server);
    mongod.pause();
    write(&server, &format!("m,t=a v=3 {}", START + SECOND));
    // Sensors are looked up in the store, so DELETE needs it; DROP DATABASE does not.
    send(&server, "DELETE FROM m WHERE t = 'a'").expect(503);
    let answer = send(&server, &format!("DROP DATABASE {DATABASE}")).expect(503);
    assert_eq!(answer.header("x-hourglass-ack"), Some("log"), "{}", answer.text());
    write(&server, &format!("m,t=b v=4 {}", START + 2 * SECOND));
    server.kill();
    mongod.resume();
    server.restart();
    flush(&server);
    assert_eq!((times(&server, "m,t=a"), times(&server, "m,t=b")), (vec![], vec![START + 2 * SECOND]));
    assert_eq!(list_sensors(&server), ["m,t=b"]);
    drop(Stored::in_mongo(&mongod, &name, DATABASE));
}

/// Regression: a deletion that failed while its sensors were looked up was not in the audit trail. Only one that failed
/// later was.
#[test]
fn a_deletion_whose_lookup_fails_is_in_the_audit_trail() {
    let mut mongod = Mongod::start();
    let config = "[store]\ncommand_timeout = \"1s\"\n";
    let server = Launch::with_store(mongod.uri(&fresh_database_name())).config(config).start();
    write(&server, &format!("m,t=a v=1 {START}"));
    flush(&server);
    mongod.pause();
    let delete = |parameters: &str| {
        let url = server.url(&format!("/api/v1/readings?db={DATABASE}&measurement=m&tag.t=secret{parameters}"));
        request("DELETE", &url, b"", &[]).expect("an answer").expect(503)
    };
    delete("&dry_run=true");
    delete("&to=2026-01-15T14:00:00Z");
    mongod.resume();
    let trail = || hourglass(&["audit", "list", "--data-dir", path(&server.data_dir())]).stdout;
    eventually("the failed deletion is in the audit trail", || {
        trail().contains("to=2026-01-15T14:00:00Z").then_some(())
    });
    let trail = trail();
    assert!(!trail.contains("dry_run") && !trail.contains("secret"), "{trail}");
}

/// Without the right to delete, the readings are hidden until the right is granted, and nothing waits.
#[test]
fn a_deletion_that_the_store_refuses_hides_the_readings() {
    let mongod = Mongod::start_with(&["--setParameter", "enableTestCommands=1"]);
    let server = Launch::with_store(mongod.uri(&fresh_database_name())).config(CONFIG).start();
    write(&server, &format!("m,t=a v=1 {START}\nm,t=b v=2 {START}"));
    flush(&server);
    mongod.fail(&["delete"], UNAUTHORIZED);
    run(&server, "DELETE FROM m WHERE t = 'a'");
    write(&server, &format!("m,t=b v=3 {}", START + SECOND));
    flush(&server);
    assert_eq!((times(&server, "m,t=a"), times(&server, "m,t=b")), (vec![], vec![START, START + SECOND]));
    assert_eq!(list_sensors(&server), ["m,t=b"]);
    mongod.fail(&[], UNAUTHORIZED);
    wait_until("it is removed", || metric(&server, "hourglass_registry_deletions") == 0.0);
    assert_eq!((times(&server, "m,t=a"), list_sensors(&server)), (vec![], vec!["m,t=b".to_owned()]));
}

/// A deletion of many sensors takes several records. Regression: only those of the last one were removed at once.
#[test]
fn a_deletion_of_many_sensors_removes_all_of_them() {
    for store in stores() {
        let server = Launch::with_store(store).config(CONFIG).start();
        let tag = "a".repeat(60);
        let lines: String = (0..1000).map(|n| format!("m,t={tag}{n} v={n} {START}\n")).collect();
        write(&server, &(lines + &format!("m,t=b v=1 {START}")));
        flush(&server);
        let statement = encode(&format!("DROP SERIES FROM m WHERE t =~ /^{tag}/"));
        let path = format!("/query?db={DATABASE}&wait=true&q={statement}");
        assert_eq!(post(&server.url(&path), "", &[]).expect(200).text().trim(), r#"{"results":[{"statement_id":0}]}"#);
        assert_eq!(list_sensors(&server), ["m,t=b"]);
        for n in [0, 500, 999] {
            let left = server.fetch(&format!("/api/v1/documents?db={DATABASE}&sensor=m,t={tag}{n}"));
            assert_eq!(left["documents"], serde_json::json!([]), "{n}");
        }
    }
}

/// Regression: the document of a sensor that keeps metadata lost its fields with its readings, so that new readings were
/// not selected for a minute.
#[test]
fn readings_after_a_deletion_that_leaves_metadata_are_selected() {
    for store in stores() {
        let server = Launch::with_store(store).config("").start();
        write(&server, &format!("m,t=a v=1 {START}"));
        let meta = "{\"sensor\":\"m,t=a\",\"meta\":{\"site\":\"lab\"}}";
        post(&server.url(&format!("/api/v1/meta?db={DATABASE}")), meta, &[]).expect(200);
        flush(&server);
        run(&server, &format!("DELETE FROM m WHERE time < {}", START + SECOND));
        let url = server.url(&format!("/write?db={DATABASE}&ack=store"));
        post(&url, format!("m,t=a v=2 {}", START + 2 * SECOND), &[]).expect(204);
        let seen = server.fetch(&format!("/query?db={DATABASE}&epoch=s&q={}", encode("SELECT v FROM m")));
        assert_eq!(seen["results"][0]["series"][0]["values"], serde_json::json!([[START / SECOND + 2, 2]]), "{seen}");
    }
}

/// Regression: writes to a dropped measurement were validated by the old documents.
#[test]
fn a_measurement_can_change_type_while_it_is_dropped() {
    let mongod = Mongod::start_with(&["--setParameter", "enableTestCommands=1"]);
    let server = Launch::with_store(mongod.uri(&fresh_database_name())).config(CONFIG).start();
    write(&server, &format!("m,t=a v=1,old=2 {START}"));
    flush(&server);
    mongod.fail(&["delete"], EXCEEDED_TIME_LIMIT);
    std::thread::scope(|scope| {
        let dropped = scope.spawn(|| run(&server, "DROP MEASUREMENT m"));
        wait_until("it is tried", || metric(&server, "hourglass_store_errors_total") > 0.0);
        write(&server, &format!("m,t=a v=\"another kind\" {START}"));
        mongod.fail(&[], EXCEEDED_TIME_LIMIT);
        dropped.join().expect("it is dropped");
    });
    write(&server, &format!("m,t=a v=\"and again\" {}", START + SECOND));
    flush(&server);
    assert_eq!(times(&server, "m,t=a"), [START, START + SECOND]);
    let fields = server.fetch(&format!("/query?db={DATABASE}&q=SHOW%20FIELD%20KEYS"));
    assert_eq!(fields["results"][0]["series"][0]["values"], serde_json::json!([["v", "string"]]));
}

#[test]
fn statements_that_change_data_need_a_same_site_post() {
    let server = Launch::embedded().start();
    write(&server, &format!("m v=1 {START}"));
    for statement in ["DELETE FROM m", "DROP SERIES FROM m", "DROP MEASUREMENT m", "DROP DATABASE doomed"] {
        let q = encode(statement);
        let answer = get(&server.url(&format!("/query?db={DATABASE}&q={q}"))).expect(200);
        assert!(answer.text().contains("must be sent with POST"), "{}", answer.text());
        let foreign = [("origin", "https://elsewhere.example")];
        let answer = post(&server.url(&format!("/query?db={DATABASE}&q={q}")), "", &foreign).expect(403);
        assert!(answer.text().contains("elsewhere.example"), "{}", answer.text());
    }
    assert_eq!(times(&server, "m"), [START]);
    // An unknown measurement matches nothing.
    run(&server, "DELETE FROM nothing");
    run(&server, "DROP DATABASE \"never there\"");
    assert_eq!(times(&server, "m"), [START]);
}

/// A selection by key names one sensor, and not those with more tags.
#[test]
fn a_selection_deletes_what_it_reads() {
    let server = Server::start("embedded");
    let lines = ["m,a=1", "m,a=1,b=2", "m", "n,a=1", "n,a=2"].map(|sensor| {
        let reading = |second: i64| format!("{sensor} v=1 {}\n", START + second * SECOND);
        [reading(0), reading(1)].concat()
    });
    write(&server, &lines.concat());
    let delete = |parameters: &str| {
        let url = server.url(&format!("/api/v1/readings?db={DATABASE}&{parameters}"));
        request("DELETE", &url, b"", &[]).expect("an answer")
    };
    let counts = || ["m,a=1", "m,a=1,b=2", "m", "n,a=1", "n,a=2"].map(|sensor| times(&server, sensor).len());
    let preview = delete("sensor=m,a%3D1&dry_run=true").expect(200).json();
    assert_eq!(preview, json!({"dry_run": true, "sensors": 1, "readings": 2, "summaries": 0}));
    assert_eq!(counts(), [2; 5], "a preview deletes nothing");
    delete("sensor=m,a%3D1").expect(204);
    assert_eq!(counts(), [0, 2, 2, 2, 2]);
    delete(&format!("measurement=m&to={}", START + SECOND)).expect(204);
    assert_eq!(counts(), [0, 1, 1, 2, 2]);
    delete(&format!("tag.a=~1&from={}&precision=ns", START + SECOND)).expect(204);
    assert_eq!(counts(), [0, 0, 1, 1, 2]);
    delete("measurement=n&tag.a!=1").expect(204);
    assert_eq!(counts(), [0, 0, 1, 1, 0]);
    for (parameters, status) in [("", 400), ("dry_run=true", 400), ("measurement=m&fields=v", 400)] {
        delete(parameters).expect(status);
    }
    let nowhere = request("DELETE", &server.url("/api/v1/readings?db=nowhere&measurement=m"), b"", &[]);
    assert_eq!(nowhere.expect("an answer").expect(404).json()["code"], "not_found");
}
