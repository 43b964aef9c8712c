//! How ingest is set up: plain values, resolved from the config.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::request_keys::KeyOptions;
use crate::access::Quota;
use crate::bucket::day::{CELLS_MAX, HOUR_CELLS_MAX};
use crate::bucket::settings::Drift;
use crate::bucket::{Caps, Keep, SealForm};
use crate::ingest::flush::chunks::DirectRules;
use crate::ingest::rejections::RejectionOptions;
use crate::ingest::tail::TailOptions;
use crate::kinds::Kinds;
use crate::reading::{Limits, Reason};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckLevel {
    /// The request's record is durable in the WAL.
    Log,
    /// Its readings are durable in the store.
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

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Log, Self::Store].into_iter().find(|level| level.name() == name)
    }
}

/// Bounds of the memory of one flush task: a reading of a large page must fit, and more than a command takes is no gain.
const FLUSH_BYTES: RangeInclusive<usize> = 128 << 10..=8 << 20;

/// Options of ingest. From the config sections `[ingest]`, `[wal]`, `[page]`, `[memtable]`, `[flush]`, `[sensors]`,
/// `[limits]`, `[quota]` and `[rejections]`.
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// Shards; each sensor belongs to one.
    pub shards: usize,
    /// Most bytes of request bodies, and of the batches made of them, admitted and not yet acked.
    pub bytes_in_flight: usize,
    /// The ack level of requests that name none.
    pub ack: AckLevel,
    /// Longest wait of a request for its ack.
    pub ack_timeout: Duration,
    pub caps: Caps,
    /// Memory for unflushed readings and the bucket cache, all shards together, in bytes.
    pub memtable_bytes: usize,
    /// Longest time between the arrival of a reading and its flush, unless the store is too slow for that.
    pub flush_interval: Duration,
    /// An hour that is over is flushed when no reading of it has come for so long.
    pub flush_quiet: Duration,
    /// Most flush tasks at once, per shard.
    pub flushes: usize,
    /// Memory for the work of all flush tasks together, in bytes.
    pub flush_bytes: usize,
    /// The WAL's folder, which holds the mark `joined`.
    pub wal_dir: PathBuf,
    /// Most bytes of a part of a deletion by value: a record of it must fit into a segment of the WAL.
    pub part_bytes: usize,
    /// How days are sealed of databases that do not say it themselves.
    pub seal_form: SealForm,
    /// How long a day must be over to be sealed; zero for never. And the wait between two rounds of sealing.
    pub seal_after: Duration,
    pub seal_pause: Duration,
    /// From how many readings of a sensor's day on, of a day over for so long, they become a chunk of it at once; 0 for never.
    pub direct_min: usize,
    /// How long no chunk of a day must have come before its chunks are folded.
    pub seal_quiet: Duration,
    /// How long a database keeps readings that has no setting of its own; and how often it is looked for what has expired.
    pub kept: Option<Keep>,
    /// How long databases keep summaries that do not say it themselves; `None` for as long as readings.
    pub summaries_kept: Option<Keep>,
    pub retention_pause: Duration,
    /// Where the last known settings of databases are kept, for a start without the store.
    pub settings_file: Option<PathBuf>,
    /// How long a WAL may be silent before its entry in the registry is dropped and no longer holds the floor.
    pub horizon: Duration,
    /// Most deletions remembered in the registry.
    pub deletions: usize,
    /// Most relabels of a database.
    pub relabels: usize,
    /// The disk budget of the WAL, in bytes.
    pub wal_bytes: u64,
    /// How much of the WAL and of [`IngestOptions::memtable_bytes`] a database may take while the store fails on it, in
    /// percent.
    pub database_share: usize,
    /// Keys of writes with undated readings.
    pub request_keys: KeyOptions,
    /// The folder of readings that the store refuses for good.
    pub dead_letters: PathBuf,
    /// How many recent readings a sensor's document holds.
    pub recent: usize,
    /// Most bytes of names and values of a sensor's metadata.
    pub meta_bytes: usize,
    /// What sensors' readings and metadata must be.
    pub kinds: Kinds,
    /// Whether the configuration declares indexes.
    pub declares_indexes: bool,
    /// How long after a change of metadata its copies in pages and days are set for good: until then somebody may still
    /// write new pages with what it read before.
    pub copies_settle: Duration,
    /// How old a list of sensors may be that a query uses.
    pub list_age: Duration,
    /// How often changed sensor documents are written.
    pub sensor_interval: Duration,
    /// How long after its last overflow page a sensor stays marked as an outlier.
    pub outlier_ttl: Duration,
    /// How long a sensor may send nothing before it counts as silent; zero for ever.
    pub silent_after: Duration,
    /// Those who listen to acked readings.
    pub tail: TailOptions,
    pub limits: Limits,
    /// Most fields of one sensor, over all its readings.
    pub sensor_fields: usize,
    pub sensors: usize,
    /// Most memory of known sensors and their fields.
    pub catalog_bytes: usize,
    pub databases: usize,
    /// Up to how many databases in its scopes a token without a quota of its own may bring new ones into being.
    pub token_databases: Option<u32>,
    /// The quota of each database.
    pub database_quota: Quota,
    pub window: AcceptedTimes,
    /// Whether a timestamp is rejected that lies near now only in another unit than the default one, if the sender declared
    /// none.
    pub refuse_undeclared_units: bool,
    /// What becomes of values of another family than their field's, in databases that do not say it themselves.
    pub drift: Drift,
    /// The rejected lines.
    pub rejections: RejectionOptions,
}

