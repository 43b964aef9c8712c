//! Sealed days answer like hour pages: two servers get the same requests, and one of them seals.

mod asked;
mod bounds;
mod decoder;
mod deleted_by_value;
mod deleted_meanwhile;
mod dropped_meanwhile;
mod forms;
mod lifetimes;
mod months;
mod shell;

use crate::support::jobs;
use crate::support::prelude::*;

/// 2026-01-15T00:00:00Z, in seconds.
const START: u64 = 1_768_435_200;
const MINUTES: u64 = 3 * 1440;
const SEALS: &str = "[seal]\nafter = \"1s\"\ninterval = \"50ms\"\nquiet = \"0s\"\n";
/// Small pages, so that some hours have several.
const PAGES: &str = "[page]\nmax_readings = 40\n[flush]\ninterval = \"100ms\"\nquiet = \"50ms\"\n[sensors]\nwrite_interval = \"100ms\"\n";

struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

tests! {
    fn sealing_changes_no_answer_embedded() =>
        compare_with_unsealed(["embedded".to_owned(), "embedded".to_owned()], 1, scaled(8, 12));
    fn sealing_changes_no_answer_in_mongodb() =>
        compare_with_unsealed([mongod().uri(&fresh_database_name()), "embedded".to_owned()], 2, scaled(4, 12));
}

/// Seals the changed days every four rounds.
fn compare_with_unsealed(stores: [String; 2], seed: u64, rounds: u64) {
    let [sealing, plain] = stores;
    let mut sealing = Launch::with_store(sealing).config(format!("{PAGES}{SEALS}")).start();
    let plain = Launch::with_store(plain).config(PAGES).start();
    let mut random = Random(seed);
    let both = |path: &str, body: &str| {
        for server in [&sealing, &plain] {
            let answer = post(&server.url(path), body, &[]);
            assert!(answer.status < 300, "{path}: {}", answer.text());
            assert!(!answer.text().contains("\"error\""), "{path}: {}", answer.text());
        }
    };
    // Three days of three sensors, one of which sends rarely.
    for sensor in 0..3 {
        let step = if sensor == 2 { 400 } else { 1 };
        let lines = (0..MINUTES).step_by(step).map(|minute| line(sensor, minute, minute * 7 % 101));
        both("/write?db=d&precision=s", &lines.collect::<String>());
    }
    both("/api/v1/flush", "");
    await_sealed(&sealing);
    compare(&sealing, &plain, "sealed");
    for round in 0..rounds {
        for _ in 0..1 + random.below(3) {
            match random.below(5) {
                0 => {
                    let sensor = random.below(3);
                    let from = START + random.below(MINUTES) * 60;
                    let to = from + random.below(900) * 60;
                    let range = format!("time >= {from}s AND time < {to}s");
                    let statement = encode(&format!("DELETE FROM climate WHERE s='{sensor}' AND {range}"));
                    both(&format!("/query?db=d&q={statement}"), "");
                }
                _ => {
                    let sensor = random.below(3);
                    let some =
                        (0..1 + random.below(30)).map(|_| line(sensor, random.below(MINUTES), random.below(1000)));
                    both("/write?db=d&precision=s", &some.collect::<String>());
                }
            }
        }
        compare(&sealing, &plain, "before a flush");
        both("/api/v1/flush", "");
        compare(&sealing, &plain, "at some moment of sealing");
        if round % 4 == 3 {
            await_sealed(&sealing);
            compare(&sealing, &plain, "sealed again");
        }
    }
    await_sealed(&sealing);
    sealing.kill_and_restart();
    compare(&sealing, &plain, "after a kill");
}

tests! {
    fn a_kill_at_any_step_of_sealing_changes_no_answer_embedded() => kills(|| "embedded".to_owned(), 0);
    fn a_kill_at_any_step_of_sealing_changes_no_answer_in_mongodb() => kills(|| mongod().uri(&fresh_database_name()), 1);
}

