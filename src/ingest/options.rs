//! How ingest is set up: plain values that the config resolves to.

use std::path::PathBuf;
use std::time::Duration;

use super::terms::Window;
use crate::access::Quota;
use crate::bucket::Caps;
use crate::reading::Limits;

/// What an ack promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckLevel {
    /// The request's record is in the log, durably.
    Log,
    /// Its readings are in the store, durably.
    Store,
}

impl AckLevel {
    /// The level's name in the config, in `?ack=` and in `X-Hourglass-Ack`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Store => "store",
        }
    }

    /// The level of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Log, Self::Store].into_iter().find(|level| level.name() == name)
    }
}

/// How ingest is set up. From the config sections `[ingest]`, `[page]`, `[hot]`, `[flush]`,
/// `[sensors]` and `[limits]`.
#[derive(Debug, Clone)]
pub struct Options {
    /// Workers; each sensor belongs to one.
    pub shards: usize,
    /// Most bytes of request bodies, and of the batches made of them, admitted and not yet acked.
    pub bytes_in_flight: usize,
    /// What a request is acked for that asks for nothing else.
    pub ack: AckLevel,
    /// Longest wait of a request for its ack.
    pub ack_timeout: Duration,
    /// When a page is full.
    pub caps: Caps,
    /// Memory for hot buckets and unflushed readings, all shards together.
    pub hot_bytes: usize,
    /// Longest time that a reading waits for its flush, unless the store is too slow for that.
    pub flush_interval: Duration,
    /// How long nothing must have come for an hour that is over, before it is flushed.
    pub flush_quiet: Duration,
    /// Most flights under way at once, per shard.
    pub flights: usize,
    /// The log's folder, which a mark is kept in.
    pub log_dir: PathBuf,
    /// How long a log may be silent before its readings hold the floor no more.
    pub horizon: Duration,
    /// Most deletions that are remembered at a time.
    pub deletions: usize,
    /// The disk budget of the log, in bytes.
    pub log_bytes: u64,
    /// How much of the log and of [`Options::hot_bytes`] one database may take that the store fails on, in percent.
    pub database_share: usize,
    /// Where readings are kept that the store refuses for good.
    pub dead_letters: PathBuf,
    /// How many recent readings a sensor's document holds.
    pub recent: usize,
    /// How often changed sensor documents are written.
    pub sensor_interval: Duration,
    /// How long after its last overflow page a sensor stays marked as an outlier.
    pub outlier_ttl: Duration,
    /// Bounds on one reading.
    pub limits: Limits,
    /// Most fields of one sensor, over all its readings.
    pub sensor_fields: usize,
    /// Most sensors.
    pub sensors: usize,
    /// Most databases.
    pub databases: usize,
    /// How much one database may take in.
    pub database_quota: Quota,
    /// Which times are taken.
    pub window: Window,
}

impl Options {
    /// [`Options::outlier_ttl`] in nanoseconds.
    #[must_use]
    pub fn outlier_ttl_ns(&self) -> i64 {
        i64::try_from(self.outlier_ttl.as_nanos()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
impl Options {
    /// Small ones, for tests.
    pub fn small() -> Self {
        Self {
            shards: 2,
            bytes_in_flight: 1 << 20,
            ack: AckLevel::Log,
            ack_timeout: Duration::from_secs(5),
            caps: Caps { max_readings: 10, max_bytes: 1 << 20, hard_bytes: 4 << 20 },
            hot_bytes: 1 << 20,
            flush_interval: Duration::from_secs(60),
            flush_quiet: Duration::from_secs(5),
            flights: 2,
            log_bytes: 1 << 30,
            database_share: 25,
            log_dir: PathBuf::new(),
            horizon: Duration::from_secs(3600),
            deletions: 1000,
            dead_letters: PathBuf::from("dead-letters.lp"),
            recent: 10,
            sensor_interval: Duration::from_secs(60),
            outlier_ttl: Duration::from_secs(60),
            limits: Limits::default(),
            sensor_fields: 100,
            sensors: 1000,
            databases: 10,
            database_quota: Quota::default(),
            window: Window::default(),
        }
    }
}