impl IngestOptions {
    /// Memory for what one flush task holds at a time; as much again is for what it encodes.
    #[must_use]
    pub fn bytes_of_flush(&self) -> usize {
        (self.flush_bytes / (2 * self.flushes * self.shards).max(1)).clamp(*FLUSH_BYTES.start(), *FLUSH_BYTES.end())
    }

    /// Which readings become chunks of sealed days.
    #[must_use]
    pub fn direct_rules(&self) -> Option<DirectRules> {
        let after_ns = i64::try_from(self.seal_after.as_nanos()).unwrap_or(i64::MAX);
        (after_ns > 0 && self.direct_min > 0).then_some(DirectRules { after_ns, min: self.direct_min })
    }

    /// The most cells of a part of a day for an hour: some are in memory several times while it is sealed.
    #[must_use]
    pub fn hour_cells(&self) -> usize {
        const CELL: usize = 24;
        (self.flush_bytes / CELL).clamp(CELLS_MAX, HOUR_CELLS_MAX)
    }

    /// [`IngestOptions::outlier_ttl`] in nanoseconds.
    #[must_use]
    pub fn outlier_ttl_ns(&self) -> i64 {
        i64::try_from(self.outlier_ttl.as_nanos()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
use crate::ingest::rejections::ShownAddresses;

#[cfg(test)]
impl IngestOptions {
    pub fn small() -> Self {
        Self {
            shards: 2,
            bytes_in_flight: 1 << 20,
            ack: AckLevel::Log,
            ack_timeout: Duration::from_secs(5),
            caps: Caps { max_readings: 10, max_bytes: 1 << 20, hard_bytes: 4 << 20 },
            memtable_bytes: 1 << 20,
            flush_interval: Duration::from_secs(60),
            flush_quiet: Duration::from_secs(5),
            flushes: 2,
            flush_bytes: 32 << 20,
            wal_bytes: 1 << 30,
            database_share: 25,
            request_keys: KeyOptions {
                folder: PathBuf::from("request-keys"),
                window: Duration::from_secs(600),
                count_max: 100,
            },
            wal_dir: PathBuf::new(),
            part_bytes: 16 << 10,
            seal_form: SealForm::Packed,
            seal_after: Duration::ZERO,
            seal_pause: Duration::from_secs(60),
            direct_min: 0,
            seal_quiet: Duration::ZERO,
            kept: None,
            summaries_kept: None,
            retention_pause: Duration::from_secs(60),
            settings_file: None,
            horizon: Duration::from_secs(3600),
            deletions: 1000,
            relabels: 256,
            dead_letters: PathBuf::from("dead-letters"),
            recent: 10,
            meta_bytes: 8 << 10,
            kinds: Kinds::default(),
            declares_indexes: false,
            copies_settle: Duration::from_secs(10),
            list_age: Duration::from_secs(5),
            sensor_interval: Duration::from_secs(60),
            outlier_ttl: Duration::from_secs(60),
            silent_after: Duration::ZERO,
            tail: TailOptions { clients: 4, ring_bytes: 64 << 10 },
            limits: Limits::default(),
            sensor_fields: 100,
            sensors: 1000,
            catalog_bytes: 16 << 20,
            databases: 10,
            token_databases: None,
            database_quota: Quota::default(),
            window: AcceptedTimes::default(),
            refuse_undeclared_units: true,
            drift: Drift::Reject,
            rejections: RejectionOptions {
                folder: PathBuf::from("rejections"),
                max_bytes: 0,
                keep: Duration::from_secs(3600),
                addresses: ShownAddresses::Full,
            },
        }
    }
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
