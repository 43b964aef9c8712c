//! Pages, which hold the readings of recent hours.

use std::ops::Range;

use async_trait::async_trait;

use super::{Result, StorageError};
use hourglass_model::bucket::Bucket;
use hourglass_model::bucket::page::StoredPage;
use hourglass_model::bucket::stored::{BucketId, Projection, ScannedPage};
use hourglass_model::reading::{Hour, Stamp};

/// Pages of one bucket that the store writes atomically. Nearly always a single page.
#[derive(Debug, Clone)]
pub struct PageWrite<'a> {
    /// The bucket's id.
    pub id: &'a BucketId,
    /// The bucket that contains the pages.
    pub bucket: &'a Bucket,
    /// Indexes of the pages within the bucket, from [`Bucket::next_writes`].
    pub group: Vec<usize>,
}

/// The outcome of one write.
#[derive(Debug, Clone, PartialEq)]
pub enum WriteOutcome {
    /// The write is durable: `{w: majority, j: true}` in MongoDB, an fsynced commit in the embedded store.
    Applied,
    /// The store holds another rev and wrote nothing. The caller reads, merges and writes again.
    Conflict,
    /// The write failed, or its outcome is unknown ([`StorageError::Unknown`]).
    Failed(StorageError),
}

impl WriteOutcome {
    /// Returns true if the write was applied, and false after a conflict.
    ///
    /// # Errors
    /// If the write failed, or its outcome is unknown.
    pub fn applied(self) -> Result<bool> {
        match self {
            Self::Applied => Ok(true),
            Self::Conflict => Ok(false),
            Self::Failed(error) => Err(error),
        }
    }
}

/// The result of a scan of one sensor's pages or days.
#[derive(Debug, Clone)]
pub struct ScanResult {
    /// The pages, in the scan's order. A scan of days returns one page per hour and part.
    pub pages: Vec<ScannedPage>,
    /// The hours that the scan did not reach. Empty if it covered its whole range.
    pub rest: Range<Hour>,
}

/// The time order of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From the earliest hour on.
    Ascending,
    /// From the latest hour back.
    Descending,
}

/// Limits of a scan's result.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// The scan stops after the hour that brings its result to this many pages.
    pub pages: usize,
    /// The scan stops after the hour that brings its result to this many bytes, by [`ScannedPage::bytes`].
    pub bytes: usize,
    /// A scan with readings fails with [`StorageError::HourTooLarge`] if one hour needs more bytes.
    pub hour_bytes: usize,
}

impl Extent {
    /// No limits.
    pub const ALL: Self = Self::pages(usize::MAX);

    /// Limits the number of pages. The last hour is returned whole, so a result can be larger.
    #[must_use]
    pub const fn pages(pages: usize) -> Self {
        Self { pages, bytes: usize::MAX, hour_bytes: usize::MAX }
    }
}

/// Pages, by database. Every method applies its own deadline.
#[async_trait]
pub trait PageStore: Send + Sync {
    /// Writes groups of pages, each by compare-and-set on the revs of its pages. Returns one outcome per group, in the
    /// order given. Groups succeed or fail independently.
    async fn write_pages(&self, database: &str, writes: &[PageWrite<'_>]) -> Vec<WriteOutcome>;

    /// Reads all pages of each bucket, in the order given. A bucket that is not stored has no pages. `ids` must be free of
    /// duplicates. The result contains every write that was confirmed before the call.
    ///
    /// If a bucket has more than `pages_max` pages, its pages come without readings ([`StoredPage::left_out`]). With 0, all
    /// pages do.
    async fn read_buckets(&self, database: &str, ids: &[BucketId], pages_max: usize) -> Result<Vec<Vec<StoredPage>>>;

    /// Reads pages of a bucket with their readings, in any order. Pages that are not stored are missing from the result. The
    /// pages may come from different snapshots, so compare their revs.
    async fn read_pages(&self, database: &str, id: &BucketId, numbers: &[u32]) -> Result<Vec<StoredPage>>;

    /// Reads pages of one sensor in `order`, until the end of `hours` or the extent is reached. Hours are never split, and
    /// the pages of an hour are in ascending order.
    async fn scan(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<ScanResult>;

    /// Reads all pages of several sensors in a range of hours. Returns, per sensor in the order given, its pages in hour
    /// order. Returns `None` if the stored pages exceed `bytes_max` bytes; call it again with fewer sensors.
    async fn scan_sensors(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>>;

    /// Removes page 0 of each bucket if the store still holds it with this rev and the bucket has no other page.
    async fn remove_single_pages(&self, database: &str, pages: &[(BucketId, u64)]) -> Result<()>;

    /// Lists the hours and sensors of stored buckets, in that order, after `start` and before the hour `end`: at most `max`
    /// of them.
    async fn next_buckets(
        &self,
        database: &str,
        start: &(Hour, String),
        end: Hour,
        max: usize,
    ) -> Result<Vec<(Hour, String)>>;

    /// Removes the buckets of these sensors and hours in which every stamp is below `limit`. An implementation can skip
    /// buckets of several pages; the caller deletes from those page by page. A failed call may have removed some buckets,
    /// and another call continues.
    async fn remove_buckets(&self, database: &str, sensors: &[&str], hours: Range<Hour>, limit: Stamp) -> Result<()>;
}
