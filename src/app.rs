//! The whole, put together from top to bottom in the order the parts depend on each other, and
//! taken apart in the opposite order. The only room that knows all others.

mod dead_letters;
mod flush_wal;
mod listeners;
mod stop;
mod tokens;
mod verify;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::access::{Audit, Quota};
use crate::bucket::deletions::Masks;
use crate::bucket::{Caps, StorageError, Store};
use crate::clock::{self, StampClock};
use crate::config::{AckSetting, Settings};
use crate::faults::{self, Bug};
use crate::http::{self, App, Health};
use crate::ingest::{self, AckLevel, Closing, Ingest, Presence, Stores};
use crate::log::{self, Folder, Log, Recovery};
use crate::query::{self, Query};
use crate::store::{EmbeddedStore, Masked, MongoOptions, MongoStore};
use crate::telemetry::{Metrics, logs};

pub use self::dead_letters::{list_dead_letters, send_dead_letters};
pub use self::flush_wal::flush_wal;
use self::listeners::{Addresses, Listeners};
use self::stop::{Ending, shut_down};
pub use self::tokens::tokens;
pub use self::verify::verify;

/// How often the store is asked whether it answers.
const HEALTH_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time that `POST /api/v1/flush` waits, unless acks may take longer.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(300);
/// Longest time that it waits for a store that stays away, unless acks may take longer.
const FLUSH_AWAY: Duration = Duration::from_secs(15);
/// How often histograms are folded between scrapes.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT. Success when nothing that was acked or begun was left behind; a status of its own when
/// records are left in the log.
#[must_use]
pub fn run(settings: Settings) -> ExitCode {
    logs::start(&settings.telemetry.log_level, settings.telemetry.log_format);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&anyhow::Error::new(error).context("starting threads")),
    };
    let served = runtime.block_on(serve(settings));
    // A command that the store never answered must not keep the process.
    runtime.shutdown_timeout(Duration::from_millis(100));
    // Behind whatever the driver says of its tasks' end: the reason is the last line.
    match served {
        Ok(ending) => ending.code(),
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("hourglass: {error:#}");
    ExitCode::FAILURE
}

async fn serve(settings: Settings) -> anyhow::Result<Ending> {
    let started = (clock::now_ns(), Instant::now());
    // First of all: SIGHUP ends a process that does not listen for it.
    let hangups = signal(SignalKind::hangup()).context("listening for SIGHUP")?;
    let (store, state, mongo) = open_store(&settings).await?;
    let (access, first_token) = tokens::open(&settings, mongo).await?;
    let kind = if settings.store.uri.is_embedded() { "embedded" } else { "mongodb" };
    let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), kind).context("setting up metrics")?;
    let listeners = Listeners::open(&settings, &metrics).await?;
    let stamps = Arc::new(StampClock::new(settings.clock));
    let (log, recovery) = match open_log(&settings, &stamps).await {
        Ok(opened) => opened,
        Err(error) => {
            store.close().await;
            return Err(error);
        }
    };
    let stores = stores(store);
    let store = stores.store.clone();
    let (ingest, mut closing) =
        Ingest::start(ingest_options(&settings), stores, (log, &recovery, stamps), metrics.clone());
    let ingest = Arc::new(ingest);
    if state == Health::Ready {
        ingest.join(settings.store.command_timeout).await;
    }
    let query = Query::new(store.clone(), ingest.clone(), query_options(&settings), metrics.clone());
    let presence = ingest.presence();
    presence.note(state == Health::Ready);
    let (health_sender, health) = watch::channel(state);
    let options = http_options(&settings);
    let audit = Arc::new(Audit::new(&settings.server.data_dir));
    let app = Arc::new(App { ingest, query, access, audit, metrics, health, options, started });
    let health_sender = Arc::new(health_sender);
    let watcher = tokio::spawn(watch_store(store.clone(), health_sender.clone(), presence));
    let upkeep = tokio::spawn(keep_up(app.metrics.clone()));
    let tokens = tokio::spawn(app.access.clone().watch());
    let mut stop = Stop::new().context("listening for signals")?;
    banner(&settings, listeners.addresses, first_token.as_deref(), app.access.is_enforced(), started.1);

    let (stopping, told) = watch::channel(false);
    let server = listeners.serve(&settings, app.clone(), &told, hangups);
    let asked = is_asked_to_stop(&mut stop, &mut closing).await;
    health_sender.send_replace(Health::Stopping);
    let ending = tokio::select! {
        ending = shut_down(&settings, stopping, server, app, closing, store) => ending,
        () = stop.wait() => {
            tracing::warn!("told to stop a second time: stopping at once");
            Ending::Failed
        }
    };
    [watcher, upkeep, tokens].iter().for_each(JoinHandle::abort);
    Ok(if asked { ending } else { Ending::Failed })
}

/// Waits for a reason to stop, and says whether it is somebody's wish.
async fn is_asked_to_stop(stop: &mut Stop, closing: &mut Closing) -> bool {
    tokio::select! {
        () = stop.wait() => true,
        ended = any_ended(&mut closing.shards) => {
            drop(closing.shards.swap_remove(ended));
            tracing::error!("a shard ended by itself, which is a bug; stopping, so that a restart can mend it");
            false
        }
    }
}

