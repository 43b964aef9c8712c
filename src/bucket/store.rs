//! The storage trait: all that ingest and queries ask of a store, declared beside the model.
//! Two stores implement it and pass one contract suite (`tests/it/store_contract.rs`).

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use super::kept::{Cursor, KeptBucket, KeptSensor, Walked};
use super::merge::Bucket;
use super::page::StoredPage;
use super::readings::{Reading, Readings};
use super::registry::Registry;
use super::summary::Summary;
use crate::reading::{Family, Hour, Sensor, Stamp};

/// Which bucket: a sensor and an hour.
#[derive(Debug, Clone, PartialEq)]
pub struct BucketId {
    /// Whose readings.
    pub sensor: Arc<Sensor>,
    /// Of which hour.
    pub hour: Hour,
}

/// Pages of one bucket to be written together or not at all: nearly always one page.
#[derive(Debug, Clone)]
pub struct PageWrite<'a> {
    /// Whose page.
    pub id: &'a BucketId,
    /// The bucket that holds the pages.
    pub bucket: &'a Bucket,
    /// Indexes into the bucket's pages, as [`Bucket::next_writes`] gave them.
    pub group: Vec<usize>,
}

/// What became of one write.
#[derive(Debug, Clone, PartialEq)]
pub enum Written {
    /// It is in the store, durably: `{w: majority, j: true}`, or an fsynced commit.
    Yes,
    /// Nothing was written: the store holds another rev. Read, merge, write again.
    Conflict,
    /// It was not written, or may have been: the error tells.
    Failed(StorageError),
}

/// Why a store did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// The store cannot be reached or has no primary; nothing was written.
    #[error("the store is unavailable: {detail}")]
    Unavailable {
        /// What was seen.
        detail: String,
    },
    /// The connection was cut, the deadline passed, or the primary changed under the command: it
    /// may have been applied. Resending is safe by the law.
    #[error("the store's answer is unknown: {detail}")]
    Unknown {
        /// What was seen.
        detail: String,
    },
    /// Other writers were faster again and again; it was not written.
    #[error("the document was changed by others again and again: {detail}")]
    Contended {
        /// Which document.
        detail: String,
    },
    /// Another transaction holds the document, or was faster; nothing was written. It passes: a
    /// transaction that nobody ends is ended by the store.
    #[error("the document is held by another transaction: {detail}")]
    Busy {
        /// What was seen.
        detail: String,
    },
    /// The store did not write this one document, for a reason that is not known here and may pass;
    /// nothing was written.
    #[error("the store failed to write the document: {detail}")]
    Failing {
        /// What was seen.
        detail: String,
    },
    /// The store will never take this document, by its content: it is too large, or its validator
    /// said no of this very document. No other failure is ever called a refusal.
    #[error("the store refused the document: {detail}")]
    Refused {
        /// What was seen.
        detail: String,
    },
    /// Credentials or rights are missing.
    #[error("the store denied access: {detail}")]
    Denied {
        /// What was seen.
        detail: String,
    },
    /// The store answered, and what it said is about this database's collections: they are not what they
    /// should be, or cannot be used at present. Of a write a part may have been applied.
    #[error("the store failed on this database: {detail}")]
    Database {
        /// What was seen.
        detail: String,
    },
    /// A document is damaged, or of a schema version this program does not know.
    #[error("unreadable document {id}: {detail}")]
    Unreadable {
        /// Its id.
        id: String,
        /// What is wrong with it.
        detail: String,
    },
}

impl StorageError {
    /// Whether it is the store that fails, or a database of it, and not the document: the next command to
    /// this database would most likely fail too.
    #[must_use]
    pub fn is_away(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Unknown { .. } | Self::Denied { .. } | Self::Database { .. } => true,
            Self::Contended { .. }
            | Self::Busy { .. }
            | Self::Failing { .. }
            | Self::Refused { .. }
            | Self::Unreadable { .. } => false,
        }
    }

    /// Whether only others who write at the same time are in the way, which passes by itself.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Contended { .. } | Self::Busy { .. })
    }

    /// Whether the store itself cannot be reached, and with it none of its databases. Of anything else only
    /// this is known, that one database met it: a deadline may be missed because one collection is locked.
    #[must_use]
    pub fn is_of_store(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// The metric label of the class.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "unavailable",
            Self::Unknown { .. } => "unknown",
            Self::Contended { .. } => "contended",
            Self::Busy { .. } => "busy",
            Self::Failing { .. } => "failing",
            Self::Refused { .. } => "refused",
            Self::Denied { .. } => "denied",
            Self::Database { .. } => "database",
            Self::Unreadable { .. } => "unreadable",
        }
    }
}

