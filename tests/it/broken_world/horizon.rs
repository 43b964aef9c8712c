//! The horizon: how long instances wait for a silent log.

use crate::support::prelude::*;

/// Nothing is flushed without a request.
const QUIET: &str = "[flush]\ninterval = \"1h\"\nquiet = \"10m\"\n[sensors]\nwrite_interval = \"100ms\"\n";
const HOUR: i64 = 1_768_485_600;

fn write(server: &Server, ack: &str, value: i64, second: i64) {
    write_in(server, ack, HOUR, value, second);
}

fn write_in(server: &Server, ack: &str, hour: i64, value: i64, second: i64) {
    let line = format!("m v={value}i {}000000000", hour + second);
    post(&server.url(&format!("/write?ack={ack}")), line, &[]).expect(204);
}

/// Returns the stored readings by second.
fn stored_readings(server: &Server) -> Vec<(i64, String)> {
    stored_in(server, HOUR)
}

fn stored_in(server: &Server, hour: i64) -> Vec<(i64, String)> {
    let rows = readings(server, "default", "m", None, 100).into_iter();
    rows.map(|(time, fields)| (time / 1_000_000_000 - hour, fields["v"].clone())).collect()
}

/// Readings from beyond `wal.horizon` cannot be ordered: stored values stay, and acked ones are reported and kept.
#[test]
fn readings_from_beyond_the_horizon_are_kept_and_conflicts_reported() {
    // Recent days, whose pages keep the stamps that decide.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let hour = i64::try_from(now / 86_400 * 86_400 + 60 * 3600).unwrap();
    let uri = mongod().uri(&fresh_database_name());
    let launch = Launch::with_store(uri)
        .config(format!("{QUIET}[wal]\nhorizon = \"1m\"\n[clock]\ntolerance = \"1m\"\nmax_offset = \"1h\"\n"));
    // Its clock runs ahead, so that ten seconds of silence look like a minute.
    const AHEAD_S: i64 = 50;
    let other = launch.clone().env("FAULT_CLOCK_MS", AHEAD_S * 1000).start();
    let mut silent = launch.clone().start();
    write_in(&other, "store", hour, 2, 1);
    let written = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() + AHEAD_S as f64;
    for (value, second) in [(1, 1), (3, 3)] {
        write_in(&silent, "log", hour, value, second);
    }
    assert_eq!(metric(&other, "hourglass_registry_logs"), 2.0);
    silent.kill();
    wait_until("the silent log holds the floor no more", || {
        metric(&other, "hourglass_registry_floor_timestamp_seconds") > written
    });
    // The rewritten page has lost its stamps, so nothing can be compared with them.
    write_in(&other, "store", hour, 4, 4);
    silent.restart_as(launch);
    let answer = post(&silent.url("/api/v1/flush"), "", &[]).expect(409);
    assert!(answer.text().contains("dead-letters"), "{}", answer.text());
    let expected: Vec<(i64, String)> = [(1, 2), (3, 3), (4, 4)].map(|(at, value)| (at, value.to_string())).into();
    assert_eq!(stored_in(&silent, hour), expected);
    assert_eq!(stored_in(&other, hour), expected);
    let letters: Value = silent.fetch("/api/v1/dead-letters");
    assert_eq!(letters["readings"], 1);
    let chunk = &letters["letters"][0];
    assert_eq!(chunk["lines"].as_str().unwrap().trim(), format!("m v=1i {}000000000", hour + 1));
    // Regression: the reason claimed that the store had refused the document.
    let reason = chunk["reason"].as_str().unwrap();
    assert!(reason.starts_with("set aside: ") && reason.contains("wal.horizon"), "{chunk}");
    assert!(get(&silent.url("/health")).text().contains("dead-letters"));
}

