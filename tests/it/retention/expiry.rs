//! Readings older than the retention are refused and hidden at once, and removed from the store.

use super::{CONFIG, DAY, HOUR, STORES, ask, database_settings, start, values};
use crate::support::prelude::*;

const CAPS: hourglass::bucket::Caps =
    hourglass::bucket::Caps { max_readings: 8, max_bytes: 1 << 20, hard_bytes: 4 << 20 };
/// Ages in days of the readings of every test; values start with the age.
const AGES: [i64; 7] = [40, 20, 9, 8, 3, 1, 0];

/// Writes a reading of each age for two sensors, and one in the future.
fn fill(server: &Server, time: i64) {
    let lines = AGES.iter().flat_map(|age| (0..2).map(move |s| format!("m,s={s} v={age}i {}\n", time - age * DAY)));
    let future = format!("m,s=0 v=-400i {}\n", time + 400 * DAY);
    post(&server.url("/write?db=w"), lines.collect::<String>() + &future, &[]).expect(204);
}

#[track_caller]
fn query_values(server: &Server) -> Vec<i64> {
    values(server, "db=w", &format!("SELECT v FROM m WHERE s = '0' AND time < {}", now() + 500 * DAY))
}

#[track_caller]
fn await_seen(server: &Server, ages: &[i64]) {
    wait_until("what has expired is hidden", || query_values(server) == ages);
}

/// Waits until the deletion is forgotten: it is done everywhere and hides nothing any more.
fn await_removed(server: &Server) {
    wait_until("what has expired is removed from the store", || metric(server, "hourglass_registry_deletions") == 0.0);
}

