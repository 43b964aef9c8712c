//! Metadata survives kills and deletions, and instances agree on it.

use serde_json::Map;

use crate::support::prelude::*;

use super::{T, meta, send};

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

/// On two instances the later change of a name wins, and `DROP SERIES` removes earlier metadata of the other's WAL.
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
    eventually("both have everything", || (all(&a)? == all(&b)?).then_some(()));
    let listed = b.fetch("/api/v1/meta?db=d");
    assert_eq!(listed["sensors"][0]["meta"]["x"], 109);
    execute(&a, "d", "DROP SERIES FROM m");
    wait_until("it is gone for both", || meta(&a, "m,s=1").is_none() && meta(&b, "m,s=1").is_none());
}

/// Regression: an instance showed metadata from its WAL again for some seconds after it was started, although another
/// instance had dropped the series: it kept new metadata for longer than the registry remembered the deletion.
#[test]
fn dropped_metadata_in_the_log_of_a_killed_instance_stays_dropped() {
    let launch = Launch::with_store(mongod().uri(&fresh_database_name()));
    let here = launch.clone().start();
    write_flushed(&here, format!("m,s=1 v=1 {T}\n"));
    let mut there = launch.clone().env("FAULT_KILL_AT", "before_sensors:1").start();
    send(&there, "PUT", "m,s=1", &json!({"site": "lab"}), &[]).expect(200);
    eventually("it dies before it stores the metadata", || there.exited());
    execute(&here, "d", "DROP SERIES FROM m WHERE s = '1'");
    there.restart_as(launch);
    let mut polls_left = 40;
    wait_until("the deletion is forgotten", || {
        assert_eq!((meta(&there, "m,s=1"), meta(&here, "m,s=1")), (None, None));
        polls_left -= usize::from(metric(&there, "hourglass_registry_deletions") == 0.0);
        polls_left == 0
    });
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
        wait_until("the deletion hides the reading, and goes on to the document", || {
            let left = get(&b.url("/api/v1/readings?db=d&measurement=m"));
            !left.text().contains("\"v\"")
        });
        send(&b, "PUT", "m,s=1", &json!({"site": "lab"}), &[("x-hourglass-ack", "store")]).expect(200);
        halt.lift();
        dropped.join().unwrap();
    });
    assert_eq!(meta(&b, "m,s=1"), Some(json!({"site": "lab"})));
    eventually("the other instance agrees", || (meta(&a, "m,s=1")? == json!({"site": "lab"})).then_some(()));
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
        wait_until("the older values have lost", || {
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
    // Everything stays in the WAL, as after a kill before its truncation.
    let launch = Launch::embedded().config("[sensors]\nwrite_interval = \"200ms\"\n");
    let mut server = halt.launch(launch, "before_truncate").start();
    send(&server, "PUT", "m,s=1", &json!({"site": "lab"}), &[("x-hourglass-ack", "store")]).expect(200);
    write(&server, format!("m,s=1 v=1 {T}\nm,s=2 v=1 {T}\n"));
    execute(&server, "d", "DROP SERIES FROM m WHERE s = '1'");
    flush(&server);
    wait_until("the deletion is forgotten", || metric(&server, "hourglass_registry_deletions") == 0.0);
    server.kill();
    halt.lift();
    server.restart();
    assert!(metric(&server, "hourglass_ingest_readings_replayed_total") > 0.0, "the WAL still has all of it");
    for _ in 0..2 {
        assert_eq!(meta(&server, "m,s=1"), None);
        let listed = server.fetch("/api/v1/sensors?db=d");
        assert_eq!(listed["sensors"].as_array().unwrap().len(), 1, "{listed}");
        flush(&server);
    }
}

/// Regression: a changed sensor document was written five times a second for ever.
#[test]
fn a_document_with_new_metadata_is_written_once() {
    let server = Launch::embedded().config("[sensors]\nwrite_interval = \"1h\"\n[ingest]\nshards = 1\n").start();
    let written = || metric(&server, "hourglass_store_sensor_writes_total");
    let stored = |writes: f64| wait_until("the document is stored", || written() == writes);
    write_flushed(&server, format!("m,s=1 v=1 {T}\nm,s=2 v=1 {T}"));
    stored(2.0);
    send(&server, "PUT", "m,s=1", &json!({"site": "lab"}), &[]).expect(200);
    stored(3.0);
    write_flushed(&server, format!("m,s=1 v=2 {}", T + 1));
    // This one would cause a write of the other sensor.
    send(&server, "PUT", "m,s=2", &json!({"site": "lab"}), &[]).expect(200);
    wait_until("the document is stored", || written() >= 4.0);
    assert_eq!(written(), 4.0);
}
