//! The time of the last proved backup, kept in the data folder for the metric. A backup is proved once it was restored
//! and compared.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::files;

fn file(data_dir: &Path) -> PathBuf {
    data_dir.join("backup.proved.json")
}

/// Returns the start of the last proved backup in milliseconds since the epoch. Returns `None` if there is none, or the
/// file cannot be read.
#[must_use]
pub fn read(data_dir: &Path) -> Option<u64> {
    let text = fs::read(file(data_dir)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Stores the start of a proved backup.
///
/// # Errors
/// If the file cannot be written.
pub fn write(data_dir: &Path, began_ms: u64) -> io::Result<()> {
    files::replace(&file(data_dir), began_ms.to_string().as_bytes(), true)
}
