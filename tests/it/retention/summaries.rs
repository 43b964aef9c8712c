//! Readings expire while their summaries stay.

use crate::support::prelude::*;

use super::{CONFIG, DAY, HOUR, STORES, TIMEOUT, answer, ask, database_settings};

/// Age of the first day with readings; days before `KEPT` lose them.
const DAYS: i64 = 5;
pub(super) const SEALS: &str =
    "[seal]\nafter = \"1s\"\ninterval = \"50ms\"\nquiet = \"0s\"\n[clock]\nmax_offset = \"1s\"\n";
const KEPT: &str = r#"{"readings":"3d","summaries":"inf"}"#;

pub(super) fn launch(store: &str) -> Launch {
    Launch::with_store(store).config(format!("{CONFIG}{SEALS}"))
}

/// Returns the start of the oldest written day.
fn first_day() -> i64 {
    (now().div_euclid(DAY) - DAYS) * DAY
}

/// Returns the start of the first day that keeps its readings.
pub(super) fn kept_from() -> i64 {
    (now() - 3 * DAY).div_euclid(DAY) * DAY
}

/// Writes all hours of one sensor and few of another, with all types; returns the start of the first day.
pub(super) fn fill(server: &Server) -> i64 {
    let first = first_day();
    let of_sensor = |sensor: i64, step: i64| {
        (0..(DAYS - 1) * 24 * 4).step_by(usize::try_from(step).expect("small")).map(move |n| {
            let time = first + n * HOUR / 4 + 7 * sensor;
            let value = n * 7 % 101;
            let rest = if n % 3 == 0 { format!(",hum={value}i,note=\"n{n}\"") } else { String::new() };
            format!("m,s={sensor} temp={value}.{n}{rest} {time}\n")
        })
    };
    let lines: String = of_sensor(0, 1).chain(of_sensor(1, 37)).collect();
    post(&server.url("/write?db=w"), lines, &[]).expect(204);
    // Today's, so the database has something unsealed.
    post(&server.url("/write?db=w"), format!("m,s=0 temp=1.5 {}", now() - HOUR / 60), &[]).expect(204);
    flush(server);
    first
}

/// Returns answers about whole hours of past days.
pub(super) fn whole_hours(server: &Server, first: i64) -> Vec<Value> {
    let to = first + (DAYS - 1) * DAY;
    let range = format!("time >= {first} AND time < {to}");
    let mut answers = Vec::new();
    for functions in ["mean(temp),count(hum),sum(temp),min(temp),max(hum),sum(hum)", "spread(temp)"] {
        for group in ["GROUP BY time(1h),s", "GROUP BY time(1d)", "GROUP BY time(6h,1h),s"] {
            let statement = format!("SELECT {functions} FROM m WHERE {range} {group}");
            let mut result = ask(server, "db=w", &statement);
            assert!(result["error"].is_null(), "{statement}: {result}");
            answers.push(result["series"].take());
        }
    }
    // For one sensor, summaries have first and last values, too.
    for group in ["GROUP BY time(1h),s", "GROUP BY time(1d),s", "GROUP BY s"] {
        let statement = format!("SELECT first(temp),last(temp),last(hum),count(hum) FROM m WHERE {range} {group}");
        let mut result = ask(server, "db=w", &statement);
        assert!(result["error"].is_null(), "{statement}: {result}");
        answers.push(result["series"].take());
    }
    // Regression: without a start, days of a zone left out what had expired.
    let start = format!("&from={first}");
    for (step, start) in [("1h", &*start), ("1d", &start), ("1d&tz=Europe/Berlin", "")] {
        let path = format!("/api/v1/summary?db=w&measurement=m&fields=temp,hum&step={step}&to={to}{start}");
        let answer = server.fetch(&path);
        assert!(answer["notices"].is_null(), "{path}: {answer}");
        answers.push(answer);
    }
    answers
}

/// Waits until the readings are gone from the store.
pub(super) fn await_gone(server: &Server) {
    let gone = poll(TIMEOUT, || {
        let shown = database_settings(server, "w");
        (!shown["expired_before"].is_null() && shown["expired_before"] == shown["removed_before"]).then_some(())
    });
    assert!(gone.is_some(), "{}\n{}", database_settings(server, "w"), server.stderr());
}

/// Regression: with the embedded store, readings that a new retention makes expire stayed until the next write, because
/// the floor did not rise.
#[test]
fn readings_are_removed_without_a_later_write() {
    let server = launch("embedded").start();
    fill(&server);
    flush(&server);
    // The floor has passed all readings.
    seal(&server);
    server.set("w", KEPT).expect(200);
    await_gone(&server);
}

