//! Pages of hours.

use std::ops::Range;

use async_trait::async_trait;

use super::{Result, StorageError};
use hourglass_model::bucket::Bucket;
use hourglass_model::bucket::page::StoredPage;
use hourglass_model::bucket::stored::{BucketId, Projection, ScannedPage};
use hourglass_model::reading::{Hour, Stamp};

/// Pages of one bucket that the store writes all or none of: nearly always one page.
#[derive(Debug, Clone)]
pub struct PageWrite<'a> {
    /// The bucket's id.
    pub id: &'a BucketId,
    /// The bucket that holds the pages.
    pub bucket: &'a Bucket,
    /// Indexes into the bucket's pages, as [`Bucket::next_writes`] gave them.
    pub group: Vec<usize>,
}

/// The outcome of one write.
#[derive(Debug, Clone, PartialEq)]
pub enum Written {
    /// The write is durable: `{w: majority, j: true}` in MongoDB, an fsynced commit in the embedded store.
    Yes,
    /// The store holds another rev and wrote nothing. The caller reads, merges and writes again.
    Conflict,
    /// The write failed, or its outcome is unknown ([`StorageError::Unknown`]).
    Failed(StorageError),
}

impl Written {
    /// Returns false after a conflict.
    ///
    /// # Errors
    /// If the write failed, or its outcome is unknown.
    pub fn applied(self) -> Result<bool> {
        match self {
            Self::Yes => Ok(true),
            Self::Conflict => Ok(false),
            Self::Failed(error) => Err(error),
        }
    }
}

/// The result of a scan of one sensor's pages or days.
#[derive(Debug, Clone)]
pub struct Scanned {
    /// The pages, in the scan's order; of days, a page per hour and part.
    pub pages: Vec<ScannedPage>,
    /// The hours not scanned yet; empty once the scan has covered its whole range.
    pub rest: Range<Hour>,
}

/// In which order a scan goes through time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From the earliest hour on.
    Ascending,
    /// From the latest hour back.
    Descending,
}

/// How much a scan returns in one call.
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
    /// No bound.
    pub const ALL: Self = Self::pages(usize::MAX);

    /// At most `pages` pages (the last hour is returned whole), of any size.
    #[must_use]
    pub const fn pages(pages: usize) -> Self {
        Self { pages, bytes: usize::MAX, hour_bytes: usize::MAX }
    }
}

/// Pages of hours, by database. Every method applies its own deadline.
#[async_trait]
pub trait PageStore: Send + Sync {
    /// Writes pages, each group by compare-and-set on the revs of its pages. Returns one outcome per group, in the
    /// order given; groups succeed or fail independently.
    async fn write_pages(&self, database: &str, writes: &[PageWrite<'_>]) -> Vec<Written>;

    /// Reads all pages of each bucket, in the order given; no pages for a bucket that is not stored. `ids` holds no
    /// duplicates. The result contains every write confirmed before the call. Of a bucket with more than `pages_max`
    /// pages, the readings of all pages are left out ([`StoredPage::left_out`]); with 0, of every bucket.
    async fn read_buckets(&self, database: &str, ids: &[BucketId], pages_max: usize) -> Result<Vec<Vec<StoredPage>>>;

    /// Reads these pages of a bucket with their readings, in any order; those that are not stored are missing in the
    /// result. The pages may be from different moments: their revs tell.
    async fn read_pages(&self, database: &str, id: &BucketId, numbers: &[u32]) -> Result<Vec<StoredPage>>;

    /// Reads pages of one sensor in this order of hours, starting at one end of `hours`, until the other end or the extent is
    /// reached. Returns whole hours only, all pages of an hour together and in ascending order.
    async fn scan(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned>;

    /// Reads all pages of several sensors in a range of hours: per sensor in the order given, each in hour order like
    /// [`PageStore::scan`]. Returns `None` if the stored pages exceed `bytes_max` bytes; the caller then asks for fewer
    /// sensors.
    async fn scan_sensors(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>>;

    /// Removes page 0 of those buckets that the store still holds with this rev, and that have no other page.
    async fn remove_single_pages(&self, database: &str, pages: &[(BucketId, u64)]) -> Result<()>;

    /// The hours and sensors of stored buckets after one of them and before an hour, in that order: at most `most`.
    async fn next_buckets(
        &self,
        database: &str,
        from: &(Hour, String),
        until: Hour,
        most: usize,
    ) -> Result<Vec<(Hour, String)>>;

    /// Removes the buckets of these sensors and hours in which every cell's stamp is below `before`. An implementation
    /// may leave out buckets of several pages; the caller cuts those page by page. A failed call may have removed some
    /// buckets; calling again continues.
    async fn remove_buckets(&self, database: &str, sensors: &[&str], hours: Range<Hour>, before: Stamp) -> Result<()>;
}
