//! Machines with a wrong clock.

use crate::support::prelude::*;

/// Flushes, expires and seals quickly.
const QUICK: &str = "[flush]\ninterval = \"100ms\"\nquiet = \"50ms\"\n[sensors]\nwrite_interval = \"100ms\"\n\
    [retention]\ninterval = \"100ms\"\n[seal]\nafter = \"0s\"\n";
/// Log message after a clock jump.
const CLOCK_WARNING: &str = "nothing expires and no day is sealed";

/// The wall clock of a server, which can be set while it runs.
struct WallClock(Folder);

impl WallClock {
    fn right() -> Self {
        let clock = Self(Folder::new("clock"));
        clock.set(0);
        clock
    }

    /// Sets the clock ahead by `offset_ns`. Atomic, so that nobody reads a partial number.
    fn set(&self, offset_ns: i64) {
        std::fs::write(self.0.file("new"), (offset_ns / 1_000_000).to_string()).expect("a file");
        std::fs::rename(self.0.file("new"), self.0.file("step")).expect("it can be moved");
    }

    fn apply(&self, launch: Launch) -> Launch {
        launch.env("FAULT_STEP", self.0.file("step").display())
    }
}

/// Returns the first hundred readings of sensor `m` since `from`.
#[track_caller]
fn since(server: &Server, database: &str, from: i64) -> Value {
    let path = format!("/api/v1/readings?db={database}&sensor=m&limit=100&from={from}&to={}", now() + DAY);
    server.fetch(&path)["series"][0]["readings"].take()
}

