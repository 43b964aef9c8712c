//! Measures the cost of listeners (`GET /api/v1/tail`) and their delay. Many clients listen in turn during writes,
//! compared with a server without listeners. The delay is the time from the ack of a reading to its arrival.

mod churn;
mod delay;
mod listener;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use clap::Args;
use tokio::task::JoinHandle;

use crate::fleet::float;
use crate::load::open::{LoadResult, OpenLoop};
use crate::report::{Output, Results};
use crate::scenario::Span;
use crate::servers::peer::{Peer, hourglass_peer};
use crate::servers::programs::ProgramOptions;
use crate::servers::system::{Configuration, System};

/// Number of connections of the writers.
const CONNECTIONS: usize = 8;
/// Number of sensors of the writers.
const SENSORS: i64 = 1000;

/// Measure the cost of live listeners for writers, and the delay of readings.
#[derive(Debug, Args)]
pub struct Listeners {
    /// The hourglass to measure.
    #[arg(long, value_parser = hourglass_peer(), default_value = "hourglass-embedded")]
    peer: Peer,
    /// Number of clients that listen in turn.
    #[arg(long, default_value_t = 10_000)]
    clients: usize,
    /// Number of clients that listen at the same time (tail.clients of the server).
    #[arg(long, default_value_t = 64)]
    at_once: usize,
    /// Readings per second that are written meanwhile.
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    /// Readings per POST.
    #[arg(long, default_value_t = 10)]
    lines: i64,
    /// Number of rounds with listeners, each followed by one without.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Duration of a round.
    #[arg(long, default_value = "15s")]
    round: Span,
    #[command(flatten)]
    programs: ProgramOptions,
    #[command(flatten)]
    output: Output,
}

/// Measures everything. Fails if a target is missed.
pub async fn run(options: Listeners) -> Result<()> {
    let Listeners { clients, at_once, rate, lines, rounds, round, .. } = &options;
    ensure!(*clients > 0 && *at_once > 0 && *rate > 0 && *lines > 0 && *rounds > 0, "every number must be above 0");
    ensure!(!round.0.is_zero(), "--round must not be 0");
    let programs = options.programs.programs();
    let variables = vec![
        ("HOURGLASS_TAIL_CLIENTS", at_once.to_string()),
        ("HOURGLASS_SERVER_CONNECTIONS_PER_ADDRESS", "65536".to_owned()),
    ];
    let configuration = Configuration { variables, file: "" };
    let start = || System::start_with(options.peer, &programs, &options.programs.folder, configuration.clone());
    let mut results = Results::new();
    results.systems.push(options.peer.row(&programs, "")?);
    // A server keeps filling its ring for a minute after the last listener has left, so the rounds without listeners
    // use a server of their own.
    let mut without_listeners = start().await?;
    let mut with_listeners = start().await?;
    let mut faults = churn::measure(&options, &without_listeners, &with_listeners, &mut results)
        .await
        .context("listeners in turn")?;
    without_listeners.stop()?;
    faults.extend(delay::measure(&options, &with_listeners, &mut results).await.context("delay of readings")?);
    with_listeners.stop()?;
    results.finish(&options.output)?;
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("; ")) }
}

/// Writes in the background, until they are ended.
struct BackgroundWrites {
    is_over: Arc<AtomicBool>,
    sending: JoinHandle<Result<LoadResult>>,
}

impl BackgroundWrites {
    /// Begins to send readings without timestamps, like a device without a clock.
    fn start(options: &Listeners, system: &System<'_>) -> Result<Self> {
        let lines = options.lines;
        let open_loop = OpenLoop {
            target: system.address()?.to_owned(),
            path: "/write?db=bench".to_owned(),
            connections: CONNECTIONS,
            rate: f64::from(options.rate) / float(lines),
            duration: Duration::from_secs(86_400),
            reconnect_every: None,
        };
        let is_over = Arc::new(AtomicBool::new(false));
        let is_running = is_over.clone();
        let bodies =
            (0..).map(move |post| body(post * lines, lines)).take_while(move |_| !is_running.load(Ordering::Relaxed));
        Ok(Self { is_over, sending: open_loop.start(bodies) })
    }

    async fn end(mut self) -> Result<LoadResult> {
        self.is_over.store(true, Ordering::Relaxed);
        (&mut self.sending).await?
    }
}

impl Drop for BackgroundWrites {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn body(first: i64, lines: i64) -> Bytes {
    let line = |number: i64| {
        let temp = 2000 + number % 900;
        let humidity = 30 + number % 60;
        format!("climate,sensor=s{:04} temp={}.{:02},humidity={humidity}\n", number % SENSORS, temp / 100, temp % 100)
    };
    (first..first + lines).map(line).collect::<String>().into()
}
