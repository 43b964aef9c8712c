//! Measures past days in hourglass, which seals them, and in other databases: their size on disk, the cost of loading
//! them, and the time of queries without caches. A wrong answer ends the run.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::clickhouse::ClickHouse;
use super::disk_usage::{self, DiskUsage};
use super::question::{Query, Question};
use super::sealing::{self, Measure, on_demand, seal_all};
use super::{Checker, connect_warm, dialect};
use crate::fleet::{DAY_S, Delivery, Fleet, HOUR_S, START_S, Values, float, sensor_name};
use crate::load::closed::Load;
use crate::report::{Output, Results, SystemRow, load_average};
use crate::servers::http::Product;
use crate::servers::peer::Peer;
use crate::servers::process;
use crate::servers::programs::{ProgramOptions, Programs};
use crate::servers::spawn::Folder;
use crate::servers::system::System;
use crate::servers::usage::Usage;
use crate::throughput::totals;

/// Idle time after which servers are at rest. They look for work every second.
const QUIET: Duration = Duration::from_secs(3);
/// Maximum time to seal, merge or compact.
pub const LONGEST: Duration = Duration::from_secs(1800);
/// Titles of the tables.
const STORED: &str = "stored";
const COLD: &str = "cold, p50 ms";
const WARM_MONGOD: &str = "only hourglass started anew, p50 ms";

/// Load past days into hourglass, which seals them, and into other databases, and query them.
#[derive(Debug, Args)]
pub struct History {
    /// Number of days, starting at 2025-01-15.
    #[arg(long, default_value_t = 3)]
    days: i64,
    #[arg(long, default_value_t = 30)]
    sensors: i64,
    /// Seconds between two readings of a sensor.
    #[arg(long, default_value_t = 60)]
    interval_s: i64,
    #[arg(long, default_value = "waves")]
    values: Values,
    /// Number of rounds; each system has one turn per round.
    #[arg(long, default_value_t = 1)]
    pub rounds: usize,
    /// Measured runs of each query per turn, each after a fresh start of the servers.
    #[arg(long, default_value_t = 5)]
    pub tries: usize,
    /// A system to measure. You can repeat this flag.
    #[arg(long = "peer", value_enum, default_values_t = Peer::ARCHIVES)]
    pub peers: Vec<Peer>,
    /// Measure this aspect of hourglass, instead of the comparison.
    #[arg(long)]
    measure: Option<Measure>,
    /// Seconds of live readings of `--measure sealing`.
    #[arg(long, default_value_t = 20)]
    pub seconds: u64,
    /// Readings per second of the fast sensor of `--measure memory`.
    #[arg(long, default_value_t = 100)]
    pub hertz: i64,
    /// A Python that has PyPI's `chdb`, for ClickHouse.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    #[command(flatten)]
    pub programs: ProgramOptions,
    #[command(flatten)]
    pub output: Output,
}

impl History {
    pub fn fleet(&self) -> Fleet {
        let interval_ms = self.interval_s * 1000;
        Fleet {
            interval_ms,
            values: self.values,
            ..Fleet::by_minute(self.sensors, self.days * DAY_S / self.interval_s)
        }
    }

    /// Returns another sensor for each query and run, and never the last one, which warms up connections.
    pub fn query(&self, question: Question, number: usize, repetition: usize) -> Query {
        let number = i64::try_from(number * 11 + repetition * 37 + 5).unwrap_or_default();
        Query::new(question, number % (self.sensors - 1), self.fleet())
    }
}

pub async fn run(options: History) -> Result<()> {
    ensure!(options.rounds > 0 && options.tries > 0, "no rounds or no tries");
    ensure!(options.sensors >= 2 && options.days >= 1, "fewer than 2 sensors or 1 day");
    ensure!(options.interval_s >= 1 && HOUR_S % options.interval_s == 0, "the interval must divide an hour");
    let now_s = jiff::Timestamp::now().as_second();
    ensure!(options.fleet().end_s() + DAY_S < now_s, "the days are not over yet: fewer --days");
    let programs = options.programs.programs();
    let mut comparison =
        Comparison { options: &options, programs: &programs, checker: Checker::default(), results: Results::new() };
    if let Some(measure) = options.measure {
        sealing::run(&options, measure, &programs, &mut comparison.checker, &mut comparison.results).await?;
        return comparison.results.finish(&options.output);
    }
    comparison.results.against = vec![Peer::Victoriametrics.name().to_owned()];
    for round in 0..options.rounds {
        let first = round % options.peers.len();
        for peer in options.peers[first..].iter().chain(&options.peers[..first]) {
            println!("round {}: {} (load average {})", round + 1, peer.name(), load_average());
            match peer.product() {
                Some(product) => comparison.over_http(*peer, product, round == 0).await,
                None => comparison.clickhouse(*peer, round == 0).await,
            }
            .with_context(|| peer.name())?;
            comparison.results.write(&options.output)?;
        }
    }
    comparison.results.finish(&options.output)
}

