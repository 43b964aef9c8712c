//! The folder for bytes that hold no record though they should: copied there, never deleted by us.

use std::io;

use super::disk::{Disk, DiskFile, read_padded};

/// The folder's name within the log's.
pub(super) const FOLDER: &str = "quarantine";
const CHUNK_BYTES: u64 = 256 << 10;

/// Whether a file of the name lies there.
pub(super) fn holds(disk: &dyn Disk, name: &str) -> bool {
    disk.open(&path(name)).is_ok()
}

/// A copy of the bytes lies in the folder, durably. A half-made copy of an earlier try is replaced.
pub(super) fn copy(disk: &dyn Disk, file: &dyn DiskFile, from: u64, to: u64, name: &str) -> io::Result<()> {
    let half = path("half");
    match disk.remove(&half) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let copy = disk.create(&half)?;
    let mut at = from;
    while at < to {
        let mut bytes = vec![0; CHUNK_BYTES.min(to - at) as usize];
        read_padded(file, &mut bytes, at)?;
        copy.write_at(&bytes, at - from)?;
        at += bytes.len() as u64;
    }
    copy.sync()?;
    disk.rename(&half, &path(name))?;
    disk.sync_dir()
}

/// The whole file lies in the folder, under a name that was free, which is returned.
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
