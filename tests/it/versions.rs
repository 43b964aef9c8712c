//! Data of other versions: newer data is waited for, data from before version 1 stops the start.

mod migration;

use hourglass::bucket::{StorageError, Store};
use hourglass::reading::{Hour, Stamp};
use hourglass::store::{EmbeddedStore, MongoOptions, MongoStore};

use crate::support::prelude::*;

/// The first hour of 1970: the page of a sensor is `1970-01-01T00 m,s=a 0`.
const LINES: &str = "m,s=a v=1 1\nm,s=b v=1 1\nm,s=c v=1 1";
const PAGE: &str = "1970-01-01T00 m,s=a 0";

/// Updates one document, bypassing the validator.
#[track_caller]
fn update(uri: &str, collection: &str, which: Document, update: Document) {
    let updates = [doc! { "q": which, "u": update }];
    let command = doc! { "update": collection, "updates": updates.to_vec(), "bypassDocumentValidation": true };
    assert_eq!(run_command(uri, None, command).get_i32("n").expect("a number"), 1);
}

fn impatient(store: &str) -> Launch {
    Launch::with_store(store).config("[ingest]\nack_timeout = \"1s\"\n[seal]\nafter = \"0s\"\n")
}

/// Returns both stores, stopped, with three sensors in the database `d`.
fn both() -> [(Server, Stored); 2] {
    stores().map(|store| {
        let mut server = impatient(&store).start();
        post(&server.url("/write?db=d"), LINES, &[]).expect(204);
        flush(&server);
        assert!(server.stop().success());
        let stored = Stored::from_server(&server, "d");
        (server, stored)
    })
}

/// Sends a statement whose answer takes as long as the deletion waits.
fn delete(server: &Server, statement: &str) {
    let url = server.url(&format!("/query?db=d&q={}", encode(statement)));
    drop(std::thread::spawn(move || drop(request("POST", &url, b"", &[]))));
}

fn ids(stored: &Stored, kind: Kind) -> Vec<String> {
    let mut ids = Vec::new();
    stored.each_document(kind, |document| ids.push(document.get_str("_id").expect("an id").to_owned()));
    ids.sort();
    ids
}

/// Returns the health message about documents that block readings.
fn documents(server: &Server) -> String {
    let health = server.fetch("/health");
    let check = health["checks"].as_array().expect("checks").iter().find(|check| check["name"] == "documents").cloned();
    check.expect("a check with this name")["message"].as_str().unwrap_or_default().to_owned()
}

/// Flushes to a newer page or sensor document wait, are reported, and complete once that version is back.
#[test]
fn readings_wait_for_a_newer_version() {
    for (mut server, stored) in both() {
        stored.change(Kind::Buckets, PAGE, |page| drop(page.insert("schemaVersion", 2)));
        stored.change(Kind::Sensors, "m,s=b", |sensor| drop(sensor.insert("schemaVersion", 2)));
        let before = stored.fingerprints();
        server.restart();
        let write = |lines: &str| post(&server.url("/write?db=d&ack=store"), lines, &[]).status;
        assert_eq!(write("m,s=a v=2 2\nm,s=b v=2,new=1 2\nm,s=c v=2 2"), 503);
        assert_eq!(write("m,s=c v=3 3"), 204);
        let message = eventually("health reports it", || {
            let message = documents(&server);
            message.contains("2 buckets cannot be stored").then_some(message)
        });
        assert!(
            message.contains("was written by a newer version of hourglass") && message.contains("start that version"),
            "{message}"
        );
        let answer = get(&server.url("/api/v1/readings?db=d&sensor=m,s=a"));
        assert_eq!((answer.status, &answer.json()["code"]), (503, &Value::from("store_newer")));
        assert_eq!(server.stop_by("KILL").code(), None);
        assert!(!server.data_dir().join("dead-letters").exists());
        let after = stored.fingerprints();
        for (key, print) in &before {
            if key.1.contains("s=a 0") || key.1 == "m,s=b" {
                assert_eq!(after.get(key), Some(print), "{key:?}");
            }
        }
        stored.change(Kind::Buckets, PAGE, |page| drop(page.insert("schemaVersion", 1)));
        stored.change(Kind::Sensors, "m,s=b", |sensor| drop(sensor.insert("schemaVersion", 1)));
        server.restart();
        flush(&server);
        for sensor in ["m,s=a", "m,s=b"] {
            assert_eq!(readings(&server, "d", sensor, None, 100).len(), 2, "{sensor}");
        }
    }
}

