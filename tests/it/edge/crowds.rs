//! Connection limits, and the order in which connections give way.

use crate::support::prelude::*;

const PING: &str = "GET /ping HTTP/1.1\r\nhost: localhost\r\n\r\n";
const POST_HEAD: &str = "POST /write HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n";

fn start_limited(connections: usize) -> Server {
    let config = format!(
        "[server]\nconnections = {connections}\nconnections_per_address = 10000\nidle_timeout = \"10m\"\nheader_timeout = \"10m\"\n"
    );
    Launch::embedded().config(config).start()
}

fn closed(server: &Server, reason: &str) -> f64 {
    metric(server, &format!("hourglass_edge_connections_closed_total{{reason=\"{reason}\"}}"))
}

/// Regression: idle connections, half heads and half bodies held all places for ever.
#[test]
fn idle_connections_lock_nobody_out() {
    let server = start_limited(40);
    for opening in ["", "POST /write HTTP/1.1\r\nhost: ", POST_HEAD] {
        let mut held: Vec<Raw> = Vec::new();
        for _ in 0..80 {
            let mut raw = Raw::open(server.address());
            raw.try_send(opening);
            held.push(raw);
        }
        for n in 0..5 {
            post(&server.url("/write"), format!("m v=1 {}", n + 1), &[]).expect(204);
        }
        assert!(held.iter().filter(|raw| raw.is_closed()).count() >= 40, "{opening:?}");
    }
    assert!(closed(&server, "room") >= 100.0);
}

#[test]
fn the_longest_idle_connection_is_closed_first() {
    let server = start_limited(3);
    let mut kept: Vec<Raw> = (0..3).map(|_| Raw::open(server.address())).collect();
    for order in [0, 2, 1] {
        kept[order].send(PING);
        assert!(kept[order].head().starts_with("HTTP/1.1 204"));
        // Idle times are compared in milliseconds.
        std::thread::sleep(Duration::from_millis(20));
    }
    for (newcomer, gone) in [(3, 0), (4, 2), (5, 1)] {
        let mut raw = Raw::open(server.address());
        raw.send(PING);
        assert!(raw.head().starts_with("HTTP/1.1 204"), "{newcomer}");
        wait_until("the longest idle one is closed", || kept[gone].is_closed());
        assert_eq!(kept[..3].iter().filter(|raw| raw.is_closed()).count(), newcomer - 2);
        kept.push(raw);
    }
}

#[test]
fn active_requests_are_never_cut_off_for_new_connections() {
    let server = start_limited(2);
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let mut busy: Vec<Raw> = (0..2).map(|_| Raw::open(server.address())).collect();
        for raw in &mut busy {
            raw.send(
                "POST /write HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\nexpect: 100-continue\r\n\r\n",
            );
            assert!(raw.head().starts_with("HTTP/1.1 100"), "the body is asked for");
            raw.send("#");
        }
        let done = &done;
        // Bodies that keep arriving.
        let moving: Vec<_> = busy
            .into_iter()
            .map(|mut raw| {
                threads.spawn(move || {
                    let mut sent = 1;
                    while !done.load(Ordering::Relaxed) {
                        raw.send("#".repeat(200));
                        sent += 200;
                        std::thread::sleep(Duration::from_millis(50));
                    }
                    raw.send("#".repeat(100_000 - sent));
                    assert!(raw.head().starts_with("HTTP/1.1 204"));
                })
            })
            .collect();
        let mut third = Raw::open(server.address());
        third.send(PING);
        third.0.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
        assert!(third.0.peek(&mut [0]).is_err(), "two connections at a time");
        done.store(true, Ordering::Relaxed);
        third.0.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(third.head().starts_with("HTTP/1.1 204"));
        for thread in moving {
            thread.join().unwrap();
        }
    });
}

#[test]
fn connections_over_the_limit_of_an_address_are_closed() {
    let server = Launch::embedded().config("[server]\nconnections_per_address = 8\n").start();
    let mut held: Vec<Raw> = (0..8).map(|_| Raw::open(server.address())).collect();
    assert_eq!(Raw::open(server.address()).rest(), "");
    held[0].send(PING);
    assert!(held[0].head().starts_with("HTTP/1.1 204"), "those that are there are served");
    held.truncate(1);
    wait_until("room for another", || {
        let mut raw = Raw::open(server.address());
        raw.try_send(PING);
        raw.head().starts_with("HTTP/1.1 204")
    });
    drop(held);
    get(&server.url("/ping")).expect(204);
    assert!(closed(&server, "address") >= 1.0);
}
