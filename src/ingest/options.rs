//! What follows from the settings of ingest.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::request_keys::KeyOptions;
use crate::access::Quota;
use crate::bucket::day::{CELLS_MAX, HOUR_CELLS_MAX};
use crate::config::{LimitsSettings, Settings};
use crate::ingest::flush::chunks::DirectRules;
use crate::ingest::rejections::RejectionOptions;
use crate::reading::Reason;

/// Maximum number of concurrent flush tasks per shard.
pub const FLUSHES_MAX: usize = 2;
/// Maximum number of remembered keys of writes.
const REQUEST_KEYS_MAX: usize = 10_000;
/// Maximum size of a part of a deletion by value.
const PART_BYTES_MAX: usize = 256 << 10;
/// Bounds of the memory of one flush task: a reading of a large page must fit, and more than a command takes is no gain.
const FLUSH_BYTES: RangeInclusive<usize> = 128 << 10..=8 << 20;

/// Returns the memory for what one flush task holds at a time; as much again is for what it encodes.
pub fn flush_task_bytes(settings: &Settings) -> usize {
    let tasks = 2 * FLUSHES_MAX * settings.ingest.shards.max(1);
    (settings.flush_bytes() / tasks).clamp(*FLUSH_BYTES.start(), *FLUSH_BYTES.end())
}

/// Returns which readings become chunks of sealed days.
pub fn direct_rules(settings: &Settings) -> Option<DirectRules> {
    let min = settings.seal.direct_min;
    let after_ns = bound_ns(settings.seal.after)?;
    (min > 0).then_some(DirectRules { after_ns, min })
}

/// Returns the most cells of a part of a day for an hour: some are in memory several times while it is sealed.
pub fn hour_cells(settings: &Settings) -> usize {
    const CELL: usize = 24;
    (settings.flush_bytes() / CELL).clamp(CELLS_MAX, HOUR_CELLS_MAX)
}

/// Returns the maximum size of a part of a deletion by value: its record must fit into a segment of the WAL.
pub fn part_bytes(settings: &Settings) -> usize {
    (settings.wal.segment_bytes / 4).min(PART_BYTES_MAX)
}

/// Returns the quota of each database.
pub fn database_quota(settings: &Settings) -> Quota {
    Quota {
        readings_per_second: bound(settings.quota.database_readings),
        new_sensors_per_hour: bound(settings.quota.database_new_sensors),
        sensors: bound(settings.quota.database_sensors),
        databases: None,
    }
}

/// Returns the number of databases in its scopes up to which a token without a quota of its own may make new ones.
pub fn token_databases(settings: &Settings) -> Option<u32> {
    bound(settings.quota.token_databases)
}

pub fn request_keys(settings: &Settings) -> KeyOptions {
    KeyOptions {
        folder: settings.server.data_dir.join("request-keys"),
        window: settings.ingest.idempotency_window,
        count_max: REQUEST_KEYS_MAX,
    }
}

pub fn rejections(settings: &Settings) -> RejectionOptions {
    RejectionOptions {
        folder: settings.rejections_dir(),
        max_bytes: settings.rejections.max_bytes as u64,
        keep: settings.rejections.keep,
        addresses: settings.rejections.addresses,
    }
}

/// A count, or `None` for zero, which means no limit.
fn bound(count: usize) -> Option<u32> {
    u32::try_from(count).ok().filter(|count| *count > 0)
}

/// Nanoseconds, or `None` for zero, which means no limit.
pub fn bound_ns(bound: Duration) -> Option<i64> {
    i64::try_from(bound.as_nanos()).ok().filter(|bound| *bound > 0)
}

/// Settings for unit tests, with little memory.
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

/// In nanoseconds.
const SECOND: i64 = 1_000_000_000;

/// Which timestamps are accepted, relative to when the request was received (`limits.max_past`, `limits.max_future`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AcceptedTimes {
    /// Nanoseconds before it; `None` is unbounded.
    pub past: Option<i64>,
    /// Nanoseconds after it; `None` is unbounded.
    pub future: Option<i64>,
}

impl AcceptedTimes {
    pub fn new(limits: &LimitsSettings) -> Self {
        Self { past: bound_ns(limits.max_past), future: bound_ns(limits.max_future) }
    }

    /// Why a timestamp is refused; `None` if it is accepted.
    #[must_use]
    pub fn refusal(&self, time: i64, received: i64) -> Option<Reason> {
        let outside =
            |bound: i64, ahead: bool| Reason::OutsideWindow { time, ahead, seconds: (bound / SECOND).unsigned_abs() };
        match (self.past, self.future) {
            (Some(past), _) if time < received.saturating_sub(past) => Some(outside(past, false)),
            (_, Some(future)) if time > received.saturating_add(future) => Some(outside(future, true)),
            _ => None,
        }
    }
}
