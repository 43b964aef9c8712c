//! Slow clients.

use crate::support::prelude::*;

#[test]
fn each_phase_has_its_own_deadline() {
    let config = "[server]\nidle_timeout = \"2s\"\nheader_timeout = \"300ms\"\nbody_timeout = \"400ms\"\n";
    let server = Launch::embedded().config(config).start();
    let body = "POST /write HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\nm";
    for (opening, answer, reason) in
        [("", "", Some("idle")), ("POST /write HTTP/1.1\r\nhos", "", Some("head")), (body, "HTTP/1.1 503", None)]
    {
        let mut raw = Raw::open(server.address());
        raw.send(opening);
        let received = raw.rest();
        assert!(
            if answer.is_empty() { received.is_empty() } else { received.starts_with(answer) },
            "{opening:?}: {received}"
        );
        if let Some(reason) = reason {
            let name = format!("hourglass_edge_connections_closed_total{{reason=\"{reason}\"}}");
            assert!(metric(&server, &name) >= 1.0, "{reason}");
        }
    }
}

/// A trickle of bytes keeps no place, neither in a head nor in a body.
#[test]
fn a_trickle_of_bytes_does_not_extend_a_deadline() {
    let server = Launch::embedded().config("[server]\nheader_timeout = \"300ms\"\nbody_timeout = \"500ms\"\n").start();
    for opening in [
        "POST /write HTTP/1.1\r\nhost: localhost\r\nx-slow: ",
        "POST /write HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n",
        "POST /write HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n",
    ] {
        let mut raw = Raw::open(server.address());
        raw.send(opening);
        let drop = if opening.contains("chunked") { "1\r\n#\r\n" } else { "#" };
        wait_until("it is closed", || {
            let closed = !raw.try_send(drop) || raw.is_closed();
            post(&server.url("/write"), "m v=1 1", &[]).expect(204);
            closed
        });
    }
}

/// The wait for the next request is limited like the first.
#[test]
fn the_idle_deadline_applies_again_after_an_answer() {
    let server = Launch::embedded().config("[server]\nidle_timeout = \"400ms\"\n").start();
    for request in [
        "GET /ping HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "POST /write HTTP/1.1\r\nhost: localhost\r\ncontent-length: 7\r\n\r\nm v=1 1",
    ] {
        let mut raw = Raw::open(server.address());
        raw.send(request);
        assert!(raw.rest().starts_with("HTTP/1.1 204"));
    }
}

#[test]
fn a_connection_is_kept_between_requests() {
    let server = Launch::embedded().config("[server]\nheader_timeout = \"200ms\"\nidle_timeout = \"10s\"\n").start();
    let mut raw = Raw::open(server.address());
    for n in 1..4 {
        // Longer than the head deadline: the wait between requests has its own.
        std::thread::sleep(Duration::from_millis(500));
        let line = format!("m v=1 {n}");
        raw.send(format!("POST /write HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{line}", line.len()));
        assert!(raw.head().starts_with("HTTP/1.1 204"), "{n}");
    }
}

/// Sends a chunked body at a fixed rate until it is answered, `is_over` is set, or patience ends.
fn drip(raw: &mut Raw, bytes_per_second: u128, is_over: &AtomicBool) {
    let started = Instant::now();
    let mut sent = 0;
    // Sets the pace: each check for an answer takes this long.
    raw.0.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    while raw.0.peek(&mut [0]).is_err() && !is_over.load(Ordering::SeqCst) && started.elapsed() < PATIENCE {
        let due = started.elapsed().as_millis() * bytes_per_second / 1000 - sent;
        if due > 0 && !raw.try_send(format!("{due:x}\r\n{}\r\n", "#".repeat(usize::try_from(due).unwrap()))) {
            break;
        }
        sent += due;
    }
    raw.0.set_read_timeout(Some(PATIENCE)).unwrap();
}

/// Only the rate can end them: the deadline of a whole body is far away.
#[test]
fn only_bodies_below_the_minimum_rate_are_given_up() {
    let server = Launch::embedded().config("[server]\nbody_timeout = \"10m\"\n").start();
    let open = || {
        let mut raw = Raw::open(server.address());
        raw.send(
            "POST /write?db=slow HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n8\r\nm v=1 1\n\r\n",
        );
        raw
    };
    let is_over = AtomicBool::new(false);
    // The faster one starts first and so lasts longer than the other one may.
    let mut above = open();
    std::thread::scope(|threads| {
        threads.spawn(|| drip(&mut above, 3 * 1024, &is_over));
        let mut below = open();
        drip(&mut below, 512, &AtomicBool::new(false));
        let head = below.head();
        is_over.store(true, Ordering::SeqCst);
        assert!(head.starts_with("HTTP/1.1 503"), "{head:?}");
    });
    assert!(!above.is_closed(), "it was fast enough");
    above.send("0\r\n\r\n");
    let head = above.head();
    assert!(head.starts_with("HTTP/1.1 204"), "{head:?}");
}
