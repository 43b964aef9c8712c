//! Load for hourglass: bodies made beforehand, several connections that each send the next one as
//! soon as the last was acked, and at the end the rate, the latencies and the server's CPU time.
//! Talks to the address it is given and ends by itself.

mod bodies;
mod client;
mod process;

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
    /// Process ids whose CPU time is reported: the server's, and mongod's.
    #[arg(long, value_delimiter = ',')]
    pids: Vec<u32>,
    /// Longest time for the whole run, in seconds.
    #[arg(long, default_value_t = 600)]
    timeout: u64,
}

fn main() -> Result<()> {
    let Command::Ingest(options) = Arguments::parse().command;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let limit = Duration::from_secs(options.timeout);
        tokio::time::timeout(limit, ingest(options)).await.context("the run took longer than --timeout")?
    })
}

async fn ingest(options: Ingest) -> Result<()> {
    ensure!(options.lines > 0 && options.connections > 0 && options.sensors > 0, "nothing to send");
    let fleet = Fleet { sensors: options.sensors, interval_s: options.interval };
    let bodies = Arc::new(fleet.bodies(options.readings, options.lines));
    let bytes: usize = bodies.iter().map(|body| body.len()).sum();
    println!("{} readings in {} POSTs, {} MB of line protocol", options.readings, bodies.len(), bytes / 1_000_000);
    let path = format!("/write?db={}", options.db);
    let cpu_before = process::cpu_seconds(&options.pids)?;
    let next = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let mut senders = Vec::new();
    for _ in 0..options.connections {
        let connection = Connection::open(&options.target).await?;
        senders.push(tokio::spawn(send_all(connection, path.clone(), bodies.clone(), next.clone())));
    }
    let mut latencies = Vec::with_capacity(bodies.len());
    for sender in senders {
        latencies.extend(sender.await??);
    }
    let seconds = started.elapsed().as_secs_f64();
    report(&options, seconds, latencies);
    for (pid, (before, after)) in options.pids.iter().zip(cpu_before.iter().zip(process::cpu_seconds(&options.pids)?)) {
        let cpu = after - before;
        let resident = process::resident_mib(*pid)?;
        let per_reading = cpu * 1e6 / to_f64(options.readings);
        println!("process {pid}: {cpu:.2} s CPU, {per_reading:.2} us per reading, peak resident {resident} MiB");
    }
    Ok(())
}

async fn send_all(
    mut connection: Connection,
    path: String,
    bodies: Arc<Vec<bytes::Bytes>>,
    next: Arc<AtomicUsize>,
) -> Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    while let Some(body) = bodies.get(next.fetch_add(1, Ordering::Relaxed)) {
        let sent = Instant::now();
        let (status, answer) = connection.post(&path, body.clone()).await?;
        if status != 204 {
            bail!("answered {status}: {answer}");
        }
        latencies.push(sent.elapsed());
    }
    Ok(latencies)
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
