//! The load tester.
//!
//! * `run`: a scenario on a schedule, and a check that nothing acked was lost
//! * `growth` and `peers`: maximum throughput and the growth of cost
//! * `queries`, `history` and `prove`: hourglass compared with other databases, by queries, old days and guarantees
//! * `metadata` and `listeners`: the cost of sensor metadata and of live listeners

mod client;
mod fleet;
mod listeners;
mod load;
mod metadata;
mod prove;
mod questions;
mod report;
mod run;
mod scenario;
mod servers;
mod stats;
mod throughput;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::questions::{history, queries};
use crate::servers::spawn::until_signal;
use crate::throughput::{growth, peers};

/// Send load to hourglass and measure how fast it is.
#[derive(Debug, Parser)]
#[command(name = "hourglass-loadtest", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a scenario on a schedule that does not wait for the server, and check its bounds.
    Run(Box<run::Run>),
    /// Write the same readings to hourglass, InfluxDB, VictoriaMetrics and MongoDB time-series collections.
    Peers(peers::Peers),
    /// Measure how cost grows with the number of sensors, readings per POST, connections and stored readings.
    Growth(growth::Growth),
    /// Run the same queries on hourglass, InfluxDB, VictoriaMetrics and MongoDB time-series collections.
    Queries(queries::Queries),
    /// Load past days, measure their size on disk, and query them without caches.
    History(history::History),
    /// Check that hourglass and others keep acked readings, with kills, retries, corrections and late readings.
    Prove(prove::Prove),
    /// Import metadata of many sensors, query by it, and measure acks while its copies are refreshed.
    Metadata(metadata::Metadata),
    /// Measure the cost of live listeners for writers, and the delay of readings.
    Listeners(listeners::Listeners),
    /// Print the tables of results, or compare several results of the same command.
    Show(report::Show),
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

/// Runs the command. Stops everything that it started, even after a signal.
fn run_command(command: Command) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(until_signal(async {
        match command {
            Command::Run(options) => run::run(*options).await,
            Command::Peers(options) => peers::run(options).await,
            Command::Growth(options) => growth::run(options).await,
            Command::Queries(options) => queries::run(options).await,
            Command::History(options) => history::run(options).await,
            Command::Prove(options) => prove::run(options).await,
            Command::Metadata(options) => metadata::run(options).await,
            Command::Listeners(options) => listeners::run(options).await,
            Command::Show(options) => report::show(&options),
        }
    }))
}
