//! Shuts the service down: stops accepting, finishes the requests under way, flushes the WAL to the store, and closes
//! everything. The outcome determines the exit status of the process.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::bucket::Store;
use crate::config::Settings;
use crate::http::App;
use crate::ingest::Closing;

/// Exit status if the WAL still has records that the store lacks (`EX_TEMPFAIL` of sysexits.h). Nothing is lost while
/// the folder exists.
const EXIT_LEFT: u8 = 75;

/// The outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// The WAL is empty, and everything acked is in the store or in the dead-letter file.
    Complete,
    /// This many records are left in the WAL.
    Left(u64),
    /// Something else failed; the reason is logged.
    Failed,
}

impl RunEnd {
    /// Returns the exit status.
    pub fn code(self) -> ExitCode {
        match self {
            Self::Complete => ExitCode::SUCCESS,
            Self::Left(_) => ExitCode::from(EXIT_LEFT),
            Self::Failed => ExitCode::FAILURE,
        }
    }
}

/// Finishes requests, flushes the WAL to the store and closes both within `server.shutdown_timeout`. Logs each part
/// that takes longer. Everything acked is already in the WAL.
pub async fn shut_down(
    settings: &Settings,
    stop_sender: watch::Sender<bool>,
    server: JoinHandle<()>,
    app: Arc<App>,
    closing: Closing,
    store: Arc<dyn Store>,
) -> RunEnd {
    let timeout = settings.server.shutdown_timeout;
    let deadline = Instant::now() + timeout;
    stop_sender.send_replace(true);
    let finished = timeout_at(deadline, server).await;
    let is_finished = matches!(finished, Ok(Ok(())));
    if !is_finished {
        log_timeout("requests");
    }
    if let Some(cluster) = &app.cluster {
        cluster.terminate();
    }
    let patience = timeout / 3;
    // Reserve an eighth of the time for closing.
    if timeout_at(deadline - timeout / 8, app.ingest.drain(Some(patience))).await.is_err() {
        log_timeout("flush of the WAL");
    }
    if timeout_at(deadline, app.ingest.rejections.save()).await.is_err() {
        log_timeout("writing rejected lines");
    }
    // Dropping the last handle of `Ingest` makes the shards finish their queues and end.
    drop(app);
    let ending = close(settings, closing, is_finished, store, deadline).await;
    tracing::info!(complete = ending == RunEnd::Complete, "stopped");
    ending
}

/// Waits for the shards to end, and closes the WAL and the store. Call it only after the last handle of `Ingest` is
/// dropped. If `is_finished` is false, a request under way may still be acked, so the outcome is [`RunEnd::Failed`].
pub async fn close(
    settings: &Settings,
    mut closing: Closing,
    is_finished: bool,
    store: Arc<dyn Store>,
    deadline: Instant,
) -> RunEnd {
    let mut is_done = is_finished;
    for shard in std::mem::take(&mut closing.shards) {
        match timeout_at(deadline, shard).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => is_done = false,
            Err(_) => log_timeout("page writes"),
        }
    }
    let left = closing.records_left();
    if left > 0 {
        let folder = settings.wal_dir();
        tracing::warn!(
            records = left,
            folder = %folder.display(),
            "records in the WAL are not in the store yet: keep the folder, and start again or run hourglass wal flush"
        );
    }
    // Give closing a minimum of time, because it waits for the disk.
    let deadline = deadline.max(Instant::now() + CLOSE_MIN);
    if left == 0 && is_done && timeout_at(deadline, closing.leave()).await.is_err() {
        log_timeout("leaving the registry");
    }
    if timeout_at(deadline, closing.close_wal()).await.is_err() {
        log_timeout("closing the WAL");
        is_done = false;
    }
    if timeout_at(deadline, store.close()).await.is_err() {
        log_timeout("closing the store");
        is_done = false;
    }
    match left {
        _ if !is_done => RunEnd::Failed,
        0 => RunEnd::Complete,
        left => RunEnd::Left(left),
    }
}

/// Minimum time for closing after the timeout.
const CLOSE_MIN: Duration = Duration::from_secs(1);

fn log_timeout(who: &str) {
    tracing::error!(who, "not finished within server.shutdown_timeout; stopping anyway");
}
