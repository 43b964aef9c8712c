//! Measures the cost of sealing: a year, readings in time order, live readings meanwhile, and memory. The variants take
//! turns in rounds, for both stores.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::ValueEnum;

use super::disk_usage::DiskUsage;
use super::history::{History, LONGEST};
use super::question::Question;
use super::{Checker, connect_warm};
use crate::fleet::{DAY_S, Delivery, Fleet, HOUR_S, Order, float};
use crate::load::closed::Load;
use crate::load::open::OpenLoop;
use crate::report::{Results, load_average};
use crate::servers::http::Product;
use crate::servers::peer::Peer;
use crate::servers::process;
use crate::servers::programs::Programs;
use crate::servers::system::{Configuration, System};
use crate::stats::quantile_ms;

const MIB: f64 = 1_048_576.0;
/// Live POSTs per second, their lines, and their connections.
const LIVE_RATE: f64 = 80.0;
const LIVE_LINES: i64 = 100;
const LIVE_CONNECTIONS: usize = 8;

/// The aspect to measure instead of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// Deliver days of one sensor after the other, directly into sealed days, and query all of them: `--days 365
    /// --sensors 100` is a year of every tenth of 1,000 sensors.
    Year,
    /// Deliver the readings of all sensors hour by hour, and report the bytes written per stored byte: `--sensors
    /// 100000
    /// --days 1 --interval-s 600`.
    TimeMajor,
    /// Send live readings while history is sealed and while it is not: the cost of sealing, and acks meanwhile.
    Sealing,
    /// Seal one day of all sensors at once, and a day of one sensor with --hertz: peak memory.
    Memory,
}

/// The configuration in which hourglass seals on request only.
pub fn on_demand() -> Configuration {
    Configuration { variables: vec![("HOURGLASS_SEAL_AFTER", "0s".to_owned())], file: "" }
}

/// One measurement of a variant.
struct VariantRun<'a> {
    options: &'a History,
    programs: &'a Programs,
    peer: Peer,
    /// True for the variant that seals, or the one with many sensors.
    is_first: bool,
    checker: &'a mut Checker,
    figures: Vec<(String, f64)>,
}

/// Measures the variants of each store in turns.
pub async fn run(
    options: &History,
    measure: Measure,
    programs: &Programs,
    checker: &mut Checker,
    results: &mut Results,
) -> Result<()> {
    let names = match measure {
        Measure::Year | Measure::TimeMajor => vec![""],
        Measure::Sealing => vec![", sealing", ", not sealing"],
        Measure::Memory => vec![", many sensors", ", a fast sensor"],
    };
    let peers = options.peers.iter().filter(|peer| peer.is_hourglass());
    let variants: Vec<(Peer, &str)> = peers.flat_map(|peer| names.iter().map(|name| (*peer, *name))).collect();
    for round in 0..options.rounds {
        let first = round % variants.len().max(1);
        for (peer, name) in variants[first..].iter().chain(&variants[..first]) {
            let column = format!("{}{name}", peer.name());
            println!("round {}: {column} (load average {})", round + 1, load_average());
            let is_first = *name == names[0];
            let mut variant_run = VariantRun { options, programs, peer: *peer, is_first, checker, figures: Vec::new() };
            match measure {
                Measure::Year => variant_run.year().await,
                Measure::TimeMajor => variant_run.time_major().await,
                Measure::Sealing => variant_run.sealing().await,
                Measure::Memory => variant_run.memory().await,
            }
            .with_context(|| column.clone())?;
            for (row, value) in variant_run.figures {
                results.add("history", &row, &column, value);
            }
            results.write(&options.output)?;
        }
    }
    Ok(())
}

impl<'a> VariantRun<'a> {
    fn add(&mut self, row: &str, value: f64) {
        self.figures.push((row.to_owned(), value));
    }

