//! What goes to the disk, and what is on it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process;
use crate::servers::usage::bytes_below;
use crate::stats::to_f64;

/// The folders of a turn's servers, and the disk below them.
pub struct Disk {
    folders: Vec<PathBuf>,
    written_before: u64,
    taken_before: f64,
}

impl Disk {
    /// Before anything is sent: what servers have by then, such as files of a fixed size, is not counted.
    pub fn before(folders: Vec<PathBuf>) -> Result<Self> {
        let (written_before, taken_before) = (synced_bytes(&folders)?, taken(&folders)?);
        Ok(Self { folders, written_before, taken_before })
    }

    /// What the disk has been given to write since, with all that the system still held back: by everybody, so that
    /// others must do nothing meanwhile.
    pub fn written(&self) -> Result<f64> {
        Ok(to_f64(usize::try_from(synced_bytes(&self.folders)? - self.written_before)?))
    }

    /// By how much the folders have grown since.
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
