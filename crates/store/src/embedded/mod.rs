//! The embedded store: sensor documents as in MongoDB, and pages in a packed form, in one redb file in its own folder.
//! For one machine and one process. Knows keys, forms, tables and the file; nothing of MongoDB.

mod compact;
mod days;
mod file;
mod journal;
mod keys;
mod months;
mod page_form;
mod pages;
mod remove;
mod sensors;
mod store;
mod tables;
mod walk;

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use redb::{Database, DatabaseError, ReadableDatabase};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

pub use self::compact::{CompactError, FileSpace};
pub use self::file::FILE_NAME;

use self::file::{DatabaseFile, FileFailure};
use self::keys::Keys;
use self::tables::{DocumentRows, DocumentTable};
use crate::ScanBudget;
use crate::bucket::store::{ScannedPage, Written};
use crate::bucket::{Result, StorageError};

/// How long a caller waits for the disk. A write continues after that.
const DEADLINE: Duration = Duration::from_secs(30);
/// Most sensors per scanning thread: few enough that a thousand sensors keep several cores busy.
const SCAN_SENSORS: usize = 125;
/// Least sensors per scanning thread: enough that the cost of handing over is small.
const SCAN_LEAST: usize = 8;
/// What a small write counts for where written bytes are bounded: a removal, a sensor's document.
const SMALL_BYTES: usize = 1 << 10;

