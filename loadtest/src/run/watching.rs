//! What the servers use, second by second: from the kernel where their processes are known, else from the target's
//! metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::trying::{Line, Tried};
use crate::process;

/// How long the metrics are waited for.
const PATIENCE: Duration = Duration::from_millis(900);

/// Who is watched, and how.
pub enum Watched {
    /// Processes of this machine, by name.
    Processes(Vec<(String, u32)>),
    /// Whoever answers `/metrics` there.
    Metrics(Line),
}

/// What they had used by a moment.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// The moment, since the run began.
    pub at: Duration,
    /// CPU seconds of all.
    pub cpu_s: f64,
    /// Resident memory of all, in MiB.
    pub resident_mib: f64,
}

impl Watched {
    /// How, in a word.
    pub fn how(&self) -> &'static str {
        match self {
            Self::Processes(_) => "processes",
            Self::Metrics(_) => "metrics",
        }
    }

    /// What they have used by now; nothing when that could not be learnt.
    pub async fn sample(&mut self, at: Duration) -> Option<Sample> {
        match self {
            Self::Processes(processes) => {
                let pids: Vec<u32> = processes.iter().map(|(_, pid)| *pid).collect();
                let cpu_s = process::cpu_seconds(&pids).ok()?.iter().sum();
                let mut resident_mib = 0.0;
                for pid in pids {
                    resident_mib += process::resident_now_mib(pid).ok()?;
                }
                Some(Sample { at, cpu_s, resident_mib })
            }
            Self::Metrics(line) => match line.ask("/metrics", PATIENCE).await {
                Tried::Answered(answer) if answer.status == 200 => {
                    let text = String::from_utf8_lossy(&answer.body);
                    let cpu_s = metric(&text, "process_cpu_seconds_total")?;
                    let bytes = metric(&text, "process_resident_memory_bytes")?;
                    Some(Sample { at, cpu_s, resident_mib: bytes / f64::from(1 << 20) })
                }
                _ => None,
            },
        }
    }

    /// The most memory each had, where the kernel says it.
    pub fn peaks(&self) -> Result<BTreeMap<String, f64>> {
        let Self::Processes(processes) = self else { return Ok(BTreeMap::new()) };
        let peak = |(name, pid): &(String, u32)| {
            let mib = process::resident_mib(*pid)?;
            Ok((name.clone(), f64::from(u32::try_from(mib)?)))
        };
        processes.iter().map(peak).collect()
    }

    /// Bytes they have made dirty in files, where the kernel says it.
    pub fn dirtied_bytes(&self) -> Option<u64> {
        let Self::Processes(processes) = self else { return None };
        processes.iter().map(|(_, pid)| process::dirtied_bytes(*pid).ok()).sum()
    }
}

/// A metric without labels.
fn metric(text: &str, name: &str) -> Option<f64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value?.trim().parse().ok()
}