fn kills(store: impl Fn() -> String, first: usize) {
    let given: String =
        (0..2).flat_map(|sensor| (0..MINUTES).step_by(3).map(move |n| line(sensor, n, n * 7 % 101))).collect();
    // Both stores answer alike, and this one answers faster.
    let plain = Launch::embedded().config(PAGES).start();
    write_flushed(&plain, &given);
    let points =
        ["claimed:1", "claimed:2", "sealed:1", "sealed:2", "pages_removed:1", "month_claimed:1", "month_filled:1"];
    for point in shared(points, first) {
        let launch = Launch::with_store(store()).config(PAGES);
        let mut server = launch.clone().start();
        write_flushed(&server, &given);
        server.stop();
        let sealing = launch.clone().config(format!("{PAGES}{SEALS}"));
        server.relaunch(sealing.clone().env("FAULT_KILL_AT", point));
        let ended = poll(TIMEOUT, || server.exited());
        assert!(ended.is_some(), "{point}: {}", server.stderr());
        server.restart_as(launch.clone());
        compare(&server, &plain, point);
        server.stop();
        server.restart_as(sealing);
        // Months are totalled once all days are sealed.
        if !point.starts_with("month") {
            await_sealed(&server);
        }
        compare(&server, &plain, point);
    }
}

/// One day has a chunk from before the record was truncated, another has nothing stored.
#[test]
fn a_kill_during_backfill_changes_no_answer() {
    for store in stores() {
        let plain = Launch::embedded().config(PAGES).start();
        let launch = Launch::with_store(&store).config(format!("{PAGES}{SEALS}"));
        let mut server = launch.clone().env("FAULT_KILL_AT", "chunk_written:2").start();
        for sensor in 0..2 {
            let lines: String = (0..MINUTES).map(|minute| line(sensor, minute, minute * 7 % 101)).collect();
            post(&plain.url("/write?db=d&precision=s"), &lines, &[]).expect(204);
            if server.exited().is_none() {
                // Acked or not, it is sent again.
                let _ = std::panic::catch_unwind(|| post(&server.url("/write?db=d&precision=s"), &lines, &[]));
            }
        }
        let ended = poll(TIMEOUT, || server.exited());
        assert!(ended.is_some(), "{store}: {}", server.stderr());
        server.restart_as(launch);
        for sensor in 0..2 {
            let lines: String = (0..MINUTES).map(|minute| line(sensor, minute, minute * 7 % 101)).collect();
            post(&server.url("/write?db=d&precision=s"), &lines, &[]).expect(204);
        }
        compare(&server, &plain, "unflushed");
        flush(&server);
        compare(&server, &plain, "in chunks");
        await_sealed(&server);
        compare(&server, &plain, "sealed");
    }
}

/// Regression: a day with more values than a part may have stayed in hour pages.
#[test]
fn a_day_too_large_for_one_part_is_sealed_by_hour() {
    for store in stores() {
        let plain = Launch::embedded().config(PAGES).start();
        let sealing = Launch::with_store(&store).config(format!("{PAGES}{SEALS}direct_min = 0\n")).start();
        let both = |body: &str| {
            for server in [&sealing, &plain] {
                post(&server.url("/write?db=d&precision=ms"), body, &[]).expect(204);
            }
        };
        // Two fields every 0.63 seconds.
        for hour in 0..24 {
            let times = (0..5_715).map(|n| START * 1000 + hour * 3_600_000 + n * 630);
            both(
                &times
                    .map(|time| format!("climate,s=0 temp={}.5,hum={}i {time}\n", time % 977, time % 89))
                    .collect::<String>(),
            );
        }
        let seal = || {
            for server in [&sealing, &plain] {
                flush(server);
            }
            let done = jobs::seal(&sealing);
            assert_eq!(done["progress"]["large"], 0, "{done}");
        };
        seal();
        compare(&sealing, &plain, "by hour");
        // Late readings, and a deletion across an hour border.
        both(&format!("climate,s=0 temp=-1 {}\nclimate,s=0 hum=7i {}\n", START * 1000 + 315, START * 1000 + 7_200_000));
        let range = format!("time >= {}s AND time < {}s", START + 3000, START + 9000);
        for server in [&sealing, &plain] {
            execute(server, "d", &format!("DELETE FROM climate WHERE s='0' AND {range}"));
        }
        compare(&sealing, &plain, "beside the parts");
        seal();
        compare(&sealing, &plain, "by hour again");
    }
}

