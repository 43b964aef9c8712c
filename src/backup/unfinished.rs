//! The mark of a data folder whose store is being filled, by `restore` or `copy`: what from, and which days are done. A run
//! that was killed is continued by the same command; no service starts on half of the readings.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::digest::SetDigest;
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

/// A line of the mark: of a day the last one counts.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    database: String,
    day: i64,
    /// Whether the day is only begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    begun: bool,
    /// What was copied from a running service, which may change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    set: Option<SetDigest>,
}

/// How far a day is.
#[derive(Debug, Clone, Copy)]
struct State {
    is_done: bool,
    set: Option<SetDigest>,
}

/// By database and day.
type Days = BTreeMap<(String, i64), State>;

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
    pub fn open(folder: &Path, begin: impl FnOnce() -> Doing) -> io::Result<Self> {
        let path = folder.join(NAME);
        let (doing, days) = match read(&path)? {
            Some(found) => found,
            None => {
                let doing = begin();
                let beside = folder.join(format!("{NAME}.new"));
                let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
                writeln!(file, "{}", serde_json::to_string(&doing)?)?;
                file.sync_all()?;
                fs::rename(&beside, &path)?;
                File::open(folder)?.sync_all()?;
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
        self.state(database, day).is_some_and(|state| state.is_done)
    }

    /// Whether some of a day may be written.
    #[must_use]
    pub fn is_begun(&self, database: &str, day: Day) -> bool {
        self.state(database, day).is_some()
    }

    /// The days of a database of which something may be written.
    #[must_use]
    pub fn days(&self, database: &str) -> Vec<Day> {
        let of_database = self.days.keys().filter(|(of, _)| of == database);
        of_database.map(|(_, day)| Day(*day)).collect()
    }

    /// What was copied of a day, if all of it was.
    #[must_use]
    pub fn digest(&self, database: &str, day: Day) -> Option<SetDigest> {
        self.state(database, day)?.set
    }

    /// A day is about to be written, or changed. Durable on return: a day that seems to be copied is as its digest says.
    ///
    /// # Errors
    /// If the mark cannot be written.
    pub fn day_begun(&mut self, database: &str, day: Day) -> io::Result<()> {
        self.note(Line { database: database.to_owned(), day: day.0, begun: true, set: None })?;
        self.file.sync_data()
    }

    /// All of a day is written, durably, and this is what it is.
    ///
    /// # Errors
    /// If the mark cannot be written.
    pub fn day_copied(&mut self, database: &str, day: Day, set: SetDigest) -> io::Result<()> {
        self.note(Line { database: database.to_owned(), day: day.0, begun: false, set: Some(set) })
    }

    /// A database is about to be dropped.
    ///
    /// # Errors
    /// If the mark cannot be written.
    pub fn forget(&mut self, database: &str) -> io::Result<()> {
        self.days(database).into_iter().try_for_each(|day| self.day_begun(database, day))
    }

    fn state(&self, database: &str, day: Day) -> Option<&State> {
        self.days.get(&(database.to_owned(), day.0))
    }

    fn note(&mut self, line: Line) -> io::Result<()> {
        writeln!(self.file, "{}", serde_json::to_string(&line)?)?;
        let Line { database, day, begun, set } = line;
        self.days.insert((database, day), State { is_done: !begun, set });
        Ok(())
    }

    /// All of a day is written, durably.
    ///
    /// # Errors
    /// If the mark cannot be written.
    pub fn day_done(&mut self, database: &str, day: Day) -> io::Result<()> {
        // Not synced: a day that seems not to be done is written again.
        self.note(Line { database: database.to_owned(), day: day.0, begun: false, set: None })
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
    let lines = lines.filter_map(|line| serde_json::from_str(line).ok());
    let state = |Line { database, day, begun, set }| ((database, day), State { is_done: !begun, set });
    Ok(Some((doing, lines.map(state).collect())))
}