#[test]
fn summaries_survive_their_readings_bit_for_bit() {
    for store in STORES {
        let store = store();
        let mut server = launch(&store).start();
        let kept = kept_from();
        let first = fill(&server);
        let before = whole_hours(&server, first);
        server.set("w", KEPT).expect(200);
        assert_eq!(whole_hours(&server, first), before, "at once");
        await_gone(&server);
        assert_eq!(whole_hours(&server, first), before, "stripped");
        // Queries that need readings have a notice and no older rows.
        let raw = get(&server.url(&format!("/api/v1/readings?db=w&sensor=m,s=1&from={first}&limit=1000"))).expect(200);
        let raw = raw.json();
        let shown_before = database_settings(&server, "w")["expired_before"].as_str().expect("a time").to_owned();
        assert!(raw["notices"][0].as_str().expect("a notice").contains(&shown_before), "{raw}");
        let result = ask(&server, "db=w", &format!("SELECT temp FROM m WHERE time >= {first}"));
        assert!(result["series"][0]["values"][0][0].as_i64().expect("a time") >= kept, "{result}");
        assert!(result["notice"].as_str().expect("a notice").contains("only their hourly summaries"), "{result}");
        for statement in [
            format!("SELECT median(temp) FROM m WHERE time >= {first} GROUP BY time(1d)"),
            format!("SELECT mean(temp) FROM m WHERE time >= {} GROUP BY time(1d)", first + 7),
            format!("SELECT count(note) FROM m WHERE time >= {first}"),
            // The first of both sensors, and its time.
            format!("SELECT first(temp) FROM m WHERE time >= {first} GROUP BY time(1d)"),
            format!("SELECT last(temp) FROM m WHERE time >= {first} AND time < {kept} GROUP BY s"),
        ] {
            let result = ask(&server, "db=w", &statement);
            assert!(result["notice"].is_string(), "{statement}: {result}");
        }
        // The default aggregates of the native API are exact, without a notice.
        let path = format!("/api/v1/summary?db=w&measurement=m&step=1d&from={first}");
        let all = server.fetch(&path);
        assert_eq!(
            (&all["notices"], all["series"][0]["windows"].as_array().map(Vec::len)),
            (&Value::Null, Some(5)),
            "{all}"
        );
        // A reading of an expired day is refused.
        assert_eq!(post(&server.url("/write?db=w"), format!("m,s=0 temp=1 {}", first + HOUR), &[]).status, 400);
        assert_eq!(post(&server.url("/write?db=w"), format!("m,s=0 temp=1 {}", kept - 1), &[]).status, 400);
        server.kill_and_restart();
        assert_eq!(whole_hours(&server, first), before, "after a kill");
        // A longer retention restores nothing and admits nothing into expired days.
        server.set("w", r#"{"readings":"30d","summaries":"inf"}"#).expect(200);
        assert_eq!(post(&server.url("/write?db=w"), format!("m,s=0 temp=1 {}", first + HOUR), &[]).status, 400);
        assert_eq!(whole_hours(&server, first), before, "kept longer");
        assert!(server.stop().success());
        verify(&store, &server.data_dir(), &[]).expect_success();
    }
}

#[test]
fn only_whole_expired_hours_can_be_deleted() {
    for store in STORES {
        let store = store();
        let mut server = launch(&store).start();
        let first = fill(&server);
        server.set("w", KEPT).expect(200);
        await_gone(&server);
        let counts = |server: &Server, group: &str| {
            let range = format!("time >= {first} AND time < {}", first + DAY);
            let statement =
                format!("SELECT count(temp),sum(temp) FROM m WHERE {range} AND s='0' GROUP BY time({group})");
            let result = ask(server, "db=w", &statement);
            result["series"][0]["values"].as_array().cloned().unwrap_or_default()
        };
        let hours = counts(&server, "1h");
        let day = counts(&server, "1d");
        assert_eq!((hours.len(), day[0][1].as_i64()), (24, Some(96)));
        let delete = |from: i64, to: i64| {
            let statement = format!("DELETE FROM m WHERE s='0' AND time >= {from} AND time < {to}");
            answer(&server, "db=w", &statement).text().to_string()
        };
        let refused = delete(first + HOUR, first + 3 * HOUR + 1);
        assert!(refused.contains("begin and end the deletion at a whole hour"), "{refused}");
        assert_eq!(counts(&server, "1h"), hours, "nothing was deleted");
        let done = delete(first + HOUR, first + 3 * HOUR);
        assert!(!done.contains("error"), "{done}");
        let check = |server: &Server, when: &str| {
            let left: Vec<Value> = counts(server, "1h").into_iter().filter(|row| row[1] != 0).collect();
            let expected: Vec<Value> =
                hours.iter().enumerate().filter(|(n, _)| !(1..3).contains(n)).map(|(_, v)| v.clone()).collect();
            assert_eq!(left, expected, "{when}");
            assert_eq!(counts(server, "1d")[0][1], 88, "{when}");
        };
        check(&server, "hidden or gone");
        server.kill_and_restart();
        check(&server, "gone");
        // Then the summaries expire, too, by whole days.
        server.set("w", r#"{"readings":"3d","summaries":"4d"}"#).expect(200);
        wait_until("the summaries expire", || counts(&server, "1d").is_empty());
        let later = ask(&server, "db=w", &format!("SELECT count(temp) FROM m WHERE time >= {}", first + DAY));
        assert!(later["series"][0]["values"][0][1].as_i64().expect("a count") > 0, "{later}");
        assert!(server.stop().success());
        verify(&store, &server.data_dir(), &[]).expect_success();
    }
}

#[track_caller]
fn preview_deletion(server: &Server, statement: &str) -> Value {
    let result = ask(server, "db=w&dry_run=true", statement);
    assert!(result["error"].is_null(), "{statement}: {result}");
    result["series"][0]["values"][0].clone()
}

/// Regression: the preview of a deletion ignored summaries.
#[test]
fn a_preview_counts_the_summaries_to_delete() {
    for store in STORES {
        let server = launch(&store()).start();
        let first = fill(&server);
        server.set("w", KEPT).expect(200);
        let oldest = format!("DELETE FROM m WHERE time < {}", first + DAY);
        let check = |when: &str| {
            // A day of one sensor and three readings of the other.
            assert_eq!(preview_deletion(&server, &oldest), json!(["w", 2, 0, 24 + 3]), "{when}");
            for everything in ["DROP MEASUREMENT m", "DROP SERIES FROM m", "DROP DATABASE w"] {
                assert_eq!(
                    preview_deletion(&server, everything),
                    json!(["w", 2, 192 + 5 + 1, 48 + 6]),
                    "{when}: {everything}"
                );
            }
            let from_there = format!("DELETE FROM m WHERE s='0' AND time >= {} AND temp > -1", first + HOUR);
            assert_eq!(preview_deletion(&server, &from_there), json!(["w", 1, 192 + 1, 0]), "{when}: by value");
        };
        check("hidden");
        await_gone(&server);
        check("gone");
        let cut = ask(&server, "db=w&dry_run=true", &format!("DELETE FROM m WHERE time < {}", first + 1));
        assert!(
            cut["error"].as_str().expect("an error").contains("begin and end the deletion at a whole hour"),
            "{cut}"
        );
        let done = ask(&server, "db=w&wait=true", &oldest);
        assert_eq!(done, json!({"statement_id": 0}));
        assert_eq!(preview_deletion(&server, &oldest), json!(["w", 0, 0, 0]));
        assert_eq!(preview_deletion(&server, "DROP MEASUREMENT m"), json!(["w", 2, 192 + 5 + 1, 24 + 3]));
    }
}

#[test]
fn a_kill_at_any_step_changes_no_answer() {
    let points = ["before_expired_readings:1", "after_expired_readings:1", "strip_sealed:1", "stripped:1"];
    // The steps after a kill are the same code; on a shared store they wait for the floor.
    for (store, points) in STORES.into_iter().zip([&points[..], &points[3..]]) {
        for point in points.iter().copied() {
            let launch = launch(&store());
            let mut server = launch.clone().env("FAULT_KILL_AT", point).start();
            let first = fill(&server);
            let before = whole_hours(&server, first);
            let _ = std::panic::catch_unwind(|| server.set("w", KEPT));
            let ended = poll(TIMEOUT, || server.exited());
            assert!(ended.is_some(), "{point}: {}", server.stderr());
            server.restart_as(launch);
            assert_eq!(whole_hours(&server, first), before, "{point}");
            server.set("w", KEPT).expect(200);
            await_gone(&server);
            assert_eq!(whole_hours(&server, first), before, "{point}");
        }
    }
}

#[test]
fn two_instances_agree_on_what_has_expired() {
    let store = mongod().uri(&fresh_database_name());
    let [one, other] = [(); 2].map(|()| launch(&store).start());
    let first = fill(&one);
    let before = whole_hours(&one, first);
    other.set("w", KEPT).expect(200);
    for server in [&one, &other] {
        await_gone(server);
        assert_eq!(whole_hours(server, first), before);
        let status = post(&server.url("/write?db=w"), format!("m,s=0 temp=1 {}", first + HOUR), &[]).status;
        assert_eq!(status, 400);
    }
}

#[test]
fn a_dry_run_counts_readings_and_summaries_separately() {
    let server = launch("embedded").start();
    fill(&server);
    let url = server.url("/api/v1/databases/w?dry_run=true");
    let dry = |body: &str| request("PATCH", &url, body.as_bytes(), &[]).expect("an answer").expect(200).json();
    let settings = r#"{"readings":"3d","summaries":"4d"}"#;
    wait_until("the sensors' documents are written", || dry(settings)["sensors"] == 2);
    let preview = dry(settings);
    // Readings of two days and summaries of one: a reading every quarter of an hour, and a few of the other sensor.
    assert_eq!((&preview["days"], &preview["summaries"]["days"]), (&json!(2), &json!(1)), "{preview}");
    assert_eq!(
        (&preview["readings"], &preview["summaries"]["readings"]),
        (&json!(192 + 6), &json!(96 + 3)),
        "{preview}"
    );
    assert_eq!(database_settings(&server, "w")["readings"], json!(null));
    let refused = server.set("w", r#"{"readings":"3d","summaries":"1d"}"#).expect(400).json();
    assert!(refused["error"].as_str().expect("a text").contains("summaries cannot be kept shorter"), "{refused}");
    // Regression: days that were already gone were counted again.
    server.set("w", settings).expect(200);
    let both = r#"{"readings":"3d","summaries":"3d"}"#;
    wait_until("what has gone is not counted", || dry(both)["oldest"] != preview["oldest"]);
}
