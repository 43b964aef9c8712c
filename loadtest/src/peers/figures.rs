//! The figures, their medians, and the file format of the results.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::contender::{Contender, year};
use super::offered::OfferedFigures;
use super::work::Work;
use crate::sending::Sent;
use crate::servers::usage::Usage;
use crate::stats::{median, percentile_ms, to_f64};

/// The figures of a turn, or their medians.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Readings per second to the last ack.
    pub acked_per_s: f64,
    /// Readings per second until all of them are in their final storage.
    pub drained_per_s: f64,
    /// CPU microseconds of all server processes per reading until then.
    pub cpu_us: f64,
    /// Bytes written to the disk per reading until then, including a final sync.
    pub written_bytes: f64,
    /// Bytes of page cache that the processes dirtied per reading until then.
    pub dirtied_bytes: f64,
    /// Median time to the ack, in milliseconds.
    pub p50_ms: f64,
    /// The 99th percentile of the same.
    pub p99_ms: f64,
    /// Peak resident memory of the server other than mongod.
    pub server_mib: Option<f64>,
    /// Peak resident memory of mongod.
    pub mongod_mib: Option<f64>,
    /// Growth of the folders per reading, in bytes, after all servers have stopped.
    pub kept_bytes: f64,
    /// Number of 503 answers.
    pub refused: f64,
}

/// Peak resident memory.
pub struct Memory {
    /// Of the server other than mongod.
    pub server_mib: Option<u64>,
    /// Of mongod.
    pub mongod_mib: Option<u64>,
}

pub struct DiskBytes {
    /// Bytes written.
    pub written: f64,
    /// Growth of the folders.
    pub kept: f64,
}

impl Figures {
    /// Those of a turn.
    pub fn new(
        readings: usize,
        sent: &Sent,
        (before, drained): (&Usage, &Usage),
        memory: Memory,
        disk: DiskBytes,
    ) -> Self {
        let readings = to_f64(readings);
        let mib = |mib: u64| usize::try_from(mib).map_or(0.0, to_f64);
        let dirtied = usize::try_from(drained.dirtied_bytes - before.dirtied_bytes).map_or(0.0, to_f64);
        Self {
            acked_per_s: readings / sent.took.as_secs_f64(),
            drained_per_s: readings / (drained.at - before.at).max(sent.took).as_secs_f64(),
            cpu_us: (drained.cpu_s - before.cpu_s) * 1e6 / readings,
            written_bytes: disk.written / readings,
            dirtied_bytes: dirtied / readings,
            p50_ms: percentile_ms(&sent.latencies, 50),
            p99_ms: percentile_ms(&sent.latencies, 99),
            server_mib: memory.server_mib.map(mib),
            mongod_mib: memory.mongod_mib.map(mib),
            kept_bytes: disk.kept / readings,
            refused: to_f64(sent.refused),
        }
    }

    fn median(rounds: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(rounds.iter().map(figure));
        let known = |figure: fn(&Self) -> Option<f64>| {
            let known: Vec<f64> = rounds.iter().filter_map(figure).collect();
            (!known.is_empty()).then(|| median(known))
        };
        Self {
            acked_per_s: of(|round| round.acked_per_s),
            drained_per_s: of(|round| round.drained_per_s),
            cpu_us: of(|round| round.cpu_us),
            written_bytes: of(|round| round.written_bytes),
            dirtied_bytes: of(|round| round.dirtied_bytes),
            p50_ms: of(|round| round.p50_ms),
            p99_ms: of(|round| round.p99_ms),
            server_mib: known(|round| round.server_mib),
            mongod_mib: known(|round| round.mongod_mib),
            kept_bytes: of(|round| round.kept_bytes),
            refused: of(|round| round.refused),
        }
    }
}

/// The figures of one server for one workload.
#[derive(Debug, Serialize, Deserialize)]
pub struct Row {
    /// The name of the workload.
    pub work: String,
    /// The name of the server.
    pub server: String,
    /// The number of readings.
    pub readings: usize,
    /// Over the rounds, figure by figure.
    pub median: Figures,
    /// Round by round.
    pub rounds: Vec<Figures>,
    /// At the one rate that everybody is offered, over all turns. Older results have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<OfferedFigures>,
    /// Turn by turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offered_turns: Vec<OfferedFigures>,
}

impl Row {
    /// Before the first round.
    pub fn new(work: &Work, contender: Contender) -> Self {
        let (work_name, server) = (work.shape.name().to_owned(), contender.name().to_owned());
        let readings = contender.share(work);
        let (median, rounds, offered_turns) = (Figures::default(), Vec::new(), Vec::new());
        Self { work: work_name, server, readings, median, rounds, offered: None, offered_turns }
    }

    /// Whether it is about these.
    pub fn is_of(&self, work: &Work, contender: Contender) -> bool {
        self.work == work.shape.name() && self.server == contender.name()
    }

    /// Takes the medians, after the last round.
    pub fn settle(&mut self) {
        self.median = Figures::median(&self.rounds);
    }
}

/// A server as the table tells of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// What it says it is.
    pub version: String,
    /// When that came out, if that is known.
    pub year: Option<u32>,
    /// What has happened to a reading when it is acked.
    pub durability: String,
}

/// A work as the table tells of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct WorkSize {
    /// Its name.
    pub name: String,
    /// How many sensors.
    pub sensors: usize,
    /// How many readings of two fields.
    pub readings: usize,
    /// Readings per POST.
    pub lines: usize,
    /// Connections with one POST under way each.
    pub connections: usize,
}

/// All that a run found.
#[derive(Debug, Serialize, Deserialize)]
pub struct Results {
    /// Cores, memory and versions.
    pub machine: Value,
    /// How busy the machine was before the run.
    pub load_average_before: String,
    /// Who was measured.
    pub servers: Vec<Server>,
    /// With what.
    pub works: Vec<WorkSize>,
    /// What each did with it.
    pub rows: Vec<Row>,
}

impl Results {
    /// With the versions that the machine has.
    pub fn new(machine: Value, load_average_before: String, works: &[Work], rows: Vec<Row>) -> Self {
        let server = |contender: Contender| {
            let version = machine["versions"][contender.program()].as_str().unwrap_or("not told").to_owned();
            let (name, durability) = (contender.name().to_owned(), contender.durability().to_owned());
            Server { name, year: year(&version), version, durability }
        };
        let servers = Contender::ALL.map(server).into();
        let size = |work: &Work| WorkSize {
            name: work.shape.name().to_owned(),
            sensors: work.fleet.sensors,
            readings: work.readings,
            lines: work.lines,
            connections: work.connections,
        };
        let works = works.iter().map(size).collect();
        Self { machine, load_average_before, servers, works, rows }
    }
}
