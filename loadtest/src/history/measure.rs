//! What is measured of hourglass alone: a year, readings in time order, the cost of sealing, live data with two binaries, and
//! memory. Each by a flag, for both stores, in rounds in which the variants take turns.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::{Args, ValueEnum};

use super::deliveries::{Deliverer, Delivery};
use super::fleet::Fleet;
use super::measured::{Measured, MeasuredTurn};
use super::peer::Peer;
use super::question::Question;
use super::rest;
use super::turn::{Bench, Running, Sealing};
use crate::client::Connection;
use crate::process;
use crate::sending::{Sent, send_all};
use crate::servers::http::Product;
use crate::servers::spawn::Folder;
use crate::servers::usage::Usage;
use crate::stats::{percentile_ms, to_f64};

const CONNECTIONS: usize = 8;
/// Lines per POST, and those of a client that sends little at a time, and its pause.
const LINES: i64 = 5000;
const FEW_LINES: i64 = 100;
const PACE: Duration = Duration::from_millis(100);
/// The longest time to seal everything.
const LONGEST: Duration = Duration::from_secs(1800);
const MIB: f64 = 1_048_576.0;

/// What to measure instead of the comparison.
#[derive(Debug, Clone, Args)]
#[group(multiple = false)]
pub struct MeasureFlag {
    /// Deliver days of one sensor after the other, straight into sealed days, and ask about all of them: `--days 365
    /// --sensors 100` is a year of every tenth of 1,000 sensors.
    #[arg(long)]
    year: bool,
    /// Deliver all sensors' readings hour by hour, and tell what is written to disk for what is stored: `--sensors 100000
    /// --days 1 --interval-s 600`.
    #[arg(long)]
    time_major: bool,
    /// Send live readings while history is sealed and while it is not: the cost of sealing, and acks meanwhile.
    #[arg(long)]
    sealing: bool,
    /// Send live readings to this binary and to the one of --before in turns: CPU and acks.
    #[arg(long, requires = "before")]
    live: bool,
    /// Seal one day of all sensors at once, and a day of one sensor with --hertz: peak memory.
    #[arg(long)]
    memory: bool,
}

/// Its details.
#[derive(Debug, Clone, Args)]
pub struct MeasureOptions {
    #[command(flatten)]
    flag: MeasureFlag,
    /// The hourglass that --live compares with.
    #[arg(long)]
    before: Option<PathBuf>,
    /// How long --sealing sends.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Readings per second of the fast sensor of --memory.
    #[arg(long, default_value_t = 100)]
    hertz: i64,
    /// How many hours of it there are.
    #[arg(long, default_value_t = 24)]
    hours: i64,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    Year,
    TimeMajor,
    Sealing,
    Live,
    Memory,
}

/// One variant of a round.
struct Variant {
    name: String,
    peer: Peer,
    /// Whether it is the one with sealing, or the binary of `--before`, or the case with many sensors.
    first: bool,
}

type Figures = BTreeMap<String, f64>;

impl MeasureOptions {
    fn what(&self) -> Option<What> {
        let MeasureFlag { year, time_major, sealing, live, memory } = self.flag;
        let flags = [year, time_major, sealing, live, memory];
        let all = [What::Year, What::TimeMajor, What::Sealing, What::Live, What::Memory];
        flags.iter().zip(all).find(|(flag, _)| **flag).map(|(_, what)| what)
    }

    /// Whether anything but the comparison is asked for.
    pub fn is_given(&self) -> bool {
        self.what().is_some()
    }

    /// Measures what was asked for, and prints the table.
    pub async fn run(&self, bench: &mut Bench, peers: &[Peer], rounds: usize, json: Option<&Path>) -> Result<()> {
        let what = self.what().context("nothing was asked for")?;
        let peers: Vec<Peer> =
            peers.iter().copied().filter(|peer| peer.product() == Some(Product::Hourglass)).collect();
        let mut measured = Measured {
            what: format!(
                "`--{}`",
                what.to_possible_value().map(|name| name.get_name().to_owned()).unwrap_or_default()
            ),
            machine: super::machine(&bench.programs, &peers)?,
            load_average_before: super::load_average(),
            data: bench.fleet,
            turns: Vec::new(),
        };
        let variants = self.variants(what, &peers);
        for round in 0..rounds {
            let first = round % variants.len();
            for variant in variants[first..].iter().chain(&variants[..first]) {
                println!("round {}: {} (load average {})", round + 1, variant.name, super::load_average());
                let folder = Folder::new(&bench.folder, "history")?;
                let figures = self.turn(what, bench, variant, &folder).await.with_context(|| variant.name.clone())?;
                for (name, value) in &figures {
                    println!("  {name}: {value:.3}");
                }
                measured.turns.push(MeasuredTurn { variant: variant.name.clone(), round: round + 1, figures });
                if let Some(path) = json {
                    measured.write(path)?;
                }
            }
        }
        println!("\n{}", measured.markdown());
        Ok(())
    }

