//! Measures the cost of sensor metadata: its import, queries by it compared with queries by a tag, memory, and acks
//! while its copies in pages are refreshed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Args;
use serde_json::Value;

use crate::fleet::{DAY_S, Delivery, Fleet, HOUR_S, float};
use crate::load::closed::{Load, post_all};
use crate::load::open::{LoadResult, OpenLoop};
use crate::report::{Output, Results};
use crate::servers::peer::{Peer, hourglass_peer};
use crate::servers::process;
use crate::servers::programs::ProgramOptions;
use crate::servers::system::{Configuration, System};
use crate::stats::median;

/// The configuration that copies metadata into pages.
const CONFIG: &str = "[[meta.copy]]\nname = \"place\"\n";
/// Lines per POST.
const LINES: i64 = 2000;
/// Maximum time until all copies are refreshed.
const REFRESH_MAX: Duration = Duration::from_secs(3600);
const CONNECTIONS: usize = 8;
/// The queries, with `{}` in place of the name of a tag or of metadata.
const QUESTIONS: [(&str, &str); 2] = [("one site", "tag.{}=site7&group_by=*"), ("by site", "group_by={}")];
/// Titles of the tables.
const TABLE: &str = "metadata";
const QUERY_TABLE: &str = "hourly means of a day, ms";

/// Measure the cost of sensor metadata.
#[derive(Debug, Args)]
pub struct Metadata {
    /// The hourglass to measure.
    #[arg(long, value_parser = hourglass_peer(), default_value = "hourglass-mongodb")]
    peer: Peer,
    /// Number of sensors.
    #[arg(long, default_value_t = 100_000)]
    sensors: i64,
    /// Readings per second while copies are refreshed.
    #[arg(long, default_value_t = 100_000)]
    rate: u32,
    /// Seconds for which acks are measured without a refresh before each one. It exceeds the minute between two
    /// checkpoints of MongoDB, so that both measurements include them.
    #[arg(long, default_value_t = 70)]
    seconds: u64,
    /// Number of changes of all metadata under load.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Number of times that each query runs by tag and by metadata, in turns; 0 for no queries.
    #[arg(long, default_value_t = 10)]
    asked: usize,
    #[command(flatten)]
    programs: ProgramOptions,
    #[command(flatten)]
    output: Output,
}

pub async fn run(options: Metadata) -> Result<()> {
    ensure!(options.sensors > 0 && i64::from(options.rate) >= LINES, "nothing to do");
    let programs = options.programs.programs();
    let variables = vec![("HOURGLASS_LIMITS_SENSORS", (2 * options.sensors).to_string())];
    let configuration = Configuration { variables, file: CONFIG };
    let folder = &options.programs.folder;
    let mut system = System::start_with(options.peer, &programs, folder, configuration).await?;
    let mut results = Results::new();
    results.systems.push(options.peer.row(&programs, "")?);
    let name = options.peer.name();
    let kib = |mib: f64| mib * 1024.0 / float(options.sensors);

    // A day of hourly readings: hour pages, and summaries for all of them.
    let fleet = options.fleet(24);
    let load = Load { lines: LINES, connections: 2, ..Load::all(Delivery::in_time_order(fleet)) };
    let load = Load { posts: load.delivery.posts(LINES), ..load };
    load.send(system.address()?, "/write?db=bench").await?;
    system.flush().await?;
    results.add(TABLE, "resident KiB per sensor, before", name, kib(settled_mib(&system).await?));
    let imported = import(&options, &system, 0).await?;
    results.add(TABLE, "s to import the metadata of all", name, imported.as_secs_f64());
    system.flush().await?;
    results.add(TABLE, "resident KiB per sensor, after", name, kib(settled_mib(&system).await?));
    for (title, question) in QUESTIONS.into_iter().filter(|_| options.asked > 0) {
        let [tag_ms, meta_ms] = ask(&options, &system, question).await.context(title)?;
        results.add(QUERY_TABLE, title, "by a tag", tag_ms);
        results.add(QUERY_TABLE, title, "by metadata", meta_ms);
    }
    if options.peer == Peer::HourglassMongodb {
        await_refreshed(&system).await?;
        refresh(&options, &system, &mut results).await?;
    }
    results.finish(&options.output)?;
    system.stop()
}

impl Metadata {
    /// Returns sensors with hourly readings until the last full hour.
    fn fleet(&self, hours: i64) -> Fleet {
        let end = jiff::Timestamp::now().as_second() / HOUR_S * HOUR_S;
        let interval_ms = HOUR_S * 1000;
        Fleet { start_s: end - hours * HOUR_S, interval_ms, ..Fleet::by_minute(self.sensors, hours) }
    }
}

/// Queries by tag and by metadata in turns. Both answers must be equal. Returns the medians in milliseconds.
async fn ask(options: &Metadata, system: &System<'_>, question: &str) -> Result<[f64; 2]> {
    let mut connection = system.connect().await?;
    let to = options.fleet(24).end_s();
    let mut took = [Vec::new(), Vec::new()];
    let mut answers = [Value::Null, Value::Null];
    for turn in 0..2 * (options.asked + 1) {
        let name = ["site", "meta.place"][turn % 2];
        // Use another range each time, so that no answer is cached.
        let from = to - DAY_S - i64::try_from(turn / 2)?;
        let path = format!(
            "/api/v1/summary?db=bench&measurement=climate&fields=temp&agg=avg&step=1h&precision=s&from={from}&to={to}&{}",
            question.replace("{}", name)
        );
        let started = Instant::now();
        let body = connection.get(&path).await?;
        let elapsed = started.elapsed();
        answers[turn % 2] = windows(&serde_json::from_str(&body)?);
        // Ignore the first query of each, which finds nothing in memory.
        if turn >= 2 {
            took[turn % 2].push(elapsed.as_secs_f64() * 1000.0);
        }
        ensure!(turn % 2 == 0 || answers[0] == answers[1], "the answers by tag and by metadata differ");
    }
    Ok(took.map(median))
}

