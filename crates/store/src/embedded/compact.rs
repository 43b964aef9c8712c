//! Compaction while the store is in use. Copies all tables into a new file, repeats the writes of the meantime there, and
//! renames the new file over the old one.
//!
//! redb's own compaction needs exclusive access. This one blocks writes only while it swaps the files, and never blocks
//! reads. After a kill, either the old file or the new one is in place, and both are complete. The next start removes
//! an unfinished copy.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use redb::{
    Database, Key, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition,
    TableError, TableHandle, Value,
};

use super::file::{DatabaseFile, FileFailure};
use super::tables::begin;
use crate::bucket::StorageError;
use crate::{faults, free_bytes};

/// Bytes of rows that one transaction copies.
const BATCH_BYTES: usize = 8 << 20;
/// Bytes that must stay free on the disk.
const SPARE_BYTES: u64 = 64 << 20;
/// Maximum rounds of repeating recorded writes before further writes are blocked.
const CATCH_UP_ROUNDS_MAX: usize = 8;

/// Space on the disk, in bytes: the size of the file, and the part of it that is in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileSpace {
    /// Bytes that the file occupies on the disk.
    pub taken: u64,
    /// Bytes in use. Approximate while the file is written to.
    pub used: u64,
}

/// An error of a compaction. The old file stays in use.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// Reading the old file or writing the new one failed.
    #[error("compacting the embedded file: {0}")]
    Storage(#[from] StorageError),
    /// An operation on the file system failed. Holds its name.
    #[error("compacting the embedded file: {0}: {1}")]
    Io(&'static str, #[source] io::Error),
    /// The disk has no space for the copy.
    #[error(
        "compacting the embedded file needs {needed} free bytes for the copy, but the disk has {free}: free some space, or stop the service and run `hourglass compact`"
    )]
    NoRoom {
        /// Free bytes that the compaction needs.
        needed: u64,
        /// Free bytes on the disk.
        free: u64,
    },
    /// The compaction was cancelled, because of writes or because the service stops.
    #[error("compacting the embedded file was cancelled and will be retried: {0}")]
    GivenUp(String),
    /// The file has a table whose types this version does not know.
    #[error(
        "table {0:?} of the embedded file has types that this version cannot copy: stop the service and run `hourglass compact`"
    )]
    UnknownTable(String),
    /// The copy differs from the original, which is a bug.
    #[error("the compacted copy of table {0:?} has a different number of rows; the old file stays in use")]
    Unequal(String),
}

impl From<FileFailure> for CompactError {
    fn from(failure: FileFailure) -> Self {
        Self::Storage(failure.into())
    }
}

/// Converts a redb error.
fn storage_error<E: Into<FileFailure>>(error: E) -> CompactError {
    CompactError::Storage(error.into().into())
}

/// Returns a conversion of I/O errors of `operation`.
fn io_error(operation: &'static str) -> impl FnOnce(io::Error) -> CompactError {
    move |error| CompactError::Io(operation, error)
}

/// Returns the path of the new file until it replaces the old one.
pub(super) fn temporary_path(path: &Path) -> PathBuf {
    path.with_extension("redb.compact")
}

/// Returns the bytes that a file occupies on the disk. May be less than its length: redb doubles the length when the file
/// grows, and unwritten blocks occupy no space.
pub(super) fn disk_bytes(path: &Path) -> io::Result<u64> {
    let file = std::fs::metadata(path)?;
    Ok(file.len().min(file.blocks().saturating_mul(512)))
}