/// Regression: deletions removed newer pages, and gave up on unreadable ones.
#[test]
fn a_deletion_waits_for_a_newer_version() {
    for (mut server, stored) in both() {
        stored.change(Kind::Buckets, PAGE, |page| drop(page.insert("schemaVersion", 2)));
        let before = stored.fingerprints();
        server.restart();
        delete(&server, "DELETE FROM m WHERE s='a'");
        wait_until("the deletion is tried", || {
            let log = server.stderr();
            log.contains("the store refuses a deletion") && log.contains("newer version")
        });
        server.kill();
        let after = stored.fingerprints();
        let key = before.keys().find(|(_, name)| name == PAGE).expect("the page");
        assert_eq!(after.get(key), before.get(key));
        stored.change(Kind::Buckets, PAGE, |page| drop(page.insert("schemaVersion", 1)));
        server.restart();
        wait_until("the deletion is carried out", || metric(&server, "hourglass_registry_deletions") == 0.0);
        assert!(readings(&server, "d", "m,s=a", None, 100).is_empty());
        assert_eq!(readings(&server, "d", "m,s=b", None, 100).len(), 1);
        assert!(server.stop().success());
        assert_eq!(ids(&stored, Kind::Buckets).len(), 2);
        assert_eq!(ids(&stored, Kind::Sensors), ["m,s=b", "m,s=c"]);
    }
}

/// Regression: sensor documents of a newer version were removed by key.
#[test]
fn removals_skip_documents_of_a_newer_version() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    for (server, stored) in both() {
        stored.change(Kind::Sensors, "m,s=a", |sensor| drop(sensor.insert("schemaVersion", 2)));
        stored.change(Kind::Buckets, PAGE, |page| drop(page.insert("schemaVersion", 2)));
        let before = stored.fingerprints();
        runtime.block_on(async {
            let store: Box<dyn Store> = if stored.is_embedded() {
                Box::new(EmbeddedStore::open(&server.data_dir(), 1 << 20).expect("the file"))
            } else {
                Box::new(MongoStore::open(server.store(), MongoOptions::default()).await.expect("a good URI"))
            };
            let is_newer = |result: Result<(), StorageError>| matches!(result, Err(StorageError::Newer { .. }));
            assert!(is_newer(store.remove_sensors("d", &[("m,s=a", None)]).await));
            let hours = Hour(0)..Hour(1);
            assert!(is_newer(store.remove_buckets("d", &["m,s=a"], hours, Stamp::MAX).await));
            store.close().await;
        });
        assert_eq!(stored.fingerprints(), before);
    }
}

/// Regression: `DROP DATABASE` removed newer documents.
#[test]
fn a_drop_waits_for_a_newer_version() {
    for (mut server, stored) in both() {
        let uri = (!stored.is_embedded()).then(|| server.store().to_owned());
        let newer = |version: i32| match &uri {
            // A newer version marks the database, so a drop need not read all documents.
            Some(uri) => update(uri, "databases", doc! { "_id": "d" }, doc! { "$set": { "schemaVersion": version } }),
            None => stored.change(Kind::Buckets, PAGE, |page| drop(page.insert("schemaVersion", version))),
        };
        newer(3);
        server.restart();
        delete(&server, "DROP DATABASE d");
        // The job `index` meets the newer version, too.
        let is_of_drop = |line: &str| line.contains("newer version") && line.contains("deleter");
        wait_until("the drop is tried", || server.stderr().lines().any(is_of_drop));
        server.kill();
        assert_eq!(ids(&stored, Kind::Buckets).len(), 3);
        newer(1);
        server.restart();
        wait_until("the database is dropped", || {
            let listed = post(&server.url("/query?q=SHOW+DATABASES"), "", &[]).text().to_owned();
            !listed.contains("\"d\"")
        });
    }
}

