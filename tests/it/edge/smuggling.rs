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

/// Returns the bodies of the answers to these bytes. Their last request closes the connection.
#[track_caller]
fn bodies(server: &Server, requests: &[String]) -> Vec<String> {
    let mut raw = Raw::open(server.address());
    requests.iter().for_each(|request| raw.send(request));
    let received = raw.rest();
    received
        .split("HTTP/1.1 ")
        .skip(1)
        .map(|one| format!("{} {}", &one[..3], one.rsplit("\r\n").next().unwrap()))
        .collect()
}

/// InfluxDB's clients send `"` raw in the query string, and got 400 with an empty body: the HTTP library refuses it. It
/// is encoded before the library sees it, so bytes of bodies that look like request lines must stay as they are.
#[test]
fn raw_quotes_are_encoded_in_request_lines_and_nowhere_else() {
    let server = Launch::embedded().start();
    let get = |q: &str, headers: &str| {
        format!("GET /query?epoch=s&db=default&q={q} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n")
    };
    let line = "m,t=a#b s=\"GET /query?q=\\\"#<> HTTP/1.1\r\n\r\n\" 1000000000\n";
    let headers = "POST /write HTTP/1.1\r\nhost: localhost\r\n";
    let length = format!("{headers}content-length: {}\r\n\r\n{line}", line.len());
    let chunk = format!("{:x}\r\n{line}\r\n0\r\n\r\n", line.len());
    let chunked = format!("{headers}transfer-encoding: chunked\r\n\r\n{chunk}");
    let select = "SELECT+\"s\"+FROM+\"m\"+WHERE+\"t\"='a#b'";
    let rows = r##"200 {"results":[{"statement_id":0,"series":[{"name":"m","columns":["time","s"],"values":[[1,"GET /query?q=\"#<> HTTP/1.1\r\n\r\n"]]}]}]}"##;
    let rows = format!("{rows}\n");
    let close = "connection: close\r\n";
    let all = [length.clone(), get(select, ""), get("SHOW+\"", ""), length.clone(), get(select, close)];
    let fault = "400 {\"error\":\"error parsing query: found BADSTRING, expected ";
    for requests in [vec![all.concat()], all.to_vec(), all.concat().chars().map(String::from).collect()] {
        let answers = bodies(&server, &requests);
        assert_eq!(answers.len(), 5, "{answers:?}");
        assert_eq!([&*answers[0], &*answers[3]], ["204 "; 2]);
        assert_eq!([&*answers[1], &*answers[4]], [&*rows; 2]);
        assert!(answers[2].starts_with(fault), "{answers:?}");
    }
    // Behind a chunked request nothing is encoded, and the quote is refused as before.
    let refused = bodies(&server, &[chunked, get(select, close)]);
    assert_eq!(refused, ["204 ", "400 "]);
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
