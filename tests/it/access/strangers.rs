//! Ten thousand wrong tokens a second: each is answered 401, the service stays small, the record of refusals too, and whoever has a
//! token notices nothing but time.

use super::{guarded, with};
use crate::support::prelude::*;

/// So many requests are under way on each connection.
const PIPELINED: usize = 50;
const CONNECTIONS: usize = 8;
const WANTED: usize = 60_000;
/// What it may grow by: buffers of a few connections, and what the allocator keeps.
const GROWTH_BYTES: u64 = 32 << 20;

/// Sends batches of requests with tokens that differ, until told to stop, and counts the answers.
fn knock(address: std::net::SocketAddr, number: usize, stop: &AtomicBool, answered: &AtomicUsize) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let (mut round, mut seen, mut buffer) = (0_usize, Vec::new(), vec![0; 64 << 10]);
    while !stop.load(Ordering::Relaxed) {
        let mut batch = String::new();
        for one in 0..PIPELINED {
            let token = format!("hg_{number:04x}{one:08x}_{round:064x}");
            batch += &format!(
                "POST /write?db=a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Token {token}\r\nContent-Length: 5\r\n\r\nm v=1"
            );
        }
        stream.write_all(batch.as_bytes()).unwrap();
        let mut count = 0;
        seen.clear();
        while count < PIPELINED {
            let read = stream.read(&mut buffer).unwrap();
            assert!(read > 0, "the connection was closed after {count} answers");
            seen.extend_from_slice(&buffer[..read]);
            count = seen.windows(12).filter(|part| part == b"HTTP/1.1 401").count();
        }
        answered.fetch_add(count, Ordering::Relaxed);
        round += 1;
    }
}

#[test]
fn ten_thousand_wrong_tokens_a_second_harm_nobody() {
    let (server, admin) = guarded("");
    let url = server.url("/write?db=a");
    let write = |n: usize| {
        let started = Instant::now();
        with(&admin, "POST", &url, &format!("m v={n} {n}")).expect(204);
        started.elapsed()
    };
    let quiet: Vec<Duration> = (0..200).map(write).collect();
    let before = resident_bytes(server.pid());
    let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let started = Instant::now();
    let busy: Vec<Duration> = std::thread::scope(|scope| {
        for number in 0..CONNECTIONS {
            let (stop, answered, address) = (&stop, &answered, server.address());
            scope.spawn(move || knock(address, number, stop, answered));
        }
        let mut busy = Vec::new();
        while answered.load(Ordering::Relaxed) < WANTED && started.elapsed() < Duration::from_secs(60) {
            busy.push(write(busy.len()));
        }
        stop.store(true, Ordering::Relaxed);
        busy
    });
    let (count, took) = (answered.load(Ordering::Relaxed), started.elapsed());
    let grown = resident_bytes(server.pid()).saturating_sub(before);
    let p99 = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() * 99 / 100]
    };
    let _ = writeln!(
        std::io::stderr(),
        "strangers: {count} answered 401 in {took:.1?}, {:.0} a second; p99 of a good client {:.1?}, {:.1?} before; {} KiB grown",
        f64::from(u32::try_from(count).unwrap()) / took.as_secs_f64(),
        p99(busy),
        p99(quiet),
        grown >> 10,
    );
    assert!(count >= WANTED, "{count} in {took:?}");
    assert!(grown < GROWTH_BYTES, "grown by {grown} bytes");
    let refusals = std::fs::metadata(server.data_dir().join("audit.log")).unwrap().len();
    assert!(refusals < 1 << 20, "audit.log has {refusals} bytes");
    assert!(!server.stderr().contains("panicked"));
}
