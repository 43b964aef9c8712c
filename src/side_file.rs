//! Append-only files beside the WAL for rejected lines, dead letters and request keys.
//!
//! A side file is a folder of segments. A segment is named after the id of its first record, and new records are
//! appended to the last segment. A record is one line: a CRC-32C in hexadecimal, an id greater than all earlier ones,
//! and JSON. Damaged and incomplete lines are skipped, and the lines behind them are read.

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock::now_ns;

/// The file extension of segments.
const EXTENSION: &str = "log";

/// The size limits of a side file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SideFileLimits {
    /// The size at which a new segment is started.
    pub segment_bytes: u64,
    /// The oldest segment is removed if the others have at least this many bytes; `None` keeps all.
    pub keep_bytes: Option<u64>,
}

/// A segment on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The id of its first record.
    pub first_id: u64,
    pub bytes: u64,
    pub modified: SystemTime,
    path: PathBuf,
}

/// The segment that this process appends to.
#[derive(Debug)]
struct Current {
    file: File,
    path: PathBuf,
    first_id: u64,
    bytes: u64,
}

/// An append-only file of records of one type.
#[derive(Debug)]
pub struct SideFile<T> {
    folder: PathBuf,
    limits: SideFileLimits,
    /// `None` before the first append, and after a failed one, because the segment may then end in an incomplete
    /// record.
    current: Option<Current>,
    /// The id of the last record; 0 before the first append.
    last_id: u64,
    records: PhantomData<fn(T)>,
}

impl<T: Serialize + DeserializeOwned> SideFile<T> {
    /// Returns the side file of a folder, which the first append creates.
    pub fn new(folder: PathBuf, limits: SideFileLimits) -> Self {
        Self { folder, limits, current: None, last_id: 0, records: PhantomData }
    }

    /// Appends records and returns the first id of their segment. The records are durable after [`SideFile::sync`].
    ///
    /// # Errors
    /// If the folder cannot be written. Some of the records may then be on disk.
    pub fn append(&mut self, records: &[T]) -> io::Result<u64> {
        if self.last_id == 0 {
            self.last_id = self.last_id_on_disk()?;
        }
        // Ids are based on the time, so that none is reused after the folder was removed.
        let mut id = self.last_id.max(u64::try_from(now_ns()).unwrap_or_default());
        let first_id = id + 1;
        let mut lines = Vec::new();
        for record in records {
            id += 1;
            let text = format!("{id} {}", serde_json::to_string(record)?);
            writeln!(lines, "{:08x} {text}", crc32c::crc32c(text.as_bytes()))?;
        }
        // Another process or the operator may have emptied the folder.
        let is_usable = |current: &Current| current.bytes < self.limits.segment_bytes && current.path.exists();
        let mut current = match self.current.take() {
            Some(current) if is_usable(&current) => current,
            earlier => {
                // `sync` reaches the current segment only.
                earlier.map_or(Ok(()), |earlier| earlier.file.sync_data())?;
                self.begin(first_id)?
            }
        };
        current.file.write_all(&lines)?;
        current.bytes += lines.len() as u64;
        let segment = current.first_id;
        self.current = Some(current);
        self.last_id = id;
        Ok(segment)
    }

    /// Makes everything that was appended durable.
    ///
    /// # Errors
    /// If the disk fails. The records may then be lost.
    pub fn sync(&mut self) -> io::Result<()> {
        // Take the segment, because a file must not be synced again after a failed sync.
        if let Some(current) = self.current.take() {
            current.file.sync_data()?;
            self.current = Some(current);
        }
        Ok(())
    }

