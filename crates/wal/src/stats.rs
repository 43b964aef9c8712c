//! Counters of one log since it was opened, for the metrics to read.

use super::{Counts, Sequence};

/// A snapshot of the counters at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WalStats {
    /// Records made durable.
    pub appended_records: u64,
    /// Bytes of these records in the log, after compression, including record heads.
    pub appended_bytes: u64,
    /// Records that were admitted and whose append then failed.
    pub failed_records: u64,
    /// Syncs that made records durable.
    pub syncs: u64,
    /// Disk operations of the writer that failed.
    pub disk_failures: u64,
    /// Number of segment files.
    pub segments: usize,
    /// Bytes of the segment files and of the next one, as far as it is prepared.
    pub bytes: u64,
    /// Records that wait for the disk.
    pub waiting_records: usize,
    /// Bytes of the records that wait for the disk.
    pub waiting_bytes: u64,
    /// Sequence of the last durable record, or 0.
    pub durable: Sequence,
    /// Position up to which the log is truncated.
    pub truncated: Sequence,
    /// Damage found: bytes that were written but hold no record.
    pub found: Counts,
    /// Why appends are refused at present: the disk fails, or a record like the latest one has no room on it or in the
    /// budget.
    pub unwritable: Option<String>,
}

impl WalStats {
    /// Counts records that one sync made durable.
    pub(super) fn synced(&mut self, records: u64, bytes: u64) {
        self.appended_records += records;
        self.appended_bytes += bytes;
        self.syncs += 1;
    }
}
