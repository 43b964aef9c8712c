//! The results of a run as they stand in its JSON file. A change that older files or programs would misread makes
//! [`FORMAT`] one more.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::machine::Machine;

/// The version of the file.
pub const FORMAT: u32 = 1;

/// Everything.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`] when it was written.
    pub format: u32,
    /// The load tester's version.
    pub loadtest_version: String,
    /// When the run began, as RFC 3339.
    pub began: String,
    /// What was done.
    pub scenario: ScenarioFacts,
    /// Where the load tester ran.
    pub machine: Machine,
    /// What it talked to.
    pub server: ServerFacts,
    /// Readings and POSTs.
    pub totals: Totals,
    /// Tries that failed, by status or kind.
    pub errors: BTreeMap<String, u64>,
    /// From the moment at which a POST was due to its ack.
    pub ack_ms: Latencies,
    /// From its last try to its ack: what a load tester would say that waits for its turn.
    pub service_ms: Latencies,
    /// By how much the load tester was late itself.
    pub own_lag_ms: Latencies,
    /// Percentile and milliseconds from due to ack.
    pub curve: Vec<(f64, f64)>,
    /// Percentile and milliseconds from the last try.
    pub service_curve: Vec<(f64, f64)>,
    /// Second by second.
    pub seconds: Vec<SecondRow>,
    /// What was asked meanwhile.
    pub queries: Vec<QueryRow>,
    /// What the server used, where that is known.
    pub usage: Option<UsageRow>,
    /// What was expected, and whether it came true.
    pub slo: Vec<Judged>,
    /// What was read back, if it was.
    pub verified: Option<Verified>,
}

/// What was done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScenarioFacts {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// A number for its text: other texts have other ones.
    pub fingerprint: String,
    /// What all that is random depended on.
    pub seed: u64,
    /// The time of the first readings, in nanoseconds.
    pub start_ns: i64,
    /// Readings per second on the wall.
    pub rate_per_s: f64,
    /// Seconds of readings per second on the wall.
    pub speed: f64,
    /// For how long POSTs were due.
    pub duration_s: f64,
    /// How many.
    pub connections: usize,
    /// Readings per POST.
    pub lines: usize,
    /// Whether bodies were compressed.
    pub gzip: bool,
    /// What an ack promised.
    pub ack: String,
    /// Devices of each measurement.
    pub devices: BTreeMap<String, u32>,
}

/// What was talked to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerFacts {
    /// `embedded` or `mongodb` where the load tester started it, else `running`.
    pub how: String,
    /// What it says it is.
    pub version: String,
    /// How its CPU and memory were learnt: `processes`, `metrics` or `unknown`.
    pub watched_by: String,
}

/// Readings and POSTs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Readings that were due.
    pub offered_readings: u64,
    /// POSTs tried at least once.
    pub tried_posts: u64,
    /// Readings in them.
    pub tried_readings: u64,
    /// Bytes of their bodies.
    pub tried_bytes: u64,
    /// All tries.
    pub tries: u64,
    /// POSTs acked.
    pub acked_posts: u64,
    /// Readings acked.
    pub acked_readings: u64,
    /// Readings acked within the duration, per second.
    pub achieved_per_s: f64,
    /// Readings due per second.
    pub offered_per_s: f64,
    /// POSTs that were given up: refused for good, or still not acked when the grace was over.
    pub given_up_posts: u64,
    /// Readings that were due and never tried: the server was that far behind.
    pub unsent_readings: u64,
    /// Connections opened again.
    pub reconnects: u64,
    /// How long it took after that to bring all of it to the store.
    pub drain_s: f64,
}

/// Percentiles in milliseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Latencies {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Half are below.
    pub p50: f64,
    /// 90 of 100.
    pub p90: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1000.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

/// What one second saw.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SecondRow {
    /// Readings acked.
    pub acked: u64,
    /// Tries that failed.
    pub errors: u64,
    /// Half of the POSTs acked in it were within this, from due to ack.
    pub p50_ms: Option<f64>,
    /// 99 of 100 were.
    pub p99_ms: Option<f64>,
    /// CPU seconds that the servers used.
    pub cpu_s: Option<f64>,
    /// What they had in memory at its end, in MiB.
    pub resident_mib: Option<f64>,
    /// Latencies by class: class `n` is around 1.03^n microseconds.
    pub classes: Vec<(u32, u64)>,
}

/// A query that was asked again and again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QueryRow {
    /// Its name.
    pub name: String,
    /// Queries due per second.
    pub offered_per_s: f64,
    /// Answers that were not 200, or none.
    pub errors: BTreeMap<String, u64>,
    /// Bytes of an answer, on average.
    pub answer_bytes: f64,
    /// From due to the last byte.
    pub answer_ms: Latencies,
}

/// What the servers used.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UsageRow {
    /// CPU seconds until the last ack.
    pub cpu_sending_s: f64,
    /// CPU seconds until all was in the store.
    pub cpu_drained_s: f64,
    /// The same per acked reading, in microseconds.
    pub cpu_us_per_reading: f64,
    /// Most memory resident, by process, in MiB.
    pub peak_mib: BTreeMap<String, f64>,
    /// Bytes made dirty in files per acked reading.
    pub written_bytes_per_reading: Option<f64>,
}

/// Something that was expected.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Judged {
    /// The scenario's key.
    pub what: String,
    /// The bound.
    pub bound: f64,
    /// What was found.
    pub found: f64,
    /// Whether it kept to the bound.
    pub met: bool,
}

