//! Line protocol over plain TCP: lines are kept without an answer, and other protocols get a hint.

use crate::support::prelude::*;

const LISTEN: &str = "[tcp]\nlisten = \"127.0.0.1:0\"\n";

fn start(more: &str) -> Server {
    Launch::embedded().config(format!("{LISTEN}{more}")).start()
}

fn count(server: &Server, database: &str, sensor: &str) -> usize {
    readings(server, database, sensor, None, 100_000).len()
}

#[track_caller]
fn await_count(server: &Server, database: &str, sensor: &str, expected: usize) {
    wait_until(&format!("{expected} readings of {sensor}"), || count(server, database, sensor) == expected);
}

#[track_caller]
fn await_dropped(server: &Server, reason: &str, expected: f64) {
    let name = format!("hourglass_tcp_lines_dropped_total{{reason=\"{reason}\"}}");
    wait_until(&format!("{expected} dropped by {reason}"), || metric(server, &name) >= expected);
}

fn lines(sensor: &str, count: usize) -> String {
    (1..=count).map(|n| format!("{sensor} v={n} {n}\n")).collect()
}

#[test]
fn lines_may_be_split_anywhere() {
    let server = start("");
    for (number, size) in [1, 7, 1000, 100_000].into_iter().enumerate() {
        let sensor = format!("cut{number}");
        let text = lines(&sensor, 50);
        let mut raw = Raw::open(server.scheme_address("tcp"));
        for piece in text.as_bytes().chunks(size) {
            raw.send(piece);
        }
        await_count(&server, "default", &sensor, 50);
        assert!(!raw.is_closed(), "more may come");
    }
    let mut raw = Raw::open(server.scheme_address("tcp"));
    raw.send("\r\n# a comment\r\nlast v=1 1\r\n\n");
    raw.0.shutdown(Shutdown::Write).unwrap();
    assert_eq!(raw.rest(), "", "nothing is acked");
    await_count(&server, "default", "last", 1);
}

#[test]
fn the_first_line_may_name_the_database() {
    let server = start("database = \"plant\"\nprecision = \"ms\"\n");
    for (first, database, ns) in [
        ("", "plant", 1_000_000_000_000i64),
        ("auth t0k\n", "plant", 1_000_000_000_000),
        ("auth t0k db=other precision=s\r\n", "other", 1_000_000_000_000_000),
        ("auth t0k precision=us db=micro\n", "micro", 1_000_000_000),
    ] {
        let sensor = format!("m{}", first.len());
        let mut raw = Raw::open(server.scheme_address("tcp"));
        raw.send(format!("{first}{sensor} v=1 1000000\n"));
        await_count(&server, database, &sensor, 1);
        let found = readings(&server, database, &sensor, None, 1);
        assert!(format!("{found:?}").contains(&ns.to_string()), "{first:?}: {found:?}");
    }
    for (first, reply) in [
        ("auth \n", "ERROR a token is missing"),
        ("auth t more\n", "ERROR only db=NAME and precision=s may follow the token"),
        ("auth t precision=d\n", "ERROR invalid precision \"d\""),
    ] {
        let mut raw = Raw::open(server.scheme_address("tcp"));
        raw.send(first);
        let answer = raw.rest();
        assert!(answer.starts_with(reply) && answer.ends_with('\n'), "{first:?}: {answer:?}");
    }
}

/// Regression: strangers sent first lines of 64 KiB without an end, and held the memory of everybody's writes.
#[test]
fn a_stranger_has_little_room_for_its_token() {
    let server = Launch::embedded().config(LISTEN).env("HOURGLASS_AUTH_FIRST_TOKEN", "true").start();
    let mut raw = Raw::open(server.scheme_address("tcp"));
    raw.send("m v=1".repeat(1_000));
    assert!(raw.rest().starts_with("ERROR the first line is too long"));
}

