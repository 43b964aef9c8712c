//! Deletions by value remove exactly the matching readings.

use crate::support::prelude::*;

use super::{CONFIG, DATABASE, HOUR, SECOND, START, TIMEOUT, kill_during_replay, run, write};

/// Days are sealed meanwhile.
const SEALS: &str = "[seal]\nafter = \"1s\"\ninterval = \"50ms\"\n";
/// Small segments, so that a deletion takes several parts.
const PARTS: &str = "[wal]\nsegment_bytes = \"64KiB\"\nbudget_bytes = \"64MiB\"\n";
const TAGS: [&str; 3] = ["a", "b", "c"];

/// Values of `v` and `w` by tag and time.
type Model = BTreeMap<(&'static str, i64), BTreeMap<&'static str, i64>>;

/// Sends a statement with further parameters.
#[track_caller]
fn ask(server: &Server, statement: &str, parameters: &str) -> Answer {
    let q = encode(statement);
    post(&server.url(&format!("/query?db={DATABASE}&q={q}{parameters}")), "", &[])
}

#[track_caller]
fn delete(server: &Server, statement: &str) -> String {
    let answer = ask(server, statement, "").expect(200);
    assert!(answer.json()["results"][0]["error"].is_null(), "{statement}: {}", answer.text());
    answer.notice().to_owned()
}

/// Returns the sensors and readings that a statement would delete.
#[track_caller]
fn preview_deletion(server: &Server, statement: &str) -> (u64, u64) {
    let answer = ask(server, statement, "&dry_run=true").expect(200).json();
    let row = &answer["results"][0]["series"][0]["values"][0];
    assert_eq!(row[0], DATABASE, "{answer}");
    (row[1].as_u64().expect("sensors"), row[2].as_u64().expect("readings"))
}

#[track_caller]
fn all(server: &Server) -> Model {
    let mut all = Model::new();
    for tag in TAGS {
        for (time, row) in readings(server, DATABASE, &format!("m,t={tag}"), None, 10_000) {
            let value = |name: &'static str| Some((name, row.get(name)?.parse().expect("a whole number")));
            all.insert((tag, time), ["v", "w"].into_iter().filter_map(value).collect());
        }
    }
    all
}

fn lines(model: &Model) -> String {
    model.iter().fold(String::new(), |mut lines, ((tag, time), fields)| {
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}i")).collect();
        let _ = writeln!(lines, "m,t={tag} {} {time}", fields.join(","));
        lines
    })
}

tests! {
    fn random_deletions_by_value_agree_with_a_plain_map_in_the_embedded_store() => compare_with_model(Launch::embedded(), 3);
    fn random_deletions_by_value_agree_with_a_plain_map_in_mongodb() =>
        compare_with_model(Launch::with_store(mongod().uri(&fresh_database_name())), 4);
}

/// Random writes, corrections, flushes, kills and deletions by value during sealing.
fn compare_with_model(launch: Launch, seed: u64) {
    let mut server = launch.config(format!("{CONFIG}{SEALS}{PARTS}")).start();
    let mut random = Random::new(seed);
    let mut model = Model::new();
    for step in 0..40 {
        match random.below(8) {
            0..4 => {
                let mut some = Model::new();
                for _ in 0..60 {
                    let key = (random.pick(&TAGS), START + random.below(40) * HOUR + random.below(4) * SECOND);
                    let fields = some.entry(key).or_default();
                    for name in ["v", "w"] {
                        if random.below(3) > 0 {
                            fields.insert(name, random.below(100));
                        }
                    }
                }
                some.retain(|_, fields| !fields.is_empty());
                write(&server, &lines(&some));
                some.into_iter().for_each(|(key, fields)| model.entry(key).or_default().extend(fields));
            }
            4 => flush(&server),
            5 if step % 3 == 0 => {
                server.kill_and_restart();
            }
            _ => some_deletion(&server, &mut random, &mut model),
        }
        assert_eq!(all(&server), model, "step {step}");
    }
    flush(&server);
    assert_eq!(all(&server), model);
}

