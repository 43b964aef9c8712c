//! The folder with copies of bytes that should be records but are not. hourglass never deletes files from it.

use std::io;
use std::ops::Range;

use super::checkpoint::remove_if_there;
use super::disk::{Disk, DiskFile, read_padded};

/// The name of the folder within the WAL's folder.
pub(super) const FOLDER: &str = "quarantine";
const CHUNK_BYTES: u64 = 256 << 10;

/// Returns true if the folder has a file of this name.
pub(super) fn holds(disk: &dyn Disk, name: &str) -> bool {
    disk.open(&path(name)).is_ok()
}

/// Copies the bytes into the folder durably. An unfinished copy of an earlier attempt is replaced.
pub(super) fn copy(disk: &dyn Disk, file: &dyn DiskFile, range: Range<u64>, name: &str) -> io::Result<()> {
    let half = path("half");
    remove_if_there(disk, &half)?;
    let copy = disk.create(&half)?;
    let mut offset = range.start;
    while offset < range.end {
        let mut bytes = vec![0; CHUNK_BYTES.min(range.end - offset) as usize];
        read_padded(file, &mut bytes, offset)?;
        copy.write_at(&bytes, offset - range.start)?;
        offset += bytes.len() as u64;
    }
    copy.sync()?;
    disk.rename(&half, &path(name))?;
    disk.sync_dir()
}

/// Moves the whole file into the folder under an unused name, and returns the name.
pub(super) fn put_away(disk: &dyn Disk, name: &str) -> io::Result<String> {
    let mut free = name.to_owned();
    let mut number = 1;
    while holds(disk, &free) {
        number += 1;
        free = format!("{name}.{number}");
    }
    disk.rename(name, &path(&free))?;
    disk.sync_dir()?;
    Ok(free)
}

fn path(name: &str) -> String {
    format!("{FOLDER}/{name}")
}