/// Opens the store and says whether it answers. MongoDB may be away; what can never serve is refused.
async fn open_store(settings: &Settings) -> anyhow::Result<(Arc<dyn Store>, Health, Option<Arc<MongoStore>>)> {
    let directory = &settings.server.data_dir;
    std::fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
    if settings.store.uri.is_embedded() {
        let store =
            EmbeddedStore::open(directory, settings.embedded.cache_bytes).context("opening the embedded store")?;
        return Ok((Arc::new(store), Health::Ready, None));
    }
    let store = open_mongo(settings).await?;
    let health = match store.check().await {
        Ok(()) => Health::Ready,
        Err(error @ StorageError::Refused { .. }) => return Err(error).context("opening the store"),
        Err(error) => {
            tracing::warn!(%error, "MongoDB does not answer yet; writes are kept in the log, and queries answered 503, until it does");
            Health::StoreAway(error.to_string())
        }
    };
    Ok((store.clone(), health, Some(store)))
}

async fn open_mongo(settings: &Settings) -> anyhow::Result<Arc<MongoStore>> {
    let options = MongoOptions {
        command_timeout: settings.store.command_timeout,
        commands_in_flight: u32::try_from(settings.store.commands_in_flight).unwrap_or(u32::MAX),
    };
    Ok(Arc::new(MongoStore::open(settings.store.uri.expose(), options).await.context("opening the store")?))
}

/// Opens the log and tells what a person should know of it.
async fn open_log(settings: &Settings, stamps: &Arc<StampClock>) -> anyhow::Result<(Log, Recovery)> {
    let folder = settings.log_dir();
    let options = log::Options {
        segment_bytes: settings.log.segment_bytes as u64,
        budget_bytes: settings.log.budget_bytes as u64,
        queue_bytes: settings.log.queue_bytes as u64,
        compress: settings.log.compress,
        least: least(stamps.clone()).context("reading the system's random bytes")?,
        ..log::Options::new(settings.store.uri.identity())
    };
    let started = Instant::now();
    let shown = folder.display().to_string();
    let disk = Folder::new(&folder).with_context(|| format!("creating {shown}"))?;
    let opened = tokio::task::spawn_blocking(move || Log::open(disk, options)).await?;
    let (log, recovery) = opened.with_context(|| format!("opening the log in {shown}"))?;
    let milliseconds = started.elapsed().as_millis();
    let Recovery { last, released, unwritable, .. } = &recovery;
    tracing::info!(
        bytes = log.bytes(),
        segments = log.segments(),
        backlog = last > released,
        milliseconds,
        "the log is open"
    );
    if let Some(reason) = unwritable {
        tracing::error!(%reason, "the log takes nothing yet; writes are answered 503 until it does");
    }
    Ok((log, recovery))
}

/// A store behind the deletions that are remembered, and as it is.
fn stores(raw: Arc<dyn Store>) -> Stores {
    let masks = Masks::default();
    let store = Arc::new(Masked::new(raw.clone(), masks.clone()));
    Stores { store, raw, masks, understand: Arc::new(query::influx::sensors_of) }
}

/// Sequences that are stamps.
fn least(stamps: Arc<StampClock>) -> anyhow::Result<log::Least> {
    if faults::has(Bug::StampsCountOn) {
        return Ok(log::Least::new(|| 0));
    }
    let mut random = [0];
    getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(log::Least::new(move || stamps.stamp(random[0])))
}

fn ingest_options(settings: &Settings) -> ingest::Options {
    ingest::Options {
        shards: settings.ingest.shards,
        bytes_in_flight: settings.ingest.bytes_in_flight,
        database_share: settings.ingest.database_share,
        ack: match settings.ingest.ack {
            AckSetting::Log => AckLevel::Log,
            AckSetting::Store => AckLevel::Store,
        },
        ack_timeout: settings.ingest.ack_timeout,
        caps: Caps {
            max_readings: settings.page.max_readings,
            max_bytes: settings.page.max_bytes,
            hard_bytes: settings.page.hard_bytes,
        },
        hot_bytes: settings.hot.max_bytes,
        flush_interval: settings.flush.interval,
        flush_quiet: settings.flush.quiet,
        flights: settings.flush.flights,
        log_bytes: settings.log.budget_bytes as u64,
        log_dir: settings.log_dir(),
        horizon: settings.log.horizon,
        deletions: settings.limits.deletions,
        dead_letters: settings.dead_letters_file(),
        recent: settings.sensors.recent,
        sensor_interval: settings.sensors.write_interval,
        outlier_ttl: settings.sensors.outlier_ttl,
        limits: settings.reading_limits(),
        sensor_fields: settings.limits.sensor_fields,
        sensors: settings.limits.sensors,
        databases: settings.limits.databases,
        database_quota: database_quota(settings),
        window: ingest::Window {
            past: bound_ns(settings.limits.max_past),
            future: bound_ns(settings.limits.max_future),
        },
    }
}

