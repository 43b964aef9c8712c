//! Documents changed by hand or written by a newer version; all others are served.

use crate::support::prelude::*;

/// Changes one document of a collection of the database `default`.
fn change(uri: &str, collection: &str, which: Document, set: Document) {
    write_document(uri, &format!("default.{collection}"), which, set);
}

/// A server with a short ack timeout.
fn impatient(uri: &str) -> Server {
    Launch::with_store(uri).config("[ingest]\nack_timeout = \"2s\"\n").start()
}

/// Returns the health message about documents that block readings.
fn blocked(server: &Server) -> Option<String> {
    let health = server.fetch("/health");
    let checks = health["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["name"] == "documents").expect("a check with this name");
    (check["status"] == "fail").then(|| check["message"].as_str().expect("text").to_owned())
}

fn is_without_dead_letters(server: &Server) -> bool {
    !server.data_dir().join("dead-letters").exists()
}

/// Regression: one unwritable page was taken for an outage, or its readings became dead letters.
#[test]
fn an_unwritable_page_delays_no_other() {
    let uri = mongod().uri(&fresh_database_name());
    let server = impatient(&uri);
    let write = server.url("/write?ack=store");
    post(&write, "m,s=bad v=1 1\nm,s=good v=1 1", &[]).expect(204);
    change(&uri, "buckets", doc! { "sensor": "m,s=bad" }, doc! { "sensor": "m,s=other" });
    post(&write, "m,s=bad v=2 2\nm,s=good v=2 2", &[]).expect(503);
    assert_eq!(readings(&server, "default", "m,s=good", None, 100).len(), 2);
    post(&write, "m,s=good v=3 3", &[]).expect(204);
    let message = blocked(&server).expect("readings wait");
    assert!(message.contains("m,s=bad 0") && message.contains("m,s=other"), "{message}");
    change(&uri, "buckets", doc! { "sensor": "m,s=other" }, doc! { "sensor": "m,s=bad" });
    flush(&server);
    assert_eq!(readings(&server, "default", "m,s=bad", None, 100).len(), 2);
    assert!(blocked(&server).is_none() && is_without_dead_letters(&server));
}

/// Regression: one unreadable document failed every write and list, and its readings became dead letters at once.
#[test]
fn readings_wait_for_a_newer_document_that_hides_no_other() {
    let uri = mongod().uri(&fresh_database_name());
    let mut server = impatient(&uri);
    post(&server.url("/write?ack=store"), "m,s=a v=1 1\nm,s=b v=1 1\nm,s=c v=1 1", &[]).expect(204);
    assert!(server.stop().success());
    let version = |version: i32| doc! { "schemaVersion": version };
    change(&uri, "buckets", doc! { "sensor": "m,s=a" }, version(2));
    change(&uri, "sensors", doc! { "_id": "m,s=b" }, version(2));
    server.restart();
    let write = |lines: &str| post(&server.url("/write?ack=store"), lines, &[]).status;
    assert_eq!(write("m,s=a v=2 2\nm,s=b v=2,new=1 2\nm,s=c v=2 2"), 503);
    assert_eq!(readings(&server, "default", "m,s=c", None, 100).len(), 2, "its neighbours' trouble is not its own");
    assert_eq!(write("m,s=c v=3 3"), 204);
    assert_eq!(get(&server.url("/api/v1/readings?sensor=m,s=a")).status, 503);
    let message = blocked(&server).expect("readings wait");
    assert!(message.contains("2 buckets cannot be stored") && message.contains("schema version 2"), "{message}");
    assert_eq!(metric(&server, "hourglass_flush_blocked_buckets"), 2.0);
    assert!(server.stderr().contains("1970-01-01T00 m,s=a 0"), "the log names the document");
    change(&uri, "buckets", doc! { "sensor": "m,s=a" }, version(1));
    change(&uri, "sensors", doc! { "_id": "m,s=b" }, version(1));
    flush(&server);
    for sensor in ["m,s=a", "m,s=b"] {
        assert_eq!(readings(&server, "default", sensor, None, 100).len(), 2, "{sensor}");
    }
    assert!(blocked(&server).is_none() && is_without_dead_letters(&server));
}

/// Regression: pages of a sensor with a refused document were stored, but no list had the sensor.
#[test]
fn a_refused_sensor_document_delays_only_its_own_pages() {
    let uri = mongod().uri(&fresh_database_name());
    let server = impatient(&uri);
    let write = server.url("/write?ack=store");
    post(&write, "m,s=first v=1 1", &[]).expect(204);
    let refuse = |refused: Document| {
        let validator = doc! { "_id": { "$nin": [refused.get_str("_id").unwrap_or("")] } };
        run_command(
            &uri,
            None,
            doc! { "collMod": "default.sensors", "validator": validator, "validationLevel": "strict" },
        );
    };
    refuse(doc! { "_id": "m,s=bad" });
    post(&write, "m,s=bad v=1 1\nm,s=good v=1 1", &[]).expect(503);
    assert_eq!(readings(&server, "default", "m,s=good", None, 100).len(), 1);
    let pages = run_command(&uri, None, doc! { "count": "default.buckets", "query": { "sensor": "m,s=bad" } });
    assert_eq!(pages.get_i32("n").unwrap(), 0, "no page goes before its sensor's document");
    let message = blocked(&server).expect("readings wait");
    assert!(message.contains("the document of sensor m,s=bad"), "{message}");
    refuse(doc! {});
    flush(&server);
    assert_eq!(readings(&server, "default", "m,s=bad", None, 100).len(), 1);
    assert!(blocked(&server).is_none() && is_without_dead_letters(&server));
}