/// Returns the windows of all series, without their names.
fn windows(answer: &Value) -> Value {
    answer["series"].as_array().into_iter().flatten().map(|series| series["windows"].clone()).collect()
}

/// Measures acks in turns: without a change, and while all metadata changes and its copies are refreshed.
async fn refresh(options: &Metadata, system: &System<'_>, results: &mut Results) -> Result<()> {
    let quiet = Duration::from_secs(options.seconds);
    // Create pages of this hour for all sensors first.
    run_under_load(options, system, tokio::time::sleep(quiet)).await?;
    for round in 1..=options.rounds {
        let (load_result, ()) = run_under_load(options, system, tokio::time::sleep(quiet)).await?;
        results.add(TABLE, "ack p99 ms, without a change", system.peer.name(), load_result.p99_ms());
        let started = Instant::now();
        let change = async {
            import(options, system, round).await?;
            await_refreshed(system).await
        };
        let (load_result, done) = run_under_load(options, system, change).await?;
        done?;
        let name = system.peer.name();
        results.add(TABLE, "s until all copies have followed a change", name, started.elapsed().as_secs_f64());
        results.add(TABLE, "ack p99 ms, meanwhile", name, load_result.p99_ms());
    }
    Ok(())
}

/// Sends current readings of all sensors in turn until `work` is over, and returns its result.
async fn run_under_load<T>(
    options: &Metadata,
    system: &System<'_>,
    work: impl Future<Output = T>,
) -> Result<(LoadResult, T)> {
    let open_loop = OpenLoop {
        target: system.address()?.to_owned(),
        path: "/write?db=bench".to_owned(),
        connections: CONNECTIONS,
        rate: f64::from(options.rate) / float(LINES),
        duration: REFRESH_MAX,
        reconnect_every: None,
    };
    // Each tick of a millisecond has a reading of each sensor.
    let fleet =
        Fleet { start_s: jiff::Timestamp::now().as_second(), interval_ms: 1, ticks: i64::MAX, ..options.fleet(1) };
    let delivery = Delivery::in_time_order(fleet);
    let is_over = Arc::new(AtomicBool::new(false));
    let is_running = is_over.clone();
    let bodies = (0..).map(move |post| delivery.lines(post * LINES, LINES));
    let bodies = bodies.take_while(move |_| !is_running.load(Ordering::Relaxed));
    let sending = open_loop.start(bodies);
    let result = work.await;
    is_over.store(true, Ordering::Relaxed);
    Ok((sending.await??, result))
}

/// Waits until no copies are left, three times in a row, because the job counts again after the writes have ended.
async fn await_refreshed(system: &System<'_>) -> Result<()> {
    let started = Instant::now();
    let mut idle = 0;
    while idle < 3 {
        ensure!(started.elapsed() < REFRESH_MAX, "copies are left after {REFRESH_MAX:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let job: Value = serde_json::from_str(&system.get("/api/v1/jobs/refresh").await?)?;
        let left = job["left"].as_u64().context("no left in the state of the job")?;
        idle = if left == 0 { idle + 1 } else { 0 };
    }
    Ok(())
}

/// Imports the metadata of all sensors in batches, as `hourglass sensor import` does.
async fn import(options: &Metadata, system: &System<'_>, round: usize) -> Result<Duration> {
    let sensors = options.sensors;
    let delivery = Delivery::in_time_order(options.fleet(1));
    let load = Load { posts: delivery.posts(LINES), lines: LINES, connections: 1, ..Load::all(delivery) };
    let body = move |post: usize| {
        let first = i64::try_from(post).unwrap_or_default() * LINES;
        let lines = (first..sensors.min(first + LINES)).map(|sensor| metadata(sensor, round));
        Bytes::from(lines.collect::<String>())
    };
    let sent = post_all(system.address()?, "/api/v1/meta?db=bench", &load, body).await?;
    Ok(sent.took)
}

/// Returns a line of metadata. In round 0, the place is the site.
fn metadata(sensor: i64, round: usize) -> String {
    let place = crate::fleet::site_name(sensor) + &if round == 0 { String::new() } else { format!("-{round}") };
    let key = crate::fleet::sensor_key(sensor);
    let floor = sensor % 7;
    let meta = format!(r#"{{"place":"{place}","name":"sensor {sensor}","unit":"°C","floor":{floor}}}"#);
    format!("{{\"sensor\":\"{key}\",\"meta\":{meta}}}\n")
}

/// Returns the resident memory once it is stable.
async fn settled_mib(system: &System<'_>) -> Result<f64> {
    let mut before = process::resident_mib(system.pid()?)?;
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = process::resident_mib(system.pid()?)?;
        if (now - before).abs() < 1.0 {
            return Ok(now);
        }
        before = now;
    }
    Ok(before)
}
