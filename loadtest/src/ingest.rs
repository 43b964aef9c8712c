//! Loads a running hourglass as fast as possible, and reports the rate, the latencies and the servers' CPU time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Args;

use crate::bodies::Fleet;
use crate::client::Connection;
use crate::process;
use crate::sending::{Sent, post_all};
use crate::stats::{percentile_ms, to_f64};

/// Write readings of a fleet of sensors in time order.
#[derive(Debug, Args)]
pub struct Ingest {
    /// The address of hourglass.
    #[arg(long, default_value = "127.0.0.1:8086")]
    target: String,
    /// The database to write to.
    #[arg(long, default_value = "loadtest")]
    db: String,
    /// Number of sensors, each with two fields.
    #[arg(long, default_value_t = 1000)]
    sensors: usize,
    /// Total number of readings.
    #[arg(long, default_value_t = 2_000_000)]
    readings: usize,
    /// Seconds between two readings of a sensor.
    #[arg(long, default_value_t = 60)]
    interval: i64,
    /// Lines per POST.
    #[arg(long, default_value_t = 5000)]
    lines: usize,
    /// Number of connections, each with one POST at a time.
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// What an ack promises: "log" or "store".
    #[arg(long, default_value = "log")]
    ack: String,
    /// Process ids of the server and of mongod, to report their CPU time.
    #[arg(long, value_delimiter = ',')]
    pids: Vec<u32>,
    /// Maximum time for the whole run, in seconds.
    #[arg(long, default_value_t = 600)]
    timeout: u64,
}

pub async fn run(options: Ingest) -> Result<()> {
    let limit = Duration::from_secs(options.timeout);
    tokio::time::timeout(limit, ingest(&options)).await.context("the run took longer than --timeout")?
}

async fn ingest(options: &Ingest) -> Result<()> {
    ensure!(options.lines > 0 && options.connections > 0 && options.sensors > 0, "nothing to send");
    let fleet = Fleet { sensors: options.sensors, interval_s: options.interval };
    let bodies = Arc::new(fleet.bodies(options.readings, options.lines));
    let bytes: usize = bodies.iter().map(|body| body.len()).sum();
    println!("{} readings in {} POSTs, {} MB of line protocol", options.readings, bodies.len(), bytes / 1_000_000);
    let path = format!("/write?db={}&ack={}", options.db, options.ack);
    let cpu_before = process::cpu_seconds(&options.pids)?;
    let started = Instant::now();
    let sent = post_all(&options.target, &path, &bodies, options.connections).await?;
    report(options, &sent);
    Connection::open(&options.target).await?.deliver("/api/v1/flush", Bytes::new()).await?;
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

fn report(options: &Ingest, sent: &Sent) {
    let seconds = sent.took.as_secs_f64();
    let [p50, p90, p99, max] = [50, 90, 99, 100].map(|percent| percentile_ms(&sent.latencies, percent));
    println!(
        "{seconds:.2} s, {:.0} readings/s acked over {} connections",
        to_f64(options.readings) / seconds,
        options.connections
    );
    println!("ack ms: p50 {p50:.1}, p90 {p90:.1}, p99 {p99:.1}, max {max:.1}");
    if sent.refused > 0 {
        println!("{} POSTs were answered 503 and sent again", sent.refused);
    }
}
