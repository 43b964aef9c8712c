//! The handle on the redb file. Reopens the file after a failure and maps redb's errors to storage errors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard};
use redb::{Database, DatabaseError};

use super::journal::Journal;
use crate::bucket::{Result, StorageError};

/// Name of the file in the folder.
pub const FILE_NAME: &str = "hourglass.redb";

/// Reopens the file after a failure.
pub(super) type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync>;

/// The only handle on the file.
///
/// After an I/O error, such as a full disk, redb refuses all work until the file is closed and reopened. The next use
/// reopens it, so the store recovers without a restart.
pub(super) struct DatabaseFile {
    slot: RwLock<Slot>,
    reopen: Opener,
    /// Orders all work that writes.
    journal: Journal,
}

enum Slot {
    Open {
        database: Database,
        /// Number of times that the file was reopened.
        generation: u64,
    },
    Failed {
        reason: String,
        generation: u64,
    },
    Closed,
}

/// An error of work on the file.
#[derive(Debug)]
pub(super) enum FileFailure {
    /// redb failed before the commit. Nothing was written.
    Before(redb::Error),
    /// The commit failed. redb guarantees that it is applied completely or not at all, but cannot tell which.
    Commit(redb::CommitError),
    /// redb panicked, as it can with a damaged file.
    Panicked,
    /// One document is damaged or of an unknown version. The file itself is intact.
    Document(StorageError),
}

impl DatabaseFile {
    pub(super) fn new(database: Database, reopen: Opener) -> Self {
        Self { slot: RwLock::new(Slot::Open { database, generation: 0 }), reopen, journal: Journal::default() }
    }

    /// Runs work on the file and keeps the file open until it ends. Blocks.
    pub(super) fn run<T>(&self, work: impl FnOnce(&Database) -> Result<T, FileFailure>) -> Result<T> {
        let (result, generation) = {
            let slot = self.open_slot()?;
            let Slot::Open { database, generation } = &*slot else { return Err(closed()) };
            // A panic drops the transaction, which rolls it back.
            let result = catch_unwind(AssertUnwindSafe(|| work(database))).unwrap_or(Err(FileFailure::Panicked));
            (result, *generation)
        };
        result.map_err(|failure| {
            let is_fatal = failure.is_fatal();
            let error = StorageError::from(failure);
            if is_fatal {
                self.mark_failed(generation, error.to_string());
            }
            error
        })
    }

    /// Runs work that writes about `bytes`, one call at a time. A running compaction repeats the work on its copy, so the
    /// outcome must depend on the stored data alone.
    pub(super) fn change<T>(
        &self,
        bytes: usize,
        work: impl Fn(&Database) -> Result<T, FileFailure> + Send + Sync + 'static,
    ) -> Result<T> {
        let mut permit = self.journal.wait_for_permit(bytes);
        let work = Arc::new(work);
        let result = self.run(|database| work(database));
        match &result {
            Ok(_) => permit.record(bytes, move |database| work(database).map(drop)),
            Err(error) => permit.record_failure(error),
        }
        result
    }

    /// Returns true if the file is open. After a failure it is closed until its next use.
    pub(super) fn is_open(&self) -> bool {
        matches!(&*self.slot.read(), Slot::Open { .. })
    }

    pub(super) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Switches to another file with the same content. Blocks until all work on the old one has ended.
    pub(super) fn replace(&self, database: Database) {
        let mut slot = self.slot.write();
        if let Slot::Open { generation, .. } | Slot::Failed { generation, .. } = &*slot {
            let generation = generation + 1;
            *slot = Slot::Open { database, generation };
        }
    }

    /// Closes the file until its next use.
    pub(super) fn reopen_later(&self, reason: String) {
        let mut slot = self.slot.write();
        if let Slot::Open { generation, .. } | Slot::Failed { generation, .. } = &*slot {
            let generation = *generation;
            *slot = Slot::Failed { reason, generation };
        }
    }

    /// Closes the file for good. Blocks until all work on it has ended.
    pub(super) fn close(&self) {
        self.journal.give_up("the file is closed");
        *self.slot.write() = Slot::Closed;
    }

    /// Returns a read lock on the slot, after reopening the file if necessary.
    fn open_slot(&self) -> Result<RwLockReadGuard<'_, Slot>> {
        loop {
            let slot = self.slot.read();
            match &*slot {
                Slot::Open { .. } => return Ok(slot),
                Slot::Closed => return Err(closed()),
                Slot::Failed { .. } => {}
            }
            drop(slot);
            let mut slot = self.slot.write();
            if let Slot::Failed { reason, generation } = &*slot {
                let failed = |error| unavailable(format!("{reason}; reopening the file failed: {error}"));
                *slot = Slot::Open { database: (self.reopen)().map_err(failed)?, generation: generation + 1 };
            }
        }
    }

    /// Closes the file until its next use, unless it was reopened since generation `failed`.
    fn mark_failed(&self, failed: u64, reason: String) {
        let mut slot = self.slot.write();
        if matches!(&*slot, Slot::Open { generation, .. } if *generation == failed) {
            *slot = Slot::Failed { reason, generation: failed };
        }
    }
}

impl FileFailure {
    /// Returns true if redb refuses all further work until the file is reopened.
    fn is_fatal(&self) -> bool {
        match self {
            Self::Commit(_) | Self::Panicked => true,
            Self::Before(error) => {
                use redb::Error::{DatabaseClosed, Io, LockPoisoned, PreviousIo};
                matches!(error, Io(_) | PreviousIo | DatabaseClosed | LockPoisoned(_))
            }
            Self::Document(_) => false,
        }
    }
}

impl From<FileFailure> for StorageError {
    fn from(failure: FileFailure) -> Self {
        match failure {
            FileFailure::Before(redb::Error::Corrupted(detail)) => Self::Unreadable { id: FILE_NAME.into(), detail },
            FileFailure::Before(error @ redb::Error::ValueTooLarge(_)) => Self::Refused(error.to_string()),
            FileFailure::Before(error) => unavailable(error.to_string()),
            FileFailure::Commit(error) => Self::Unknown(format!("the commit failed: {error}")),
            FileFailure::Panicked => Self::Unknown("redb panicked; the file may be damaged".into()),
            FileFailure::Document(error) => error,
        }
    }
}

impl From<StorageError> for FileFailure {
    fn from(error: StorageError) -> Self {
        Self::Document(error)
    }
}

impl From<redb::CommitError> for FileFailure {
    fn from(error: redb::CommitError) -> Self {
        Self::Commit(error)
    }
}

impl From<redb::StorageError> for FileFailure {
    fn from(error: redb::StorageError) -> Self {
        Self::Before(error.into())
    }
}

impl From<redb::TableError> for FileFailure {
    fn from(error: redb::TableError) -> Self {
        Self::Before(error.into())
    }
}

impl From<redb::TransactionError> for FileFailure {
    fn from(error: redb::TransactionError) -> Self {
        Self::Before(error.into())
    }
}

fn closed() -> StorageError {
    unavailable("the file is closed".into())
}

fn unavailable(detail: String) -> StorageError {
    StorageError::Unavailable(detail)
}