fn database_quota(settings: &Settings) -> Quota {
    let bound = |count: usize| u32::try_from(count).ok().filter(|count| *count > 0);
    Quota {
        readings_per_second: bound(settings.quota.database_readings),
        new_sensors_per_hour: bound(settings.quota.database_new_sensors),
        sensors: bound(settings.quota.database_sensors),
    }
}

/// Nanoseconds; nothing for zero, which bounds nothing.
fn bound_ns(bound: Duration) -> Option<i64> {
    i64::try_from(bound.as_nanos()).ok().filter(|bound| *bound > 0)
}

fn query_options(settings: &Settings) -> query::Options {
    query::Options {
        span_max: settings.query.span_max,
        series_max: settings.query.series_max,
        cache_max_age: settings.query.cache_max_age,
        cache_bytes: settings.query.cache_bytes,
        request_bytes: settings.query.request_bytes,
        bytes: settings.query.bytes,
        token_bytes: settings.query.token_bytes,
        log_after: settings.query.log_after,
        concurrent: settings.query.concurrent,
        wait: settings.query.wait,
        timeout: settings.query.timeout,
    }
}

fn http_options(settings: &Settings) -> http::Options {
    http::Options {
        body_timeout: settings.server.body_timeout,
        flush_timeout: settings.ingest.ack_timeout.max(FLUSH_TIMEOUT),
        flush_away: settings.ingest.ack_timeout.max(FLUSH_AWAY),
        body_bytes: settings.limits.body_bytes,
        limit_default: settings.query.limit_default,
        limit_max: settings.query.limit_max,
        sensors_max: settings.query.sensors_max,
        limits: settings.reading_limits(),
    }
}

/// Keeps [`Health`] true; a change is logged once.
async fn watch_store(store: Arc<dyn Store>, health: Arc<watch::Sender<Health>>, presence: Presence) {
    loop {
        let now = match store.check().await {
            Ok(()) => Health::Ready,
            Err(error) => Health::StoreAway(error.to_string()),
        };
        presence.note(now == Health::Ready);
        health.send_if_modified(|health| {
            if *health == Health::Stopping {
                return false;
            }
            let turned = std::mem::discriminant(health) != std::mem::discriminant(&now);
            match &now {
                Health::StoreAway(reason) if turned => tracing::warn!(%reason, "the store is away"),
                Health::Ready if turned => tracing::info!("the store is back"),
                _ => {}
            }
            let changed = *health != now;
            *health = now;
            changed
        });
        tokio::time::sleep(HEALTH_INTERVAL).await;
    }
}

/// Which shard ended by itself; its handle must not be waited for again.
async fn any_ended(shards: &mut [JoinHandle<bool>]) -> usize {
    let (_, ended, _) = futures_util::future::select_all(shards).await;
    ended
}

async fn keep_up(metrics: Metrics) {
    loop {
        tokio::time::sleep(UPKEEP_INTERVAL).await;
        metrics.upkeep();
    }
}

/// SIGTERM or SIGINT; whichever comes first.
struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn wait(&mut self) {
        let name = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "stopping");
    }
}

/// What a person sees first: what serves where, and two commands to copy.
fn banner(settings: &Settings, addresses: Addresses, first_token: Option<&str>, enforced: bool, started: Instant) {
    let address = addresses.http;
    let store = match settings.store.uri.is_embedded() {
        true => format!("embedded in {}", settings.server.data_dir.display()),
        false => settings.store.uri.to_string(),
    };
    let base = format!("http://{address}");
    // A banner that nobody can read any more is no reason to stop.
    let mut out = std::io::stdout();
    let mut line = |text: std::fmt::Arguments<'_>| drop(writeln!(out, "{text}"));
    line(format_args!("hourglass {}", env!("CARGO_PKG_VERSION")));
    line(format_args!("  store    {store}"));
    let metrics = addresses.status.unwrap_or(address);
    line(format_args!("  serving  {base}  (endpoints: {base}/, metrics: http://{metrics}/metrics)"));
    if let Some(https) = addresses.https {
        line(format_args!("  by TLS   https://{https}"));
    }
    if let Some(lines) = addresses.lines {
        line(format_args!("  lines    tcp://{lines}  (not acked)"));
    }
    if let Some(token) = first_token {
        line(format_args!("  token    {token}"));
        line(format_args!("           for everything, named \"first\"; shown this once: keep it, or make it anew by"));
        line(format_args!("           hourglass token rotate first"));
    }
    let token = first_token.unwrap_or("$TOKEN");
    let header = if enforced { format!(" -H \"Authorization: Token {token}\"") } else { String::new() };
    line(format_args!("  write a reading, and read it back:"));
    line(format_args!("    curl{header} '{base}/api/v1/readings' -d '{{\"sensor\":\"temp-01\",\"value\":22.5}}'"));
    line(format_args!("    curl{header} '{base}/api/v1/readings?sensor=readings,sensor=temp-01'"));
    line(format_args!("ready in {} ms", started.elapsed().as_millis()));
}
