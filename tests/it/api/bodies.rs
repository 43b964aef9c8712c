//! Limits on request bodies: bytes on the wire, bytes after decompression, time.

use crate::support::prelude::*;

use super::Client;
use super::writes::gzip;

const LIMIT: usize = 4096;

fn small() -> Server {
    Launch::embedded().config("[limits]\nbody_bytes = \"4KiB\"\n").start()
}

/// Sends raw bytes and returns status and body of the answer.
fn raw(server: &Server, request: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no whole head: {answer:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no status: {head}")), body.to_owned())
}

/// Builds a chunked write without Content-Length.
fn chunked<'a>(database: &str, encoding: &str, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut request = format!(
        "POST /write?db={database} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-encoding: {encoding}\r\n\
         transfer-encoding: chunked\r\n\r\n"
    )
    .into_bytes();
    for piece in pieces {
        request.extend([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
    }
    request.extend(b"0\r\n\r\n");
    request
}

/// Returns a line and a comment that fills the body up to `bytes`.
fn body_of(bytes: usize) -> String {
    let line = "m v=1 1\n#";
    format!("{line}{}", "x".repeat(bytes - line.len()))
}

#[test]
fn a_body_at_the_limit_is_accepted_and_a_longer_one_is_413() {
    let server = small();
    let client = Client { server: &server, database: "d" };
    client.keep(&body_of(LIMIT));
    http::post(&client.url("/write", ""), gzip(&body_of(LIMIT)), &[("content-encoding", "gzip")]).expect(204);
    let in_chunks = |bytes: usize| raw(&server, &chunked("d", "identity", body_of(bytes).as_bytes().chunks(1000)));
    assert_eq!(in_chunks(LIMIT).0, 204);

    let message = "Request Entity Too Large: the body exceeds limits.body_bytes (4096 bytes): send less at once";
    let v1 = json!({"error": message});
    let too_long = body_of(LIMIT + 1);
    for (path, expected) in [
        ("/write", v1.clone()),
        ("/api/v2/write", json!({"code": "request too large", "message": message})),
        ("/api/v3/write_lp", json!({"error": message, "data": []})),
        ("/api/v1/readings", json!({"error": message, "code": "too_large"})),
    ] {
        assert_eq!(http::post(&client.url(path, ""), &too_long, &[]).expect(413).json(), expected, "{path}");
        let compressed = http::post(&client.url(path, ""), gzip(&too_long), &[("content-encoding", "gzip")]);
        assert_eq!(compressed.expect(413).json(), expected, "{path} gzip");
    }
    let (status, body) = in_chunks(LIMIT + 1);
    assert_eq!((status, serde_json::from_str::<Value>(&body).unwrap()), (413, v1));
}

/// A chunk may end inside the header or the checksum of a gzip member.
#[test]
fn a_gzip_body_may_be_split_anywhere() {
    let server = small();
    let packed = [gzip("m v=1 1\nm v="), gzip("2 2\n"), gzip(""), gzip("m v=3 3")].concat();
    for (number, cut) in (1..packed.len()).enumerate() {
        let request = chunked(&format!("cut{}", number % 3), "gzip", [&packed[..cut], &packed[cut..]]);
        assert_eq!(raw(&server, &request), (204, String::new()), "cut at {cut} of {}", packed.len());
    }
    let client = Client { server: &server, database: "cut0" };
    let expected = [json!({"ts": 1, "v": 1}), json!({"ts": 2, "v": 2}), json!({"ts": 3, "v": 3})];
    assert_eq!(client.readings("m", ""), expected);
}

/// Clients send more than the limit before they read; the server must not close the connection under them.
#[test]
fn the_sender_of_a_huge_body_receives_its_413() {
    let server = Launch::embedded().config("[limits]\nbody_bytes = \"1MiB\"\n").start();
    for _ in 0..3 {
        http::post(&server.url("/write"), vec![b'#'; 8 << 20], &[]).expect(413);
    }
    assert!(server.stderr().lines().all(|line| !line.contains("panicked")));
}

/// Regression: gzip bodies reserved 64 KiB steps, so a smaller budget answered 503 for ever.
#[test]
fn a_small_gzip_body_needs_little_memory() {
    let config = "[limits]\nbody_bytes = \"4KiB\"\n[ingest]\nbytes_in_flight = \"8KiB\"\n";
    let server = Launch::embedded().config(config).start();
    let client = Client { server: &server, database: "d" };
    client.keep(&body_of(LIMIT));
    http::post(&client.url("/write", ""), gzip(&body_of(LIMIT)), &[("content-encoding", "gzip")]).expect(204);
    http::post(&client.url("/write", ""), gzip(&body_of(LIMIT + 1)), &[("content-encoding", "gzip")]).expect(413);
}

/// A body that never fits is 413, so that its sender splits it. Regression: some sizes were answered 503 for ever.
#[test]
fn a_body_larger_than_the_body_budget_is_413() {
    let config = "[limits]\nbody_bytes = \"4KiB\"\n[ingest]\nbytes_in_flight = \"8KiB\"\n";
    let server = Launch::embedded().config(config).start();
    let client = Client { server: &server, database: "d" };
    let lines = |count: usize| (0..count).map(|n| format!("m v=1 {n}\n")).collect::<String>();
    let statuses: Vec<u16> = (10..300)
        .step_by(5)
        .map(|count| {
            assert!(lines(count).len() < LIMIT);
            let answer = client.write(&lines(count));
            if answer.status != 204 {
                let message = "the request takes more than 8192 bytes (ingest.bytes_in_flight): send smaller batches";
                assert_eq!(answer.json(), json!({"error": message}), "{count}");
            }
            answer.status
        })
        .collect();
    let taken = statuses.iter().take_while(|status| **status == 204).count();
    assert!(
        taken > 0 && taken < statuses.len() && statuses[taken..].iter().all(|status| *status == 413),
        "{statuses:?}"
    );
}

#[test]
fn a_truncated_body_is_not_kept() {
    let server = Server::start("embedded");
    let head =
        "POST /write?db=d HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 100\r\n\r\nm v=1 1\n";
    // A client that hangs up gets no answer; its partial body must not be kept.
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Both).unwrap();
    let client = Client { server: &server, database: "d" };
    client.keep("other v=1 1");
    let read = client.get("/api/v1/readings", "sensor=m").expect(200).json();
    let notice = r#"unknown sensor "m"; known: "other""#;
    assert_eq!(read, json!({"series": [], "next": null, "notices": [notice]}));
}
