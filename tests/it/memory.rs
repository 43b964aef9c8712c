//! `server.memory`: all that hourglass does fits into it. `HOURGLASS_TEST_RATE` is how many readings per second the sensor
//! sends, 250 if it is not set; 1000 takes four times as long.

use std::time::Duration;

use crate::support::http::{get, post};
use crate::support::mongod::{fresh_database_name, mongod};
use crate::support::process::{file_bytes, peak_bytes};
use crate::support::server::{Launch, Server};

/// What `server.memory` is here.
const MEMORY: u64 = 64 << 20;
/// What of it is for the program itself. A program for tests is larger, so its file is not counted.
const PROGRAM: u64 = 20 << 20;
/// Seconds per request.
const SECONDS: u64 = 4;

/// Readings per second of the sensor.
fn rate() -> u64 {
    std::env::var("HOURGLASS_TEST_RATE").ok().map_or(250, |rate| rate.parse().expect("a number"))
}

/// An hour of a sensor that sends a thousand readings per second took 500 MB: every flush read, unpacked and packed all its
/// pages, whatever `memtable.max_bytes` was. And nothing told what all the bounds of memory added up to.
#[test]
fn an_hour_of_a_fast_sensor_fits_into_64_mib_embedded() {
    an_hour_fits("embedded");
}

#[test]
fn an_hour_of_a_fast_sensor_fits_into_64_mib_in_mongodb() {
    an_hour_fits(mongod().uri(&fresh_database_name()));
}

fn an_hour_fits(store: impl Into<String>) {
    let store = store.into();
    let server = Launch::with_store(&store).config("[server]\nmemory = \"64MiB\"\n").start();
    server.limit_memory(2 << 30);
    told(&server);
    let (hour, rate) = (1_768_485_600_u64, rate());
    for from in (0..3600).step_by(usize::try_from(SECONDS).expect("small")) {
        send(&server, hour, from, |n| n);
        // Late readings and corrections of pages that are long closed.
        if from % 600 == 0 && from > 0 {
            send(&server, hour, from / 2, |n| n + 1);
        }
    }
    post(&server.url("/api/v1/flush"), "", &[]).expect(204);
    let query = |statement: &str| {
        let statement = statement.replace('<', "%3C").replace('>', "%3E").replace('=', "%3D").replace(' ', "+");
        get(&server.url(&format!("/query?db=fast&epoch=s&q={statement}"))).expect(200).json()
    };
    let counted = query("SELECT count(x),max(x) FROM vibration");
    let values = &counted["results"][0]["series"][0]["values"][0];
    assert_eq!(values[1].as_u64(), Some(3600 * rate), "{counted}");
    // Some seconds of it are asked for without the rest of the hour.
    let some =
        query(&format!("SELECT count(x),sum(x) FROM vibration WHERE time>={}s AND time<{}s", hour + 1800, hour + 1820));
    let values = &some["results"][0]["series"][0]["values"][0];
    assert_eq!(values[1].as_u64(), Some(20 * rate), "{some}");
    let first = 1800 * rate;
    let sum = (first..first + 20 * rate).map(|n| n % 997).sum::<u64>();
    assert_eq!(values[2].as_u64(), Some(sum), "these readings were never corrected: {some}");
    let raw = get(&server.url("/api/v1/readings?db=fast&sensor=vibration,machine=m1&limit=5")).expect(200).json();
    assert_eq!(raw["series"][0]["readings"].as_array().map(Vec::len), Some(5), "{raw}");
    let peak = peak_bytes(server.pid()) - file_bytes(server.pid());
    println!("peak {} MiB besides the program on {store}", peak >> 20);
    assert!(peak <= (MEMORY - PROGRAM) / 100 * 115, "the server took {peak} bytes besides the program");
}

/// The start and the metrics say what the parts are, and their sum keeps to the memory.
fn told(server: &Server) {
    let log = server.stderr();
    assert!(log.contains("sum_mib") && log.contains("memtable.max_bytes") && !log.contains("add up to more"), "{log}");
    let metrics = get(&server.url("/metrics")).expect(200);
    let metrics = metrics.text();
    let value = |line: &str| line.rsplit(' ').next().and_then(|n| n.parse::<f64>().ok()).expect("a number");
    let limit = metrics.lines().find(|line| line.starts_with("hourglass_memory_limit_bytes ")).map(value);
    let parts: f64 = metrics.lines().filter(|line| line.starts_with("hourglass_memory_part_bytes{")).map(value).sum();
    assert_eq!(limit, Some(67_108_864.0));
    assert!(parts > 50e6 && parts <= 67_108_864.0, "{parts}");
}

/// Sends some seconds of the sensor. While memory is full, hourglass may answer 503: the client sends again.
fn send(server: &Server, hour: u64, from: u64, value: impl Fn(u64) -> u64) {
    let rate = rate();
    let line = |n: u64| {
        let time = (hour + n / rate) * 1_000_000_000 + n % rate * (1_000_000_000 / rate);
        format!("vibration,machine=m1 x={}i,y={}.5 {time}\n", value(n) % 997, n % 1013)
    };
    let body: String = (from * rate..(from + SECONDS) * rate).map(line).collect();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let answer = post(&server.url("/write?db=fast&precision=ns"), &body, &[]);
        if answer.status == 204 {
            return;
        }
        assert!(answer.status == 503 && std::time::Instant::now() < deadline, "{}", answer.text());
        std::thread::sleep(Duration::from_millis(50));
    }
}
