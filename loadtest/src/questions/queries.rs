//! Runs the same queries on hourglass, InfluxDB, VictoriaMetrics and MongoDB time-series collections. Checks every
//! answer: a wrong one ends the run.

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::Checker;
use super::native;
use super::question::{Query, Question};
use crate::fleet::{Delivery, Fleet, HOUR_S};
use crate::load::closed::Load;
use crate::report::{Output, Results, load_average};
use crate::servers::http::Product;
use crate::servers::peer::Peer;
use crate::servers::programs::ProgramOptions;
use crate::servers::system::System;

/// The queries: each with its title.
const QUESTIONS: [(Question, &str); 3] = [
    (Question::SensorHourly, "24 hourly means of one sensor"),
    (Question::SensorRawDay, "1,440 readings of one sensor"),
    (Question::SitesHourly, "24 hourly means of all sensors by site"),
];
/// Number of warm-up runs of each query.
const WARM_UPS: usize = 3;
/// One reading per minute for 26 hours, of which 24 are queried.
const TICKS: i64 = 26 * 60;

/// Run the same queries on hourglass and other servers.
#[derive(Debug, Args)]
pub struct Queries {
    /// Number of rounds; each system has one turn per round.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Measured runs of each query per turn, after three runs that do not count.
    #[arg(long, default_value_t = 12)]
    runs: usize,
    /// Restarts per turn, to measure the first answer after a start.
    #[arg(long, default_value_t = 10)]
    cold: usize,
    /// Number of sensors.
    #[arg(long, default_value_t = 1000)]
    sensors: i64,
    /// A system to measure. You can repeat this flag.
    #[arg(long = "peer", value_enum, default_values_t = Peer::WRITERS)]
    peers: Vec<Peer>,
    #[command(flatten)]
    programs: ProgramOptions,
    #[command(flatten)]
    output: Output,
}

pub async fn run(options: Queries) -> Result<()> {
    ensure!(options.sensors > 10, "there must be more than 10 sensors");
    let programs = options.programs.programs();
    let mut results = Results::new();
    let mut checker = Checker::default();
    let mut systems = Vec::new();
    for peer in &options.peers {
        results.systems.push(peer.row(&programs, "")?);
        let mut system = System::start(*peer, &programs, &options.programs.folder).await?;
        let load = Load::all(Delivery::in_time_order(options.fleet()));
        match peer.product() {
            Some(product) => drop(load.send(system.address()?, product.write_path()).await?),
            None => native::load(&system, load).await?,
        }
        system.flush().await?;
        system.stop()?;
        systems.push(system);
    }
    for round in 0..options.rounds {
        for system in &mut systems {
            let name = system.peer.name();
            println!("round {}: {name} (load average {})", round + 1, load_average());
            options.turn(system, &mut checker, &mut results).await.with_context(|| name)?;
        }
    }
    results.finish(&options.output)
}

impl Queries {
    fn fleet(&self) -> Fleet {
        Fleet::by_minute(self.sensors, TICKS)
    }

    fn query(&self, question: Question) -> Query {
        let from = self.fleet().start_s + HOUR_S;
        Query { from, to: from + 24 * HOUR_S, ..Query::new(question, self.sensors / 2, self.fleet()) }
    }

    async fn turn(&self, system: &mut System<'_>, checker: &mut Checker, results: &mut Results) -> Result<()> {
        system.start_again().await?;
        let name = system.peer.name();
        let mut connection = match system.peer.product() {
            Some(product) => Some((product, system.connect().await?)),
            None => None,
        };
        for (question, title) in QUESTIONS {
            let query = self.query(question);
            let mut times = Vec::new();
            for run in 0..WARM_UPS + self.runs {
                let ms = match &mut connection {
                    Some((product, connection)) => checker.ask(connection, *product, &query).await?,
                    None => {
                        let (took, answer) = native::ask(&system.collection()?, &query).await?;
                        checker.check(&query, &answer)?;
                        took.as_secs_f64() * 1000.0
                    }
                };
                if run >= WARM_UPS {
                    times.push(ms);
                }
            }
            add(results, title, name, times);
        }
        if let Some(product) = system.peer.product() {
            let query = self.query(Question::SitesHourly);
            let mut times = Vec::new();
            for _ in 0..self.cold {
                system.stop_server()?;
                system.start_again().await?;
                if product == Product::Victoria {
                    // Its response cache survives restarts.
                    system.post("/internal/resetRollupResultCache").await?;
                }
                times.push(checker.ask(&mut system.connect().await?, product, &query).await?);
            }
            add(results, "24 hourly means of all sensors by site, after a restart", name, times);
        }
        system.stop()
    }
}

/// Adds all times of a turn, and their 99th percentile.
fn add(results: &mut Results, title: &str, name: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let last = (times.len() * 99).div_ceil(100).max(1) - 1;
    times.iter().for_each(|ms| results.add("p50 ms", title, name, *ms));
    times.get(last).iter().for_each(|ms| results.add("p99 ms", title, name, **ms));
}