    async fn start(&self, configuration: Configuration) -> Result<System<'a>> {
        System::start_with(self.peer, self.programs, &self.options.programs.folder, configuration).await
    }

    async fn year(&mut self) -> Result<()> {
        let delivery = Delivery { fleet: self.options.fleet(), order: Order::Sensor { period_ms: DAY_S * 1000 } };
        let mut system = self.start(Configuration::default()).await?;
        self.load(&system, delivery).await?;
        self.stored(&mut system, delivery).await?;
        let questions = [Question::SitesDaily, Question::SensorDaily, Question::SensorHourly];
        for (number, question) in questions.into_iter().enumerate() {
            for repetition in 0..self.options.tries {
                let query = self.options.query(question, number, repetition);
                system.start_again().await?;
                let mut connection = connect_warm(&system, Product::Hourglass, &query).await?;
                let ms = self.checker.ask(&mut connection, Product::Hourglass, &query).await?;
                self.add(&format!("ms: {}, all days", question.name()), ms);
                system.stop()?;
            }
        }
        Ok(())
    }

    async fn time_major(&mut self) -> Result<()> {
        let delivery = hour_by_hour(self.options.fleet());
        let readings = float(delivery.fleet.readings());
        let mut system = self.start(Configuration::default()).await?;
        self.load(&system, delivery).await?;
        let log = system.metric("hourglass_wal_appended_bytes_total").await?;
        let by_server = process::written_bytes(system.pid()?)?;
        let by_mongod = system.mongod_pid().map(process::written_bytes).transpose()?;
        self.add("B per reading: records of the log", log / readings);
        self.add("B per reading: written by the server", by_server / readings);
        if let Some(bytes) = by_mongod {
            self.add("B per reading: written by mongod", bytes / readings);
        }
        // With the embedded store, the server writes both. With MongoDB, it writes only the WAL.
        let store = by_mongod.unwrap_or((by_server - log).max(0.0));
        let at_rest = self.stored(&mut system, delivery).await?;
        self.add("written to the store, by what is stored", store / at_rest);
        Ok(())
    }

    async fn sealing(&mut self) -> Result<()> {
        let mut system = self.start(on_demand()).await?;
        Load::all(hour_by_hour(self.options.fleet())).send(system.address()?, "/write?db=bench").await?;
        system.flush().await?;
        let before = system.usage()?;
        // The last of the live readings is current.
        let now_s = jiff::Timestamp::now().as_second();
        let live =
            Fleet { start_s: now_s - DAY_S, interval_ms: 60_000, sensors: 100, ticks: 1440, ..self.options.fleet() };
        let live = Delivery::in_time_order(live);
        let open_loop = OpenLoop {
            target: system.address()?.to_owned(),
            path: "/write?db=bench".to_owned(),
            connections: LIVE_CONNECTIONS,
            rate: LIVE_RATE,
            duration: Duration::from_secs(self.options.seconds),
            reconnect_every: None,
        };
        let posts = live.posts(LIVE_LINES);
        let bodies = (0..).map(move |post| live.body(post % posts, LIVE_LINES));
        let mut sending = open_loop.start(bodies);
        let load_result = if self.is_first {
            tokio::select! {
                load_result = &mut sending => load_result,
                sealed = seal_all(&system) => {
                    sealed?;
                    sending.await
                }
            }
        } else {
            sending.await
        };
        let load_result = load_result??;
        let used = system.usage()?;
        let sealed = seal_job(&system, "/progress/readings").await?;
        self.add("ack p50, ms", quantile_ms(&load_result.acks, 0.5));
        self.add("ack p99, ms", load_result.p99_ms());
        self.add("CPU s per s", (used.cpu_s - before.cpu_s) / (used.time - before.time).as_secs_f64());
        self.add("readings sealed", sealed);
        if self.is_first {
            // Seal the rest without other load, to measure the cost of sealing.
            let before = system.usage()?;
            seal_all(&system).await?;
            let used = system.usage()?;
            let remaining = seal_job(&system, "/progress/readings").await? - sealed;
            if remaining > 0.0 {
                self.add("CPU µs per reading sealed", (used.cpu_s - before.cpu_s) * 1e6 / remaining);
            }
        }
        system.stop()
    }

    async fn memory(&mut self) -> Result<()> {
        let fleet = self.options.fleet();
        let delivery = if self.is_first {
            hour_by_hour(Fleet { ticks: fleet.ticks_in(DAY_S), ..fleet })
        } else {
            let interval_ms = 1000 / self.options.hertz;
            Delivery::in_time_order(Fleet { sensors: 1, interval_ms, ticks: DAY_S * 1000 / interval_ms, ..fleet })
        };
        let mut system = self.start(on_demand()).await?;
        Load::all(delivery).send(system.address()?, "/write?db=bench").await?;
        system.flush().await?;
        let loading = process::peak_mib(system.pid()?)?;
        system.restart().await?;
        let started = Instant::now();
        seal_all(&system).await?;
        let sealed = seal_job(&system, "/progress/readings").await?;
        let sealing = process::peak_mib(system.pid()?)?;
        system.stop()?;
        self.add("readings", float(delivery.fleet.readings()));
        self.add("readings sealed", sealed);
        self.add("peak MiB, loading", loading);
        self.add("peak MiB, sealing", sealing);
        self.add("s to seal", started.elapsed().as_secs_f64());
        Ok(())
    }

    /// Delivers readings, waits until all of them are in sealed days, and adds the cost.
    async fn load(&mut self, system: &System<'_>, delivery: Delivery) -> Result<()> {
        let before = system.usage()?;
        Load::all(delivery).send(system.address()?, "/write?db=bench").await?;
        system.flush().await?;
        seal_all(system).await?;
        let after = system.usage()?;
        let readings = float(delivery.fleet.readings());
        self.add("CPU µs per reading, until sealed", (after.cpu_s - before.cpu_s) * 1e6 / readings);
        self.add("s until sealed", (after.time - before.time).as_secs_f64());
        self.add("peak MiB of the server", process::peak_mib(system.pid()?)?);
        if let Some(mongod) = system.mongod_pid() {
            self.add("peak MiB of mongod", process::peak_mib(mongod)?);
        }
        Ok(())
    }

    /// Stops the servers, and adds the size of their storage. Returns its bytes without the WAL.
    async fn stored(&mut self, system: &mut System<'_>, delivery: Delivery) -> Result<f64> {
        let stored = DiskUsage::measure(system).await?.stored_bytes();
        self.add("B per reading: at rest", stored / float(delivery.fleet.readings()));
        self.add("MiB at rest", stored / MIB);
        Ok(stored)
    }
}

