//! Measures a point: starts a fresh hourglass, fills it if needed, loads it as fast as possible, and waits until
//! everything is in the store.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::figures::{Figures, Filled};
use super::load::{Load, Loaded};
use super::plan::Point;
use crate::process;
use crate::run::target::{Start, Target};
use crate::servers::http::Configured;
use crate::servers::programs::Programs;
use crate::stats::to_f64;

/// Number of parts in which a store is filled, to see how cost grows meanwhile.
const PARTS: usize = 20;
/// Maximum time from the last ack until everything is in the store.
const LONGEST_DRAIN: Duration = Duration::from_secs(600);

pub struct Bench {
    /// The store.
    pub store: Start,
    /// The programs.
    pub programs: Programs,
    /// The parent folder of the temporary folders.
    pub folder: PathBuf,
}

/// The figures of a point, and the server's version.
pub struct Measured {
    /// The version that hourglass reports.
    pub version: String,
    /// The figures.
    pub figures: Figures,
}

impl Bench {
    /// Starts the servers, measures, and stops them.
    pub async fn point(&self, point: &Point) -> Result<Measured> {
        let figures = Figures::before(point);
        let variables = point.variables();
        let configured = Configured { variables: &variables, file: "" };
        let target = Target::start_with(self.store, &self.programs, &self.folder, configured).await?;
        let filling = fill(&target, point).await?;
        if !filling.is_empty() {
            drain(&target).await?;
            target.processes().iter().try_for_each(|(_, pid)| process::forget_peak(*pid))?;
        }
        let stored_before = filling.last().map_or(0, |part| part.stored);
        let cpu_before = cpu_s(&target)?;
        let load = load(point, stored_before, point.readings, point.longest);
        let loaded = load.send(&target.address).await?;
        // Opening a thousand connections takes seconds; only the CPU figures include that.
        let acked = Instant::now();
        drain(&target).await?;
        let (drained, cpu_after) = (loaded.took + acked.elapsed(), cpu_s(&target)?);
        let readings = to_f64(loaded.readings);
        let used_us = |(name, after): (String, f64)| {
            let used = after - cpu_before.get(&name).copied().unwrap_or(0.0);
            (name, used * 1e6 / readings)
        };
        let figures = Figures {
            stored_before,
            readings: loaded.readings,
            seconds: loaded.took.as_secs_f64(),
            acked_per_s: per_s(&loaded),
            drained_per_s: readings / drained.as_secs_f64(),
            cpu_us: cpu_after.into_iter().map(used_us).collect(),
            p50_ms: ack_ms(&loaded, 0.5),
            p99_ms: ack_ms(&loaded, 0.99),
            peak_mib: of_each(&target, |pid| Ok(f64::from(u32::try_from(process::resident_mib(pid)?)?)))?,
            // Whole MiB, like the peak.
            resident_mib: of_each(&target, |pid| Ok(process::resident_now_mib(pid)?.floor()))?,
            disk_bytes: target.disk_bytes()?,
            refused: loaded.refused,
            filling,
            ..figures
        };
        let version = target.version.clone();
        target.stop()?;
        Ok(Measured { version, figures })
    }
}

/// Fills the store as far as the point requires, or as the time allows.
async fn fill(target: &Target, point: &Point) -> Result<Vec<Filled>> {
    let mut parts = Vec::new();
    let (begun, mut stored) = (Instant::now(), 0);
    // Whole POSTs, so that there is no gap between parts.
    let part = point.filled.div_ceil(PARTS).next_multiple_of(point.lines);
    while stored < point.filled && begun.elapsed() < point.longest_filling {
        let cpu_before: f64 = cpu_s(target)?.values().sum();
        // A started part is sent completely, because the next one begins where it ends.
        let load = load(point, stored, part.min(point.filled - stored), Duration::MAX);
        let loaded = load.send(&target.address).await?;
        let cpu_s: f64 = cpu_s(target)?.values().sum();
        stored += loaded.readings;
        let filled = Filled {
            stored,
            acked_per_s: per_s(&loaded),
            cpu_us: (cpu_s - cpu_before) * 1e6 / to_f64(loaded.readings),
            p99_ms: ack_ms(&loaded, 0.99),
            resident_mib: of_each(target, process::resident_now_mib)?.values().sum(),
            disk_bytes: target.disk_bytes()?,
        };
        let (per_s, mib, gib) = (filled.acked_per_s, filled.resident_mib, filled.disk_bytes / f64::from(1 << 30));
        println!("   filled with {stored}: {per_s:.0} readings/s acked, {mib:.0} MiB resident, {gib:.2} GiB on disk");
        parts.push(filled);
    }
    Ok(parts)
}

fn load(point: &Point, first: usize, readings: usize, longest: Duration) -> Load {
    let Point { fleet, lines, connections, .. } = *point;
    Load { fleet, first, readings, lines, connections, longest }
}

async fn drain(target: &Target) -> Result<()> {
    let in_time = tokio::time::timeout(LONGEST_DRAIN, target.flush()).await;
    in_time.with_context(|| format!("not all was in the store {LONGEST_DRAIN:?} after the last ack"))?
}

/// CPU seconds by process.
fn cpu_s(target: &Target) -> Result<BTreeMap<String, f64>> {
    of_each(target, |pid| Ok(process::cpu_seconds(&[pid])?.iter().sum()))
}

fn of_each(target: &Target, of: impl Fn(u32) -> Result<f64>) -> Result<BTreeMap<String, f64>> {
    target.processes().iter().map(|(name, pid)| Ok((name.clone(), of(*pid)?))).collect()
}

fn per_s(loaded: &Loaded) -> f64 {
    to_f64(loaded.readings) / loaded.took.as_secs_f64()
}

fn ack_ms(loaded: &Loaded, share: f64) -> f64 {
    Duration::from_micros(loaded.acks.value_at_quantile(share)).as_secs_f64() * 1000.0
}
