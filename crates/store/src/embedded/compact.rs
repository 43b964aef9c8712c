//! Compaction while the store is in use: everything that the file holds is copied into a new file, what is written meanwhile
//! is done again there, and the new file takes the old one's name. Copies every table as it is, whatever it is for.
//!
//! redb's own compaction needs the file for itself. This one keeps reads going on the old file, and writes but for the
//! moment of the exchange. A kill leaves the old file or the new one, both whole; what else it leaves is removed by
//! the next start.

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

/// Bytes that one transaction copies.
const BATCH_BYTES: usize = 8 << 20;
/// What must stay free on the disk.
const SPARE_BYTES: u64 = 64 << 20;
/// Rounds of doing again what was written meanwhile, before writes wait for the rest.
const ROUNDS: usize = 8;

/// How large the file is, and how much of it is in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileSpace {
    /// Bytes that the file takes on the disk.
    pub taken: u64,
    /// Bytes in use; about, while the file is written to.
    pub used: u64,
}

/// Why a compaction ended without effect.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// The old file or the new one failed.
    #[error("compacting the embedded file: {0}")]
    Storage(#[from] StorageError),
    /// The system refused something.
    #[error("compacting the embedded file: {0}: {1}")]
    Io(&'static str, #[source] io::Error),
    /// The disk has no room for the copy.
    #[error(
        "compacting the embedded file takes {needed} bytes for a while, and the disk has {free} bytes free: make room, or stop the service and run `hourglass compact`"
    )]
    NoRoom {
        /// Bytes that must be free.
        needed: u64,
        /// Bytes that are.
        free: u64,
    },
    /// It gave way to writes, or to the end of the service.
    #[error("compacting the embedded file was given up, and is tried again later: {0}")]
    GivenUp(String),
    /// A table of a kind that this version does not know.
    #[error(
        "the embedded file has a table {0:?} that this version cannot copy: stop the service and run `hourglass compact`"
    )]
    UnknownTable(String),
    /// The copy is not what was copied, which is a bug.
    #[error("the copy of table {0:?} of the embedded file has another number of rows; the old file stays in use")]
    Unequal(String),
}

impl From<FileFailure> for CompactError {
    fn from(failure: FileFailure) -> Self {
        Self::Storage(failure.into())
    }
}

/// Makes `E: Into<FileFailure>` one of [`CompactError`].
fn failed<E: Into<FileFailure>>(error: E) -> CompactError {
    CompactError::Storage(error.into().into())
}

fn io_failed(attempt: &'static str) -> impl FnOnce(io::Error) -> CompactError {
    move |error| CompactError::Io(attempt, error)
}

/// The name of the new file until it is complete.
pub(super) fn unfinished(path: &Path) -> PathBuf {
    path.with_extension("redb.compact")
}

/// Bytes that a file takes on the disk. redb doubles a file's length when it grows, but what was never written takes no space.
pub(super) fn disk_bytes(path: &Path) -> io::Result<u64> {
    let file = std::fs::metadata(path)?;
    Ok(file.len().min(file.blocks().saturating_mul(512)))
}

/// Removes a file, such as one that a killed compaction left.
pub(super) fn remove_if_there(file: &Path) -> io::Result<()> {
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
    Ok(FileSpace { taken: disk_bytes(path).map_err(io_failed("measuring the file"))?, used })
}

/// Compacts the file. `tell` is called with the rows copied so far. Blocks; returns the bytes of the new file.
pub(super) fn compact(
    file: &DatabaseFile,
    path: &Path,
    builder: &redb::Builder,
    tell: &dyn Fn(u64),
) -> Result<u64, CompactError> {
    let needed = measure(file, path)?.used * 5 / 4 + SPARE_BYTES;
    let free = free_bytes(path).map_err(io_failed("measuring the disk"))?;
    if free < needed {
        return Err(CompactError::NoRoom { needed, free });
    }
    let compacted = Copying { file, path, builder, tell }.run();
    file.journal().end();
    // If this fails, the next start tries it again.
    let _ = remove_if_there(&unfinished(path));
    compacted
}

struct Copying<'a> {
    file: &'a DatabaseFile,
    path: &'a Path,
    builder: &'a redb::Builder,
    tell: &'a dyn Fn(u64),
}

