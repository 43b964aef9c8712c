//! The trait of jobs, and the interface of the runner for them.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::runner::JobState;
use crate::bucket::StorageError;
use crate::ingest::IngestError;
use crate::store::embedded::CompactError;

/// The longest rest after a step in the background.
const REST_MAX: Duration = Duration::from_secs(5);

/// A background task that works in bounded steps. It may be stopped at any await, so a run must be able to continue the
/// work of an interrupted one.
pub trait Job: Send + 'static {
    /// The name in URLs, commands, metrics and logs.
    const NAME: &'static str;

    /// Returns the wait between two runs, or `None` if the job runs only on demand.
    fn interval(&self) -> Option<Duration>;

    /// Returns true if the job should run before its interval has passed. Called twice per second.
    fn is_due(&mut self) -> bool {
        false
    }

    /// Runs once. Reports progress through [`Run::count`], and rests after each step ([`Run::pause`]). May return an
    /// earlier time than the interval until the next run, if some work has to wait for other parts.
    fn run(&mut self, run: &Run) -> impl Future<Output = Result<Option<Duration>, JobError>> + Send;
}

/// An error of a run.
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
    fn store_error(&self) -> Option<&StorageError> {
        match self {
            Self::Store(error) | Self::Ingest(IngestError::Storage(error)) => Some(error),
            Self::Ingest(_) | Self::Compact(_) => None,
        }
    }

    /// Returns true if a retry can succeed without intervention: another writer was faster, or the store is away, which
    /// requests report.
    pub fn is_passing(&self) -> bool {
        self.store_error().is_some_and(|error| error.is_away() || error.is_transient())
    }
}

/// The current run of a job.
#[derive(Debug, Clone)]
pub struct Run {
    pub(super) state: Arc<JobState>,
    /// True if the run was requested, so that a caller may be waiting for it.
    pub is_asked: bool,
    pub(super) problem: Arc<Mutex<Option<String>>>,
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

    /// Sets the amount of work that is left, or `None` if it is unknown.
    pub fn set_left(&self, left: Option<u64>) {
        self.state.update(|status| status.left = left);
    }

    /// Sets a remark for the caller who requested the run.
    pub fn note(&self, note: Option<String>) {
        self.state.update(|status| status.note = note);
    }

    /// Reports work that this run could not do, so that a person should look at it. `/health` shows it. The log has it
    /// once, not for each run.
    pub fn report(&self, problem: String) {
        if self.state.status().problem.as_ref() != Some(&problem) {
            tracing::error!(job = self.state.name, problem, "job cannot do all of its work");
        }
        *self.problem.lock() = Some(problem);
    }

    /// Sleeps for as long as the step has taken since `began`, so that flushes and queries get half of the store's
    /// time. Does not sleep in a requested run.
    pub async fn pause(&self, began: Instant) {
        if !self.is_asked {
            tokio::time::sleep(began.elapsed().min(REST_MAX)).await;
        }
    }
}
