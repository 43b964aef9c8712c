//! Marks of dead-letter chunks that were sent again, in a file beside the dead-letter file. Each mark is synced before
//! the next chunk is sent. When all chunks are marked, the dead-letter file is renamed.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::file::{Chunk, Chunks};
use super::locked::open_locked;
use crate::clock::now_ns;
use crate::reading::time::write_rfc3339;

/// The marked chunks, by offset and by checksum of the comment.
#[derive(Debug, Default)]
pub struct Marks(HashSet<(u64, u32)>);

/// The path of a dead-letter file's marks.
pub fn path_of_marks(file: &Path) -> PathBuf {
    file.with_extension("sent")
}

impl Marks {
    /// Reads the marks; there are none without a file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(file: &Path) -> io::Result<Self> {
        let text = match fs::read_to_string(path_of_marks(file)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        let mark = |line: &str| {
            let (offset, checksum) = line.split_once(' ')?;
            Some((offset.parse().ok()?, u32::from_str_radix(checksum, 16).ok().filter(|_| checksum.len() == 8)?))
        };
        Ok(Self(text.lines().filter_map(mark).collect()))
    }

    /// Whether a chunk was sent again.
    #[must_use]
    pub fn has(&self, chunk: &Chunk) -> bool {
        self.0.contains(&(chunk.offset, chunk.checksum))
    }
}

/// The right to send dead letters again, which one process has at a time: it locks the file of marks.
#[derive(Debug)]
pub struct Sending {
    path: PathBuf,
    file: File,
    marks: Marks,
}

impl Sending {
    /// Locks the marks of this dead-letter file.
    ///
    /// # Errors
    /// `WouldBlock` if another process is sending; other I/O errors as they are.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path_of_marks(path))?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
            TryLockError::Error(error) => error,
        })?;
        // If the last mark was cut off, the next one must still be a line of its own.
        (&file).write_all(b"\n")?;
        let marks = Marks::read(path)?;
        Ok(Self { path: path.to_owned(), file, marks })
    }

    /// Whether a chunk was sent before.
    #[must_use]
    pub fn has(&self, chunk: &Chunk) -> bool {
        self.marks.has(chunk)
    }

    /// Marks a chunk as sent, durably.
    ///
    /// # Errors
    /// If the mark cannot be written.
    pub fn mark(&mut self, chunk: &Chunk) -> io::Result<()> {
        (&self.file).write_all(format!("{} {:08x}\n", chunk.offset, chunk.checksum).as_bytes())?;
        self.file.sync_data()?;
        self.marks.0.insert((chunk.offset, chunk.checksum));
        Ok(())
    }

    /// If all chunks were sent, renames the file and returns its new path. Waits while a service appends to the file.
    ///
    /// # Errors
    /// I/O errors as they are. Marks that are left behind match no chunk of another file.
    pub fn finish(self) -> io::Result<Option<PathBuf>> {
        let marks = path_of_marks(&self.path);
        if !self.path.exists() {
            fs::remove_file(marks)?;
            return Ok(None);
        }
        let _locked = open_locked(&self.path)?;
        let Some(mut chunks) = Chunks::open(&self.path, 0)? else { return Ok(None) };
        while let Some(chunk) = chunks.next(0)? {
            if !self.marks.has(&chunk) {
                return Ok(None);
            }
        }
        let mut now = String::new();
        write_rfc3339(&mut now, now_ns());
        let aside = self.path.with_extension(format!("{}.sent.lp", now.replace(':', "-")));
        fs::rename(&self.path, &aside)?;
        fs::remove_file(marks)?;
        if let Some(folder) = self.path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(Some(aside))
    }
}
