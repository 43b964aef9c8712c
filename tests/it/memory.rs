//! hourglass stays within `server.memory`.

use crate::support::halt::Halt;
use crate::support::prelude::*;

/// `server.memory` in these tests.
const MEMORY: u64 = 128 << 20;
/// Resident bytes of a released program's file; the larger file of the test program is not counted.
const FILE: u64 = 20 << 20;
/// Seconds per request.
const SECONDS: u64 = 4;

/// Returns the readings per second of the sensor.
fn rate() -> u64 {
    scaled(100, 1000)
}

tests! {
    /// Regression: an hour of 1,000 readings a second took 500 MB, because every flush read all its pages.
    fn an_hour_of_a_fast_sensor_fits_into_128_mib_embedded() => an_hour_fits("embedded");
    fn an_hour_of_a_fast_sensor_fits_into_128_mib_in_mongodb() => an_hour_fits(mongod().uri(&fresh_database_name()));
}

fn an_hour_fits(store: impl Into<String>) {
    let store = store.into();
    let server = Launch::with_store(&store).config("[server]\nmemory = \"128MiB\"\n").start();
    server.limit_memory(4 << 30);
    check_memory_metrics(&server);
    let hour = 1_768_485_600_u64;
    let rate = rate();
    for from in (0..3600).step_by(usize::try_from(SECONDS).expect("small")) {
        send(&server, hour, from, |n| n);
        // Late readings and corrections of closed pages.
        if from % 600 == 0 && from > 0 {
            send(&server, hour, from / 2, |n| n + 1);
        }
    }
    flush(&server);
    let query = |statement: &str| server.fetch(&format!("/query?db=fast&epoch=s&q={}", encode(statement)));
    let counted = query("SELECT count(x),max(x) FROM vibration");
    let values = &counted["results"][0]["series"][0]["values"][0];
    assert_eq!(values[1].as_u64(), Some(3600 * rate), "{counted}");
    // Some seconds are read without the rest of the hour.
    let some =
        query(&format!("SELECT count(x),sum(x) FROM vibration WHERE time>={}s AND time<{}s", hour + 1800, hour + 1820));
    let values = &some["results"][0]["series"][0]["values"][0];
    assert_eq!(values[1].as_u64(), Some(20 * rate), "{some}");
    let first = 1800 * rate;
    let sum = (first..first + 20 * rate).map(|n| n % 997).sum::<u64>();
    assert_eq!(values[2].as_u64(), Some(sum), "these readings were never corrected: {some}");
    let raw = server.fetch("/api/v1/readings?db=fast&sensor=vibration,machine=m1&limit=5");
    assert_eq!(raw["series"][0]["readings"].as_array().map(Vec::len), Some(5), "{raw}");
    let peak = peak_bytes(server.pid()) - file_bytes(server.pid());
    println!("peak {} MiB besides the program on {store}", peak >> 20);
    assert!(peak <= (MEMORY - FILE) / 100 * 115, "the server took {peak} bytes besides the program");
}

tests! {
    /// Regression: budgets count neither what the allocator keeps nor what exists for a moment, so clients that wrote and
    /// asked at once took 420 of 256 MiB.
    fn clients_at_once_fit_into_256_mib() => clients_at_once_fit(256, 115);
    /// Regression: each query that found the list of sensors outdated read its own, and nobody counted the lists. They took
    /// 80 of 128 MiB.
    fn clients_at_once_fit_into_128_mib() => clients_at_once_fit(128, 125);
}

/// Whatever the clients are refused, what was acked is there.
fn clients_at_once_fit(mib: u64, percent: u64) {
    const SENSORS: u64 = 2_500;
    let server =
        Launch::embedded().config(format!("[server]\nmemory = \"{mib}MiB\"\n[query]\ntimeout = \"60s\"\n")).start();
    server.limit_memory(4 << 30);
    let (acked, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let write = |client: u64| {
            for turn in 0..scaled(6, 400) {
                let line = |n| {
                    let text = "x".repeat(usize::try_from(n % 200).expect("small"));
                    format!("m,client={client},sensor={n} v={turn}.5,w={n}i,t=\"{text}\" {}\n", 1_768_485_600 + turn)
                };
                let body: String = (0..SENSORS).map(line).collect();
                let answer =
                    request("POST", &server.url("/write?db=d&precision=s"), body.as_bytes(), &[]).expect("an answer");
                assert!(matches!(answer.status, 204 | 503), "{}", answer.text());
                acked.fetch_add(SENSORS * u64::from(answer.status == 204), Ordering::Relaxed);
            }
        };
        let writers: Vec<_> = (0..4).map(|client| scope.spawn(move || write(client))).collect();
        for statement in
            ["SELECT mean(v) FROM m GROUP BY time(10s),sensor", "SELECT percentile(v,95) FROM m", "SELECT * FROM m"]
        {
            let (url, is_over) = (server.url(&format!("/query?db=d&limit=5000&q={}", encode(statement))), &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // An answer that no longer fits is cut off.
                    let _ = request("GET", &url, b"", &[]);
                }
            });
        }
        writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
        is_over.store(true, Ordering::Relaxed);
    });
    let peak = peak_bytes(server.pid()) - file_bytes(server.pid());
    assert!(peak <= ((mib << 20) - FILE) / 100 * percent, "{} MiB besides the program", peak >> 20);
    flush(&server);
    let counted = server.fetch("/query?db=d&q=SELECT+count(v)+FROM+m");
    assert_eq!(counted["results"][0]["series"][0]["values"][0][1], acked.into_inner(), "{counted}");
}

