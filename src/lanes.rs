//! The lanes: three runtimes, so that no request can stop another one.
//!
//! | lane | runs |
//! |---|---|
//! | io | connections, heads, bodies, parsing of at most [`SMALL_BODY_BYTES`], the WAL, shards, flushes, deletions, timers, health |
//! | bulk | decompression, parsing and validation of larger bodies, imports of metadata, changes of settings |
//! | query | queries from planning to compression, the filters of the tail, the jobs of `upkeep` |
//!
//! Threads of bulk and query have a lower priority than those of io. A loop that never ends in one of them slows its own
//! lane only.

use std::cell::Cell;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::ops::RangeInclusive;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hourglass_base::blocking::{LONG_STEP, cpu_time};
use parking_lot::Mutex;
use rustix::process::{getpriority_process, setpriority_process};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::OwnedMutexGuard;
use tokio::task::{JoinError, JoinHandle};
use tracing::{Instrument, Span};

use crate::telemetry::Metrics;

/// Maximum size of a body that io parses, in bytes after decompression.
pub const SMALL_BODY_BYTES: usize = 64 << 10;
/// Time after which a loop lets other tasks run.
const SLICE: Duration = Duration::from_millis(4);
/// Maximum number of blocking threads of io. Query has half of them, and bulk a quarter.
const BLOCKING: RangeInclusive<usize> = 4..=64;
/// The share of `server.memory` for each of them. The allocator keeps a few MiB of freed memory for each.
const MEMORY_PER_THREAD: usize = 32 << 20;
/// The `server.memory` below which bulk and query have one worker each.
const FEW_WORKERS_BELOW: usize = 256 << 20;
/// Address space of a stack in the lane of queries. Expressions of a query are walked recursively, at most 1,000 levels.
const QUERY_STACK_BYTES: usize = 8 << 20;
/// Nice values above that of the process. A higher value is a lower priority.
const NICE_BULK: i32 = 5;
const NICE_QUERY: i32 = 10;
/// The lowest priority of Linux.
const NICE_MAX: i32 = 19;

/// A runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    Io,
    Bulk,
    Query,
}

thread_local! {
    /// The lane of this thread.
    static CURRENT: Cell<Lane> = const { Cell::new(Lane::Io) };
}

impl Lane {
    /// The lane whose thread runs this code.
    #[must_use]
    pub fn current() -> Self {
        CURRENT.get()
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::Bulk => "bulk",
            Self::Query => "query",
        }
    }
}

/// The runtimes. Shut them down outside of any of them.
#[derive(Debug)]
pub struct LaneRuntimes {
    io: Runtime,
    bulk: Runtime,
    query: Runtime,
}

impl LaneRuntimes {
    /// Starts the threads of a process that may use `memory` bytes.
    ///
    /// # Errors
    /// If the system has no threads left.
    pub fn start(memory: usize) -> std::io::Result<Self> {
        let blocking = (memory / MEMORY_PER_THREAD).clamp(*BLOCKING.start(), *BLOCKING.end());
        let workers = (memory < FEW_WORKERS_BELOW).then_some(1);
        Ok(Self {
            io: runtime(Lane::Io, None, blocking, 0)?,
            bulk: runtime(Lane::Bulk, workers, blocking / 4, NICE_BULK)?,
            query: runtime(Lane::Query, workers, blocking / 2, NICE_QUERY)?,
        })
    }

    /// Runs a future on io, with the other lanes at hand.
    pub fn block_on<T, F: Future<Output = T>>(&self, work: impl FnOnce(Lanes) -> F) -> T {
        let [io, bulk, query] = [&self.io, &self.bulk, &self.query].map(|runtime| runtime.handle().clone());
        self.io.block_on(work(Lanes { io, bulk, query, metrics: None }))
    }