/// Regression: a virtual machine resumed with a clock a year ahead, and expiry deleted all readings.
#[test]
fn a_clock_jump_expires_nothing() {
    for store in stores() {
        let clock = WallClock::right();
        let server = clock.apply(Launch::with_store(&store).config(QUICK)).start();
        let start = now();
        let lines: String = [5, 3, 1].iter().map(|age| format!("m v={age}i {}\n", start - age * DAY)).collect();
        for (database, settings) in [("w", r#"{"readings":"30d"}"#), ("s", r#"{"readings":"30d","summaries":"inf"}"#)] {
            post(&server.url(&format!("/write?db={database}")), &*lines, &[]).expect(204);
            server.set(database, settings).expect(200);
        }
        flush(&server);
        let before = ["w", "s"].map(|database| since(&server, database, start - 6 * DAY));
        assert_eq!(before[0].as_array().map(Vec::len), Some(3), "{before:?}");
        // Creates an expiry by the right clock, though nothing is due.
        let server = &server;
        let expired = |times| move || (progress(server, "expire", "deletions") == times).then_some(());
        eventually("the first retention is carried out", expired(1));
        clock.set(366 * DAY);
        wait_until("the clock jump is detected", || server.stderr().contains(CLOCK_WARNING));
        // Admission asked the wall clock, and refused good readings as expired.
        let right_time = hourglass::reading::time::rfc3339(start);
        for database in ["w", "s"] {
            let late = format!("m late=1i {}", start - 2 * DAY);
            // Tokens in MongoDB are read again first, because they seem to be a year old.
            wait_until("a good reading is taken", || {
                let answer = post(&server.url(&format!("/write?db={database}")), late.clone(), &[]);
                assert_ne!(answer.status, 400, "{}", answer.text());
                answer.status == 204
            });
            let told = server.fetch(&format!("/api/v1/databases/{database}"))["expired_before"].take();
            assert!(told.as_str().is_some_and(|time| *time < *right_time), "{told}");
        }
        let health = server.fetch("/health");
        let check = health["checks"].as_array().expect("checks").iter().find(|check| check["name"] == "clock");
        assert_eq!(check.expect("a check of the clock")["status"], "warn", "{health}");
        wait_until("the metric says so", || metric(server, "hourglass_clock_doubted") == 1.0);
        clock.set(0);
        wait_until("the clock is trusted again", || metric(server, "hourglass_clock_doubted") == 0.0);
        let after = ["w", "s"].map(|database| since(server, database, start - 6 * DAY));
        for (before, after) in before.iter().zip(&after) {
            let after = after.as_array().expect("readings").iter();
            let (late, rest): (Vec<&Value>, Vec<&Value>) = after.partition(|reading| !reading["late"].is_null());
            assert_eq!((late.len(), json!(rest)), (1, before.clone()), "{store}");
        }
        assert_eq!(progress(server, "expire", "deletions"), 1);
        // The expiry that was skipped during the clock error is done now.
        server.set("w", r#"{"readings":"4d"}"#).expect(200);
        eventually("readings expire by the right clock", expired(2));
        post(&server.url("/write?db=s"), format!("m v=5i {}", start - 5 * DAY), &[]).expect(204);
    }
}

/// Regression: an instance two days ahead sealed today, and others missed acked readings until midnight.
#[test]
fn a_clock_jump_seals_no_open_day() {
    for store in stores() {
        let clock = WallClock::right();
        let server = clock.apply(Launch::with_store(&store).config(QUICK)).start();
        let start = now();
        post(&server.url("/write?db=d"), format!("m v=1i {}\nm v=2i {start}", start - 3 * DAY), &[]).expect(204);
        flush(&server);
        clock.set(2 * DAY);
        let refused = run_job(&server, "seal");
        let why = refused["last_error"].as_str().unwrap_or_default();
        assert!(why.contains("clock.max_offset") && progress(&server, "seal", "days") == 0, "{store}: {refused}");
        clock.set(0);
        wait_until("only the day that is over is sealed", || {
            let sealed = run_job(&server, "seal");
            assert_ne!(sealed["progress"]["days"], 2, "{sealed}");
            sealed["last_error"].is_null() && sealed["progress"]["days"] == 1
        });
        assert_eq!(since(&server, "d", start - HOUR).as_array().map(Vec::len), Some(1));
    }
}

/// Regression: a device that started in 1971 read all sealed days as empty, also for digests and backups.
#[test]
fn sealed_days_are_read_with_a_clock_in_another_year() {
    for store in stores() {
        let clock = WallClock::right();
        let launch = Launch::with_store(&store).config(QUICK);
        let mut server = clock.apply(launch.clone()).start();
        let first = (now() - 3 * DAY).div_euclid(DAY) * DAY;
        let lines: String = (0..48).map(|n| format!("m v={n}i {}\n", first + n * HOUR / 2)).collect();
        post(&server.url("/write?db=d"), lines, &[]).expect(204);
        flush(&server);
        wait_until("the day is sealed", || run_job(&server, "seal")["progress"]["days"] == 1);
        let before = since(&server, "d", first);
        assert_eq!(before.as_array().map(Vec::len), Some(48));
        server.stop();
        let digest = |by: i64| {
            clock.set(by);
            let mut command = program();
            command.args(["backup", "digest", "--output", "json", "--store", &store, "--data-dir"]);
            let done =
                run_program(command.arg(server.data_dir()).env("FAULT_STEP", clock.0.file("step"))).expect_success();
            serde_json::from_str::<Value>(&done.stdout).expect("a digest")["total"].take()
        };
        let behind = 365 * DAY - now();
        let total = digest(0);
        assert_eq!((digest(behind), &total["readings"]), (total.clone(), &json!(48)), "{store}");
        server.restart_with(clock.apply(launch.clone()));
        assert_eq!(since(&server, "d", first), before, "{store}");
        // Other instances do not let it write, because their clocks are right.
        if store == "embedded" {
            post(&server.url("/write?db=d"), format!("m v=100i {first}"), &[]).expect(204);
            flush(&server);
            assert_eq!(since(&server, "d", first)[0]["v"], 100);
        }
        server.stop();
        server.restart_with(launch);
        let mut after = before.clone();
        if store == "embedded" {
            after[0]["v"] = json!(100);
        }
        assert_eq!(since(&server, "d", first), after, "{store}");
    }
}

#[test]
fn an_instance_with_a_wrong_clock_refuses_writes_with_the_reason() {
    let launch = Launch::with_store(mongod().uri(&fresh_database_name()));
    for (ahead_ms, offset) in [(-120_000, 120.0), (120_000, -120.0)] {
        let server = launch.clone().env("FAULT_CLOCK_MS", ahead_ms).start();
        let answer = post(&server.url("/write"), "m v=1 1768485600000000000", &[]).expect(503);
        assert!(answer.text().contains("clock.max_offset"), "{}", answer.text());
        get(&server.url("/query?q=SHOW%20DATABASES")).expect(200);
        let shown_offset = metric(&server, "hourglass_clock_offset_seconds");
        assert!((shown_offset - offset).abs() < 1.0, "{shown_offset} s");
    }
    // Within the bound, the store's clock is used.
    let server = launch.env("FAULT_CLOCK_MS", -30_000).start();
    post(&server.url("/write?ack=store"), "m v=1 1768485600000000000", &[]).expect(204);
    get(&server.url("/api/v1/readings?sensor=m")).expect(200);
}
