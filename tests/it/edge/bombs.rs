//! Decompression bombs in every encoding: 413, and no more memory than the limit.

use crate::support::packed::{ENCODINGS, Pack, gzip};
use crate::support::prelude::*;

const PLAIN: &str = "packed v=1 1\npacked v=2 2\n";

/// A single member, and a hundred members that count together.
#[test]
fn a_decompression_bomb_is_413_and_uses_no_memory() {
    let empty_lines = vec![b'\n'; 1 << 20];
    let members: Pack = |piece, times| gzip(piece, 10).repeat(times / 10);
    for (encoding, pack) in ENCODINGS.into_iter().chain([("gzip", members)]) {
        let bomb = pack(&empty_lines, 1024);
        // Each on its own server, because allocators return memory late.
        let server = Launch::embedded().start();
        post(&server.url("/write"), vec![b'\n'; 20 << 20], &[]).expect(204);
        let before = peak_bytes(server.pid());
        assert!(bomb.len() < 12 << 20, "{encoding} of {} bytes", bomb.len());
        let answer = post(&server.url("/write"), &bomb, &[("content-encoding", encoding)]).expect(413);
        assert!(answer.text().contains("limits.body_bytes"), "{}", answer.text());
        let after = peak_bytes(server.pid());
        // The default limit of 25 MiB while the buffer grows, and a window.
        assert!(after < before + (96 << 20), "{encoding}: {before} and then {after} bytes");
        post(&server.url("/write"), "m v=1 1", &[]).expect(204);
    }
}

#[test]
fn every_encoding_is_accepted_and_a_truncated_body_is_400() {
    let server = Launch::embedded().start();
    let as_it_is: Pack = |piece, times| piece.repeat(times);
    let more = [("x-gzip", gzip as Pack), ("identity", as_it_is)];
    for (number, (encoding, pack)) in ENCODINGS.into_iter().chain(more).enumerate() {
        let packed = pack(PLAIN.as_bytes(), 1);
        let url = server.url(&format!("/write?db=d{number}"));
        let headers = [("content-encoding", encoding)];
        post(&url, &packed, &headers).expect(204);
        assert_eq!(readings(&server, &format!("d{number}"), "packed", None, 10).len(), 2, "{encoding}");
        post(&url, b"", &headers).expect(204);
        if encoding != "identity" {
            let torn = post(&url, &packed[..packed.len() - 3], &headers).expect(400).json();
            let named = encoding.trim_start_matches("x-");
            assert!(torn["error"].as_str().unwrap().starts_with(&format!("the {named} body is damaged")), "{torn}");
        }
    }
    for several in ["gzip, gzip", "gzip, identity", "br"] {
        let answer = post(&server.url("/write"), "x", &[("content-encoding", several)]).expect(415);
        assert!(answer.text().contains(&format!("{several:?}").replace('"', "\\\"")), "{}", answer.text());
    }
}

/// A zstd body in chunks of one byte, with skippable frames.
#[test]
fn a_body_of_one_byte_chunks_is_accepted() {
    let server = Launch::embedded().start();
    let mut body = vec![0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    body.extend(zstd::stream::encode_all(PLAIN.as_bytes(), 3).unwrap());
    let mut raw = Raw::open(server.address());
    raw.send(
        "POST /write?db=bytes HTTP/1.1\r\nhost: localhost\r\ncontent-encoding: zstd\r\ntransfer-encoding: chunked\r\n\r\n",
    );
    for byte in body {
        raw.send([b"1\r\n", &[byte][..], b"\r\n"].concat());
    }
    raw.send("0\r\n\r\n");
    assert!(raw.head().starts_with("HTTP/1.1 204"));
    assert_eq!(readings(&server, "bytes", "packed", None, 10).len(), 2);
    http::get(&server.url("/ping")).expect(204);
}
