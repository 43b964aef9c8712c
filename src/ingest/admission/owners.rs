//! The seam to the other instances of a cluster: the owners of sensors take their writes, and complete answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::bytes_in_flight::BytesInFlight;
use super::in_validation::RequestGuard;
use crate::bucket::{SensorDocument, StorageError, UnflushedError};
use crate::buffer::record::batch::Batch;
use crate::catalog::{Claims, Database};
use crate::config::AckLevel;
use crate::ingest::error::IngestError;
use crate::reading::Stamp;

/// The claims of a request that is logged in several records, until the first of them is.
pub(crate) type SharedClaims = Arc<Mutex<Option<Claims>>>;

/// Readings on their way into the WAL.
pub(crate) struct QueuedReadings {
    pub database: Arc<Database>,
    pub batches: Vec<Batch>,
    /// The encoded record.
    pub record: Vec<u8>,
    /// The time of receipt, in nanoseconds since the epoch.
    pub received: i64,
    /// The memory of the batches, in bytes.
    pub memory: usize,
    /// The new fields of the request, which become firm before its readings reach a shard.
    pub claims: SharedClaims,
    /// Receives the outcome once the readings are stored.
    pub waiter: Option<oneshot::Sender<Result<(), StorageError>>>,
}

/// Returns true for the key of a sensor that belongs on a page of a list.
pub(crate) type OnPage<'a> = &'a (dyn Fn(&str) -> bool + Sync);

/// Takes the writes of this instance to the owners of their sensors (`cluster`).
#[async_trait]
pub(crate) trait Owners: Send + Sync {
    /// Returns true if other instances own some of these sensors.
    fn are_others(&self, database: &str, batches: &[Batch]) -> bool;

    /// Logs the readings at their owners, and here what this instance owns. Returns once `level` is reached.
    async fn write(&self, readings: OwnedReadings, level: AckLevel) -> Result<(), IngestError>;

    /// Adds to documents of sensors what others have not stored, and the sensors of others that are on the page.
    async fn complete(
        &self,
        database: &str,
        documents: &mut BTreeMap<Box<str>, SensorDocument>,
        on_page: Option<OnPage<'_>>,
    ) -> Result<(), UnflushedError>;

    /// Asks the others to store what they have acked. Returns false if they have not within this time.
    async fn flush_others(&self, timeout: Duration) -> bool;

    /// Returns true until the deadline of a request that was read now: afterwards its record must not be written.
    fn write_condition(&self) -> Box<dyn Fn(Stamp) -> bool + Send>;
}

/// A validated request for [`Owners::write`].
pub(crate) struct OwnedReadings {
    pub database: Arc<Database>,
    pub batches: Vec<Batch>,
    pub claims: Claims,
    pub received: i64,
    /// Held until the request is answered.
    pub admission: BytesInFlight,
    /// Held until all its readings are logged.
    pub guard: RequestGuard,
}
