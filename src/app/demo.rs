//! `hourglass demo`: serves from a folder of its own what a simulated factory sends over HTTP: a month of history, which is
//! sealed, and then readings each second, with the faults that factories have. Everything about the factory is a function
//! of a seed and the time; nothing of it knows how readings are stored.

mod factory;
mod faults;
mod folder;
mod history;
mod live;
mod noise;
mod sender;
mod shifts;
mod signals;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use self::factory::Factory;
use self::faults::Faults;
use self::folder::DemoFolder;
pub use self::folder::adopt;
use self::sender::Sender;
use super::banner::{Banner, Ready};
use super::progress::Progress;
use super::{allocator, failed, run_server};
use crate::clock::now_seconds;
use crate::config::{self, Overrides, Settings};
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
const LOG_LEVEL: &str = "warn,hourglass::app::demo=info,hourglass::http::service=error";

/// What `hourglass demo` is asked for.
#[derive(Debug)]
pub struct DemoRequest {
    pub seed: u64,
    /// Of history.
    pub days: u32,
    /// `None` for the usual port, or a free one.
    pub port: Option<u16>,
    /// `None` for a new folder in the system's temp folder.
    pub folder: Option<PathBuf>,
    /// Whether the folder stays.
    pub keeps: bool,
    /// Whether to open the page in a browser.
    pub opens: bool,
}

/// Runs the demo until SIGINT, SIGTERM or SIGHUP.
#[must_use]
pub fn demo(request: &DemoRequest) -> ExitCode {
    match run(request) {
        Ok(code) => code,
        Err(error) => failed(&error),
    }
}

fn run(request: &DemoRequest) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let (address, is_usual) = free_address(request.port)?;
    let mut settings = settings(address)?;
    allocator::spare_memory(&settings);
    logs::start(LOG_LEVEL, &settings.telemetry);
    let folder = DemoFolder::make(request.folder.as_deref(), request.keeps)?;
    for left in folder.remove_leftovers() {
        tracing::info!(folder = %left.display(), "removed what a killed demo left");
    }
    settings.server.data_dir = folder.path().to_owned();
    let asked = &Arc::new(Notify::new());
    let (mut worked, mut code) = (Ok(()), ExitCode::FAILURE);
    thread::scope(|scope| {
        let mut working = None;
        code = run_server(settings, asked, |ready| {
            tokio::spawn(ask_on_hangup(asked.clone()));
            print(request, &ready, is_usual);
            let (base, told) = (ready.addresses.base(), ready.told.clone());
            working = Some(scope.spawn(move || {
                let sender = Sender::new(&base, told)?;
                work(request, (&base, &sender), began, asked)
            }));
        });
        if let Some(working) = working {
            worked = working.join().map_err(|_| anyhow!("a thread of the demo has failed")).flatten();
        }
    });
    end(folder, request.keeps)?;
    worked.map(|()| code)
}

fn end(folder: DemoFolder, is_kept: bool) -> anyhow::Result<()> {
    let path = folder.path().to_owned();
    folder.end()?;
    let shown = path.display();
    Banner::new().line(&match is_kept {
        true => format!("kept: hourglass serve --data-dir '{shown}'"),
        false => format!("removed {shown}"),
    });
    Ok(())
}

/// The defaults of `serve`, whatever the environment says: a demo must not write to anybody's store.
fn settings(address: SocketAddr) -> anyhow::Result<Settings> {
    let flags = Overrides { listen: Some(address.to_string()), ..Overrides::default() };
    match config::load(None, std::iter::empty(), &flags) {
        Ok(mut settings) => {
            settings.sensors.silent_after = SILENT_AFTER;
            settings.query.log_after = LOG_AFTER;
            Ok(settings)
        }
        Err(problems) => bail!("the demo's configuration is not valid, which is a bug: {problems:?}"),
    }
}

/// Where to listen, and whether that is the usual port.
fn free_address(port: Option<u16>) -> anyhow::Result<(SocketAddr, bool)> {
    let of = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    if let Some(port) = port {
        TcpListener::bind(of(port)).with_context(|| {
            format!("listening on {}: is it in use? Choose a free port with --port PORT, or leave --port out", of(port))
        })?;
        return Ok((of(port), true));
    }
    let is_free = match TcpListener::bind(of(USUAL_PORT)) {
        Ok(_) => true,
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => false,
        Err(error) => return Err(error).context("listening on the loopback address"),
    };
    Ok((of(if is_free { USUAL_PORT } else { 0 }), is_free))
}

/// A closed terminal ends the demo; `serve` would go on.
async fn ask_on_hangup(asked: Arc<Notify>) {
    if let Ok(mut hangups) = signal(SignalKind::hangup()) {
        hangups.recv().await;
        asked.notify_one();
    }
}

fn print(request: &DemoRequest, ready: &Ready<'_>, is_usual: bool) {
    let (base, banner) = (ready.addresses.base(), Banner::new());
    banner.title(&format!("hourglass {} demo: a simulated factory, seed {}", env!("CARGO_PKG_VERSION"), request.seed));
    let fate = if request.keeps { "stays" } else { "removed at the end" };
    banner.row("folder", &format!("{}  ({fate})", ready.settings.server.data_dir.display()));
    let port = if is_usual { String::new() } else { format!("  (port {USUAL_PORT} is taken)") };
    let page = format!("{base}/#{FIRST_VIEW}");
    banner.row("page", &format!("{}{port}", banner.link(&page)));
    if request.opens {
        open(&page);
    }
}

/// Sends the past and then the present, until the service stops; asks for that if the past cannot be sent or sealed.
fn work(request: &DemoRequest, (base, sender): (&str, &Sender), began: Instant, asked: &Notify) -> anyhow::Result<()> {
    let (factory, is_introduced) = (Factory::new(request.seed, now_seconds()), AtomicBool::new(false));
    thread::scope(|scope| {
        let made = send_past(request, &factory, sender).and_then(|readings| {
            scope.spawn(|| live::send(&factory, sender, Faults::new(base, &is_introduced)));
            sender.seal().context("sealing the history")?;
            Ok(readings)
        });
        match made {
            // What failed because the service stops is no failure.
            _ if sender.is_told() => Ok(()),
            Ok(readings) => {
                tell(request, &factory, readings, began.elapsed());
                is_introduced.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                asked.notify_one();
                Err(error)
            }
        }
    })
}

/// The number of readings. The database keeps values of another type meanwhile, and rejects them from then on.
fn send_past(request: &DemoRequest, factory: &Factory, sender: &Sender) -> anyhow::Result<u64> {
    sender.set_drift("keep").context("setting up the database")?;
    sender.describe(&factory.metadata()).context("describing the sensors")?;
    let mut progress = Progress::new("history");
    let told = |days: usize| progress.tell(|| format!("{days} of {} days", request.days));
    let readings = history::send(factory, sender, request.days, told).context("sending the history")?;
    sender.set_drift("reject").context("setting up the database")?;
    Ok(readings)
}

fn tell(request: &DemoRequest, factory: &Factory, readings: u64, took: Duration) {
    let (banner, sensors, days) = (Banner::new(), factory.sensors.len(), request.days);
    let seconds = took.as_secs_f64();
    banner.row("history", &format!("{readings} readings of {days} days, sealed, {seconds:.1} s after the start"));
    banner.row("live", &format!("{sensors} sensors send each second; what goes wrong with them is told below"));
    banner.row("stop", "Ctrl-C");
}

/// Has the desktop open the page.
fn open(url: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let opened =
        Command::new(program).arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    if let Err(error) = opened {
        tracing::warn!(program, %error, "the page could not be opened in a browser");
    }
}
