//! Orders the work that writes to the file, and notes it while a compaction copies the file, so that it can be done again on
//! the copy. Knows nothing of tables.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use redb::Database;

use super::file::FileFailure;
use crate::bucket::StorageError;

/// Most bytes of noted work: more waits until the copy has caught up.
const BYTES: usize = 16 << 20;
/// The longest that work waits for that. Then the compaction gives up instead. Shorter than the store's deadline.
const PATIENCE: Duration = Duration::from_secs(10);

/// Work to be done again.
pub(super) type Redo = Arc<dyn Fn(&Database) -> Result<(), FileFailure> + Send + Sync>;

#[derive(Default)]
pub(super) struct Journal {
    notes: Mutex<Option<Notes>>,
    caught_up: Condvar,
}

/// What was done since the copy began.
#[derive(Default)]
struct Notes {
    work: VecDeque<(Redo, usize)>,
    bytes: usize,
    /// Why the copy is of no use any more.
    given_up: Option<String>,
}

/// While this is held, nothing else writes.
pub(super) struct Turn<'a>(MutexGuard<'a, Option<Notes>>);

impl Journal {
    /// Waits for the turn to write this many bytes.
    pub(super) fn turn(&self, bytes: usize) -> Turn<'_> {
        let until = Instant::now() + PATIENCE;
        let mut notes = self.notes.lock();
        while let Some(some) = notes.as_mut().filter(|notes| notes.given_up.is_none() && notes.is_full(bytes)) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                some.drop_all(format!("more was written meanwhile than {BYTES} bytes"));
                break;
            }
            self.caught_up.wait_for(&mut notes, left);
        }
        Turn(notes)
    }

    /// Notes all work from now on. `snapshot` runs before any.
    pub(super) fn begin<T>(&self, snapshot: impl FnOnce() -> T) -> T {
        let mut notes = self.notes.lock();
        let taken = snapshot();
        *notes = Some(Notes::default());
        taken
    }

    /// The work noted longest ago.
    pub(super) fn take(&self) -> Option<Redo> {
        let mut notes = self.notes.lock();
        let (work, bytes) = notes.as_mut()?.work.pop_front()?;
        if let Some(notes) = &mut *notes {
            notes.bytes -= bytes;
        }
        self.caught_up.notify_all();
        Some(work)
    }

    /// Why the copy is of no use any more.
    pub(super) fn given_up(&self) -> Option<String> {
        self.notes.lock().as_ref().and_then(|notes| notes.given_up.clone())
    }

    pub(super) fn give_up(&self, why: &str) {
        if let Some(notes) = &mut *self.notes.lock() {
            notes.drop_all(why.to_owned());
        }
        self.caught_up.notify_all();
    }

    /// Notes nothing any more.
    pub(super) fn end(&self) {
        *self.notes.lock() = None;
        self.caught_up.notify_all();
    }
}

impl Turn<'_> {
    pub(super) fn done(
        &mut self,
        bytes: usize,
        redo: impl Fn(&Database) -> Result<(), FileFailure> + Send + Sync + 'static,
    ) {
        if let Some(notes) = self.0.as_mut().filter(|notes| notes.given_up.is_none()) {
            notes.work.push_back((Arc::new(redo), bytes));
            notes.bytes += bytes;
        }
    }

    /// It is not known whether work was done.
    pub(super) fn doubtful(&mut self, error: &StorageError) {
        if let Some(notes) = &mut *self.0 {
            notes.drop_all(format!("a write failed meanwhile: {error}"));
        }
    }

    /// All that is noted; an error if the copy is of no use.
    pub(super) fn take_all(&mut self) -> Result<Vec<Redo>, String> {
        let Some(notes) = &mut *self.0 else { return Ok(Vec::new()) };
        match &notes.given_up {
            Some(why) => Err(why.clone()),
            None => {
                notes.bytes = 0;
                Ok(notes.work.drain(..).map(|(work, _)| work).collect())
            }
        }
    }
}

impl Notes {
    fn is_full(&self, bytes: usize) -> bool {
        !self.work.is_empty() && self.bytes + bytes > BYTES
    }

    fn drop_all(&mut self, why: String) {
        self.work.clear();
        self.bytes = 0;
        self.given_up.get_or_insert(why);
    }
}