/// Regression: a day that grew too large for one part, and whose division by hour was interrupted, stayed in both forms
/// for ever: no round found it, because it had no pages and no chunks.
#[test]
fn an_interrupted_division_by_hour_is_completed() {
    let uri = mongod().uri(&fresh_database_name());
    let launch = Launch::with_store(&uri).config("[seal]\nafter = \"0s\"\n[sensors]\nwrite_interval = \"100ms\"\n");
    let mut server = launch.clone().env("FAULT_KILL_AT", "hour_sealed:24").start();
    let write = |server: &Server, from: u64| {
        for hour in 0..24 {
            let first = START * 1000 + hour * 3_600_000 + from;
            let lines = (0..1800).map(|n| format!("climate,s=0 a=1,b=2,c=3,d=4 {}\n", first + n * 2000));
            post(&server.url("/write?db=d&precision=ms"), lines.collect::<String>(), &[]).expect(204);
        }
        flush(server);
    };
    write(&server, 0);
    assert_eq!(jobs::seal(&server)["progress"]["days"], 1);
    write(&server, 1000);
    let _ = request("POST", &jobs::run_url(&server, "seal"), b"", &[]);
    eventually("it dies after the last hour", || server.exited());
    server.restart_as(launch);
    jobs::seal(&server);
    let counted = server.fetch("/query?db=d&q=SELECT%20count(a)%20FROM%20climate");
    assert_eq!(counted["results"][0]["series"][0]["values"][0][1], 86_400, "{counted}");
    let days = find(&uri, "d.days", doc! {});
    let is_by_hour = |day: &&Document| day.contains_key("hour") && !day.contains_key("chunk");
    assert_eq!((days.iter().filter(is_by_hour).count(), days.len()), (24, 24), "one part per hour, and no other one");
}

/// Writes some fields only, so that a correction adds or replaces a part.
fn line(sensor: u64, minute: u64, value: u64) -> String {
    let fields = match value % 4 {
        0 => format!("temp={}.25", value),
        1 => format!("hum={value}i"),
        2 => format!("temp={}.5,hum={value}i,ok=true", value),
        _ => format!("temp={},note=\"n{value}\"", value),
    };
    format!("climate,s={sensor} {fields} {}\n", START + minute * 60)
}

/// Waits until only today's hour pages are left, of which there are none.
fn await_sealed(server: &Server) {
    let before = count_sealed_days(server);
    // An idle round follows the last one with work.
    let quiet = poll(TIMEOUT, || {
        let now = count_sealed_days(server);
        std::thread::sleep(Duration::from_millis(400));
        (now > 0 && now == count_sealed_days(server)).then_some(now)
    });
    assert!(quiet.is_some(), "{before}: {}", server.stderr());
}

/// Returns the days sealed by this process, by its log.
fn count_sealed_days(server: &Server) -> usize {
    server.stderr().lines().filter(|line| line.contains("days sealed")).count()
}

fn compare(sealing: &Server, plain: &Server, when: &str) {
    let from = START;
    let to = START + MINUTES * 60;
    let noon = START + 86_400 + 40_000;
    let mut paths = vec![
        format!("/api/v1/summary?db=d&sensor=climate,s=0&from={from}&to={to}&step=1h"),
        format!("/api/v1/summary?db=d&sensor=climate,s=1&from={from}&to={to}&step=1d"),
        format!("/api/v1/summary?db=d&sensor=climate,s=1&from={noon}&to={to}&step=7m"),
        "/api/v1/readings?db=d&sensor=climate,s=2&limit=1000".to_owned(),
        "/api/v1/readings?db=d&sensor=climate,s=0&limit=700&order=desc".to_owned(),
        format!("/api/v1/readings?db=d&sensor=climate,s=0&limit=1000&from={noon}"),
        format!("/api/v1/readings?db=d&sensor=climate,s=1&max_points=50&from={from}&to={to}"),
    ];
    for statement in [
        "SELECT count(temp),sum(temp),min(hum),max(hum),first(temp),last(hum) FROM climate GROUP BY s",
        "SELECT mean(temp) FROM climate WHERE time >= 1768435200s AND time < 1768694400s GROUP BY time(1h),s",
        "SELECT mean(temp),count(note) FROM climate WHERE time >= 1768435200s AND time < 1768694400s GROUP BY time(6h)",
        "SELECT mean(temp),count(hum),spread(temp) FROM climate WHERE time >= 1768435200s AND time < 1768694400s GROUP BY time(1d),s",
        "SELECT sum(temp),min(hum) FROM climate WHERE time >= 1768442400s AND time < 1768694500s GROUP BY time(2d)",
        "SELECT count(temp),sum(hum) FROM climate WHERE time >= 1768435200s AND time < 1768694400s",
        "SELECT count(ok),last(note) FROM climate",
        "SELECT * FROM climate WHERE s='1' AND time >= 1768521000s AND time < 1768530000s",
        "SELECT temp FROM climate ORDER BY time DESC LIMIT 3",
        "SELECT hum FROM climate WHERE hum > 95 LIMIT 50",
        "SHOW SERIES",
        "SHOW FIELD KEYS",
    ] {
        let statement = encode(statement);
        paths.push(format!("/query?db=d&epoch=s&q={statement}"));
    }
    for path in paths {
        let [ours, theirs] = [sealing, plain].map(|server| get(&server.url(&path)));
        assert_eq!([ours.status, theirs.status], [200; 2], "{when}: {path}: {} {}", ours.text(), theirs.text());
        let [ours, theirs]: [Value; 2] = [ours.json(), theirs.json()];
        assert_eq!(ours, theirs, "{when}: {path}");
    }
}