impl Copying<'_> {
    fn run(&self) -> Result<u64, CompactError> {
        remove_if_there(&unfinished(self.path)).map_err(io_failed("removing what an earlier compaction left"))?;
        let journal = self.file.journal();
        let snapshot = journal.begin(|| self.file.run(|database| Ok(database.begin_read()?)))?;
        let mut new = self.create()?;
        self.copy_all(&snapshot, &new)?;
        drop(snapshot);
        faults::point("compact_copied");
        // Behind the last row the new file has room that it grew by.
        while new.compact().map_err(|error| FileFailure::Before(error.into()))? {
            stop_if_given_up(self.file)?;
        }
        self.catch_up(&new)?;
        self.exchange(new)
    }

    fn create(&self) -> Result<Database, CompactError> {
        let mut options = OpenOptions::new();
        let made = options.read(true).write(true).create_new(true).mode(0o600).open(unfinished(self.path));
        let made = made.map_err(io_failed("making the new file"))?;
        Ok(self.builder.create_file(made).map_err(|error| FileFailure::Before(error.into()))?)
    }

    fn copy_all(&self, from: &ReadTransaction, to: &Database) -> Result<(), CompactError> {
        let mut rows = 0;
        for table in from.list_tables().map_err(failed)? {
            let name = table.name();
            // The kinds of tables; a table of another kind answers that its types differ.
            let copied = self.copy::<&[u8], &[u8]>(from, to, name, &mut rows)?
                || self.copy::<&[u8], ()>(from, to, name, &mut rows)?
                || self.copy::<&str, ()>(from, to, name, &mut rows)?
                || self.copy::<&str, u64>(from, to, name, &mut rows)?
                || self.copy::<&str, &[u8]>(from, to, name, &mut rows)?;
            if !copied {
                return Err(CompactError::UnknownTable(name.to_owned()));
            }
        }
        Ok(())
    }

    /// Copies a table; false if it is not of this kind. Counts the rows on.
    fn copy<K: Key + 'static, V: Value + 'static>(
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
            Err(other) => return Err(failed(other)),
        };
        let mut rows = from.iter().map_err(failed)?;
        let mut is_done = false;
        while !is_done {
            let transaction = to.begin_write().map_err(failed)?;
            {
                let mut table = transaction.open_table(definition).map_err(failed)?;
                let mut bytes = 0;
                is_done = loop {
                    let Some(row) = rows.next() else { break true };
                    let (key, value) = row.map_err(failed)?;
                    let (key, value) = (key.value(), value.value());
                    bytes += K::as_bytes(&key).as_ref().len() + V::as_bytes(&value).as_ref().len();
                    table.insert(key, value).map_err(failed)?;
                    *copied += 1;
                    if bytes >= BATCH_BYTES {
                        break false;
                    }
                };
            }
            transaction.commit().map_err(failed)?;
            (self.tell)(*copied);
            faults::point("compact_batch");
            stop_if_given_up(self.file)?;
        }
        Ok(true)
    }

    /// Does again what was written meanwhile.
    fn catch_up(&self, new: &Database) -> Result<(), CompactError> {
        let journal = self.file.journal();
        for _ in 0..ROUNDS {
            let mut did_some = false;
            while let Some(redo) = journal.take() {
                redo(new)?;
                did_some = true;
            }
            stop_if_given_up(self.file)?;
            if !did_some {
                break;
            }
        }
        Ok(())
    }

    /// Puts the new file into the place of the old one, while nothing is written.
    fn exchange(&self, new: Database) -> Result<u64, CompactError> {
        let mut turn = self.file.journal().turn(0);
        for redo in turn.take_all().map_err(CompactError::GivenUp)? {
            redo(&new)?;
        }
        self.file.run(|old| Ok(equal(old, &new)))??;
        // With this commit, opening the file after a kill takes no reading of all of it.
        begin(&new).map_err(failed)?.commit().map_err(failed)?;
        faults::point("compact_written");
        let unfinished = unfinished(self.path);
        File::open(&unfinished).and_then(|file| file.sync_all()).map_err(io_failed("syncing the new file"))?;
        std::fs::rename(&unfinished, self.path).map_err(io_failed("renaming the new file"))?;
        faults::point("compact_renamed");
        // Until the folder is synced, a power cut brings the old file back: nothing may be written before that.
        match sync_folder(self.path) {
            Ok(()) => self.file.replace(new),
            Err(source) => {
                drop(new);
                self.file.reopen_later(format!("the folder could not be synced: {source}"));
                return Err(CompactError::Io("syncing the folder", source));
            }
        }
        drop(turn);
        disk_bytes(self.path).map_err(io_failed("measuring the file"))
    }
}

/// Syncs the folder of a file.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// Also once the file has failed: it can be opened again only when nobody reads it any more.
fn stop_if_given_up(file: &DatabaseFile) -> Result<(), CompactError> {
    let failed = || (!file.is_open()).then(|| "the file failed meanwhile".to_owned());
    file.journal().given_up().or_else(failed).map_or(Ok(()), |why| Err(CompactError::GivenUp(why)))
}

/// An error if a table of one file has another number of rows in the other.
fn equal(old: &Database, new: &Database) -> Result<(), CompactError> {
    let rows = |database: &Database| -> Result<Vec<(String, u64)>, CompactError> {
        let transaction = database.begin_read().map_err(failed)?;
        let tables = transaction.list_tables().map_err(failed)?;
        let count = |table: redb::UntypedTableHandle| {
            let name = table.name().to_owned();
            let rows = transaction.open_untyped_table(table).map_err(failed)?.len().map_err(failed)?;
            Ok((name, rows))
        };
        tables.map(count).collect()
    };
    let (old, new) = (rows(old)?, rows(new)?);
    match old.iter().find(|table| !new.contains(table)) {
        Some((name, _)) => Err(CompactError::Unequal(name.clone())),
        None => Ok(()),
    }
}