/// Removes a file. Succeeds if there is none.
pub(super) fn remove_if_exists(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Measures the file. Reads all of it.
pub(super) fn measure(file: &DatabaseFile, path: &Path) -> Result<FileSpace, CompactError> {
    let used = file.run(|database| {
        let transaction = database.begin_read()?;
        let mut used = 0;
        for table in transaction.list_tables()? {
            let stats = transaction.open_untyped_table(table)?.stats()?;
            used += stats.stored_bytes() + stats.metadata_bytes() + stats.fragmented_bytes();
        }
        Ok(used)
    })?;
    Ok(FileSpace { taken: disk_bytes(path).map_err(io_error("measuring the file"))?, used })
}

/// Compacts the file and returns its new size in bytes. Calls `on_progress` with the number of rows copied so far. Blocks.
pub(super) fn compact(
    file: &DatabaseFile,
    path: &Path,
    builder: &redb::Builder,
    on_progress: &dyn Fn(u64),
) -> Result<u64, CompactError> {
    let needed = measure(file, path)?.used * 5 / 4 + SPARE_BYTES;
    let free = free_bytes(path).map_err(io_error("measuring the disk"))?;
    if free < needed {
        return Err(CompactError::NoRoom { needed, free });
    }
    let compacted = Compaction { file, path, builder, on_progress }.run();
    file.journal().stop_recording();
    // If this fails, the next start retries it.
    let _ = remove_if_exists(&temporary_path(path));
    compacted
}

/// A running compaction.
struct Compaction<'a> {
    file: &'a DatabaseFile,
    path: &'a Path,
    builder: &'a redb::Builder,
    on_progress: &'a dyn Fn(u64),
}

impl Compaction<'_> {
    fn run(&self) -> Result<u64, CompactError> {
        remove_if_exists(&temporary_path(self.path)).map_err(io_error("removing an unfinished copy"))?;
        let journal = self.file.journal();
        let snapshot = journal.start_recording(|| self.file.run(|database| Ok(database.begin_read()?)))?;
        let mut new = self.create()?;
        self.copy_all(&snapshot, &new)?;
        drop(snapshot);
        faults::point("compact_copied");
        // The new file has free space behind its last page, because redb grows files in large steps.
        while new.compact().map_err(|error| FileFailure::Before(error.into()))? {
            stop_if_given_up(self.file)?;
        }
        self.catch_up(&new)?;
        self.swap_files(new)
    }

    fn create(&self) -> Result<Database, CompactError> {
        let mut options = OpenOptions::new();
        let created = options.read(true).write(true).create_new(true).mode(0o600).open(temporary_path(self.path));
        let created = created.map_err(io_error("creating the new file"))?;
        Ok(self.builder.create_file(created).map_err(|error| FileFailure::Before(error.into()))?)
    }

    fn copy_all(&self, from: &ReadTransaction, to: &Database) -> Result<(), CompactError> {
        let mut rows = 0;
        for table in from.list_tables().map_err(storage_error)? {
            let name = table.name();
            // Try the types of all known tables. `copy_table` returns false if the types differ.
            let is_copied = self.copy_table::<&[u8], &[u8]>(from, to, name, &mut rows)?
                || self.copy_table::<&[u8], ()>(from, to, name, &mut rows)?
                || self.copy_table::<&str, ()>(from, to, name, &mut rows)?
                || self.copy_table::<&str, u64>(from, to, name, &mut rows)?
                || self.copy_table::<&str, &[u8]>(from, to, name, &mut rows)?;
            if !is_copied {
                return Err(CompactError::UnknownTable(name.to_owned()));
            }
        }
        Ok(())
    }

    /// Copies a table and adds its rows to `copied`. Returns false if the table has other types.
    fn copy_table<K: Key + 'static, V: Value + 'static>(
        &self,
        from: &ReadTransaction,
        to: &Database,
        name: &str,
        copied: &mut u64,
    ) -> Result<bool, CompactError> {
        let definition = TableDefinition::<K, V>::new(name);
        let from = match from.open_table(definition) {
            Ok(table) => table,
            Err(TableError::TableTypeMismatch { .. }) => return Ok(false),
            Err(other) => return Err(storage_error(other)),
        };
        let mut rows = from.iter().map_err(storage_error)?;
        let mut is_done = false;
        while !is_done {
            let transaction = to.begin_write().map_err(storage_error)?;
            {
                let mut table = transaction.open_table(definition).map_err(storage_error)?;
                let mut bytes = 0;
                is_done = loop {
                    let Some(row) = rows.next() else { break true };
                    let (key, value) = row.map_err(storage_error)?;
                    let key = key.value();
                    let value = value.value();
                    bytes += K::as_bytes(&key).as_ref().len() + V::as_bytes(&value).as_ref().len();
                    table.insert(key, value).map_err(storage_error)?;
                    *copied += 1;
                    if bytes >= BATCH_BYTES {
                        break false;
                    }
                };
            }
            transaction.commit().map_err(storage_error)?;
            (self.on_progress)(*copied);
            faults::point("compact_batch");
            stop_if_given_up(self.file)?;
        }
        Ok(true)
    }

    /// Repeats the recorded writes on the new file.
    fn catch_up(&self, new: &Database) -> Result<(), CompactError> {
        let journal = self.file.journal();
        for _ in 0..CATCH_UP_ROUNDS_MAX {
            let mut is_caught_up = true;
            while let Some(redo) = journal.take_oldest() {
                redo(new)?;
                is_caught_up = false;
            }
            stop_if_given_up(self.file)?;
            if is_caught_up {
                break;
            }
        }
        Ok(())
    }

    /// Replaces the old file by the new one, while writes are blocked.
    fn swap_files(&self, new: Database) -> Result<u64, CompactError> {
        let mut permit = self.file.journal().wait_for_permit(0);
        for redo in permit.take_all().map_err(CompactError::GivenUp)? {
            redo(&new)?;
        }
        self.file.run(|old| Ok(check_row_counts(old, &new)))??;
        // A commit with quick repair, so that opening the file after a kill does not read all of it.
        begin(&new).map_err(storage_error)?.commit().map_err(storage_error)?;
        faults::point("compact_written");
        let temporary = temporary_path(self.path);
        File::open(&temporary).and_then(|file| file.sync_all()).map_err(io_error("syncing the new file"))?;
        std::fs::rename(&temporary, self.path).map_err(io_error("renaming the new file"))?;
        faults::point("compact_renamed");
        // Until the folder is synced, a power cut can bring the old file back, so nothing may be written before.
        match sync_folder(self.path) {
            Ok(()) => self.file.replace(new),
            Err(source) => {
                drop(new);
                self.file.reopen_later(format!("the folder could not be synced: {source}"));
                return Err(CompactError::Io("syncing the folder", source));
            }
        }
        drop(permit);
        disk_bytes(self.path).map_err(io_error("measuring the file"))
    }
}

