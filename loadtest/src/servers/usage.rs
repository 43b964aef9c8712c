//! The CPU usage of processes, the time when they become idle, and the disk usage of their files.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::process;
use crate::stats::to_f64;

/// Processes are idle if they use no more than [`NOISE_S`] of CPU for this long.
const QUIET: Duration = Duration::from_secs(1);
/// CPU seconds that idle servers use in that time. The kernel counts in hundredths of a second.
const NOISE_S: f64 = 0.03;
/// Maximum time for them to become idle.
const IDLE_WAIT_MAX: Duration = Duration::from_secs(60);
/// Time between two checks.
const CHECK_PAUSE: Duration = Duration::from_millis(50);

/// The total usage of several processes up to a time.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    pub time: Instant,
    /// CPU seconds, user and system.
    pub cpu_s: f64,
}

impl Usage {
    /// Returns the usage so far.
    pub fn now(pids: &[u32]) -> Result<Self> {
        let cpu_s = process::cpu_seconds(pids)?.iter().sum();
        Ok(Self { time: Instant::now(), cpu_s })
    }

    /// Waits until the processes are idle, and returns their usage at the time when they became idle.
    pub async fn await_idle(pids: &[u32]) -> Result<Self> {
        Self::await_idle_for(pids, QUIET, IDLE_WAIT_MAX).await
    }

    /// As above with other durations: idle for `quiet`, within `time_max`.
    pub async fn await_idle_for(pids: &[u32], quiet: Duration, time_max: Duration) -> Result<Self> {
        let started = Instant::now();
        let mut busy = Self::now(pids)?;
        while busy.time.elapsed() < quiet {
            ensure!(started.elapsed() < time_max, "still busy {time_max:?} after the last ack");
            tokio::time::sleep(CHECK_PAUSE).await;
            let now = Self::now(pids)?;
            if now.cpu_s - busy.cpu_s > NOISE_S {
                busy = now;
            }
        }
        Ok(busy)
    }
}

/// Returns the disk usage of the files in a folder and its subfolders.
pub fn disk_bytes(folder: &Path) -> Result<f64> {
    /// The unit of `st_blocks`, regardless of the file system's block size.
    const BLOCK: usize = 512;
    let mut bytes = 0.0;
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path())?,
            Ok(metadata) => to_f64(usize::try_from(metadata.blocks())? * BLOCK),
            // A running server may remove files meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => 0.0,
            Err(error) => return Err(error).with_context(|| format!("reading {}", entry.path().display())),
        };
    }
    Ok(bytes)
}
