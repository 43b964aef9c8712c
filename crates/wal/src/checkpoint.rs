//! The small file with the position up to which the WAL is truncated. It is a hint: if it is lost, damaged or stale,
//! more records are replayed, never fewer.
//!
//! `checkpoint`, 32 bytes, little endian: magic "hourmark", log id u64, sequence u64, version u32 (1), crc32c of the 28
//! bytes before it u32.

use std::io;

use crc32c::crc32c;

use super::Sequence;
use super::disk::{Disk, read_padded};
use super::format::u64_at;

const NAME: &str = "checkpoint";
/// The name of the file while it is written, before it is renamed.
pub(super) const HALF: &str = "checkpoint.half";
const MAGIC: &[u8; 8] = b"hourmark";
const VERSION: u32 = 1;

/// Writes the position durably.
pub(super) fn write(disk: &dyn Disk, log: u64, truncated: Sequence) -> io::Result<()> {
    remove_if_there(disk, HALF)?;
    let file = disk.create(HALF)?;
    file.write_at(&encode(log, truncated), 0)?;
    file.sync()?;
    disk.rename(HALF, NAME)?;
    disk.sync_dir()
}

/// The position last written for this WAL, or 0.
pub(super) fn read(disk: &dyn Disk, log: u64) -> io::Result<Sequence> {
    let file = match disk.open(NAME) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut bytes = [0; 32];
    read_padded(&*file, &mut bytes, 0)?;
    let truncated = u64_at(&bytes, 16);
    Ok(if bytes == encode(log, truncated) { truncated } else { 0 })
}

pub(super) fn remove_if_there(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn encode(log: u64, truncated: Sequence) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&log.to_le_bytes());
    bytes[16..24].copy_from_slice(&truncated.to_le_bytes());
    bytes[24..28].copy_from_slice(&VERSION.to_le_bytes());
    let crc = crc32c(&bytes[..28]);
    bytes[28..].copy_from_slice(&crc.to_le_bytes());
    bytes
}
