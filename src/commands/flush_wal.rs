//! `hourglass wal flush`: flushes the WAL of a folder to the store, without serving requests.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::app::open::{open_store, open_wal};
use crate::app::stop::{RunEnd, close};
use crate::app::{Stop, watch_store};
use crate::clock::StampClock;
use crate::config::Settings;
use crate::ingest::Ingest;
use crate::query::influx::sensor_test;
use crate::store::MergedView;
use crate::telemetry::{Metrics, logs};
use crate::verify::unflushed_records;

/// Interval at which the progress is printed.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// Flushes the WAL, for at most `timeout` if there is one. Succeeds only if the WAL is empty afterwards.
#[must_use]
pub fn flush_wal(settings: &Settings, timeout: Option<Duration>) -> ExitCode {
    logs::start(&settings.telemetry.log_level, &settings.telemetry);
    match crate::app::run_to_end(flush(settings, timeout)) {
        Ok(ending) => ending.code(),
        Err(error) => crate::app::report_error(&error),
    }
}

async fn flush(settings: &Settings, timeout: Option<Duration>) -> anyhow::Result<RunEnd> {
    let folder = settings.wal_dir();
    // Check this first, because opening the WAL would create one.
    let Some(found) = unflushed_records(&folder).context("reading the WAL")? else {
        bail!("there is no WAL in {}", crate::app::data_folder::absolute(&folder).display());
    };
    println!("{} records of the WAL in {} may not be in the store yet", found.records, folder.display());
    let stamps = Arc::new(StampClock::new(crate::app::open::clock_bounds(settings), !settings.store.uri.is_embedded()));
    let (log, recovery) = open_wal(settings, &stamps).await?;
    crate::app::data_folder::make_private(&settings.server.data_dir)?;
    let (store, state, _) = open_store(settings).await?;
    let kind = if settings.store.uri.is_embedded() { "embedded" } else { "mongodb" };
    let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), kind).context("setting up metrics")?;
    let view = Arc::new(MergedView::new(store.clone()));
    let options = Arc::new(settings.clone());
    let (ingest, closing) =
        Ingest::start(options, view, Arc::new(sensor_test), log, &recovery, stamps, metrics.clone());
    ingest.join(settings.store.command_timeout).await;
    let health = Arc::new(watch::channel(state).0);
    let watcher = tokio::spawn(watch_store(store.clone(), health, ingest.lookup.presence.clone(), metrics));
    let mut stop = Stop::new(Arc::default()).context("listening for signals")?;
    tokio::select! {
        () = ingest.drain(None) => {}
        () = print_progress(&ingest) => {}
        () = tokio::time::sleep(timeout.unwrap_or_default()), if timeout.is_some() => println!("stopping: the --timeout is over"),
        () = stop.wait() => {}
    }
    watcher.abort();
    let ledger = ingest.lag().ledger;
    let blocked = ingest.lag().blocked;
    drop(ingest);
    let deadline = Instant::now() + settings.server.shutdown_timeout;
    let ending = close(settings, closing, true, store, deadline).await;
    if let Some(reason) = blocked {
        println!("a record of the WAL cannot be read: {reason}");
    }
    if ledger.dead_lettered > 0 {
        println!("{} readings could not be stored: run hourglass dead-letters list", ledger.dead_lettered);
    }
    match ending {
        RunEnd::Complete => println!("the WAL in {} is empty: everything is in the store", folder.display()),
        RunEnd::Left(records) => println!("{records} records are left in the WAL in {}", folder.display()),
        RunEnd::Failed => println!("failed: see above"),
    }
    Ok(ending)
}

/// Prints the progress at an interval. Never returns.
async fn print_progress(ingest: &Ingest) {
    loop {
        tokio::time::sleep(PROGRESS_INTERVAL).await;
        let away = if ingest.lookup.presence.is_away() { "; the store is unavailable" } else { "" };
        println!("{} records are left{away}", ingest.dispatch.positions.kept_records());
    }
}
