//! The redb file: opens it, reopens it after a failure, closes it, and maps its failures to storage errors. Knows
//! nothing of the tables' contents.

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
/// After an I/O error, such as a full disk, redb refuses everything until the file is closed and reopened. The next use
/// reopens it, so the store recovers by itself.
pub(super) struct DatabaseFile {
    slot: RwLock<Slot>,
    reopen: Opener,
    /// Orders all work that writes.
    journal: Journal,
}

enum Slot {
    Open {
        database: Database,
        /// How many times the file was reopened.
        generation: u64,
    },
    Failed {
        why: String,
        generation: u64,
    },
    Closed,
}

/// Why work on the file failed.
#[derive(Debug)]
pub(super) enum FileFailure {
    /// redb failed before the commit: nothing was written.
    Before(redb::Error),
    /// The commit failed. According to redb it is applied wholly or not at all; redb cannot tell which.
    Commit(redb::CommitError),
    /// redb panicked, which can happen with a damaged file.
    Panicked,
    /// One document is damaged or of an unknown version; the file itself is fine.
    Document(StorageError),
}

impl DatabaseFile {
    pub(super) fn new(database: Database, reopen: Opener) -> Self {
        Self { slot: RwLock::new(Slot::Open { database, generation: 0 }), reopen, journal: Journal::default() }
    }

    /// Runs work on the open file, which stays open meanwhile. Blocks.
    pub(super) fn run<T>(&self, work: impl FnOnce(&Database) -> Result<T, FileFailure>) -> Result<T> {
        let (result, generation) = {
            let slot = self.opened()?;
            let Slot::Open { database, generation } = &*slot else { return Err(closed()) };
            // Transactions of work that panics are dropped, which rolls them back.
            let result = catch_unwind(AssertUnwindSafe(|| work(database))).unwrap_or(Err(FileFailure::Panicked));
            (result, *generation)
        };
        result.map_err(|failure| {
            let fatal = failure.is_fatal();
            let error = StorageError::from(failure);
            if fatal {
                self.give_up(generation, error.to_string());
            }
            error
        })
    }

    /// As [`Self::run`], for work that may write `bytes`: one at a time, and noted for the copy that a compaction makes.
    /// The work's outcome must follow from what is stored alone, because it is done again on that copy.
    pub(super) fn change<T>(
        &self,
        bytes: usize,
        work: impl Fn(&Database) -> Result<T, FileFailure> + Send + Sync + 'static,
    ) -> Result<T> {
        let mut turn = self.journal.turn(bytes);
        let work = Arc::new(work);
        let result = self.run(|database| work(database));
        match &result {
            Ok(_) => turn.done(bytes, move |database| work(database).map(drop)),
            Err(error) => turn.doubtful(error),
        }
        result
    }

    /// Whether the file is open: not after a failure, until its next use.
    pub(super) fn is_open(&self) -> bool {
        matches!(&*self.slot.read(), Slot::Open { .. })
    }

    pub(super) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Uses another file from now on, whose content is the same. Blocks until all work on the old one has ended.
    pub(super) fn replace(&self, database: Database) {
        let mut slot = self.slot.write();
        if let Slot::Open { generation, .. } | Slot::Failed { generation, .. } = &*slot {
            let generation = generation + 1;
            *slot = Slot::Open { database, generation };
        }
    }

    /// Closes the file until its next use.
    pub(super) fn reopen_later(&self, why: String) {
        let mut slot = self.slot.write();
        if let Slot::Open { generation, .. } | Slot::Failed { generation, .. } = &*slot {
            let generation = *generation;
            *slot = Slot::Failed { why, generation };
        }
    }

    /// Closes the file for good. Blocks until all work on it has ended.
    pub(super) fn close(&self) {
        self.journal.give_up("the file is closed");
        *self.slot.write() = Slot::Closed;
    }

    /// A read lock on the slot with the file open, reopened if necessary.
    fn opened(&self) -> Result<RwLockReadGuard<'_, Slot>> {
        loop {
            let slot = self.slot.read();
            match &*slot {
                Slot::Open { .. } => return Ok(slot),
                Slot::Closed => return Err(closed()),
                Slot::Failed { .. } => {}
            }
            drop(slot);
            let mut slot = self.slot.write();
            if let Slot::Failed { why, generation } = &*slot {
                let again = |e| unavailable(format!("{why}; reopening the file failed: {e}"));
                *slot = Slot::Open { database: (self.reopen)().map_err(again)?, generation: generation + 1 };
            }
        }
    }

    /// Closes the file until its next use, unless it was closed since generation `seen`.
    fn give_up(&self, seen: u64, why: String) {
        let mut slot = self.slot.write();
        if matches!(&*slot, Slot::Open { generation, .. } if *generation == seen) {
            *slot = Slot::Failed { why, generation: seen };
        }
    }
}

impl FileFailure {
    /// Whether redb refuses all further work until the file is reopened.
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
