//! The load tester. `run` and `compare`: scenarios on a schedule, with latencies, resource usage, and a check that
//! nothing acked was lost. `ingest` and `growth`: maximum throughput, and how cost grows. `peers`, `queries`, `history`
//! and `prove`: the same load and the same queries for hourglass and other databases, also about days long over, and
//! whether these keep what they ack. `metadata` and `listeners`: what metadata of sensors and live listeners cost.

mod bodies;
mod client;
mod compare;
mod growth;
mod history;
mod ingest;
mod listeners;
mod metadata;
mod peers;
mod process;
mod prove;
mod queries;
mod report;
mod run;
mod sending;
mod servers;
mod stats;
mod verify;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Send load to hourglass and measure how fast it is.
#[derive(Debug, Parser)]
#[command(name = "hourglass-loadtest", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write readings of a fleet of sensors to a running hourglass, in time order, many lines per POST.
    Ingest(ingest::Ingest),
    /// Measure how cost grows with the number of sensors, readings per POST, connections and stored readings.
    Growth(growth::Growth),
    /// Write the same readings to hourglass, InfluxDB, VictoriaMetrics and MongoDB time-series collections.
    Peers(peers::Peers),
    /// Run the same queries on hourglass, InfluxDB, VictoriaMetrics and MongoDB time-series collections.
    Queries(queries::Queries),
    /// Load days that are long over, measure what they take on disk, and ask about them without caches.
    History(history::History),
    /// Give many sensors metadata, ask by it, and measure acks while its copies are refreshed.
    Metadata(metadata::Metadata),
    /// Test hourglass, InfluxDB, VictoriaMetrics and MongoDB time-series collections with kills, retries, corrections
    /// and late readings, and compare what they return with what they acked.
    Prove(prove::Prove),
    /// Let clients listen to readings as they are acked: what that costs those who write, and how soon they hear.
    Listeners(listeners::Listeners),
    /// Run a scenario on a schedule that does not wait for the server, and check its bounds.
    Run(Box<run::Run>),
    /// List the built-in scenarios.
    Scenarios,
    /// Compare results of `run`, and report changes beyond noise.
    Compare(compare::Compare),
}

fn main() -> ExitCode {
    match run_command(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_command(command: Command) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::Ingest(options) => ingest::run(options).await,
            Command::Growth(options) => growth::run(options).await,
            Command::Peers(options) => peers::run(options).await,
            Command::Queries(options) => queries::run(options).await,
            Command::History(options) => history::run(options).await,
            Command::Metadata(options) => metadata::run(options).await,
            Command::Prove(options) => prove::run(options).await,
            Command::Listeners(options) => listeners::run(options).await,
            Command::Run(options) => run::run(*options).await,
            Command::Scenarios => run::list(),
            Command::Compare(options) => compare::run(&options),
        }
    })
}
