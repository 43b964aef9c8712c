//! Measures how cost grows with one quantity at a time: sensors, readings per POST, connections, or stored readings.
//! Starts hourglass with a fresh folder for every point, and loads it as fast as possible.

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

/// Measure how cost grows with the number of sensors, readings per POST, connections and stored readings.
#[derive(Debug, Args)]
pub struct Growth {
    /// The store of hourglass.
    #[arg(long, default_value = "embedded")]
    store: Start,
    /// Run only this series.
    #[arg(long)]
    only: Option<Series>,
    #[command(flatten)]
    sizes: Sizes,
    #[command(flatten)]
    programs: ProgramOptions,
    /// Parent folder of the temporary folders, one per point. 100 million readings need 10 GB.
    #[arg(long, default_value = "target")]
    folder: PathBuf,
    /// File for the results as JSON, written after every point.
    #[arg(long)]
    json: Option<PathBuf>,
    /// File for the results as an HTML page with plots.
    #[arg(long)]
    html: Option<PathBuf>,
    /// Run nothing; print the tables (and with --html write the page) of the results in this file.
    #[arg(long, conflicts_with_all = ["json", "only"])]
    table: Option<PathBuf>,
}

/// Runs everything. Stops everything that it started, also after a signal.
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
