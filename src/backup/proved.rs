//! When the last backup began that was proved to be restorable: kept in the data folder, for the metric.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::access::replace_file;

fn file(data_dir: &Path) -> PathBuf {
    data_dir.join("backup.proved.json")
}

/// Milliseconds since the epoch; `None` if there never was one, or the file cannot be read.
#[must_use]
pub fn last(data_dir: &Path) -> Option<u64> {
    let text = fs::read(file(data_dir)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Keeps it.
///
/// # Errors
/// If the file cannot be written.
pub fn keep(data_dir: &Path, began_ms: u64) -> io::Result<()> {
    replace_file(&file(data_dir), began_ms.to_string().as_bytes(), true)
}
