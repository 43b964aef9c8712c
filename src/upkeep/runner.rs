//! The runner: schedule, pacing, retries, runs on demand, status, metrics and logging of all jobs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::job::{Job, JobError, Run};
use crate::clock::now_ns;
use crate::lanes::{Lane, Lanes};
use crate::telemetry::Metrics;

/// The interval at which waiting jobs are checked for being due.
const TICK: Duration = Duration::from_millis(500);
/// The wait before the first retry after a passing failure ([`JobError::is_passing`]). It doubles with each failure.
const RETRY_PASSING: Duration = Duration::from_secs(1);
/// The wait before the first retry after any other failure. It doubles with each failure.
const RETRY: Duration = Duration::from_secs(10);
/// The maximum wait before a retry. The job's interval also limits it, but not below [`RETRY_PASSING`].
const RETRY_MAX: Duration = Duration::from_secs(60);

/// All jobs of this process. They stop on drop.
#[derive(Debug)]
pub struct Jobs {
    lanes: Lanes,
    metrics: Metrics,
    jobs: Vec<Arc<JobState>>,
    tasks: Vec<JoinHandle<()>>,
}

/// The state of a job, shared by the runner and by callers that request its status or a run.
#[derive(Debug)]
pub struct JobState {
    pub name: &'static str,
    status: Mutex<JobStatus>,
    wake: tokio::sync::Notify,
    runs: watch::Sender<Runs>,
}

#[derive(Debug, Default)]
struct Runs {
    /// The number of runs that have begun.
    begun: u64,
    /// The number of runs that have ended.
    ended: u64,
    /// True if the next run was requested.
    is_asked: bool,
}

/// The status of a job, for display.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobStatus {
    /// Counters since the start of the process, and figures of the last run.
    pub progress: BTreeMap<&'static str, u64>,
    /// The amount of work that is left, if it is known.
    pub left: Option<u64>,
    /// A remark on the last run.
    pub note: Option<String>,
    /// The end of the last successful run, in nanoseconds since the epoch.
    pub last_success: Option<i64>,
    /// The error of the last run, if it failed.
    pub last_error: Option<String>,
    /// An error that does not pass by itself, or work that the last run could not do. A person should look at it.
    pub problem: Option<String>,
    /// The time of the next scheduled run, in nanoseconds since the epoch. `None` without a schedule.
    pub next_run: Option<i64>,
}

impl JobState {
    fn new(name: &'static str) -> Self {
        Self { name, status: Mutex::default(), wake: tokio::sync::Notify::new(), runs: watch::Sender::default() }
    }

