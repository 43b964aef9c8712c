//! An outage at full rate with more data than hot memory: readings are acked in bounded memory, stored later.

use hourglass::bucket::Caps;
use hourglass::reading::Value;

use super::DATABASE;
use crate::support::prelude::*;

const CONNECTIONS: i64 = 4;
const LINES: i64 = 5000;
/// Sensors of a connection; a body has the next readings of each.
const SENSORS: i64 = 50;
/// Approximate size of a reading in a hot bucket.
const READING_BYTES: i64 = 32;
/// Memory besides hot memory: bodies, flushes, sensors, the program.
const OTHER_MEMORY: u64 = 160 << 20;
/// Excess of hot memory over its limit: the readings of the last request.
const HOT_EXCESS: u64 = 1 << 20;
const CAPS: Caps = Caps { max_readings: 3600, max_bytes: 1 << 20, hard_bytes: 4 << 20 };

/// A way to stop and restart the store.
struct Outage {
    name: &'static str,
    begin: fn(&mut Mongod),
    end: fn(&mut Mongod),
}

tests! {
    fn a_stopped_store_costs_no_acks() =>
        an_outage_costs_no_acks(&Outage { name: "SIGSTOP", begin: Mongod::pause, end: Mongod::resume });
    fn a_killed_store_costs_no_acks() =>
        an_outage_costs_no_acks(&Outage { name: "SIGKILL", begin: Mongod::kill, end: Mongod::restart });
}

/// Regression: a stop during an outage released the records of unstored readings.
#[test]
fn a_stop_during_an_outage_costs_no_acks() {
    let mut mongod = Mongod::start();
    let name = fresh_database_name();
    let config =
        "[server]\nshutdown_timeout = \"6s\"\n[flush]\ninterval = \"10m\"\n[store]\ncommand_timeout = \"1s\"\n";
    let mut server = Launch::with_store(mongod.uri(&name)).config(config).start();
    send(&server, 0..1);
    assert!(flushed(&server, TIMEOUT), "a flush before the outage");
    send(&server, 1..2);
    mongod.kill();
    let status = server.stop();
    assert_eq!(status.code(), Some(75), "what is left is safe in the WAL, and it says so");
    assert!(server.stderr().contains("records in the WAL are not in the store yet"), "{}", server.stderr());
    mongod.restart();
    server.restart();
    wait_until("the backlog is dispatched and flushed", || flushed(&server, TIMEOUT));
    check_documents(&Stored::in_mongo(&mongod, &name, DATABASE), 2);
}

fn an_outage_costs_no_acks(outage: &Outage) {
    let bodies = all_readings() / LINES / CONNECTIONS;
    let readings = bodies * CONNECTIONS * LINES;
    let hot = u64::try_from(readings * READING_BYTES / 4).expect("positive").max(1 << 20);
    let mut mongod = Mongod::start();
    let name = fresh_database_name();
    let config = format!("[memtable]\nmax_bytes = {hot}\n[flush]\ninterval = \"1s\"\n");
    let server = Launch::with_store(mongod.uri(&name)).config(config).start();
    // A first body registers the sensors; the others are sent during the outage.
    send(&server, 0..1);
    assert!(flushed(&server, TIMEOUT), "a flush before the outage");
    (outage.begin)(&mut mongod);
    let begun = Instant::now();
    send(&server, 1..bodies);
    let sent = begun.elapsed();
    assert!(number(&server, "pending_readings") >= readings * 9 / 10, "{}: the store was not away", outage.name);
    assert!(number(&server, "log_bytes") > 0, "{}: the WAL holds what is pending", outage.name);
    let in_memory = number(&server, "hot_bytes");
    assert!(in_memory <= i64::try_from(hot + HOT_EXCESS).expect("small"), "{}: {in_memory} hot bytes", outage.name);
    (outage.end)(&mut mongod);
    let back = Instant::now();
    let drained = flushed(&server, Duration::from_secs(60 + u64::try_from(readings / 20_000).expect("positive")));
    assert!(drained, "{}: {readings} readings are not in the store after {:?}", outage.name, back.elapsed());
    let drain = back.elapsed();
    let peak = peak_bytes(server.pid());
    let _ = writeln!(
        std::io::stderr(),
        "outage by {}: {readings} readings acked in {sent:.1?}, drained in {drain:.1?}, {} MiB of memory at most",
        outage.name,
        peak >> 20
    );
    assert!(peak <= hot + OTHER_MEMORY, "{}: {peak} bytes of memory, {hot} of them hot", outage.name);
    // Readings are stored a moment before the last counts as dispatched.
    await_dispatched(&server);
    check_windows(&server, bodies);
    check_documents(&Stored::in_mongo(&mongod, &name, DATABASE), bodies);
}

