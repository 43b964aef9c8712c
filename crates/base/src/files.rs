//! Atomic file replacement: a reader sees either the old or the new file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Replaces the file at `path`, durably if `is_synced`. Writes a temporary file `path.new`, readable by the owner only,
/// and renames it.
///
/// # Errors
/// If the file cannot be written, synced or renamed.
pub fn replace(path: &Path, content: &[u8], is_synced: bool) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(content)?;
    if !is_synced {
        return fs::rename(&temporary, path);
    }
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
