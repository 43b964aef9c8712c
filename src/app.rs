//! Starts the service: builds its parts in the order of their dependencies, and shuts them down in reverse order. Only
//! this module may use all others.

pub(crate) mod allocator;
pub(crate) mod banner;
pub(crate) mod data_folder;
pub(crate) mod disk_space;
pub(crate) mod first_token;
pub(crate) mod listeners;
pub(crate) mod not_started;
pub(crate) mod open;
pub(crate) mod outage;
pub(crate) mod stop;
pub(crate) mod tokens;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;

use crate::access::Audit;
use crate::backup::BackupTimes;
use crate::bucket::{Store, UnflushedReadings};
use crate::clock::{self, StampClock};
use crate::cluster::ClusterReadings;
use crate::config::Settings;
use crate::edits::{EditOptions, Edits};
use crate::http::{self, App, Health, StartTime};
use crate::ingest::{Closing, Ingest, Ledger, StorePresence};
use crate::lanes::{LaneRuntimes, Lanes};
use crate::memory;
use crate::mqtt;
use crate::query::Query;
use crate::query::influx::sensor_test;
use crate::store::MergedView;
use crate::telemetry::recent::SAMPLE_INTERVAL;
use crate::telemetry::{Metrics, logs};
use crate::upkeep;

use self::banner::Ready;

use self::listeners::Listeners;
use self::not_started::NotStarted;
use self::open::{clock_bounds, group_rules, open_store, open_wal};
use self::stop::{RunEnd, shut_down};

const STORE_UNUSABLE: &str = "the store cannot be used; writes stay in the WAL until it can";
/// Interval of the health checks of the store.
const HEALTH_INTERVAL: Duration = Duration::from_secs(1);
/// A store command that never returns must not keep the process alive.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(100);

/// Serves until SIGTERM or SIGINT. The exit status is 0 if all requests were finished and the WAL was flushed
/// completely. `RunEnd` has the other values.
#[must_use]
pub fn run(settings: Settings) -> ExitCode {
    allocator::spare_memory(&settings);
    logs::start(&settings.telemetry.log_level, &settings.telemetry);
    data_folder::warn_of_others(&settings);
    run_server(settings, &Arc::new(Notify::new()), |ready| banner::print(&ready))
}

/// Serves on its own runtimes until a signal or `stop_request`. Calls `on_ready` once the service accepts requests.
pub(crate) fn run_server(settings: Settings, stop_request: &Arc<Notify>, on_ready: impl FnOnce(Ready<'_>)) -> ExitCode {
    // Print an error after everything that the MongoDB driver logs while its tasks end, so that the reason is the last
    // line.
    let served = LaneRuntimes::start(settings.server.memory).context("starting threads").and_then(|runtimes| {
        let served = runtimes.block_on(|lanes| serve(Arc::new(settings), lanes, stop_request, on_ready));
        runtimes.shut_down(SHUTDOWN_TIMEOUT);
        served
    });
    match served {
        Ok(ending) => ending.code(),
        Err(error) => report_error(&error),
    }
}

/// Runs a future on its own multi-threaded runtime.
pub(crate) fn run_to_end<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting threads")?;
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    done
}

/// Prints the error, if there is one, and returns the exit status.
#[must_use]
pub fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report_error(&error),
    }
}

/// As [`exit_code`], where `false` is a failure without an error.
#[must_use]
pub fn check_exit_code(is_good: anyhow::Result<bool>) -> ExitCode {
    match is_good {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => report_error(&error),
    }
}

/// Prints the error, and returns the exit status.
#[must_use]
pub fn report_error(error: &anyhow::Error) -> ExitCode {
    eprintln!("hourglass: {error:#}");
    error.downcast_ref::<NotStarted>().map_or(ExitCode::FAILURE, NotStarted::code)
}

