//! A real server in this process, on loopback ports, with a WAL in memory. No sensor is allowed, so nothing is stored
//! and each answer depends only on its request. Because it runs in the process, a fuzzer sees its coverage.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hourglass::access::{Audit, Mode, TokenFile, TokenRegistry};
use hourglass::bucket::GroupRules;
use hourglass::clock::{ClockBounds, StampClock};
use hourglass::config::{Settings, ShownAddresses};
use hourglass::edge::{Bounds, ConnectionLimits, Listener};
use hourglass::edits::{EditOptions, Edits};
use hourglass::http::{self, App, EndpointSet, Health, StartTime};
use hourglass::ingest::Ingest;
use hourglass::lanes::Lanes;
use hourglass::query::Query;
use hourglass::store::{EmbeddedStore, MergedView};
use hourglass::telemetry::Metrics;
use hourglass::upkeep::Jobs;
use hourglass::wal::{self, Wal};
use hourglass::{query, tcp};
use hourglass_benches::MemoryDisk;
use tokio::sync::watch;

/// `limits.body_bytes` of the server.
pub const BODY_BYTES: usize = 64 << 10;
/// Maximum time of an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time for which the server waits for the rest of a request.
const HEAD: Duration = Duration::from_secs(1);

/// Number of panics of the server's threads, which its runtime catches.
static PANICS: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// For HTTP.
    pub http: SocketAddr,
    /// For lines over TCP.
    pub lines: SocketAddr,
}

/// Returns the addresses of the server. The first call starts it, and it ends with the process.
///
/// # Panics
/// If there is no folder for temporary files, or no free port.
pub fn addresses() -> Addresses {
    static ADDRESS: OnceLock<Addresses> = OnceLock::new();
    *ADDRESS.get_or_init(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() == Some(THREAD_NAME) {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            before(panic);
        }));
        start()
    })
}

const THREAD_NAME: &str = "served";

fn start() -> Addresses {
    let (sender, address) = std::sync::mpsc::channel();
    let serve = move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name(THREAD_NAME)
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let http = bind_listener().await;
            let lines = bind_listener().await;
            let address = |listener: &Listener| listener.tcp.local_addr().expect("an address");
            let addresses = Addresses { http: address(&http), lines: address(&lines) };
            let (app, metrics) = create_app();
            app.access.load().await.expect("there is no token file");
            let bounds = Bounds { max: 512, per_address: 512, idle: HEAD, head: HEAD, handshake: HEAD, write: HEAD };
            let limits = ConnectionLimits::new(bounds, metrics.clone());
            let (_stop, stopped) = watch::channel(false);
            let tcp = Arc::new(tcp::TcpService {
                ingest: app.ingest.clone(),
                access: app.access.clone(),
                audit: app.audit.clone(),
                metrics,
                http: format!("http://{}", addresses.http),
            });
            let protocol = http::Protocol { http2: true, ..http::Protocol::default() };
            let service = http::HttpService::new(app, EndpointSet::All, Arc::default());
            sender.send(addresses).expect("the caller waits for it");
            tokio::join!(
                limits.clone().enforce_deadlines(),
                tcp::serve(lines, limits.clone(), tcp, stopped.clone()),
                http::serve(http, limits.clone(), service, protocol, stopped),
            );
        });
    };
    std::thread::Builder::new().name(THREAD_NAME.into()).spawn(serve).expect("a thread");
    address.recv().expect("a server")
}

async fn bind_listener() -> Listener {
    let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    Listener { tcp, tls: None, idle: None, proxies: Arc::default(), drain_timeout: HEAD }
}

