//! The embedded store: one redb file in a data folder, for one machine and one process.
//!
//! Sensor documents have the same form as in MongoDB; pages are packed. Nothing here depends on the MongoDB store.

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
mod shown;
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

use hourglass_base::blocking;
use redb::{Database, DatabaseError, ReadableDatabase};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_blocking};

pub use self::compact::{CompactError, FileSpace};
pub use self::file::FILE_NAME;

use self::file::{DatabaseFile, FileFailure};
use self::keys::Keys;
use self::tables::{DocumentRows, DocumentTable};
use crate::ScanBudget;
use crate::bucket::store::{ScanResult, ScannedPage, WriteOutcome};
use crate::bucket::{Result, StorageError};

/// Maximum time that a caller waits for the disk. A write that takes longer continues in the background.
const DEADLINE: Duration = Duration::from_secs(30);
/// Maximum sensors per scanning thread. Small enough that a scan of a thousand sensors keeps several cores busy.
const SCAN_SENSORS_MAX: usize = 125;
/// Minimum sensors per scanning thread. Large enough that the handover costs little in comparison.
const SCAN_SENSORS_MIN: usize = 8;
/// Estimated size of a small write, such as a removal or a sensor document. Bounds the bytes that a compaction notes.
const SMALL_WRITE_BYTES: usize = 1 << 10;

/// A store in one redb file.
pub struct EmbeddedStore {
    path: PathBuf,
    file: Arc<DatabaseFile>,
    /// Cache of the file, in bytes.
    cache_bytes: usize,
    /// Limits concurrent reads. More threads would find no idle core, and each keeps memory for its next use.
    readers: Arc<Semaphore>,
    cores: usize,
}

/// The result of a scan, with the bytes that count against its budget.
struct SizedScan {
    scanned: ScanResult,
    bytes: usize,
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore").field("path", &self.path).finish_non_exhaustive()
    }
}

/// An error from opening the data folder or its file.
#[derive(Debug, thiserror::Error)]
pub enum FileOpenError {
    /// The folder cannot be created or synced.
    #[error("cannot create or sync the data folder {path}: {1}", path = .0.display())]
    Folder(PathBuf, #[source] io::Error),
    /// Another process has locked the file.
    #[error("another process has {} open; one process at a time can use a data folder", .0.display())]
    InUse(PathBuf),
    /// A later hourglass wrote the file. Holds the version of the file.
    #[error("{path} has version {1}, but this hourglass reads version {known}: use the hourglass that wrote it", path = .0.display(), known = tables::VERSION)]
    Newer(PathBuf, u64),
    /// The file was written before version 1.
    #[error("{} has a format older than version 1, which this hourglass cannot read: use another data folder", .0.display())]
    Older(PathBuf),
    /// The file cannot be read or written.
    #[error("cannot open {path}: {1}", path = .0.display())]
    Io(PathBuf, #[source] io::Error),
    /// The file is damaged, or is not a file of this store.
    #[error("{path} is damaged or was not written by hourglass: {1}", path = .0.display())]
    Unreadable(PathBuf, String),
}

impl EmbeddedStore {
    /// Opens `hourglass.redb` in this folder with a cache of `cache_bytes`, and creates the folder and the file if they
    /// do not exist. Blocks. A file that was not closed takes no longer to open.
    ///
    /// # Errors
    /// Fails if the file cannot be created or opened, is in use, damaged, or of another version.
    pub fn open(folder: &Path, cache_bytes: usize) -> Result<Self, FileOpenError> {
        let new_folder = !folder.exists();
        let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        created.map_err(|source| FileOpenError::Folder(folder.to_owned(), source))?;
        let path = folder.join(FILE_NAME);
        let new_file = !path.exists();
        if new_file {
            Self::create(&path, &builder(cache_bytes))?;
        }
        let database = builder(cache_bytes).open(&path).map_err(|error| open_error(error, &path))?;
        let file = path.clone();
        // `open` instead of `create`: a file that was removed in the meantime must not be replaced by an empty one.
        let reopen = move || {
            // If a compaction failed to sync the folder, sync it before anything is written to the new file.
            compact::sync_folder(&file).map_err(|error| DatabaseError::Storage(redb::StorageError::Io(error)))?;
            builder(cache_bytes).open(&file)
        };
        let mut store = Self::from_database(database, Box::new(reopen), &path)?;
        store.cache_bytes = cache_bytes;
        compact::remove_if_exists(&compact::temporary_path(&path))
            .map_err(|source| FileOpenError::Io(path.clone(), source))?;
        // Sync the folder of every new name. Otherwise a power cut can lose the name, and with it everything that was
        // synced into the file.
        let parent = || folder.canonicalize().ok()?.parent().map(Path::to_owned);
        let file_folder = new_file.then(|| folder.to_owned());
        let folder_parent = new_folder.then(parent).flatten();
        for folder in file_folder.into_iter().chain(folder_parent) {
            let synced = File::open(&folder).and_then(|folder| folder.sync_all());
            synced.map_err(|source| FileOpenError::Folder(folder, source))?;
        }
        Ok(store)
    }

    /// Compacts the file of a stopped service: moves its pages to the front and truncates it. Blocks. Returns the
    /// file's bytes before and after. The process may be killed at any time without losing data.
    ///
    /// # Errors
    /// Fails if the file cannot be opened or compacted.
    pub fn compact(folder: &Path, cache_bytes: usize) -> Result<(u64, u64), FileOpenError> {
        let path = folder.join(FILE_NAME);
        let bytes = || std::fs::metadata(&path).map(|file| file.len());
        let failed = |source| FileOpenError::Io(path.clone(), source);
        let before = bytes().map_err(failed)?;
        // The usual open refuses a file of a later version.
        let store = Self::open(folder, cache_bytes)?;
        store.file.close();
        let mut database = builder(cache_bytes).open(&path).map_err(|error| open_error(error, &path))?;
        while database.compact().map_err(|error| failed(io::Error::other(error)))? {}
        drop(database);
        Ok((before, bytes().map_err(failed)?))
    }

    /// Returns the bytes that the file occupies on the disk, or 0 if they cannot be determined.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        compact::disk_bytes(&self.path).unwrap_or(0)
    }

    /// Measures the file. Reads all of it, without delaying other reads and writes.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub async fn measure(&self) -> Result<FileSpace, CompactError> {
        let file = self.file.clone();
        let path = self.path.clone();
        let measured = spawn_blocking(move || compact::measure(&file, &path)).await;
        measured.unwrap_or_else(|error| Err(CompactError::GivenUp(error.to_string())))
    }

