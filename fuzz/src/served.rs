//! A real server in this process, on loopback ports, with a WAL in memory. No sensor is allowed, so nothing is stored
//! and each answer depends only on its request. Because it runs in the process, a fuzzer sees its coverage.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hourglass::access::{Audit, AuditOptions, Mode, Quota, TokenFile, TokenRegistry};
use hourglass::bucket::deletions::Masks;
use hourglass::bucket::{Caps, Store};
use hourglass::clock::{ClockBounds, StampClock};
use hourglass::edge::{Bounds, ConnectionLimits, Listener};
use hourglass::http::{self, App, Compacting, Health, Serves};
use hourglass::ingest::{AckLevel, Ingest, Stores};
use hourglass::query::Query;
use hourglass::reading::{Limits, Precision};
use hourglass::store::{EmbeddedStore, MergedView};
use hourglass::telemetry::Metrics;
use hourglass::wal::{self, Wal};
use hourglass::{ingest, query, tcp};
use hourglass_benches::MemoryDisk;
use tokio::sync::watch;

/// `limits.body_bytes` of the server.
pub const BODY_BYTES: usize = 64 << 10;
/// More than any answer takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the server waits for the rest of a request.
const HEAD: Duration = Duration::from_secs(1);

/// Panics of the server's threads, which its runtime catches.
static PANICS: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// For HTTP.
    pub http: SocketAddr,
    /// For lines over TCP.
    pub lines: SocketAddr,
}

/// The addresses of the server. The first call starts it; it ends with the process.
///
/// # Panics
/// If there is no folder for temporary files, or no free port.
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
            app.access.load().await.expect("there is no token file");
            let bounds = Bounds { max: 512, per_address: 512, idle: HEAD, head: HEAD, handshake: HEAD, write: HEAD };
            let seats = ConnectionLimits::new(bounds, metrics.clone());
            let (_stop, stopped) = watch::channel(false);
            let who = (app.access.clone(), app.audit.clone());
            let options = tcp::TcpOptions {
                database: "d".to_owned(),
                precision: Precision::Nanoseconds,
                line_bytes: Limits::default().line_bytes,
                batch_bytes: BODY_BYTES,
                http: format!("http://{}", addresses.http),
            };
            let tcp = tcp::TcpService::new(app.ingest.clone(), who, options, metrics);
            let protocol = http::Protocol { header_bytes: 32 << 10, http2: true, ..http::Protocol::default() };
            let service = http::HttpService::new(app, Serves::All, Arc::default());
            told.send(addresses).expect("the caller waits for it");
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
    Listener { tcp, tls: None, idle: None, proxies: Arc::default(), finish: HEAD }
}

fn app() -> (Arc<App>, Metrics) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Arc::new(EmbeddedStore::open(folder.path(), 1 << 20).expect("a store in a new folder"));
    let (log, recovery) = Wal::open(MemoryDisk::default(), wal::WalOptions::new("fuzz")).expect("a log in memory");
    let metrics = Metrics::new("fuzz", "embedded").expect("metrics");
    let options = ingest_options(folder.path().join("dead-letters.lp"));
    let (raw, masks): (Arc<dyn Store>, _) = (store, Masks::default());
    let store = Arc::new(MergedView::new(raw.clone(), masks.clone()));
    let stores = Stores { store: store.clone(), raw, masks, understand: Arc::new(query::influx::sensors_of) };
    let clock = ClockBounds { tolerance: Duration::from_millis(250), max_offset: Duration::from_secs(60) };
    let clock = Arc::new(StampClock::new(clock));
    let (ingest, closing) = Ingest::start(options, stores, (log, &recovery, clock), metrics.clone());
    // The shards run, and the store's files stay open, until the process ends; the folder itself is removed now.
    std::mem::forget(closing);
    let ingest = Arc::new(ingest);
    let query = Query::new(store.clone(), ingest.clone(), ingest.settings(), query_options(), metrics.clone());
    // The health never changes, so the sender is not needed.
    let (_, health) = watch::channel(Health::Ready);
    let options = http::HttpOptions {
        body_timeout: HEAD,
        flush_timeout: HEAD,
        flush_away: HEAD,
        body_bytes: BODY_BYTES,
        limit_default: 1000,
        limit_max: 100_000,
        sensors_max: 1000,
        kinds: hourglass::kinds::Kinds::default(),
        groups: hourglass::bucket::GroupRules::default(),
        silent_after: Duration::ZERO,
        limits: Limits::default(),
        backup_bytes: 8 << 20,
        data_dir: folder.path().to_owned(),
        tail_bytes: 1 << 20,
        ui: true,
        memory: 512 << 20,
    };
    let backups = Arc::new(tokio::sync::Semaphore::new(1));
    let (access, audit) = (
        Arc::new(TokenRegistry::of_file(TokenFile::own(folder.path()), Mode::OnceThereIsAToken)),
        Arc::new(Audit::new(folder.path(), AuditOptions::default())),
    );
    drop(folder);
    let started = (0, Instant::now());
    let (metrics_of_app, compacting) = (metrics.clone(), Compacting::default());
    let by_value = Arc::new(tokio::sync::Semaphore::new(1));
    let app = App {
        ingest,
        query,
        access,
        audit,
        metrics: metrics_of_app,
        store,
        compacting,
        backups,
        by_value,
        health,
        options,
        started,
    };
    (Arc::new(app), metrics)
}

