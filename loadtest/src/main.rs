//! The load tester. `run`: a scenario on a schedule, and a check that nothing acked was lost. `growth` and `peers`:
//! maximum throughput, and how cost grows. `queries`, `history` and `prove`: the same queries for hourglass and other
//! databases, also about days long over, and whether these keep what they ack. `metadata` and `listeners`: what metadata
//! of sensors and live listeners cost.

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
use crate::servers::spawn::unless_told_to_stop;
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
    /// Load days that are long over, measure what they take on disk, and ask about them without caches.
    History(history::History),
    /// Check with kills, retries, corrections and late readings whether hourglass and others keep what they ack.
    Prove(prove::Prove),
    /// Give many sensors metadata, ask by it, and measure acks while its copies are refreshed.
    Metadata(metadata::Metadata),
    /// Let clients listen to readings as they are acked: what that costs those who write, and how soon they hear.
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

/// Runs the command. Stops everything that it started, also after a signal.
fn run_command(command: Command) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(unless_told_to_stop(async {
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
