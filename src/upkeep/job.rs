//! What a job is, and what it may ask of the runner.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::runner::JobState;
use crate::bucket::StorageError;
use crate::ingest::IngestError;
use crate::store::embedded::CompactError;

/// The longest rest after a step in the background.
const REST_MAX: Duration = Duration::from_secs(5);

/// A background task that works in bounded steps. It may be stopped at any await, so that each run must be able to continue
/// what an earlier one left.
pub trait Job: Send + 'static {
    /// The name in URLs, commands, metrics and logs.
    const NAME: &'static str;

    /// The wait between two runs; `None` if the job runs only on demand.
    fn interval(&self) -> Option<Duration>;

    /// Returns true if the job should run before its interval has passed. Asked twice per second.
    fn is_due(&mut self) -> bool {
        false
    }

    /// Runs once. It reports how much it did through [`Run::count`], and rests after each step ([`Run::rest`]). If something
    /// has to wait for others, it returns the time until the next run, for the case that this is before the interval ends.
    fn run(&mut self, run: &Run) -> impl Future<Output = Result<Option<Duration>, JobError>> + Send;
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error(transparent)]
    Store(#[from] StorageError),
    #[error(transparent)]
    Ingest(#[from] IngestError),
    #[error(transparent)]
    Compact(#[from] CompactError),
}

impl JobError {
    fn of_store(&self) -> Option<&StorageError> {
        match self {
            Self::Store(error) | Self::Ingest(IngestError::Storage(error)) => Some(error),
            Self::Ingest(_) | Self::Compact(_) => None,
        }
    }

    /// Returns true if the cause ends by itself: another writer was faster, or the store is away, which others report.
    pub fn is_passing(&self) -> bool {
        self.of_store().is_some_and(|error| error.is_away() || error.is_transient())
    }
}

/// The run under way.
#[derive(Debug, Clone)]
pub struct Run {
    pub(super) state: Arc<JobState>,
    /// Somebody waits for it.
    pub is_asked: bool,
}

impl Run {
    /// Adds to a counter of the status.
    pub fn count(&self, name: &'static str, more: u64) {
        self.state.update(|status| *status.progress.entry(name).or_default() += more);
    }

    /// Sets a figure of the status.
    pub fn set(&self, name: &'static str, figure: u64) {
        self.state.update(|status| {
            status.progress.insert(name, figure);
        });
    }

    /// Sets how much is known to be left to do; `None` if that is not known.
    pub fn set_left(&self, left: Option<u64>) {
        self.state.update(|status| status.left = left);
    }

    /// Sets a remark for people who asked for the run.
    pub fn note(&self, note: Option<String>) {
        self.state.update(|status| status.note = note);
    }

    /// Leaves the store to flushes and queries for as long as the job had it since `began`, unless somebody waits for the run.
    pub async fn rest(&self, began: Instant) {
        if !self.is_asked {
            tokio::time::sleep(began.elapsed().min(REST_MAX)).await;
        }
    }
}