/// A page as a query reads it.
#[derive(Debug, Clone)]
pub struct ScannedPage {
    /// Of which hour.
    pub hour: Hour,
    /// 0 in `buckets`, 1 and up in `overflow`.
    pub number: u32,
    /// The stored summary per numeric field.
    pub summary: Vec<(Arc<str>, Summary)>,
    /// What a deletion's stamp must be above to cover any of its cells.
    pub oldest: Stamp,
    /// The readings; `None` when only summaries were asked for.
    pub readings: Option<Readings>,
}

impl ScannedPage {
    /// What an [`Extent`] counts for a page of so many bytes as they are stored: these, or where its readings take more
    /// than [`GROWTH`] times as much in memory, as do those of a few cells in many columns, that part of it.
    #[must_use]
    pub fn bytes(&self, stored: usize) -> usize {
        stored.max(self.readings.as_ref().map_or(0, Readings::memory) / GROWTH)
    }
}

/// Bytes of memory that a byte of readings, as stored, mostly becomes while it is looked at.
pub const GROWTH: usize = 4;

/// What a scan of one sensor came to.
#[derive(Debug, Clone)]
pub struct Scanned {
    /// In the scan's order.
    pub pages: Vec<ScannedPage>,
    /// The hours that it did not come to: none where there was no page.
    pub rest: Range<Hour>,
}

/// What of each page a scan gives.
#[derive(Debug, Clone)]
pub struct Projection {
    /// Whether with readings, or summaries alone.
    pub readings: bool,
    /// Columns and summaries of these fields alone; of all without.
    pub fields: Option<Arc<[Arc<str>]>>,
}

impl Projection {
    /// Everything.
    pub const ALL: Self = Self { readings: true, fields: None };
    /// The summaries of all fields.
    pub const SUMMARIES: Self = Self { readings: false, fields: None };

    /// Which pages there are, without any field.
    #[must_use]
    pub fn places() -> Self {
        Self { readings: false, fields: Some(Arc::new([])) }
    }

    /// What it leaves of a page's readings.
    #[must_use]
    pub fn of(&self, mut readings: Readings) -> Readings {
        if let Some(fields) = &self.fields {
            readings.keep(|name| fields.iter().any(|field| **field == *name));
        }
        readings
    }

    /// Whether it has a field.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.fields.as_ref().is_none_or(|fields| fields.iter().any(|field| **field == *name))
    }
}

/// How much a scan gives at a time.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// It stops after the hour that brings it to so many pages,
    pub pages: usize,
    /// or to so many bytes, as [`ScannedPage::bytes`] counts them.
    pub bytes: usize,
}

impl Extent {
    /// No end but that of the hours.
    pub const ALL: Self = Self::pages(usize::MAX);

    /// So many pages, however large.
    #[must_use]
    pub const fn pages(pages: usize) -> Self {
        Self { pages, bytes: usize::MAX }
    }
}

/// What a sensor's document says.
#[derive(Debug, Clone, PartialEq)]
pub struct SensorDocument {
    /// Whose.
    pub sensor: Arc<Sensor>,
    /// The rev the store holds, 0 for a document never stored; a write goes through only if it
    /// still does, and then makes it one more.
    pub rev: u64,
    /// Field names and the family of their values, in the order they were first seen.
    pub fields: Vec<(Arc<str>, Family)>,
    /// The earliest reading's time, in nanoseconds.
    pub first_seen: Option<i64>,
    /// The latest reading's time, in nanoseconds.
    pub last_seen: Option<i64>,
    /// The latest readings, in time order, at most `sensors.recent` of them (MongoDB's Subset
    /// pattern). The last of them is the sensor's latest reading.
    pub recent: Vec<Reading>,
    /// Set while the sensor outgrows its pages.
    pub outlier: Option<Outlier>,
}

/// MongoDB's Outlier pattern: a sensor whose hour outgrew one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlier {
    /// When it was first seen to, by the clock, in nanoseconds.
    pub since: i64,
    /// When it last was, by the clock, in nanoseconds.
    pub seen: i64,
    /// The latest hour of readings that took more than one page.
    pub last_hour: Hour,
    /// Pages of that hour.
    pub pages: u32,
}

/// Which sensors to list.
#[derive(Debug, Clone, Default)]
pub struct SensorFilter {
    /// Only keys after this one.
    pub after: Option<String>,
    /// Only sensors with an outlier mark.
    pub outliers: bool,
    /// At most so many.
    pub limit: usize,
}

