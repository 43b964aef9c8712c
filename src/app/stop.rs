//! The shutdown: accepts nothing more, finishes the requests under way, flushes the WAL to the store, and closes
//! everything. The outcome is the exit status of the process.

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

/// Exit status if the WAL still has records that the store lacks (`EX_TEMPFAIL` of sysexits.h). Nothing is lost as long
/// as the folder stays.
const EXIT_LEFT: u8 = 75;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// Everything acked is in the store or in the dead-letter file; the WAL is empty.
    Complete,
    /// This many records are left in the WAL.
    Left(u64),
    /// Something else failed; the reason is logged.
    Failed,
}

impl RunEnd {
    /// The exit status.
    pub fn code(self) -> ExitCode {
        match self {
            Self::Complete => ExitCode::SUCCESS,
            Self::Left(_) => ExitCode::from(EXIT_LEFT),
            Self::Failed => ExitCode::FAILURE,
        }
    }
}

/// Finishes requests, flushes the WAL to the store and closes both, all within `server.shutdown_timeout`. Logs the name
/// of each part that takes longer. Everything acked is in the WAL before any of this begins.
pub async fn shut_down(
    settings: &Settings,
    stopping: watch::Sender<bool>,
    server: JoinHandle<()>,
    app: Arc<App>,
    closing: Closing,
    store: Arc<dyn Store>,
) -> RunEnd {
    let timeout = settings.server.shutdown_timeout;
    let deadline = Instant::now() + timeout;
    stopping.send_replace(true);
    let finished = timeout_at(deadline, server).await;
    let is_finished = matches!(finished, Ok(Ok(())));
    if !is_finished {
        late("requests");
    }
    let patience = timeout / 3;
    // An eighth of the time is for closing.
    if timeout_at(deadline - timeout / 8, app.ingest.drain(Some(patience))).await.is_err() {
        late("flush of the WAL");
    }
    if timeout_at(deadline, app.ingest.rejections.save()).await.is_err() {
        late("writing rejected lines");
    }
    // Dropping the last handle of `Ingest` makes the shards finish their queues and end.
    drop(app);
    let ending = close(settings, (closing, is_finished), store, deadline).await;
    tracing::info!(complete = ending == RunEnd::Complete, "stopped");
    ending
}

/// Waits for the shards to end, and closes the WAL and the store. Call it only after the last handle of `Ingest` is
/// dropped. `is_finished` says whether all requests are finished; if not, one of them may still be acked, so the
/// outcome is [`RunEnd::Failed`].
pub async fn close(
    settings: &Settings,
    (mut closing, is_finished): (Closing, bool),
    store: Arc<dyn Store>,
    deadline: Instant,
) -> RunEnd {
    let mut done = is_finished;
    for shard in std::mem::take(&mut closing.shards) {
        match timeout_at(deadline, shard).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => done = false,
            Err(_) => late("page writes"),
        }
    }
    let left = closing.records_left();
    if left > 0 {
        let folder = settings.wal_dir();
        tracing::warn!(
            records = left,
            folder = %folder.display(),
            "records stay in the WAL and are not yet in the store: keep the folder, and start again or run hourglass wal flush"
        );
    }
    // Closing waits for the disk, even if that takes a little longer than the timeout.
    let deadline = deadline.max(Instant::now() + GRACE);
    if left == 0 && done && timeout_at(deadline, closing.leave()).await.is_err() {
        late("leaving the registry");
    }
    for (who, closed) in [
        ("closing the WAL", timeout_at(deadline, closing.close_wal()).await.is_ok()),
        ("closing the store", timeout_at(deadline, store.close()).await.is_ok()),
    ] {
        if !closed {
            late(who);
            done = false;
        }
    }
    match left {
        _ if !done => RunEnd::Failed,
        0 => RunEnd::Complete,
        left => RunEnd::Left(left),
    }
}

/// Minimum time for closing, when the timeout is over.
const GRACE: Duration = Duration::from_secs(1);

fn late(who: &str) {
    tracing::error!(who, "not finished within server.shutdown_timeout; stopping anyway");
}