/// Regression: flushes merged an hour of long texts at once, because they have few readings. 60 MB took 180 of 128 MiB.
#[test]
fn an_hour_of_long_texts_fits_into_128_mib() {
    let server = Launch::embedded().config("[server]\nmemory = \"128MiB\"\n").start();
    server.limit_memory(4 << 30);
    let text = "x".repeat(60_000);
    for from in (0..1_000).step_by(50) {
        let body: String = (from..from + 50).map(|n| format!("log t=\"{n}{text}\" {}\n", 1_768_485_600 + n)).collect();
        send_body(&server, "/write?db=texts&precision=s", &body);
    }
    flush(&server);
    let stored = metric(&server, "hourglass_ingest_readings_stored_total");
    assert!((stored - 1_000.0).abs() < 0.5, "{stored}");
    let peak = peak_bytes(server.pid()) - file_bytes(server.pid());
    assert!(peak <= (MEMORY - FILE) / 100 * 115, "the server took {peak} bytes besides the program");
}

/// Regression: flushes read whole buckets of unknown size, and 40 sensors at 15 a second took 170 MB of 64 MiB.
#[test]
fn hours_of_many_sensors_fit_into_128_mib() {
    let config = "[server]\nmemory = \"128MiB\"\n[flush]\ninterval = \"2s\"\n[sensors]\nwrite_interval = \"1s\"\n";
    let server = Launch::embedded().config(config).start();
    server.limit_memory(4 << 30);
    let hour = 1_768_485_600_u64;
    let sensors = 40;
    let per_second = rate().div_ceil(70);
    for from in (0..3600).step_by(20) {
        let line = |n: u64| {
            let sensor = n % sensors;
            let n = n / sensors;
            let time = (hour + from) * 1000 + n * 1000 / per_second;
            format!("acc,machine=m{sensor} x={}.25,y={}.5,z={}.125 {time}\n", n % 997, n % 1013, n % 1019)
        };
        let body: String = (0..20 * per_second * sensors).map(line).collect();
        send_body(&server, "/write?db=many&precision=ms", &body);
    }
    flush(&server);
    let counted = server.fetch("/query?db=many&q=SELECT+count(x)+FROM+acc");
    let count = counted["results"][0]["series"][0]["values"][0][1].as_u64();
    assert_eq!(count, Some(3600 * per_second * sensors), "{counted}");
    let peak = peak_bytes(server.pid()) - file_bytes(server.pid());
    println!("peak {} MiB besides the program with {sensors} sensors", peak >> 20);
    assert!(peak <= (MEMORY - FILE) / 100 * 115, "the server took {peak} bytes besides the program");
}

/// Regression: an hour with ten readings a second could not be queried, not even with `LIMIT 1`.
#[test]
fn an_hour_larger_than_the_budget_is_queried_in_parts() {
    let server = Launch::embedded().config("[server]\nmemory = \"128MiB\"\n").start();
    let hour = 1_768_485_600_u64;
    let readings = 36_000_u64;
    let line = |n: u64| format!("acc,m=1 x={n},y={}.5,z={}i {}\n", n % 1013, n % 1019, hour * 1000 + n * 100);
    for flushed in [true, false] {
        // In order of time, then every tenth again, corrected and unflushed.
        let numbers: Vec<u64> = (0..readings).step_by(if flushed { 1 } else { 10 }).collect();
        for some in numbers.chunks(6000) {
            send_body(&server, "/write?db=d&precision=ms", &some.iter().map(|n| line(*n)).collect::<String>());
        }
        if flushed {
            flush(&server);
        }
        let values = |statement: &str| {
            let answer = server.fetch(&format!("/query?db=d&epoch=ms&q={}", encode(statement)));
            let values = answer["results"][0]["series"][0]["values"].as_array();
            values.unwrap_or_else(|| panic!("{statement}: {answer}")).clone()
        };
        let time = |n: u64| hour * 1000 + n * 100;
        let last = readings - 1;
        assert_eq!(values("SELECT x FROM acc ORDER BY time DESC LIMIT 1"), [json!([time(last), last])]);
        assert_eq!(values("SELECT x,z FROM acc LIMIT 2"), [json!([time(0), 0, 0]), json!([time(1), 1, 1])]);
        let ends = values("SELECT last(x),first(y),last(z) FROM acc");
        assert_eq!(ends[0].as_array().map(|row| &row[1..]), Some(&[json!(last), json!(0.5), json!(last % 1019)][..]));
        let minutes = values(&format!(
            "SELECT mean(x),count(z) FROM acc WHERE time >= {hour}s AND time < {}s GROUP BY time(1m)",
            hour + 3600
        ));
        let mean = |n: u64| json!([time(600 * n), 600.0 * as_float(n) + 299.5, 600]);
        assert_eq!(minutes, (0..60).map(mean).collect::<Vec<_>>());
        let some = values("SELECT x FROM acc WHERE x >= 17900 AND x < 18100");
        assert_eq!(some, (17_900..18_100).map(|n| json!([time(n), n])).collect::<Vec<_>>());
        let range = format!("from={}&to={}", time(0), time(readings));
        for path in ["/api/v1/summary?step=1m", "/api/v1/readings?max_points=100"] {
            get(&server.url(&format!("{path}&db=d&sensor=acc,m=1&{range}"))).expect(200);
        }
    }
}

