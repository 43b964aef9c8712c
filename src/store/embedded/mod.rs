//! The embedded store: sensor documents as in MongoDB, and pages in a packed form, in one redb file in its own folder.
//! For one machine and one process. Knows keys, forms, tables and the file; nothing of MongoDB.

mod compact;
mod days;
mod file;
mod form;
mod journal;
mod keys;
mod months;
mod pages;
mod remove;
mod sensors;
mod tables;
mod walk;

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redb::{Database, DatabaseError};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

pub use self::compact::{CompactError, FileSpace};
pub use self::file::FILE_NAME;

use self::file::{DatabaseFile, FileFailure};
use self::keys::Keys;
use crate::bucket::raw::{Cursor, RawBucket, RawDay, RawSensor, Walked};
use crate::bucket::registry::MemberRegistry;
use crate::bucket::store::{
    BucketId, DaysScanned, Extent, Order, PageWrite, Projection, Scanned, ScannedPage, SensorFilter, Written,
};
use crate::bucket::{
    DatabaseSettings, DayId, DayPart, DayWrite, MonthId, MonthWrite, Readings, SensorDocument, StorageError, Store,
    StoreSpace, StoredDay, StoredMonth, StoredPage,
};
use crate::reading::{Day, Hour, Month, Stamp};
use crate::store::ScanBudget;
use crate::store::free_bytes;

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

