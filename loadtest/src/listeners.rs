//! Measures what listeners (`GET /api/v1/tail`) cost and how soon they hear: many that come and go in turn while writes
//! go on, beside a server of its own that nobody listens to; and the time from a reading's ack to its arrival.

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
use crate::load::open::{Offered, OpenLoop};
use crate::report::{Output, Results};
use crate::scenario::Span;
use crate::servers::peer::Peer;
use crate::servers::programs::ProgramOptions;
use crate::servers::system::{Configuration, System};

/// Writers' connections, and the number of their sensors.
const CONNECTIONS: usize = 8;
const SENSORS: i64 = 1000;

/// Measure what live listeners cost those who write, and how soon they hear a reading.
#[derive(Debug, Args)]
pub struct Listeners {
    /// The hourglass to measure: hourglass-embedded or hourglass-mongodb.
    #[arg(long, default_value = "hourglass-embedded")]
    peer: Peer,
    /// How many clients listen in turn.
    #[arg(long, default_value_t = 10_000)]
    clients: usize,
    /// How many of them listen at the same time (tail.clients of the server).
    #[arg(long, default_value_t = 64)]
    at_once: usize,
    /// Readings per second that are written all the while.
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    /// Readings per POST.
    #[arg(long, default_value_t = 10)]
    lines: i64,
    /// Rounds with listeners; as many without are between them.
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
    ensure!(options.peer.is_hourglass(), "--peer must be hourglass-embedded or hourglass-mongodb");
    let programs = options.programs.programs();
    let variables = vec![
        ("HOURGLASS_TAIL_CLIENTS", at_once.to_string()),
        ("HOURGLASS_SERVER_CONNECTIONS_PER_ADDRESS", "65536".to_owned()),
    ];
    let configuration = Configuration { variables, file: "" };
    let start = || System::start_with(options.peer, &programs, &options.programs.folder, configuration.clone());
    let mut results = Results::new();
    results.systems.push(options.peer.row(&programs, "")?);
    // A server keeps filling its ring for a minute after the last listener has left. So the runs without listeners use a
    // server of their own.
    let mut alone = start().await?;
    let mut heard = start().await?;
    let mut faults =
        churn::measure(&options, &alone, &heard, &mut results).await.context("listeners that come and go")?;
    alone.stop()?;
    faults.extend(delay::measure(&options, &heard, &mut results).await.context("how soon they hear")?);
    heard.stop()?;
    results.finish(&options.output)?;
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("; ")) }
}

/// Writes that go on until they are ended.
struct Writing {
    is_over: Arc<AtomicBool>,
    sending: JoinHandle<Result<Offered>>,
}

impl Writing {
    /// Begins to send readings without timestamps, as of a device without a clock.
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

    async fn end(mut self) -> Result<Offered> {
        self.is_over.store(true, Ordering::Relaxed);
        (&mut self.sending).await?
    }
}

impl Drop for Writing {
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