    /// Starts a segment, and removes the oldest ones beyond the limit.
    fn begin(&mut self, first_id: u64) -> io::Result<Current> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let segments = self.segments()?;
        if let Some(keep) = self.limits.keep_bytes {
            let mut total: u64 = segments.iter().map(|segment| segment.bytes).sum();
            for oldest in &segments {
                if total - oldest.bytes < keep {
                    break;
                }
                total -= oldest.bytes;
                fs::remove_file(&oldest.path)?;
            }
        }
        let path = self.folder.join(format!("{first_id:020}.{EXTENSION}"));
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
        sync_folder(&self.folder)?;
        Ok(Current { file, path, first_id, bytes: 0 })
    }

    fn last_id_on_disk(&self) -> io::Result<u64> {
        let Some(last) = self.segments()?.pop() else { return Ok(0) };
        let mut last_id = last.first_id;
        self.read(last.first_id.saturating_sub(1), |_, id, _| {
            last_id = last_id.max(id);
            ControlFlow::Continue(())
        })?;
        Ok(last_id)
    }

    /// Returns the segments, oldest first. A missing folder has none.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn segments(&self) -> io::Result<Vec<Segment>> {
        let Some(entries) = none_if_missing(fs::read_dir(&self.folder))? else { return Ok(Vec::new()) };
        let mut segments = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != EXTENSION) {
                continue;
            }
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            let Some(first_id) = stem.and_then(|stem| stem.parse().ok()) else { continue };
            // Another process may have removed the file just now.
            let Some(meta) = none_if_missing(fs::metadata(&path))? else { continue };
            segments.push(Segment { first_id, bytes: meta.len(), modified: meta.modified()?, path });
        }
        segments.sort_unstable_by_key(|segment| segment.first_id);
        Ok(segments)
    }

    /// Passes each record with an id above `after_id` to `take`, together with its segment and id, oldest first. Stops
    /// when `take` breaks. Returns the number of damaged or incomplete lines.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn read(&self, after_id: u64, mut take: impl FnMut(&Segment, u64, T) -> ControlFlow<()>) -> io::Result<u64> {
        let segments = self.segments()?;
        let mut damaged = 0;
        for (index, segment) in segments.iter().enumerate() {
            if segments.get(index + 1).is_some_and(|next| next.first_id <= after_id) {
                continue;
            }
            let Some(file) = none_if_missing(File::open(&segment.path))? else { continue };
            for line in BufReader::new(file).split(b'\n') {
                let Some((id, record)) = parse(&line?) else {
                    damaged += 1;
                    continue;
                };
                if id > after_id && take(segment, id, record).is_break() {
                    return Ok(damaged);
                }
            }
        }
        Ok(damaged)
    }

    /// Removes the records for which `keep` returns false, and returns their number. After a crash, a segment has
    /// either all its records or only the kept ones.
    ///
    /// # Errors
    /// If the folder cannot be read or written.
    pub fn retain(&mut self, keep: impl Fn(u64, &T) -> bool) -> io::Result<u64> {
        self.current = None;
        let mut removed = 0;
        for segment in self.segments()? {
            let mut kept = Vec::new();
            let before = removed;
            for line in BufReader::new(File::open(&segment.path)?).split(b'\n') {
                let line = line?;
                match parse::<T>(&line) {
                    Some((id, record)) if !keep(id, &record) => removed += 1,
                    _ => {
                        kept.extend(line);
                        kept.push(b'\n');
                    }
                }
            }
            if kept.is_empty() {
                fs::remove_file(&segment.path)?;
            } else if removed > before {
                replace(&segment, &kept)?;
            }
        }
        if removed > 0 {
            sync_folder(&self.folder)?;
        }
        Ok(removed)
    }

    /// Removes the segments that were last written before a time.
    ///
    /// # Errors
    /// If the folder cannot be read or written.
    pub fn expire(&mut self, oldest_kept: SystemTime) -> io::Result<()> {
        let mut old = self.segments()?.into_iter().take_while(|segment| segment.modified < oldest_kept);
        old.try_for_each(|segment| fs::remove_file(segment.path))
    }
}

/// Replaces the lines of a segment atomically. Keeps its modification time.
fn replace(segment: &Segment, lines: &[u8]) -> io::Result<()> {
    let new = segment.path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(lines)?;
    file.set_modified(segment.modified)?;
    file.sync_data()?;
    fs::rename(new, &segment.path)
}

/// Maps the error of a missing file or folder to `None`.
fn none_if_missing<F>(result: io::Result<F>) -> io::Result<Option<F>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Parses a line into its id and record; `None` if it is damaged or incomplete.
fn parse<T: DeserializeOwned>(line: &[u8]) -> Option<(u64, T)> {
    let line = std::str::from_utf8(line).ok()?;
    let (checksum, text) = line.split_once(' ')?;
    if u32::from_str_radix(checksum, 16).ok()? != crc32c::crc32c(text.as_bytes()) {
        return None;
    }
    let (id, json) = text.split_once(' ')?;
    Some((id.parse().ok()?, serde_json::from_str(json).ok()?))
}