    fn variants(&self, what: What, peers: &[Peer]) -> Vec<Variant> {
        let of = |peer: &Peer| {
            let [first, second] = match what {
                What::Sealing => ["sealing", "not sealing"],
                What::Live => ["before", "now"],
                What::Memory => ["many sensors", "a fast sensor"],
                What::Year | What::TimeMajor => ["", ""],
            };
            let named = |more: &str, is_first| {
                let name = if more.is_empty() { peer.name().to_owned() } else { format!("{}, {more}", peer.name()) };
                Variant { name, peer: *peer, first: is_first }
            };
            if first.is_empty() { vec![named("", true)] } else { vec![named(first, true), named(second, false)] }
        };
        peers.iter().flat_map(of).collect()
    }

    async fn turn(&self, what: What, bench: &mut Bench, variant: &Variant, folder: &Folder) -> Result<Figures> {
        match what {
            What::Year => self.year(bench, variant.peer, folder).await,
            What::TimeMajor => self.time_major(bench, variant.peer, folder).await,
            What::Sealing => self.sealing(bench, variant, folder).await,
            What::Live => self.live(bench, variant, folder).await,
            What::Memory => self.memory(bench, variant, folder).await,
        }
    }

    async fn year(&self, bench: &mut Bench, peer: Peer, folder: &Folder) -> Result<Figures> {
        let delivery = Delivery::DayByDay(bench.fleet);
        let (running, port) = bench.start_anew(peer, folder, Sealing::Usual).await?;
        let mut figures = Figures::new();
        let running = loaded(running, delivery, &mut figures).await?;
        stored(running, folder, delivery.readings(), &mut figures).await?;
        let asked = [
            (Question::SitesDaily, "ms: daily means by site, all days"),
            (Question::SensorDaily, "ms: one sensor, daily means, all days"),
            (Question::SensorHourly, "ms: one sensor, hourly means, all days"),
        ];
        for (number, (question, name)) in asked.into_iter().enumerate() {
            let mut times = Vec::new();
            for again in 0..bench.tries {
                let asked = bench.asked(question, number, again);
                let mut running = bench.start_again(peer, folder, port, Sealing::Usual).await?;
                bench.warm_up(&mut running.server).await?;
                times.push(bench.ask(&mut running.server, &asked).await?);
                running.stop()?;
            }
            figures.insert(name.to_owned(), crate::stats::median(times));
        }
        Ok(figures)
    }

    async fn time_major(&self, bench: &mut Bench, peer: Peer, folder: &Folder) -> Result<Figures> {
        let delivery = Delivery::HourByHour(bench.fleet);
        let (running, _) = bench.start_anew(peer, folder, Sealing::Usual).await?;
        let mut figures = Figures::new();
        let mut running = loaded(running, delivery, &mut figures).await?;
        running.server.reconnect().await?;
        let log = metric(&mut running.server, "hourglass_wal_appended_bytes_total").await?;
        let by_server = to_f64(usize::try_from(process::written_bytes(running.server.pid())?)?);
        let by_mongod = match &running.mongod {
            Some(mongod) => to_f64(usize::try_from(process::written_bytes(mongod.pid())?)?),
            None => 0.0,
        };
        let readings = delivery.readings();
        let per_reading = |bytes: f64| bytes / to_f64(usize::try_from(readings).unwrap_or(1));
        figures.insert("B per reading: records of the log".to_owned(), per_reading(log));
        figures.insert("B per reading: written by the server".to_owned(), per_reading(by_server));
        if running.mongod.is_some() {
            figures.insert("B per reading: written by mongod".to_owned(), per_reading(by_mongod));
        }
        // Of the embedded store, the server writes both; of MongoDB, it writes the log only.
        let store = if running.mongod.is_some() { by_mongod } else { (by_server - log).max(0.0) };
        let at_rest = stored(running, folder, readings, &mut figures).await?;
        figures.insert("written to the store, by what is stored".to_owned(), store / at_rest);
        Ok(figures)
    }

