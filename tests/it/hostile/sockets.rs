//! Bytes on the sockets of a real server: requests that were valid before they were changed at random. It stays up, answers
//! the next client, and says nothing of a panic. Each run with one
//! `HOURGLASS_TEST_SEED` sends the same bytes. What fails says its seed and what was sent.

use std::io::{ErrorKind, Write};

use super::{START, print, while_a_good_client_is_served};
use crate::support::prelude::*;

const CONNECTIONS: u64 = 4;
/// How long an answer is given to come before what was sent is taken for a request without an end.
const MOMENT: Duration = Duration::from_millis(5);

fn requests() -> Vec<Vec<u8>> {
    let gets = [
        "/",
        "/health",
        "/ping",
        "/metrics",
        "/openapi.json",
        "/query?db=d&q=show+measurements",
        "/query?db=d&q=select+mean(v)+from+m+where+time+%3E+0+group+by+time(1h)&epoch=ms",
        "/api/v1/readings?db=d&sensor=m,s=a&from=0&to=now&limit=10",
        "/api/v1/summary?db=d&sensor=m,s=a&step=1h",
        "/api/v1/sensors?db=d",
        "/api/v1/tags/s?db=d",
    ];
    let mut requests: Vec<Vec<u8>> = Vec::new();
    for path in gets {
        for more in ["connection: close\r\n", "accept-encoding: gzip\r\nauthorization: Token abc\r\n"] {
            requests.push(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{more}\r\n").into_bytes());
        }
    }
    let lines = format!("m,s=a v=1,w=2i {START}\nm,s=b v=\"x y\" {START}\nbad\n");
    let json = format!("{{\"measurement\":\"m\",\"tags\":{{\"s\":\"a\"}},\"ts\":{START},\"fields\":{{\"v\":2}}}}");
    for (path, body) in [
        ("/write?db=d", &*lines),
        ("/api/v2/write?bucket=d&precision=ns", &*lines),
        ("/api/v3/write_lp?db=d&accept_partial=true", &*lines),
        ("/api/v1/readings?db=d", &*json),
        ("/query", "db=d&q=select+*+from+m"),
    ] {
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n");
        requests.push(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes());
        requests.push(
            format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).into_bytes(),
        );
    }
    requests
}

const WORDS: [&str; 28] = [
    "\r\n",
    "\r\n\r\n",
    "GET ",
    " HTTP/1.0\r\n",
    "content-length: 0\r\n",
    "content-length: 18446744073709551616\r\n",
    "content-length: -1\r\n",
    "transfer-encoding: chunked\r\n",
    "transfer-encoding: gzip, chunked\r\n",
    "expect: 100-continue\r\n",
    "content-encoding: gzip\r\n",
    "content-encoding: zstd\r\n",
    "connection: upgrade\r\n",
    "upgrade: h2c\r\n",
    "0\r\n\r\n",
    "ffffffffffffffff\r\n",
    "%",
    "%00",
    "%ff",
    "&",
    "\0",
    "\u{7f}",
    "\u{20ac}",
    "//",
    "..",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "1e999",
    "\"",
];

/// Up to eight changes of bytes, words and pieces.
fn changed(request: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = request.to_vec();
    let index = |random: &mut Random, length: usize| {
        usize::try_from(random.below(i64::try_from(length).expect("short") + 1)).expect("an index")
    };
    for _ in 0..random.below(8) {
        let at = index(random, bytes.len());
        let end = bytes.len().min(at + index(random, 8));
        match random.below(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 => drop(bytes.drain(at..end)),
            2 => bytes.truncate(at),
            3 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => bytes.insert(at, u8::try_from(random.below(256)).expect("a byte")),
            _ => drop(bytes.splice(at..at, random.of(&WORDS).bytes())),
        }
    }
    bytes
}

/// Sends bytes and takes what comes until the server closes; why not, where it does not.
fn send(address: SocketAddr, bytes: &[u8]) -> Result<(), String> {
    let connected = TcpStream::connect(address);
    let mut stream = connected.map_err(|error| format!("the server takes no connections: {error}"))?;
    let _ = stream.write_all(bytes);
    let mut answer = [0; 4096];
    stream.set_read_timeout(Some(MOMENT)).unwrap();
    let _ = stream.read(&mut answer);
    let _ = stream.shutdown(Shutdown::Write);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    loop {
        match stream.read(&mut answer) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(format!("neither answered nor closed within {PATIENCE:?}"));
            }
            Err(_) => return Ok(()),
        }
    }
}

/// Sends changed inputs to an address for some seconds, several at a time.
fn attack(name: &str, address: SocketAddr, inputs: &[Vec<u8>]) {
    let time = Duration::from_secs(scaled([2, 4, 60]));
    let seed = seed();
    let (started, executions) = (Instant::now(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for connection in 0..CONNECTIONS {
            let executions = &executions;
            scope.spawn(move || {
                let mut random = Random::new(seed.wrapping_mul(CONNECTIONS).wrapping_add(connection));
                while started.elapsed() < time {
                    let bytes = changed(&random.of(inputs), &mut random);
                    if let Err(why) = send(address, &bytes) {
                        panic!("{name}, HOURGLASS_TEST_SEED={seed}: {why}: b\"{}\"", bytes.escape_ascii());
                    }
                    executions.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (executions, seconds) = (executions.into_inner(), started.elapsed().as_secs_f64());
    print(&format!("fuzz target={name} executions={executions} seconds={seconds:.1} seed={seed}"));
    assert!(executions > 0);
}

#[test]
fn any_bytes_on_the_http_port_leave_the_server_well() {
    // A flood of made-up names is another test's.
    let config = "[limits]\nsensors = 1000\ndatabases = 10\n[server]\nheader_timeout = \"2s\"\nbody_timeout = \"2s\"\n";
    let server = Launch::embedded().config(config).start();
    while_a_good_client_is_served(&server, "sockets", || attack("http-socket", server.address(), &requests()));
}

#[test]
fn any_bytes_on_the_line_port_leave_the_server_well() {
    let server = Launch::embedded().config("[tcp]\nlisten = \"127.0.0.1:0\"\n").start();
    let lines = format!("m,s=a v=1,w=2i {START}\nm,s=b v=\"x y\" {START}\nbad\n\n# x\n");
    let inputs = [lines.into_bytes(), b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(), vec![0xff; 300]];
    while_a_good_client_is_served(&server, "line port", || attack("line-socket", server.other("tcp"), &inputs));
}