/// Regression: sealing freed nine tenths of the file, whose size stayed.
#[test]
fn compaction_returns_the_space_freed_by_sealing() {
    let launch = Launch::embedded().config("[seal]\nafter = \"0s\"\n[sensors]\nwrite_interval = \"100ms\"\n");
    let mut server = launch.clone().start();
    let lines = |sensor| (0..MINUTES).map(move |minute| line(sensor, minute, minute * 7 % 101)).collect::<String>();
    for sensor in 0..60 {
        post(&server.url("/write?db=d&precision=s"), lines(sensor), &[]).expect(204);
    }
    flush(&server);
    let done = jobs::seal(&server);
    assert_eq!(done["progress"]["days"], 180, "{done}");
    let ask = |server: &Server| server.fetch("/api/v1/summary?db=d&sensor=climate,s=7&step=1d");
    let before = ask(&server);
    assert!(server.stop().success());
    let file = || std::fs::metadata(server.data_dir().join("hourglass.redb")).expect("a file").len();
    let large = file();
    hourglass(&["compact", "--data-dir", path(&server.data_dir())]).expect_success();
    let small = file();
    println!("{large} bytes before, {small} after");
    assert!(small * 2 < large, "{large} bytes before, {small} after");
    server.restart_as(launch);
    assert_eq!(ask(&server), before);
}

/// Regression: between midnight and one o'clock, days that were just sealed were in no answer.
#[test]
fn yesterday_is_readable_when_sealed_at_midnight() {
    const DAY_MS: i64 = 86_400_000;
    let now = now() / 1_000_000;
    let midnight = (now.div_euclid(DAY_MS) + 1) * DAY_MS;
    let server = Launch::embedded()
        .config(format!("{PAGES}[seal]\nafter = \"0s\"\n"))
        .env("FAULT_LATER_MS", midnight + 300_000 - now)
        .start();
    let lines = (1..=60).map(|minutes| format!("climate,s=0 temp={minutes} {}\n", midnight / 1000 - minutes * 60));
    write_flushed(&server, lines.collect::<String>());
    // Only that day, because long ranges include all sealed days.
    let range = format!("precision=s&from={}&to={}", midnight / 1000 - 3600, midnight / 1000);
    let ask = || {
        ["readings?limit=100&", "summary?step=1h&"]
            .map(|kind| server.fetch(&format!("/api/v1/{kind}db=d&sensor=climate,s=0&{range}")))
    };
    let before = ask();
    assert_eq!(before[0]["series"][0]["readings"].as_array().map(Vec::len), Some(60));
    let done = jobs::seal(&server);
    assert_eq!(done["progress"]["days"], 1, "{done}");
    assert_eq!(ask(), before);
}

/// Regression: after a correction of one field in a sealed day, the latest reading lacked its other fields.
#[test]
fn a_corrected_sealed_day_keeps_its_latest_reading() {
    for store in stores() {
        let launch = Launch::with_store(store).config(format!("{PAGES}[seal]\nafter = \"0s\"\n"));
        let mut server = launch.clone().start();
        let write = |server: &Server, fields: &str| {
            let line = format!("climate,s=0 {fields} {}\n", START + 60);
            post(&server.url("/write?db=d&precision=s&ack=store"), line, &[]).expect(204);
            flush(server);
        };
        write(&server, "temp=1,hum=2");
        jobs::seal(&server);
        write(&server, "temp=3");
        // Sensor documents are written at the latest on a stop.
        assert!(server.stop().success());
        server.restart_as(launch);
        let latest: Value = server.fetch("/api/v1/latest?db=d&sensor=climate,s=0");
        let reading = &latest["series"][0]["readings"][0];
        assert_eq!((reading["temp"].as_f64(), reading["hum"].as_f64()), (Some(3.0), Some(2.0)), "{latest}");
    }
}