/// Regression: the registry and settings were written back without the fields of a newer version.
#[test]
fn the_registry_and_settings_of_a_newer_version_are_not_written_back() {
    let uri = mongod().uri(&fresh_database_name());
    let server = impatient(&uri).start();
    let put = |kept: &str| server.set("d", &format!("{{\"readings\":\"{kept}\"}}")).status;
    assert_eq!(put("36500d"), 200);
    let newer = doc! { "$set": { "schemaVersion": 2, "added": "by a newer version" }, "$inc": { "rev": 1_i64 } };
    let known = doc! { "$set": { "schemaVersion": 1 }, "$inc": { "rev": 1_i64 } };
    for collection in ["settings", "registry"] {
        update(&uri, collection, doc! {}, newer.clone());
    }
    let before = find(&uri, "registry", doc! {});
    wait_until("the registry is read", || server.stderr().contains("registry update failed"));
    assert_eq!(put("72000d"), 503);
    assert_eq!(find(&uri, "registry", doc! {}), before);
    let settings = find(&uri, "settings", doc! {}).pop().expect("settings");
    assert_eq!(settings.get_str("added").ok(), Some("by a newer version"));
    // Nothing is flushed with an outdated registry, but acks go on.
    post(&server.url("/write?db=d"), LINES, &[]).expect(204);
    for collection in ["settings", "registry"] {
        update(&uri, collection, doc! {}, known.clone());
    }
    wait_until("it goes on", || put("72000d") == 200);
    flush(&server);
    assert_eq!(readings(&server, "d", "m,s=a", None, 100).len(), 1);
}

/// Regression: pages refused by a newer validator became dead letters, and a start replaced that validator.
#[test]
fn readings_refused_by_a_newer_validator_wait() {
    let uri = mongod().uri(&fresh_database_name());
    let mut server = impatient(&uri).start();
    post(&server.url("/write?db=d&ack=store"), LINES, &[]).expect(204);
    assert!(server.stop().success());
    update(&uri, "databases", doc! { "_id": "d" }, doc! { "$set": { "schemaVersion": 9_i64 } });
    let validator = doc! { "$or": [{ "added": { "$exists": true } }, { "measurement": "m" }] };
    run_command(&uri, None, doc! { "collMod": "d.buckets", "validator": &validator });
    server.restart();
    assert_eq!(post(&server.url("/write?db=d&ack=store"), "n,s=a v=1 1\nm,s=a v=1 7", &[]).status, 503);
    // A busy machine may take longer than the short time for acks.
    wait_until("other readings are stored", || {
        post(&server.url("/write?db=d&ack=store"), "m,s=a v=2 8", &[]).status == 204
    });
    wait_until("health reports it", || documents(&server).contains("newer version"));
    assert!(!server.data_dir().join("dead-letters").exists());
    let options = in_mongo(&uri, async |mongo| {
        let listed = mongo.list_collections().filter(doc! { "name": "d.buckets" });
        let mut listed = listed.await.expect("collections");
        assert!(listed.advance().await.expect("an answer"));
        listed.deserialize_current().expect("a collection").options
    });
    assert_eq!(options.validator, Some(validator), "it is the newer version's");
    update(&uri, "databases", doc! { "_id": "d" }, doc! { "$set": { "schemaVersion": 1_i64 } });
    run_command(&uri, None, doc! { "collMod": "d.buckets", "validator": {} });
    flush(&server);
    assert_eq!(readings(&server, "d", "n,s=a", None, 100).len(), 1);
}

/// Its data cannot be read by the rules of version 1.
#[test]
fn a_store_from_before_version_1_stops_the_start() {
    for (mut server, stored) in both() {
        if stored.is_embedded() {
            let file = redb::Database::open(server.data_dir().join("hourglass.redb")).expect("a file");
            let meta: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("meta");
            let transaction = file.begin_write().expect("a transaction");
            transaction.open_table(meta).expect("the table").remove("version").expect("removed");
            transaction.commit().expect("committed");
        } else {
            let unset = doc! { "$unset": { "schemaVersion": 1 } };
            update(server.store(), "databases", doc! { "_id": "d" }, unset);
        }
        let before = stored.fingerprints();
        let launch = impatient(server.store());
        server.relaunch(launch);
        assert!(poll(TIMEOUT, || server.exited()).is_some(), "{}", server.stderr());
        assert!(server.stderr().contains("older than version 1"), "{}", server.stderr());
        assert_eq!(stored.fingerprints(), before);
    }
}
