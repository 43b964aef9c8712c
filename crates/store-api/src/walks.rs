//! Walks through all documents exactly as stored, for the verifier. Nothing is recomputed: stored counts and summaries are
//! returned beside the readings, and an unreadable document is a value in the result.

use std::sync::Arc;

use async_trait::async_trait;

use super::Result;
use hourglass_model::bucket::day::{DayId, StoredDay};
use hourglass_model::bucket::readings::Reading;
use hourglass_model::bucket::stamps::StampOrder;
use hourglass_model::bucket::stored::SensorDocument;
use hourglass_model::bucket::summary::Figures;
use hourglass_model::reading::{Hour, Sensor};

/// A position in a walk. Only the store that returned it can interpret it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(pub Vec<u8>);

/// One step of a walk through all documents of a kind.
#[derive(Debug, Clone)]
pub struct WalkStep<T> {
    /// The documents found, in the order of the store's keys.
    pub found: Vec<T>,
    /// The start of the next step, or `None` at the end.
    pub next: Option<Cursor>,
}

impl<T> Default for WalkStep<T> {
    fn default() -> Self {
        Self { found: Vec::new(), next: None }
    }
}

/// All pages stored under one bucket's keys.
#[derive(Debug, Clone)]
pub struct RawBucket {
    /// The position of the bucket. A walk from here starts with this bucket.
    pub cursor: Cursor,
    /// The pages in key order; an unreadable page is an error.
    pub pages: Vec<Result<RawPage>>,
}

/// One page's document.
#[derive(Debug, Clone)]
pub struct RawPage {
    /// The page id from the store's key.
    pub key: String,
    /// True if the page is in the collection `overflow`; `None` for a store without that collection.
    pub in_overflow: Option<bool>,
    /// The stored `_id`.
    pub id: String,
    /// The id computed from the page's sensor, start and number.
    pub own_id: String,
    /// The stored sensor key.
    pub sensor_key: Box<str>,
    /// The sensor built from the stored measurement and tags.
    pub sensor: Arc<Sensor>,
    /// The stored start of the hour, in milliseconds since the epoch.
    pub start_ms: i64,
    /// The stored end of the hour, in milliseconds since the epoch.
    pub end_ms: i64,
    /// The page number within the bucket.
    pub number: u32,
    /// The revision, which every write increments.
    pub rev: u64,
    /// True if the page accepts no new timestamps.
    pub closed: bool,
    /// On page 0: true if the bucket has overflow pages, or is about to get one.
    pub has_overflow: bool,
    /// The stored number of readings; `None` if missing or not a number.
    pub count: Option<u64>,
    /// The stored time of the first reading, in milliseconds since the epoch.
    pub first_ms: Option<i64>,
    /// The stored time of the last reading, in milliseconds since the epoch.
    pub last_ms: Option<i64>,
    /// The readings in stored order.
    pub readings: Vec<Reading>,
    /// The stored summary per field; `None` if malformed.
    pub summary: Vec<(Arc<str>, Option<Figures>)>,
    /// The stored stamps, or the reason that they are unreadable.
    pub order: Result<StampOrder<'static>, String>,
}

impl RawPage {
    /// Returns the hour that contains the stored start.
    #[must_use]
    pub fn hour(&self) -> Hour {
        Hour::from_ms(self.start_ms)
    }
}

/// One sealed day's document.
#[derive(Debug, Clone)]
pub struct RawDay {
    /// The position of the day. A walk from here starts with this day.
    pub cursor: Cursor,
    /// The day's id from the store's key.
    pub key: String,
    /// The day, or the reason that it is unreadable.
    pub document: Result<DayDocument>,
}

/// A sealed day, with the mismatches within its document.
#[derive(Debug, Clone)]
pub struct DayDocument {
    /// The id computed from the stored sensor and start.
    pub id: DayId,
    /// The day.
    pub day: StoredDay,
    /// Fields whose stored value differs from what a write of these readings would store.
    pub mismatches: Vec<Mismatch>,
}

/// A field of a document that contradicts the readings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The name of the field.
    pub part: String,
    /// The value that a write would store.
    pub expected: String,
    /// The stored value.
    pub found: String,
}

/// One sensor's document.
#[derive(Debug, Clone)]
pub struct RawSensor {
    /// The sensor key from the store's key.
    pub key: String,
    /// The document, or the reason that it is unreadable.
    pub document: Result<SensorDocument>,
}

/// Walks through all stored documents, for checks.
#[async_trait]
pub trait WalkStore: Send + Sync {
    /// Reads whole buckets in key order from the cursor: about `pages_max` pages or a few megabytes, and at least one bucket
    /// unless none is left. The pages of a bucket come from one snapshot. An unreadable document is an error in the result
    /// and does not hide the others.
    async fn walk_buckets(
        &self,
        database: &str,
        start: Option<&Cursor>,
        pages_max: usize,
    ) -> Result<WalkStep<RawBucket>>;

    /// Reads at most `max` sensor documents in key order from the cursor.
    async fn walk_sensors(&self, database: &str, start: Option<&Cursor>, max: usize) -> Result<WalkStep<RawSensor>>;

    /// Reads at most `max` sealed days, or a few megabytes of them, in key order from the cursor.
    async fn walk_days(&self, database: &str, start: Option<&Cursor>, max: usize) -> Result<WalkStep<RawDay>>;

    /// Counts the parts of days whose form an older version wrote, for progress reports. `None` if only a walk can tell.
    ///
    /// # Errors
    /// [`StorageError::Newer`](super::StorageError::Newer) if a later version uses the database.
    async fn count_outdated_days(&self, database: &str) -> Result<Option<u64>>;

    /// Reads parts of days whose form an older version wrote, in key order from the cursor: at most `max`, or a few
    /// megabytes of them. Without a cursor, it begins where [`note_migrated`](Self::note_migrated) left off. A step can be
    /// empty and have a next one.
    async fn walk_outdated_days(&self, database: &str, start: Option<&Cursor>, max: usize) -> Result<WalkStep<RawDay>>;

    /// Notes that no part before the cursor has an older form; `None` for all parts. Does nothing in a store that finds
    /// such parts by an index.
    async fn note_migrated(&self, database: &str, end: Option<&Cursor>) -> Result<()>;

    /// Estimates the number of pages and sealed days in all databases, for progress reports.
    async fn estimate_pages(&self) -> Result<u64>;
}
