//! The embedded store: sensors' documents as in MongoDB, and pages in a form of its own, in one redb file in a folder
//! of its own. For one machine and one process. Knows keys, forms, tables and the file; nothing of MongoDB.

mod file;
mod form;
mod keys;
mod pages;
mod remove;
mod sensors;
mod tables;
mod walk;

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redb::{Database, DatabaseError};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use self::file::{DatabaseFile, Failure};
use self::keys::Keys;
use crate::bucket::kept::{Cursor, KeptBucket, KeptSensor, Walked};
use crate::bucket::registry::Registry;
use crate::bucket::store::{BucketId, Extent, PageWrite, Projection, Scanned, ScannedPage, SensorFilter, Written};
use crate::bucket::{SensorDocument, StorageError, Store, StoredPage};
use crate::reading::{Hour, Stamp};
use crate::store::Room;

/// The file's name in the folder.
pub const FILE_NAME: &str = "hourglass.redb";

/// How long a caller waits for the disk. A write goes on behind its back.
const DEADLINE: Duration = Duration::from_secs(30);
/// How many sensors one thread scans: enough that handing over costs little, few enough that a thousand
/// sensors keep several cores busy.
const SCAN_SENSORS: usize = 125;

/// A store in one file.
pub struct EmbeddedStore {
    path: PathBuf,
    file: Arc<DatabaseFile>,
    /// Reads at a time: more threads would find no core, and each keeps memory for the next time.
    readers: Arc<Semaphore>,
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Why the file could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be made or synced.
    #[error("make the data folder {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is locked.
    #[error("another process has {} open; one process at a time can use a data folder", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a later hourglass.
    #[error("{} has format {found}, this program knows {known}: use the version that wrote it", path.display())]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// The file's format.
        found: u64,
        /// This program's.
        known: u64,
    },
    /// The system refused to read or write the file.
    #[error("open {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is damaged, or no file of this store.
    #[error("{} is damaged, or no file of hourglass: {detail}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
}

impl EmbeddedStore {
    /// Opens `hourglass.redb` in this folder, or makes both, with a cache of so many bytes.
    /// Blocks; a file that was not closed is ready as fast as one that was.
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn open(folder: &Path, cache_bytes: usize) -> Result<Self, OpenError> {
        let new_folder = !folder.exists();
        let made = std::fs::create_dir_all(folder);
        made.map_err(|source| OpenError::Folder { path: folder.to_owned(), source })?;
        let path = folder.join(FILE_NAME);
        let cached = move || {
            let mut builder = Database::builder();
            builder.set_cache_size(cache_bytes);
            builder
        };
        let new_file = !path.exists();
        if new_file {
            Self::make(&path, &cached())?;
        }
        let database = cached().open(&path).map_err(|error| refusal(error, &path))?;
        let file = path.clone();
        // Not `create`: a file that was taken away meanwhile must not come back empty.
        let store = Self::over(database, Box::new(move || cached().open(&file)), &path)?;
        // A file whose name is not on the disk is lost in a power cut, whatever was synced into it.
        let parent = || folder.canonicalize().ok()?.parent().map(Path::to_owned);
        let nameless = new_file.then(|| folder.to_owned()).into_iter().chain(new_folder.then(parent).flatten());
        for folder in nameless {
            let synced = File::open(&folder).and_then(|folder| folder.sync_all());
            synced.map_err(|source| OpenError::Folder { path: folder, source })?;
        }
        Ok(store)
    }

