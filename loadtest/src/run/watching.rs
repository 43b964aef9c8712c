//! Samples the servers' resource usage: from the kernel if their processes are known, else from the target's metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::trying::{Line, Tried};
use crate::process;

/// Maximum wait for the metrics.
const PATIENCE: Duration = Duration::from_millis(900);

/// The source of the samples.
pub enum Watched {
    /// Processes of this machine, by name.
    Processes(Vec<(String, u32)>),
    /// The endpoint `/metrics`.
    Metrics(Line),
}

/// Resource usage up to a moment.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// The time since the start of the run.
    pub at: Duration,
    /// CPU seconds of all processes.
    pub cpu_s: f64,
    /// Resident memory of all processes, in MiB.
    pub resident_mib: f64,
}

impl Watched {
    /// The name of the source.
    pub fn how(&self) -> &'static str {
        match self {
            Self::Processes(_) => "processes",
            Self::Metrics(_) => "metrics",
        }
    }

    /// Takes a sample; `None` if that fails.
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

    /// Peak memory of each process, if the kernel reports it.
    pub fn peaks(&self) -> Result<BTreeMap<String, f64>> {
        let Self::Processes(processes) = self else { return Ok(BTreeMap::new()) };
        let peak = |(name, pid): &(String, u32)| {
            let mib = process::resident_mib(*pid)?;
            Ok((name.clone(), f64::from(u32::try_from(mib)?)))
        };
        processes.iter().map(peak).collect()
    }

    /// Bytes that the processes wrote to files, if the kernel reports it.
    pub fn dirtied_bytes(&self) -> Option<u64> {
        let Self::Processes(processes) = self else { return None };
        processes.iter().map(|(_, pid)| process::dirtied_bytes(*pid).ok()).sum()
    }
}

/// The value of a metric without labels.
fn metric(text: &str, name: &str) -> Option<f64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value?.trim().parse().ok()
}
