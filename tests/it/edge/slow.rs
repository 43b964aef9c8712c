//! Clients that take their time.

use std::time::Duration;

use crate::support::eventually;
use crate::support::http::post;
use crate::support::raw::{PATIENCE, Raw};
use crate::support::series::metric;
use crate::support::server::Launch;

#[test]
fn each_wait_has_its_own_deadline() {
    let config = "[server]\nidle_timeout = \"2s\"\nheader_timeout = \"300ms\"\nbody_timeout = \"400ms\"\n";
    let server = Launch::embedded().config(config).start();
    let body = "POST /write HTTP/1.1\r\nhost: t\r\ncontent-length: 1000\r\n\r\nm";
    for (opening, answer, reason) in
        [("", "", Some("idle")), ("POST /write HTTP/1.1\r\nhos", "", Some("head")), (body, "HTTP/1.1 503", None)]
    {
        let mut raw = Raw::open(server.address());
        raw.send(opening);
        let said = raw.rest();
        assert!(if answer.is_empty() { said.is_empty() } else { said.starts_with(answer) }, "{opening:?}: {said}");
        if let Some(reason) = reason {
            let name = format!("hourglass_edge_connections_closed_total{{reason=\"{reason}\"}}");
            assert!(metric(&server, &name) >= 1.0, "{reason}");
        }
    }
}

/// A byte now and then keeps nobody's place: neither in a head nor in a body.
#[test]
fn a_byte_now_and_then_is_not_enough() {
    let config = "[server]\nheader_timeout = \"300ms\"\nbody_timeout = \"500ms\"\n";
    let server = Launch::embedded().config(config).start();
    for opening in [
        "POST /write HTTP/1.1\r\nhost: t\r\nx-slow: ",
        "POST /write HTTP/1.1\r\nhost: t\r\ncontent-length: 100000\r\n\r\n",
        "POST /write HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n",
    ] {
        let mut raw = Raw::open(server.address());
        raw.send(opening);
        let drop = if opening.contains("chunked") { "1\r\n#\r\n" } else { "#" };
        eventually("it is closed", PATIENCE, || {
            let closed = !raw.try_send(drop) || raw.is_closed();
            post(&server.url("/write"), "m v=1 1", &[]).expect(204);
            closed.then_some(())
        });
    }
}

/// The wait for the next request is one like that for the first.
#[test]
fn who_has_been_answered_has_a_deadline_again() {
    let server = Launch::embedded().config("[server]\nidle_timeout = \"400ms\"\n").start();
    for request in
        ["GET /ping HTTP/1.1\r\nhost: t\r\n\r\n", "POST /write HTTP/1.1\r\nhost: t\r\ncontent-length: 7\r\n\r\nm v=1 1"]
    {
        let mut raw = Raw::open(server.address());
        raw.send(request);
        assert!(raw.rest().starts_with("HTTP/1.1 204"));
    }
}

#[test]
fn a_connection_is_kept_from_one_request_to_the_next() {
    let config = "[server]\nheader_timeout = \"200ms\"\nidle_timeout = \"10s\"\n";
    let server = Launch::embedded().config(config).start();
    let mut raw = Raw::open(server.address());
    for n in 1..4 {
        // Longer than a head may take: the wait between requests is another one.
        std::thread::sleep(Duration::from_millis(500));
        let line = format!("m v=1 {n}");
        raw.send(format!("POST /write HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n\r\n{line}", line.len()));
        assert!(raw.head().starts_with("HTTP/1.1 204"), "{n}");
    }
}