/// Regression: an hour's unflushed readings were unpacked at once, so 24 MB of texts were refused until they were stored.
#[test]
fn an_unflushed_hour_larger_than_the_budget_is_queried_in_parts() {
    let halt = Halt::already_set();
    let server = Launch::embedded().config("[server]\nmemory = \"512MiB\"\n");
    let server = halt.launch(server, "before_write").start();
    let hour = 1_768_485_600;
    let text = "x".repeat(60_000);
    for from in (0..400).step_by(100) {
        let lines = (from..from + 100).map(|n| format!("log n={n}i,t=\"{n}{text}\" {}\n", hour + 11 * n));
        send_body(&server, "/write?db=d&precision=s", &lines.collect::<String>());
    }
    for stored in [false, true] {
        let exported = get(&server.url("/api/v1/export?db=d&measurement=log")).expect(200);
        assert_eq!(exported.text().lines().filter(|line| !line.starts_with('#')).count(), 400, "{stored}");
        for order in ["asc", "desc"] {
            let mut found = Vec::new();
            let mut next = String::new();
            loop {
                let page = server.fetch(&format!("/api/v1/readings?db=d&sensor=log&order={order}&limit=400{next}"));
                let readings = page["series"][0]["readings"].as_array().expect("a list").clone();
                found.extend(readings.iter().map(|reading| (reading["ts"].to_string(), reading["n"].clone())));
                let Some(cursor) = page["next"].as_str() else { break };
                next = format!("&cursor={}", encode(cursor));
            }
            assert!(found.is_sorted_by(|a, b| if order == "asc" { a.0 < b.0 } else { a.0 > b.0 }), "{stored} {order}");
            assert_eq!(found.len(), 400, "{stored} {order}");
        }
        let count = "SELECT count(t),sum(n) FROM log WHERE n >= 0";
        let answer = server.fetch(&format!("/query?db=d&epoch=s&q={}", encode(count)));
        assert_eq!(answer["results"][0]["series"][0]["values"], json!([[0, 400, 79_800]]), "{stored}");
        if !stored {
            halt.lift();
            flush(&server);
        }
    }
}

/// Regression: with 17,000 readings between two values of a time, the greater value won, not the last one.
#[test]
fn the_last_value_of_a_request_wins_at_any_distance() {
    let server = Launch::embedded().start();
    let hour = 1_768_485_600_000_u64;
    let between: String = (1..17_000).map(|n| format!("m,s=a v=5i {}\n", hour + n)).collect();
    send_body(&server, "/write?db=d&precision=ms", &format!("m,s=a v=9i {hour}\n{between}m,s=a v=1i {hour}\n"));
    for _ in 0..2 {
        let answer = server.fetch("/query?db=d&epoch=ms&q=SELECT+v+FROM+m+LIMIT+1");
        assert_eq!(answer["results"][0]["series"][0]["values"], json!([[hour, 1]]));
        flush(&server);
    }
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn as_float(n: u64) -> f64 {
    n as f64
}

/// Checks that the metrics of the parts add up to at most the memory.
fn check_memory_metrics(server: &Server) {
    let log = server.stderr();
    assert!(log.contains("sum_mib") && !log.contains("add up to more"), "{log}");
    let parts = metric(server, "hourglass_memory_part_bytes");
    assert_eq!(metric(server, "hourglass_memory_limit_bytes"), as_float(MEMORY));
    assert!(parts > 100e6 && parts <= as_float(MEMORY), "{parts}");
}

/// Sends some seconds of the sensor.
fn send(server: &Server, hour: u64, from: u64, value: impl Fn(u64) -> u64) {
    let rate = rate();
    let line = |n: u64| {
        let time = (hour + n / rate) * 1_000_000_000 + n % rate * (1_000_000_000 / rate);
        format!("vibration,machine=m1 x={}i,y={}.5 {time}\n", value(n) % 997, n % 1013)
    };
    let body: String = (from * rate..(from + SECONDS) * rate).map(line).collect();
    send_body(server, "/write?db=fast&precision=ns", &body);
}

/// Sends a body until it is acked; hourglass may answer 503 while memory is full.
fn send_body(server: &Server, path: &str, body: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = post(&server.url(path), body, &[]);
        if answer.status == 204 {
            return;
        }
        assert!(answer.status == 503 && Instant::now() < deadline, "{}", answer.text());
        std::thread::sleep(Duration::from_millis(50));
    }
}
