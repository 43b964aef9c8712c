//! Measures bytes written to the disk, and disk usage.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process;
use crate::servers::usage::bytes_below;
use crate::stats::to_f64;

/// The folders of a turn's servers, and the state of their disk before it.
pub struct Disk {
    folders: Vec<PathBuf>,
    written_before: u64,
    taken_before: f64,
}

impl Disk {
    /// Call it before anything is sent: files that exist by then, such as those of a fixed size, do not count.
    pub fn before(folders: Vec<PathBuf>) -> Result<Self> {
        let (written_before, taken_before) = (synced_bytes(&folders)?, taken(&folders)?);
        Ok(Self { folders, written_before, taken_before })
    }

    /// Bytes written to the disk since then, after a sync. Includes those of other processes, so these must be idle.
    pub fn written(&self) -> Result<f64> {
        Ok(to_f64(usize::try_from(synced_bytes(&self.folders)? - self.written_before)?))
    }

    /// Growth of the folders since then, in bytes.
    pub fn grown(&self) -> Result<f64> {
        Ok(taken(&self.folders)? - self.taken_before)
    }
}

fn synced_bytes(folders: &[PathBuf]) -> Result<u64> {
    let folder = folders.first().context("no folder")?;
    let status = Command::new("sync").arg("--file-system").arg(folder).status().context("running sync")?;
    ensure!(status.success(), "sync ended: {status}");
    process::disk_written_bytes(folder)
}

fn taken(folders: &[PathBuf]) -> Result<f64> {
    folders.iter().map(|folder| bytes_below(folder)).sum()
}