fn some_deletion(server: &Server, random: &mut Random, model: &mut Model) {
    let v = random.below(100);
    let w = random.below(100);
    let tag = random.pick(&TAGS);
    let from = START + random.below(20) * HOUR;
    let to = START + (20 + random.below(20)) * HOUR;
    type Test = Box<dyn Fn(&(&'static str, i64), Option<i64>, Option<i64>) -> bool>;
    let (condition, goes): (String, Test) = match random.below(5) {
        0 => (format!("v > {v}"), Box::new(move |_, a, _| a.is_some_and(|a| a > v))),
        1 => (
            format!("v > {v} AND t = '{tag}' AND time >= {from} AND time < {to}"),
            Box::new(move |row, a, _| row.0 == tag && (from..to).contains(&row.1) && a.is_some_and(|a| a > v)),
        ),
        2 => (
            format!("(v < {v} OR w > {w}) AND t != '{tag}'"),
            Box::new(move |row, a, b| row.0 != tag && (a.is_some_and(|a| a < v) || b.is_some_and(|b| b > w))),
        ),
        3 => (format!("v + w >= {}", v + w), Box::new(move |_, a, b| a.zip(b).is_some_and(|(a, b)| a + b >= v + w))),
        _ => (format!("w = {w}"), Box::new(move |_, _, b| b == Some(w))),
    };
    let statement = format!("DELETE FROM m WHERE {condition}");
    let (gone, left): (Model, Model) = std::mem::take(model)
        .into_iter()
        .partition(|(key, fields)| goes(key, fields.get("v").copied(), fields.get("w").copied()));
    *model = left;
    // Without a known field, a condition is one on tags.
    if gone.is_empty() {
        return;
    }
    let sensors = TAGS.iter().filter(|tag| gone.keys().any(|(of, _)| of == *tag)).count() as u64;
    assert_eq!(preview_deletion(server, &statement), (sensors, gone.len() as u64), "{statement}");
    let reply = delete(server, &statement);
    assert!(
        reply.starts_with(&format!("deleted {} readings of {sensors} sensors", gone.len())),
        "{statement}: {reply}"
    );
    assert_eq!(all(server), *model, "{statement}");
    if random.once_in(2) {
        return;
    }
    // Some are written again and stay.
    for key in gone.into_keys() {
        if !random.once_in(4) {
            continue;
        }
        let rewrite = BTreeMap::from([("v", -random.below(9) - 1)]);
        write(server, &lines(&Model::from([(key, rewrite.clone())])));
        model.insert(key, rewrite);
    }
}

/// Returns 6,000 readings of two sensors; a third matches, in two parts.
fn initial_model() -> Model {
    let sensor =
        |tag| (0..3000).map(move |n| ((tag, START + n * 7 * SECOND), BTreeMap::from([("v", n % 3), ("w", n)])));
    sensor("a").chain(sensor("b")).collect()
}

/// Writes them in records that fit into a small segment.
#[track_caller]
fn write_model(server: &Server, model: &Model) {
    let all = lines(model);
    let all: Vec<&str> = all.lines().collect();
    all.chunks(1000).for_each(|some| write(server, &some.join("\n")));
}

tests! {
    fn a_killed_deletion_by_value_removes_whole_readings_in_the_embedded_store() => kills(Launch::embedded, "");
    fn a_killed_deletion_by_value_removes_whole_readings_of_sealed_days_in_mongodb() =>
        kills(|| Launch::with_store(mongod().uri(&fresh_database_name())), SEALS);
}

fn kills(launch: impl Fn() -> Launch, more: &str) {
    let model = initial_model();
    let left: Model = model.clone().into_iter().filter(|(_, fields)| fields["v"] != 2).collect();
    let points = "marked:1 before_append:2 after_sync:2 before_deletion:1 during_deletion:1 during_deletion:2 \
                  part_deleted:1 after_deletion:2";
    for point in points.split(' ') {
        let pages = "[page]\nmax_readings = 200\n[flush]\ninterval = \"200ms\"\n";
        let launch = launch().config(format!("{pages}{more}{PARTS}"));
        let mut server = launch.clone().start();
        write_model(&server, &model);
        flush(&server);
        server.kill();
        server.relaunch(launch.clone().env("FAULT_KILL_AT", point));
        eventually("it answers", || {
            let status = request("GET", &server.url("/api/v1/status"), b"", &[]).ok()?;
            (status.status == 200 && status.json()["feeding"] == false).then_some(())
        });
        let q = encode("DELETE FROM m WHERE v = 2");
        let answer = request("POST", &server.url(&format!("/query?db={DATABASE}&q={q}")), b"", &[]);
        assert!(answer.is_err(), "{point}: {:?}", answer.map(|answer| answer.text().to_owned()));
        assert!(poll(TIMEOUT, || server.exited()).is_some(), "{point}");
        // The next process also dies during replay.
        kill_during_replay(&mut server, &launch, &["during_replay:1", "during_deletion:1"]);
        server.restart_with(launch.clone());
        let seen = all(&server);
        assert!(left.iter().all(|(key, fields)| seen.get(key) == Some(fields)), "{point}: it deleted others");
        assert!(seen.iter().all(|(key, fields)| model.get(key) == Some(fields)), "{point}: half a reading is left");
        // Once more, to its end; later writes into the gap stay.
        delete(&server, "DELETE FROM m WHERE v = 2");
        assert_eq!(all(&server), left, "{point}");
        let rewrite = Model::from([(("a", START + 2 * 7 * SECOND), BTreeMap::from([("v", 2), ("w", 2)]))]);
        write(&server, &lines(&rewrite));
        let mut expected = left.clone();
        expected.extend(rewrite);
        server.kill_and_restart();
        assert_eq!(all(&server), expected, "{point}");
    }
}

tests! {
    fn writes_during_a_deletion_by_value_stay_in_the_embedded_store() => late_writes(&Launch::embedded());
    fn writes_during_a_deletion_by_value_stay_in_mongodb() =>
        late_writes(&Launch::with_store(mongod().uri(&fresh_database_name())));
}

/// Writes a correction, an equal value and another field after the condition is resolved and before the deletion.
fn late_writes(launch: &Launch) {
    let halt = Halt::already_set();
    let launch = launch.clone().config(CONFIG);
    let mut server = halt.launch(launch.clone(), "part_resolved").start();
    let row = |n: i64, fields: &[(&'static str, i64)]| (("a", START + n * SECOND), fields.iter().copied().collect());
    write(&server, &lines(&(0..20).map(|n| row(n, &[("v", 100 + n), ("w", n)])).collect()));
    let late: Model = [row(3, &[("v", 1)]), row(4, &[("v", 104)]), row(5, &[("w", 50)]), row(30, &[("v", 130)])].into();
    std::thread::scope(|threads| {
        let deletes = threads.spawn(|| delete(&server, "DELETE FROM m WHERE v > 9"));
        halt.await_met("it is resolved");
        write(&server, &lines(&late));
        flush(&server);
        halt.lift();
        let reply = deletes.join().expect("it is deleted");
        assert!(reply.starts_with("deleted 20 readings of 1 sensors"), "{reply}");
    });
    for _ in 0..3 {
        assert_eq!(all(&server), late);
        server.kill();
        server.restart_with(launch.clone());
    }
    flush(&server);
    assert_eq!(all(&server), late);
}

#[test]
fn a_deletion_by_value_covers_unflushed_readings_of_other_instances() {
    let launch = Launch::with_store(mongod().uri(&fresh_database_name()))
        .config("[flush]\ninterval = \"2s\"\nquiet = \"2s\"\n[sensors]\nwrite_interval = \"200ms\"\n");
    let here = launch.clone().start();
    let there = launch.start();
    let row = |tag, n: i64, v: i64| ((tag, START + n * SECOND), BTreeMap::from([("v", v)]));
    let lots = |from: i64| (0..20).flat_map(move |n| TAGS.map(|tag| row(tag, from + n, n))).collect::<Model>();
    write(&here, &lines(&lots(0)));
    // One of these sensors is known only to this instance.
    let mut hidden = lots(100);
    hidden.extend([(("c", START + 900 * SECOND), BTreeMap::from([("v", 15)]))]);
    write(&there, &lines(&hidden));
    let reply = delete(&here, "DELETE FROM m WHERE v >= 10");
    assert!(reply.starts_with("deleted 61 readings of 3 sensors"), "{reply}");
    let left: Model = lots(0).into_iter().chain(lots(100)).filter(|(_, fields)| fields["v"] < 10).collect();
    assert_eq!((all(&here), all(&there)), (left.clone(), left.clone()));
}

/// Regression: a deletion that waited for the WAL of a lost folder kept a stop waiting for `server.shutdown_timeout`, and
/// the exit status said that something was left.
#[test]
fn a_stop_does_not_wait_for_the_log_of_another_instance() {
    let launch = Launch::with_store(mongod().uri(&fresh_database_name()));
    let mut here = launch.clone().start();
    let mut there = launch.config("[flush]\ninterval = \"1h\"\nquiet = \"10m\"\n").start();
    write(&there, &format!("m,t=a v=20 {START}\n"));
    there.kill();
    write(&here, &format!("m,t=b v=20 {START}\n"));
    let url = here.url(&format!("/query?db={DATABASE}&q={}", encode("DELETE FROM m WHERE v >= 10")));
    let waiting = std::thread::spawn(move || request("POST", &url, b"", &[]));
    wait_until("the deletion has a mark", || metric(&here, "hourglass_wal_records_total") >= 2.0);
    assert!(here.stop().success(), "{}", here.stderr());
    let answer = waiting.join().expect("a thread").expect("an answer");
    assert_eq!(answer.status, 503, "{}", answer.text());
}

/// Regression: a mark that was logged while its deletion gave up belonged to nobody. It held the floor until the next start,
/// and the stop ended with a record left.
#[test]
fn a_mark_ends_with_its_deletion_while_it_is_logged() {
    let halt = Halt::new();
    let mut server = halt.launch(Launch::with_store(mongod().uri(&fresh_database_name())), "after_sync").start();
    write(&server, &format!("m,t=a v=20 {START}\n"));
    flush(&server);
    halt.set();
    let url = server.url(&format!("/query?db={DATABASE}&q={}", encode("DELETE FROM m WHERE v >= 10")));
    let waiting = std::thread::spawn(move || request("POST", &url, b"", &[]));
    halt.await_met("the mark is being logged");
    server.signal("TERM");
    assert_eq!(waiting.join().expect("a thread").expect("an answer").status, 503);
    halt.lift();
    wait_until("it has stopped", || server.exited().is_some());
    assert!(server.exited().expect("a status").success(), "{}", server.stderr());
}

/// Regression: deletions went on without their clients and waited without a limit, each with its statement and sensors.
#[test]
fn deletions_of_one_token_wait_in_eight_places() {
    let halt = Halt::already_set();
    let server = halt.launch(Launch::embedded().config(CONFIG), "part_resolved").start();
    write(&server, &format!("m,t=a v=20 {START}\n"));
    let url = server.url(&format!("/query?db={DATABASE}&q={}", encode("DELETE FROM m WHERE v >= 10")));
    std::thread::scope(|threads| {
        let (sender, answers) = std::sync::mpsc::channel();
        for _ in 0..9 {
            let sender = sender.clone();
            let url = &url;
            threads.spawn(move || {
                let answer = request("POST", url, b"", &[]).expect("an answer");
                sender.send(answer).expect("it is awaited");
            });
        }
        let refused = answers.recv_timeout(TIMEOUT).expect("one is refused").expect(503);
        assert!(refused.text().contains("8 of one token"), "{}", refused.text());
        halt.lift();
        for _ in 0..8 {
            answers.recv_timeout(TIMEOUT).expect("the others are carried out").expect(200);
        }
    });
    // Their places are free again.
    write(&server, &format!("m,t=a v=20 {START}\n"));
    delete(&server, "DELETE FROM m WHERE v >= 10");
}

/// Previews of DELETE, DROP SERIES and DROP MEASUREMENT, and unknown fields.
#[test]
fn a_preview_counts_and_changes_nothing() {
    let server = Launch::embedded().config(CONFIG).start();
    write_model(&server, &initial_model());
    assert_eq!(preview_deletion(&server, "DELETE FROM m WHERE v = 2"), (2, 2000));
    assert_eq!(preview_deletion(&server, &format!("DELETE FROM m WHERE time < {}", START + 70 * SECOND)), (2, 20));
    assert_eq!(preview_deletion(&server, "DROP SERIES FROM m WHERE t = 'a'"), (1, 3000));
    assert_eq!(preview_deletion(&server, "DROP MEASUREMENT m"), (2, 6000));
    assert_eq!(preview_deletion(&server, "DELETE FROM m WHERE v > 1000"), (0, 0));
    for (statement, error) in [
        ("DELETE FROM m WHERE t > 2", "invalid tag comparison operator"),
        ("DELETE FROM m WHERE abs(v) > 2", "not supported: a function in the condition of DELETE"),
        ("DROP SERIES FROM m WHERE v > 2", "invalid tag comparison operator"),
        ("CREATE DATABASE doomed", "dry_run is not supported for CREATE DATABASE"),
    ] {
        let answer = ask(&server, statement, "&dry_run=true").expect(200).json();
        assert_eq!(answer["results"][0]["error"], error, "{statement}");
    }
    assert_eq!(all(&server), initial_model());
}

/// Regression: a misspelt field was compared as a tag, and beside a known field its comparison counted as false.
#[test]
fn a_deletion_by_an_unknown_field_lists_the_known_fields() {
    let server = Launch::embedded().config(CONFIG).start();
    write_model(&server, &initial_model());
    for (condition, name) in [
        ("nothing > 2", "nothing"),
        ("t = 'a' AND (time > 0 AND uu < 1)", "uu"),
        ("v > 0 OR uu < 1", "uu"),
        ("v > 0 AND uu = 'x'", "uu"),
    ] {
        for parameters in ["", "&dry_run=true"] {
            let answer = ask(&server, &format!("DELETE FROM m WHERE {condition}"), parameters).expect(200).json();
            let error = format!("unknown field or tag {name:?}; known: \"t\", \"v\", \"w\"");
            assert_eq!(answer["results"][0]["error"], error, "{condition}");
        }
    }
    assert_eq!(all(&server), initial_model());
}

/// Regression: a field unknown in a policy counted as an empty tag, so `status != 'ok'` deleted everything.
#[test]
fn an_unknown_field_matches_nothing() {
    let server = Launch::embedded().config(CONFIG).start();
    run(
        &server,
        &format!("CREATE DATABASE {DATABASE}; CREATE RETENTION POLICY week ON {DATABASE} DURATION INF REPLICATION 1"),
    );
    let load = |n: i64| format!("cpu,host=a load={n}i {}\n", START + n * SECOND);
    post(&server.url(&format!("/write?db={DATABASE}&rp=week")), load(1) + &load(2), &[]).expect(204);
    let status_line = |n: i64, status: &str| format!("cpu,host=a status=\"{status}\" {}\n", START + n * SECOND);
    write(&server, &(status_line(1, "ok") + &status_line(2, "failed") + &format!("mem,host=a used=1i {START}\n")));
    let count = |call: &str, from: &str| {
        let answer = ask(&server, &format!("SELECT count({call}) FROM {from}"), "").expect(200).json();
        answer["results"][0]["series"][0]["values"][0][1].as_u64().unwrap_or_default()
    };
    let counts = || [count("load", "week.cpu"), count("status", "cpu"), count("used", "mem")];
    assert_eq!(counts(), [2, 2, 1]);
    let reply = delete(&server, "DELETE FROM cpu WHERE status != 'ok'");
    assert!(reply.contains("deleted 1 readings") && reply.contains("deleted 0 readings"), "{reply}");
    assert_eq!(counts(), [2, 1, 1]);
    // The same for another measurement.
    delete(&server, "DELETE WHERE status != 'ok'");
    assert_eq!(counts(), [2, 1, 1]);
    // Regression: an unknown name, or a field known only to another instance, matched everything.
    for statement in [
        "DELETE FROM cpu WHERE sttus != 'ok'",
        "DELETE FROM cpu WHERE sttus != 'ok' AND status = 'ok'",
        "DELETE WHERE host = 'a' AND nothing = ''",
        "DROP SERIES FROM cpu WHERE status !~ /ok/",
    ] {
        let answer = ask(&server, statement, "").expect(200).json();
        let error = answer["results"][0]["error"].as_str().unwrap_or_default();
        assert!(error.contains("is no tag of the sensors to delete from"), "{statement}: {answer}");
        assert_eq!(counts(), [2, 1, 1], "{statement}");
    }
    delete(&server, "DELETE FROM cpu WHERE sttus = 'ok' OR nothing =~ /x/");
    delete(&server, "DELETE FROM absent WHERE sttus != 'ok'");
    assert_eq!(counts(), [2, 1, 1]);
}