    /// Makes an empty store, which gets its name when it is whole: of a file that is being made a
    /// power cut leaves something that nobody can open.
    fn make(path: &Path, builder: &redb::Builder) -> Result<(), OpenError> {
        let unfinished = path.with_extension("redb.new");
        let failed = |source| OpenError::Io { path: unfinished.clone(), source };
        match std::fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let database = builder.create(&unfinished).map_err(|error| refusal(error, &unfinished))?;
        let file = unfinished.clone();
        drop(Self::over(database, Box::new(move || Database::builder().open(&file)), &unfinished)?);
        match std::fs::hard_link(&unfinished, path) {
            Ok(()) => std::fs::remove_file(&unfinished).map_err(failed),
            // Somebody else was faster; whoever opens it first has it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                std::fs::remove_file(&unfinished).map_err(failed)
            }
            // Not every file system has links.
            Err(_) => std::fs::rename(&unfinished, path).map_err(failed),
        }
    }

    fn over(database: Database, reopen: file::Opener, path: &Path) -> Result<Self, OpenError> {
        let file = DatabaseFile::new(database, reopen);
        match file.run(tables::prepare) {
            Ok(Ok(())) => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                Ok(Self { path: path.to_owned(), file: Arc::new(file), readers: Arc::new(Semaphore::new(2 * cores)) })
            }
            Ok(Err(found)) => Err(OpenError::OtherFormat { path: path.to_owned(), found, known: tables::FORMAT }),
            Err(StorageError::Unreadable { detail, .. }) => {
                Err(OpenError::Unreadable { path: path.to_owned(), detail })
            }
            Err(other) => Err(OpenError::Io { path: path.to_owned(), source: io::Error::other(other) }),
        }
    }

    /// Does the work where blocking is allowed. It is done to its end even if the caller goes away.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StorageError> {
        let file = self.file.clone();
        match tokio::time::timeout(DEADLINE, spawn_blocking(move || file.run(work))).await {
            Ok(Ok(result)) => result,
            // The runtime is going down.
            Ok(Err(error)) => Err(StorageError::Unknown { detail: error.to_string() }),
            Err(_) => Err(StorageError::Unknown { detail: format!("the disk did not answer within {DEADLINE:?}") }),
        }
    }

    /// As [`Self::run`], however long it takes: for removals, of which none may be at work any more when what comes
    /// after them is written.
    async fn run_to_its_end<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StorageError> {
        let file = self.file.clone();
        let done = spawn_blocking(move || file.run(work)).await;
        done.unwrap_or_else(|error| Err(StorageError::Unknown { detail: error.to_string() }))
    }

    /// As [`Self::run`], for work that writes nothing, so that nothing can be unknown about it.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StorageError> {
        let reader = self.readers.clone().acquire_owned().await;
        let work = move |database: &Database| {
            let _reader = reader;
            work(database)
        };
        self.run(work).await.map_err(|error| match error {
            StorageError::Unknown { detail } => StorageError::Unavailable { detail },
            other => other,
        })
    }

    /// As [`Self::run`], for `count` writes in one transaction.
    async fn write(
        &self,
        count: usize,
        work: impl FnOnce(&Database) -> Result<Vec<Written>, Failure> + Send + 'static,
    ) -> Vec<Written> {
        match count {
            0 => Vec::new(),
            _ => self.run(work).await.unwrap_or_else(|error| vec![Written::Failed(error); count]),
        }
    }
}