    #[must_use]
    pub fn status(&self) -> JobStatus {
        self.status.lock().clone()
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut JobStatus)) {
        change(&mut self.status.lock());
    }

    /// Returns true during a run.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let runs = self.runs.borrow();
        runs.begun > runs.ended
    }

    /// Requests a run. Returns its number, for [`JobState::wait`].
    #[must_use]
    pub fn ask(&self) -> u64 {
        let mut next = 0;
        self.runs.send_modify(|runs| {
            runs.is_asked = true;
            next = runs.begun + 1;
        });
        self.wake.notify_one();
        next
    }

    /// Waits for the end of a run, at most `longest`. Returns true if it has ended.
    pub async fn wait(&self, run: u64, longest: Duration) -> bool {
        let mut runs = self.runs.subscribe();
        let ended = runs.wait_for(|runs| runs.ended >= run);
        tokio::time::timeout(longest, ended).await.is_ok_and(|ended| ended.is_ok())
    }

    /// Waits until a run is due or requested. Returns true if it was requested.
    async fn next(&self, pause: Option<Duration>, mut is_due: impl FnMut() -> bool) -> bool {
        let began = Instant::now();
        let pause_ns = pause.map(|pause| i64::try_from(pause.as_nanos()).unwrap_or(i64::MAX));
        let next_run = pause_ns.map(|pause_ns| now_ns().saturating_add(pause_ns));
        self.update(|status| status.next_run = next_run);
        while !is_due() {
            let left = pause.map(|pause| pause.saturating_sub(began.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            let tick = left.unwrap_or(TICK).min(TICK);
            if tokio::time::timeout(tick, self.wake.notified()).await.is_ok() {
                break;
            }
        }
        let mut is_asked = false;
        self.runs.send_modify(|runs| {
            runs.begun += 1;
            is_asked = std::mem::take(&mut runs.is_asked);
        });
        is_asked
    }

    fn end(&self, error: Option<&JobError>, problem: Option<String>) {
        let error_text = error.map(ToString::to_string);
        self.update(|status| {
            match error {
                None => {
                    status.last_success = Some(now_ns());
                    status.problem = problem;
                }
                Some(error) if error.is_passing() => {}
                Some(_) => status.problem.clone_from(&error_text),
            }
            status.last_error = error_text;
        });
        self.runs.send_modify(|runs| runs.ended += 1);
    }
}

impl Jobs {
    #[must_use]
    pub fn new(lanes: Lanes, metrics: Metrics) -> Self {
        Self { lanes, metrics, jobs: Vec::new(), tasks: Vec::new() }
    }

    /// Runs a job until `self` is dropped.
    pub fn add<J: Job>(&mut self, job: J) {
        let state = Arc::new(JobState::new(J::NAME));
        self.metrics.job_added(J::NAME);
        self.jobs.push(state.clone());
        self.tasks.push(self.lanes.spawn(Lane::Query, run(job, state, self.metrics.clone())));
    }

    #[must_use]
    pub fn states(&self) -> &[Arc<JobState>] {
        &self.jobs
    }

    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<JobState>> {
        self.jobs.iter().find(|job| job.name == name)
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn run<J: Job>(mut job: J, state: Arc<JobState>, metrics: Metrics) {
    let mut pause = job.interval();
    let mut failures = 0;
    loop {
        let is_asked = state.next(pause, || failures == 0 && job.is_due()).await;
        let began = Instant::now();
        let this_run = Run { state: state.clone(), is_asked, problem: Arc::default() };
        let outcome = job.run(&this_run).await;
        let interval = job.interval();
        pause = match &outcome {
            Ok(again) => interval.map(|interval| again.unwrap_or(interval).min(interval)),
            Err(error) => interval.map(|interval| retry_after(error, failures, interval)),
        };
        failures = if outcome.is_ok() { 0 } else { failures + 1 };
        metrics.job_ended(J::NAME, began.elapsed(), outcome.is_ok());
        let error = outcome.err();
        // Log only the first of several failures. Requests report a store that is away.
        if let Some(error) = error.as_ref().filter(|error| failures == 1 && !error.is_passing()) {
            tracing::warn!(job = J::NAME, %error, "job failed; retrying");
        }
        state.end(error.as_ref(), this_run.problem.lock().take());
    }
}

fn retry_after(error: &JobError, failures: u32, interval: Duration) -> Duration {
    let first = if error.is_passing() { RETRY_PASSING } else { RETRY };
    first.saturating_mul(1 << failures.min(8)).min(RETRY_MAX).min(interval.max(RETRY_PASSING))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::StorageError;

    fn away() -> JobError {
        StorageError::Unavailable("away".to_owned()).into()
    }

    /// Runs only on demand; its second run fails.
    #[derive(Default)]
    struct Steps {
        runs: u32,
    }

    impl Job for Steps {
        const NAME: &'static str = "steps";

        fn interval(&self) -> Option<Duration> {
            None
        }

        async fn run(&mut self, run: &Run) -> Result<Option<Duration>, JobError> {
            run.count("steps", 3);
            self.runs += 1;
            if self.runs == 2 { Err(away()) } else { Ok(None) }
        }
    }

    #[tokio::test]
    async fn runs_count_steps_and_report_failures() {
        let mut jobs = Jobs::new(Lanes::current(), Metrics::new("toy", "embedded").expect("metrics"));
        jobs.add(Steps::default());
        assert!(jobs.find("others").is_none());
        let job = jobs.find("steps").expect("added").clone();
        for (run, error) in [(1, None), (2, Some("away")), (3, None)] {
            assert_eq!(job.ask(), run);
            assert!(job.wait(run, Duration::from_secs(60)).await && !job.is_running());
            let status = job.status();
            assert_eq!(status.progress["steps"], 3 * run);
            assert_eq!(status.last_error.is_some(), error.is_some(), "{status:?}");
            assert!(status.last_success.is_some() && status.next_run.is_none());
        }
    }

    #[tokio::test]
    async fn who_asks_during_a_run_waits_for_the_next_one() {
        let state = JobState::new("one");
        let first = state.ask();
        assert!(state.next(None, || false).await);
        let second = state.ask();
        assert!(second > first && state.is_running());
        state.end(None, None);
        assert!(state.wait(first, Duration::ZERO).await && !state.wait(second, Duration::ZERO).await);
        assert!(state.next(None, || false).await);
        state.end(Some(&away()), None);
        assert!(state.wait(second, Duration::ZERO).await);
        let success = state.status().last_success;
        assert!(success.is_some() && state.status().last_error.is_some());
        assert!(!state.next(Some(Duration::ZERO), || false).await, "the run was not requested");
        state.end(None, None);
        assert!(!state.next(None, || true).await, "it was due");
    }

    /// Regression: expiry of a database stopped at one unreadable part, and `/health` did not say so.
    #[test]
    fn a_problem_is_shown_until_a_run_ends_without_one() {
        let state = JobState::new("one");
        let refused = JobError::from(StorageError::Refused("too large".to_owned()));
        let problem_after = |error: Option<&JobError>, reported: Option<&str>| {
            state.end(error, reported.map(str::to_owned));
            state.status().problem
        };
        assert_eq!(problem_after(Some(&away()), None), None);
        let shown = problem_after(Some(&refused), None);
        assert!(shown.as_ref().is_some_and(|text| text.contains("too large")), "{shown:?}");
        assert_eq!(problem_after(Some(&away()), None), shown, "that the store is away changes nothing");
        assert_eq!(problem_after(None, Some("2 days")).as_deref(), Some("2 days"));
        assert_eq!(problem_after(None, None), None);
    }

    #[test]
    fn retries_are_rarer_with_each_failure() {
        let refused = || JobError::from(StorageError::Refused(String::new()));
        let hour = Duration::from_secs(3600);
        let waits = |error: &JobError| [0, 1, 2, 3, 100].map(|failures| retry_after(error, failures, hour).as_secs());
        assert_eq!(waits(&away()), [1, 2, 4, 8, 60]);
        assert_eq!(waits(&refused()), [10, 20, 40, 60, 60]);
        assert_eq!(retry_after(&refused(), 5, Duration::from_secs(30)).as_secs(), 30);
        assert_eq!(retry_after(&refused(), 0, Duration::from_millis(10)).as_secs(), 1);
    }
}
