//! The counters of a WAL since it was opened, for metrics.

use super::{Counts, Sequence};

/// A snapshot of the counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WalStats {
    /// The number of records made durable.
    pub appended_records: u64,
    /// The size of these records in the WAL in bytes, after compression, including record heads.
    pub appended_bytes: u64,
    /// The number of admitted records whose append failed.
    pub failed_records: u64,
    /// The number of syncs that made records durable.
    pub syncs: u64,
    /// The number of failed disk operations of the writer.
    pub disk_failures: u64,
    /// The number of segment files.
    pub segments: usize,
    /// The size of the segment files in bytes, including the prepared part of the next one.
    pub bytes: u64,
    /// The number of records that wait for the disk.
    pub waiting_records: usize,
    /// The size of these records in bytes.
    pub waiting_bytes: u64,
    /// The sequence of the last durable record, or 0.
    pub durable: Sequence,
    /// The position up to which the WAL is truncated.
    pub truncated: Sequence,
    /// The damage found so far.
    pub found: Counts,
    /// The reason for which appends are rejected now: the disk fails, or the disk or the budget has no space for
    /// another record of the latest size.
    pub unwritable: Option<String>,
}

impl WalStats {
    /// Counts records that one sync made durable.
    pub(super) fn count_sync(&mut self, records: u64, bytes: u64) {
        self.appended_records += records;
        self.appended_bytes += bytes;
        self.syncs += 1;
    }
}