fn all_readings() -> i64 {
    scaled(200_000, 3_000_000)
}

fn key(connection: i64, sensor: i64) -> String {
    format!("outage,conn=c{connection},sensor=s{sensor}")
}

/// Sends these bodies on every connection, each until it is acked.
fn send(server: &Server, bodies: std::ops::Range<i64>) {
    let url = server.url(&format!("/write?db={DATABASE}"));
    std::thread::scope(|scope| {
        for connection in 0..CONNECTIONS {
            let url = &url;
            let bodies = bodies.clone();
            scope.spawn(move || {
                for number in bodies {
                    let body = body(connection, number);
                    eventually("a body is acked", || {
                        let answer = request("POST", url, body.as_bytes(), &[]).expect("an answer");
                        (answer.status != 503).then(|| answer.expect(204))
                    });
                }
            });
        }
    });
}

fn body(connection: i64, number: i64) -> String {
    let mut body = String::with_capacity(300_000);
    let run = LINES / SENSORS;
    for step in number * run..(number + 1) * run {
        for sensor in 0..SENSORS {
            let key = key(connection, sensor);
            let time = START + step * SECOND;
            writeln!(body, "{key} step={step}i {time}").expect("writing to a String succeeds");
        }
    }
    body
}

/// Returns true if everything acked is stored in time.
fn flushed(server: &Server, timeout: Duration) -> bool {
    let url = server.url("/api/v1/flush");
    let flushed = || request("POST", &url, b"", &[]).is_ok_and(|answer| answer.status == 204);
    poll(timeout, || flushed().then_some(())).is_some()
}

fn number(server: &Server, name: &str) -> i64 {
    let status = server.fetch("/api/v1/status");
    status[name].as_i64().unwrap_or_else(|| panic!("{name} in {status}"))
}

/// Checks every sensor's count and sum.
fn check_windows(server: &Server, bodies: i64) {
    let steps = bodies * (LINES / SENSORS);
    for connection in 0..CONNECTIONS {
        for sensor in 0..SENSORS {
            let key = key(connection, sensor);
            let windows = windows(server, DATABASE, &key, None, "1d");
            let counts: u64 = windows.values().map(|fields| fields["step"].count).sum();
            let sums: i64 = windows.values().map(|w| w["step"].sum.get().parse::<i64>().expect("whole")).sum();
            assert_eq!((counts, sums), (u64::try_from(steps).expect("positive"), steps * (steps - 1) / 2), "{key}");
        }
    }
}

/// Checks that exactly these readings are stored.
fn check_documents(stored: &Stored, bodies: i64) {
    let steps = bodies * (LINES / SENSORS);
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    stored.each_bucket(&CAPS, |pages| {
        for reading in pages.iter().flat_map(|page| &page.readings) {
            let step = (reading.time - START) / SECOND;
            let expected = [("step".to_owned(), Value::Integer(step))];
            assert!(reading.fields == expected && step < steps, "{}: {reading:?}", pages[0].sensor);
            *counts.entry(pages[0].sensor.clone()).or_default() += 1;
        }
    });
    let sensors = (0..CONNECTIONS).flat_map(|connection| (0..SENSORS).map(move |sensor| key(connection, sensor)));
    let expected: BTreeMap<String, i64> = sensors.map(|key| (key, steps)).collect();
    assert_eq!(counts, expected, "readings by sensor");
}