#[test]
fn rejected_lines_are_counted_and_affect_no_other() {
    let server = start("[limits]\nline_bytes = \"1KiB\"\n");
    let mut raw = Raw::open(server.scheme_address("tcp"));
    raw.send(format!("a v=1 1\nbad\nb s=\"{}\" 1\n", "x".repeat(500_000)));
    raw.send("c v=1 1\nd v=1");
    await_count(&server, "default", "c", 1);
    assert_eq!([count(&server, "default", "a"), count(&server, "default", "b")], [1, 0]);
    raw.0.shutdown(Shutdown::Write).unwrap();
    assert_eq!(raw.rest(), "");
    await_dropped(&server, "line_bytes", 1.0);
    await_dropped(&server, "torn", 1.0);
    assert_eq!(count(&server, "default", "d"), 0, "a line without its end is half a line");
    let text = http::get(&server.url("/metrics")).expect(200);
    let rejected = text.text().lines().any(|line| line.starts_with("hourglass_ingest_readings_rejected_total"));
    assert!(rejected && server.stderr().contains("readings were rejected"));
}

/// Regression: lines in seconds without a declared unit were kept in 1970 by the default of `[tcp]`.
#[test]
fn the_configured_precision_is_no_declared_unit() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let nanoseconds = now * 1_000_000_000;
    for (config, first, time, sensor, kept) in [
        ("", "", now, "a", false),
        ("", "auth t\n", now, "b", false),
        ("", "auth t precision=ns\n", now, "c", true),
        ("", "auth t precision=s\n", now, "d", true),
        ("", "", nanoseconds, "e", true),
        ("precision = \"s\"\n", "", now, "f", true),
        ("precision = \"us\"\n", "", now, "g", false),
        ("precision = \"auto\"\n", "", now, "h", true),
        ("[limits]\nundeclared_unit = \"warn\"\n", "", now, "i", true),
    ] {
        let server = start(config);
        let mut raw = Raw::open(server.scheme_address("tcp"));
        raw.send(format!("{first}{sensor} v=1 {time}\nold v=1 5\n"));
        // Other old times are kept, because 1970 may be meant.
        await_count(&server, "default", "old", 1);
        assert_eq!(count(&server, "default", sensor), usize::from(kept), "{config:?} {first:?}");
        let refused = metric(&server, "hourglass_ingest_readings_rejected_total{reason=\"unit\"}");
        assert_eq!(refused, if kept { 0.0 } else { 1.0 }, "{config:?} {first:?}");
    }
}

#[test]
fn other_protocols_get_a_helpful_answer() {
    let server = start("");
    for method in ["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE"] {
        let mut raw = Raw::open(server.scheme_address("tcp"));
        raw.send(format!("{method} /write HTTP/1.1\r\nhost: localhost\r\ncontent-length: 7\r\n\r\nm v=1 1"));
        let reply = raw.rest();
        assert!(reply.starts_with("HTTP/1.1 400 ") && reply.contains(&server.url("")), "{method}: {reply}");
    }
    let mut raw = Raw::open(server.scheme_address("tcp"));
    raw.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(raw.rest().starts_with("HTTP/1.1 400 "));
    let mut raw = Raw::open(server.scheme_address("tcp"));
    raw.send([0x16, 0x03, 0x01, 0x02, 0x00, 0x01]);
    assert_eq!(raw.rest(), "", "TLS is not spoken here");
    let mut raw = Raw::open(server.scheme_address("tcp"));
    raw.send("GET v=1 1\n");
    await_count(&server, "default", "GET", 1);
}

#[test]
fn idle_connections_are_closed() {
    let server = start("idle_timeout = \"300ms\"\n");
    for opening in ["", "m v=1", "m v=1 1\n"] {
        let mut raw = Raw::open(server.scheme_address("tcp"));
        raw.send(opening);
        assert_eq!(raw.rest(), "", "{opening:?}");
    }
    await_count(&server, "default", "m", 1);
}

