//! Ambiguous heads get 400 or 431, and the connection is closed.

use crate::support::prelude::*;

const LINE: &str = "m v=1 1";

/// Sends these bytes and a valid request; returns the first status and the number of answers.
#[track_caller]
fn answers(server: &Server, request: &str) -> (u16, usize) {
    let mut raw = Raw::open(server.address());
    raw.send(format!("{request}GET /ping HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"));
    let received = raw.rest();
    let status = received.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no status to {request:?}: {received:?}"));
    let lower = received.to_lowercase();
    assert!(!lower.contains("\r\nserver:"), "{received}");
    (status, lower.matches("http/1.1 ").count())
}

#[test]
fn ambiguous_requests_are_refused_and_the_connection_closed() {
    let server = Launch::embedded().start();
    let chunks = format!("{:x}\r\n{LINE}\r\n0\r\n\r\n", LINE.len());
    let length = LINE.len();
    let post = |headers: &str, body: &str| format!("POST /write HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n{body}");
    let many: String = (0..70).map(|n| format!("x-{n}: 1\r\n")).collect();
    let cases = [
        (post(&format!("content-length: {length}\r\n"), LINE), 204),
        (post(&format!("content-length: {length}\r\ncontent-length: {length}\r\n"), LINE), 204),
        (post("transfer-encoding: chunked\r\n", &chunks), 204),
        (post("Transfer-Encoding: Chunked\r\n", &chunks), 204),
        (post("content-length: 3\r\ntransfer-encoding: chunked\r\n", &chunks), 400),
        (post("transfer-encoding: chunked\r\ncontent-length: 3\r\n", &chunks), 400),
        (post("Transfer-Encoding: chunked\r\nConTent-LENGTH:   0\r\n", &chunks), 400),
        (post(&format!("content-length: {length}\r\ncontent-length: 3\r\n"), LINE), 400),
        (post(&format!("content-length: {length}, 3\r\n"), LINE), 400),
        (post(&format!("content-length: +{length}\r\n"), LINE), 400),
        (post("content-length: -1\r\n", LINE), 400),
        (post("content-length: 0x7\r\n", LINE), 400),
        // Unknown encodings.
        (post("transfer-encoding: identity\r\n", LINE), 400),
        (post("transfer-encoding: gzip, chunked\r\n", &chunks), 400),
        (post("transfer-encoding: chunked, identity\r\n", &chunks), 400),
        (post("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", &chunks), 400),
        (post("transfer-encoding: xchunked\r\n", &chunks), 400),
        (post("transfer-encoding: \x0bchunked\r\n", &chunks), 400),
        // Malformed lines.
        (post("transfer-encoding : chunked\r\n", &chunks), 400),
        (post("content-length : 7\r\n", LINE), 400),
        (post("x: a\r\n content-length: 7\r\n", LINE), 400),
        (post("x: a\r\n\ttransfer-encoding: chunked\r\n", &chunks), 400),
        ("GET /ping HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET /ping HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n".to_owned(), 400),
        // Oversized heads.
        (post(&many, ""), 431),
        (post(&format!("x: {}\r\n", "x".repeat(40_000)), ""), 431),
    ];
    for (request, expected) in cases {
        let (status, count) = answers(&server, &request);
        assert_eq!(status, expected, "{request:?}");
        assert_eq!(count, if expected == 204 { 2 } else { 1 }, "{request:?}");
    }
}

/// A chunked request behind others in one packet cannot be checked again and is refused.
#[test]
fn ambiguous_lengths_are_found_in_pipelined_requests() {
    let server = Launch::embedded().start();
    let sound = "GET /ping HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut raw = Raw::open(server.address());
    let smuggled =
        "POST /write HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    raw.send(format!("{sound}{sound}{smuggled}{sound}"));
    let received = raw.rest();
    let statuses: Vec<&str> = received.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, ["204", "204", "400"], "{received}");
}

#[test]
fn trace_echoes_nothing() {
    let server = Launch::embedded().start();
    for path in ["/", "/write", "/nowhere"] {
        let mut raw = Raw::open(server.address());
        raw.send(format!("TRACE {path} HTTP/1.1\r\nhost: localhost\r\nx-secret: s3cret\r\nconnection: close\r\n\r\n"));
        let received = raw.rest();
        assert!(received.starts_with("HTTP/1.1 40") && !received.contains("s3cret"), "{received}");
    }
}
