//! When the last backup began that was proved to be restorable: kept in the data folder, for the metric.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

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
    let path = file(data_dir);
    let beside = path.with_extension("json.new");
    let mut new = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    new.write_all(began_ms.to_string().as_bytes())?;
    new.sync_all()?;
    fs::rename(&beside, &path)?;
    File::open(data_dir)?.sync_all()
}
