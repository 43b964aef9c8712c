//! Load for hourglass: bodies made beforehand, several connections that each send the next one as
//! soon as the last was acked, and at the end the rate, the latencies and the server's CPU time. Talks to
//! the address it is given and ends by itself. And the same load, and questions, to hourglass and to others.

mod bodies;
mod client;
mod ingest;
mod peers;
mod process;
mod queries;
mod sending;
mod servers;
mod stats;

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
    /// Give hourglass, InfluxDB, VictoriaMetrics and MongoDB's own time-series collections the same readings.
    Peers(peers::Peers),
    /// Ask hourglass, InfluxDB, VictoriaMetrics and MongoDB's own time-series collections the same questions.
    Queries(queries::Queries),
}

fn main() -> Result<()> {
    let command = Arguments::parse().command;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::Ingest(options) => ingest::run(options).await,
            Command::Peers(options) => peers::run(options).await,
            Command::Queries(options) => queries::run(options).await,
        }
    })
}
