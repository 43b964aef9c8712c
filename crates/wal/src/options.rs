//! Options of a log.

use std::sync::Arc;
use std::time::Duration;

/// Position of a record in the log. The first one is 1; 0 means before all records.
pub type Sequence = u64;

/// A function that returns the least sequence a record may get now: it lets sequences tell when their records were
/// written.
#[derive(Clone)]
pub struct LeastSequence(Arc<dyn Fn() -> Sequence + Send + Sync>);

impl LeastSequence {
    /// The function is called once per sync.
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

/// Options of a log.
#[derive(Debug, Clone)]
pub struct WalOptions {
    /// The store that the records are flushed to, without credentials; at most 1024 bytes. A log with records that are
    /// not truncated cannot be opened for another store.
    pub store: String,
    /// Size of a full-grown segment file: a multiple of 4096, from 8 KiB to 1 GiB. It also bounds a record.
    pub segment_bytes: u64,
    /// Maximum bytes of all segment files together, including preallocated space; at least two segments. Exact, except
    /// for segments that a failing disk made useless. Quarantine does not count.
    pub budget_bytes: u64,
    /// Maximum bytes of records that wait for the disk. A single larger one may wait alone.
    pub queue_bytes: u64,
    /// Maximum number of records that wait for the disk; at least 1.
    pub queue_records: usize,
    /// Whether payloads are compressed (lz4) where that saves space. The appender's thread compresses.
    pub compress: bool,
    /// Time between attempts to make a segment after the disk refused one.
    pub retry: Duration,
    /// How long a log must be quiet before [`Wal::rest_if_quiet`](super::Wal::rest_if_quiet) gives space back.
    pub quiet: Duration,
    /// Lower bound for new sequences.
    pub least: LeastSequence,
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
        }
    }
}
