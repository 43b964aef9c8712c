//! The times of the last backups of a service, kept in its data folder for the metrics.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files;

/// Starts of backups in milliseconds since the epoch; 0 if there was none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupTimes {
    /// Of the last backup that was written completely.
    pub completed: u64,
    /// Of the last backup that was also restored and compared.
    pub proved: u64,
}

fn file(data_dir: &Path) -> PathBuf {
    data_dir.join("backup.times.json")
}

impl BackupTimes {
    /// Reads the times. All are 0 if there are none, or the file cannot be read.
    #[must_use]
    pub fn read(data_dir: &Path) -> Self {
        let text = fs::read(file(data_dir)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Stores the start of a completed backup, and returns all times.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn record(data_dir: &Path, began_ms: u64, is_proved: bool) -> io::Result<Self> {
        let proved = if is_proved { began_ms } else { Self::read(data_dir).proved };
        let times = Self { completed: began_ms, proved };
        files::replace(&file(data_dir), &serde_json::to_vec(&times)?, true)?;
        Ok(times)
    }
}
