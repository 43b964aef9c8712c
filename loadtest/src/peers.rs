//! Writes the same readings to hourglass and other servers, each alone on the machine with a fresh folder: first as
//! fast as possible, round by round, then at one rate for all. A lost reading ends the run.

mod contender;
mod disk;
mod figures;
mod native;
mod offered;
mod stored;
mod table;
mod turn;
mod work;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use self::contender::Contender;
use self::figures::{Figures, Results, Row};
use self::offered::{OfferedFigures, TURNS_LEAST};
use self::turn::Bench;
use self::work::{Shape, Sizes, Work};
use crate::servers::programs::ProgramOptions;
use crate::servers::spawn::unless_told_to_stop;

/// Write the same readings to hourglass and other servers.
#[derive(Debug, Args)]
pub struct Peers {
    /// Number of rounds; each server runs each workload once per round.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Run only this workload.
    #[arg(long)]
    only: Option<Shape>,
    /// Maximum seconds of load at half the rate of the slowest server, in as many turns as there are rounds, but at
    /// least 3; 0 skips this part.
    #[arg(long, default_value_t = 10)]
    offered_seconds: u64,
    #[command(flatten)]
    sizes: Sizes,
    #[command(flatten)]
    programs: ProgramOptions,
    /// Parent folder of the temporary folders, one per turn.
    #[arg(long, default_value = "target")]
    folder: PathBuf,
    /// File for the results as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Run nothing; print the tables of the results in this file.
    #[arg(long, conflicts_with_all = ["json", "only"])]
    table: Option<PathBuf>,
}

/// Runs everything. Stops everything that it started, also after a signal.
pub async fn run(options: Peers) -> Result<()> {
    match &options.table {
        Some(path) => print_table(path),
        None => unless_told_to_stop(measure(&options)).await,
    }
}

fn print_table(path: &Path) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let results: Results = serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    print!("{}", table::markdown(&results));
    Ok(())
}

async fn measure(options: &Peers) -> Result<()> {
    ensure!(options.rounds > 0, "no rounds");
    let bench = Bench { programs: options.programs.programs(), folder: options.folder.clone() };
    let machine = bench.programs.machine()?;
    let load_average = load_average();
    let works = options.sizes.works(options.only)?;
    let mut rows = Vec::new();
    for work in &works {
        rows.extend(Contender::ALL.into_iter().filter(|one| one.takes(work)).map(|one| Row::new(work, one)));
    }
    for round in 0..options.rounds {
        for work in &works {
            one_round(&bench, work, round, &mut rows).await?;
        }
    }
    rows.iter_mut().for_each(Row::settle);
    for work in works.iter().filter(|_| options.offered_seconds > 0) {
        offer(&bench, work, options, &mut rows).await?;
    }
    let results = Results::new(machine, load_average, &works, rows);
    println!("\n{}", table::markdown(&results));
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&results)?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// One turn of each server at a workload. The order changes from round to round.
async fn one_round(bench: &Bench, work: &Work, round: usize, rows: &mut [Row]) -> Result<()> {
    let mut contenders = Contender::ALL;
    contenders.rotate_left(round % Contender::ALL.len());
    for contender in contenders {
        let row = rows.iter_mut().find(|row| row.is_of(work, contender));
        let Some(row) = row else { continue };
        let name = contender.name();
        let load = load_average();
        let figures = bench.turn(contender, work).await.with_context(|| format!("{}: {name}", work.shape.name()))?;
        let Figures { acked_per_s, drained_per_s, cpu_us, .. } = figures;
        println!(
            "round {}, {}: {name}: {acked_per_s:.0}/s acked, {drained_per_s:.0}/s drained, {cpu_us:.2} us (load {load})",
            round + 1,
            work.shape.name()
        );
        row.rounds.push(figures);
    }
    Ok(())
}

/// Everybody's turns at a work at one rate. Nobody comes after the same one in every turn.
async fn offer(bench: &Bench, work: &Work, options: &Peers, rows: &mut [Row]) -> Result<()> {
    let Some(rate) = offered::rate(rows, work) else { return Ok(()) };
    let longest = Duration::from_secs(options.offered_seconds);
    for turn in 0..options.rounds.max(TURNS_LEAST) {
        let mut contenders = Contender::ALL;
        contenders.rotate_left(turn % Contender::ALL.len());
        for contender in contenders {
            let Some(row) = rows.iter_mut().find(|row| row.is_of(work, contender)) else { continue };
            let (name, work_name, load) = (contender.name(), work.shape.name(), load_average());
            let figures = bench.offered_turn(contender, work, rate, longest).await;
            let Some(figures) = figures.with_context(|| format!("{work_name}, {rate:.0}/s offered: {name}"))? else {
                continue;
            };
            let OfferedFigures { p50_ms, p99_ms, never_acked, own_lag_p99_ms, .. } = figures;
            println!(
                "{rate:.0}/s offered, turn {}, {work_name}: {name}: p50 {p50_ms:.2} ms, p99 {p99_ms:.2} ms, {never_acked} \
                 never acked, own lag p99 {own_lag_p99_ms:.2} ms (load {load})",
                turn + 1
            );
            row.offered_turns.push(figures);
            row.offered = OfferedFigures::median(&row.offered_turns);
        }
    }
    Ok(())
}

/// How busy the machine has been for one, five and fifteen minutes.
fn load_average() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}