/// Regression: a sealed day keeps no stamps, so a restored folder overwrote it with old values.
#[test]
fn readings_from_beyond_the_horizon_of_a_sealed_day_are_set_aside() {
    let uri = mongod().uri(&fresh_database_name());
    let launch = Launch::with_store(uri).config(format!(
        "{QUIET}[wal]\nhorizon = \"1m\"\n[clock]\ntolerance = \"1m\"\nmax_offset = \"1h\"\n[seal]\nafter = \"0s\"\n"
    ));
    const AHEAD_S: i64 = 50;
    let other = launch.clone().env("FAULT_CLOCK_MS", AHEAD_S * 1000).start();
    let mut silent = launch.clone().start();
    let written = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() + AHEAD_S as f64;
    for (value, second) in [(1, 1), (3, 3), (2, 5)] {
        write(&silent, "log", value, second);
    }
    for (value, second) in [(2, 1), (2, 5)] {
        write(&other, "store", value, second);
    }
    assert_eq!(metric(&other, "hourglass_registry_logs"), 2.0);
    silent.kill();
    wait_until("the silent log holds the floor no more", || {
        metric(&other, "hourglass_registry_floor_timestamp_seconds") > written
    });
    wait_until("the day is sealed", || ask_job(&other, "seal").json()["progress"]["days"] == 1);
    silent.restart_as(launch);
    post(&silent.url("/api/v1/flush"), "", &[]).expect(409);
    let expected: Vec<(i64, String)> = [(1, 2), (3, 3), (5, 2)].map(|(at, value)| (at, value.to_string())).into();
    assert_eq!(stored_readings(&silent), expected);
    assert_eq!(stored_readings(&other), expected);
    let letters: Value = silent.fetch("/api/v1/dead-letters");
    assert_eq!(letters["readings"], 1, "{letters}");
    assert_eq!(letters["letters"][0]["lines"].as_str().unwrap().trim(), format!("m v=1i {}000000000", HOUR + 1));
}

/// Regression: a page written after its deletion had no sensor document, was missed by the sweep, and came back.
#[test]
fn a_sweep_removes_pages_written_after_their_deletion() {
    let halt = Halt::new();
    let launch = Launch::with_store(mongod().uri(&fresh_database_name())).config(QUIET);
    let server = launch.clone().start();
    let late = halt.launch(launch, "before_write").start();
    write(&server, "store", 1, 0);
    write(&late, "log", 1, 1);
    halt.set();
    std::thread::scope(|threads| {
        let flushes = threads.spawn(|| flush(&late));
        wait_until("it is about to write", || metric(&late, "hourglass_flush_readings_count") >= 1.0);
        post(&server.url("/query?db=default&q=DROP%20SERIES%20FROM%20m"), "", &[]).expect(200);
        for server in [&server, &late] {
            wait_until("the deletion is known", || metric(server, "hourglass_registry_deletions") >= 1.0);
        }
        halt.lift();
        flushes.join().expect("it is flushed");
    });
    for server in [&server, &late] {
        wait_until("it is forgotten", || metric(server, "hourglass_registry_deletions") == 0.0);
        let answer = get(&server.url("/api/v1/readings?sensor=m"));
        assert!(answer.status == 404 || stored_readings(server).is_empty(), "{}", answer.text());
    }
}

/// A deletion is remembered while any log may have older records; at most `limits.deletions` are remembered.
#[test]
fn a_deletion_is_forgotten_once_no_log_has_older_records() {
    let launch = Launch::with_store(mongod().uri(&fresh_database_name()));
    let server = launch.clone().config(format!("{QUIET}[limits]\ndeletions = 1\n")).start();
    let holding = launch.config(QUIET).start();
    write(&server, "store", 1, 0);
    write(&holding, "log", 1, 1);
    let drop_series = || post(&server.url("/query?db=default&q=DROP%20SERIES%20FROM%20m"), "", &[]);
    drop_series().expect(200);
    wait_until("it is remembered", || metric(&server, "hourglass_registry_deletions") >= 1.0);
    let refused = drop_series();
    assert!(refused.status == 503 && refused.text().contains("are remembered"), "{}", refused.text());
    flush(&holding);
    wait_until("it is forgotten", || metric(&server, "hourglass_registry_deletions") == 0.0);
    drop_series().expect(200);
    for server in [&server, &holding] {
        let answer = get(&server.url("/api/v1/readings?sensor=m"));
        assert!(answer.status == 404 || stored_readings(server).is_empty(), "{}", answer.text());
    }
}
