//! Load for hourglass: scenarios on a schedule, with latencies, what the server used, and proof that nothing was lost
//! (`run`, `compare`); as much as it takes, as fast as it takes it (`ingest`), and how that grows (`growth`); and the same load, and questions, to
//! hourglass and to others (`peers`, `queries`), of which it also asks what became of what they acked (`prove`).

mod bodies;
mod client;
mod compare;
mod growth;
mod ingest;
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

/// Sends load to hourglass and says how fast it was.
#[derive(Debug, Parser)]
#[command(name = "hourglass-loadtest", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write readings of a fleet of sensors in time order, many lines per POST, to a running hourglass.
    Ingest(ingest::Ingest),
    /// Measure how cost grows with sensors, readings per POST, connections and what is stored.
    Growth(growth::Growth),
    /// Give hourglass, InfluxDB, VictoriaMetrics and MongoDB's own time-series collections the same readings.
    Peers(peers::Peers),
    /// Ask hourglass, InfluxDB, VictoriaMetrics and MongoDB's own time-series collections the same questions.
    Queries(queries::Queries),
    /// Have hourglass, InfluxDB, VictoriaMetrics and MongoDB's own time-series collections killed, repeated to, corrected
    /// and told late, and compare what they then say with what they acked.
    Prove(prove::Prove),
    /// Run a scenario on a schedule that does not wait for the server, and judge what came of it.
    Run(Box<run::Run>),
    /// List the scenarios that the program carries with it.
    Scenarios,
    /// Compare results of `run`, and say what changed beyond noise.
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
            Command::Prove(options) => prove::run(options).await,
            Command::Run(options) => run::run(*options).await,
            Command::Scenarios => run::list(),
            Command::Compare(options) => compare::run(&options),
        }
    })
}