async fn serve(
    settings: Arc<Settings>,
    lanes: Lanes,
    stop_request: &Arc<Notify>,
    on_ready: impl FnOnce(Ready<'_>),
) -> anyhow::Result<RunEnd> {
    let started = StartTime { wall_ns: clock::now_ns(), monotonic: Instant::now() };
    // Handle SIGHUP before anything else, because it ends a process without a handler.
    let hangups = signal(SignalKind::hangup()).context("listening for SIGHUP")?;
    data_folder::must_be_finished(&settings)?;
    data_folder::make_private(&settings.server.data_dir)?;
    let (store, state, opened) = open_store(&settings).await?;
    let (access, first_token) = tokens::open(&settings, opened.mongo()).await?;
    let kind = if settings.store.uri.is_embedded() { "embedded" } else { "mongodb" };
    let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), kind).context("setting up metrics")?;
    let lanes = lanes.with_metrics(metrics.clone());
    let mut listeners = Listeners::open(&settings, &metrics).await?;
    report_memory(&settings, &metrics);
    metrics.connections_limit.set(u32::try_from(settings.server.connections).unwrap_or(u32::MAX));
    let stamps = Arc::new(StampClock::new(clock_bounds(&settings), store.has_other_writers()));
    let (log, recovery) = match open_wal(&settings, &stamps).await {
        Ok(opened) => opened,
        Err(error) => {
            store.close().await;
            return Err(error);
        }
    };
    let store = Arc::new(MergedView::new(store));
    let compiler = Arc::new(sensor_test);
    let (ingest, mut closing) =
        Ingest::start(settings.clone(), store.clone(), compiler, log, &recovery, stamps, metrics.clone());
    let ingest = Arc::new(ingest);
    let started_cluster = listeners.cluster.take();
    let started_cluster =
        started_cluster.map(|listening| listening.start(&settings, &ingest, stop_request.clone(), metrics.clone()));
    let (cluster, cluster_tasks) = started_cluster.transpose().context("joining the cluster")?.unzip();
    if state == Health::Ready {
        ingest.join(settings.store.command_timeout).await;
    }
    if !store.raw().has_other_writers() {
        // Load the settings before serving, because queries need the renames in them.
        if let Err(error) = ingest.settings_now().await {
            tracing::warn!(%error, "the databases' settings cannot be read; retrying");
        }
    }
    let memtables: Arc<dyn UnflushedReadings> = match &cluster {
        Some(cluster) => Arc::new(ClusterReadings::new(ingest.clone(), cluster.clone())),
        None => ingest.clone(),
    };
    let query = Query::new(store.clone(), memtables, ingest.settings(), settings.query.clone(), metrics.clone());
    let query = Arc::new(query.with_kinds(settings.kinds.clone()));
    let presence = ingest.lookup.presence.clone();
    presence.note(state == Health::Ready);
    let (health_sender, health) = watch::channel(state);
    let audit = Arc::new(Audit::new(&settings.server.data_dir, settings.audit.max_bytes as u64));
    let times = BackupTimes::read(&settings.server.data_dir);
    metrics.backups(times.completed, times.proved);
    let backups = Arc::new(Semaphore::new(1));
    let timeout = settings.ingest.ack_timeout.max(http::FLUSH_TIMEOUT);
    let edit_options = EditOptions { timeout, read_bytes: settings.query.request_bytes / 2 };
    let (stop_sender, stopping) = watch::channel(false);
    let edits = Edits::new(ingest.clone(), query.clone(), store.clone(), edit_options, stopping.clone());
    let edits = Arc::new(edits);
    let jobs = upkeep::start(&ingest, opened.compact_job(), lanes.clone(), metrics.clone());
    let (subscribers, subscriptions) = mqtt::start(&ingest, &access, &audit, &lanes, &metrics, &stopping);
    let app = Arc::new(App {
        lanes,
        jobs,
        ingest,
        cluster,
        mqtt: subscribers,
        query,
        access,
        audit,
        metrics,
        store: store.clone(),
        backups,
        edits,
        health,
        settings: settings.clone(),
        groups: group_rules(&settings),
        started,
    });
    let health_sender = Arc::new(health_sender);
    let watcher = tokio::spawn(watch_store(store.raw().clone(), health_sender.clone(), presence, app.metrics.clone()));
    let space = tokio::spawn(disk_space::watch(store.raw().clone(), settings.wal_dir(), app.metrics.clone()));
    let tokens = tokio::spawn(app.access.clone().watch());
    let memory = tokio::spawn(memory::watch(settings.server.memory));
    tokio::spawn(keep_samples(app.clone()));
    tokio::spawn(outage::log_outages(app.clone()));
    let mut stop = Stop::new(stop_request.clone()).context("listening for signals")?;
    tracing::info!(folder = %data_folder::absolute(&settings.server.data_dir).display(), "data folder");
    let addresses = listeners.addresses;
    let waiting = app.waiting();
    let server = listeners.serve(&settings, app.clone(), &stopping, hangups, subscriptions);
    on_ready(Ready {
        settings: &settings,
        addresses,
        first_token: first_token.as_ref(),
        is_enforced: app.access.is_enforced(),
        started: started.monotonic,
        waiting,
        stopping,
    });
    let is_requested = wait_for_stop(&mut stop, &mut closing).await;
    health_sender.send_replace(Health::Stopping);
    let ending = tokio::select! {
        ending = shut_down(&settings, stop_sender, server, app, closing, store.raw().clone()) => ending,
        () = stop.wait() => {
            tracing::warn!("second signal to stop; stopping at once");
            RunEnd::Failed
        }
    };
    [watcher, space, tokens, memory].iter().chain(cluster_tasks.iter().flatten()).for_each(JoinHandle::abort);
    Ok(if is_requested { ending } else { RunEnd::Failed })
}

