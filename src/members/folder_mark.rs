//! The mark in the WAL's folder, which says that this folder, and not a copy of it, is in the registry. The floor then
//! waits for this WAL even while the process is down, so a start may ack before the store answers.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// File name of the mark, in the WAL's folder.
const NAME: &str = "joined";
/// File that identifies the folder: it is created with the folder and never written.
const LOCK: &str = "lock";

/// The mark of one folder.
#[derive(Debug, Clone)]
pub struct FolderMark {
    folder: PathBuf,
    id: u64,
}

impl FolderMark {
    /// Returns the mark of an open WAL's folder. Its id is derived from the inode and the creation time of the lock
    /// file, which differ in a copy.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        let id = std::fs::metadata(folder.join(LOCK)).map_or(0, |entry| {
            let born = entry.created().ok().and_then(|born| born.duration_since(SystemTime::UNIX_EPOCH).ok());
            let born_ns = born.and_then(|born| u64::try_from(born.as_nanos()).ok()).unwrap_or_default();
            entry.ino().rotate_left(32) ^ born_ns
        });
        Self { folder: folder.to_owned(), id }
    }

    /// Returns the id that distinguishes the folder from its copies.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns true if this folder has joined and not left since.
    #[must_use]
    pub fn is_set(&self) -> bool {
        std::fs::read_to_string(self.path()).is_ok_and(|text| text.trim() == self.text())
    }

    /// Returns the time at which the mark was set, in milliseconds since the epoch; `None` if it is not set.
    #[must_use]
    pub fn since_ms(&self) -> Option<u64> {
        let modified = std::fs::metadata(self.path()).and_then(|entry| entry.modified()).ok()?;
        if !self.is_set() {
            return None;
        }
        u64::try_from(modified.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_millis()).ok()
    }

    /// Notes that the folder has joined.
    ///
    /// # Errors
    /// If the folder cannot be written to.
    pub fn set(&self) -> io::Result<()> {
        if self.is_set() {
            return Ok(());
        }
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(self.path())?;
        writeln!(file, "{}", self.text())?;
        file.sync_all()?;
        File::open(&self.folder)?.sync_all()
    }

    /// Notes that the folder is about to leave.
    ///
    /// # Errors
    /// If the folder cannot be written to.
    pub fn clear(&self) -> io::Result<()> {
        if let Err(error) = std::fs::remove_file(self.path())
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        File::open(&self.folder)?.sync_all()
    }

    fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    fn text(&self) -> String {
        format!("{:016x}", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_folder_is_not_marked() {
        let place = tempfile::tempdir().unwrap();
        let [here, there] = ["here", "there"].map(|name| place.path().join(name));
        for folder in [&here, &there] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join(LOCK), "").unwrap();
        }
        let mark = FolderMark::new(&here);
        assert!(!mark.is_set() && mark.since_ms().is_none());
        mark.set().unwrap();
        assert!(FolderMark::new(&here).is_set() && mark.since_ms().is_some());
        std::fs::copy(here.join(NAME), there.join(NAME)).unwrap();
        assert!(!FolderMark::new(&there).is_set());
        mark.clear().unwrap();
        mark.clear().unwrap();
        assert!(!mark.is_set());
    }
}
