//! Opens the dead-letter file for one writer at a time.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Opens and locks the file, and creates it if it is missing: meanwhile nobody else appends to it or renames it.
pub fn open_locked(path: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path)?;
        file.lock()?;
        // It may have been renamed before it was locked.
        if fs::metadata(path).is_ok_and(|meta| file.metadata().is_ok_and(|open| open.ino() == meta.ino())) {
            return Ok(file);
        }
    }
}
