//! Values that are derived from settings, and the settings of unit tests.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::Settings;

/// Maximum number of concurrent flush tasks per shard.
pub const FLUSHES_MAX: usize = 2;
/// Maximum bytes of a part of a deletion by value.
const PART_BYTES_MAX: usize = 256 << 10;
/// Bounds of the memory of one flush task. The minimum has room for the readings of a large page. More than the maximum
/// does not fit into one command anyway.
const FLUSH_BYTES: RangeInclusive<usize> = 128 << 10..=8 << 20;

impl Settings {
    /// Returns the memory for the readings of one flush task. Their encoded form takes as much again.
    pub fn flush_task_bytes(&self) -> usize {
        let tasks = 2 * FLUSHES_MAX * self.ingest.shards.max(1);
        (self.flush_bytes() / tasks).clamp(*FLUSH_BYTES.start(), *FLUSH_BYTES.end())
    }

    /// Returns the maximum bytes of a part of a deletion by value, whose record must fit into a WAL segment.
    pub fn part_bytes(&self) -> usize {
        (self.wal.segment_bytes / 4).min(PART_BYTES_MAX)
    }
}

/// Converts a limit. Returns `None` for zero, which is unlimited.
pub fn bound(count: usize) -> Option<u32> {
    u32::try_from(count).ok().filter(|count| *count > 0)
}

/// Converts a limit to nanoseconds. Returns `None` for zero, which is unlimited.
pub fn bound_ns(bound: Duration) -> Option<i64> {
    i64::try_from(bound.as_nanos()).ok().filter(|bound| *bound > 0)
}

/// Returns settings for unit tests, with little memory.
#[cfg(test)]
pub fn small() -> Settings {
    let mut settings = Settings::default();
    settings.server.data_dir = std::env::temp_dir().join("hourglass-no-such-folder");
    settings.ingest.bytes_in_flight = 1 << 20;
    settings.ingest.ack_timeout = Duration::from_secs(5);
    settings.page.max_readings = 10;
    settings.memtable.max_bytes = 1 << 20;
    settings.wal.segment_bytes = 64 << 10;
    settings.wal.horizon = Duration::from_secs(3600);
    settings.seal.after = Duration::ZERO;
    settings.rejections.max_bytes = 0;
    settings.limits.sensor_fields = 100;
    settings.limits.sensors = 1000;
    settings.limits.databases = 10;
    settings.catalog.max_bytes = 16 << 20;
    settings.quota.token_databases = 0;
    settings
}

/// As [`small`], with one shard.
#[cfg(test)]
pub fn one_shard() -> Settings {
    let mut settings = small();
    settings.ingest.shards = 1;
    settings
}
