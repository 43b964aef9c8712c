//! The figures, and the file format of the results.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fleet::Fleet;
use super::peer::Peer;
use super::question::Question;
use super::rest::Rest;

/// The file.
#[derive(Debug, Serialize, Deserialize)]
pub struct Results {
    pub machine: Value,
    pub load_average_before: String,
    pub data: Fleet,
    pub readings: i64,
    /// Whether hourglass sealed while readings came in, or after a restart.
    pub sealed_while_loading: bool,
    pub peers: Vec<OfPeer>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct OfPeer {
    pub peer: Peer,
    pub version: String,
    pub rounds: Vec<Turn>,
}

/// The figures of a turn.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Turn {
    /// Seconds until everything was drained.
    pub load_s: f64,
    /// CPU microseconds per reading of all server processes until then.
    pub load_cpu_us: f64,
    /// The same of what comes then: sealing, merging, compacting.
    pub settle_s: f64,
    pub settle_cpu_us: f64,
    /// Peak resident memory until then, of the server and of mongod.
    pub peak_mib: u64,
    pub mongod_peak_mib: Option<u64>,
    /// Bytes per reading.
    pub rest: Rest,
    pub questions: Vec<Answered>,
}

/// The times of a question.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Answered {
    pub question: Question,
    /// Each after a fresh start of all server processes.
    pub cold_ms: Vec<f64>,
    /// Each after a fresh start of hourglass alone; mongod has its own cache still.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warm_mongod_ms: Vec<f64>,
}

impl Results {
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
    }
}
