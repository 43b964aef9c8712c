//! `hourglass demo`: runs a service in a folder of its own or on an empty database, and fills it from the simulated
//! factory of the crate `hourglass-demo`.

use std::fs::{self, DirBuilder};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use hourglass_demo::{History, Simulation};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use super::fill;
use super::progress::Progress;
use crate::app::banner::{Banner, Ready};
use crate::app::{allocator, data_folder, run_server};
use crate::bucket::store::Coordination;
use crate::config::{self, Overrides, Settings, redact_uri};
use crate::telemetry::logs;

/// The default port, which is also that of `serve`.
const DEFAULT_PORT: u16 = 8086;
/// Time without a reading after which a sensor counts as silent. It is short, because nobody watches a demo for long.
const SILENT_AFTER: Duration = Duration::from_secs(60);
/// Duration above which a query is logged.
const LOG_AFTER: Duration = Duration::from_secs(30);
/// The first view of the page: the hall temperatures of one site, one curve per line, over two shifts of a day.
const FIRST_VIEW: &str = "explore?m=climate&f=temp&range=24h&where=%5B%22sensor%22%2C%22hall%22%5D\
    &where=%5B%22site%22%2C%22bremen%22%5D&by=line";
/// What MongoDB's documents show besides readings (docs/patterns.md), and the page as groups, kinds and units.
const DECLARATIONS: &str = r#"
[meta]
text = ["name", "site"]

[[meta.copy]]
name = "site"
index = true

[[groups]]
name = "owner"
by = "meta.owner"

[[groups]]
name = "serves"
by = "meta.serves"

[[kinds]]
name = "thermometer"
measurement = "climate"
index = true
units = { temp = "°C", humidity = "%" }
buckets = { temp = [15, 18, 21, 24, 27, 30] }

[[kinds]]
name = "meter"
measurement = "energy"
action = "reject"
unique = ["serial"]
fields = { properties = { power_kw = { type = "number", minimum = 0, maximum = 5000 } } }
units = { power_kw = "kW", energy_kwh = "kWh" }
"#;
/// Logs the events of the factory, and the warnings of the service.
const LOG_LEVEL: &str = "warn,hourglass_demo=info,hourglass::http::service=error";

/// The flags of `demo`.
#[derive(Debug, Args)]
pub struct DemoRequest {
    /// The seed of the simulation. The same seed makes the same factory.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Number of days of history to generate.
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=400))]
    pub days: u32,
    /// The port of the page, on the loopback address [default: 8086, or a free one if that is taken].
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// The `mongodb://` URI of an empty database, which keeps its data at the end [default: embedded].
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// A new or empty folder [default: a new one in the system's temp folder].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Keep the folder at the end, so that you can `serve` from it.
    #[arg(long)]
    pub keep: bool,
    /// Open the page in a browser.
    #[arg(long)]
    pub open: bool,
}

/// Runs the demo until SIGINT, SIGTERM or SIGHUP.
pub fn demo(request: &DemoRequest) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let address = free_address(request.port)?;
    let mut settings = settings(address, request.store.clone())?;
    allocator::spare_memory(&settings);
    logs::start(LOG_LEVEL, &settings.telemetry);
    let is_embedded = settings.store.uri.is_embedded();
    if !is_embedded {
        crate::app::run_to_end(must_be_empty(&settings))?;
    }
    let folder = make_folder(request.data_dir.as_deref())?;
    settings.server.data_dir.clone_from(&folder);
    let stop_request = &Arc::new(Notify::new());
    let mut outcome = Ok(());
    let mut code = ExitCode::FAILURE;
    thread::scope(|scope| {
        let mut simulation = None;
        code = run_server(settings, stop_request, |ready| {
            tokio::spawn(stop_on_hangup(stop_request.clone()));
            print(request, &ready);
            let base = ready.addresses.base();
            let stopping = ready.stopping.clone();
            simulation = Some(scope.spawn(move || {
                let simulated = simulate(request, &base, move || *stopping.borrow(), began);
                if simulated.is_err() {
                    stop_request.notify_one();
                }
                simulated
            }));
        });
        if let Some(simulation) = simulation {
            outcome = simulation.join().map_err(|_| anyhow!("a thread of the demo has panicked")).flatten();
        }
    });
    // The folder has the readings that MongoDB does not have yet.
    let is_kept = request.keep || (!is_embedded && code != ExitCode::SUCCESS);
    end(request, &folder, is_kept)?;
    outcome.map(|()| code)
}

