//! Measures what metadata of sensors costs hourglass: its import, questions by it beside the same ones by a tag, memory, and acks
//! while its copies in pages are refreshed.

mod load;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use self::load::{Paced, sent};
use crate::client::Connection;
use crate::process;
use crate::run::target::{Start, Target};
use crate::sending::post_all;
use crate::servers::http::Configured;
use crate::servers::programs::ProgramOptions;
use crate::servers::spawn::unless_told_to_stop;
use crate::stats::{median, percentile_ms, to_f64};

/// The fields that are copied into pages.
const CONFIG: &str = "[[meta.copy]]\nname = \"site\"\n";
/// Sensors have one of so many sites, by their number.
const SITES: usize = 100;
/// Lines per POST.
const LINES: usize = 2000;
/// Longest time until all copies are refreshed.
const LONGEST: Duration = Duration::from_secs(3600);
const HOURS: usize = 24;
const DAY_S: i64 = 86_400;

/// Measure what metadata of sensors costs.
#[derive(Debug, Args)]
pub struct Metadata {
    /// The store of hourglass.
    #[arg(long, default_value = "mongodb")]
    store: Start,
    /// Number of sensors.
    #[arg(long, default_value_t = 100_000)]
    sensors: usize,
    /// Readings per second while copies are refreshed.
    #[arg(long, default_value_t = 100_000)]
    rate: usize,
    /// How long acks are measured without a refresh, before each one: more than the minute between two checkpoints of MongoDB,
    /// which are in what is measured with a refresh, too.
    #[arg(long, default_value_t = 70)]
    seconds: u64,
    /// How often all sensors' metadata changes under load.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// How often each question is asked by tag and by metadata, in turns; 0 for no questions.
    #[arg(long, default_value_t = 10)]
    asked: usize,
    #[command(flatten)]
    programs: ProgramOptions,
    /// Parent folder of the temporary folder for the data.
    #[arg(long, default_value = "target")]
    folder: PathBuf,
    /// File for the results as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// What was measured.
#[derive(Debug, Default, Serialize)]
struct Figures {
    sensors: usize,
    store: &'static str,
    /// Resident memory of hourglass with all sensors and no metadata, and then with it.
    plain_mib: f64,
    described_mib: f64,
    import_s: f64,
    /// Medians in milliseconds: hourly means of a day, by tag and by metadata.
    questions: Vec<Asked>,
    /// 99th percentiles of acks in milliseconds, in turns: without a refresh, during one.
    quiet_p99_ms: Vec<f64>,
    refresh_p99_ms: Vec<f64>,
    /// From the first changed sensor until no copy is left.
    refresh_s: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct Asked {
    what: &'static str,
    tag_ms: f64,
    meta_ms: f64,
}

/// Runs everything. Stops everything that it started, also after a signal.
pub async fn run(options: Metadata) -> Result<()> {
    unless_told_to_stop(measure(&options)).await
}

async fn measure(options: &Metadata) -> Result<()> {
    ensure!(options.sensors > 0 && options.rate >= LINES, "nothing to do");
    let limit = [("HOURGLASS_LIMITS__SENSORS", (2 * options.sensors).to_string())];
    let configured = Configured { variables: &limit, file: CONFIG };
    let target = Target::start_with(options.store, &options.programs.programs(), &options.folder, configured).await?;
    let pid = target.processes().first().context("no process")?.1;
    let mut figures = Figures { sensors: options.sensors, store: options.store.name(), ..Figures::default() };
    // Whole hours of the last day: hour pages, and summaries for all of them.
    let until = now_s()? / 3600 * 3600;
    for hour in 0..HOURS {
        let at = until - DAY_S + i64::try_from(hour)? * 3600;
        let bodies = std::sync::Arc::new(readings(options.sensors, at));
        post_all(&target.address, "/write?db=bench&precision=s", &bodies, 2).await?;
        target.flush().await?;
    }
    figures.plain_mib = settled_mib(pid).await?;
    figures.import_s = import(&target, options.sensors, 0).await?.as_secs_f64();
    target.flush().await?;
    figures.described_mib = settled_mib(pid).await?;
    println!("{}", figures.kept());
    for (what, question) in QUESTIONS.into_iter().filter(|_| options.asked > 0) {
        let asked = ask(&target, (what, question), options.asked, until).await?;
        println!("{}", asked.line());
        figures.questions.push(asked);
    }
    if options.store == Start::Mongodb {
        await_refreshed(&target).await?;
        refresh(options, &target, &mut figures).await?;
        println!("{}", figures.refreshed());
    }
    if let Some(path) = &options.json {
        write(path, &figures)?;
    }
    target.stop()
}

/// Hourly means, with `{}` in place of a tag's name.
const QUESTIONS: [(&str, &str); 2] = [("one site", "tag.{}=site07&group_by=*"), ("by site", "group_by={}")];

/// Asks by tag and by metadata in turns; both must get the same answer.
async fn ask(target: &Target, (what, question): (&'static str, &str), times: usize, until: i64) -> Result<Asked> {
    let mut connection = Connection::open(&target.address).await?;
    let (mut took, mut answers) = ([Vec::new(), Vec::new()], [Value::Null, Value::Null]);
    for turn in 0..2 * (times + 1) {
        let name = ["tagged", "meta.site"][turn % 2];
        // A range of its own each time, so that no answer is remembered.
        let from = until - DAY_S - i64::try_from(turn / 2)?;
        let path = format!(
            "/api/v1/summary?db=bench&measurement=climate&fields=temp&agg=avg&step=1h&from={from}&to={until}&{}",
            question.replace("{}", name)
        );
        let begun = Instant::now();
        let (status, text) = connection.get(&path).await?;
        let elapsed = begun.elapsed();
        ensure!(status == 200, "{path} was answered {status}: {text}");
        answers[turn % 2] = windows(&serde_json::from_str(&text)?);
        // The first of each finds nothing in memory.
        if turn >= 2 {
            took[turn % 2].push(elapsed.as_secs_f64() * 1000.0);
        }
        ensure!(turn % 2 == 0 || answers[0] == answers[1], "{what}: other answers by metadata");
    }
    let [tag_ms, meta_ms] = took.map(median);
    Ok(Asked { what, tag_ms, meta_ms })
}

/// The windows of all series, without their names.
fn windows(answer: &Value) -> Value {
    answer["series"].as_array().into_iter().flatten().map(|series| series["windows"].clone()).collect()
}

/// In turns: acks without anything else, and while all sensors' metadata changes and its copies follow.
async fn refresh(options: &Metadata, target: &Target, figures: &mut Figures) -> Result<()> {
    let paced = Paced { address: target.address.clone(), sensors: options.sensors, rate: options.rate };
    let quiet = Duration::from_secs(options.seconds);
    // Pages of this hour for all sensors.
    sent(&paced, tokio::time::sleep(quiet)).await?;
    for round in 1..=options.rounds {
        let (latencies, ()) = sent(&paced, tokio::time::sleep(quiet)).await?;
        figures.quiet_p99_ms.push(percentile_ms(&latencies, 99));
        let begun = Instant::now();
        let (latencies, done) = sent(&paced, async {
            import(target, options.sensors, round).await?;
            await_refreshed(target).await
        })
        .await?;
        done?;
        figures.refresh_s.push(begun.elapsed().as_secs_f64());
        figures.refresh_p99_ms.push(percentile_ms(&latencies, 99));
        println!("{}", figures.refreshed());
    }
    Ok(())
}

/// Waits until no sensor's copies are left, twice in a row: what was said before is looked at again once nobody writes it any more.
async fn await_refreshed(target: &Target) -> Result<()> {
    let mut connection = Connection::open(&target.address).await?;
    let (begun, mut idle) = (Instant::now(), 0);
    while idle < 3 {
        ensure!(begun.elapsed() < LONGEST, "copies are left after {LONGEST:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (status, text) = connection.get("/api/v1/jobs/refresh").await?;
        ensure!(status == 200, "/api/v1/jobs/refresh was answered {status}: {text}");
        let job: Value = serde_json::from_str(&text)?;
        let left = job["left"].as_u64().context("no left in the state of the job")?;
        idle = if left == 0 { idle + 1 } else { 0 };
    }
    Ok(())
}

/// Gives every sensor metadata, as `hourglass sensors import` does: batch by batch.
async fn import(target: &Target, sensors: usize, round: usize) -> Result<Duration> {
    let mut bodies = Vec::new();
    for from in (0..sensors).step_by(LINES) {
        let mut body = String::new();
        for sensor in from..sensors.min(from + LINES) {
            let site = if round == 0 { site(sensor) } else { format!("{}-{round}", site(sensor)) };
            let key = format!("climate,sensor=s{sensor:06},tagged={}", self::site(sensor));
            let meta = format!(r#"{{"site":"{site}","name":"sensor {sensor}","unit":"°C","floor":{}}}"#, sensor % 7);
            writeln!(body, r#"{{"sensor":"{key}","meta":{meta}}}"#)?;
        }
        bodies.push(Bytes::from(body));
    }
    let sent = post_all(&target.address, "/api/v1/meta?db=bench", &std::sync::Arc::new(bodies), 1).await?;
    Ok(sent.took)
}

/// A reading of each sensor.
fn readings(sensors: usize, at: i64) -> Vec<Bytes> {
    let body = |from: usize| load::body(from..sensors.min(from + LINES), at, "");
    (0..sensors).step_by(LINES).map(body).collect()
}

fn site(sensor: usize) -> String {
    format!("site{:02}", sensor % SITES)
}

/// Resident memory once it stops falling and rising.
async fn settled_mib(pid: u32) -> Result<f64> {
    let mut before = process::resident_now_mib(pid)?;
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = process::resident_now_mib(pid)?;
        if (now - before).abs() < 1.0 {
            return Ok(now);
        }
        before = now;
    }
    Ok(before)
}

fn now_s() -> Result<i64> {
    Ok(i64::try_from(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs())?)
}

fn write(path: &Path, figures: &Figures) -> Result<()> {
    let text = serde_json::to_string_pretty(figures)? + "\n";
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

impl Figures {
    fn kept(&self) -> String {
        let kib = |mib: f64| mib * 1024.0 / to_f64(self.sensors);
        format!(
            "{} sensors, {}: metadata of all imported in {:.1} s; {:.0} MiB resident before, {:.0} after: {:.2} and {:.2} KiB per sensor",
            self.sensors,
            self.store,
            self.import_s,
            self.plain_mib,
            self.described_mib,
            kib(self.plain_mib),
            kib(self.described_mib)
        )
    }

    fn refreshed(&self) -> String {
        let ms = |figures: &[f64]| figures.iter().map(|ms| format!("{ms:.1}")).collect::<Vec<_>>().join(", ");
        let ratio = median(self.refresh_p99_ms.iter().copied()) / median(self.quiet_p99_ms.iter().copied());
        let (quiet, refresh) = (ms(&self.quiet_p99_ms), ms(&self.refresh_p99_ms));
        let took = ms(&self.refresh_s);
        format!("acks' p99: {quiet} ms; {refresh} ms while all copies are refreshed, {ratio:.2} ×, which took {took} s")
    }
}

impl Asked {
    fn line(&self) -> String {
        let Self { what, tag_ms, meta_ms } = self;
        format!(
            "hourly means of a day, {what}: {tag_ms:.1} ms by tag, {meta_ms:.1} ms by metadata, {:.2} ×",
            meta_ms / tag_ms
        )
    }
}