/// A store in one file.
pub struct EmbeddedStore {
    path: PathBuf,
    file: Arc<DatabaseFile>,
    /// Cache of the file, in bytes.
    cache_bytes: usize,
    /// Limits concurrent reads: more threads would find no core, and each keeps memory for its next use.
    readers: Arc<Semaphore>,
    cores: usize,
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Why the file, or its folder, could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum FileOpenError {
    /// The folder cannot be made or synced.
    #[error("making the data folder {path}: {1}", path = .0.display())]
    Folder(PathBuf, #[source] io::Error),
    /// The file is locked.
    #[error("another process has {} open; one process at a time can use a data folder", .0.display())]
    InUse(PathBuf),
    /// The file was written by a later hourglass; it has this version.
    #[error("{path} has version {1}, this program knows {known}: use the version that wrote it", path = .0.display(), known = tables::VERSION)]
    Newer(PathBuf, u64),
    /// The file was written before version 1.
    #[error("{} is older than version 1 of the file, which no hourglass reads any more: use another data folder", .0.display())]
    Older(PathBuf),
    /// The system refused to read or write the file.
    #[error("opening {path}: {1}", path = .0.display())]
    Io(PathBuf, #[source] io::Error),
    /// The file is damaged, or is not a file of this store.
    #[error("{path} is damaged, or is not a file of hourglass: {1}", path = .0.display())]
    Unreadable(PathBuf, String),
}

impl EmbeddedStore {
    /// Opens `hourglass.redb` in this folder, or makes both, with a cache of `cache_bytes`. Blocks. A file that was not
    /// closed opens as fast as one that was.
    ///
    /// # Errors
    /// [`FileOpenError`]
    pub fn open(folder: &Path, cache_bytes: usize) -> Result<Self, FileOpenError> {
        let new_folder = !folder.exists();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|source| FileOpenError::Folder(folder.to_owned(), source))?;
        let path = folder.join(FILE_NAME);
        let new_file = !path.exists();
        if new_file {
            Self::make(&path, &builder(cache_bytes))?;
        }
        let database = builder(cache_bytes).open(&path).map_err(|error| refusal(error, &path))?;
        let file = path.clone();
        // Not `create`: if the file was removed meanwhile, it must not come back empty.
        let reopen = move || {
            // A compaction that could not sync the folder must not be written to before it is.
            compact::sync_folder(&file).map_err(|error| DatabaseError::Storage(redb::StorageError::Io(error)))?;
            builder(cache_bytes).open(&file)
        };
        let mut store = Self::over(database, Box::new(reopen), &path)?;
        store.cache_bytes = cache_bytes;
        compact::remove_if_there(&compact::unfinished(&path))
            .map_err(|source| FileOpenError::Io(path.clone(), source))?;
        // Until the folder is synced, a power cut can lose the file's name, and with it everything synced into the
        // file.
        let parent = || folder.canonicalize().ok()?.parent().map(Path::to_owned);
        let nameless = new_file.then(|| folder.to_owned()).into_iter().chain(new_folder.then(parent).flatten());
        for folder in nameless {
            let synced = File::open(&folder).and_then(|folder| folder.sync_all());
            synced.map_err(|source| FileOpenError::Folder(folder, source))?;
        }
        Ok(store)
    }

    /// Gives free space in the folder's file back to the disk: what is stored moves to the front, and the file is cut. Takes
    /// as long as moving that takes, and may be killed at any time. Blocks. Returns the file's bytes before and after.
    ///
    /// # Errors
    /// [`FileOpenError`]
    pub fn compact(folder: &Path, cache_bytes: usize) -> Result<(u64, u64), FileOpenError> {
        let path = folder.join(FILE_NAME);
        let bytes = || std::fs::metadata(&path).map(|file| file.len());
        let failed = |source| FileOpenError::Io(path.clone(), source);
        let before = bytes().map_err(failed)?;
        // As it opens any file: one of a later version is refused.
        let store = Self::open(folder, cache_bytes)?;
        store.file.close();
        let mut database = builder(cache_bytes).open(&path).map_err(|error| refusal(error, &path))?;
        while database.compact().map_err(|error| failed(io::Error::other(error)))? {}
        drop(database);
        Ok((before, bytes().map_err(failed)?))
    }

    /// Bytes that the file takes on the disk; 0 if that is unknown.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        compact::disk_bytes(&self.path).unwrap_or(0)
    }

    /// Measures the file. Reads all of it, and keeps nobody waiting.
    ///
    /// # Errors
    /// [`CompactError`]
    pub async fn measure(&self) -> Result<FileSpace, CompactError> {
        let (file, path) = (self.file.clone(), self.path.clone());
        let measured = spawn_blocking(move || compact::measure(&file, &path)).await;
        measured.unwrap_or_else(|error| Err(CompactError::GivenUp(error.to_string())))
    }

    /// As [`Self::compact`], of the store that is in use: reads go on, and writes wait for a moment at the end. `tell` is
    /// called with the rows copied so far. Returns the file's bytes afterwards.
    ///
    /// # Errors
    /// [`CompactError`]; the old file stays in use.
    pub async fn compact_in_use(&self, tell: impl Fn(u64) + Send + 'static) -> Result<u64, CompactError> {
        let (file, path, cache_bytes) = (self.file.clone(), self.path.clone(), self.cache_bytes);
        let compacted = spawn_blocking(move || compact::compact(&file, &path, &builder(cache_bytes), &tell));
        compacted.await.unwrap_or_else(|error| Err(CompactError::GivenUp(error.to_string())))
    }

    /// Makes an empty store under another name and renames it when it is complete: a power cut during the making leaves
    /// a file that cannot be opened.
    fn make(path: &Path, builder: &redb::Builder) -> Result<(), FileOpenError> {
        let unfinished = path.with_extension("redb.new");
        let failed = |source| FileOpenError::Io(unfinished.clone(), source);
        compact::remove_if_there(&unfinished).map_err(failed)?;
        let mut options = OpenOptions::new();
        let made = options.read(true).write(true).create_new(true).mode(0o600).open(&unfinished).map_err(failed)?;
        let database = builder.create_file(made).map_err(|error| refusal(error, &unfinished))?;
        let file = unfinished.clone();
        drop(Self::over(database, Box::new(move || Database::builder().open(&file)), &unfinished)?);
        match std::fs::hard_link(&unfinished, path) {
            Ok(()) => std::fs::remove_file(&unfinished).map_err(failed),
            // Another process made the file first; whichever opens it first gets the lock.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                std::fs::remove_file(&unfinished).map_err(failed)
            }
            // Not every file system has hard links.
            Err(_) => std::fs::rename(&unfinished, path).map_err(failed),
        }
    }

