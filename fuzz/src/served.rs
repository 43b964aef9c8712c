//! A real server within this process, on loopback ports: connections, routes and bodies as they are, with a log in
//! memory and a store that gets nothing, because no sensor is allowed. So what a request is answered depends on that
//! request alone, and a fuzzer sees which code it reached.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hourglass::access::{Audit, Mode, Quota, Registry, TokenFile};
use hourglass::bucket::deletions::Masks;
use hourglass::bucket::{Caps, Store};
use hourglass::clock::{ClockBounds, StampClock};
use hourglass::edge::{Bounds, Listener, Seats};
use hourglass::http::{self, App, Health, Serves};
use hourglass::ingest::{AckLevel, Ingest, Stores};
use hourglass::log::{self, Log};
use hourglass::query::Query;
use hourglass::reading::{Limits, Precision};
use hourglass::store::{EmbeddedStore, Masked};
use hourglass::telemetry::Metrics;
use hourglass::{ingest, query, tcp};
use hourglass_benches::MemoryDisk;
use tokio::sync::watch;

/// `limits.body_bytes` of the server.
pub const BODY_BYTES: usize = 64 << 10;
/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a request without an end is waited for, by the server.
const HEAD: Duration = Duration::from_secs(1);

/// Panics of the server's threads, which its runtime catches.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Where the server listens.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// For HTTP.
    pub http: SocketAddr,
    /// For lines without HTTP.
    pub lines: SocketAddr,
}

/// Where the server listens. The first call starts it; it ends with the process.
///
/// # Panics
/// Where there is no folder for temporary files, or no port.
pub fn addresses() -> Addresses {
    static ADDRESS: OnceLock<Addresses> = OnceLock::new();
    *ADDRESS.get_or_init(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() == Some(THREADS) {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            before(panic);
        }));
        start()
    })
}

const THREADS: &str = "served";

fn start() -> Addresses {
    let (told, address) = std::sync::mpsc::channel();
    let serve = move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name(THREADS)
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let (http, lines) = (listener().await, listener().await);
            let address = |listener: &Listener| listener.tcp.local_addr().expect("an address");
            let addresses = Addresses { http: address(&http), lines: address(&lines) };
            let (app, metrics) = app();
            let bounds = Bounds { max: 512, per_address: 512, idle: HEAD, head: HEAD, handshake: HEAD, write: HEAD };
            let seats = Seats::new(bounds, metrics.clone());
            let (_stop, stopped) = watch::channel(false);
            let who = (app.access.clone(), app.audit.clone());
            let options = tcp::Options {
                database: "d".to_owned(),
                precision: Precision::Nanoseconds,
                line_bytes: Limits::default().line_bytes,
                batch_bytes: BODY_BYTES,
                http: addresses.http,
            };
            let tcp = tcp::Service::new(app.ingest.clone(), who, options, metrics);
            let protocol = http::Protocol { header_bytes: 32 << 10, http2: true, ..http::Protocol::default() };
            let service = http::Service::new(app, Serves::All, Arc::default());
            told.send(addresses).expect("somebody who asked");
            tokio::join!(
                seats.clone().keep(),
                tcp::serve(lines, seats.clone(), tcp, stopped.clone()),
                http::serve(http, seats.clone(), service, protocol, stopped),
            );
        });
    };
    std::thread::Builder::new().name(THREADS.into()).spawn(serve).expect("a thread");
    address.recv().expect("a server")
}

async fn listener() -> Listener {
    let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    Listener { tcp, tls: None, idle: None, finish: HEAD }
}

fn app() -> (Arc<App>, Metrics) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Arc::new(EmbeddedStore::open(folder.path(), 1 << 20).expect("a store in a new folder"));
    let (log, recovery) = Log::open(MemoryDisk::default(), log::Options::new("fuzz")).expect("a log in memory");
    let metrics = Metrics::new("fuzz", "embedded").expect("metrics");
    let options = ingest_options(folder.path().join("dead-letters.lp"));
    let (raw, masks): (Arc<dyn Store>, _) = (store, Masks::default());
    let store = Arc::new(Masked::new(raw.clone(), masks.clone()));
    let stores = Stores { store: store.clone(), raw, masks, understand: Arc::new(query::influx::sensors_of) };
    let clock = ClockBounds { tolerance: Duration::from_millis(250), max_offset: Duration::from_secs(60) };
    let clock = Arc::new(StampClock::new(clock));
    let (ingest, closing) = Ingest::start(options, stores, (log, &recovery, clock), metrics.clone());
    // The shards go on for as long as the process does, and so do the store's open files, whose folder goes now.
    std::mem::forget(closing);
    let ingest = Arc::new(ingest);
    let query = Query::new(store, ingest.clone(), query_options(), metrics.clone());
    // Nobody changes it any more.
    let (_, health) = watch::channel(Health::Ready);
    let options = http::Options {
        body_timeout: HEAD,
        flush_timeout: HEAD,
        flush_away: HEAD,
        body_bytes: BODY_BYTES,
        limit_default: 1000,
        limit_max: 100_000,
        sensors_max: 1000,
        limits: Limits::default(),
    };
    let (access, audit) = (
        Arc::new(Registry::of_file(TokenFile::own(folder.path()), Mode::OnceThereIsAToken)),
        Arc::new(Audit::new(folder.path())),
    );
    drop(folder);
    let started = (0, Instant::now());
    let app = App { ingest, query, access, audit, metrics: metrics.clone(), health, options, started };
    (Arc::new(app), metrics)
}

