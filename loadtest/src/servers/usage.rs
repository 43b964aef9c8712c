//! What processes have used, and when they have come to rest.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::process;

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
