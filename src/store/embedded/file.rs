//! The redb file: opened, opened again after a failure, closed; and what its failures mean to
//! whoever asked. Knows nothing of what the tables hold.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use redb::{Database, DatabaseError};

use crate::bucket::StorageError;

/// How the file is opened again after a failure.
pub(super) type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync>;

/// The one handle on the file.
///
/// After an I/O error, a full disk for one, redb refuses everything until the file is closed and
/// opened again. That happens here at the next use, so that the store resumes alone.
pub(super) struct DatabaseFile {
    slot: RwLock<Slot>,
    reopen: Opener,
}

enum Slot {
    Open {
        database: Database,
        /// How many times the file was opened before.
        generation: u64,
    },
    Failed {
        why: String,
        generation: u64,
    },
    Closed,
}

/// Why a piece of work on the file came to nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// redb failed before the commit: nothing was written.
    Before(redb::Error),
    /// The commit failed. By redb's word it is wholly in the file or not at all; which, it cannot tell.
    Commit(redb::CommitError),
    /// redb panicked, as it may over a damaged file.
    Panicked,
    /// One document is damaged or not known to this program; the file as such is fine.
    Document(StorageError),
}

impl DatabaseFile {
    pub(super) fn new(database: Database, reopen: Opener) -> Self {
        Self { slot: RwLock::new(Slot::Open { database, generation: 0 }), reopen }
    }

    /// Does a piece of work on the open file, which stays open meanwhile. Blocks.
    pub(super) fn run<T>(&self, work: impl FnOnce(&Database) -> Result<T, Failure>) -> Result<T, StorageError> {
        let (result, generation) = {
            let slot = self.opened()?;
            let Slot::Open { database, generation } = &*slot else { return Err(closed()) };
            // The transactions of a work that panics roll back as they are dropped.
            let result = catch_unwind(AssertUnwindSafe(|| work(database))).unwrap_or(Err(Failure::Panicked));
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

    /// Closes the file for good. Blocks until all work on it is done.
    pub(super) fn close(&self) {
        *self.write() = Slot::Closed;
    }

    /// A look at the slot that keeps it from changing; the file is open, or opened again for it.
    fn opened(&self) -> Result<RwLockReadGuard<'_, Slot>, StorageError> {
        loop {
            let slot = self.slot.read().unwrap_or_else(PoisonError::into_inner);
            match &*slot {
                Slot::Open { .. } => return Ok(slot),
                Slot::Closed => return Err(closed()),
                Slot::Failed { .. } => {}
            }
            drop(slot);
            let mut slot = self.write();
            if let Slot::Failed { why, generation } = &*slot {
                let again = |e| unavailable(format!("{why}; opening the file again: {e}"));
                *slot = Slot::Open { database: (self.reopen)().map_err(again)?, generation: generation + 1 };
            }
        }
    }

    /// Closes the file until its next use, unless somebody did so since that generation was seen.
    fn give_up(&self, seen: u64, why: String) {
        let mut slot = self.write();
        if matches!(&*slot, Slot::Open { generation, .. } if *generation == seen) {
            *slot = Slot::Failed { why, generation: seen };
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Slot> {
        self.slot.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Failure {
    /// Whether redb refuses to go on until the file is opened again.
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

impl From<Failure> for StorageError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Before(redb::Error::Corrupted(detail)) => Self::Unreadable { id: super::FILE_NAME.into(), detail },
            Failure::Before(error @ redb::Error::ValueTooLarge(_)) => Self::Refused { detail: error.to_string() },
            Failure::Before(error) => unavailable(error.to_string()),
            Failure::Commit(error) => Self::Unknown { detail: format!("the commit failed: {error}") },
            Failure::Panicked => Self::Unknown { detail: "redb panicked".into() },
            Failure::Document(error) => error,
        }
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Self {
        Self::Document(error)
    }
}

impl From<redb::CommitError> for Failure {
    fn from(error: redb::CommitError) -> Self {
        Self::Commit(error)
    }
}

impl From<redb::StorageError> for Failure {
    fn from(error: redb::StorageError) -> Self {
        Self::Before(error.into())
    }
}

impl From<redb::TableError> for Failure {
    fn from(error: redb::TableError) -> Self {
        Self::Before(error.into())
    }
}

impl From<redb::TransactionError> for Failure {
    fn from(error: redb::TransactionError) -> Self {
        Self::Before(error.into())
    }
}

fn closed() -> StorageError {
    unavailable("the file is closed".into())
}

fn unavailable(detail: String) -> StorageError {
    StorageError::Unavailable { detail }
}