/// Logs the memory bounds, and warns if they add up to more than `server.memory`.
fn report_memory(settings: &Settings, metrics: &Metrics) {
    let memory = settings.server.memory;
    let parts = settings.memory_bounds();
    metrics.memory(memory, &parts);
    let sum = parts.iter().map(|(_, bytes)| bytes).sum::<usize>();
    let mib = |bytes: usize| bytes.div_ceil(1 << 20);
    let shown: Vec<String> = parts.iter().map(|(part, bytes)| format!("{part} {}", mib(*bytes))).collect();
    tracing::info!(memory_mib = mib(memory), sum_mib = mib(sum), "memory");
    tracing::debug!(parts_mib = shown.join(", "), "memory by part");
    if sum > memory {
        tracing::warn!(
            memory_mib = mib(memory),
            sum_mib = mib(sum),
            "the keys that bound memory add up to more than server.memory: raise it, or lower one of them"
        );
    }
}

/// Waits for a reason to stop. Returns true for a signal, false if a shard has ended by itself.
async fn wait_for_stop(stop: &mut Stop, closing: &mut Closing) -> bool {
    tokio::select! {
        () = stop.wait() => true,
        ended = any_ended(&mut closing.shards) => {
            drop(closing.shards.swap_remove(ended));
            tracing::error!("a shard task ended unexpectedly, which is a bug; stopping, so that the next start replays the WAL");
            false
        }
    }
}

/// Checks the store at an interval and updates [`Health`]. Logs each change once.
pub(crate) async fn watch_store(
    store: Arc<dyn Store>,
    health: Arc<watch::Sender<Health>>,
    presence: StorePresence,
    metrics: Metrics,
) {
    loop {
        let now = Health::from_check(store.check().await);
        presence.note(now == Health::Ready);
        metrics.store_up.set(u32::from(now == Health::Ready));
        health.send_if_modified(|health| {
            if *health == Health::Stopping {
                return false;
            }
            let cause = |health: &Health| match health {
                Health::StoreUnusable { cause, .. } => Some(*cause),
                _ => None,
            };
            let is_news =
                std::mem::discriminant(health) != std::mem::discriminant(&now) || cause(health) != cause(&now);
            match &now {
                Health::StoreAway(reason) if is_news => tracing::warn!(%reason, "the store is unavailable"),
                Health::StoreUnusable { cause, detail } if is_news => {
                    tracing::error!(class = %cause, %detail, "{STORE_UNUSABLE}");
                }
                Health::Ready if is_news => tracing::info!("the store is available again"),
                _ => {}
            }
            let has_changed = *health != now;
            *health = now;
            has_changed
        });
        tokio::time::sleep(HEALTH_INTERVAL).await;
    }
}

/// Waits until the task of a shard ends, and returns its index. Its handle must not be awaited again.
async fn any_ended(shards: &mut [JoinHandle<bool>]) -> usize {
    let (_, ended, _) = futures_util::future::select_all(shards).await;
    ended
}

/// Takes the samples that `/api/v1/overview` shows for the last half hour, and aggregates metrics, until the service
/// stops.
async fn keep_samples(app: Arc<App>) {
    let mut health = app.health.clone();
    let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let Ledger { accepted, pending, .. } = app.ingest.lag().ledger;
                app.metrics.upkeep();
                app.metrics.recent.sample(Instant::now(), clock::now_ns() / 1_000_000, accepted, pending);
            }
            _ = health.wait_for(|health| *health == Health::Stopping) => return,
        }
    }
}

/// Waits for SIGTERM, SIGINT or a stop request of this process.
pub(crate) struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    request: Arc<Notify>,
}

impl Stop {
    pub(crate) fn new(request: Arc<Notify>) -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())?, request })
    }

    pub(crate) async fn wait(&mut self) {
        let name = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            () = self.request.notified() => return,
        };
        tracing::info!(signal = name, "stopping");
    }
}
