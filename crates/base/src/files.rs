//! Files that are replaced as a whole, so that a reader sees the old or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file beside the one at `path`, readable by the owner only, and renames it: durably if it `is_synced`.
///
/// # Errors
/// If it cannot be written.
pub fn replace(path: &Path, content: &[u8], is_synced: bool) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(content)?;
    if !is_synced {
        return fs::rename(&beside, path);
    }
    file.sync_all()?;
    fs::rename(&beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
