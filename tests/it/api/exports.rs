//! CSV and NDJSON without `limit` have every reading, and are never cut off silently.

use flate2::read::MultiGzDecoder;

use crate::support::prelude::*;

/// Small memory, so that an answer has many parts.
const CONFIG: &str = "[query]\nbytes = \"8MiB\"\n[server]\nhttp2 = true\n";
const SENSORS: i64 = 40;
const READINGS: i64 = 3_000;

fn server(launch: Launch) -> Server {
    let server = launch.config(CONFIG).start();
    for sensor in 0..SENSORS {
        let line = |n: i64| format!("m,s={sensor:02} v={n}i,w={sensor}.5 {}\n", START + n * SECOND);
        write_to(&server, "db=d", (0..READINGS).map(line).collect::<String>());
    }
    server
}

/// CSV without a limit ended after 1,000 rows; only a header told.
#[test]
fn csv_and_ndjson_have_every_reading() {
    for store in stores() {
        let server = server(Launch::with_store(store));
        let all = usize::try_from(SENSORS * READINGS).unwrap();
        for (format, head) in [("csv", 1), ("ndjson", 0)] {
            let path = format!("/api/v1/readings?db=d&measurement=m&epoch=s&format={format}");
            let answer = get(&server.url(&path)).expect(200);
            assert_eq!(answer.header("x-next-cursor"), None);
            assert_eq!(answer.header("etag"), None, "it began before its end");
            let lines: BTreeSet<&str> = answer.text().lines().collect();
            assert_eq!(lines.len(), all + head, "{format}");
            let part = get(&server.url(&format!("{path}&limit=10"))).expect(200);
            assert_eq!(part.text().lines().count(), 10 + head);
            assert!(part.header("x-next-cursor").is_some(), "a limit has a cursor");
        }
        let path = server.url("/api/v1/readings?db=d&measurement=m&format=csv");
        let packed = request("GET", &path, b"", &[("accept-encoding", "gzip")]).expect("an answer").expect(200);
        let mut text = String::new();
        MultiGzDecoder::new(&*packed.body).read_to_string(&mut text).expect("gzip");
        assert_eq!(text.lines().count(), all + 1, "also compressed");
        // JSON is one document, and keeps its default limit.
        let json = server.fetch("/api/v1/readings?db=d&measurement=m");
        assert!(json["next"].is_string(), "{}", json["next"]);
    }
}

/// Sends a request and returns all that the server sends until it closes the connection.
fn raw(server: &Server, version: &str, path: &str) -> Vec<u8> {
    let mut connection = TcpStream::connect(server.address()).expect("a connection");
    connection.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    write!(connection, "GET {path} HTTP/{version}\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("sent");
    let mut all = Vec::new();
    // An aborted connection may end with a reset.
    let _ = connection.read_to_end(&mut all);
    all
}

/// An answer that fails after its beginning must not look complete: its last chunk is missing.
#[test]
fn a_failure_aborts_the_connection() {
    let server = server(Launch::embedded().env("FAULT_FAIL_AT", "export_part:7"));
    for format in ["csv", "ndjson"] {
        let path = format!("/api/v1/readings?db=d&measurement=m&format={format}");
        let answer = raw(&server, "1.1", &path);
        let text = String::from_utf8_lossy(&answer).to_lowercase();
        let (head, _) = text.split_once("\r\n\r\n").expect("a head");
        if format == "csv" {
            assert!(head.starts_with("http/1.1 200") && head.contains("transfer-encoding: chunked"), "{head}");
            assert!(!answer.ends_with(b"0\r\n\r\n"), "the answer looks complete");
        } else {
            assert!(answer.ends_with(b"0\r\n\r\n"), "only the seventh part failed");
        }
    }
    assert!(server.stderr().contains("an answer was aborted"));
    // HTTP/1.0 tells the end of an answer by closing the connection.
    let old = raw(&server, "1.0", "/api/v1/readings?db=d&measurement=m&format=csv");
    assert!(old.starts_with(b"HTTP/1.0 400"), "{}", String::from_utf8_lossy(&old));
    let old = raw(&server, "1.0", "/api/v1/readings?db=d&measurement=m&format=csv&limit=5");
    assert!(old.starts_with(b"HTTP/1.0 200"), "{}", String::from_utf8_lossy(&old));
}

/// The same for HTTP/2, which resets the stream, and for compressed answers.
#[test]
fn a_failure_ends_no_stream_and_no_compressed_answer() {
    let Some(curl) = require(Package::Curl) else { return };
    for options in [&["--http2-prior-knowledge"][..], &["--compressed"], &["--http2-prior-knowledge", "--compressed"]] {
        let server = server(Launch::embedded().env("FAULT_FAIL_AT", "export_part:7"));
        let url = server.url("/api/v1/readings?db=d&measurement=m&format=csv");
        let ask = || Command::new(&curl).args(["--silent", "--output", "/dev/null", &url]).args(options).status();
        assert!(!ask().expect("curl runs").success(), "{options:?}: the answer looks complete");
        assert!(ask().expect("curl runs").success(), "{options:?}: only the seventh part failed");
    }
}

/// Parts are in the order of shown names. A sensor that was renamed between two parts was missing, or there twice.
#[test]
fn a_rename_aborts_the_answer() {
    let server = server(Launch::embedded());
    let path = "/api/v1/readings?db=d&measurement=m&format=ndjson";
    let mut slow = TcpStream::connect(server.address()).expect("a connection");
    slow.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    write!(slow, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("sent");
    let mut first = [0; 1000];
    slow.read_exact(&mut first).expect("it has begun");
    let entry = json!({"kind": "tag_value", "tag": "s", "from": "39", "to": "00-first"}).to_string();
    request("PUT", &server.url("/api/v1/renames?db=d"), entry.as_bytes(), &[]).expect("an answer").expect(200);
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest);
    assert!(!rest.ends_with(b"0\r\n\r\n"), "the answer looks complete");
    let again = get(&server.url(path)).expect(200);
    assert_eq!(again.text().lines().count(), usize::try_from(SENSORS * READINGS).unwrap());
}

/// A reader that stops reading holds its own export only, and one caller has one export at a time.
#[test]
fn one_caller_has_one_export() {
    let server = server(Launch::embedded());
    let path = "/api/v1/readings?db=d&measurement=m&format=csv";
    let mut slow = TcpStream::connect(server.address()).expect("a connection");
    write!(slow, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("sent");
    let mut first = [0; 1000];
    slow.read_exact(&mut first).expect("it has begun");
    let second = get(&server.url(path)).expect(503);
    assert!(second.text().contains("an answer without a limit is being sent"), "{}", second.text());
    get(&server.url(&format!("{path}&limit=5"))).expect(200);
    drop(slow);
    wait_until("the export has ended", || get(&server.url(path)).status == 200);
}