fn simulate(
    request: &DemoRequest,
    base: &str,
    is_stopping: impl Fn() -> bool + Send + Sync + 'static,
    began: Instant,
) -> anyhow::Result<()> {
    let days = request.days;
    let mut progress = Progress::new("history");
    let on_days = move |sent: usize| progress.show(|| format!("{sent} of {days} days"));
    let simulation = Simulation { seed: request.seed, days };
    hourglass_demo::run(simulation, base, is_stopping, on_days, |history| {
        print_history(days, &history, began.elapsed());
    })
}

async fn must_be_empty(settings: &Settings) -> anyhow::Result<()> {
    let store = crate::app::open::open_mongo(settings).await?;
    store.check().await?;
    fill::must_be_empty(&*store).await.context("the demo needs an empty database")?;
    store.close().await;
    Ok(())
}

/// Creates a folder at a path, which must be new or empty, or in the system's temp folder.
fn make_folder(path: Option<&Path>) -> anyhow::Result<PathBuf> {
    let Some(path) = path else {
        let path = std::env::temp_dir().join(format!("hourglass-demo-{:016x}", getrandom::u64()?));
        DirBuilder::new().mode(0o700).create(&path).with_context(|| format!("making {}", path.display()))?;
        return Ok(path);
    };
    if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("the folder {} is not empty: name a new one", path.display());
    }
    data_folder::make_private(path)?;
    Ok(data_folder::absolute(path))
}

fn end(request: &DemoRequest, folder: &Path, is_kept: bool) -> anyhow::Result<()> {
    let banner = Banner::new();
    let shown = folder.display();
    let store = request.store.as_ref().map(|store| format!(" --store '{}'", redact_uri(store))).unwrap_or_default();
    if is_kept {
        banner.line(&format!("kept: hourglass serve --data-dir '{shown}'{store}"));
        return Ok(());
    }
    fs::remove_dir_all(folder).with_context(|| format!("removing the demo's folder {shown}"))?;
    banner.line(&format!("removed {shown}"));
    if !store.is_empty() {
        banner.line(&format!("everything is left in the database: hourglass serve{store}"));
    }
    Ok(())
}

/// Returns the defaults of `serve`. The environment is ignored, so that a demo never writes to a real store.
fn settings(address: SocketAddr, store: Option<String>) -> anyhow::Result<Settings> {
    let flags = Overrides { listen: Some(address.to_string()), store, ..Overrides::default() };
    match config::load(None, std::iter::empty(), &flags) {
        Ok(mut settings) => {
            settings.declare(DECLARATIONS).map_err(|error| anyhow!(error))?;
            settings.sensors.silent_after = SILENT_AFTER;
            settings.query.log_after = LOG_AFTER;
            Ok(settings)
        }
        Err(problems) => {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            bail!("{}", problems.join("; "))
        }
    }
}

/// Returns the address of the given port. Without one, it is that of the default port, or a free one if that is taken.
fn free_address(port: Option<u16>) -> anyhow::Result<SocketAddr> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap_or(DEFAULT_PORT)));
    match TcpListener::bind(address) {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && port.is_none() => {
            Ok((Ipv4Addr::LOCALHOST, 0).into())
        }
        bound => bound.map(|_| address).with_context(|| {
            format!("listening on {address}: is it in use? Choose a free port with --port PORT, or leave --port out")
        }),
    }
}

/// Stops the demo when the terminal is closed, unlike `serve`.
async fn stop_on_hangup(stop_request: Arc<Notify>) {
    if let Ok(mut hangups) = signal(SignalKind::hangup()) {
        hangups.recv().await;
        stop_request.notify_one();
    }
}

fn print(request: &DemoRequest, ready: &Ready<'_>) {
    let base = ready.addresses.base();
    let banner = Banner::new();
    banner.title(&format!("hourglass {} demo: a simulated factory, seed {}", env!("CARGO_PKG_VERSION"), request.seed));
    let fate = if request.keep { "stays" } else { "removed at the end" };
    banner.row("folder", &format!("{}  ({fate})", ready.settings.server.data_dir.display()));
    let page = format!("{base}/#{FIRST_VIEW}");
    banner.row("page", &banner.link(&page));
    if request.open {
        open(&page);
    }
}

/// Opens the page in the default browser.
fn open(url: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let opened = Command::new(program).arg(url).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    if let Err(error) = opened {
        tracing::warn!(program, %error, "the page could not be opened in a browser");
    }
}

fn print_history(days: u32, history: &History, elapsed: Duration) {
    let banner = Banner::new();
    let History { sensors, readings } = history;
    let seconds = elapsed.as_secs_f64();
    banner.row("history", &format!("{readings} readings of {days} days, sealed, {seconds:.1} s after the start"));
    banner.row("live", &format!("{sensors} sensors send every second; their faults are logged below"));
    banner.row("stop", "Ctrl-C");
}