/// A store of pages and sensor documents, by database. Every method has a deadline of its own.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Writes pages, each group by compare-and-set on the revs its pages know. On return every
    /// group has its own outcome, in the order given; groups are independent of each other.
    async fn write_pages(&self, database: &str, writes: &[PageWrite<'_>]) -> Vec<Written>;

    /// All pages of these buckets, per bucket in the order given; none for a bucket not stored.
    /// No bucket is asked for twice in one call.
    /// What a write was confirmed for before the call is in it.
    async fn read_buckets(&self, database: &str, ids: &[BucketId]) -> Result<Vec<Vec<StoredPage>>, StorageError>;

    /// Pages of one sensor in hour order, all pages of an hour together, from `hours.start` on
    /// and before `hours.end`, as far as the extent goes. Returns whole hours only.
    async fn scan(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned, StorageError>;

    /// As [`Store::scan`], from the hour before `hours.end` back to `hours.start`: hours in falling order, the pages
    /// of an hour together and in rising order.
    async fn scan_back(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned, StorageError>;

    /// All pages of several sensors in a range of hours, per sensor in the order given and each in hour
    /// order, as [`Store::scan`] gives them. `None` where they have more than `bytes_max` bytes, as they are
    /// stored: the caller asks for fewer sensors then.
    async fn scan_sensors(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>, StorageError>;

    /// The documents of those of these sensors that have one, in any order.
    async fn read_sensors(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorDocument>, StorageError>;

    /// Sensor documents in key order.
    async fn list_sensors(&self, database: &str, filter: &SensorFilter) -> Result<Vec<SensorDocument>, StorageError>;

    /// Writes sensor documents, each by compare-and-set on its rev; outcomes in the order given.
    async fn write_sensors(&self, database: &str, documents: &[SensorDocument]) -> Vec<Written>;

    /// The databases, in name order.
    async fn databases(&self) -> Result<Vec<String>, StorageError>;

    /// Makes the database known. On return it is listed; doing it twice changes nothing.
    async fn create_database(&self, database: &str) -> Result<(), StorageError>;

    /// Removes whole buckets of these sensors and hours in which every cell is older than a stamp; those of several pages
    /// may be left to be cut page by page. What a failed call has removed is gone; calling again goes on.
    async fn remove_buckets(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        before: Stamp,
    ) -> Result<(), StorageError>;

    /// Removes these sensors' documents, where there are any.
    async fn remove_sensors(&self, database: &str, keys: &[&str]) -> Result<(), StorageError>;

    /// Removes everything of a database, which is not listed any more, whatever others write to it meanwhile.
    async fn drop_database(&self, database: &str) -> Result<(), StorageError>;

    /// Lists a database no more; what is left in it stays.
    async fn unlist_database(&self, database: &str) -> Result<(), StorageError>;

    /// What the members of the store have agreed on; an empty one where nobody has yet.
    async fn read_registry(&self) -> Result<Registry, StorageError>;

    /// Writes it by compare-and-set on its rev, which grows by one.
    async fn write_registry(&self, registry: &Registry) -> Written;

    /// The store's clock in milliseconds since the epoch; `None` where it has none of its own.
    async fn clock_ms(&self) -> Result<Option<u64>, StorageError> {
        Ok(None)
    }

    /// Looks at a database anew from which another process has deleted something.
    async fn revisit(&self, _database: &str) -> Result<(), StorageError> {
        Ok(())
    }

    /// Whole buckets as they lie in the store, in the order of its keys, from a cursor on: about
    /// `pages_max` pages or a few megabytes, and at least one bucket while there is one. The pages
    /// of a bucket are of one moment. A document that cannot be read hides no other.
    async fn walk_buckets(
        &self,
        database: &str,
        from: Option<&Cursor>,
        pages_max: usize,
    ) -> Result<Walked<KeptBucket>, StorageError>;

    /// As [`Store::walk_buckets`], for at most `max` sensors' documents.
    async fn walk_sensors(
        &self,
        database: &str,
        from: Option<&Cursor>,
        max: usize,
    ) -> Result<Walked<KeptSensor>, StorageError>;

    /// About how many pages there are in all databases, so that a walk can tell how far it is.
    async fn estimate_pages(&self) -> Result<u64, StorageError>;

    /// Whether other processes may write to it at the same time. If so, what is known of a page
    /// from before proves nothing until a compare-and-set or a read confirms it.
    fn is_shared(&self) -> bool;

    /// Whether the store answers.
    async fn check(&self) -> Result<(), StorageError>;

    /// Ends the connection, or closes the file. Nothing is asked of the store afterwards.
    async fn close(&self);
}