#[test]
fn readings_expire_by_the_wall_clock_flushed_or_not() {
    for store in STORES {
        let server = start(&store());
        let time = now() - HOUR;
        fill(&server, time);
        flush(&server);
        // Only in memory.
        write_to(&server, "db=w", format!("m,s=0 v=-9i {}\nm,s=0 v=-1i {}", time - 9 * DAY - 1, time - 1));
        assert_eq!(query_values(&server), [40, 20, -9, 9, 8, 3, 1, -1, 0, -400]);
        post(&server.url("/write?db=w"), format!("old v=1 {}", time - 30 * DAY), &[]).expect(204);
        server.set("w", r#"{"readings":"7d"}"#).expect(200);
        // A sensor without readings is not listed and has no latest reading.
        for path in ["sensors", "latest"] {
            let listed = get(&server.url(&format!("/api/v1/{path}?db=w"))).expect(200);
            assert!(listed.text().contains("m,s=0") && !listed.text().contains("old"), "{}", listed.text());
        }
        // Refused at once, in InfluxDB's words; good lines are kept.
        let lines =
            format!("m,s=0 v=100i {}\nm,s=0 v=2i {}\nm,s=0 v=101i {}", time - 8 * DAY, time - 2 * DAY, time - 9 * DAY);
        let refused = post(&server.url("/write?db=w"), lines, &[]).expect(400).json();
        assert_eq!(refused, json!({"error": "partial write: points beyond retention policy dropped=2"}));
        assert_eq!(metric(&server, "hourglass_ingest_readings_rejected_total{reason=\"retention\"}"), 2.0);
        await_seen(&server, &[3, 2, 1, -1, 0, -400]);
        wait_until("the expiry is counted", || progress(&server, "expire", "deletions") == 1);
        await_removed(&server);
        assert_eq!(query_values(&server), [3, 2, 1, -1, 0, -400], "nothing comes back");
        // Summaries and lists agree.
        assert_eq!(ask(&server, "db=w", "SELECT count(v) FROM m")["series"][0]["values"][0][1], 9);
        assert_eq!(progress(&server, "expire", "deletions"), 1, "once per step");
    }
}

/// Regression: an expiry sweep held its database's turn through its pauses and blocked other deletions and flushes.
#[test]
fn a_deletion_does_not_wait_for_an_expiry_sweep() {
    for store in STORES {
        let halt = Halt::already_set();
        let launch = Launch::with_store(store()).config(CONFIG);
        let server = halt.launch(launch, "expiry_rests").start();
        let time = now() - HOUR;
        let line = |s: i64| format!("m,s={s} v=1i {}\nm,s={s} v=2i {time}\n", time - 20 * DAY);
        post(&server.url("/write?db=w"), (0..150).map(line).collect::<String>(), &[]).expect(204);
        flush(&server);
        server.set("w", r#"{"readings":"7d"}"#).expect(200);
        halt.await_met("the sweep rests");
        let deleted = post(&server.url("/query?db=w&q=DELETE+FROM+m+WHERE+s+%3D+'0'"), "", &[]).expect(200);
        assert!(!deleted.text().contains("error"), "{}", deleted.text());
        assert_eq!(ask(&server, "db=w", "SELECT count(v) FROM m")["series"][0]["values"][0][1], 149);
        halt.lift();
        await_removed(&server);
        assert_eq!(ask(&server, "db=w", "SELECT count(v) FROM m")["series"][0]["values"][0][1], 149);
        // Documents of sensors that lost no latest reading are unchanged.
        let latest = get(&server.url("/api/v1/latest?db=w&sensor=m,s%3D149")).expect(200);
        assert!(latest.text().contains("\"v\":2"), "{}", latest.text());
    }
}

/// Regression: a running expiry used its initial settings for up to a minute, although the change was acked.
#[test]
fn a_revoked_retention_deletes_nothing() {
    for store in STORES {
        for shorter in [r#"{"readings":"1d"}"#, r#"{"readings":"1d","summaries":"inf"}"#] {
            let halt = Halt::already_set();
            let launch = Launch::with_store(store()).config(CONFIG);
            let server = halt.launch(launch, "expiring").start();
            let time = now() - HOUR;
            let lines = format!("m,s=a v=1i {}\nm,s=a v=2i {time}", time - 20 * DAY);
            post(&server.url("/write?db=w"), lines, &[]).expect(204);
            flush(&server);
            server.set("w", shorter).expect(200);
            halt.await_met("it expires");
            server.set("w", r#"{"readings":null,"summaries":null}"#).expect(200);
            halt.lift();
            // A later expiry is done, and so is the running one.
            server.set("x", r#"{"readings":"1d"}"#).expect(200);
            wait_until("another database expires", || progress(&server, "expire", "deletions") == 1);
            assert_eq!(ask(&server, "db=w", "SELECT count(v) FROM m")["series"][0]["values"][0][1], 2, "{shorter}");
            let own = database_settings(&server, "w");
            assert_eq!((&own["kept"], &own["expired_before"]), (&json!("inf"), &Value::Null), "{own}");
        }
    }
}

#[test]
fn a_query_of_an_expired_range_has_a_notice() {
    let server = start("embedded");
    fill(&server, now() - HOUR);
    server.set("w", r#"{"readings":"7d"}"#).expect(200);
    let before = database_settings(&server, "w")["expired_before"].as_str().expect("a time").to_owned();
    let notice = format!("readings of \"w\" before {before} have expired: it keeps them for 168h");
    let asked = |from: &str| server.fetch(&format!("/api/v1/readings?db=w&measurement=m{from}"));
    wait_until("it is deleted", || asked("&from=-30d")["notices"] == json!([notice]));
    assert_eq!(asked("&from=-1d")["notices"], Value::Null);
    assert_eq!(asked("")["notices"], Value::Null);
    let summary = server.fetch("/api/v1/summary?db=w&measurement=m&step=1d&from=-30d");
    assert_eq!(summary["notices"], json!([notice]));
    let told = |statement: &str| ask(&server, "db=w", statement)["notice"].take();
    assert_eq!(told("SELECT v FROM m WHERE time > now() - 30d"), notice);
    assert_eq!(told("SELECT mean(v) FROM (SELECT v FROM m WHERE time > now() - 30d)"), notice);
    assert_eq!(told("SELECT v FROM m WHERE time > now() - 1d"), Value::Null);
    assert_eq!(told("SELECT v FROM m"), Value::Null);
}

/// Regression: for up to `retention.interval`, answers contained readings that they called expired.
#[test]
fn stored_readings_are_never_reported_as_expired() {
    for store in STORES {
        let server = Launch::with_store(store()).config(CONFIG.replace("\"100ms\"", "\"1h\"")).start();
        fill(&server, now() - HOUR);
        // The job expires only in databases that the store lists.
        flush(&server);
        for (kept, shown, left) in [("7d", "168h", 3), ("2d", "48h", 2)] {
            let body = json!({ "readings": kept }).to_string();
            server.set("w", &body).expect(200);
            wait_until("it is deleted, and said", || {
                let counted = ask(
                    &server,
                    "db=w",
                    "SELECT count(v) FROM m WHERE s = '0' AND time > now() - 50d AND time < now()",
                );
                let native = server.fetch("/api/v1/readings?db=w&sensor=m,s=0&from=-50d&to=now");
                let count = counted["series"][0]["values"][0][1].as_u64().expect("a count");
                let listed = native["series"][0]["readings"].as_array().map_or(0, Vec::len) as u64;
                for (notices, count) in [(&counted["notice"], count), (&native["notices"], listed)] {
                    let is_told = notices.to_string().contains(&format!("for {shown}"));
                    assert!(!is_told || count <= left, "{body}: {count} {notices}");
                }
                !counted["notice"].is_null() && count == left
            });
        }
    }
}

/// Nothing is left in the store: no page, no sealed day, no sensor without other readings.
#[test]
fn expired_readings_use_no_space() {
    let name = fresh_database_name();
    let seals = "[seal]\nafter = \"1s\"\ninterval = \"100ms\"\n";
    let server = Launch::with_store(mongod().uri(&name)).config(format!("{CONFIG}{seals}")).start();
    let time = now() - HOUR;
    fill(&server, time);
    post(&server.url("/write?db=w"), format!("old v=1 {}", time - 30 * DAY), &[]).expect(204);
    flush(&server);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = runtime.block_on(mongodb::Client::with_uri_str(mongod().uri(&name))).expect("a client");
    let count = |kind: &str| {
        let collection = client.database(&name).collection::<mongodb::bson::Document>(&format!("w.{kind}"));
        runtime.block_on(async { collection.count_documents(mongodb::bson::doc! {}).await }).expect("a count")
    };
    // All except today's and future ones. An hour ago may be yesterday.
    let lately = if time.div_euclid(DAY) < now().div_euclid(DAY) { 2 } else { 0 };
    wait_until("the days are sealed", || count("days") == 13 + lately);
    server.set("w", r#"{"readings":"7d"}"#).expect(200);
    await_seen(&server, &[3, 1, 0, -400]);
    await_removed(&server);
    assert_eq!((count("days"), count("sensors")), (4 + lately, 2));
    let stored = Stored::in_mongo(mongod(), &name, "w");
    stored.each_bucket(&CAPS, |pages| assert!(pages[0].start > now() / 1_000_000 - 8 * 86_400_000, "{pages:?}"));
}

/// Regression: one part that a newer version wrote stopped the expiry of the whole database, and nothing said so.
#[test]
fn a_part_that_cannot_be_removed_stops_no_other() {
    let name = fresh_database_name();
    let uri = mongod().uri(&name);
    let config = format!("{CONFIG}[seal]\nafter = \"0s\"\n");
    let server = Launch::with_store(&uri).config(config).start();
    let old = (now() - 20 * DAY).div_euclid(DAY) * DAY;
    let lines: String = (0..300).map(|s| format!("m,s={s:03} v={s} {old}\n")).collect();
    post(&server.url("/write?db=w"), lines, &[]).expect(204);
    flush(&server);
    seal(&server);
    let days = || find(&uri, "w.days", doc! {});
    assert_eq!(days().len(), 300);
    let newer = doc! { "sensor": "m,s=007" };
    write_document(&uri, "w.days", newer.clone(), doc! { "schemaVersion": 3 });
    // The content of another one is damaged, which does not matter: it is removed unread.
    write_document(&uri, "w.days", doc! { "sensor": "m,s=008" }, doc! { "readings": 1 });
    server.set("w", r#"{"readings":"7d"}"#).expect(200);
    wait_until("all others are removed", || days().len() == 1);
    wait_until("the health says so", || {
        let health = server.fetch("/health");
        let checks = health["checks"].as_array().cloned().unwrap_or_default();
        let is_named = |check: &Value| check["message"].as_str().is_some_and(|text| text.contains("m,s=007"));
        checks.iter().any(|check| check["name"] == "job sweep" && is_named(check))
    });
    write_document(&uri, "w.days", newer, doc! { "schemaVersion": 2 });
    await_removed(&server);
    assert_eq!(days().len(), 0);
    wait_until("the health recovers", || !server.fetch("/health").to_string().contains("job sweep"));
}

#[test]
fn a_kill_at_any_step_of_an_expiry_changes_no_answer() {
    let points = ["before_expiry:1", "before_deletion:1", "after_deletion:1", "after_expiry:1", "during_expiry:1"];
    for (first, store) in STORES.into_iter().enumerate() {
        for point in shared(points, first) {
            let launch = Launch::with_store(store()).config(CONFIG);
            let mut server = launch.clone().start();
            let time = now() - HOUR;
            fill(&server, time);
            flush(&server);
            post(&server.url("/write?db=w"), format!("m,s=0 v=-9i {}", time - 9 * DAY - 1), &[]).expect(204);
            // That one is in the WAL only.
            server.kill();
            server.restart_with(launch.clone().env("FAULT_KILL_AT", point));
            // Dies in this request or shortly after it.
            let path = server.url("/api/v1/databases/w");
            let _ = request("PATCH", &path, br#"{"readings":"7d"}"#, &[]);
            eventually("the server is killed", || server.exited());
            server.restart_with(launch);
            assert_eq!(database_settings(&server, "w")["readings"], "168h", "{point}");
            await_seen(&server, &[3, 1, 0, -400]);
            await_removed(&server);
            assert_eq!(query_values(&server), [3, 1, 0, -400], "{point}");
        }
    }
}

/// Settings apply to all instances within seconds, and one of them expires readings.
#[test]
fn two_instances_apply_the_same_retention() {
    let launch = Launch::with_store(mongod().uri(&fresh_database_name())).config(CONFIG);
    let first_server = launch.clone().start();
    let mut second_server = launch.start();
    let time = now() - HOUR;
    fill(&first_server, time);
    // Unflushed, and known only there.
    write_to(&second_server, "db=w", format!("m,s=0 v=-9i {}\nm,s=there v=1i {}", time - 9 * DAY - 1, time - 9 * DAY));
    first_server.set("w", r#"{"readings":"7d"}"#).expect(200);
    first_server.set("w/day", r#"{"readings":"1d"}"#).expect(200);
    let old = |server: &Server, parameters: &str, age: i64| {
        post(&server.url(&format!("/write?{parameters}")), format!("m,s=0 v=100i {}", now() - age), &[]).status
    };
    wait_until("the other instance refuses, too", || old(&second_server, "db=w", 30 * DAY) == 400);
    // A new policy of the other instance is known.
    assert_eq!((old(&second_server, "db=w&rp=day", HOUR), old(&second_server, "db=w&rp=day", 2 * DAY)), (204, 400));
    let ages = [3, 1, 0, -400];
    let hidden = "hidden on both";
    for server in [&first_server, &second_server] {
        wait_until(hidden, || {
            let seen: Vec<i64> = query_values(server).into_iter().filter(|v| *v != 100).collect();
            seen == ages
        });
    }
    for server in [&first_server, &second_server] {
        await_removed(server);
        assert!(query_values(server).iter().all(|v| ages.contains(v)), "{:?}", query_values(server));
        assert_eq!(values(server, "db=w", "SELECT v FROM m WHERE s = 'there'"), Vec::<i64>::new());
    }
    let expiries = progress(&first_server, "expire", "deletions") + progress(&second_server, "expire", "deletions");
    // One for the database and one for its policy; two each only if both instances expired at once.
    assert!((2..=4).contains(&expiries), "{expiries}");
    // The change survives, also on the other instance after a restart.
    second_server.kill_and_restart();
    assert_eq!((old(&second_server, "db=w", 30 * DAY), old(&second_server, "db=w&rp=day", HOUR)), (400, 204));
}
