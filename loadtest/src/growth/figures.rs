//! The figures of a point, and the file format of the results.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::plan::{Point, Series, Sizes};
use crate::report::machine::Machine;
use crate::run::target::Start;
use crate::servers::programs::Programs;

/// The results of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    /// The load tester's version.
    pub loadtest_version: String,
    /// The time when the run began, in RFC 3339.
    pub began: String,
    pub machine: Machine,
    /// The store of hourglass.
    pub store: String,
    /// The version that hourglass reports.
    pub version: String,
    /// The version that mongod reports, if one was used.
    pub mongod_version: Option<String>,
    /// The factor of all sizes: 1, or less for a quick test.
    pub scale: f64,
    pub series: Vec<SeriesRow>,
}

/// A series of points, in which one quantity is varied.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SeriesRow {
    /// Its name.
    pub name: String,
    /// A description of the quantity.
    pub varied: String,
    /// In order.
    pub points: Vec<Figures>,
}

/// The figures of a point.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Figures {
    /// The varied quantity.
    pub at: usize,
    pub sensors: usize,
    /// Readings per POST.
    pub lines: usize,
    /// Number of connections, each with one POST at a time.
    pub connections: usize,
    /// The environment variables of hourglass.
    pub variables: BTreeMap<String, String>,
    /// Readings in the store before the measured part.
    pub stored_before: usize,
    /// Readings acked in the measured part.
    pub readings: usize,
    /// Seconds from the first attempt to the last ack.
    pub seconds: f64,
    /// Readings per second in that time.
    pub acked_per_s: f64,
    /// Readings per second until all of them were in the store.
    pub drained_per_s: f64,
    /// CPU microseconds per reading until then, by process.
    pub cpu_us: BTreeMap<String, f64>,
    /// Median time to the ack, in milliseconds.
    pub p50_ms: f64,
    /// The 99th percentile of the same.
    pub p99_ms: f64,
    /// Peak resident memory in the measured part, by process, in MiB.
    pub peak_mib: BTreeMap<String, f64>,
    /// Resident memory when everything was in the store.
    pub resident_mib: BTreeMap<String, f64>,
    /// Disk usage at that time, in bytes: store, WAL, the servers' logs, and mongod's journal.
    pub disk_bytes: f64,
    /// Number of 503 answers.
    pub refused: usize,
    /// The figures of filling the store before, part by part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filling: Vec<Filled>,
    pub load_average_before: String,
}

/// One part of filling a store. The next part starts without waiting for the store.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Filled {
    /// Total readings acked at its end.
    pub stored: usize,
    /// Readings per second to its last ack.
    pub acked_per_s: f64,
    /// CPU of all processes per reading, in microseconds.
    pub cpu_us: f64,
    /// The 99th percentile of the time to the ack, in milliseconds.
    pub p99_ms: f64,
    /// Resident memory of all processes at its end, in MiB.
    pub resident_mib: f64,
    /// Disk usage at its end, in bytes.
    pub disk_bytes: f64,
}

impl Results {
    /// Before the first point.
    pub fn before(store: Start, programs: &Programs, sizes: &Sizes) -> Result<Self> {
        let mongod_version = match store {
            Start::Embedded => None,
            Start::Mongodb => Some(programs.mongod_version()?),
        };
        let began = Timestamp::try_from(SystemTime::now())?;
        Ok(Self {
            loadtest_version: env!("CARGO_PKG_VERSION").to_owned(),
            began: format!("{began:.0}"),
            machine: Machine::this(),
            store: store.name().to_owned(),
            version: String::new(),
            mongod_version,
            scale: sizes.scale,
            series: Vec::new(),
        })
    }

    /// Those of a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// Into a file.
    pub fn write(&self, path: &Path) -> Result<()> {
        super::write(path, &(serde_json::to_string_pretty(self)? + "\n"))
    }

    /// hourglass and its store, with versions.
    pub fn server(&self) -> String {
        match &self.mongod_version {
            Some(mongod) => format!("hourglass {} (MongoDB {mongod}, one node)", self.version),
            None => format!("hourglass {} ({})", self.version, self.store),
        }
    }
}

impl SeriesRow {
    /// Before its first point.
    pub fn new(series: Series) -> Self {
        Self { name: series.name().to_owned(), varied: series.varied().to_owned(), points: Vec::new() }
    }
}

impl Figures {
    /// Before anything was measured.
    pub fn before(point: &Point) -> Self {
        let variables = point.variables().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self {
            at: point.at,
            sensors: point.fleet.sensors,
            lines: point.lines,
            connections: point.connections,
            variables,
            load_average_before: Machine::this().load_average_before,
            ..Self::default()
        }
    }

    /// CPU of all processes per reading, in microseconds.
    pub fn cpu_us_of_all(&self) -> f64 {
        self.cpu_us.values().sum()
    }

    /// A line for a terminal.
    pub fn line(&self) -> String {
        format!(
            "{:.0} readings/s acked, {:.0}/s drained, {:.2} us CPU, p99 {:.1} ms, peak {:.0} MiB ({} readings in {:.1} s, load {})",
            self.acked_per_s,
            self.drained_per_s,
            self.cpu_us_of_all(),
            self.p99_ms,
            self.peak_mib.values().sum::<f64>(),
            self.readings,
            self.seconds,
            self.load_average_before
        )
    }
}