    async fn sealing(&self, bench: &mut Bench, variant: &Variant, folder: &Folder) -> Result<Figures> {
        let history = Delivery::HourByHour(bench.fleet);
        let (mut running, port) = bench.start_anew(variant.peer, folder, Sealing::Off).await?;
        send(&running, history, (LINES, Duration::ZERO)).await?;
        running.server.reconnect().await?;
        running.server.flush().await?;
        running.stop()?;

        let sealing = if variant.first { Sealing::Fast } else { Sealing::Off };
        let mut running = bench.start_again(variant.peer, folder, port, sealing).await?;
        let before = Usage::now(&running.pids())?;
        let until = Instant::now() + Duration::from_secs(self.seconds);
        // The same number of small POSTs in both variants, at a pace that leaves the machine time.
        let live = Fleet { days: 1, sensors: 100, interval_s: 3600, ..bench.fleet };
        let mut latencies = Vec::new();
        let mut rounds = 0;
        while Instant::now() < until {
            let sent = send(&running, Delivery::Until(live, now_s()? - rounds), (FEW_LINES, PACE)).await?;
            latencies.extend(sent.latencies);
            rounds += 1;
        }
        let used = Usage::now(&running.pids())?;
        running.server.reconnect().await?;
        let sealed = seal_job(&mut running.server, "/progress/readings").await?;
        let mut figures = Figures::new();
        figures.insert("ack p50, ms".to_owned(), percentile_ms(&latencies, 50));
        figures.insert("ack p99, ms".to_owned(), percentile_ms(&latencies, 99));
        figures.insert("acks".to_owned(), to_f64(latencies.len()));
        figures.insert("CPU s per s".to_owned(), (used.cpu_s - before.cpu_s) / (used.at - before.at).as_secs_f64());
        figures.insert("readings sealed".to_owned(), sealed);
        if variant.first {
            // What is left is sealed while nothing else happens: that is what sealing costs.
            let (before, sealed_before) = (Usage::now(&running.pids())?, sealed);
            seal_all(&mut running).await?;
            let used = Usage::now(&running.pids())?;
            let sealed = seal_job(&mut running.server, "/progress/readings").await? - sealed_before;
            if sealed > 0.0 {
                figures.insert("CPU µs per reading sealed".to_owned(), (used.cpu_s - before.cpu_s) * 1e6 / sealed);
            }
        }
        running.stop()?;
        Ok(figures)
    }

    async fn live(&self, bench: &mut Bench, variant: &Variant, folder: &Folder) -> Result<Figures> {
        let before = self.before.as_ref().context("--before")?;
        let program = if variant.first { std::path::absolute(before)? } else { bench.programs.hourglass.clone() };
        let now = std::mem::replace(&mut bench.programs.hourglass, program);
        let started = bench.start_anew(variant.peer, folder, Sealing::Untold).await;
        bench.programs.hourglass = now;
        let (mut running, _) = started?;
        let delivery = Delivery::Until(bench.fleet, now_s()?);
        let mut figures = Figures::new();
        let (before, readings) = (Usage::now(&running.pids())?, to_f64(usize::try_from(delivery.readings())?));
        let sent = send(&running, delivery, (LINES, Duration::ZERO)).await?;
        let acked = Usage::now(&running.pids())?;
        running.server.reconnect().await?;
        running.server.flush().await?;
        let drained = Usage::now(&running.pids())?;
        figures.insert("CPU µs per reading, until drained".to_owned(), (drained.cpu_s - before.cpu_s) * 1e6 / readings);
        figures.insert("CPU µs per reading, until acked".to_owned(), (acked.cpu_s - before.cpu_s) * 1e6 / readings);
        figures.insert("ack p50, ms".to_owned(), percentile_ms(&sent.latencies, 50));
        figures.insert("ack p99, ms".to_owned(), percentile_ms(&sent.latencies, 99));
        figures.insert("readings per s".to_owned(), readings / sent.took.as_secs_f64());
        figures.insert("peak MiB of the server".to_owned(), mib(process::resident_mib(running.server.pid())?));
        running.stop()?;
        Ok(figures)
    }

