//! The mark of a data folder whose store `restore` or `copy` is filling: the source, and the days already written. The
//! same command continues an interrupted run, and no service starts while the mark exists.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files;
use crate::reading::Day;

/// The file's name in the data folder.
pub const NAME: &str = "unfinished.jsonl";

/// The command that is filling a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// `restore` or `copy`.
    #[serde(rename = "what")]
    pub command: String,
    /// The source: a backup or a store.
    #[serde(rename = "from")]
    pub source: String,
    /// The store to fill.
    #[serde(rename = "to")]
    pub target: String,
    /// The stamp of everything written.
    pub stamp: u64,
}

/// The written days with their databases. Each is a line of the mark.
type Days = BTreeSet<(String, i64)>;

/// The mark of a data folder that is being filled.
#[derive(Debug)]
pub struct UnfinishedMark {
    path: PathBuf,
    file: File,
    operation: Operation,
    days: Days,
}

impl UnfinishedMark {
    /// Returns the command that is filling a data folder, or `None` if the folder has no mark.
    ///
    /// # Errors
    /// If the mark cannot be read.
    pub fn read(folder: &Path) -> io::Result<Option<Operation>> {
        Ok(read(&folder.join(NAME))?.map(|(operation, _)| operation))
    }

    /// Continues the marked operation, or marks the folder.
    ///
    /// # Errors
    /// If the mark cannot be read or written.
    pub fn open(folder: &Path, operation: Operation) -> io::Result<Self> {
        let path = folder.join(NAME);
        let (operation, days) = match read(&path)? {
            Some(found) => found,
            None => {
                files::replace(&path, format!("{}\n", serde_json::to_string(&operation)?).as_bytes(), true)?;
                (operation, Days::new())
            }
        };
        let file = OpenOptions::new().append(true).open(&path)?;
        // Two commands that fill one store would undo each other's work. With MongoDB, only this lock prevents it.
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                io::Error::new(ErrorKind::WouldBlock, "another command is filling it: stop that first")
            }
            TryLockError::Error(error) => error,
        })?;
        Ok(Self { path, file, operation, days })
    }

    #[must_use]
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Returns true if a day is written completely.
    #[must_use]
    pub fn is_done(&self, database: &str, day: Day) -> bool {
        self.days.contains(&(database.to_owned(), day.0))
    }

    /// Marks a day as written. Its readings must be durable.
    ///
    /// # Errors
    /// If the mark cannot be written.
    pub fn day_done(&mut self, database: &str, day: Day) -> io::Result<()> {
        // No sync is needed, because a day without a mark is written again.
        let line = (database.to_owned(), day.0);
        writeln!(self.file, "{}", serde_json::to_string(&line)?)?;
        self.days.insert(line);
        Ok(())
    }

    /// Removes the mark, because everything is written.
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

fn read(path: &Path) -> io::Result<Option<(Operation, Days)>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut lines = text.lines();
    let operation = serde_json::from_str(lines.next().unwrap_or_default())?;
    // An incomplete last line is ignored: its day is written again.
    Ok(Some((operation, lines.filter_map(|line| serde_json::from_str(line).ok()).collect())))
}
