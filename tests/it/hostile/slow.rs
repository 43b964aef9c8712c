//! Slow readers on all connections lock nobody out, and bodies that are only discarded take little memory. Slow senders
//! are in `edge::slow` and `edge::crowds`.

use super::queries::reset_and_measure;
use super::{Memory, print};
use crate::support::prelude::*;

/// Good clients in sequence, all served within half of the 24 s for which the old fault locked them out.
const GOOD_CLIENTS: usize = 20;
const SHUT_OUT: Duration = Duration::from_secs(12);
/// No progress of answers for this long; the first clients must go after one second.
const STALL: Duration = Duration::from_millis(1500);
/// Counts the answers with a file of the page.
const FILES_ANSWERED: &str = r#"hourglass_http_requests_total{route="/ui/{key}",method="GET",status="200"}"#;

/// Regression: 1,024 slow readers of 30 KB answers locked everybody else out for 32 s.
#[test]
fn a_thousand_slow_readers_leave_room_for_others() {
    let files = rlimit::increase_nofile_limit(8192).expect("the limit of open files can be read");
    assert!(files >= 4096, "this machine allows {files} open files: raise its hard limit (ulimit -Hn)");
    let config = "[server]\nconnections = 1024\nconnections_per_address = 10000\n[status]\nlisten = \"127.0.0.1:0\"\n";
    let server = Launch::embedded().config(config).start();
    let address = server.address();
    let file = get(&server.url("/ui/uPlot.iife.min.js"));
    let is_small = (16 << 10..64 << 10).contains(&file.body.len());
    assert!(file.status == 200 && is_small, "{}: {} bytes", file.status, file.body.len());
    let asked = b"GET /ui/uPlot.iife.min.js HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(300);
    let mut held: Vec<TcpStream> = (0..1024)
        .map(|_| {
            // A full backlog drops SYNs, which are resent after 1, 3, 7, 15 and 31 s.
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(60)).expect("there is room");
            stream.set_nonblocking(true).expect("a socket");
            let _ = stream.write(&asked);
            stream
        })
        .collect();
    let mut answered = 0.0;
    let mut since = Instant::now();
    wait_until("no answer goes on", || {
        let now = sample(&get(&format!("http://{}/metrics", server.status())), FILES_ANSWERED);
        if now > answered {
            (answered, since) = (now, Instant::now());
        }
        answered >= 1024.0 && since.elapsed() > STALL
    });
    let started = Instant::now();
    let mut served = 0;
    let mut first = None;
    while served < GOOD_CLIENTS {
        for stream in &mut held {
            let _ = stream.read(&mut [0; 64]);
        }
        let good = TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok().and_then(|mut good| {
            good.set_read_timeout(Some(Duration::from_secs(4))).ok()?;
            good.write_all(b"GET /ping HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").ok()?;
            let mut answer = String::new();
            good.read_to_string(&mut answer).ok()?;
            answer.starts_with("HTTP/1.1 204").then_some(())
        });
        // On a busy machine one client may give up; the fault locked out all of them.
        let elapsed = started.elapsed();
        assert!(elapsed < SHUT_OUT, "{served} of {GOOD_CLIENTS} good clients served in {elapsed:?}");
        served += usize::from(good.is_some());
        first = first.or_else(|| good.map(|()| started.elapsed()));
    }
    let elapsed = started.elapsed();
    print(&format!(
        "hostile slow readers: {served} good clients served beside 1024 in {elapsed:?}, the first after {first:?}"
    ));
}

/// Regression: each connection kept 400 KiB of a body that was refused; 1,024 of them held 568 MB.
#[test]
fn refused_bodies_take_little_memory() {
    const CLIENTS: usize = 200;
    const BODY_BYTES: usize = 4 << 20;
    let server = Launch::embedded().config("[server]\nconnections_per_address = 1000\n").start();
    let before = reset_and_measure(&server);
    let head =
        format!("POST /write?precision=wrong HTTP/1.1\r\nhost: localhost\r\ncontent-length: {BODY_BYTES}\r\n\r\n");
    let body = vec![b'x'; BODY_BYTES];
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut stream = TcpStream::connect_timeout(&server.address(), TIMEOUT).expect("there is room");
                stream.write_all(head.as_bytes()).expect("a head");
                stream.write_all(&body).expect("the body is read");
                let mut status = [0; 12];
                stream.read_exact(&mut status).expect("an answer");
                assert_eq!(&status, b"HTTP/1.1 400");
            });
        }
    });
    Memory::assert_growth_at_most(&server, before, ((CLIENTS as u64 * (64 + 32)) << 10) + (30 << 20));
}
