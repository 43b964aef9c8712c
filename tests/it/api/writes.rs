//! The three line-protocol endpoints: precisions and compression.

use super::{client, client_with, shared};
use crate::support::packed;
use crate::support::prelude::*;

/// Compresses `text` into a gzip member.
pub fn gzip(text: &str) -> Vec<u8> {
    packed::gzip(text.as_bytes(), 1)
}

/// The three line-protocol endpoints, each with its database parameter.
pub const ENDPOINTS: [(&str, &str); 3] = [("/write", "db"), ("/api/v2/write", "bucket"), ("/api/v3/write_lp", "db")];

#[test]
fn only_a_kept_body_is_answered_204() {
    let cases = [
        ("one", "m v=1 1", 1),
        ("newline", "m v=1 1\n", 1),
        ("windows", "m v=1 1\r\nm v=2 2\r\n", 2),
        ("empty", "", 0),
        ("blank", "\n  \n\n", 0),
        ("comment", "# nothing\n  # to keep", 0),
        ("mixed", "# one\n\nm v=1 1\n#end", 1),
    ];
    for (path, parameter) in ENDPOINTS {
        for (name, body, count) in cases {
            let database = format!("kept{}-{name}", path.replace('/', "-"));
            // Nanoseconds are declared, because the third endpoint guesses the unit.
            let url = shared().url(&format!("{path}?{parameter}={database}&precision=ns&org=o&no_sync=true"));
            let answer = http::post(&url, body, &[]).expect(204);
            assert_eq!(answer.text(), "", "{path} {name}");
            assert_eq!((answer.header("content-type"), answer.header("content-length")), (None, None), "{path} {name}");
            if count > 0 {
                assert_eq!(client(&database).readings("m", "").len(), count, "{path} {name}");
            }
        }
    }
}

#[test]
fn timestamps_are_scaled_by_the_precision() {
    let cases = [
        ("/write", "", 7_i64, 7),
        ("/write", "n", 1_700_000_000, 1_700_000_000),
        ("/write", "ns", 1_700_000_000, 1_700_000_000),
        ("/write", "u", 1_700_000_000, 1_700_000_000_000),
        ("/write", "us", 1_700_000_000, 1_700_000_000_000),
        ("/write", "µ", 1_700_000_000, 1_700_000_000_000),
        ("/write", "ms", 1_700_000_000, 1_700_000_000_000_000),
        ("/write", "s", 1_700_000_000, 1_700_000_000 * SECOND),
        ("/write", "m", 28_000_000, 28_000_000 * 60 * SECOND),
        ("/write", "h", 470_000, 470_000 * 3600 * SECOND),
        ("/write", "s", -1, -SECOND),
        ("/write", "auto", 1_700_000_000, 1_700_000_000 * SECOND),
        ("/api/v2/write", "", 7, 7),
        ("/api/v2/write", "ns", 7, 7),
        ("/api/v2/write", "us", 7, 7_000),
        ("/api/v2/write", "ms", 7, 7_000_000),
        ("/api/v2/write", "s", 7, 7 * SECOND),
        // The third endpoint guesses the unit by magnitude.
        ("/api/v3/write_lp", "", 1_700_000_000, 1_700_000_000 * SECOND),
        ("/api/v3/write_lp", "auto", 1_700_000_000_001, 1_700_000_000_001_000_000),
        ("/api/v3/write_lp", "auto", 1_700_000_000_000_002, 1_700_000_000_000_002_000),
        ("/api/v3/write_lp", "", 1_700_000_000_000_000_003, 1_700_000_000_000_000_003),
        ("/api/v3/write_lp", "nanosecond", 8, 8),
        ("/api/v3/write_lp", "microsecond", 8, 8_000),
        ("/api/v3/write_lp", "millisecond", 8, 8_000_000),
        ("/api/v3/write_lp", "second", 8, 8 * SECOND),
    ];
    for (number, (path, precision, sent, expected)) in cases.into_iter().enumerate() {
        let database = if path.contains("v2") { "bucket" } else { "db" };
        let url = shared().url(&format!("{path}?{database}=precision&precision={}", encode(precision)));
        http::post(&url, format!("m,case={number} v=1 {sent}"), &[]).expect(204);
        let read = client("precision").readings(&format!("m,case={number}"), "");
        assert_eq!(read, [json!({"ts": expected, "v": 1})], "{path} precision={precision}");
    }
}

#[test]
fn an_unknown_precision_is_answered_in_each_dialect() {
    for (path, expected) in [
        ("/write", json!({"error": "invalid precision \"fortnight\" (use n, u, ms, s, m or h)"})),
        (
            "/api/v2/write",
            json!({"code": "invalid", "message": "invalid precision; valid precision units are ns, us, ms, and s"}),
        ),
        (
            "/api/v3/write_lp",
            json!({"error": "invalid precision \"fortnight\" (use auto, ns, us, ms or s)", "data": []}),
        ),
        (
            "/api/v1/readings",
            json!({"error": "invalid precision \"fortnight\" (use auto, n, u, ms, s, m or h)", "code": "invalid"}),
        ),
    ] {
        let answer = http::post(&shared().url(&format!("{path}?precision=fortnight")), "m v=1 1", &[]).expect(400);
        assert_eq!(answer.json(), expected, "{path}");
    }
}

#[test]
fn a_body_that_cannot_be_decompressed_is_not_kept() {
    let client = client_with("damaged", "m v=0 0");
    let whole = gzip(&"m v=1 1\n".repeat(100));
    let mut damaged = whole.clone();
    let crc = damaged.len() - 8;
    damaged[crc] ^= 1;
    let cut = whole[..whole.len() / 2].to_vec();
    let second_cut = [whole.clone(), whole[..5].to_vec()].concat();
    let more_behind = [whole.clone(), b"m v=1 1".to_vec()].concat();
    let plain = b"m v=1 1".to_vec();
    for (name, body) in
        [("crc", damaged), ("cut", cut), ("second cut", second_cut), ("more behind", more_behind), ("none", plain)]
    {
        for (path, key) in [("/write", "error"), ("/api/v2/write", "message"), ("/api/v3/write_lp", "error")] {
            let answer = http::post(&client.url(path, ""), &body, &[("content-encoding", "gzip")]).expect(400);
            let answer = answer.json();
            let message = super::text_at(&answer, key);
            assert!(message.starts_with("the gzip body is damaged: "), "{path} {name}: {message}");
        }
    }
    let unknown = |path: &str| -> Answer {
        http::post(&client.url(path, ""), "m v=1 1", &[("content-encoding", "br")]).expect(415)
    };
    let message = "content encoding \"br\" is not supported: use gzip, deflate, zstd or none";
    assert_eq!(unknown("/write").json(), json!({"error": message}));
    assert_eq!(unknown("/api/v2/write").json(), json!({"code": "invalid", "message": message}));
    assert_eq!(unknown("/api/v3/write_lp").json(), json!({"error": message, "data": []}));
    assert_eq!(client.readings("m", "").len(), 1);
}