/// Regression: lines with a late log write were submitted again, so undated ones were kept twice.
#[test]
fn late_log_confirmations_cause_no_duplicates() {
    let halt = Halt::already_set();
    let config = format!("{LISTEN}[ingest]\nack_timeout = \"200ms\"\n");
    let server = halt.launch(Launch::embedded().config(config), "after_sync").start();
    let mut raw = Raw::open(server.scheme_address("tcp"));
    raw.send("late v=1\n");
    wait_until("lines that came", || metric(&server, "hourglass_tcp_bytes_total") > 0.0);
    // Each gives up after the same time as the lines, which were submitted again by then.
    for _ in 0..5 {
        let answer = http::post(&server.url("/write"), "late_too v=1 1", &[]).expect(503);
        assert!(answer.text().contains("ingest.ack_timeout"), "{}", answer.text());
    }
    halt.lift();
    // Its record follows all records of the lines.
    raw.send("behind v=1\n");
    await_count(&server, "default", "behind", 1);
    assert_eq!(count(&server, "default", "late"), 1);
    assert_eq!(count(&server, "default", "late_too"), 1);
}

/// Over the in-flight limit, lines wait where HTTP would answer 503, and all are kept.
#[test]
fn lines_wait_for_memory_and_none_is_lost() {
    let config = "[limits]\nbody_bytes = \"64KiB\"\n[ingest]\nbytes_in_flight = \"256KiB\"\n";
    let server = start(config);
    let mut hog = Raw::open(server.address());
    hog.send("POST /write HTTP/1.1\r\nhost: localhost\r\ncontent-length: 60000\r\n\r\n");
    hog.send("#".repeat(59_999));
    std::thread::scope(|threads| {
        for sender in 0..4 {
            let server = &server;
            threads.spawn(move || {
                let mut raw = Raw::open(server.scheme_address("tcp"));
                raw.send(lines(&format!("wait{sender}"), 5000));
                await_count(server, "default", &format!("wait{sender}"), 5000);
            });
        }
    });
    assert_eq!(metric(&server, "hourglass_tcp_lines_dropped_total"), 0.0);
}

/// With a full log and an outage, nothing is dropped and nothing more is read until both are resolved.
#[test]
fn a_full_log_slows_the_sender_down() {
    let mut mongod = Mongod::start();
    let config = format!(
        "{LISTEN}[wal]\nsegment_bytes = \"64KiB\"\nbudget_bytes = \"128KiB\"\n[limits]\nbody_bytes = \"64KiB\"\n"
    );
    let server = Launch::with_store(mongod.uri(&fresh_database_name())).config(config).start();
    mongod.kill();
    let text = lines("slowed", 100_000);
    let mut raw = Raw::open(server.scheme_address("tcp"));
    std::thread::scope(|threads| {
        let sending = threads.spawn(|| raw.send(&text));
        let shed = || metric(&server, "hourglass_ingest_shed_total{limit=\"wal.budget_bytes\"}");
        wait_until("the WAL is full", || shed() >= 1.0);
        mongod.restart();
        sending.join().unwrap();
    });
    let accepted = || metric(&server, "hourglass_ingest_readings_accepted_total");
    wait_until("all are kept", || accepted() >= 100_000.0);
    flush(&server);
    await_count(&server, "default", "slowed", 100_000);
}

#[test]
fn a_stop_keeps_every_line_that_was_read() {
    let mut server = start("");
    let mut raw = Raw::open(server.scheme_address("tcp"));
    raw.send(lines("early", 10));
    await_count(&server, "default", "early", 10);
    assert!(server.stop().success());
    assert_eq!(raw.rest(), "");
    server.restart();
    assert_eq!(count(&server, "default", "early"), 10);
}

#[test]
fn tcp_lines_work_over_tls() {
    let Some(certificates) = Certificates::new() else { return };
    certificates.sign("server", "lines", "");
    let server = Launch::embedded().config(format!("{}{LISTEN}tls = true\n", certificates.config(""))).start();
    let mut client = Command::new(require(Package::Openssl).unwrap())
        .args(["s_client", "-quiet", "-connect", &server.scheme_address("tcp").to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl can be run");
    std::io::Write::write_all(client.stdin.as_mut().unwrap(), b"auth t0k db=tls\nsecret v=1 1\n").unwrap();
    await_count(&server, "tls", "secret", 1);
    client.kill().unwrap();
    client.wait().unwrap();
}