    /// Compacts the file while the store is in use. Reads continue, and writes wait briefly at the end. Calls
    /// `on_progress` with the number of rows copied so far. Returns the new size of the file in bytes.
    ///
    /// # Errors
    /// If the compaction fails or is cancelled, the old file stays in use.
    pub async fn compact_in_use(&self, on_progress: impl Fn(u64) + Send + 'static) -> Result<u64, CompactError> {
        let file = self.file.clone();
        let path = self.path.clone();
        let cache_bytes = self.cache_bytes;
        let compacted = spawn_blocking(move || compact::compact(&file, &path, &builder(cache_bytes), &on_progress));
        compacted.await.unwrap_or_else(|error| Err(CompactError::GivenUp(error.to_string())))
    }

    /// Creates an empty store under a temporary name and renames it once it is complete, because a file that a power cut
    /// left incomplete cannot be opened.
    fn create(path: &Path, builder: &redb::Builder) -> Result<(), FileOpenError> {
        let unfinished = path.with_extension("redb.new");
        let failed = |source| FileOpenError::Io(unfinished.clone(), source);
        compact::remove_if_exists(&unfinished).map_err(failed)?;
        let mut options = OpenOptions::new();
        let made = options.read(true).write(true).create_new(true).mode(0o600).open(&unfinished).map_err(failed)?;
        let database = builder.create_file(made).map_err(|error| open_error(error, &unfinished))?;
        let file = unfinished.clone();
        drop(Self::from_database(database, Box::new(move || Database::builder().open(&file)), &unfinished)?);
        match std::fs::hard_link(&unfinished, path) {
            Ok(()) => std::fs::remove_file(&unfinished).map_err(failed),
            // Another process has created the file. The first one to open it gets the lock.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                std::fs::remove_file(&unfinished).map_err(failed)
            }
            // The file system may not support hard links.
            Err(_) => std::fs::rename(&unfinished, path).map_err(failed),
        }
    }

    fn from_database(database: Database, reopen: file::Opener, path: &Path) -> Result<Self, FileOpenError> {
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

    /// Runs work that writes about `bytes` on a blocking thread. It completes even if the caller stops waiting, and may be
    /// repeated on a copy of the file: see [`DatabaseFile::change`].
    async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl Fn(&Database) -> Result<T, FileFailure> + Send + Sync + 'static,
    ) -> Result<T> {
        let file = self.file.clone();
        Self::within_deadline(spawn_blocking(move || file.change(bytes, work))).await
    }

    /// Waits for blocking work at most [`DEADLINE`].
    async fn within_deadline<T>(work: JoinHandle<Result<T>>) -> Result<T> {
        match tokio::time::timeout(DEADLINE, work).await {
            Ok(Ok(result)) => result,
            // The runtime is shutting down.
            Ok(Err(error)) => Err(StorageError::Unknown(error.to_string())),
            Err(_) => Err(StorageError::Unknown(format!("the disk did not answer within {DEADLINE:?}"))),
        }
    }

    /// As [`Self::run`], without a deadline. Used for removals, which must end before the next write begins.
    async fn run_to_end<T: Send + 'static>(
        &self,
        work: impl Fn(&Database) -> Result<T, FileFailure> + Send + Sync + 'static,
    ) -> Result<T> {
        let file = self.file.clone();
        let done = spawn_blocking(move || file.change(SMALL_WRITE_BYTES, work)).await;
        done.unwrap_or_else(|error| Err(StorageError::Unknown(error.to_string())))
    }

    /// Runs work that only reads. Its outcome is never unknown, so a timeout is [`StorageError::Unavailable`].
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
        Self::within_deadline(blocking::spawn(move || file.run(work))).await.map_err(|error| match error {
            StorageError::Unknown(detail) => StorageError::Unavailable(detail),
            other => other,
        })
    }

    /// As [`Self::read`], for one table; `work` gets the keys of the database.
    async fn read_table<T: Send + 'static>(
        &self,
        table: DocumentTable,
        database: &str,
        work: impl FnOnce(&Keys, &DocumentRows) -> Result<T, FileFailure> + Send + 'static,
    ) -> Result<T> {
        let keys = Keys::new(database);
        self.read(move |db| work(&keys, &db.begin_read()?.open_table(table)?)).await
    }

    /// Scans several sensors on several threads, and returns the pages of each sensor. `scan` gets the remaining budget in
    /// bytes. Returns `None` if the pages exceed `bytes_max` or a scan returns `None`.
    async fn scan_each(
        &self,
        table: DocumentTable,
        database: &str,
        sensors: &[&str],
        bytes_max: usize,
        scan: impl Fn(&Keys, &DocumentRows, &str, usize) -> Result<Option<SizedScan>, FileFailure> + Clone + Send + 'static,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>> {
        let budget = ScanBudget::new(bytes_max);
        let batches = sensors.chunks(self.sensors_per_thread(sensors.len())).map(|batch| {
            let budget = budget.clone();
            let scan = scan.clone();
            let batch: Vec<String> = batch.iter().map(|sensor| (*sensor).to_owned()).collect();
            self.read_table(table, database, move |keys, rows| {
                let scan_sensor = |sensor: &String| {
                    let Some(SizedScan { scanned, bytes }) = scan(keys, rows, sensor, budget.left())? else {
                        return Ok(None);
                    };
                    Ok(budget.take(bytes).then_some(scanned.pages))
                };
                batch.iter().map(scan_sensor).collect::<Result<Option<Vec<_>>, FileFailure>>()
            })
        });
        let batches = futures_util::future::try_join_all(batches).await?;
        Ok(batches.into_iter().collect::<Option<Vec<_>>>().map(|batches| batches.into_iter().flatten().collect()))
    }

    fn sensors_per_thread(&self, sensors: usize) -> usize {
        sensors.div_ceil(self.cores).clamp(SCAN_SENSORS_MIN, SCAN_SENSORS_MAX)
    }

    /// As [`Self::run`], for `count` writes of about `bytes` in one transaction. If it fails, every write has failed.
    async fn write(
        &self,
        count: usize,
        bytes: usize,
        work: impl Fn(&Database) -> Result<Vec<WriteOutcome>, FileFailure> + Send + Sync + 'static,
    ) -> Vec<WriteOutcome> {
        if count == 0 {
            return Vec::new();
        }
        self.run(bytes, work).await.unwrap_or_else(|error| vec![WriteOutcome::Failed(error); count])
    }
}

/// Returns a builder for files with a cache of `cache_bytes`.
fn builder(cache_bytes: usize) -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(cache_bytes);
    builder
}

fn open_error(error: DatabaseError, path: &Path) -> FileOpenError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => FileOpenError::InUse(path),
        // redb reports `InvalidData` for a file that is not a redb file.
        DatabaseError::Storage(redb::StorageError::Io(source)) if source.kind() != io::ErrorKind::InvalidData => {
            FileOpenError::Io(path, source)
        }
        other => FileOpenError::Unreadable(path, other.to_string()),
    }
}

#[cfg(test)]
mod tests;
