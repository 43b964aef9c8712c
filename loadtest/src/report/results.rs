//! The JSON format of the results of a run. An incompatible change must increment [`FORMAT`].

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::machine::Machine;

/// The version of the format.
pub const FORMAT: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    /// The [`FORMAT`] of the file.
    pub format: u32,
    pub loadtest_version: String,
    /// The time when the run began, in RFC 3339.
    pub began: String,
    pub scenario: ScenarioFacts,
    /// The machine of the load tester.
    pub machine: Machine,
    pub server: ServerFacts,
    pub totals: Totals,
    /// Failed attempts, by status or kind.
    pub errors: BTreeMap<String, u64>,
    /// Time from when a POST was due to its ack.
    pub ack_ms: Latencies,
    /// Time from the last attempt to the ack, which is what a closed-loop load tester would report.
    pub service_ms: Latencies,
    /// Delays that the load tester itself caused.
    pub own_lag_ms: Latencies,
    /// Percentiles of `ack_ms`: percentile and milliseconds.
    pub curve: Vec<(f64, f64)>,
    /// Percentiles of `service_ms`: percentile and milliseconds.
    pub service_curve: Vec<(f64, f64)>,
    pub seconds: Vec<SecondRow>,
    pub queries: Vec<QueryRow>,
    /// The resources that the server used, if known.
    pub usage: Option<UsageRow>,
    /// The bounds of the scenario, and whether the run met them.
    pub slo: Vec<Judged>,
    /// The result of reading everything back, if requested.
    pub verified: Option<Verified>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScenarioFacts {
    pub name: String,
    pub description: String,
    /// A hash of the scenario's text.
    pub fingerprint: String,
    pub seed: u64,
    /// The timestamp of the first readings, in nanoseconds.
    pub start_ns: i64,
    /// Readings per second of real time.
    pub rate_per_s: f64,
    /// Seconds of reading time per second of real time.
    pub speed: f64,
    /// How long POSTs were due.
    pub duration_s: f64,
    pub connections: usize,
    /// Readings per POST.
    pub lines: usize,
    pub gzip: bool,
    pub ack: String,
    /// Number of devices, by measurement.
    pub devices: BTreeMap<String, u32>,
}

/// The server of the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerFacts {
    /// `embedded` or `mongodb` if the load tester started it, else `running`.
    pub how: String,
    /// The version that the server reports.
    pub version: String,
    /// The source of CPU and memory usage: `processes`, `metrics` or `unknown`.
    pub watched_by: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Totals {
    pub offered_readings: u64,
    /// POSTs with at least one attempt.
    pub tried_posts: u64,
    /// Readings in the attempted POSTs.
    pub tried_readings: u64,
    /// Bytes of their bodies, each counted once.
    pub tried_bytes: u64,
    /// All attempts.
    pub tries: u64,
    pub acked_posts: u64,
    pub acked_readings: u64,
    /// Readings acked within the duration, per second.
    pub achieved_per_s: f64,
    pub offered_per_s: f64,
    /// POSTs that were rejected permanently, or still not acked at the end of the grace period.
    pub given_up_posts: u64,
    /// Readings that were due but never sent, because the server was too far behind.
    pub unsent_readings: u64,
    pub reconnects: u64,
    /// Time after the last ack until everything was in the store.
    pub drain_s: f64,
}

/// Percentiles in milliseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Latencies {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

/// The figures of one second.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SecondRow {
    pub acked: u64,
    /// Failed attempts.
    pub errors: u64,
    /// Median time from due to ack, of the POSTs acked in this second.
    pub p50_ms: Option<f64>,
    /// The 99th percentile of the same.
    pub p99_ms: Option<f64>,
    pub cpu_s: Option<f64>,
    /// Resident memory of the servers at the end of the second, in MiB.
    pub resident_mib: Option<f64>,
    /// Number of latencies by class; class `n` is about 1.03^n microseconds.
    pub classes: Vec<(u32, u64)>,
}

/// The results of a repeated query.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QueryRow {
    pub name: String,
    pub offered_per_s: f64,
    /// Answers with another status than 200, and missing answers, by kind.
    pub errors: BTreeMap<String, u64>,
    /// Average size of an answer.
    pub answer_bytes: f64,
    /// Time from when the query was due to the last byte of its answer.
    pub answer_ms: Latencies,
}

/// The resources that the servers used.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UsageRow {
    /// CPU seconds until the last ack.
    pub cpu_sending_s: f64,
    /// CPU seconds until everything was in the store.
    pub cpu_drained_s: f64,
    /// `cpu_drained_s` per acked reading, in microseconds.
    pub cpu_us_per_reading: f64,
    /// Peak resident memory by process, in MiB.
    pub peak_mib: BTreeMap<String, f64>,
    /// Bytes written to files (page cache) per acked reading.
    pub written_bytes_per_reading: Option<f64>,
}

/// A bound of the scenario, and whether the run met it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Judged {
    /// The key in the scenario.
    pub what: String,
    pub bound: f64,
    /// The measured value.
    pub found: f64,
    pub met: bool,
}

/// The result of comparing what was read back with what was sent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Verified {
    /// Expected sensors.
    pub sensors: u64,
    /// Expected readings: acked, each timestamp of a sensor counted once.
    pub expected: u64,
    pub stored: u64,
    /// Readings that are stored although they were not acked, which is allowed.
    pub stored_unacked: u64,
    /// Acked readings that are not stored.
    pub missing: u64,
    /// Readings that are stored but were never sent, or are stored twice.
    pub extra: u64,
    /// Readings with other values.
    pub different: u64,
    /// Sensors for which the server's counts differ from its readings.
    pub counts_wrong: u64,
    pub first: Vec<String>,
    pub took_s: f64,
}

impl Verified {
    /// Whether exactly the acked readings are stored.
    pub fn is_exact(&self) -> bool {
        self.missing == 0 && self.extra == 0 && self.different == 0 && self.counts_wrong == 0
    }
}

impl Latencies {
    /// From a histogram of microseconds.
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

/// Percentiles and milliseconds, from the median on, ever closer to 100.
pub fn curve(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    if histogram.is_empty() {
        return Vec::new();
    }
    let mut curve = vec![(0.0, ms(histogram.min()))];
    // Beyond this percentile, only the maximum is left.
    let last = 100.0 - 100.0 / crate::run::schedule::count(histogram.len());
    let points = histogram.iter_quantiles(8).map(|step| (round(step.percentile()), ms(step.value_iterated_to())));
    curve.extend(points.filter(|(percentile, _)| *percentile <= last));
    curve.push((100.0, ms(histogram.max())));
    curve
}

fn ms(us: u64) -> f64 {
    round(crate::run::schedule::count(us) / 1000.0)
}

/// Rounds to six decimals, which keeps the files small.
pub fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

impl Results {
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

    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string(self)? + "\n";
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// Whether the run met all its bounds, and nothing acked was lost.
    pub fn is_good(&self) -> bool {
        self.slo.iter().all(|judged| judged.met) && self.verified.as_ref().is_none_or(Verified::is_exact)
    }

    /// Why the figures may say little about the server, if there is a reason.
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

/// Maximum delay by the load tester itself, at the 99th percentile.
const OWN_LAG_MAX_MS: f64 = 10.0;

#[derive(Deserialize)]
struct Format {
    format: u32,
}

#[cfg(test)]
pub mod tests {
    use super::*;

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
