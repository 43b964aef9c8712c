//! Validators and unique indexes of kinds in MongoDB: they hold other writers, and never what hourglass acked.

use super::{T, warning, write};
use crate::support::prelude::*;

const RULES: &str = r#"
unique = ["serial"]
fields = { required = ["temp"], properties = { temp = { type = "number", maximum = 60 } } }
meta = { properties = { site = { type = "object", properties = { name = { type = "string", pattern = "^[a-z]+$" } } } } }
"#;

/// The configuration of the kind `press`, with an action or without rules.
fn config(action: Option<&str>) -> String {
    let rules = action.map(|action| format!("action = \"{action}\"\n{RULES}")).unwrap_or_default();
    format!(
        "[page]\nmax_readings = 60\n[sensors]\nwrite_interval = \"50ms\"\n[[kinds]]\nname = \"press\"\nmeasurement = \"machine\"\n{rules}"
    )
}

fn settle(server: &Server) -> Value {
    let done = run_job(server, "index");
    assert_eq!((&done["left"], &done["last_error"]), (&json!(0), &json!(null)), "{done}");
    done
}

/// Returns the code of the server's refusal, or 0.
fn code(uri: &str, command: Document) -> i32 {
    let reply = in_mongo(uri, async |mongo| mongo.run_command(command).await.unwrap());
    reply.get_array("writeErrors").map_or(0, |errors| errors[0].as_document().unwrap().get_i32("code").unwrap())
}

fn set(uri: &str, collection: &str, id: &str, set: Document) -> i32 {
    code(uri, doc! { "update": collection, "updates": [{ "q": { "_id": id }, "u": { "$set": set } }] })
}

const PAGE: &str = "2026-01-15T15 machine,s=1 0";

#[test]
fn other_writers_are_held_to_the_kinds() {
    let uri = mongod().uri(&fresh_database_name());
    let server = Launch::with_store(&uri).config(config(Some("reject"))).start();
    write(&server, &format!("machine,s=1 temp=20 {T}\nfree,s=1 temp=99 {T}\n")).expect(204);
    for (sensor, serial) in [("machine,s=1", "A"), ("machine,s=2", "B")] {
        describe(&server, "PUT", sensor, &json!({"serial": serial, "site": {"name": "lab"}})).expect(200);
    }
    flush(&server);
    settle(&server);
    let sensor = |change| set(&uri, "d.sensors", "machine,s=1", change);
    assert_eq!(sensor(doc! { "meta.site": "lab" }), 121);
    assert_eq!(sensor(doc! { "meta.site.name": "LAB" }), 121);
    assert_eq!(sensor(doc! { "meta.serial": "B" }), 11_000);
    assert_eq!(sensor(doc! { "meta.site.name": "roof", "meta.serial": "C" }), 0);
    let page = |change| set(&uri, "d.buckets", PAGE, change);
    assert_eq!(page(doc! { "summary.temp.max": 61 }), 121);
    assert_eq!(page(doc! { "summary.temp.min": "cold" }), 121);
    assert_eq!(page(doc! { "summary": {} }), 121);
    assert_eq!(page(doc! { "summary.temp.max": 60 }), 0);
    // Documents of no kind pass.
    assert_eq!(set(&uri, "d.sensors", "free,s=1", doc! { "meta": { "site": "LAB", "serial": "B" } }), 0);
    assert_eq!(set(&uri, "d.buckets", "2026-01-15T15 free,s=1 0", doc! { "summary.temp.max": 99 }), 0);
}

