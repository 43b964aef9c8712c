//! What the kernel says of other processes (`proc(5)`).

use anyhow::{Context, Result};

/// Clock ticks per second in `/proc/<pid>/stat`: 100 on every Linux in use.
const TICKS: f64 = 100.0;

/// CPU seconds, user and system, that each process has used.
pub fn cpu_seconds(pids: &[u32]) -> Result<Vec<f64>> {
    pids.iter().map(|pid| cpu_of(*pid).with_context(|| format!("reading the CPU time of process {pid}"))).collect()
}

fn cpu_of(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold spaces; the fields after it are numbered from 3.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| -> Result<f64> { Ok(fields.get(field - 3).context("a short line")?.parse()?) };
    Ok((ticks(14)? + ticks(15)?) / TICKS)
}

/// The most memory that was ever resident, in MiB.
pub fn resident_mib(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<u64>()? / 1024)
}
