//! Append-only files of records beside the WAL: rejected lines, dead letters, request keys.
//!
//! A side file is a folder of segments. A segment is named by the id of its first record, and new records go to the last
//! one only. A record is one line of text: a CRC-32C, an id that rises from record to record, and JSON. A line that a crash
//! cut off, or that is damaged, is skipped; the lines behind it are read.

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

/// The end of a segment's name.
const SEGMENT: &str = "log";

/// The sizes of a side file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SideFileLimits {
    /// Bytes at which a segment is full.
    pub segment_bytes: u64,
    /// The oldest segment is removed when the others have this many bytes; `None` keeps all.
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
    /// `None` before the first append, and after a failed one: the segment may then end in half a record.
    current: Option<Current>,
    /// The id of the last record; 0 before the first append.
    last_id: u64,
    records: PhantomData<fn(T)>,
}

impl<T: Serialize + DeserializeOwned> SideFile<T> {
    /// Describes the side file in a folder, which the first append creates.
    pub fn new(folder: PathBuf, limits: SideFileLimits) -> Self {
        Self { folder, limits, current: None, last_id: 0, records: PhantomData }
    }

    /// Appends records and returns the id of the segment that has them. A crash of the machine may lose them until
    /// [`SideFile::sync`].
    ///
    /// # Errors
    /// If the folder cannot be written. Some of the records may then be on disk.
    pub fn append(&mut self, records: &[T]) -> io::Result<u64> {
        if self.last_id == 0 {
            self.last_id = self.last_id_on_disk()?;
        }
        // Ids are times, so that none is used again when a folder was removed.
        let mut id = self.last_id.max(u64::try_from(now_ns()).unwrap_or_default());
        let first_id = id + 1;
        let mut lines = Vec::new();
        for record in records {
            id += 1;
            let text = format!("{id} {}", serde_json::to_string(record)?);
            writeln!(lines, "{:08x} {text}", crc32c::crc32c(text.as_bytes()))?;
        }
        // The folder may have been emptied by another process, or by hand.
        let is_usable = |current: &Current| current.bytes < self.limits.segment_bytes && current.path.exists();
        let mut current = match self.current.take().filter(is_usable) {
            Some(current) => current,
            None => self.begin(first_id)?,
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
        // Taken, because a file must not be synced again after a failed sync.
        if let Some(current) = self.current.take() {
            current.file.sync_data()?;
            self.current = Some(current);
        }
        Ok(())
    }

    /// Begins a segment, and removes the oldest ones that are no longer kept.
    fn begin(&mut self, first_id: u64) -> io::Result<Current> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let mut segments = self.segments()?;
        if let Some(keep) = self.limits.keep_bytes {
            let mut total: u64 = segments.iter().map(|segment| segment.bytes).sum();
            while let Some(oldest) = segments.first().filter(|oldest| total - oldest.bytes >= keep) {
                total -= oldest.bytes;
                fs::remove_file(&oldest.path)?;
                segments.remove(0);
            }
        }
        let path = self.folder.join(format!("{first_id:020}.{SEGMENT}"));
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

    /// The segments, oldest first.
    ///
    /// # Errors
    /// If the folder cannot be read; a missing one has no segments.
    pub fn segments(&self) -> io::Result<Vec<Segment>> {
        let Some(entries) = found(fs::read_dir(&self.folder))? else { return Ok(Vec::new()) };
        let mut segments = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let name = path.file_stem().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
            let Some(first_id) = name.filter(|_| path.extension().is_some_and(|end| end == SEGMENT)) else { continue };
            // Another process may have removed it just now.
            let Some(meta) = found(fs::metadata(&path))? else { continue };
            segments.push(Segment { first_id, bytes: meta.len(), modified: meta.modified()?, path });
        }
        segments.sort_unstable_by_key(|segment| segment.first_id);
        Ok(segments)
    }

    /// Passes on the records with an id above `after` and the segment that has them, oldest first. Returns the number of
    /// lines that are no whole record.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn read(&self, after: u64, mut take: impl FnMut(&Segment, u64, T) -> ControlFlow<()>) -> io::Result<u64> {
        let segments = self.segments()?;
        let mut damaged = 0;
        for (index, segment) in segments.iter().enumerate() {
            if segments.get(index + 1).is_some_and(|next| next.first_id <= after) {
                continue;
            }
            let Some(file) = found(File::open(&segment.path))? else { continue };
            for line in BufReader::new(file).split(b'\n') {
                let Some((id, record)) = parse(&line?) else {
                    damaged += 1;
                    continue;
                };
                if id > after && take(segment, id, record).is_break() {
                    return Ok(damaged);
                }
            }
        }
        Ok(damaged)
    }

    /// Removes the records that fail a test; returns their number. A crash leaves all of a segment's records or those that
    /// pass.
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

    /// Removes the segments without a record since a time.
    ///
    /// # Errors
    /// If the folder cannot be read or written.
    pub fn expire(&mut self, since: SystemTime) -> io::Result<()> {
        let mut old = self.segments()?.into_iter().take_while(|segment| segment.modified < since);
        old.try_for_each(|segment| fs::remove_file(segment.path))
    }
}

/// Writes a segment anew.
fn replace(segment: &Segment, lines: &[u8]) -> io::Result<()> {
    let new = segment.path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(lines)?;
    file.set_modified(segment.modified)?;
    file.sync_data()?;
    fs::rename(new, &segment.path)
}

/// The result; `None` if there is no such file or folder.
fn found<F>(result: io::Result<F>) -> io::Result<Option<F>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn parse<T: DeserializeOwned>(line: &[u8]) -> Option<(u64, T)> {
    let line = std::str::from_utf8(line).ok()?;
    let (checksum, text) = line.split_once(' ')?;
    if u32::from_str_radix(checksum, 16).ok()? != crc32c::crc32c(text.as_bytes()) {
        return None;
    }
    let (id, json) = text.split_once(' ')?;
    Some((id.parse().ok()?, serde_json::from_str(json).ok()?))
}