/// What was read back.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Verified {
    /// Sensors that had to be there.
    pub sensors: u64,
    /// Readings that had to be there: acked, each timestamp of a sensor once.
    pub expected: u64,
    /// Readings that were read back.
    pub stored: u64,
    /// Readings that were sent and never acked, and are stored all the same; that is allowed.
    pub stored_unacked: u64,
    /// Acked readings that are not there.
    pub missing: u64,
    /// Readings that are there and were never sent, or twice.
    pub extra: u64,
    /// Readings with other values.
    pub different: u64,
    /// Where the server's own counts differ from what it answers.
    pub counts_wrong: u64,
    /// The first differences.
    pub first: Vec<String>,
    /// How long it took.
    pub took_s: f64,
}

impl Verified {
    /// Whether acked is stored, exactly.
    pub fn is_exact(&self) -> bool {
        self.missing == 0 && self.extra == 0 && self.different == 0 && self.counts_wrong == 0
    }
}

impl Latencies {
    /// Of a histogram of microseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |share| ms(histogram.value_at_quantile(share));
        let max = if histogram.is_empty() { 0.0 } else { ms(histogram.max()) };
        Self {
            count: histogram.len(),
            mean: round(histogram.mean() / 1000.0),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max,
        }
    }
}

/// Percentile and milliseconds, from the median on ever finer towards 100.
pub fn curve(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    if histogram.is_empty() {
        return Vec::new();
    }
    let mut curve = vec![(0.0, ms(histogram.min()))];
    // Beyond that the greatest alone is left.
    let last = 100.0 - 100.0 / crate::run::schedule::count(histogram.len());
    let points = histogram.iter_quantiles(8).map(|step| (round(step.percentile()), ms(step.value_iterated_to())));
    curve.extend(points.filter(|(percentile, _)| *percentile <= last));
    curve.push((100.0, ms(histogram.max())));
    curve
}

fn ms(us: u64) -> f64 {
    round(crate::run::schedule::count(us) / 1000.0)
}

/// To six digits after the point: no more are known, and files stay short.
pub fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

impl Results {
    /// From a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let format: Format = serde_json::from_str(&text)
            .with_context(|| format!("{} has no results of hourglass-loadtest run", path.display()))?;
        ensure!(
            format.format == FORMAT,
            "{} has the format {}, this program knows {FORMAT}",
            path.display(),
            format.format
        );
        serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// To a file.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string(self)? + "\n";
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// Whether the run says what it was to say: everything expected came true, and nothing was lost.
    pub fn is_good(&self) -> bool {
        self.slo.iter().all(|judged| judged.met) && self.verified.as_ref().is_none_or(Verified::is_exact)
    }

    /// What is wrong with the run itself, if anything: then its figures say less about the server.
    pub fn doubt(&self) -> Option<String> {
        let lag = &self.own_lag_ms;
        (lag.p99 > OWN_LAG_MAX_MS).then(|| {
            format!(
                "the load tester itself was behind: 1 of 100 POSTs was sent {:.1} ms late or more although a connection was \
                 free (at most {:.1} ms); these latencies are not the server's alone",
                lag.p99, lag.max
            )
        })
    }
}

/// By how much the load tester may be late itself, for 99 of 100 POSTs.
const OWN_LAG_MAX_MS: f64 = 10.0;

#[derive(Deserialize)]
struct Format {
    format: u32,
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A short run in which nothing happened.
    pub fn results() -> Results {
        Results {
            format: FORMAT,
            loadtest_version: "0.1.0".to_owned(),
            began: "2026-01-15T00:00:00Z".to_owned(),
            scenario: ScenarioFacts {
                name: "a-test".to_owned(),
                description: "a <test> & no more".to_owned(),
                fingerprint: "0".to_owned(),
                seed: 1,
                start_ns: 0,
                rate_per_s: 1000.0,
                speed: 1.0,
                duration_s: 30.0,
                connections: 1,
                lines: 10,
                gzip: false,
                ack: "log".to_owned(),
                devices: BTreeMap::from([("m".to_owned(), 10)]),
            },
            machine: Machine {
                cores: 2,
                cpu: "a CPU".to_owned(),
                memory_gib: 8,
                kernel: "6.1".to_owned(),
                load_average_before: "0 0 0".to_owned(),
            },
            server: ServerFacts {
                how: "embedded".to_owned(),
                version: "0.1.0".to_owned(),
                watched_by: "processes".to_owned(),
            },
            totals: Totals { achieved_per_s: 1000.0, offered_per_s: 1000.0, tries: 3000, ..Totals::default() },
            errors: BTreeMap::new(),
            ack_ms: Latencies::default(),
            service_ms: Latencies::default(),
            own_lag_ms: Latencies::default(),
            curve: Vec::new(),
            service_curve: Vec::new(),
            seconds: Vec::new(),
            queries: Vec::new(),
            usage: None,
            slo: Vec::new(),
            verified: None,
        }
    }

    #[test]
    fn results_are_read_as_they_were_written_and_other_formats_are_refused() {
        let path = std::env::temp_dir().join(format!("hourglass-loadtest-{}.json", std::process::id()));
        let mut results = results();
        results.errors.insert("503".to_owned(), 3);
        results.write(&path).unwrap();
        assert_eq!(Results::read(&path).unwrap().errors, results.errors);
        results.format = FORMAT + 1;
        results.write(&path).unwrap();
        let refused = Results::read(&path).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(refused.contains("format 2"), "{refused}");
    }
}