struct Comparison<'a> {
    options: &'a History,
    programs: &'a Programs,
    checker: Checker,
    results: Results,
}

impl Comparison<'_> {
    fn add(&mut self, table: &str, row: &str, peer: Peer, value: f64) {
        self.results.add(table, row, peer.name(), value);
    }

    /// Adds the CPU time per reading of a phase.
    fn add_cpu(&mut self, row: &str, peer: Peer, before: Usage, after: Usage) {
        let readings = float(self.options.fleet().readings());
        self.add(STORED, row, peer, (after.cpu_s - before.cpu_s) * 1e6 / readings);
        println!("  {row}: {:.1} s", (after.time - before.time).as_secs_f64());
    }

    /// Loads the readings, lets the system settle, measures its storage, and runs the queries.
    async fn over_http(&mut self, peer: Peer, product: Product, is_first: bool) -> Result<()> {
        if is_first {
            self.results.systems.push(peer.row(self.programs, "")?);
        }
        let fleet = self.options.fleet();
        let folder = &self.options.programs.folder;
        let mut system = System::start_with(peer, self.programs, folder, on_demand()).await?;
        let before = system.usage()?;
        Load::all(Delivery::in_time_order(fleet)).send(system.address()?, product.write_path()).await?;
        let drained = system.drain().await?;
        self.add_cpu("CPU µs per reading, until drained", peer, before, drained);
        let mut peak = process::peak_mib(system.pid()?)?;
        // A process that is started for settling has no earlier usage.
        let before = if product == Product::Influx { Usage::now(&[])? } else { system.usage()? };
        self.settle(product, &mut system).await?;
        // A mongod is never idle; hourglass says when it has sealed.
        let settled = match product {
            Product::Hourglass => system.usage()?,
            Product::Influx | Product::Victoria => Usage::await_idle_for(&system.pids(), QUIET, LONGEST).await?,
        };
        self.add_cpu("CPU µs per reading, to seal or merge", peer, before, settled);
        peak = peak.max(process::peak_mib(system.pid()?)?);
        if product == Product::Hourglass {
            self.ensure_sealed(&system).await?;
        }
        for (field, sum) in Fleet::FIELDS.into_iter().zip(self.sums()) {
            self.check_totals(field, sum, totals(&system, product, fleet, field).await?)?;
        }
        for (row, value) in DiskUsage::measure(&mut system).await?.figures(float(fleet.readings())) {
            self.add(STORED, row, peer, value);
        }
        self.add(STORED, "peak MiB of the server", peer, peak);
        for (number, question) in Question::ALL.into_iter().enumerate() {
            for repetition in 0..self.options.tries {
                system.start_again().await?;
                let ms = self.ask(&system, product, question, (number, repetition)).await?;
                self.add(COLD, question.name(), peer, ms);
                system.stop()?;
            }
        }
        if peer.has_mongod() {
            self.ask_warm_mongod(product, &mut system).await?;
        }
        Ok(())
    }

    /// Runs the queries with a mongod that has answered all of them before.
    async fn ask_warm_mongod(&mut self, product: Product, system: &mut System<'_>) -> Result<()> {
        for is_counted in [false, true] {
            for (number, question) in Question::ALL.into_iter().enumerate() {
                for repetition in 0..if is_counted { self.options.tries } else { 1 } {
                    system.start_again().await?;
                    let ms = self.ask(system, product, question, (number, repetition)).await?;
                    if is_counted {
                        self.add(WARM_MONGOD, question.name(), system.peer, ms);
                    }
                    system.stop_server()?;
                }
            }
        }
        system.stop()
    }

    async fn ask(
        &mut self,
        system: &System<'_>,
        product: Product,
        question: Question,
        run: (usize, usize),
    ) -> Result<f64> {
        let query = self.options.query(question, run.0, run.1);
        let mut connection = connect_warm(system, product, &query).await?;
        self.checker.ask(&mut connection, product, &query).await
    }

    /// Waits until a system has old readings in their final form.
    async fn settle(&self, product: Product, system: &mut System<'_>) -> Result<()> {
        match product {
            // Months are added up once all days are sealed.
            Product::Hourglass => seal_all(system).await,
            Product::Influx => {
                system.stop_server()?;
                // It compacts shards that got no writes for so long.
                system.configuration.variables = vec![
                    ("INFLUXDB_DATA_CACHE_SNAPSHOT_WRITE_COLD_DURATION", "1s".to_owned()),
                    ("INFLUXDB_DATA_COMPACT_FULL_WRITE_COLD_DURATION", "1s".to_owned()),
                ];
                system.start_again().await
            }
            Product::Victoria => system.get("/internal/force_merge").await.map(drop),
        }
    }

    /// Checks that all readings are sealed, and that MongoDB has no hour pages left.
    async fn ensure_sealed(&self, system: &System<'_>) -> Result<()> {
        let sealed = super::sealing::seal_job(system, "/progress/readings").await?;
        let readings = float(self.options.fleet().readings());
        ensure!(sealed >= readings, "{sealed} readings were sealed instead of {readings}");
        if let Ok(mongod) = system.mongod() {
            let pages = disk_usage::hour_pages(mongod).await?;
            ensure!(pages == 0, "{pages} hour pages are left");
        }
        Ok(())
    }

    async fn clickhouse(&mut self, peer: Peer, is_first: bool) -> Result<()> {
        let fleet = self.options.fleet();
        let folder = Folder::new(&self.options.programs.folder)?;
        let path = folder.path();
        let mut running = ClickHouse::start(&self.options.python, path)?;
        if is_first {
            let name = peer.name().to_owned();
            let version = running.version.clone();
            self.results.systems.push(SystemRow { name, version, note: String::new() });
        }
        let pids = [running.pid()];
        let before = Usage::now(&pids)?;
        running.load(&fleet, peer == Peer::ClickhouseCodecs, path).await?;
        let drained = Usage::await_idle_for(&pids, QUIET, LONGEST).await?;
        self.add_cpu("CPU µs per reading, until drained", peer, before, drained);
        let before = Usage::now(&pids)?;
        running.run("OPTIMIZE TABLE climate FINAL")?;
        let settled = Usage::await_idle_for(&pids, QUIET, LONGEST).await?;
        self.add_cpu("CPU µs per reading, to seal or merge", peer, before, settled);
        let (data, indexes) = running.disk_bytes()?;
        for (row, value) in (DiskUsage { data, indexes, ..DiskUsage::default() }).figures(float(fleet.readings())) {
            self.add(STORED, row, peer, value);
        }
        self.add(STORED, "peak MiB of the server", peer, process::peak_mib(pids[0])?);
        for (field, sum) in Fleet::FIELDS.into_iter().zip(self.sums()) {
            let (_, found) = running.run(&format!("SELECT count(), sum({field}) FROM climate"))?;
            let found = found.split_whitespace().map(str::parse::<f64>).collect::<Result<Vec<_>, _>>()?;
            let [count, total] = found.as_slice() else { anyhow::bail!("no count and sum") };
            self.check_totals(field, sum, [*count, *total])?;
        }
        running.stop()?;
        for (number, question) in Question::ALL.into_iter().enumerate() {
            for repetition in 0..self.options.tries {
                let query = self.options.query(question, number, repetition);
                let mut running = ClickHouse::start(&self.options.python, path)?;
                let warm_up = sensor_name(fleet.sensors - 1);
                running.run(&format!(
                    "SELECT avg(temp) FROM climate WHERE sensor = '{warm_up}' AND time < toDateTime({})",
                    START_S + HOUR_S
                ))?;
                let (took, rows) = running.run(&dialect::sql(&query))?;
                self.checker.check(&query, &dialect::rows(&rows)?)?;
                self.add(COLD, question.name(), peer, took.as_secs_f64() * 1000.0);
                running.stop()?;
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Checks that every reading is stored.
    fn check_totals(&self, field: &str, expected: f64, found: [f64; 2]) -> Result<()> {
        let readings = float(self.options.fleet().readings());
        let [count, sum] = found;
        ensure!((count - readings).abs() < 0.5, "{count} values of {field} instead of {readings}");
        ensure!((sum - expected).abs() <= 1e-9 * expected, "the sum of {field} is {sum} instead of {expected}");
        Ok(())
    }

    /// Returns the sums of both fields.
    fn sums(&self) -> [f64; 2] {
        let fleet = self.options.fleet();
        let mut temp = 0;
        let mut humidity = 0;
        for sensor in 0..fleet.sensors {
            for tick in 0..fleet.ticks {
                let reading = fleet.reading(sensor, tick);
                temp += reading.temp_hundredths;
                humidity += reading.humidity;
            }
        }
        [float(temp) / 100.0, float(humidity)]
    }
}
