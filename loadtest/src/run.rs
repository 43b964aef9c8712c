//! Runs a scenario on a schedule that does not wait for the server. Measures latencies from the moment at which each
//! POST was due, and the server's resource usage. On demand checks that exactly what was acked is stored.

pub mod asking;
mod bounds;
pub mod builtin;
mod driving;
pub mod faults;
pub mod posts;
mod progress;
pub mod random;
pub mod readings;
pub mod recorder;
pub mod scenario;
pub mod schedule;
pub mod senders;
mod summing;
pub mod target;
#[cfg(test)]
mod tests;
pub mod trying;
pub mod values;
mod watching;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use self::scenario::{Scenario, Span, Start};
use self::target::Target;
use crate::report::{html, text};
use crate::servers::programs::ProgramOptions;
use crate::servers::spawn::unless_told_to_stop;
use crate::verify::{self, Sent};

/// Run a scenario.
#[derive(Debug, Args)]
pub struct Run {
    /// The name of a built-in scenario (see `scenarios`), or the path of a TOML file.
    scenario: String,
    /// The address of hourglass.
    #[arg(long, default_value = "http://127.0.0.1:8086")]
    target: String,
    /// Start a server with a fresh folder for the run, and stop it afterwards.
    #[arg(long, conflicts_with_all = ["target", "pids"])]
    start: Option<target::Start>,
    /// Readings per second, instead of the scenario's rate.
    #[arg(long)]
    rate: Option<f64>,
    /// How long POSTs are sent, such as 30s, instead of the scenario's duration.
    #[arg(long)]
    duration: Option<Span>,
    /// Number of connections, instead of the scenario's.
    #[arg(long)]
    connections: Option<usize>,
    /// The seed, instead of the scenario's.
    #[arg(long)]
    seed: Option<u64>,
    /// The database to write to. With --verify, it must not contain the scenario's measurements yet.
    #[arg(long, default_value = "loadtest")]
    db: String,
    /// Read everything back after the run, and check that exactly what was acked is stored.
    #[arg(long)]
    verify: bool,
    /// File for the results as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// File for the results as an HTML page with plots.
    #[arg(long)]
    html: Option<PathBuf>,
    /// Process ids of the server and of mongod, to measure their CPU and memory. By default, /metrics of the target is
    /// used.
    #[arg(long, value_delimiter = ',')]
    pids: Vec<u32>,
    #[command(flatten)]
    programs: ProgramOptions,
    /// Parent folder of the temporary folder for --start.
    #[arg(long, default_value = "target")]
    folder: PathBuf,
}

/// Runs the scenario. Stops everything that it started, also after a signal.
pub async fn run(options: Run) -> Result<()> {
    unless_told_to_stop(measure(&options)).await
}

/// The scenario of a run, changed by the flags.
pub struct Planned {
    pub name: String,
    /// A hash of the scenario's text.
    pub fingerprint: String,
    pub scenario: Scenario,
    pub seed: u64,
    /// The timestamp of the first readings, in nanoseconds.
    pub start: i64,
    /// The database.
    pub db: String,
}

fn plan(options: &Run) -> Result<Planned> {
    let (name, text) = Scenario::find(&options.scenario)?;
    let mut scenario = Scenario::parse(&text).with_context(|| format!("the scenario {name}"))?;
    scenario.rate = options.rate.or(scenario.rate);
    ensure!(scenario.rate.is_none_or(|rate| rate.is_finite() && rate > 0.0), "--rate must be above 0");
    scenario.duration = options.duration.unwrap_or(scenario.duration);
    ensure!(!scenario.duration.0.is_zero(), "--duration must not be 0");
    scenario.connections = options.connections.unwrap_or(scenario.connections);
    ensure!(scenario.connections > 0, "--connections must not be 0");
    let start = match scenario.start {
        Start::At(at) => at,
        Start::Now => i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())? * 1_000_000_000,
    };
    let fingerprint = format!("{:016x}", random::hash(text.as_bytes()));
    let (seed, db) = (options.seed.unwrap_or(scenario.seed), options.db.clone());
    Ok(Planned { name, fingerprint, scenario, seed, start, db })
}

async fn measure(options: &Run) -> Result<()> {
    let planned = plan(options)?;
    let target = match options.start {
        Some(start) => Target::start(start, &options.programs.programs(), &options.folder).await?,
        None => Target::running(&options.target, &options.pids).await?,
    };
    if options.verify {
        verify::ensure_empty(&target.address, &planned).await?;
    }
    println!("{}", text::heading(&planned, target.how, &target.version));
    let driven = driving::drive(&planned, &target).await?;
    let mut results = summing::results(&planned, &target, &driven);
    if options.verify {
        let sent = Sent { outcomes: &driven.recorder.outcomes, reached: driven.recorder.reached };
        results.verified = Some(verify::verify(&target.address, &planned, sent).await?);
    }
    println!("{}", text::summary(&results));
    if let Some(path) = &options.json {
        results.write(path)?;
    }
    if let Some(path) = &options.html {
        std::fs::write(path, html::page(&results)).with_context(|| format!("writing {}", path.display()))?;
    }
    target.stop()?;
    if !results.is_good() {
        bail!("{}", text::verdict(&results));
    }
    Ok(())
}

/// Prints the built-in scenarios.
pub fn list() -> Result<()> {
    for name in builtin::names() {
        let scenario = Scenario::parse(builtin::text(name).unwrap_or_default())?;
        println!("{name:<16} {}", scenario.description);
    }
    Ok(())
}
