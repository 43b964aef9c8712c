//! What is measured at a point, and the file that holds it.

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

/// All that a run found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    /// The load tester's version.
    pub loadtest_version: String,
    /// When the run began, as RFC 3339.
    pub began: String,
    /// Where it ran.
    pub machine: Machine,
    /// Which store hourglass had.
    pub store: String,
    /// What hourglass says it is.
    pub version: String,
    /// What mongod says it is, if there was one.
    pub mongod_version: Option<String>,
    /// By what all sizes were multiplied: 1 unless it was a look whether it works.
    pub scale: f64,
    /// What was varied.
    pub series: Vec<SeriesRow>,
}

/// A quantity that was varied, all else being the same.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SeriesRow {
    /// Its name.
    pub name: String,
    /// What was varied, in words.
    pub varied: String,
    /// In order.
    pub points: Vec<Figures>,
}

/// The figures of a point.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Figures {
    /// The varied quantity.
    pub at: usize,
    /// How many sensors.
    pub sensors: usize,
    /// Readings per POST.
    pub lines: usize,
    /// Connections, each with one POST under way.
    pub connections: usize,
    /// What hourglass was told by its environment.
    pub variables: BTreeMap<String, String>,
    /// Readings that were in the store before.
    pub stored_before: usize,
    /// Readings acked in the measured part.
    pub readings: usize,
    /// From the first try to the last ack, in seconds.
    pub seconds: f64,
    /// Readings per second in that time.
    pub acked_per_s: f64,
    /// Readings per second until all were in the store.
    pub drained_per_s: f64,
    /// CPU of each process per reading until then, in microseconds.
    pub cpu_us: BTreeMap<String, f64>,
    /// Half of the acks came within this.
    pub p50_ms: f64,
    /// 99 of 100 acks did.
    pub p99_ms: f64,
    /// The most memory that was resident in the measured part, by process, in MiB.
    pub peak_mib: BTreeMap<String, f64>,
    /// What was resident when all was in the store.
    pub resident_mib: BTreeMap<String, f64>,
    /// What all files took on the disk then, in bytes: store, log and the servers' own logs, of mongod also its journal.
    pub disk_bytes: f64,
    /// Answers that said to come back later.
    pub refused: usize,
    /// How the store was filled before, part by part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filling: Vec<Filled>,
    /// The load average before, over 1, 5 and 15 minutes.
    pub load_average_before: String,
}

/// A part of filling a store. Parts follow each other without waiting for the store.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Filled {
    /// Readings acked by its end.
    pub stored: usize,
    /// Readings per second to its last ack.
    pub acked_per_s: f64,
    /// CPU of all processes per reading, in microseconds.
    pub cpu_us: f64,
    /// 99 of 100 acks came within this.
    pub p99_ms: f64,
    /// What was resident at its end, all processes, in MiB.
    pub resident_mib: f64,
    /// What all files took on the disk then, in bytes.
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
