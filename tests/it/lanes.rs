//! The lanes: what blocks one of them stops no other, and each endpoint runs in its own.

use crate::support::packed::gzip;
use crate::support::prelude::*;

/// More than the threads of a lane.
const CLIENTS: usize = 8;

fn lines(count: usize) -> String {
    (0..count).fold(String::new(), |mut lines, n| {
        let _ = writeln!(lines, "big,s=s{} value=1.5 {}", n % 7, START + n as i64 * SECOND);
        lines
    })
}

/// Blocks threads of a server at a point by `CLIENTS` requests at a time, calls `meanwhile`, and returns the statuses of
/// these requests.
fn blocked(point: &str, one: impl Fn(&Server) -> u16 + Sync, meanwhile: impl FnOnce(&Server)) -> Vec<u16> {
    let halt = Halt::new();
    let server = halt.launch(Launch::embedded(), point).start();
    write_flushed(&server, "m,s=1 v=1 1768485600");
    halt.set();
    std::thread::scope(|scope| {
        let requests: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| one(&server))).collect();
        halt.await_met("a thread is blocked");
        for n in 0..20 {
            get(&server.url("/ping")).expect(204);
            get(&server.url("/health")).expect(200);
            get(&server.url("/metrics")).expect(200);
            post(&server.url("/write"), format!("new{n},s=1 v=1"), &[]).expect(204);
        }
        meanwhile(&server);
        halt.lift();
        requests.into_iter().map(|request| request.join().unwrap()).collect()
    })
}

/// Regression: 2,200 filters by metadata, 480 patterns, or 170,000 tag keys held the threads that acks needed; pings of
/// others took 20 to 68 seconds.
#[test]
fn blocked_queries_stop_no_write() {
    let ask = |server: &Server| get(&server.url("/api/v1/readings?measurement=m")).status;
    let statuses = blocked("query_begins", ask, |server| {
        post(&server.url("/write"), lines(5_000), &[]).expect(204);
        flush(server);
    });
    assert_eq!(statuses, [200; CLIENTS]);
}

/// Regression: 20 KB of gzip with ten million bad lines were parsed without a pause; 64 of them stopped all others for a
/// minute.
#[test]
fn blocked_bodies_stop_no_small_write_and_no_query() {
    let body = lines(5_000);
    let statuses = blocked(
        "large_body",
        |server| post(&server.url("/write"), &body, &[]).status,
        |server| {
            get(&server.url("/api/v1/readings?measurement=m")).expect(200);
        },
    );
    assert_eq!(statuses, [204; CLIENTS]);
}

/// The bound is in bytes after decompression.
#[test]
fn a_small_body_that_decompresses_to_a_large_one_is_complete() {
    let server = Launch::embedded().start();
    for count in [1, 1_000, 1_700, 1_800, 1_900, 5_000] {
        let lines = lines(count);
        let gzip = gzip(lines.as_bytes(), 1);
        assert!(gzip.len() < 64 << 10, "{}", gzip.len());
        execute(&server, "d", "DROP DATABASE d");
        post(&server.url("/write?db=d"), gzip, &[("content-encoding", "gzip")]).expect(204);
        let counted = influxql(&server, "SELECT count(value) FROM big");
        assert_eq!(counted[0]["values"][0][1], count, "{}", lines.len());
    }
}

/// Changes of data and settings are bulk work and reads are queries. Health and metrics must always answer.
#[test]
fn each_endpoint_runs_in_its_lane() {
    let server = Launch::embedded().config("[telemetry]\nlog_level = \"hourglass::http=debug\"\n").start();
    let io = ["/", "/ui/x", "/openapi.json", "/ping", "/health", "/ready", "/settings", "/metrics"];
    let io_too = ["/api/v1/overview", "/api/v1/status", "/api/v2/setup", "/api/v2/write", "/api/v3/write_lp", "/write"];
    let pushes = ["/api/v1/write", "/v1/metrics"];
    let api = get(&server.url("/openapi.json")).expect(200).json();
    let mut expected = BTreeMap::new();
    for (path, methods) in api["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            if !["GET", "POST", "PUT", "PATCH", "DELETE"].contains(&&*method) {
                continue;
            }
            let target = path.replace("ingest/{key}", "ingest/plain").replace("{secret}", "x");
            let target = target.replace("{key}", "x").replace("{value}", "x");
            let small_writes = ["/api/v1/readings", "/api/v1/ingest/plain", "/api/v1/ingest/plain/x"];
            let is_small_write = method == "POST" && small_writes.contains(&&*target);
            let lane = match &*method {
                _ if is_small_write
                    || pushes.contains(&&*target)
                    || io.contains(&&*target)
                    || io_too.contains(&&*target) =>
                {
                    "io"
                }
                "GET" => "query",
                "POST" if target == "/query" => "query",
                _ => "bulk",
            };
            let mut stream = TcpStream::connect(server.address()).unwrap();
            let head = format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            stream.read_exact(&mut [0; 12]).unwrap();
            // The label of all other methods.
            let method = if matches!(&*method, "PATCH" | "DELETE") { "other".to_owned() } else { method };
            expected.insert((method, path.clone()), lane);
        }
    }
    let logged = || -> BTreeMap<(String, String), String> {
        let events =
            server.stderr().lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).collect::<Vec<_>>();
        let text = |event: &Value, key: &str| event["span"][key].as_str().unwrap_or_default().to_owned();
        let requests = events.iter().filter(|event| event["message"] == "request");
        requests.map(|event| ((text(event, "method"), text(event, "route")), text(event, "lane"))).collect()
    };
    wait_until("all requests are logged", || logged().len() >= expected.len());
    let logged = logged();
    for (request, lane) in expected {
        assert_eq!(logged[&request], lane, "{request:?}");
    }
}

/// The work of a request in another lane ends with its connection.
#[test]
fn work_in_other_lanes_ends_when_its_client_leaves() {
    let halt = Halt::new();
    let server = halt.launch(Launch::embedded(), "query_runs").start();
    write_flushed(&server, "m,s=1 v=1 1768485600");
    halt.set();
    let send = |head: &str, body: usize| {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream
            .write_all(format!("{head} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {body}\r\n\r\n").as_bytes())
            .unwrap();
        stream
    };
    let asked = send("GET /api/v1/summary?measurement=m&from=2026-01-15&to=2026-01-16", 0);
    let running = || metric(&server, "hourglass_query_running");
    halt.await_met("a query runs");
    assert!(running() > 0.0);
    drop(asked);
    wait_until("the query has ended", || running() == 0.0);
    halt.lift();

    let in_flight = || metric(&server, "hourglass_ingest_in_flight_bytes");
    let mut sent = send("POST /write", 1 << 20);
    sent.write_all(lines(10_000).as_bytes()).unwrap();
    wait_until("a large body is in flight", || in_flight() > f64::from(64 << 10));
    drop(sent);
    wait_until("its bytes are released", || in_flight() == 0.0);
}
