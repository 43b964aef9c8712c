//! Plain counters of one log since it was opened. Whoever keeps metrics reads them from here.

use std::time::Duration;

use super::{Counts, Sequence};

/// A snapshot, all of one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records made durable.
    pub appended_records: u64,
    /// Bytes of them in the log, after compression, with their heads.
    pub appended_bytes: u64,
    /// Records whose append was reported as failed after they had been admitted.
    pub failed_records: u64,
    /// Syncs that made records durable.
    pub syncs: u64,
    /// How long the last of them took.
    pub sync_last: Duration,
    /// How long the longest of them took.
    pub sync_max: Duration,
    /// How long they took together.
    pub sync_total: Duration,
    /// Operations of the writer that the disk refused.
    pub disk_failures: u64,
    /// Segment files.
    pub segments: usize,
    /// Bytes of the segment files on the disk, with what is preallocated.
    pub bytes: u64,
    /// Records that wait for the disk.
    pub waiting_records: usize,
    /// Bytes of them.
    pub waiting_bytes: u64,
    /// The last durable record, or 0.
    pub durable: Sequence,
    /// Up to here nothing is needed any more.
    pub released: Sequence,
    /// Bytes that hold no record though something was written there.
    pub found: Counts,
    /// Why the disk takes no new segment at present, if so: nothing can be appended any more, or soon.
    pub unwritable: Option<String>,
}

impl Stats {
    /// Counts records that one sync made durable.
    pub(super) fn synced(&mut self, records: u64, bytes: u64, took: Duration) {
        self.appended_records += records;
        self.appended_bytes += bytes;
        self.syncs += 1;
        self.sync_last = took;
        self.sync_max = self.sync_max.max(took);
        self.sync_total += took;
    }
}
