//! `unique` metadata: at most one sensor of a kind has a value, also between instances and across kills.

use super::warning;
use crate::support::prelude::*;

const KINDS: &str = r#"
[sensors]
write_interval = "50ms"

[[kinds]]
name = "press"
measurement = "machine"
action = "reject"
unique = ["serial", "site.code"]

[[kinds]]
name = "meter"
unique = ["serial"]
"#;

fn refusal(server: &Server, method: &str, key: &str, meta: &Value) -> String {
    describe(server, method, key, meta).expect(400).text().to_owned()
}

#[test]
fn a_unique_value_has_one_sensor_of_its_kind() {
    for store in stores() {
        let mut server = Launch::with_store(store).config(KINDS).start();
        describe(&server, "PUT", "machine,s=1", &json!({"serial": "A7"})).expect(200);
        let why = refusal(&server, "PUT", "machine,s=2", &json!({"serial": "A7"}));
        assert!(why.contains("serial") && why.contains("machine,s=1") && why.contains("press"), "{why}");
        describe(&server, "PUT", "machine,s=1", &json!({"serial": "A7", "site": {"code": 1}})).expect(200);
        let why = refusal(&server, "PUT", "machine,s=2", &json!({"serial": "B1", "site": {"code": 1.0}}));
        assert!(why.contains("site.code"), "{why}");
        describe(&server, "PUT", "machine,s=2", &json!({"serial": ["B1", "B2"]})).expect(200);
        refusal(&server, "PATCH", "machine,s=3", &json!({"serial": "B2"}));
        // Another kind has values of its own, until the sensor changes its kind.
        let other = describe(&server, "PUT", "other,s=1", &json!({"serial": "A7"})).expect(200);
        assert_eq!(warning(&other), "");
        refusal(&server, "PATCH", "other,s=1", &json!({"kind": "press"}));
        // An import is checked line by line, also without changing anything.
        let lines = "{\"sensor\":\"machine,s=4\",\"meta\":{\"serial\":\"C1\"}}\n{\"sensor\":\"machine,s=5\",\"meta\":{\"serial\":\"C1\"}}\n";
        for mode in ["&dry_run=true", ""] {
            let answer = post(&server.url(&format!("/api/v1/meta?db=d{mode}")), lines, &[]).expect(400).json();
            assert_eq!((&answer["changed"], &answer["rejected"]), (&json!(1), &json!(1)), "{answer}");
            assert!(answer["reasons"][0]["error"].as_str().unwrap().contains("machine,s=4"), "{answer}");
        }
        // A released value is free at once.
        describe(&server, "PATCH", "machine,s=1", &json!({"serial": null})).expect(200);
        describe(&server, "PATCH", "machine,s=2", &json!({"serial": "A7"})).expect(200);
        refusal(&server, "PATCH", "machine,s=1", &json!({"serial": "A7"}));
        server.kill_and_restart();
        wait_until("it is known after a kill", || {
            describe(&server, "PATCH", "machine,s=1", &json!({"serial": "A7"})).status == 400
        });
        // A kind that only warns keeps the value.
        describe(&server, "PUT", "m,s=1", &json!({"kind": "meter", "serial": 1})).expect(200);
        let warned = describe(&server, "PUT", "m,s=2", &json!({"kind": "meter", "serial": 1})).expect(200);
        assert!(warning(&warned).contains("m,s=1"), "{}", warning(&warned));
        // A deleted sensor has no value.
        super::write(&server, &format!("machine,s=2 temp=20 {}\n", super::T)).expect(204);
        execute(&server, "d", "DROP SERIES FROM machine WHERE s = '2'");
        wait_until("the value is free", || {
            describe(&server, "PATCH", "machine,s=1", &json!({"serial": "A7"})).status == 200
        });
    }
}

#[test]
fn of_two_instances_one_gets_a_value() {
    let uri = mongod().uri(&fresh_database_name());
    let servers = [(); 2].map(|()| Launch::with_store(&uri).config(KINDS).start());
    for round in 0..12 {
        let claim = |server: &Server, sensor: usize| {
            let key = format!("machine,s={round}-{sensor}");
            describe(server, "PUT", &key, &json!({"serial": round})).status
        };
        let mut answers: Vec<u16> = std::thread::scope(|scope| {
            let claims: Vec<_> =
                servers.iter().enumerate().map(|(sensor, server)| scope.spawn(move || claim(server, sensor))).collect();
            claims.into_iter().map(|claim| claim.join().unwrap()).collect()
        });
        answers.sort_unstable();
        assert_eq!(answers, [200, 400], "round {round}");
    }
}