    async fn memory(&self, bench: &mut Bench, variant: &Variant, folder: &Folder) -> Result<Figures> {
        let delivery = match variant.first {
            true => Delivery::HourByHour(Fleet { days: 1, ..bench.fleet }),
            false => Delivery::Fast { hertz: self.hertz, hours: self.hours },
        };
        let (mut running, port) = bench.start_anew(variant.peer, folder, Sealing::Off).await?;
        let mut figures = Figures::new();
        send(&running, delivery, (LINES, Duration::ZERO)).await?;
        running.server.reconnect().await?;
        running.server.flush().await?;
        figures.insert("peak MiB, loading".to_owned(), mib(process::resident_mib(running.server.pid())?));
        running.stop()?;
        let mut running = bench.start_again(variant.peer, folder, port, Sealing::Fast).await?;
        let started = Instant::now();
        let expected = to_f64(usize::try_from(delivery.readings())?);
        let sealed = loop {
            let sealed = seal_job(&mut running.server, "/progress/readings").await?;
            let left = seal_job(&mut running.server, "/left").await?
                + seal_job(&mut running.server, "/progress/large").await?;
            // What cannot be sealed is left, and told.
            if sealed >= expected || left > 0.0 && started.elapsed() > Duration::from_secs(30) {
                break sealed;
            }
            ensure!(started.elapsed() < LONGEST, "not everything was sealed within {LONGEST:?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        figures.insert("readings sealed".to_owned(), sealed);
        figures.insert("readings".to_owned(), expected);
        figures.insert("peak MiB, sealing".to_owned(), mib(process::resident_mib(running.server.pid())?));
        figures.insert("s to seal".to_owned(), started.elapsed().as_secs_f64());
        running.stop()?;
        Ok(figures)
    }
}

/// Delivers, waits until all of it is in sealed days, and tells the cost.
async fn loaded(mut running: Running, delivery: Delivery, figures: &mut Figures) -> Result<Running> {
    let before = Usage::now(&running.pids())?;
    send(&running, delivery, (LINES, Duration::ZERO)).await?;
    running.server.reconnect().await?;
    running.server.flush().await?;
    seal_all(&mut running).await?;
    let after = Usage::now(&running.pids())?;
    let readings = to_f64(usize::try_from(delivery.readings())?);
    figures.insert("CPU µs per reading, until sealed".to_owned(), (after.cpu_s - before.cpu_s) * 1e6 / readings);
    figures.insert("s until sealed".to_owned(), (after.at - before.at).as_secs_f64());
    figures.insert("peak MiB of the server".to_owned(), mib(process::resident_mib(running.server.pid())?));
    if let Some(mongod) = &running.mongod {
        figures.insert("peak MiB of mongod".to_owned(), mib(process::resident_mib(mongod.pid())?));
    }
    Ok(running)
}

/// Asks for rounds of sealing until nothing is left that could be sealed.
pub async fn seal_all(running: &mut Running) -> Result<()> {
    let started = Instant::now();
    loop {
        running.server.reconnect().await?;
        let answer = running.server.connection().post("/api/v1/jobs/seal/run", Bytes::new(), false).await?;
        ensure!([200, 202].contains(&answer.status), "the job seal was answered {}", answer.status);
        let body: serde_json::Value = serde_json::from_slice(&answer.body)?;
        if answer.status == 200 && body["last_error"].is_null() && body["progress"]["unsettled"] == 0 {
            return Ok(());
        }
        ensure!(started.elapsed() < LONGEST, "not all days were sealed within {LONGEST:?}: {body}");
    }
}

/// Stops the servers, and tells what they have stored; returns the bytes of it, without the log.
async fn stored(running: Running, folder: &Folder, readings: i64, figures: &mut Figures) -> Result<f64> {
    let in_mongodb = match &running.mongod {
        Some(mongod) => Some(rest::of_mongodb(mongod).await?),
        None => None,
    };
    running.stop()?;
    let rest = rest::of_folder(Product::Hourglass, &folder.sub("server")?, in_mongodb)?;
    let at_rest = rest.data + rest.indexes;
    figures.insert("B per reading: at rest".to_owned(), at_rest / to_f64(usize::try_from(readings)?));
    figures.insert("MiB at rest".to_owned(), at_rest / MIB);
    Ok(at_rest)
}

/// Delivers everything, so many lines per POST of each connection, with that pause between two of them.
async fn send(running: &Running, delivery: Delivery, (lines, pace): (i64, Duration)) -> Result<Sent> {
    let mut senders = Vec::new();
    for _ in 0..CONNECTIONS {
        let connection = Connection::open(running.server.address()).await?;
        senders.push(Deliverer { connection, delivery, lines, pace });
    }
    send_all(senders, delivery.posts(lines)?).await
}

/// A metric of hourglass, summed up over its labels.
async fn metric(server: &mut crate::servers::http::HttpServer, name: &str) -> Result<f64> {
    let (status, text) = server.connection().get("/metrics").await?;
    ensure!(status == 200, "/metrics was answered {status}");
    let of_name = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
    let values = text.lines().filter(of_name).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(values.sum())
}

/// A figure of the job that seals, by its JSON pointer; 0 while it is not known.
async fn seal_job(server: &mut crate::servers::http::HttpServer, figure: &str) -> Result<f64> {
    let (status, text) = server.connection().get("/api/v1/jobs/seal").await?;
    ensure!(status == 200, "/api/v1/jobs/seal was answered {status}");
    let job: serde_json::Value = serde_json::from_str(&text)?;
    Ok(job.pointer(figure).and_then(serde_json::Value::as_f64).unwrap_or(0.0))
}

fn now_s() -> Result<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?)
}

fn mib(mib: u64) -> f64 {
    f64::from(u32::try_from(mib).unwrap_or(u32::MAX))
}
