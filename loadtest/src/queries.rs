//! Runs the same queries over the same data on hourglass and other servers, each alone on the machine, round by round.
//! A wrong answer ends the run.

mod asked;
pub mod data;
pub mod dialect;
mod native;
mod report;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;

use self::asked::Asked;
use self::data::{Answer, Question, difference, expected};
use self::report::Report;
use crate::servers::http::Product;
use crate::servers::mongod::Mongod;
use crate::servers::programs::{ProgramOptions, Programs};
use crate::servers::spawn::{Folder, free_port, unless_told_to_stop};

/// Run the same queries on hourglass and other servers.
#[derive(Debug, Args)]
pub struct Queries {
    /// Number of rounds; each server has one turn per round.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Measured runs of each query per turn, after three runs that do not count.
    #[arg(long, default_value_t = 12)]
    runs: usize,
    /// Restarts per turn, to measure the first answer after a start.
    #[arg(long, default_value_t = 10)]
    cold: usize,
    #[command(flatten)]
    programs: ProgramOptions,
    /// Parent folder of the temporary folder for all data.
    #[arg(long, default_value = "target")]
    folder: PathBuf,
    /// File for the results as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy)]
enum Server {
    Hourglass { embedded: bool },
    Influx,
    Victoria,
    Native,
}

impl Server {
    const ALL: [Self; 5] = [
        Self::Hourglass { embedded: false },
        Self::Hourglass { embedded: true },
        Self::Influx,
        Self::Victoria,
        Self::Native,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Hourglass { embedded: false } => "hourglass, MongoDB",
            Self::Hourglass { embedded: true } => "hourglass, embedded",
            Self::Influx => "InfluxDB 1.6",
            Self::Victoria => "VictoriaMetrics",
            Self::Native => "MongoDB time series",
        }
    }
}

/// Runs of each query that do not count.
const WARM_UPS: usize = 3;

/// Runs everything. Stops everything that it started, also after a signal.
pub async fn run(options: Queries) -> Result<()> {
    unless_told_to_stop(measure(&options)).await
}

async fn measure(options: &Queries) -> Result<()> {
    let folder = Folder::new(&options.folder, "queries")?;
    let programs = options.programs.programs();
    let machine = programs.machine()?;
    let bench = Bench { options, folder: &folder, mongod_port: free_port()?, programs };
    let mut report = Report::default();
    for round in 0..options.rounds {
        for server in Server::ALL {
            let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
            println!("round {}: {} (load average {})", round + 1, server.name(), load.trim());
            bench.turn(server, round == 0, &mut report).await.with_context(|| server.name())?;
        }
    }
    println!("\n{}", report.table());
    if let Some(path) = &options.json {
        let data = json!({"sensors": 1000, "sites": 10, "fields": 2, "interval_s": 60, "hours": 26});
        let text = serde_json::to_string_pretty(&report.json(&machine, &data))?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

struct Bench<'a> {
    options: &'a Queries,
    folder: &'a Folder,
    mongod_port: u16,
    programs: Programs,
}

impl Bench<'_> {
    async fn turn(&self, server: Server, is_first: bool, report: &mut Report) -> Result<()> {
        let Programs { hourglass, mongod, influxd, victoria } = &self.programs;
        match server {
            Server::Native => {
                let mongod = Mongod::start(mongod, self.mongod_port, &self.folder.sub("mongod")?).await?;
                if is_first {
                    native::load(&mongod).await?;
                }
                self.ask_native(&mongod, report).await?;
                mongod.stop()
            }
            Server::Hourglass { embedded: false } => {
                let mongod = Mongod::start(mongod, self.mongod_port, &self.folder.sub("mongod")?).await?;
                let store = mongod.uri("hourglass");
                self.ask_over_http(server, (Product::Hourglass, hourglass, &store), is_first, report).await?;
                mongod.stop()
            }
            Server::Hourglass { embedded: true } => {
                self.ask_over_http(server, (Product::Hourglass, hourglass, "embedded"), is_first, report).await
            }
            Server::Influx => self.ask_over_http(server, (Product::Influx, influxd, ""), is_first, report).await,
            Server::Victoria => self.ask_over_http(server, (Product::Victoria, victoria, ""), is_first, report).await,
        }
    }

    async fn ask_over_http(
        &self,
        server: Server,
        (product, program, store): (Product, &Path, &str),
        is_first: bool,
        report: &mut Report,
    ) -> Result<()> {
        let folder = self.folder.sub(&server.name().replace([',', ' '], "-"))?;
        let start = async || Asked::start(product, program, store, &folder).await;
        let mut running = start().await?;
        if is_first {
            running.load().await?;
        }
        for question in Question::ALL {
            let expected = expected(question);
            for run in 0..WARM_UPS + self.options.runs {
                let (took, answer) = running.ask(question).await?;
                check(question, &expected, &answer)?;
                if run >= WARM_UPS {
                    report.add(question.name(), server.name(), took);
                }
            }
        }
        let (question, expected) = (Question::BySite, expected(Question::BySite));
        let name = format!("{}, after a restart", question.name());
        for _ in 0..self.options.cold {
            running.stop()?;
            running = start().await?;
            running.forget_answers().await?;
            let (took, answer) = running.ask(question).await?;
            check(question, &expected, &answer)?;
            report.add(&name, server.name(), took);
        }
        running.stop()
    }

    async fn ask_native(&self, mongod: &Mongod, report: &mut Report) -> Result<()> {
        let collection = native::collection(mongod);
        for question in Question::ALL {
            let expected = expected(question);
            for run in 0..WARM_UPS + self.options.runs {
                let (took, answer) = native::ask(&collection, question).await?;
                check(question, &expected, &answer)?;
                if run >= WARM_UPS {
                    report.add(question.name(), Server::Native.name(), took);
                }
            }
        }
        Ok(())
    }
}

fn check(question: Question, expected: &Answer, found: &Answer) -> Result<()> {
    match difference(expected, found) {
        Some(difference) => bail!("a wrong answer to {:?}: {difference}", question.name()),
        None => Ok(()),
    }
}
