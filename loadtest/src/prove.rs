//! Checks hourglass and other systems with the same oracle: kills while they ack, retries, corrections and late
//! readings. Each runs alone on the machine, with fresh folders and its default configuration; what it returns is
//! compared with what it acked.

mod asking;
mod corrections;
mod crash;
mod late;
mod oracle;
mod peer;
mod reading;
mod results;
mod retries;
mod system;
mod table;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use self::peer::Peer;
use self::results::{Proof, Results};
use self::system::System;
use crate::servers::programs::{ProgramOptions, Programs, cores_and_memory};
use crate::servers::spawn::unless_told_to_stop;

/// Check whether hourglass and other systems keep what they acked.
#[derive(Debug, Args)]
pub struct Prove {
    /// The systems to check. Default: all.
    #[arg(long)]
    peer: Vec<Peer>,
    /// Number of kills of each system.
    #[arg(long, default_value_t = 10)]
    cycles: usize,
    /// Maximum seconds of writes before a kill. It should be longer than a system keeps acked readings only in memory;
    /// otherwise all of them would be lost.
    #[arg(long, default_value_t = 20)]
    stream_seconds: u64,
    /// The seed of the random moments.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    programs: ProgramOptions,
    /// Parent folder of the temporary folders for the data.
    #[arg(long, default_value = "target")]
    folder: PathBuf,
    /// File for the results as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Run nothing; print the tables of the results in this file.
    #[arg(long, conflicts_with_all = ["json", "peer"])]
    table: Option<PathBuf>,
}

/// Runs everything. Stops everything that it started, also after a signal. Fails if hourglass has a violation.
pub async fn run(options: Prove) -> Result<()> {
    match &options.table {
        Some(path) => print_table(path),
        None => unless_told_to_stop(prove(&options)).await,
    }
}

fn print_table(path: &Path) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let results: Results = serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    print!("{}", table::markdown(&results));
    Ok(())
}

async fn prove(options: &Prove) -> Result<()> {
    let programs = options.programs.programs();
    let peers = if options.peer.is_empty() { Peer::value_variants() } else { &options.peer };
    let (cores, memory_gib) = cores_and_memory()?;
    let Prove { cycles, stream_seconds, seed, .. } = options;
    let command = format!("hourglass-loadtest prove --cycles {cycles} --stream-seconds {stream_seconds} --seed {seed}");
    let mut results = Results { command, cores, memory_gib, seed: options.seed, proofs: Vec::new() };
    for peer in peers {
        println!("{}", peer.name());
        results.proofs.push(of_peer(*peer, &programs, options).await.with_context(|| peer.name())?);
        if let Some(path) = &options.json {
            let text = serde_json::to_string_pretty(&results)?;
            std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
        }
    }
    println!("\n{}", table::markdown(&results));
    let held = peers.iter().filter(|peer| peer.is_hourglass());
    let proofs = held.flat_map(|peer| results.proofs.iter().filter(|proof| proof.is_of(*peer)));
    let broken: Vec<String> = proofs.flat_map(Proof::broken).collect();
    ensure!(broken.is_empty(), "{}", broken.join("; "));
    Ok(())
}

/// Runs all checks on a system, each with a fresh folder.
async fn of_peer(peer: Peer, programs: &Programs, options: &Prove) -> Result<Proof> {
    let version = peer.version(programs)?;
    let start = || System::start(peer, programs, &options.folder);
    let stream = Duration::from_secs(options.stream_seconds);
    let crashes =
        crash::prove(&mut start().await?, options.cycles, stream, options.seed).await.context("killing it")?;
    let retries = retries::prove(&mut start().await?).await.context("repeating to it")?;
    let corrections = corrections::prove(&mut start().await?).await.context("correcting it")?;
    let late = late::prove(&mut start().await?).await.context("telling it late")?;
    let by_design = peer.by_design().iter().map(|text| (*text).to_owned()).collect();
    Ok(Proof { peer: peer.name().to_owned(), version, by_design, crashes, retries, corrections, late })
}
