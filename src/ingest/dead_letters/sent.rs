//! Which lots of the dead-letter file were sent again: marks in a file beside it, each synced before the next lot is
//! sent. When all of them are marked the file goes under another name.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::file::{Lot, Lots};
use super::open_locked;
use crate::clock::now_ns;
use crate::reading::time::write_rfc3339;

/// The marks of lots, by where each is and the checksum of its comment.
#[derive(Debug, Default)]
pub struct Marks(HashSet<(u64, u32)>);

/// Where the marks of a dead-letter file are.
pub fn path_of_marks(file: &Path) -> PathBuf {
    file.with_extension("sent")
}

impl Marks {
    /// Those there are.
    ///
    /// # Errors
    /// The file cannot be read.
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

    /// Whether a lot was sent.
    #[must_use]
    pub fn has(&self, lot: &Lot) -> bool {
        self.0.contains(&(lot.offset, lot.checksum))
    }
}

/// Whoever sends dead letters again; there is one at a time.
#[derive(Debug)]
pub struct Sending {
    path: PathBuf,
    file: File,
    marks: Marks,
}

impl Sending {
    /// Of this dead-letter file.
    ///
    /// # Errors
    /// `WouldBlock` when somebody else sends them just now; others as the system has them.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path_of_marks(path))?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
            TryLockError::Error(error) => error,
        })?;
        // Behind a mark that was cut off, whatever comes must be a line of its own.
        (&file).write_all(b"\n")?;
        let marks = Marks::read(path)?;
        Ok(Self { path: path.to_owned(), file, marks })
    }

    /// Whether a lot was sent before.
    #[must_use]
    pub fn has(&self, lot: &Lot) -> bool {
        self.marks.has(lot)
    }

    /// Marks a lot as sent, durably.
    ///
    /// # Errors
    /// The mark cannot be written.
    pub fn mark(&mut self, lot: &Lot) -> io::Result<()> {
        (&self.file).write_all(format!("{} {:08x}\n", lot.offset, lot.checksum).as_bytes())?;
        self.file.sync_data()?;
        self.marks.0.insert((lot.offset, lot.checksum));
        Ok(())
    }

    /// Puts the file aside under another name when all of it was sent; returns that name. While a service adds to it,
    /// it waits.
    ///
    /// # Errors
    /// As the system has them. The marks count for no other file, should they outlive theirs.
    pub fn finish(self) -> io::Result<Option<PathBuf>> {
        let marks = path_of_marks(&self.path);
        if !self.path.exists() {
            fs::remove_file(marks)?;
            return Ok(None);
        }
        let _locked = open_locked(&self.path)?;
        let Some(mut lots) = Lots::open(&self.path, 0)? else { return Ok(None) };
        while let Some(lot) = lots.next(0)? {
            if !self.marks.has(&lot) {
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