/// Why the file could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum FileOpenError {
    /// The folder cannot be made or synced.
    #[error("making the data folder {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system reported.
        source: io::Error,
    },
    /// The file is locked.
    #[error("another process has {} open; one process at a time can use a data folder", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a later hourglass.
    #[error("{} has version {found}, this program knows {}: use the version that wrote it", path.display(), tables::VERSION)]
    Newer {
        /// The file.
        path: PathBuf,
        /// The file's version.
        found: u64,
    },
    /// The file was written before version 1.
    #[error("{} is older than version 1 of the file, which no hourglass reads any more: use another data folder", path.display())]
    Older {
        /// The file.
        path: PathBuf,
    },
    /// The system refused to read or write the file.
    #[error("opening {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system reported.
        source: io::Error,
    },
    /// The file is damaged, or is not a file of this store.
    #[error("{} is damaged, or is not a file of hourglass: {detail}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
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
        made.map_err(|source| FileOpenError::Folder { path: folder.to_owned(), source })?;
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
        // Not `create`: if the file was removed meanwhile, it must not come back empty.
        let reopen = move || {
            // A compaction that could not sync the folder must not be written to before it is.
            compact::sync_folder(&file).map_err(|error| DatabaseError::Storage(redb::StorageError::Io(error)))?;
            cached().open(&file)
        };
        let mut store = Self::over(database, Box::new(reopen), &path)?;
        store.cache_bytes = cache_bytes;
        compact::remove_unfinished(&path).map_err(|source| FileOpenError::Io { path: path.clone(), source })?;
        // Until the folder is synced, a power cut can lose the file's name, and with it everything synced into the
        // file.
        let parent = || folder.canonicalize().ok()?.parent().map(Path::to_owned);
        let nameless = new_file.then(|| folder.to_owned()).into_iter().chain(new_folder.then(parent).flatten());
        for folder in nameless {
            let synced = File::open(&folder).and_then(|folder| folder.sync_all());
            synced.map_err(|source| FileOpenError::Folder { path: folder, source })?;
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
        let failed = |source| FileOpenError::Io { path: path.clone(), source };
        let before = bytes().map_err(failed)?;
        // As it opens any file: one of a later version is refused.
        let store = Self::open(folder, cache_bytes)?;
        store.file.close();
        let mut builder = Database::builder();
        let mut database = builder.set_cache_size(cache_bytes).open(&path).map_err(|error| refusal(error, &path))?;
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
        let compacted = spawn_blocking(move || {
            let mut builder = Database::builder();
            builder.set_cache_size(cache_bytes);
            compact::compact(&file, &path, &builder, &tell)
        });
        compacted.await.unwrap_or_else(|error| Err(CompactError::GivenUp(error.to_string())))
    }

    /// Makes an empty store under another name and renames it when it is complete: a power cut during the making leaves
    /// a file that cannot be opened.
    fn make(path: &Path, builder: &redb::Builder) -> Result<(), FileOpenError> {
        let unfinished = path.with_extension("redb.new");
        let failed = |source| FileOpenError::Io { path: unfinished.clone(), source };
        match std::fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
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
            Ok(Err(0)) => Err(FileOpenError::Older { path: path.to_owned() }),
            Ok(Err(found)) => Err(FileOpenError::Newer { path: path.to_owned(), found }),
            Err(StorageError::Unreadable { detail, .. }) => {
                Err(FileOpenError::Unreadable { path: path.to_owned(), detail })
            }
            Err(other) => Err(FileOpenError::Io { path: path.to_owned(), source: io::Error::other(other) }),
        }
    }

    /// Runs work that writes about `bytes` where blocking is allowed. It runs to its end even if the caller stops waiting.
    /// It may be done again on a copy of the file: see [`DatabaseFile::change`].
    async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl Fn(&Database) -> Result<T, FileFailure> + Send + Sync + 'static,
    ) -> Result<T, StorageError> {
        let file = self.file.clone();
        Self::within_deadline(move || file.change(bytes, work)).await
    }

    async fn within_deadline<T: Send + 'static>(
        work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        match tokio::time::timeout(DEADLINE, spawn_blocking(work)).await {
            Ok(Ok(result)) => result,
            // The runtime is shutting down.
            Ok(Err(error)) => Err(StorageError::Unknown { detail: error.to_string() }),
            Err(_) => Err(StorageError::Unknown { detail: format!("the disk did not answer within {DEADLINE:?}") }),
        }
    }

    /// As [`Self::run`], without a deadline: for removals, which must have ended before the next write.
    async fn run_to_its_end<T: Send + 'static>(
        &self,
        work: impl Fn(&Database) -> Result<T, FileFailure> + Send + Sync + 'static,
    ) -> Result<T, StorageError> {
        let file = self.file.clone();
        let done = spawn_blocking(move || file.change(SMALL_BYTES, work)).await;
        done.unwrap_or_else(|error| Err(StorageError::Unknown { detail: error.to_string() }))
    }

    /// As [`Self::run`], for work that writes nothing, and is not ordered with what does: its outcome is never unknown.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, FileFailure> + Send + 'static,
    ) -> Result<T, StorageError> {
        let reader = self.readers.clone().acquire_owned().await;
        let work = move |database: &Database| {
            let _reader = reader;
            work(database)
        };
        let file = self.file.clone();
        Self::within_deadline(move || file.run(work)).await.map_err(|error| match error {
            StorageError::Unknown { detail } => StorageError::Unavailable { detail },
            other => other,
        })
    }

    /// Scans several sensors on several threads; `scan` gets the bytes that are left, and returns what it found with its
    /// bytes. `None` if these are more than `bytes_max`, or a scan returns `None`.
    async fn scan_each(
        &self,
        database: &str,
        sensors: &[&str],
        bytes_max: usize,
        scan: impl Fn(&Database, &str, &str, usize) -> Result<Option<(Vec<ScannedPage>, usize)>, FileFailure>
        + Clone
        + Send
        + 'static,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>, StorageError> {
        let room = ScanBudget::new(bytes_max);
        let lot = sensors.len().div_ceil(self.cores).clamp(SCAN_LEAST, SCAN_SENSORS);
        let batches = sensors.chunks(lot).map(|lot| {
            let (name, room, scan) = (database.to_owned(), room.clone(), scan.clone());
            let lot: Vec<String> = lot.iter().map(|sensor| (*sensor).to_owned()).collect();
            self.read(move |db| {
                let of_sensor = |sensor: &String| {
                    let scanned = scan(db, &name, sensor, room.left())?;
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

fn refusal(error: DatabaseError, path: &Path) -> FileOpenError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => FileOpenError::InUse { path },
        // redb reports bytes that are not its own with this kind.
        DatabaseError::Storage(redb::StorageError::Io(source)) if source.kind() != io::ErrorKind::InvalidData => {
            FileOpenError::Io { path, source }
        }
        other => FileOpenError::Unreadable { path, detail: other.to_string() },
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn write_pages(&self, database: &str, writes: &[PageWrite<'_>]) -> Vec<Written> {
        let (name, keys) = (database.to_owned(), Keys::of(database));
        let groups: Vec<_> = writes.iter().map(|write| pages::encode_group(&keys, write)).collect();
        let size = (groups.len(), groups.iter().flatten().map(pages::PagePut::bytes).sum());
        self.write(size, move |db| tables::write_each(db, (&name, true), &groups, pages::write_group)).await
    }

    async fn read_buckets(
        &self,
        database: &str,
        ids: &[BucketId],
        pages_max: usize,
    ) -> Result<Vec<Vec<StoredPage>>, StorageError> {
        let (name, ids) = (database.to_owned(), ids.to_vec());
        self.read(move |db| pages::read_buckets(db, &name, &ids, pages_max)).await
    }

    async fn read_pages(
        &self,
        database: &str,
        id: &BucketId,
        numbers: &[u32],
    ) -> Result<Vec<StoredPage>, StorageError> {
        let (name, id, numbers) = (database.to_owned(), id.clone(), numbers.to_vec());
        self.read(move |db| pages::read_pages(db, &name, &id, &numbers)).await
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
        let wanted = projection.clone();
        self.scan_each(database, sensors, bytes_max, move |db, name, sensor, left| {
            let extent = Extent { pages: usize::MAX, bytes: left.saturating_add(1), hour_bytes: left };
            match pages::scan(db, name, sensor, hours.clone(), &wanted, extent) {
                Ok((scanned, bytes)) => Ok(Some((scanned.pages, bytes))),
                Err(FileFailure::Document(StorageError::HourTooLarge { .. })) => Ok(None),
                Err(error) => Err(error),
            }
        })
        .await
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

    async fn parts_of(
        &self,
        database: &str,
        sensors: &[&str],
        days: Range<Day>,
    ) -> Result<Vec<(usize, Day, DayPart)>, StorageError> {
        let (name, sensors) = (database.to_owned(), sensors.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>());
        self.read(move |db| days::parts_of(db, &name, &sensors, &days)).await
    }

    async fn next_chunks(
        &self,
        database: &str,
        from: &(Day, String),
        until: Day,
        most: usize,
    ) -> Result<Vec<(Day, String)>, StorageError> {
        let (name, from) = (database.to_owned(), from.clone());
        self.read(move |db| days::next_chunks(db, &name, &from, until, most)).await
    }

    async fn last_day(&self, database: &str) -> Result<Option<Day>, StorageError> {
        let name = database.to_owned();
        self.read(move |db| days::last(db, &name)).await
    }

    async fn read_days(&self, database: &str, ids: &[DayId]) -> Result<Vec<Option<StoredDay>>, StorageError> {
        let (name, ids) = (database.to_owned(), ids.to_vec());
        self.read(move |db| days::read(db, &name, &ids)).await
    }

    async fn write_days(&self, database: &str, days: &[DayWrite<'_>]) -> Vec<Written> {
        let (name, keys) = (database.to_owned(), Keys::of(database));
        let puts: Vec<_> = days.iter().map(|day| days::encode(&keys, day)).collect();
        let bytes = days.iter().map(|day| SMALL_BYTES + day.readings.map_or(0, Readings::bytes)).sum();
        self.write((puts.len(), bytes), move |db| tables::write_days(db, &name, &puts)).await
    }

    async fn read_months(
        &self,
        database: &str,
        sensors: &[&str],
        months: Range<Month>,
        projection: &Projection,
    ) -> Result<Vec<(MonthId, StoredMonth)>, StorageError> {
        let lot = sensors.len().div_ceil(self.cores).clamp(SCAN_LEAST, SCAN_SENSORS);
        let lots = sensors.chunks(lot).map(|lot| {
            let (name, wanted, months) = (database.to_owned(), projection.clone(), months.clone());
            let lot: Vec<Arc<str>> = lot.iter().map(|sensor| Arc::from(*sensor)).collect();
            self.read(move |db| months::read(db, &name, &lot, &months, &wanted))
        });
        Ok(futures_util::future::try_join_all(lots).await?.into_iter().flatten().collect())
    }

    async fn write_months(&self, database: &str, months: &[MonthWrite<'_>]) -> Vec<Written> {
        let (name, keys) = (database.to_owned(), Keys::of(database));
        let puts: Vec<_> = months.iter().map(|month| months::encode(&keys, month)).collect();
        let bytes = puts.iter().map(|put| put.bytes()).sum();
        self.write((puts.len(), bytes), move |db| months::write(db, &name, &puts)).await
    }

    async fn scan_days(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<DaysScanned, StorageError> {
        let (name, sensor, wanted) = (database.to_owned(), sensor.to_owned(), projection.clone());
        self.read(move |db| Ok(days::scan(db, &name, &sensor, &hours, order, &wanted, extent)?.0)).await
    }

    async fn scan_days_of(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>, StorageError> {
        let wanted = projection.clone();
        self.scan_each(database, sensors, bytes_max, move |db, name, sensor, left| {
            let extent = Extent { bytes: left.saturating_add(1), ..Extent::ALL };
            let (scanned, bytes) = days::scan(db, name, sensor, &hours, Order::Ascending, &wanted, extent)?;
            Ok(Some((scanned.pages, bytes)))
        })
        .await
    }

    async fn remove_single_pages(&self, database: &str, pages: &[(BucketId, u64)]) -> Result<(), StorageError> {
        if pages.is_empty() {
            return Ok(()); // A transaction without changes would sync the disk, too.
        }
        let (name, pages) = (database.to_owned(), pages.to_vec());
        self.run_to_its_end(move |db| pages::remove_single(db, &name, &pages)).await
    }

    async fn next_buckets(
        &self,
        database: &str,
        from: &(Hour, String),
        until: Hour,
        most: usize,
    ) -> Result<Vec<(Hour, String)>, StorageError> {
        let (name, from) = (database.to_owned(), from.clone());
        self.read(move |db| pages::next_buckets(db, &name, &from, until, most)).await
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
        let size = (puts.len(), puts.len() * SMALL_BYTES);
        self.write(size, move |db| tables::write_each(db, (&name, true), &puts, sensors::write)).await
    }

    async fn databases(&self) -> Result<Vec<String>, StorageError> {
        self.read(tables::databases).await
    }

    async fn create_database(&self, database: &str) -> Result<(), StorageError> {
        let name = database.to_owned();
        self.run(SMALL_BYTES, move |db| tables::create_database(db, &name)).await
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
                next =
                    self.run_to_its_end(move |db| remove::buckets(db, &name, &sensor, hours.clone(), before)).await?;
            }
        }
        Ok(())
    }

    async fn remove_sensors(&self, database: &str, sensors: &[(&str, Option<u64>)]) -> Result<(), StorageError> {
        let name = database.to_owned();
        let sensors: Vec<_> = sensors.iter().map(|(key, rev)| ((*key).to_owned(), *rev)).collect();
        self.run_to_its_end(move |db| remove::sensor_documents(db, &name, &sensors)).await
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
        self.run(SMALL_BYTES, move |db| tables::unlist_database(db, &name)).await
    }

    async fn read_registry(&self) -> Result<MemberRegistry, StorageError> {
        self.read(tables::read_registry).await
    }

    async fn write_registry(&self, registry: &MemberRegistry) -> Written {
        let registry = registry.clone();
        let written = self.write((1, SMALL_BYTES), move |db| tables::write_registry(db, &registry)).await;
        written.into_iter().next().unwrap_or(Written::Conflict)
    }

    async fn read_settings(&self) -> Result<Vec<(String, DatabaseSettings)>, StorageError> {
        self.read(tables::read_settings).await
    }

    async fn write_settings(&self, database: &str, held: u64, settings: Option<&DatabaseSettings>) -> Written {
        let (name, settings) = (database.to_owned(), settings.cloned());
        let written =
            self.write((1, SMALL_BYTES), move |db| tables::write_settings(db, &name, held, settings.as_ref())).await;
        written.into_iter().next().unwrap_or(Written::Conflict)
    }

    async fn walk_buckets(
        &self,
        database: &str,
        from: Option<&Cursor>,
        pages_max: usize,
    ) -> Result<Walked<RawBucket>, StorageError> {
        let (name, from) = (database.to_owned(), from.cloned());
        self.read(move |db| walk::buckets(db, &name, from.as_ref(), pages_max)).await
    }

    async fn walk_sensors(
        &self,
        database: &str,
        from: Option<&Cursor>,
        max: usize,
    ) -> Result<Walked<RawSensor>, StorageError> {
        let (name, from) = (database.to_owned(), from.cloned());
        self.read(move |db| walk::sensors(db, &name, from.as_ref(), max)).await
    }

    async fn walk_days(
        &self,
        database: &str,
        from: Option<&Cursor>,
        max: usize,
    ) -> Result<Walked<RawDay>, StorageError> {
        let (name, from) = (database.to_owned(), from.cloned());
        self.read(move |db| walk::days(db, &name, from.as_ref(), max)).await
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

    async fn space(&self) -> Result<StoreSpace, StorageError> {
        let path = self.path.clone();
        let measured = tokio::task::spawn_blocking(move || StoreSpace {
            taken: compact::disk_bytes(&path).ok(),
            free: free_bytes(&path).ok(),
        });
        Ok(measured.await.unwrap_or_default())
    }

    async fn close(&self) {
        let file = self.file.clone();
        // Confirmed writes are on the disk already, so nothing is lost if the runtime is shutting down.
        let _ = spawn_blocking(move || file.close()).await;
    }
}

#[cfg(test)]
mod tests;
