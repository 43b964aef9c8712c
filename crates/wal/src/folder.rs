//! [`Disk`] on the real file system: one folder, positioned reads and writes, fdatasync, flock.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::disk::{Disk, DiskFile};

/// Files are for the owner only: records contain sensor keys, and every user who can open the lock file could lock it.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// A folder of the file system.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    read_only: bool,
}

impl Folder {
    /// Creates the folder and its missing parents durably.
    ///
    /// # Errors
    /// If a folder cannot be created or synced.
    pub fn new(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        make(&path)?;
        Ok(Self { path, read_only: false })
    }

    /// A folder for [`inspect`](super::inspect). It is not created, and its files are opened for reading only.
    #[must_use]
    pub fn read_only(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), read_only: true }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Creates a folder and its parents, and syncs the parent of each new folder.
fn make(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(Path::new("/"));
    make(parent)?;
    match DirBuilder::new().mode(FOLDER_MODE).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    sync(parent)
}

fn sync(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

impl Disk for Folder {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.extend(entry.file_name().into_string());
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let path = self.at(name);
        make(path.parent().unwrap_or(&self.path))?;
        Ok(Box::new(OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(path)?))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().read(true).write(!self.read_only).open(self.at(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let to = self.at(to);
        make(to.parent().unwrap_or(&self.path))?;
        fs::rename(self.at(from), to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.at(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        let quarantine = self.at(super::quarantine::FOLDER);
        if quarantine.is_dir() {
            sync(&quarantine)?;
        }
        sync(&self.path)
    }

    fn lock(&self, name: &str) -> io::Result<Box<dyn Send + Sync>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(self.at(name))?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl DiskFile for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        File::set_len(self, length)
    }
}
