//! The mark of a data folder whose store is being filled, by `restore` or `copy`: what from, and which days are done. A run
//! that was killed is continued by the same command; no service starts on half of the readings.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::access::replace_file;
use crate::reading::Day;

/// The file's name in the data folder.
pub const NAME: &str = "unfinished.jsonl";

/// What is being done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doing {
    /// `restore` or `copy`.
    pub what: String,
    /// Which backup, or which store.
    pub from: String,
    /// The store that is filled.
    pub to: String,
    /// The stamp of what is written.
    pub stamp: u64,
}

/// The days that are done, with their databases: each is a line of the mark.
type Days = BTreeSet<(String, i64)>;

/// The mark.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
    file: File,
    doing: Doing,
    days: Days,
}

impl Unfinished {
    /// What a data folder is being filled with.
    ///
    /// # Errors
    /// If the mark cannot be read.
    pub fn of(folder: &Path) -> io::Result<Option<Doing>> {
        Ok(read(&folder.join(NAME))?.map(|(doing, _)| doing))
    }

    /// Continues what was begun before, or marks the folder.
    ///
    /// # Errors
    /// If the mark cannot be read or written.
    pub fn open(folder: &Path, doing: Doing) -> io::Result<Self> {
        let path = folder.join(NAME);
        let (doing, days) = match read(&path)? {
            Some(found) => found,
            None => {
                replace_file(&path, format!("{}\n", serde_json::to_string(&doing)?).as_bytes(), true)?;
                (doing, Days::new())
            }
        };
        let file = OpenOptions::new().append(true).open(&path)?;
        // Two commands that fill one store would undo each other's work; with MongoDB nothing else keeps them apart.
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                io::Error::new(ErrorKind::WouldBlock, "another command is filling it: end that first")
            }
            TryLockError::Error(error) => error,
        })?;
        Ok(Self { path, file, doing, days })
    }

    #[must_use]
    pub fn doing(&self) -> &Doing {
        &self.doing
    }

    /// Whether all of a day is written.
    #[must_use]
    pub fn is_done(&self, database: &str, day: Day) -> bool {
        self.days.contains(&(database.to_owned(), day.0))
    }

    /// All of a day is written, durably.
    ///
    /// # Errors
    /// If the mark cannot be written.
    pub fn day_done(&mut self, database: &str, day: Day) -> io::Result<()> {
        // Not synced: a day that seems not to be done is written again.
        let line = (database.to_owned(), day.0);
        writeln!(self.file, "{}", serde_json::to_string(&line)?)?;
        self.days.insert(line);
        Ok(())
    }

    /// Everything is written: removes the mark.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn finish(self) -> io::Result<()> {
        fs::remove_file(&self.path)?;
        match self.path.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }
}

fn read(path: &Path) -> io::Result<Option<(Doing, Days)>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut lines = text.lines();
    let doing = serde_json::from_str(lines.next().unwrap_or_default())?;
    // A line that a kill cut off is of a day that is not known to be done.
    Ok(Some((doing, lines.filter_map(|line| serde_json::from_str(line).ok()).collect())))
}