/// Syncs the folder that contains a file.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// Fails if the compaction must end, including when the file has failed: it can be reopened only after the snapshot is
/// dropped.
fn stop_if_given_up(file: &DatabaseFile) -> Result<(), CompactError> {
    if let Some(reason) = file.journal().given_up() {
        return Err(CompactError::GivenUp(reason));
    }
    if !file.is_open() {
        return Err(CompactError::GivenUp("the file failed during the copy".to_owned()));
    }
    Ok(())
}

/// Fails if a table has a different number of rows in the new file.
fn check_row_counts(old: &Database, new: &Database) -> Result<(), CompactError> {
    let row_counts = |database: &Database| -> Result<Vec<(String, u64)>, CompactError> {
        let transaction = database.begin_read().map_err(storage_error)?;
        let tables = transaction.list_tables().map_err(storage_error)?;
        let count = |table: redb::UntypedTableHandle| {
            let name = table.name().to_owned();
            let rows = transaction.open_untyped_table(table).map_err(storage_error)?.len().map_err(storage_error)?;
            Ok((name, rows))
        };
        tables.map(count).collect()
    };
    let old = row_counts(old)?;
    let new = row_counts(new)?;
    match old.iter().find(|table| !new.contains(table)) {
        Some((name, _)) => Err(CompactError::Unequal(name.clone())),
        None => Ok(()),
    }
}