fn refusal(error: DatabaseError, path: &Path) -> OpenError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse { path },
        // The kind by which redb tells that the bytes are not its own.
        DatabaseError::Storage(redb::StorageError::Io(source)) if source.kind() != io::ErrorKind::InvalidData => {
            OpenError::Io { path, source }
        }
        other => OpenError::Unreadable { path, detail: other.to_string() },
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn write_pages(&self, database: &str, writes: &[PageWrite<'_>]) -> Vec<Written> {
        let (name, keys) = (database.to_owned(), Keys::of(database));
        let groups: Vec<_> = writes.iter().map(|write| pages::encode_group(&keys, write)).collect();
        self.write(groups.len(), move |db| tables::write_each(db, &name, &groups, pages::write_group)).await
    }

    async fn read_buckets(&self, database: &str, ids: &[BucketId]) -> Result<Vec<Vec<StoredPage>>, StorageError> {
        let (name, ids) = (database.to_owned(), ids.to_vec());
        self.read(move |db| pages::read_buckets(db, &name, &ids)).await
    }

    async fn scan(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned, StorageError> {
        let (name, sensor, wanted) = (database.to_owned(), sensor.to_owned(), projection.clone());
        self.read(move |db| Ok(pages::scan(db, &name, &sensor, hours, &wanted, extent)?.0)).await
    }

    async fn scan_sensors(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>, StorageError> {
        let room = Room::new(bytes_max);
        let lots = sensors.chunks(SCAN_SENSORS).map(|lot| {
            let (name, hours, wanted, room) = (database.to_owned(), hours.clone(), projection.clone(), room.clone());
            let lot: Vec<String> = lot.iter().map(|sensor| (*sensor).to_owned()).collect();
            self.read(move |db| {
                let scan = |sensor: &String| {
                    let extent = Extent { pages: usize::MAX, bytes: room.left().saturating_add(1) };
                    let (scanned, bytes) = pages::scan(db, &name, sensor, hours.clone(), &wanted, extent)?;
                    Ok(room.take(bytes).then_some(scanned.pages))
                };
                lot.iter().map(scan).collect::<Result<Option<Vec<_>>, Failure>>()
            })
        });
        let lots = futures_util::future::try_join_all(lots).await?;
        Ok(lots.into_iter().collect::<Option<Vec<_>>>().map(|lots| lots.into_iter().flatten().collect()))
    }

    async fn scan_back(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned, StorageError> {
        let (name, sensor, wanted) = (database.to_owned(), sensor.to_owned(), projection.clone());
        self.read(move |db| pages::scan_back(db, &name, &sensor, hours, &wanted, extent)).await
    }

    async fn read_sensors(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorDocument>, StorageError> {
        let (name, sensors) = (database.to_owned(), keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>());
        self.read(move |db| sensors::read(db, &name, &sensors)).await
    }

    async fn list_sensors(&self, database: &str, filter: &SensorFilter) -> Result<Vec<SensorDocument>, StorageError> {
        let (name, filter) = (database.to_owned(), filter.clone());
        self.read(move |db| sensors::list(db, &name, &filter)).await
    }

    async fn write_sensors(&self, database: &str, documents: &[SensorDocument]) -> Vec<Written> {
        let (name, keys) = (database.to_owned(), Keys::of(database));
        let puts: Vec<_> = documents.iter().map(|document| sensors::encode(&keys, document)).collect();
        self.write(puts.len(), move |db| tables::write_each(db, &name, &puts, sensors::write)).await
    }

    async fn databases(&self) -> Result<Vec<String>, StorageError> {
        self.read(tables::databases).await
    }

    async fn create_database(&self, database: &str) -> Result<(), StorageError> {
        let name = database.to_owned();
        self.run(move |db| tables::create_database(db, &name)).await
    }

    async fn remove_buckets(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        before: Stamp,
    ) -> Result<(), StorageError> {
        for sensor in sensors {
            let (name, sensor) = (database.to_owned(), (*sensor).to_owned());
            let mut next = Some(hours.start);
            while let Some(from) = next {
                let (name, sensor, hours) = (name.clone(), sensor.clone(), from..hours.end);
                next = self.run_to_its_end(move |db| remove::buckets(db, &name, &sensor, hours, before)).await?;
            }
        }
        Ok(())
    }

    async fn remove_sensors(&self, database: &str, keys: &[&str]) -> Result<(), StorageError> {
        let (name, sensors) = (database.to_owned(), keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>());
        self.run_to_its_end(move |db| remove::sensors(db, &name, &sensors)).await
    }

    async fn drop_database(&self, database: &str) -> Result<(), StorageError> {
        loop {
            let name = database.to_owned();
            if self.run_to_its_end(move |db| remove::part_of_database(db, &name)).await? {
                return Ok(());
            }
        }
    }

    async fn unlist_database(&self, database: &str) -> Result<(), StorageError> {
        let name = database.to_owned();
        self.run(move |db| tables::unlist_database(db, &name)).await
    }

    async fn read_registry(&self) -> Result<Registry, StorageError> {
        self.read(tables::read_registry).await
    }

    async fn write_registry(&self, registry: &Registry) -> Written {
        let registry = registry.clone();
        let written = self.write(1, move |db| tables::write_registry(db, &registry)).await;
        written.into_iter().next().unwrap_or(Written::Conflict)
    }

    async fn walk_buckets(
        &self,
        database: &str,
        from: Option<&Cursor>,
        pages_max: usize,
    ) -> Result<Walked<KeptBucket>, StorageError> {
        let (name, from) = (database.to_owned(), from.cloned());
        self.read(move |db| walk::buckets(db, &name, from.as_ref(), pages_max)).await
    }

    async fn walk_sensors(
        &self,
        database: &str,
        from: Option<&Cursor>,
        max: usize,
    ) -> Result<Walked<KeptSensor>, StorageError> {
        let (name, from) = (database.to_owned(), from.cloned());
        self.read(move |db| walk::sensors(db, &name, from.as_ref(), max)).await
    }

    async fn estimate_pages(&self) -> Result<u64, StorageError> {
        self.read(walk::count_pages).await
    }

    /// The file is locked for this process.
    fn is_shared(&self) -> bool {
        false
    }

    async fn check(&self) -> Result<(), StorageError> {
        self.read(|_| Ok(())).await
    }

    async fn close(&self) {
        let file = self.file.clone();
        // Nothing is lost if the runtime is going down: what was confirmed is on the disk already.
        let _ = spawn_blocking(move || file.close()).await;
    }
}

#[cfg(test)]
mod tests;
