//! How ingest is set up: plain values that the config resolves to.

use std::time::Duration;

use crate::bucket::Caps;
use crate::reading::Limits;

/// How ingest is set up. From the config sections `[ingest]`, `[page]`, `[hot]`, `[sensors]` and
/// `[limits]`.
#[derive(Debug, Clone)]
pub struct Options {
    /// Workers; each sensor belongs to one.
    pub shards: usize,
    /// How long a shard waits for more before it writes.
    pub linger: Duration,
    /// Most bytes of requests, as the bytes in flight count them, in one group of page writes, per shard.
    pub group_bytes: usize,
    /// Most bytes of request bodies, and of the batches made of them, admitted and not yet acked.
    pub bytes_in_flight: usize,
    /// Most batches that wait before one shard.
    pub queue: usize,
    /// Longest wait of a request for its ack.
    pub ack_timeout: Duration,
    /// When a page is full.
    pub caps: Caps,
    /// Memory for hot buckets, all shards together.
    pub hot_bytes: usize,
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
}

impl Options {
    /// [`Options::outlier_ttl`] in nanoseconds.
    #[must_use]
    pub fn outlier_ttl_ns(&self) -> i64 {
        i64::try_from(self.outlier_ttl.as_nanos()).unwrap_or(i64::MAX)
    }
}
