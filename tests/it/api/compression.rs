//! Compressed answers: gzip on request, and only where it saves space.

use flate2::read::MultiGzDecoder;

use crate::support::prelude::*;

use super::{Client, client, client_with};

#[track_caller]
fn ask(client: &Client<'_>, path: &str, parameters: &str, headers: &[(&str, &str)]) -> Answer {
    request("GET", &client.url(path, parameters), b"", headers).expect("an answer")
}

fn decompress(answer: &Answer) -> String {
    let mut text = String::new();
    MultiGzDecoder::new(&*answer.body).read_to_string(&mut text).expect("gzip");
    text
}

const GZIP: (&str, &str) = ("accept-encoding", "gzip");

#[test]
fn large_answers_are_compressed_for_clients_that_ask() {
    let client = client("compression");
    client.keep(&(0..2000).map(|n| format!("m v={n} {}\n", n * 1_000_000_000_i64)).collect::<String>());
    for (path, parameters) in [
        ("/api/v1/readings", "sensor=m&limit=2000"),
        ("/api/v1/readings", "sensor=m&limit=2000&format=csv"),
        ("/api/v1/summary", "measurement=m&step=1m&format=ndjson"),
        ("/query", "q=SELECT+v+FROM+m"),
        ("/query", "q=SELECT+v+FROM+m&chunked=true&chunk_size=10"),
        ("/openapi.json", ""),
    ] {
        let plain = ask(&client, path, parameters, &[]).expect(200);
        assert_eq!(plain.header("content-encoding"), None, "{path}");
        let packed = ask(&client, path, parameters, &[GZIP]).expect(200);
        assert_eq!(packed.header("content-encoding"), Some("gzip"), "{path} {parameters}");
        assert_eq!(decompress(&packed), plain.text(), "{path} {parameters}");
        assert!(2 * packed.body.len() < plain.body.len(), "{path} {parameters}");
        for name in ["content-type", "etag", "x-next-cursor"] {
            assert_eq!(packed.header(name), plain.header(name), "{path} {name}");
        }
        let vary: Vec<&str> = packed.headers.get_all("vary").iter().map(|value| value.to_str().unwrap()).collect();
        assert!(vary.iter().any(|vary| vary.contains("accept-encoding")), "{path}: {vary:?}");
    }
}

#[test]
fn small_answers_and_write_answers_are_not_compressed() {
    let client = client_with("no-compression", "m v=1 1");
    for (path, parameters) in [("/api/v1/readings", "sensor=m"), ("/health", "")] {
        assert_eq!(ask(&client, path, parameters, &[GZIP]).expect(200).header("content-encoding"), None, "{path}");
    }
    // Many rejections make a large answer.
    let bad = (0..100).map(|n| format!("{{\"value\":\"{n}\",\"colour\":\"red\"}}\n")).collect::<String>();
    let written = request("POST", &client.url("/api/v1/readings", ""), bad.as_bytes(), &[GZIP]).expect("an answer");
    assert!(written.body.len() > 2000, "{}", written.text());
    assert_eq!((written.status, written.header("content-encoding")), (400, None));
}

#[test]
fn the_etag_of_a_compressed_answer_matches() {
    let client = client_with("compressed-tags", &(0..200).map(|n| format!("m v={n} {n}\n")).collect::<String>());
    let parameters = "sensor=m&to=2000-01-01T00:00:00Z";
    let packed = ask(&client, "/api/v1/readings", parameters, &[GZIP]).expect(200);
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let tag = packed.header("etag").expect("a tag");
    for headers in [vec![GZIP, ("if-none-match", tag)], vec![("if-none-match", tag)]] {
        let repeated = ask(&client, "/api/v1/readings", parameters, &headers).expect(304);
        assert_eq!((repeated.body.len(), repeated.header("content-encoding")), (0, None));
    }
}
