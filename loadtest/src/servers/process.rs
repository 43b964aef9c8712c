//! Reads resource usage of other processes from the kernel (`proc(5)`).

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};

/// Clock ticks per second in `/proc/<pid>/stat`: 100 on every Linux in use.
const TICKS: f64 = 100.0;

/// Returns the CPU seconds, user and system, of each process.
pub fn cpu_seconds(pids: &[u32]) -> Result<Vec<f64>> {
    pids.iter()
        .map(|pid| process_cpu_seconds(*pid).with_context(|| format!("reading the CPU time of process {pid}")))
        .collect()
}

fn process_cpu_seconds(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses can contain spaces. The fields after it are numbered from 3.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| -> Result<f64> { Ok(fields.get(field - 3).context("a short line")?.parse()?) };
    Ok((ticks(14)? + ticks(15)?) / TICKS)
}

/// Returns the peak resident memory in whole MiB.
pub fn peak_mib(pid: u32) -> Result<f64> {
    Ok((status_kib(pid, "VmHWM:")? / 1024.0).floor())
}

/// Resets the peak of resident memory.
pub fn forget_peak(pid: u32) -> Result<()> {
    // proc(5): "5" resets only the peak.
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").with_context(|| format!("resetting process {pid}'s peak"))
}

/// Returns the current resident memory in MiB.
pub fn resident_mib(pid: u32) -> Result<f64> {
    Ok(status_kib(pid, "VmRSS:")? / 1024.0)
}

fn status_kib(pid: u32, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
}

/// Returns the bytes that a process has passed to write calls (`wchar`), which includes some of the bytes sent.
pub fn written_bytes(pid: u32) -> Result<f64> {
    io_count(pid, "wchar")
}

fn io_count(pid: u32, name: &str) -> Result<f64> {
    let io =
        std::fs::read_to_string(format!("/proc/{pid}/io")).with_context(|| format!("reading process {pid}'s io"))?;
    let count = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned());
    Ok(io.lines().find_map(count).with_context(|| format!("no {name}"))?.parse()?)
}

/// Returns the bytes written to the disk of a folder by all processes since the machine was started.
pub fn disk_written_bytes(folder: &Path) -> Result<f64> {
    /// The unit of these counts, regardless of the disk's sector size.
    const SECTOR: f64 = 512.0;
    let device = std::fs::metadata(folder)?.dev();
    // Unpack as makedev(3) packs. The numbers of disks do not use the higher bits.
    let major = (device >> 8) & 0xfff;
    let minor = (device & 0xff) | ((device >> 12) & 0xff_ff00);
    let path = format!("/sys/dev/block/{major}:{minor}/stat");
    let stat = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let sectors = stat.split_whitespace().nth(6).context("a short line")?;
    Ok(sectors.parse::<f64>()? * SECTOR)
}
