//! The end: nothing more is accepted, what was begun is finished, what is in the log is brought to the store, and all is
//! closed. What becomes of it is the process's exit status.

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

/// Exit status when the log still has records that the store does not (`EX_TEMPFAIL` of sysexits.h): nothing is lost as
/// long as the folder is kept.
const EXIT_LEFT: u8 = 75;

/// How a run has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Everything that was acked is in the store, or in the dead-letter file; the log is empty.
    Complete,
    /// So many records are left in the log.
    Left(u64),
    /// Something else was not done; the reason is logged.
    Failed,
}

impl Ending {
    /// The exit status.
    pub fn code(self) -> ExitCode {
        match self {
            Self::Complete => ExitCode::SUCCESS,
            Self::Left(_) => ExitCode::from(EXIT_LEFT),
            Self::Failed => ExitCode::FAILURE,
        }
    }
}

/// Finishes requests, drains the log into the store and closes both, all by `server.shutdown_timeout`, with names for
/// who is late. Whatever was acked is in the log before any of this begins.
pub async fn shut_down(
    settings: &Settings,
    stopping: watch::Sender<bool>,
    server: JoinHandle<()>,
    app: Arc<App>,
    closing: Closing,
    store: Arc<dyn Store>,
) -> Ending {
    let timeout = settings.server.shutdown_timeout;
    let deadline = Instant::now() + timeout;
    stopping.send_replace(true);
    let finished = timeout_at(deadline, server).await;
    let is_finished = matches!(finished, Ok(Ok(())));
    if !is_finished {
        late("requests under way");
    }
    let patience = timeout / 3;
    // An eighth is kept for what closes.
    if timeout_at(deadline - timeout / 8, app.ingest.drain(Some(patience))).await.is_err() {
        late("the backlog of the log");
    }
    // With the last handle of ingest gone, the shards finish their queues and end.
    drop(app);
    let ending = close(settings, (closing, is_finished), store, deadline).await;
    tracing::info!(complete = ending == Ending::Complete, "stopped");
    ending
}

/// Lets the shards end, and closes log and store. To be called with the last handle of ingest gone, and every request
/// finished: if not, one may still be acked.
pub async fn close(
    settings: &Settings,
    (mut closing, is_finished): (Closing, bool),
    store: Arc<dyn Store>,
    deadline: Instant,
) -> Ending {
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
        let folder = settings.log_dir();
        tracing::warn!(
            records = left,
            folder = %folder.display(),
            "records stay in the log that the store does not have: keep the folder, and start again or run hourglass flush-wal"
        );
    }
    // What the disk still has to do is waited for, and not much longer than asked.
    let deadline = deadline.max(Instant::now() + GRACE);
    if left == 0 && done && timeout_at(deadline, closing.leave()).await.is_err() {
        late("the registry");
    }
    for (who, closed) in [
        ("the log", timeout_at(deadline, closing.close_log()).await.is_ok()),
        ("the store", timeout_at(deadline, store.close()).await.is_ok()),
    ] {
        if !closed {
            late(who);
            done = false;
        }
    }
    match left {
        _ if !done => Ending::Failed,
        0 => Ending::Complete,
        left => Ending::Left(left),
    }
}

/// Time for closing when there is none left.
const GRACE: Duration = Duration::from_secs(1);

fn late(who: &str) {
    tracing::error!(who, "not done by server.shutdown_timeout; stopping all the same");
}