    /// Ends all tasks. Threads that are blocked after `timeout` are left behind.
    pub fn shut_down(self, timeout: Duration) {
        self.query.shutdown_timeout(timeout);
        self.bulk.shutdown_timeout(timeout);
        self.io.shutdown_timeout(timeout);
    }
}

/// `workers` is the number of threads that run tasks; without it, there is one per core.
fn runtime(lane: Lane, workers: Option<usize>, blocking: usize, nice: i32) -> std::io::Result<Runtime> {
    let prepare = move || {
        CURRENT.set(lane);
        // A lower priority is always allowed. Without it, only latency under load suffers.
        if nice > 0
            && let Ok(own) = getpriority_process(None)
        {
            let _ = setpriority_process(None, (own + nice).min(NICE_MAX));
        }
    };
    let mut builder = Builder::new_multi_thread();
    if let Some(workers) = workers {
        builder.worker_threads(workers);
    }
    if lane == Lane::Query {
        builder.thread_stack_size(QUERY_STACK_BYTES);
    }
    builder.enable_all().thread_name(lane.name()).max_blocking_threads(blocking).on_thread_start(prepare);
    builder.build()
}

/// Passes work to the lanes.
#[derive(Debug, Clone)]
pub struct Lanes {
    io: Handle,
    bulk: Handle,
    query: Handle,
    metrics: Option<Metrics>,
}

impl Lanes {
    /// All lanes are the current runtime, for tests.
    #[must_use]
    pub fn current() -> Self {
        let [io, bulk, query] = [(); 3].map(|()| Handle::current());
        Self { io, bulk, query, metrics: None }
    }

    /// Counts long polls from now on.
    #[must_use]
    pub fn with_metrics(self, metrics: Metrics) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Starts a task in a lane, in the current span.
    pub fn spawn<F>(&self, lane: Lane, work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        match lane {
            Lane::Io => self.io.spawn(work),
            Lane::Bulk => self.bulk.spawn(measured(lane, self.metrics.clone(), work).in_current_span()),
            Lane::Query => self.query.spawn(measured(lane, self.metrics.clone(), work).in_current_span()),
        }
    }

    /// Runs work in a lane, in the current span, whose field `lane` it sets. If the returned future is dropped, the work
    /// ends at its next await.
    pub async fn run<F>(&self, lane: Lane, work: F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        Span::current().record("lane", lane.name());
        if lane == Lane::current() {
            return work.await;
        }
        let mut task = AbortOnDrop(self.spawn(lane, work));
        match (&mut task.0).await {
            Ok(output) => output,
            Err(error) => match JoinError::try_into_panic(error) {
                Ok(panic) => resume_unwind(panic),
                // The runtime is shutting down, so this future is about to be dropped too.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

/// The time since a task last let others of its lane run.
pub struct Slice(Instant);

impl Slice {
    #[must_use]
    pub fn begin() -> Self {
        Self(Instant::now())
    }

    /// Lets other tasks run if this one has run for [`SLICE`]. Call it about every millisecond.
    pub async fn pause(&mut self) {
        if self.0.elapsed() >= SLICE {
            tokio::task::yield_now().await;
            *self = Self::begin();
        }
    }
}

/// Turns by name, such as one per database.
#[derive(Debug, Default)]
pub struct Turns(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    /// Waits for the turn of a name, which lasts until the guard is dropped.
    pub async fn wait(&self, name: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock();
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(name.to_owned()).or_default().clone()
        };
        turn.lock_owned().await
    }
}

struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Counts the polls of a future that take too long.
async fn measured<F: Future>(lane: Lane, metrics: Option<Metrics>, work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|context| {
        let before = cpu_time();
        let polled = work.as_mut().poll(context);
        let took = cpu_time().saturating_sub(before);
        if took > LONG_STEP {
            if let Some(metrics) = &metrics {
                metrics.count_long_poll(lane.name());
            }
            tracing::debug!(lane = lane.name(), seconds = took.as_secs_f64(), "long poll");
        }
        polled
    })
    .await
}