#[test]
fn what_was_acked_before_a_kind_is_stored_with_a_mark() {
    for before in [None, Some("warn")] {
        let uri = mongod().uri(&fresh_database_name());
        // What the first run logs last must be in the WAL only: a document that it stored would already be invalid, and
        // MongoDB checks no update of such a document.
        let slow = config(before).replace("50ms", "1h") + "[flush]\ninterval = \"1h\"\n";
        let halt = Halt::new();
        let mut server = halt.launch(Launch::with_store(&uri).config(slow), "writing_documents").start();
        let log = |key: &str, meta: &Value| {
            let url = server.url(&format!("/api/v1/sensors/{}/meta?db=d", encode(key)));
            request("PUT", &url, meta.to_string().as_bytes(), &[]).unwrap().expect(200);
        };
        // The page conforms, until the WAL is replayed.
        write(&server, &format!("machine,s=1 temp=20 {T}\n")).expect(204);
        describe(&server, "PUT", "machine,s=1", &json!({"serial": "A", "site": {"name": "lab"}})).expect(200);
        flush(&server);
        halt.set();
        log("machine,s=2", &json!({"serial": "A"}));
        log("machine,s=1", &json!({"serial": "A", "site": "LAB"}));
        write(&server, &format!("machine,s=1 temp=99 {}\nmachine,s=2 temp=99 {T}\n", T + 1)).expect(204);
        // Several pages are written in a transaction.
        let many: String = (0..150).map(|second| format!("machine,s=3 temp=99 {}\n", T + second)).collect();
        write(&server, &many).expect(204);
        server.kill();
        server.restart_as(Launch::with_store(&uri).config(config(Some("reject"))));
        flush(&server);
        settle(&server);
        let marked = |collection: &str, id: &str, mark: &str| {
            !find(&uri, collection, doc! { "_id": id, mark: { "$exists": true } }).is_empty()
        };
        wait_until("documents are marked", || {
            settle(&server);
            marked("d.buckets", PAGE, "exempt")
                && marked("d.buckets", "2026-01-15T15 machine,s=2 0", "exempt")
                && marked("d.buckets", "2026-01-15T15 machine,s=3 0", "exempt")
                && marked("d.overflow", "2026-01-15T15 machine,s=3 1", "exempt")
                && marked("d.sensors", "machine,s=1", "exempt")
                && marked("d.sensors", "machine,s=2", "duplicate.serial")
        });
        let note = settle(&server)["note"].as_str().unwrap_or_default().to_owned();
        assert!(note.contains("machine,s=2"), "{note}");
        let count = influxql(&server, "SELECT count(temp) FROM machine");
        assert_eq!(count[0]["values"][0][1], 153, "{count}");
        assert!(!server.data_dir().join("dead-letters").exists());
        // The rules hold from now on.
        write(&server, &format!("machine,s=1 temp=99 {}\n", T + 2)).expect(400);
        describe(&server, "PUT", "machine,s=4", &json!({"serial": "A"})).expect(400);
        // Marks go when the documents conform.
        describe(&server, "PUT", "machine,s=2", &json!({"serial": "B"})).expect(200);
        describe(&server, "PUT", "machine,s=1", &json!({"serial": "A"})).expect(200);
        for time in [T, T + 1] {
            for sensor in [1, 2] {
                let condition = format!("s = '{sensor}' AND time = {time}000000000");
                execute(&server, "d", &format!("DELETE FROM machine WHERE {condition}"));
            }
        }
        write(&server, &format!("machine,s=1 temp=20 {}\n", T + 3)).expect(204);
        flush(&server);
        wait_until("the marks are gone", || {
            settle(&server);
            !marked("d.buckets", PAGE, "exempt")
                && !marked("d.sensors", "machine,s=1", "exempt")
                && !marked("d.sensors", "machine,s=2", "duplicate.serial")
        });
        assert!(marked("d.buckets", "2026-01-15T15 machine,s=3 0", "exempt"), "it still violates the kind");
        describe(&server, "PUT", "machine,s=4", &json!({"serial": "B"})).expect(400);
        // Without rules, nothing is marked any more.
        server.stop();
        server.restart_as(Launch::with_store(&uri).config(config(None)));
        wait_until("no mark is left", || {
            find(&uri, "d.buckets", doc! { "exempt": true }).is_empty()
                && find(&uri, "d.overflow", doc! { "exempt": true }).is_empty()
        });
    }
}

/// Sensors get a kind after their pages: the refresh of copies must pass the validator.
#[test]
fn a_sensor_can_get_a_kind_that_its_pages_violate() {
    let uri = mongod().uri(&fresh_database_name());
    let timeout = "[store]\ncommand_timeout = \"500ms\"\n";
    let server = Launch::with_store(&uri).config(timeout.to_owned() + &config(Some("reject"))).start();
    write(&server, &format!("free,s=1 temp=99 {T}\n")).expect(204);
    flush(&server);
    settle(&server);
    let changed = describe(&server, "PUT", "free,s=1", &json!({"kind": "press"})).expect(200);
    assert_eq!(warning(&changed), "");
    let page = doc! { "_id": "2026-01-15T15 free,s=1 0", "kind": "press", "exempt": true };
    wait_until("the page has its kind", || !find(&uri, "d.buckets", page.clone()).is_empty());
    wait_until("nothing lags behind", || job(&server, "refresh")["left"] == 0);
    assert_eq!(job(&server, "refresh")["last_error"], json!(null));
}

/// Regression: in the refresh of copies, an error of one document hid behind one that broke a rule, and its sensor counted
/// as refreshed. Later, the error kept the other document from its mark.
#[test]
fn a_refresh_reports_an_error_beside_a_broken_rule() {
    let uri = mongod().uri(&fresh_database_name());
    let copies = "[store]\ncommand_timeout = \"500ms\"\n[[meta.copy]]\nname = \"slot\"\n";
    let server = Launch::with_store(&uri).config(copies.to_owned() + &config(Some("reject"))).start();
    write(&server, &format!("free,s=1 temp=99 {T}\nfree,s=2 temp=20 {T}\nfree,s=3 temp=20 {T}\n")).expect(204);
    flush(&server);
    settle(&server);
    describe(&server, "PUT", "free,s=3", &json!({"slot": 1})).expect(200);
    wait_until("its copies are complete", || job(&server, "refresh")["left"] == 0);
    // A foreign index refuses a second page with the same copy.
    let foreign = doc! { "key": { "meta.slot": 1 }, "name": "own", "unique": true, "sparse": true };
    run_command(&uri, None, doc! { "createIndexes": "d.buckets", "indexes": [foreign] });
    let lines =
        "{\"sensor\":\"free,s=1\",\"meta\":{\"kind\":\"press\"}}\n{\"sensor\":\"free,s=2\",\"meta\":{\"slot\":1}}\n";
    post(&server.url("/api/v1/meta?db=d"), lines, &[]).expect(200);
    let marked = doc! { "_id": "2026-01-15T15 free,s=1 0", "kind": "press", "exempt": true };
    wait_until("the page has its kind and its mark", || !find(&uri, "d.buckets", marked.clone()).is_empty());
    wait_until("the error is reported", || {
        let refresh = job(&server, "refresh");
        refresh["last_error"].as_str().is_some_and(|error| error.contains("cannot update copies"))
            && refresh["left"] != 0
    });
    run_command(&uri, None, doc! { "dropIndexes": "d.buckets", "index": "own" });
    let copied = doc! { "_id": "2026-01-15T15 free,s=2 0", "meta.slot": 1 };
    wait_until("the copy follows", || !find(&uri, "d.buckets", copied.clone()).is_empty());
    wait_until("nothing is left", || job(&server, "refresh")["left"] == 0);
}
