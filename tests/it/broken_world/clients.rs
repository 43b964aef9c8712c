//! Misbehaving clients: half requests, no end, unread answers, too much data.

use crate::support::prelude::*;

const LINES: i64 = 5000;
const SENSORS: i64 = 10;

/// Returns the head of a write with this content length.
fn head(length: usize) -> String {
    format!("POST /write HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n")
}

fn lines(client: &str) -> String {
    let line = |n: i64| format!("gone,client={client},sensor=s{} n={n}i {}\n", n % SENSORS, START + n * 1_000_000);
    (0..LINES).map(line).collect()
}

fn count_stored(server: &Server, client: &str) -> i64 {
    let count = |sensor: i64| {
        let key = format!("gone,client={client},sensor=s{sensor}");
        i64::try_from(readings(server, "default", &key, None, 10_000).len()).expect("few")
    };
    (0..SENSORS).map(count).sum()
}

tests! {
    fn disconnecting_clients_corrupt_nothing_in_the_embedded_store() =>
        clients_that_leave_tear_nothing(&Launch::embedded().start());
    fn disconnecting_clients_corrupt_nothing_in_mongodb() =>
        clients_that_leave_tear_nothing(&Server::start(&mongod().uri(&fresh_database_name())));
}

/// A partial body is dropped. A whole one without a waiting sender is stored atomically, over several shards.
fn clients_that_leave_tear_nothing(server: &Server) {
    let half = lines("half");
    let mut connection = Raw::open(server.address());
    connection.send(head(half.len()));
    connection.send(&half.as_bytes()[..half.len() / 2]);
    drop(connection);
    let clients: Vec<String> = (0..20).map(|number| format!("whole{number}")).collect();
    for (number, client) in (0..).zip(&clients) {
        let body = lines(client);
        let mut connection = Raw::open(server.address());
        connection.send(head(body.len()));
        connection.send(body);
        // Some leave at once, some while their readings are being stored, and some afterwards on a busy machine, too.
        std::thread::sleep(Duration::from_millis(1 << (number % 10)));
    }
    // Their requests are over once the connections are closed and later readings are stored.
    wait_until("the connections of disconnected clients are closed", || {
        metric(server, "hourglass_http_connections") <= 1.0
    });
    post(&server.url("/write"), lines("after"), &[]).expect(204);
    assert_eq!(count_stored(server, "after"), LINES);
    assert_eq!(count_stored(server, "half"), 0);
    let counts: Vec<i64> = clients.iter().map(|client| count_stored(server, client)).collect();
    assert!(counts.iter().all(|count| [0, LINES].contains(count)), "{counts:?}");
    assert!(counts.contains(&LINES), "{counts:?}");
}

#[test]
fn bodies_over_the_in_flight_limit_are_refused_until_there_is_room() {
    let config = "[limits]\nbody_bytes = \"1MiB\"\n\n[ingest]\nbytes_in_flight = \"4MiB\"\n";
    let server = Launch::embedded().config(config).start();
    let large: String = (0..27_000).map(|n| format!("large n={n}i {}\n", START + n)).collect();
    let small: String = (0..15_000).map(|n| format!("small n={n}i {}\n", START + n)).collect();
    assert!(4 * large.len() < 4 << 20 && 4 * large.len() + small.len() > 4 << 20);
    let (begun, rest) = large.as_bytes().split_at(large.len() - 10);
    let mut holders: Vec<Raw> = (0..4).map(|_| Raw::open(server.address())).collect();
    for holder in &mut holders {
        holder.send(head(large.len()));
        holder.send(begun);
    }
    let in_flight = || metric(&server, "hourglass_ingest_in_flight_bytes");
    wait_until("the holders' bytes are admitted", || in_flight() >= double(4 * begun.len()));

    let url = server.url("/write");
    let refused = post(&url, &small, &[]).expect(503);
    let error = "the service is at its limit of 4194304 bytes (ingest.bytes_in_flight): retry later";
    assert_eq!(refused.json(), json!({"error": error}));
    assert!(refused.header("retry-after").is_some_and(|seconds| seconds.parse::<u32>().is_ok()));
    assert_eq!(metric(&server, "hourglass_ingest_shed_total{limit=\"ingest.bytes_in_flight\"}"), 1.0);
    get(&server.url("/ready")).expect(200);

    // Closed connections and acks release memory.
    let mut last = holders.remove(0);
    drop(holders);
    wait_until("the room of closed connections is free", || in_flight() <= double(large.len()));
    last.send(rest);
    assert!(last.head().starts_with("HTTP/1.1 204"));
    post(&url, &small, &[]).expect(204);
    let count = |sensor: &str| readings(&server, "default", sensor, None, 100_000).len();
    assert_eq!([count("large"), count("small")], [27_000, 15_000]);
    wait_until("all room is free", || in_flight() == 0.0);
}

#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn double(number: usize) -> f64 {
    number as f64
}
