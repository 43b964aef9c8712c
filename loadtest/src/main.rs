//! Load for hourglass: bodies made beforehand, several connections that each send the next one as
//! soon as the last was acked, and at the end the rate, the latencies and the server's CPU time. Talks to
//! the address it is given and ends by itself. And questions, to hourglass and to others.

mod bodies;
mod client;
mod process;
mod queries;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Parser, Subcommand};

use bodies::Fleet;
use client::Connection;

/// Sends load to a running hourglass and says how fast it was.
#[derive(Debug, Parser)]
#[command(name = "hourglass-loadtest", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write readings of a fleet of sensors in time order, many lines per POST.
    Ingest(Ingest),
    /// Ask hourglass, InfluxDB, VictoriaMetrics and MongoDB's own time-series collections the same questions.
    Queries(queries::Queries),
}

#[derive(Debug, Args)]
struct Ingest {
    /// Where hourglass listens.
    #[arg(long, default_value = "127.0.0.1:8086")]
    target: String,
    /// The database to write to.
    #[arg(long, default_value = "loadtest")]
    db: String,
    /// Sensors, each with two fields.
    #[arg(long, default_value_t = 1000)]
    sensors: usize,
    /// Readings in all.
    #[arg(long, default_value_t = 2_000_000)]
    readings: usize,
    /// Seconds between two readings of a sensor.
    #[arg(long, default_value_t = 60)]
    interval: i64,
    /// Lines per POST.
    #[arg(long, default_value_t = 5000)]
    lines: usize,
    /// Connections, each with one POST under way.
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// What an ack promises: "log" or "store".
    #[arg(long, default_value = "log")]
    ack: String,
    /// Process ids whose CPU time is reported: the server's, and mongod's.
    #[arg(long, value_delimiter = ',')]
    pids: Vec<u32>,
    /// Longest time for the whole run, in seconds.
    #[arg(long, default_value_t = 600)]
    timeout: u64,
}

/// How long a refused POST waits before it is sent again.
const BACK_OFF: Duration = Duration::from_millis(50);

fn main() -> Result<()> {
    let command = Arguments::parse().command;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::Ingest(options) => {
                let limit = Duration::from_secs(options.timeout);
                tokio::time::timeout(limit, ingest(options)).await.context("the run took longer than --timeout")?
            }
            Command::Queries(options) => queries::run(options).await,
        }
    })
}

async fn ingest(options: Ingest) -> Result<()> {
    ensure!(options.lines > 0 && options.connections > 0 && options.sensors > 0, "nothing to send");
    let fleet = Fleet { sensors: options.sensors, interval_s: options.interval };
    let bodies = Arc::new(fleet.bodies(options.readings, options.lines));
    let bytes: usize = bodies.iter().map(|body| body.len()).sum();
    println!("{} readings in {} POSTs, {} MB of line protocol", options.readings, bodies.len(), bytes / 1_000_000);
    let path = format!("/write?db={}&ack={}", options.db, options.ack);
    let cpu_before = process::cpu_seconds(&options.pids)?;
    let next = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let mut senders = Vec::new();
    for _ in 0..options.connections {
        let connection = Connection::open(&options.target).await?;
        senders.push(tokio::spawn(send_all(connection, path.clone(), bodies.clone(), next.clone())));
    }
    let (mut latencies, mut refused) = (Vec::with_capacity(bodies.len()), 0);
    for sender in senders {
        let sent = sender.await??;
        latencies.extend(sent.latencies);
        refused += sent.refused;
    }
    report(&options, started.elapsed().as_secs_f64(), latencies);
    if refused > 0 {
        println!("{refused} POSTs were answered 503 and sent again");
    }
    drain(&options.target).await?;
    let seconds = started.elapsed().as_secs_f64();
    println!("{seconds:.2} s until all of it was in the store, {:.0} readings/s", to_f64(options.readings) / seconds);
    for (pid, (before, after)) in options.pids.iter().zip(cpu_before.iter().zip(process::cpu_seconds(&options.pids)?)) {
        let cpu = after - before;
        let resident = process::resident_mib(*pid)?;
        let per_reading = cpu * 1e6 / to_f64(options.readings);
        println!("process {pid}: {cpu:.2} s CPU, {per_reading:.2} us per reading, peak resident {resident} MiB");
    }
    Ok(())
}

/// What a connection saw.
#[derive(Default)]
struct Sent {
    /// From the first try of a POST to its ack.
    latencies: Vec<Duration>,
    /// Answers that said to come back later.
    refused: usize,
}

async fn send_all(
    mut connection: Connection,
    path: String,
    bodies: Arc<Vec<bytes::Bytes>>,
    next: Arc<AtomicUsize>,
) -> Result<Sent> {
    let mut sent = Sent::default();
    while let Some(body) = bodies.get(next.fetch_add(1, Ordering::Relaxed)) {
        let started = Instant::now();
        loop {
            match connection.post(&path, body.clone()).await? {
                (204, _) => break,
                (503, _) => {
                    sent.refused += 1;
                    tokio::time::sleep(BACK_OFF).await;
                }
                (status, answer) => bail!("answered {status}: {answer}"),
            }
        }
        sent.latencies.push(started.elapsed());
    }
    Ok(sent)
}

/// Asks until everything that was acked is in the store.
async fn drain(target: &str) -> Result<()> {
    let mut connection = Connection::open(target).await?;
    loop {
        match connection.post("/api/v1/flush", bytes::Bytes::new()).await? {
            (204, _) => return Ok(()),
            (503, _) => tokio::time::sleep(BACK_OFF).await,
            (status, answer) => bail!("a flush was answered {status}: {answer}"),
        }
    }
}

fn report(options: &Ingest, seconds: f64, mut latencies: Vec<Duration>) {
    latencies.sort_unstable();
    let at = |percent: usize| latencies[(latencies.len() - 1) * percent / 100].as_secs_f64() * 1000.0;
    println!(
        "{seconds:.2} s, {:.0} readings/s acked over {} connections",
        to_f64(options.readings) / seconds,
        options.connections
    );
    println!("ack ms: p50 {:.1}, p90 {:.1}, p99 {:.1}, max {:.1}", at(50), at(90), at(99), at(100));
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn to_f64(count: usize) -> f64 {
    count as f64
}