fn ingest_options(dead_letters: std::path::PathBuf) -> ingest::IngestOptions {
    const LONG: Duration = Duration::from_secs(3600);
    ingest::IngestOptions {
        shards: 1,
        bytes_in_flight: 64 << 20,
        ack: AckLevel::Log,
        ack_timeout: HEAD,
        caps: Caps { max_readings: 3600, max_bytes: 1 << 20, hard_bytes: 4 << 20 },
        memtable_bytes: 64 << 20,
        flush_interval: LONG,
        flush_quiet: LONG,
        flushes: 1,
        flush_bytes: 1 << 20,
        wal_dir: std::path::PathBuf::new(),
        part_bytes: 16 << 10,
        trash: hourglass::ingest::trash::TrashOptions {
            folder: std::path::PathBuf::new(),
            bytes: 0,
            keep: std::time::Duration::ZERO,
        },
        seal_form: hourglass::bucket::SealForm::Packed,
        tail: hourglass::ingest::tail::TailOptions { clients: 1, ring_bytes: 1 << 20 },
        seal_after: std::time::Duration::ZERO,
        seal_pause: LONG,
        direct_min: 0,
        seal_quiet: Duration::ZERO,
        kept: None,
        summaries_kept: None,
        retention_pause: LONG,
        settings_file: None,
        horizon: LONG,
        deletions: 1_000,
        wal_bytes: 1 << 30,
        dead_letters: dead_letters.clone(),
        recent: 10,
        relabels: 256,
        meta_bytes: 8 << 10,
        kinds: hourglass::kinds::Kinds::default(),
        declares_indexes: false,
        copies_settle: Duration::from_secs(20),
        list_age: Duration::from_secs(5),
        sensor_interval: LONG,
        outlier_ttl: LONG,
        silent_after: Duration::ZERO,
        limits: Limits::default(),
        sensor_fields: 256,
        // Rejects even valid lines, and quotes them, so that the answer shows what the server read.
        sensors: 0,
        catalog_bytes: 1 << 30,
        refuse_undeclared_units: true,
        drift: hourglass::bucket::settings::Drift::Reject,
        databases: 10,
        token_databases: None,
        database_share: 25,
        request_keys: ingest::KeyOptions {
            file: dead_letters.with_file_name("request-keys.log"),
            window: std::time::Duration::from_secs(600),
            count_max: 100,
        },
        database_quota: Quota::default(),
        window: ingest::AcceptedTimes::default(),
        rejections: ingest::RejectionOptions {
            file: std::path::PathBuf::new(),
            max_count: 100,
            max_bytes: 1 << 20,
            keep: LONG,
            addresses: ingest::ShownAddresses::Masked,
            lines: ingest::LineOptions {
                folder: dead_letters.with_file_name("rejected-lines"),
                max_bytes: 1 << 20,
                keep: LONG,
            },
        },
    }
}

fn query_options() -> query::QueryOptions {
    query::QueryOptions {
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

/// A status and a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The whole body.
    pub body: Vec<u8>,
}

/// Sends a whole request, which must contain `connection: close`, on a new connection.
///
/// # Panics
/// If no whole answer comes, because the server panicked or hangs.
#[must_use]
pub fn ask(request: &[u8]) -> Answer {
    let mut stream = connect(addresses().http);
    // Sending fails if the server answers early and closes.
    let _ = stream.write_all(request);
    let answer = answer(&mut BufReader::new(stream));
    no_panic();
    answer.unwrap_or_else(|error| panic!("no whole answer: {error}"))
}

/// Sends bytes on a new connection, and returns everything that the server sent before it closed.
///
/// # Panics
/// If the server does not close the connection in time.
#[must_use]
pub fn raw(to: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    /// If no answer comes within this time, the request is taken to be incomplete.
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
/// If a thread of the server has panicked.
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
