//! `hourglass demo`: serves what a simulated factory sends (the crate `hourglass-demo`), from a folder of its own or from an
//! empty database.

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

/// The port unless it is taken: that of `serve`.
const USUAL_PORT: u16 = 8086;
/// A sensor without a reading for so long is silent: soon, since nobody looks at a demo for long.
const SILENT_AFTER: Duration = Duration::from_secs(60);
/// A query that runs longer is logged.
const LOG_AFTER: Duration = Duration::from_secs(30);
/// What the page shows first: the temperatures of a site's halls, each a line, with two shifts of a day.
const FIRST_VIEW: &str = "explore?m=climate&f=temp&range=24h&where=%5B%22sensor%22%2C%22hall%22%5D\
    &where=%5B%22site%22%2C%22bremen%22%5D&by=line";
/// What is logged: the factory's events, and of the service what people should know.
const LOG_LEVEL: &str = "warn,hourglass_demo=info,hourglass::http::service=error";

/// The flags of `demo`.
#[derive(Debug, Args)]
pub struct DemoRequest {
    /// The number that the simulation starts from: the same one makes the same factory.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// How many days of history to make.
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=400))]
    pub days: u32,
    /// The port of the page, on the loopback address [default: 8086, or a free one if that is taken].
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// A `mongodb://` URI of an empty database, in which everything is left [default: embedded].
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// A folder that is new or empty [default: a new one in the system's temp folder].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Leave the folder at the end, to `serve` from it.
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
    let asked = &Arc::new(Notify::new());
    let (mut worked, mut code) = (Ok(()), ExitCode::FAILURE);
    thread::scope(|scope| {
        let mut working = None;
        code = run_server(settings, asked, |ready| {
            tokio::spawn(ask_on_hangup(asked.clone()));
            print(request, &ready);
            let (base, told) = (ready.addresses.base(), ready.told.clone());
            working = Some(scope.spawn(move || {
                let worked = simulate(request, &base, move || *told.borrow(), began);
                if worked.is_err() {
                    asked.notify_one();
                }
                worked
            }));
        });
        if let Some(working) = working {
            worked = working.join().map_err(|_| anyhow!("a thread of the demo has failed")).flatten();
        }
    });
    // What MongoDB does not have yet is in the folder.
    let is_kept = request.keep || (!is_embedded && code != ExitCode::SUCCESS);
    end(request, &folder, is_kept)?;
    worked.map(|()| code)
}

fn simulate(
    request: &DemoRequest,
    base: &str,
    is_stopping: impl Fn() -> bool + Send + Sync + 'static,
    began: Instant,
) -> anyhow::Result<()> {
    let (mut progress, days) = (Progress::new("history"), request.days);
    let on_days = move |sent: usize| progress.tell(|| format!("{sent} of {days} days"));
    let simulation = Simulation { seed: request.seed, days };
    hourglass_demo::run(simulation, base, is_stopping, on_days, |history| tell(days, history, began.elapsed()))
}

async fn must_be_empty(settings: &Settings) -> anyhow::Result<()> {
    let store = crate::app::open::open_mongo(settings).await?;
    store.check().await?;
    fill::must_be_empty(&*store).await.context("the demo needs an empty database")?;
    store.close().await;
    Ok(())
}

/// Makes a folder: at a path, which has to be new or empty, else in the system's temp folder.
fn make_folder(at: Option<&Path>) -> anyhow::Result<PathBuf> {
    let Some(path) = at else {
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
    let (banner, shown) = (Banner::new(), folder.display());
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

/// The defaults of `serve`, whatever the environment says: a demo must not write to anybody's store.
fn settings(address: SocketAddr, store: Option<String>) -> anyhow::Result<Settings> {
    let flags = Overrides { listen: Some(address.to_string()), store, ..Overrides::default() };
    match config::load(None, std::iter::empty(), &flags) {
        Ok(mut settings) => {
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

/// Where to listen: at the port, or at the usual one, or at a free one if that is taken.
fn free_address(port: Option<u16>) -> anyhow::Result<SocketAddr> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap_or(USUAL_PORT)));
    match TcpListener::bind(address) {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && port.is_none() => {
            Ok((Ipv4Addr::LOCALHOST, 0).into())
        }
        bound => bound.map(|_| address).with_context(|| {
            format!("listening on {address}: is it in use? Choose a free port with --port PORT, or leave --port out")
        }),
    }
}

/// A closed terminal ends the demo; `serve` would go on.
async fn ask_on_hangup(asked: Arc<Notify>) {
    if let Ok(mut hangups) = signal(SignalKind::hangup()) {
        hangups.recv().await;
        asked.notify_one();
    }
}

fn print(request: &DemoRequest, ready: &Ready<'_>) {
    let (base, banner) = (ready.addresses.base(), Banner::new());
    banner.title(&format!("hourglass {} demo: a simulated factory, seed {}", env!("CARGO_PKG_VERSION"), request.seed));
    let fate = if request.keep { "stays" } else { "removed at the end" };
    banner.row("folder", &format!("{}  ({fate})", ready.settings.server.data_dir.display()));
    let page = format!("{base}/#{FIRST_VIEW}");
    banner.row("page", &banner.link(&page));
    if request.open {
        open(&page);
    }
}

/// Has the desktop open the page.
fn open(url: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let opened = Command::new(program).arg(url).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    if let Err(error) = opened {
        tracing::warn!(program, %error, "the page could not be opened in a browser");
    }
}

fn tell(days: u32, history: History, took: Duration) {
    let (banner, History { sensors, readings }) = (Banner::new(), history);
    let seconds = took.as_secs_f64();
    banner.row("history", &format!("{readings} readings of {days} days, sealed, {seconds:.1} s after the start"));
    banner.row("live", &format!("{sensors} sensors send each second; what goes wrong with them is told below"));
    banner.row("stop", "Ctrl-C");
}
