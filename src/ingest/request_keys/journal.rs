//! The file of remembered keys: entries of a fixed size with a checksum, appended and synced. When it has twice as many as are
//! remembered at most, it is written anew.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{KeyHash, Remembered};
use crate::faults;

/// Hash, body's hash, base, since, checksum.
const ENTRY: usize = 16 + 4 * 8;

/// The file.
#[derive(Debug, Default)]
pub struct Journal {
    /// `None` when it is to be written anew: what is in it may end in half an entry.
    file: Option<File>,
    entries: usize,
    /// The number of the last entry that is on disk.
    pub saved: u64,
}

impl Journal {
    /// The journal, and what the file has: its end may be missing or torn, which was never acked.
    pub fn open(path: &Path, count_max: usize) -> (Self, Vec<Remembered>) {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(bytes_max(count_max)).read_to_end(&mut bytes));
        if let Err(error) = read
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(file = %path.display(), %error, "the keys of earlier requests cannot be read; retries of those count as new");
        }
        // Written anew before the first entry is added, without what follows a torn one.
        (Self::default(), bytes.chunks_exact(ENTRY).map_while(decode).collect())
    }

    /// Whether the file is written anew next time.
    pub fn is_due(&self, more: usize, count_max: usize) -> bool {
        self.file.is_none() || self.entries + more > 2 * count_max
    }

    /// Adds entries, behind `all` others if the file is written anew. On return they are on disk.
    pub fn write(&mut self, path: &Path, all: &[Remembered], more: &[Remembered]) -> io::Result<()> {
        let bytes: Vec<u8> = more.iter().flat_map(encode).collect();
        // Taken, so that after a failure it is written anew.
        let (file, before) = match self.file.take() {
            Some(mut file) if all.is_empty() => {
                file.write_all(&bytes)?;
                faults::point("in_request_keys");
                file.sync_data()?;
                (file, self.entries)
            }
            _ => (write_anew(path, all, &bytes)?, all.len()),
        };
        (self.file, self.entries) = (Some(file), before + more.len());
        Ok(())
    }
}

fn write_anew(path: &Path, all: &[Remembered], more: &[u8]) -> io::Result<File> {
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let bytes: Vec<u8> = all.iter().flat_map(encode).chain(more.iter().copied()).collect();
    file.write_all(&bytes)?;
    file.sync_all()?;
    faults::point("in_request_keys");
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(file)
}

/// Most bytes that the file has: a write that fails may leave one entry per request in flight more.
fn bytes_max(count_max: usize) -> u64 {
    (4 * count_max * ENTRY) as u64
}

fn encode(remembered: &Remembered) -> [u8; ENTRY] {
    let Remembered { hash, body_hash, base, since } = remembered;
    let mut entry = [0; ENTRY];
    entry[..16].copy_from_slice(hash);
    entry[16..24].copy_from_slice(&body_hash.to_le_bytes());
    entry[24..32].copy_from_slice(&base.to_le_bytes());
    entry[32..40].copy_from_slice(&since.to_le_bytes());
    let sum = checksum(&entry);
    entry[40..].copy_from_slice(&sum.to_le_bytes());
    entry
}

fn checksum(entry: &[u8]) -> u64 {
    rapidhash::v3::rapidhash_v3(&entry[..40])
}

fn decode(entry: &[u8]) -> Option<Remembered> {
    let number = |at: usize| Some(u64::from_le_bytes(entry.get(at..at + 8)?.try_into().ok()?));
    let hash: KeyHash = entry.get(..16)?.try_into().ok()?;
    let is_whole = number(40)? == checksum(entry);
    is_whole.then_some(Remembered {
        hash,
        body_hash: number(16)?,
        base: number(24)?.cast_signed(),
        since: number(32)?.cast_signed(),
    })
}
