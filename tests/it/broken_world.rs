//! Faults around the server: a paused, killed or missing store, bad clients, stops and kills. Acked readings are kept.

mod asking;
mod behind;
mod clients;
mod clock;
mod database;
mod documents;
mod endings;
mod horizon;
mod load;
mod misconfigured;
mod poison;
mod refused;
mod transactions;
mod waits;

use self::load::{Load, check_acked};
use crate::support::prelude::*;

/// Length of a store outage.
const AWAY: Duration = Duration::from_secs(20);
/// Time after an outage within which every client must be acked again.
const RECOVERY: Duration = Duration::from_secs(15);
/// Default `ingest.ack_timeout` (15 s), and time for a body to arrive.
const ANSWER_MAX: Duration = Duration::from_secs(15 + 5);
/// Maximum memory under load in an outage: memtables 256, in-flight bytes 128, WAL queue 64 MiB.
const MEMORY_MAX: u64 = 512 << 20;
/// Clients wait for the store.
const ACK_STORE: &str = "[ingest]\nack = \"store\"\n";

#[test]
fn a_paused_store_delays_no_write() {
    let mut mongod = Mongod::start();
    let server = Server::start(&mongod.uri(&fresh_database_name()));
    let load = Load::start(&server, 4);
    load.await_acks("before the pause", 1, Duration::from_secs(60));
    mongod.pause();
    let paused = Instant::now();
    load.await_acks("during the pause", 10, AWAY);
    wait_until("the outage is noticed", || store_health(&server) == "fail");
    assert_eq!(ready(&server), Some(200), "writes are acked");
    let query = get(&server.url("/api/v1/readings?db=load&sensor=load,client=c0,sensor=s0"));
    assert!(query.expect(503).header("retry-after").is_some());
    let resumed = Instant::now();
    mongod.resume();
    load.await_acks("after the pause", 1, RECOVERY);
    let report = load.stop();
    report.assert_acked_between(paused, resumed);
    flush(&server);
    assert_eq!(status(&server, "pending_readings"), 0.0);
    check_acked(&server, &report);
}

/// Returns a number of `/api/v1/status`.
fn status(server: &Server, name: &str) -> f64 {
    server.fetch("/api/v1/status")[name].as_f64().expect("a number")
}

fn store_health(server: &Server) -> String {
    let health = server.fetch("/health");
    health["checks"][1]["status"].as_str().expect("a word").to_owned()
}

#[test]
fn a_paused_store_costs_neither_memory_nor_acks() {
    let mut mongod = Mongod::start();
    let server = Launch::with_store(mongod.uri(&fresh_database_name())).config(ACK_STORE).start();
    // All send again at once: a debug build must parse their bodies within the time for a body.
    let load = Load::start(&server, 25);
    load.await_acks("before the pause", 1, Duration::from_secs(60));
    mongod.pause();
    let paused = Instant::now();
    std::thread::sleep(AWAY);
    let resumed = Instant::now();
    mongod.resume();
    load.await_acks("after the pause", 1, RECOVERY);
    let report = load.stop();
    report.assert_refused_between(paused, resumed);
    let peak = peak_bytes(server.pid());
    assert!(peak <= MEMORY_MAX, "the server took {peak} bytes");
    check_acked(&server, &report);
}

#[test]
fn startup_waits_for_the_store() {
    let mut mongod = Mongod::start();
    let launch = Launch::with_store(mongod.uri(&fresh_database_name())).config("[ingest]\nack_timeout = \"2s\"\n");
    let mut server = launch.clone().start();
    server.kill();
    mongod.kill();
    server.restart_as(launch);
    let banner = server.stdout();
    assert!(banner.contains(" ms, not ready: writes are kept, and queries are answered with 503 until"), "{banner}");
    assert_eq!((ready(&server), store_health(&server)), (Some(200), "fail".to_owned()), "writes are acked");
    post(&server.url("/write"), "early x=1 1768485600000000000", &[]).expect(204);
    let stored = post(&server.url("/write?ack=store"), "early x=2 1768485601000000000", &[]).expect(503);
    assert!(stored.header("retry-after").is_some() && stored.json()["error"].is_string(), "{}", stored.text());
    assert_eq!(stored.header("x-hourglass-ack"), Some("log"), "it is safe all the same");
    let query = || get(&server.url("/api/v1/readings?sensor=early"));
    assert!(query().expect(503).header("retry-after").is_some());
    get(&server.url("/ping")).expect(204);
    mongod.restart();
    flush(&server);
    let readings = query().expect(200).json()["series"][0]["readings"].as_array().expect("readings").len();
    assert_eq!(readings, 2);
    // A flush may be faster than the next health check.
    wait_until("the store is reachable again", || store_health(&server) == "pass");
}

/// Records of an unregistered log may be older than deletions that others have forgotten.
#[test]
fn an_unregistered_instance_refuses_writes_until_the_store_answers() {
    let mut mongod = Mongod::start();
    mongod.kill();
    let mut server = Server::start(&mongod.uri(&fresh_database_name()));
    let banner = server.stdout();
    assert!(banner.contains(" ms, not ready: writes are answered with 503 until this ends: "), "{banner}");
    let write = |server: &Server| post(&server.url("/write"), "early x=1 1768485600000000000", &[]);
    let refused = write(&server).expect(503);
    // No request is let in before the tokens are loaded.
    assert!(refused.text().contains("tokens are not loaded") && refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(ready(&server), Some(503));
    mongod.restart();
    wait_until("writes are accepted", || write(&server).status == 204);
    assert_eq!(ready(&server), Some(200));
    // Afterwards the tokens hold during an outage, but not after a clean stop.
    for (end, status) in [(Server::kill as fn(&mut Server) -> _, 204), (Server::stop, 503)] {
        flush(&server);
        end(&mut server);
        mongod.kill();
        server.restart_behind();
        write(&server).expect(status);
        mongod.restart();
        wait_until("writes are accepted", || write(&server).status == 204);
    }
}

fn ready(server: &Server) -> Option<u16> {
    request("GET", &server.url("/ready"), b"", &[]).ok().map(|answer| answer.status)
}