/// A change that was never logged has no ack. It happened or did not, and the other sensor is treated accordingly.
#[test]
fn a_kill_before_the_record_leaves_no_value_without_a_sensor() {
    for store in stores() {
        let launch = || Launch::with_store(store.clone()).config(KINDS);
        let mut server = launch().env("FAULT_KILL_AT", "before_meta_record:1").start();
        let url = server.url("/api/v1/sensors/machine%2Cs%3D1/meta?db=d");
        assert!(request("PUT", &url, br#"{"serial":"A7"}"#, &[]).is_err(), "no ack");
        eventually("it is dead", || server.exited());
        server.restart_as(launch());
        let claim = eventually("it answers", || {
            let answer = describe(&server, "PUT", "machine,s=2", &json!({"serial": "A7"}));
            (answer.status != 503).then_some(answer)
        });
        let first = server.fetch("/api/v1/sensors/machine%2Cs%3D1/meta?db=d");
        assert_eq!(claim.status, if first["serial"] == "A7" { 400 } else { 200 }, "{first}");
        describe(&server, "PUT", "machine,s=1", &json!({})).expect(200);
        describe(&server, "PUT", "machine,s=2", &json!({"serial": "A7"})).expect(200);
        describe(&server, "PUT", "machine,s=1", &json!({"serial": "A7"})).expect(400);
    }
}

/// Random changes, flushes and kills: each answer is the one of a plain map.
#[test]
fn answers_agree_with_a_model() {
    for store in stores() {
        let mut server = Launch::with_store(store).config(KINDS).start();
        let mut random = Random::new(41);
        let mut model: BTreeMap<i64, (i64, bool)> = BTreeMap::new();
        for step in 0..120 {
            let sensor = random.below(4);
            let value = random.below(4);
            let is_press = random.below(4) > 0;
            match random.below(12) {
                0 => flush(&server),
                1 if step % 5 == 0 => server.kill_and_restart(),
                2 => {
                    eventually("it is removed", || {
                        (describe(&server, "PUT", &format!("machine,s={sensor}"), &json!({})).status == 200)
                            .then_some(())
                    });
                    model.remove(&sensor);
                }
                _ => {
                    let kind = if is_press { "press" } else { "none" };
                    let meta = json!({"serial": value, "kind": kind});
                    let answer = eventually("it answers", || {
                        let answer = describe(&server, "PUT", &format!("machine,s={sensor}"), &meta);
                        (answer.status != 503).then_some(answer)
                    });
                    let is_taken =
                        is_press && model.iter().any(|(other, held)| *other != sensor && *held == (value, true));
                    assert_eq!(
                        answer.status == 400,
                        is_taken,
                        "step {step}: {sensor} {meta} {model:?} {}",
                        answer.text()
                    );
                    if !is_taken {
                        model.insert(sensor, (value, is_press));
                    }
                }
            }
        }
    }
}

/// Regression: MongoDB refuses some unique indexes, for example in a `sensors` collection that is sharded by another field.
/// Each change of such metadata then failed, no other index was created, and nothing was logged. Here a foreign index
/// stands in the way, which gives the same class of error.
#[test]
fn an_index_that_mongodb_refuses_stops_no_change() {
    let uri = mongod().uri(&fresh_database_name());
    let mut server = Launch::with_store(&uri).start();
    for database in ["d", "e"] {
        let line = format!("machine,s=1 temp=20 {}\n", super::T);
        post(&server.url(&format!("/write?db={database}&precision=s&ack=store")), line, &[]).expect(204);
    }
    server.stop();
    let counted = doc! { "kind": "press", "duplicate.serial": null, "meta.serial": { "$exists": true } };
    let foreign =
        doc! { "key": { "meta.serial": 1 }, "name": "own", "unique": true, "partialFilterExpression": counted };
    run_command(&uri, None, doc! { "createIndexes": "d.sensors", "indexes": [foreign] });
    server.restart_as(Launch::with_store(&uri).config(KINDS));
    super::write(&server, &format!("machine,s=1 temp=21 {}\n", super::T + 1)).expect(204);
    describe(&server, "PUT", "machine,s=1", &json!({"serial": "A7"})).expect(200);
    refusal(&server, "PUT", "machine,s=2", &json!({"serial": "A7"}));
    flush(&server);
    for _ in 0..2 {
        let done = run_job(&server, "index");
        let problem = done["problem"].as_str().unwrap_or_default();
        assert!(problem.contains("hourglass.unique.press.serial of d.sensors"), "{done}");
    }
    let has_index = |collection: &str, name: &str| {
        let listed = run_command(&uri, None, doc! { "listIndexes": collection });
        listed.to_string().contains(&format!("\"{name}\""))
    };
    assert!(!has_index("d.sensors", "hourglass.unique.press.serial"));
    assert!(has_index("d.sensors", "hourglass.unique.press.site.code"), "the other index of the collection");
    assert!(has_index("e.sensors", "hourglass.unique.press.serial"), "the same index in the next database");
    let log = server.stderr();
    assert_eq!(log.matches("job cannot do all of its work").count(), 1, "{log}");
    let health = get(&server.url("/health")).text().to_owned();
    assert!(health.contains("refuses these indexes"), "{health}");
    run_command(&uri, None, doc! { "dropIndexes": "d.sensors", "index": "own" });
    assert_eq!(run_job(&server, "index")["problem"], json!(null));
    assert!(has_index("d.sensors", "hourglass.unique.press.serial"));
}
