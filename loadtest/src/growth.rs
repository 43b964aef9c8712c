//! How cost grows: hourglass is started for every point on a fresh folder and given as much as it takes, while one
//! quantity is varied and all others stay: sensors, readings per POST, connections, readings in the store.

mod figures;
mod load;
mod page;
mod plan;
mod table;
mod turn;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use self::figures::{Results, SeriesRow};
use self::plan::{Series, Sizes};
use self::turn::Bench;
use crate::run::target::Start;
use crate::servers::programs::ProgramOptions;
use crate::servers::spawn::unless_told_to_stop;

/// Measure how cost grows with sensors, readings per POST, connections and what is stored.
#[derive(Debug, Args)]
pub struct Growth {
    /// Which store hourglass has.
    #[arg(long, default_value = "embedded")]
    store: Start,
    /// Only this series.
    #[arg(long)]
    only: Option<Series>,
    #[command(flatten)]
    sizes: Sizes,
    #[command(flatten)]
    programs: ProgramOptions,
    /// Where folders are made for what is started, each gone after its point. 100 million readings take 10 GB of it.
    #[arg(long, default_value = "target")]
    folder: PathBuf,
    /// Where the results are written as JSON, after every point.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Where they are written as a page with plots.
    #[arg(long)]
    html: Option<PathBuf>,
    /// Start nothing, and print the tables (with --html, make the page) of results that an earlier run has written here.
    #[arg(long, conflicts_with_all = ["json", "only"])]
    table: Option<PathBuf>,
}

/// Runs it all. What it starts is ended, also when it is told to stop.
pub async fn run(options: Growth) -> Result<()> {
    match &options.table {
        Some(path) => show(&options, &Results::read(path)?),
        None => unless_told_to_stop(measure(&options)).await,
    }
}

async fn measure(options: &Growth) -> Result<()> {
    let programs = options.programs.programs();
    let mut results = Results::before(options.store, &programs, &options.sizes)?;
    let bench = Bench { store: options.store, programs, folder: options.folder.clone() };
    for series in Series::all(options.only) {
        results.series.push(SeriesRow::new(series));
        for point in series.points(&options.sizes)? {
            let at = format!("{}, {}", series.name(), point.at);
            let measured = bench.point(&point).await.with_context(|| at.clone())?;
            results.version.clone_from(&measured.version);
            println!("{at}: {}", measured.figures.line());
            results.series.last_mut().context("no series")?.points.push(measured.figures);
            if let Some(path) = &options.json {
                results.write(path)?;
            }
        }
    }
    println!();
    show(options, &results)
}

fn show(options: &Growth, results: &Results) -> Result<()> {
    print!("{}", table::markdown(results));
    options.html.as_deref().map_or(Ok(()), |path| write(path, &page::page(results)))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
