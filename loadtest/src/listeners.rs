//! Measures what listeners (`GET /api/v1/tail`) cost and how soon they hear: many that come and go in turn while writes go on, beside
//! a server of its own that nobody listens to; and the time from a reading's ack to its arrival at each listener.

mod churn;
mod delay;
mod listener;
mod results;
mod writing;

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use self::results::Results;
use crate::run::scenario::Span;
use crate::run::target::{Start, Target};
use crate::servers::http::Configured;
use crate::servers::programs::ProgramOptions;
use crate::servers::spawn::{Folder, unless_told_to_stop};

/// Measure what live listeners cost those who write, and how soon they hear a reading.
#[derive(Debug, Args)]
pub struct Listeners {
    /// The store of hourglass.
    #[arg(long, default_value = "embedded")]
    store: Start,
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
    lines: u32,
    /// Rounds with listeners; as many without are between them.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Duration of a round.
    #[arg(long, default_value = "15s")]
    round: Span,
    #[command(flatten)]
    programs: ProgramOptions,
    /// Parent folder of the temporary folder.
    #[arg(long, default_value = "target")]
    folder: PathBuf,
    /// File for the results as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Run nothing; print the tables of the results in this file.
    #[arg(long, conflicts_with = "json")]
    table: Option<PathBuf>,
}

/// Measures everything. Stops everything that it started, also after a signal.
pub async fn run(options: Listeners) -> Result<()> {
    match &options.table {
        Some(path) => {
            print!("{}", Results::read(path)?.markdown());
            Ok(())
        }
        None => unless_told_to_stop(measure(&options)).await,
    }
}

async fn measure(options: &Listeners) -> Result<()> {
    let Listeners { clients, at_once, rate, lines, rounds, round, .. } = options;
    ensure!(*clients > 0 && *at_once > 0 && *rate > 0 && *lines > 0 && *rounds > 0, "every number must be above 0");
    ensure!(!round.0.is_zero(), "--round must not be 0");
    let (folder, programs) = (Folder::new(&options.folder, "listeners")?, options.programs.programs());
    let variables = [
        ("HOURGLASS_TAIL_CLIENTS", at_once.to_string()),
        ("HOURGLASS_SERVER_CONNECTIONS_PER_ADDRESS", "65536".to_owned()),
    ];
    let configured = Configured { variables: &variables, file: "" };
    let start = async |name: &str| Target::start_with(options.store, &programs, &folder.sub(name)?, configured).await;
    // A server keeps filling its ring for a minute after the last listener has left. So the runs without listeners use a server of their own.
    let (alone, heard) = (start("alone").await?, start("heard").await?);
    let mut results = Results::before(options, &heard);
    results.churn = churn::measure(options, &alone, &heard).await.context("listeners that come and go")?;
    alone.stop()?;
    results.delays = delay::measure(options, &heard).await.context("how soon they hear")?;
    heard.stop()?;
    print!("\n{}", results.markdown());
    if let Some(path) = &options.json {
        results.write(path)?;
    }
    match results.faults().as_slice() {
        [] => Ok(()),
        faults => bail!("{}", faults.join("; ")),
    }
}