fn create_app() -> (Arc<App>, Metrics) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Arc::new(EmbeddedStore::open(folder.path(), 1 << 20).expect("a store in a new folder"));
    let (wal, recovery) = Wal::open(MemoryDisk::default(), wal::WalOptions::new("fuzz")).expect("a WAL in memory");
    let metrics = Metrics::new("fuzz", "embedded").expect("metrics");
    let settings = Arc::new(server_settings(folder.path()));
    let store = Arc::new(MergedView::new(store));
    let sensor_test = Arc::new(query::influx::sensor_test);
    let clock = ClockBounds { tolerance: Duration::from_millis(250), max_offset: Duration::from_secs(60) };
    let clock = Arc::new(StampClock::new(clock, false));
    let (ingest, closing) =
        Ingest::start(settings.clone(), store.clone(), sensor_test, wal, &recovery, clock, metrics.clone());
    // The shards run, and the store's files stay open, until the process ends; the folder itself is removed now.
    std::mem::forget(closing);
    let ingest = Arc::new(ingest);
    let query = Query::new(store.clone(), ingest.clone(), ingest.settings(), settings.query.clone(), metrics.clone());
    // The health never changes, so the sender is not needed.
    let (_, health) = watch::channel(Health::Ready);
    let backups = Arc::new(tokio::sync::Semaphore::new(1));
    let access = Arc::new(TokenRegistry::from_file(TokenFile::primary(folder.path()), Mode::OnceThereIsAToken));
    let audit = Arc::new(Audit::new(folder.path(), 1 << 20));
    drop(folder);
    let started = StartTime { wall_ns: 0, monotonic: Instant::now() };
    let metrics_of_app = metrics.clone();
    let query = Arc::new(query);
    let edit_options = EditOptions { timeout: HEAD, read_bytes: 1 << 20 };
    let edits =
        Arc::new(Edits::new(ingest.clone(), query.clone(), store.clone(), edit_options, watch::channel(false).1));
    let app = App {
        lanes: Lanes::current(),
        jobs: Jobs::new(Lanes::current(), metrics.clone()),
        ingest,
        cluster: None,
        mqtt: Vec::new(),
        query,
        access,
        audit,
        metrics: metrics_of_app,
        store,
        backups,
        edits,
        health,
        settings,
        groups: GroupRules::default(),
        started,
    };
    (Arc::new(app), metrics)
}

fn server_settings(folder: &std::path::Path) -> Settings {
    const LONG: Duration = Duration::from_secs(3600);
    let mut settings = Settings::default();
    settings.server.data_dir = folder.to_owned();
    settings.server.body_timeout = HEAD;
    settings.ingest.shards = 1;
    settings.ingest.bytes_in_flight = 64 << 20;
    settings.ingest.ack_timeout = HEAD;
    settings.limits.body_bytes = BODY_BYTES;
    settings.tcp.database = "d".to_owned();
    settings.memtable.max_bytes = 64 << 20;
    settings.flush.interval = LONG;
    settings.flush.quiet = LONG;
    settings.seal.after = Duration::ZERO;
    settings.sensors.write_interval = LONG;
    // Reject even valid lines, so that the answer quotes the lines that the server read.
    settings.limits.sensors = 0;
    settings.rejections.addresses = ShownAddresses::Masked;
    settings.query.request_bytes = 16 << 20;
    settings.query.bytes = 64 << 20;
    settings.query.token_bytes = 64 << 20;
    settings.query.log_after = LONG;
    settings.query.timeout = HEAD;
    settings.query.wait = Duration::ZERO;
    settings
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
    let answer = read_answer(&mut BufReader::new(stream));
    assert_no_panic();
    answer.unwrap_or_else(|error| panic!("no whole answer: {error}"))
}

/// Sends bytes on a new connection, and returns everything that the server sent before it closed.
///
/// # Panics
/// If the server does not close the connection in time.
#[must_use]
pub fn send_raw(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    /// Time without an answer after which the request counts as incomplete.
    const MOMENT: Duration = Duration::from_millis(3);
    let mut stream = connect(address);
    let _ = stream.write_all(bytes);
    let mut answered = vec![0; 64 << 10];
    stream.set_read_timeout(Some(MOMENT)).expect("a timeout");
    let count = stream.read(&mut answered).unwrap_or_default();
    answered.truncate(count);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    if let Err(error) = stream.read_to_end(&mut answered) {
        let is_reset = matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected);
        assert!(is_reset, "the connection is neither answered nor closed: {error}");
    }
    assert_no_panic();
    answered
}

/// # Panics
/// If a thread of the server has panicked.
pub fn assert_no_panic() {
    assert_eq!(PANICS.swap(0, Ordering::SeqCst), 0, "the server panicked");
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server accepts connections");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_nodelay(true).expect("an open socket");
    stream
}

fn read_answer(reader: &mut impl BufRead) -> io::Result<Answer> {
    let status_line = read_line(reader)?;
    let status = status_line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("no status: {status_line:?}")))?;
    let mut length = 0;
    loop {
        let header = read_line(reader)?.to_ascii_lowercase();
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

fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    match reader.read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}
