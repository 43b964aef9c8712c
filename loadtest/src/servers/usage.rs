//! What processes have used, when they have come to rest, and what their files take.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::process;
use crate::stats::to_f64;

/// Who uses no more than [`NOISE_S`] of CPU for so long has come to rest.
const QUIET: Duration = Duration::from_secs(1);
/// What servers use in that time that have nothing to do; the kernel counts in hundredths of a second.
const NOISE_S: f64 = 0.03;
/// How long they may take to come to rest.
const LONGEST: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// What several processes have used together until a moment.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// The moment.
    pub at: Instant,
    /// CPU, user and system.
    pub cpu_s: f64,
    /// Made dirty in files, see [`process::dirtied_bytes`].
    pub dirtied_bytes: u64,
}

impl Usage {
    /// Until now.
    pub fn now(pids: &[u32]) -> Result<Self> {
        let cpu_s = process::cpu_seconds(pids)?.iter().sum();
        let mut dirtied_bytes = 0;
        for pid in pids {
            dirtied_bytes += process::dirtied_bytes(*pid)?;
        }
        Ok(Self { at: Instant::now(), cpu_s, dirtied_bytes })
    }

    /// Waits until they have come to rest, and returns what they had used when they did.
    pub async fn at_rest(pids: &[u32]) -> Result<Self> {
        let begun = Instant::now();
        let mut busy = Self::now(pids)?;
        while busy.at.elapsed() < QUIET {
            ensure!(begun.elapsed() < LONGEST, "still at work {LONGEST:?} after the last ack");
            tokio::time::sleep(LOOK).await;
            let now = Self::now(pids)?;
            if now.cpu_s - busy.cpu_s > NOISE_S {
                busy = now;
            }
        }
        Ok(busy)
    }
}

/// What the files below a folder take on the disk.
pub fn bytes_below(folder: &Path) -> Result<f64> {
    /// The unit of `st_blocks`, whatever the file system's own is.
    const BLOCK: usize = 512;
    let mut bytes = 0.0;
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        bytes += match entry.metadata() {
            Ok(about) if about.is_dir() => bytes_below(&entry.path())?,
            Ok(about) => to_f64(usize::try_from(about.blocks())? * BLOCK),
            // A server that runs removes files.
            Err(error) if error.kind() == ErrorKind::NotFound => 0.0,
            Err(error) => return Err(error).with_context(|| format!("reading {}", entry.path().display())),
        };
    }
    Ok(bytes)
}