/// Returns the readings hour by hour, and sensor by sensor within an hour.
fn hour_by_hour(fleet: Fleet) -> Delivery {
    Delivery { fleet, order: Order::Sensor { period_ms: HOUR_S * 1000 } }
}

/// Returns a figure of the seal job by its JSON pointer, or 0 while it is unknown.
pub async fn seal_job(system: &System<'_>, figure: &str) -> Result<f64> {
    let job: serde_json::Value = serde_json::from_str(&system.get("/api/v1/jobs/seal").await?)?;
    Ok(job.pointer(figure).and_then(serde_json::Value::as_f64).unwrap_or(0.0))
}

/// Requests rounds of sealing until nothing is left to seal.
pub async fn seal_all(system: &System<'_>) -> Result<()> {
    let started = Instant::now();
    loop {
        let answer = system.connect().await?.post("/api/v1/jobs/seal/run", Bytes::new()).await?;
        ensure!([200, 202].contains(&answer.status), "the job seal was answered {}", answer.status);
        let body: serde_json::Value = serde_json::from_slice(&answer.body)?;
        if answer.status == 200 && body["last_error"].is_null() && body["progress"]["unsettled"] == 0 {
            return Ok(());
        }
        ensure!(started.elapsed() < LONGEST, "not all days were sealed within {LONGEST:?}: {body}");
    }
}
