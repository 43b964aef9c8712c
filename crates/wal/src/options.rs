//! The options of a WAL.

use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The position of a record in the WAL. The first one is 1; 0 is before all records.
pub type Sequence = u64;

/// A function that returns a lower bound for the next sequence. It lets sequences include the time of the write.
#[derive(Clone)]
pub struct LeastSequence(Arc<dyn Fn() -> Sequence + Send + Sync>);

impl LeastSequence {
    /// Wraps a function, which is called once per sync.
    #[must_use]
    pub fn new(least: impl Fn() -> Sequence + Send + Sync + 'static) -> Self {
        Self(Arc::new(least))
    }

    pub(super) fn now(&self) -> Sequence {
        (self.0)()
    }
}

impl std::fmt::Debug for LeastSequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LeastSequence")
    }
}

/// A function that returns an error if the segments must not take this many bytes in total.
#[derive(Clone)]
pub struct Room(Arc<dyn Fn(u64) -> io::Result<()> + Send + Sync>);

impl Room {
    /// Wraps a function, which is called before each step of a new segment.
    #[must_use]
    pub fn new(check: impl Fn(u64) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    pub(super) fn check(&self, bytes: u64) -> io::Result<()> {
        (self.0)(bytes)
    }
}

impl Default for Room {
    /// All free space.
    fn default() -> Self {
        Self::new(|_| Ok(()))
    }
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Room")
    }
}

/// The options of a WAL.
#[derive(Debug, Clone)]
pub struct WalOptions {
    /// The store that the records are flushed to, without credentials; at most 1024 bytes. A WAL with records that are
    /// not truncated cannot be opened for another store.
    pub store: String,
    /// Maximum size of a segment file: a multiple of 4096, from 8 KiB to 1 GiB. It also limits the size of a record.
    pub segment_bytes: u64,
    /// Maximum bytes of all segment files, including preallocated space; at least two segments. The limit is exact,
    /// except for segments that a failing disk made unusable. Quarantine does not count.
    pub budget_bytes: u64,
    /// Maximum bytes of records that wait for the disk. A larger record is accepted if no other record waits.
    pub queue_bytes: u64,
    /// Maximum number of records that wait for the disk; at least 1.
    pub queue_records: usize,
    /// True if payloads are compressed (lz4) where that saves space. The appender's thread compresses.
    pub compress: bool,
    /// The time between attempts to create a segment after a disk failure.
    pub retry: Duration,
    /// The time after which [`Wal::rest_if_quiet`](super::Wal::rest_if_quiet) reduces the space of a quiet WAL.
    pub quiet: Duration,
    /// The lower bound for new sequences.
    pub least: LeastSequence,
    /// The space of the disk that the segments may take.
    pub room: Room,
}

impl WalOptions {
    /// The default options for this store.
    #[must_use]
    pub fn new(store: impl Into<String>) -> Self {
        Self {
            store: store.into(),
            segment_bytes: 64 << 20,
            budget_bytes: 10 << 30,
            queue_bytes: 64 << 20,
            queue_records: 1 << 16,
            compress: true,
            retry: Duration::from_secs(1),
            quiet: Duration::from_secs(60),
            least: LeastSequence::new(|| 0),
            room: Room::default(),
        }
    }
}