    fn over(database: Database, reopen: file::Opener, path: &Path) -> Result<Self, FileOpenError> {
        let file = DatabaseFile::new(database, reopen);
        match file.run(tables::prepare) {
            Ok(Ok(())) => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                let readers = Arc::new(Semaphore::new(2 * cores));
                Ok(Self { path: path.to_owned(), file: Arc::new(file), cache_bytes: 0, readers, cores })
            }
            Ok(Err(0)) => Err(FileOpenError::Older(path.to_owned())),
            Ok(Err(found)) => Err(FileOpenError::Newer(path.to_owned(), found)),
            Err(StorageError::Unreadable { detail, .. }) => Err(FileOpenError::Unreadable(path.to_owned(), detail)),
            Err(other) => Err(FileOpenError::Io(path.to_owned(), io::Error::other(other))),
        }
    }

    /// Runs work that writes about `bytes` where blocking is allowed. It runs to its end even if the caller stops waiting.
    /// It may be done again on a copy of the file: see [`DatabaseFile::change`].
    async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl Fn(&Database) -> Result<T, FileFailure> + Send + Sync + 'static,
    ) -> Result<T> {
        let file = self.file.clone();
        Self::within_deadline(move || file.change(bytes, work)).await
    }

    async fn within_deadline<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        match tokio::time::timeout(DEADLINE, spawn_blocking(work)).await {
            Ok(Ok(result)) => result,
            // The runtime is shutting down.
            Ok(Err(error)) => Err(StorageError::Unknown(error.to_string())),
            Err(_) => Err(StorageError::Unknown(format!("the disk did not answer within {DEADLINE:?}"))),
        }
    }

    /// As [`Self::run`], without a deadline: for removals, which must have ended before the next write.
    async fn run_to_its_end<T: Send + 'static>(
        &self,
        work: impl Fn(&Database) -> Result<T, FileFailure> + Send + Sync + 'static,
    ) -> Result<T> {
        let file = self.file.clone();
        let done = spawn_blocking(move || file.change(SMALL_BYTES, work)).await;
        done.unwrap_or_else(|error| Err(StorageError::Unknown(error.to_string())))
    }

    /// As [`Self::run`], for work that writes nothing, and is not ordered with what does: its outcome is never unknown.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, FileFailure> + Send + 'static,
    ) -> Result<T> {
        let reader = self.readers.clone().acquire_owned().await;
        let work = move |database: &Database| {
            let _reader = reader;
            work(database)
        };
        let file = self.file.clone();
        Self::within_deadline(move || file.run(work)).await.map_err(|error| match error {
            StorageError::Unknown(detail) => StorageError::Unavailable(detail),
            other => other,
        })
    }

    /// As [`Self::read`], of the rows of a database in one table.
    async fn read_table<T: Send + 'static>(
        &self,
        (table, database): (DocumentTable, &str),
        work: impl FnOnce(&Keys, &DocumentRows) -> Result<T, FileFailure> + Send + 'static,
    ) -> Result<T> {
        let keys = Keys::of(database);
        self.read(move |db| work(&keys, &db.begin_read()?.open_table(table)?)).await
    }

    /// Scans several sensors on several threads; `scan` gets the bytes that are left, and returns what it found with its
    /// bytes. `None` if these are more than `bytes_max`, or a scan returns `None`.
    async fn scan_each(
        &self,
        table: (DocumentTable, &str),
        sensors: &[&str],
        bytes_max: usize,
        scan: impl Fn(&Keys, &DocumentRows, &str, usize) -> Result<Option<(Vec<ScannedPage>, usize)>, FileFailure>
        + Clone
        + Send
        + 'static,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>> {
        let room = ScanBudget::new(bytes_max);
        let lot = sensors.len().div_ceil(self.cores).clamp(SCAN_LEAST, SCAN_SENSORS);
        let batches = sensors.chunks(lot).map(|lot| {
            let (room, scan) = (room.clone(), scan.clone());
            let lot: Vec<String> = lot.iter().map(|sensor| (*sensor).to_owned()).collect();
            self.read_table(table, move |keys, rows| {
                let of_sensor = |sensor: &String| {
                    let scanned = scan(keys, rows, sensor, room.left())?;
                    Ok(scanned.and_then(|(pages, bytes)| room.take(bytes).then_some(pages)))
                };
                lot.iter().map(of_sensor).collect::<Result<Option<Vec<_>>, FileFailure>>()
            })
        });
        let batches = futures_util::future::try_join_all(batches).await?;
        Ok(batches.into_iter().collect::<Option<Vec<_>>>().map(|batches| batches.into_iter().flatten().collect()))
    }

    /// As [`Self::run`], for `count` writes in one transaction.
    async fn write(
        &self,
        (count, bytes): (usize, usize),
        work: impl Fn(&Database) -> Result<Vec<Written>, FileFailure> + Send + Sync + 'static,
    ) -> Vec<Written> {
        match count {
            0 => Vec::new(),
            _ => self.run(bytes, work).await.unwrap_or_else(|error| vec![Written::Failed(error); count]),
        }
    }
}

/// Opens and makes files with a cache of so many bytes.
fn builder(cache_bytes: usize) -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(cache_bytes);
    builder
}

fn refusal(error: DatabaseError, path: &Path) -> FileOpenError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => FileOpenError::InUse(path),
        // redb reports bytes that are not its own with this kind.
        DatabaseError::Storage(redb::StorageError::Io(source)) if source.kind() != io::ErrorKind::InvalidData => {
            FileOpenError::Io(path, source)
        }
        other => FileOpenError::Unreadable(path, other.to_string()),
    }
}

#[cfg(test)]
mod tests;
