//! Days that are long over: what they take on disk, what it costs to load them, and how long questions about them take
//! that no cache answers, for hourglass, which seals them, and for other databases. A wrong answer ends the run.

mod clickhouse;
mod deliveries;
mod dialect;
mod fleet;
mod measure;
mod measured;
mod peer;
mod question;
mod rest;
mod results;
mod table;
mod turn;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use self::clickhouse::ClickHouse;
use self::fleet::Fleet;
use self::measure::MeasureOptions;
use self::peer::Peer;
use self::results::{OfPeer, Results};
use self::turn::Bench;
use crate::servers::http::Product;
use crate::servers::programs::{ProgramOptions, Programs, cores_and_memory, version};
use crate::servers::spawn::{Folder, unless_told_to_stop};

/// Load days that are long over into hourglass, which seals them, and into other databases, and ask about them.
#[derive(Debug, Args)]
pub struct History {
    #[command(flatten)]
    fleet: Fleet,
    #[command(flatten)]
    measure: MeasureOptions,
    /// Number of rounds; each system has one turn per round.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Measured runs of each question per turn, each after a fresh start of the servers.
    #[arg(long, default_value_t = 5)]
    tries: usize,
    /// A system to measure; may be given several times. Default: all but those that do not seal.
    #[arg(long = "peer")]
    peers: Vec<Peer>,
    /// Let hourglass seal while readings come in. Without it, hourglass seals after a restart, so that loading and sealing
    /// have a figure each.
    #[arg(long)]
    seal_while_loading: bool,
    /// Also ask with a mongod that keeps running and has its cache still.
    #[arg(long)]
    warm_mongod: bool,
    /// A Python that has PyPI's `chdb`, for ClickHouse.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    #[command(flatten)]
    programs: ProgramOptions,
    /// Parent folder of the temporary folders, one per turn.
    #[arg(long, default_value = "target")]
    folder: PathBuf,
    /// File for the results as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Run nothing; print the tables of the results in this file.
    #[arg(long, conflicts_with = "json")]
    table: Option<PathBuf>,
}

/// Runs everything. Stops everything that it started, also after a signal.
pub async fn run(options: History) -> Result<()> {
    match &options.table {
        Some(path) => {
            print!("{}", table::markdown(&Results::read(path)?));
            Ok(())
        }
        None => unless_told_to_stop(measure(&options)).await,
    }
}

/// A path of a program that stays right in another working folder. A bare name is looked up on PATH.
fn findable(program: &Path) -> Result<PathBuf> {
    let is_bare = program.components().count() == 1;
    Ok(if is_bare { program.to_owned() } else { std::path::absolute(program)? })
}

async fn measure(options: &History) -> Result<()> {
    let fleet = options.fleet;
    ensure!(options.rounds > 0 && options.tries > 0, "no rounds or no tries");
    ensure!(fleet.sensors >= 2 && fleet.days >= 1, "fewer than 2 sensors or 1 day");
    ensure!(fleet.interval_s >= 1 && 3600 % fleet.interval_s == 0, "the interval must divide an hour");
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let end = Duration::from_secs(u64::try_from(fleet.end_s())?);
    ensure!(end + Duration::from_secs(86_400) < now, "the days are not over yet: fewer --days");
    let mut bench = Bench {
        programs: options.programs.programs(),
        python: findable(&options.python)?,
        folder: options.folder.clone(),
        fleet,
        tries: options.tries,
        seals_while_loading: options.seal_while_loading,
        asks_warm_mongod: options.warm_mongod,
        expected: HashMap::new(),
    };
    let peers = if options.peers.is_empty() { Peer::USUAL.to_vec() } else { options.peers.clone() };
    if options.measure.is_given() {
        let peers = if options.peers.is_empty() { &Peer::USUAL[..2] } else { &peers };
        return options.measure.run(&mut bench, peers, options.rounds, options.json.as_deref()).await;
    }
    let mut results = Results {
        machine: machine(&bench.programs, &peers)?,
        load_average_before: load_average(),
        data: fleet,
        readings: fleet.readings(),
        sealed_while_loading: options.seal_while_loading,
        peers: Vec::new(),
    };
    for peer in &peers {
        results.peers.push(OfPeer { peer: *peer, version: version_of(&bench, *peer)?, rounds: Vec::new() });
    }
    for round in 0..options.rounds {
        let first = round % results.peers.len();
        for place in (first..results.peers.len()).chain(0..first) {
            let peer = results.peers[place].peer;
            println!("round {}: {} (load average {})", round + 1, peer.name(), load_average());
            let turn = bench.turn(peer).await.with_context(|| peer.name())?;
            let rest = turn.rest;
            println!(
                "  {:.2} B per reading and {:.2} B of log; {:.2} us CPU to load in {:.1} s, {:.2} us to settle in {:.1} s",
                rest.data + rest.indexes,
                rest.log,
                turn.load_cpu_us,
                turn.load_s,
                turn.settle_cpu_us,
                turn.settle_s
            );
            results.peers[place].rounds.push(turn);
            if let Some(path) = &options.json {
                results.write(path)?;
            }
        }
    }
    println!("\n{}", table::markdown(&results));
    Ok(())
}

fn version_of(bench: &Bench, peer: Peer) -> Result<String> {
    let Programs { hourglass, influxd, victoria, .. } = &bench.programs;
    match peer.product() {
        Some(Product::Hourglass) => version(hourglass, "--version"),
        Some(Product::Influx) => version(influxd, "version"),
        Some(Product::Victoria) => version(victoria, "-version"),
        None => {
            let folder = Folder::new(&bench.folder, "history-version")?;
            let running = ClickHouse::start(&bench.python, folder.path())?;
            let version = running.version.clone();
            running.stop()?;
            Ok(version)
        }
    }
}

fn machine(programs: &Programs, peers: &[Peer]) -> Result<Value> {
    let (cores, gib) = cores_and_memory()?;
    let mongod = peers.iter().any(|peer| peer.has_mongod()).then(|| programs.mongod_version()).transpose()?;
    Ok(json!({"cores": cores, "memory_gib": gib, "mongod": mongod}))
}

/// How busy the machine has been for one, five and fifteen minutes.
fn load_average() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}
