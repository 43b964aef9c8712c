//! Pages and sensor documents exactly as stored, for the verifier: every stored statement about the readings is kept
//! beside them, nothing is recomputed, and unreadable parts are values instead of errors.

use std::sync::Arc;

use async_trait::async_trait;

use super::Result;
use hourglass_model::bucket::day::{DayId, StoredDay};
use hourglass_model::bucket::readings::Reading;
use hourglass_model::bucket::stamps::StampOrder;
use hourglass_model::bucket::stored::SensorDocument;
use hourglass_model::bucket::summary::Figures;
use hourglass_model::reading::{Hour, Sensor};

/// A position among a store's keys, meaningful only to the store that returned it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(pub Vec<u8>);

/// One step of a walk through all documents of a kind.
#[derive(Debug, Clone)]
pub struct Walked<T> {
    /// The documents found, in the order of the store's keys.
    pub found: Vec<T>,
    /// Where the next step starts; `None` at the end.
    pub next: Option<Cursor>,
}

impl<T> Default for Walked<T> {
    fn default() -> Self {
        Self { found: Vec::new(), next: None }
    }
}

/// All pages stored under one bucket's keys.
#[derive(Debug, Clone)]
pub struct RawBucket {
    /// The bucket's position: a walk from here returns it again.
    pub from: Cursor,
    /// The pages in key order; an unreadable page is an error.
    pub pages: Vec<Result<RawPage>>,
}

/// One page's document.
#[derive(Debug, Clone)]
pub struct RawPage {
    /// The page id according to the store's key.
    pub key: String,
    /// Whether the page is in the collection `overflow`; `None` for a store without one.
    pub in_overflow: Option<bool>,
    /// The stored `_id`.
    pub id: String,
    /// The id that follows from the page's sensor, start and number.
    pub own_id: String,
    /// The stored sensor key.
    pub sensor_key: Box<str>,
    /// The sensor according to the stored measurement and tags.
    pub sensor: Arc<Sensor>,
    /// The stored start of the hour, in milliseconds since the epoch.
    pub start_ms: i64,
    /// The stored end of the hour, in milliseconds since the epoch.
    pub end_ms: i64,
    /// The page number within the bucket.
    pub number: u32,
    /// The revision; grows by one with every write.
    pub rev: u64,
    /// Whether the page is closed to new timestamps.
    pub closed: bool,
    /// On page 0: whether the bucket has, or is about to have, further pages.
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
    /// The stored stamps; an error text if they are unreadable.
    pub order: Result<StampOrder<'static>, String>,
}

impl RawPage {
    /// The hour that contains the stored start.
    #[must_use]
    pub fn hour(&self) -> Hour {
        Hour::of_ms(self.start_ms)
    }
}

/// One sealed day's document.
#[derive(Debug, Clone)]
pub struct RawDay {
    /// The day's position: a walk from here returns it again.
    pub from: Cursor,
    /// The day's id according to the store's key.
    pub key: String,
    /// The day, or why it cannot be read.
    pub document: Result<DayDocument>,
}

/// A sealed day, and what its document says of it.
#[derive(Debug, Clone)]
pub struct DayDocument {
    /// The day's id, by the stored sensor and start.
    pub id: DayId,
    /// The day.
    pub day: StoredDay,
    /// What a write of these readings would store otherwise.
    pub differs: Vec<StoredOtherwise>,
}

/// A part of a document that contradicts the readings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredOtherwise {
    /// The name of the part.
    pub part: String,
    /// What a write would store.
    pub expected: String,
    /// What is stored.
    pub found: String,
}

/// One sensor's document.
#[derive(Debug, Clone)]
pub struct RawSensor {
    /// The sensor key according to the store's key.
    pub key: String,
    /// The document, or why it is unreadable.
    pub document: Result<SensorDocument>,
}

/// Everything that is stored, as it is stored, for checks.
#[async_trait]
pub trait WalkStore: Send + Sync {
    /// Reads whole buckets exactly as stored, in key order, starting at the cursor: about `pages_max` pages or a few
    /// megabytes, and at least one bucket unless none is left. The pages of a bucket come from one snapshot. An
    /// unreadable document is an error of its own and does not hide others.
    async fn walk_buckets(&self, database: &str, from: Option<&Cursor>, pages_max: usize) -> Result<Walked<RawBucket>>;

    /// Like [`WalkStore::walk_buckets`], for at most `max` sensor documents.
    async fn walk_sensors(&self, database: &str, from: Option<&Cursor>, max: usize) -> Result<Walked<RawSensor>>;

    /// Like [`WalkStore::walk_sensors`], for at most `max` sealed days, or a few megabytes of them.
    async fn walk_days(&self, database: &str, from: Option<&Cursor>, max: usize) -> Result<Walked<RawDay>>;

    /// The approximate number of pages and sealed days in all databases; a walk reports its progress with it.
    async fn estimate_pages(&self) -> Result<u64>;
}