fn ingest_options(dead_letters: std::path::PathBuf) -> ingest::Options {
    const LONG: Duration = Duration::from_secs(3600);
    ingest::Options {
        shards: 1,
        bytes_in_flight: 64 << 20,
        ack: AckLevel::Log,
        ack_timeout: HEAD,
        caps: Caps { max_readings: 3600, max_bytes: 1 << 20, hard_bytes: 4 << 20 },
        hot_bytes: 64 << 20,
        flush_interval: LONG,
        flush_quiet: LONG,
        flights: 1,
        log_dir: std::path::PathBuf::new(),
        horizon: LONG,
        deletions: 1_000,
        log_bytes: 1 << 30,
        dead_letters,
        recent: 10,
        sensor_interval: LONG,
        outlier_ttl: LONG,
        limits: Limits::default(),
        sensor_fields: 256,
        // Every line that is good is refused too, and quoted: the answer tells what was read.
        sensors: 0,
        databases: 10,
        database_share: 25,
        database_quota: Quota::default(),
        window: ingest::Window::default(),
    }
}

fn query_options() -> query::Options {
    query::Options {
        span_max: Duration::from_secs(100 * 365 * 24 * 3600),
        series_max: 1000,
        cache_max_age: Duration::from_secs(10),
        cache_bytes: 1 << 20,
        request_bytes: 16 << 20,
        bytes: 64 << 20,
        token_bytes: 64 << 20,
        log_after: Duration::from_secs(3600),
        concurrent: 16,
        timeout: HEAD,
        wait: Duration::ZERO,
    }
}

/// An answer without its headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The whole body.
    pub body: Vec<u8>,
}

/// A whole request on a connection of its own, which `connection: close` in it ends.
///
/// # Panics
/// When no whole answer comes: then the one who should give it panicked, or hangs.
#[must_use]
pub fn ask(request: &[u8]) -> Answer {
    let mut stream = connect(addresses().http);
    // One that was answered before its end may find the connection closed.
    let _ = stream.write_all(request);
    let answer = answer(&mut BufReader::new(stream));
    no_panic();
    answer.unwrap_or_else(|error| panic!("no whole answer: {error}"))
}

/// Bytes on a connection of their own: what came back until the server closed it.
///
/// # Panics
/// When it does not close it in good time.
#[must_use]
pub fn raw(to: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    /// How long an answer is given to come before the request is taken for one without an end.
    const MOMENT: Duration = Duration::from_millis(3);
    let mut stream = connect(to);
    let _ = stream.write_all(bytes);
    let mut answered = vec![0; 64 << 10];
    stream.set_read_timeout(Some(MOMENT)).expect("a timeout");
    let count = stream.read(&mut answered).unwrap_or_default();
    answered.truncate(count);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    if let Err(error) = stream.read_to_end(&mut answered) {
        let broken = matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected);
        assert!(broken, "the connection is neither answered nor closed: {error}");
    }
    no_panic();
    answered
}

/// # Panics
/// When a thread of the server has panicked.
pub fn no_panic() {
    assert_eq!(PANICS.swap(0, Ordering::SeqCst), 0, "the server panicked");
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).expect("the server takes connections");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_nodelay(true).expect("an open socket");
    stream
}

fn answer(reader: &mut impl BufRead) -> io::Result<Answer> {
    let status_line = line(reader)?;
    let status = status_line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("no status: {status_line:?}")))?;
    let mut length = 0;
    loop {
        let header = line(reader)?.to_ascii_lowercase();
        match header.split_once(':') {
            None => break,
            Some(("content-length", value)) => length = value.trim().parse().map_err(io::Error::other)?,
            Some(("transfer-encoding", _)) => return Err(io::Error::other("a chunked answer was not expected")),
            Some(_) => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Answer { status, body })
}

fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    match reader.read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}
