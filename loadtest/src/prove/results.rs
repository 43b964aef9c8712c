//! The results, and their file format.

use serde::{Deserialize, Serialize};

use super::corrections::Corrected;
use super::crash::Crashes;
use super::late::Late;
use super::peer::Peer;
use super::retries::Retries;

/// The results of one system.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Proof {
    /// Its name.
    pub peer: String,
    /// The versions of its programs.
    pub version: String,
    pub by_design: Vec<String>,
    pub crashes: Crashes,
    pub retries: Retries,
    pub corrections: Vec<Corrected>,
    pub late: Late,
}

/// The results of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Results {
    /// The command line.
    pub command: String,
    /// Of the machine.
    pub cores: usize,
    /// Of the machine.
    pub memory_gib: u64,
    pub seed: u64,
    /// Peer by peer.
    pub proofs: Vec<Proof>,
}

impl Proof {
    /// The violations by hourglass.
    pub fn broken(&self) -> Vec<String> {
        let Self { crashes, retries, corrections, late, .. } = self;
        let mut broken = Vec::new();
        let mut tell = |what: &str, count: u64| {
            if count > 0 {
                broken.push(format!("{}: {count} {what}", self.peer));
            }
        };
        let sum = |of: fn(&super::crash::Cycle) -> u64| crashes.cycles.iter().map(of).sum::<u64>();
        tell("acked readings are lost", sum(|cycle| cycle.lost + cycle.sent_again_lost) + crashes.lost_at_last);
        tell("readings have other values", sum(|cycle| cycle.different));
        tell("readings are there twice", sum(|cycle| cycle.twice) + crashes.twice_at_last);
        let counts = [retries.counted_after_retry, retries.counted_after_restart];
        let right = f64::from(u32::try_from(retries.readings).unwrap_or(u32::MAX));
        tell("counts are wrong after a retry", counts.iter().map(|count| u64::from(*count != right)).sum());
        for of in corrections {
            let lost = (of.corrections - of.read_first) + (of.corrections - of.read_at_last);
            let torn = of.unstable + of.both_returned + (of.corrections - of.other_field_kept);
            tell(&format!("corrections do not hold ({})", of.kind), lost + torn);
        }
        tell("aggregates are wrong", late.on_time.wrong + late.at_once.wrong + late.after_restart.wrong);
        tell("sums are not rounded once", late.on_time.rounded + late.at_once.rounded + late.after_restart.rounded);
        broken
    }

    pub fn is_of(&self, peer: Peer) -> bool {
        self.peer == peer.name()
    }
}
