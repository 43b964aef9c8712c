//! Deeply nested JSON and endless lines. Decompression bombs are in `edge::bombs`.

use super::queries::reset_and_measure;
use super::{Memory, with_good_client};
use crate::support::packed::gzip;
use crate::support::prelude::*;

const LEVELS: usize = 100_000;
/// Default of `limits.body_bytes`.
const BODY_BYTES: u64 = 25 << 20;

/// Returns the status for a chunked body that stops in the middle.
pub fn status_of(server: &Server, head: &str, body: impl Iterator<Item = Vec<u8>>) -> u16 {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(format!("{head}\r\nhost: localhost\r\nconnection: close\r\n").as_bytes()).unwrap();
    for piece in std::iter::once(b"transfer-encoding: chunked\r\n\r\n".to_vec()).chain(body) {
        if stream.write_all(&piece).is_err() {
            break;
        }
    }
    // Otherwise the server would wait for the rest in order to discard it.
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("no answer: {answer:?}"))
}

pub fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// Regression: 29 KB of gzip became a tree of 2 GB.
#[test]
fn settings_and_parameters_are_small() {
    let server = Launch::embedded().start();
    server.limit_memory(4 << 30);
    let tree = format!("{{\"a\":[{}0]}}", "{\"\":0},".repeat(2_800_000));
    let packed = gzip(tree.as_bytes(), 1);
    let headers = [("content-encoding", "gzip"), ("content-type", "application/json")];
    let before = reset_and_measure(&server);
    for (method, path) in [("PUT", "/api/v1/databases/d"), ("PUT", "/api/v1/renames?db=d"), ("POST", "/api/v1/tokens")]
    {
        let refused = request(method, &server.url(path), &packed, &headers).unwrap().expect(413);
        assert!(refused.text().contains("the maximum of settings"), "{}", refused.text());
    }
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let params = format!("q=SHOW+DATABASES&params={}", encode(&tree[..700_000]));
    post(&server.url("/query"), &params[..1 << 20], &form).expect(400);
    post(&server.url("/query"), "a&".repeat(1 << 20), &form).expect(413);
    Memory::assert_growth_at_most(&server, before, 100 << 20);
}

#[test]
fn deeply_nested_json_and_queries_are_refused() {
    let server = Launch::embedded().start();
    let bodies = [
        "[".repeat(LEVELS),
        "{\"fields\":".repeat(LEVELS),
        format!("{{\"value\":{}{}}}", "[".repeat(LEVELS), "]".repeat(LEVELS)),
        // Within the limit of 64 KiB for one reading.
        format!("{{\"value\":{}{}}}", "[".repeat(30_000), "]".repeat(30_000)),
        format!("{{\"tags\":{}1{}}}", "{\"a\":".repeat(10_000), "}".repeat(10_000)),
    ];
    with_good_client(&server, "depth", || {
        for body in &bodies {
            let answer = post(&server.url("/api/v1/readings?db=d"), body, &[]).expect(400);
            assert!(answer.body.len() < 10_000, "an answer is not as long as what it is about");
        }
        for open in ["(", "-(", "mean(", "(select v from "] {
            let form = format!("db=d&q=select {}v from m", open.repeat(LEVELS / open.len()));
            let headers = [("content-type", "application/x-www-form-urlencoded")];
            post(&server.url("/query"), form, &headers).expect(400);
        }
    });
}

#[test]
fn an_endless_line_stays_within_the_body_budget() {
    let server = Launch::embedded().start();
    let before = Memory::measure(&server);
    with_good_client(&server, "endless line", || {
        let piece = chunk(&vec![b'x'; 64 << 10]);
        for start in ["m f=\"", "m,t=", "# "].repeat(6) {
            let body = std::iter::once(chunk(start.as_bytes())).chain(std::iter::repeat_n(piece.clone(), 480));
            assert_eq!(status_of(&server, "POST /write?db=d HTTP/1.1", body), 413, "{start}");
        }
    });
    // One at a time: a growing buffer, doubled for a moment, and unreturned memory.
    Memory::assert_growth_at_most(&server, before, 10 * BODY_BYTES);
    // A long line within the body limit is refused and affects no other line.
    let body = format!("m f=1 {START}\nm f=\"{}\nm f=2 {}\n", "x".repeat(4 << 20), START + 1);
    post(&server.url("/write?db=d"), body, &[]).expect(400);
    assert_eq!(readings(&server, "d", "m", None, 10).len(), 2);
}
