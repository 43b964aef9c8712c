//! The storage trait that ingest and queries use. Two stores (MongoDB and embedded) implement it and pass one contract
//! suite (`tests/it/store_contract.rs`).

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use smallvec::SmallVec;

use super::copies::{CopiesRefreshed, CopyScope, HeldCopies};
use super::day::{DayId, DayPart, DayWrite, StoredDay, by_hour};
use super::groups::Regrouped;
use super::merge::Bucket;
use super::meta::Meta;
use super::page::StoredPage;
use super::raw::{Cursor, OtherForms, RawBucket, RawDay, RawSensor, Walked};
use super::readings::{Reading, Readings};
use super::registry::MemberRegistry;
use super::settings::DatabaseSettings;
use super::summary::Summary;
use super::totals::{MonthId, MonthWrite, StoredMonth};
use crate::reading::time::{MILLI_NS, write_seconds};
use crate::reading::{Day, Family, Hour, Month, Sensor, Stamp};

/// Identifies a bucket: a sensor and an hour.
#[derive(Debug, Clone, PartialEq)]
pub struct BucketId {
    /// The sensor whose readings the bucket holds.
    pub sensor: Arc<Sensor>,
    /// The hour that the readings lie in.
    pub hour: Hour,
}

/// What the `_id` of every page of a bucket begins with: the hour and the sensor. Hours have four-digit years, so these
/// sort by time.
#[must_use]
pub fn bucket_name(sensor: &str, hour: Hour) -> String {
    let mut name = String::with_capacity("2026-01-15T14:00:00".len() + sensor.len() + 4);
    // From seconds: the first hour starts before the range of i64 nanoseconds.
    write_seconds(&mut name, hour.start_ms().div_euclid(1000));
    name.truncate("2026-01-15T14".len());
    name.push(' ');
    name.push_str(sensor);
    name
}

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

/// Why a store operation failed. The text goes to clients and into the log: what happened, then what to do. It names no
/// host, user or database of the store, and nothing of what its driver said beyond a code and a short message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// The store is unreachable or has no primary; nothing was written.
    #[error("the store is unavailable: {detail}; retry later, and look at the store if it lasts")]
    Unavailable {
        /// The cause.
        detail: String,
    },
    /// The connection broke, the deadline passed, or the primary changed during the command, which may have been
    /// applied. Sending it again is safe, because merging is idempotent.
    #[error("the store did not confirm the command: {detail}; retry: sending it again is safe")]
    Unknown {
        /// The cause.
        detail: String,
    },
    /// Every attempt lost the compare-and-set to another writer; nothing was written.
    #[error("the document was not written, because other writers kept changing it: {detail}; retry later")]
    Contended {
        /// The document.
        detail: String,
    },
    /// Readings expired while they were read piece by piece.
    #[error("readings of {id} expired while they were read: read them again")]
    ReadAgain {
        /// The sensor's key.
        id: String,
    },
    /// Another transaction has locked the document or committed first; nothing was written. The condition is
    /// temporary: MongoDB aborts transactions that nobody commits.
    #[error("the document is locked by another transaction: {detail}; retry later")]
    Busy {
        /// The cause.
        detail: String,
    },
    /// The store did not write this one document, for an unrecognized and possibly temporary reason; nothing was
    /// written.
    #[error(
        "the store failed to write the document: {detail}; it is tried again, and until then the WAL keeps the readings"
    )]
    Failing {
        /// The cause.
        detail: String,
    },
    /// The store permanently refuses this document because of its content: the document is too large, or the
    /// collection's validator rejected it. No other failure may be reported as this variant: refused readings go to
    /// the dead letters.
    #[error("the store refused the document: {detail}; look at the dead letters (GET /api/v1/dead-letters)")]
    Refused {
        /// The cause.
        detail: String,
    },
    /// The store answers, and cannot be used as it is configured. Only an operator can mend this.
    #[error("store: {cause}; {}", cause.advice())]
    Unusable {
        /// What is wrong.
        cause: Unusable,
        /// Who was refused, where, and what the store said: for the operator only.
        detail: String,
    },
    /// The store's address is not one that can be used.
    #[error("store.uri: {detail}; correct the address (see docs/configuration.md)")]
    Address {
        /// What is wrong with it, without the address itself.
        detail: String,
    },
    /// The store reported that this database's collections are not as expected, or are not usable at present. A write
    /// may have been applied in part.
    #[error("the store failed on this database: {detail}; mend its collections, until then the WAL keeps the readings")]
    Database {
        /// The cause.
        detail: String,
    },
    /// An hour of the sensor is larger than [`Extent::hour_bytes`].
    #[error("one hour of a sensor has more than {limit} bytes of readings")]
    HourTooLarge {
        /// The bytes that the scan may need per hour.
        limit: usize,
        /// The hour.
        hour: Hour,
    },
    /// A document is damaged.
    #[error("unreadable document {id}: {detail}; hourglass verify checks all of them")]
    Unreadable {
        /// The document's id.
        id: String,
        /// What is wrong with the document.
        detail: String,
    },
    /// A document has a form that only a later version of this program knows. It is neither changed nor removed, and what
    /// needs it waits.
    #[error(
        "document {id} was written by a newer version of hourglass: {detail}; start that version here too, and until then \
         what needs the document waits"
    )]
    Newer {
        /// The document's id.
        id: String,
        /// Which form it has, and which this program knows.
        detail: String,
    },
}

/// Why a store that answers cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// The user may not do what hourglass needs, or no user is named where one is needed.
    NotAuthorised,
    /// The store does not know the user, or the password is another one.
    WrongCredentials,
    /// A standalone server, or a replica set of another name.
    NotReplicaSet,
    /// A version without the transactions and snapshots that hourglass needs.
    TooOld,
}

impl Unusable {
    /// The class as people and `/health` know it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotAuthorised => "not authorised",
            Self::WrongCredentials => "wrong credentials",
            Self::NotReplicaSet => "not a replica set",
            Self::TooOld => "too old",
        }
    }

    /// What the operator is to do.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::NotAuthorised => "name a user in store.uri that has the role readWrite on its database",
            Self::WrongCredentials => "correct user, password and authSource in store.uri",
            Self::NotReplicaSet => {
                "start mongod with --replSet (one node is enough) and name the same set in store.uri (replicaSet=)"
            }
            Self::TooOld => "use MongoDB 5.0 or newer",
        }
    }
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl StorageError {
    /// Whether the store or one of its databases fails, and not the document alone: the next command to this database
    /// would most likely fail too.
    #[must_use]
    pub fn is_away(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Unknown { .. } | Self::Unusable { .. } | Self::Database { .. } => true,
            Self::Contended { .. }
            | Self::Busy { .. }
            | Self::ReadAgain { .. }
            | Self::Failing { .. }
            | Self::Refused { .. }
            | Self::Address { .. }
            | Self::HourTooLarge { .. }
            | Self::Unreadable { .. }
            | Self::Newer { .. } => false,
        }
    }

    /// Whether one document cannot be read, now or ever: its neighbours can.
    #[must_use]
    pub fn is_of_document(&self) -> bool {
        matches!(self, Self::Unreadable { .. } | Self::Newer { .. })
    }

    /// Whether the cause is only a concurrent writer: a retry succeeds in time.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Contended { .. } | Self::Busy { .. } | Self::ReadAgain { .. })
    }

    /// Whether the whole store is unreachable, and not just one database. Every other error may concern one database
    /// only: a deadline, for example, may pass because one collection is locked.
    #[must_use]
    pub fn is_of_store(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// The value of the metric label `class`.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "unavailable",
            Self::Unknown { .. } => "unknown",
            Self::Contended { .. } => "contended",
            Self::Busy { .. } | Self::ReadAgain { .. } => "busy",
            Self::Failing { .. } => "failing",
            Self::Refused { .. } => "refused",
            Self::Unusable { cause: Unusable::NotAuthorised | Unusable::WrongCredentials, .. } => "denied",
            Self::Unusable { cause: Unusable::NotReplicaSet | Unusable::TooOld, .. } => "unsupported",
            Self::Address { .. } => "address",
            Self::Database { .. } => "database",
            Self::HourTooLarge { .. } => "large",
            Self::Unreadable { .. } => "unreadable",
            Self::Newer { .. } => "newer",
        }
    }
}

/// The summaries of a page, by field. Most questions are about one: it takes no memory of its own, which another thread would
/// have to free.
pub type PageSummaries = SmallVec<[(Arc<str>, Summary); 1]>;

/// A page as a scan returns it to a query.
#[derive(Debug, Clone)]
pub struct ScannedPage {
    /// The bucket's hour.
    pub hour: Hour,
    /// The page number: 0 in the collection `buckets`, 1 and up in `overflow`.
    pub number: u32,
    /// The stored summary per numeric field.
    pub summary: PageSummaries,
    /// A lower bound of the cells' stamps: only a deletion with a greater stamp can cover any cell.
    pub oldest: Stamp,
    /// The readings; `None` if the projection asks for summaries only.
    pub readings: Option<Readings>,
    /// Whether its readings have expired, so that nothing can be added to its summaries.
    pub is_expired: bool,
}

impl ScannedPage {
    /// The bytes that an [`Extent`] counts for a page whose stored form takes `stored` bytes: `stored`, or the memory
    /// of its readings divided by [`GROWTH`] where that is more (readings with few cells in many columns).
    #[must_use]
    pub fn bytes(&self, stored: usize) -> usize {
        stored.max(self.readings.as_ref().map_or(0, Readings::memory) / GROWTH)
    }
}

/// Bytes of memory that one stored byte of readings typically takes once it is decoded.
pub const GROWTH: usize = 4;

/// The result of a scan of one sensor.
#[derive(Debug, Clone)]
pub struct Scanned {
    /// The pages, in the scan's order.
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

/// The result of a scan of one sensor's days.
#[derive(Debug, Clone)]
pub struct DaysScanned {
    /// A page per hour and part, in the scan's order.
    pub pages: Vec<ScannedPage>,
    /// The hours not scanned yet; empty once the scan has covered its whole range.
    pub rest: Range<Hour>,
}

/// Which parts of each page a scan returns.
#[derive(Debug, Clone)]
pub struct Projection {
    /// Whether the scan returns readings; without them it returns summaries only.
    pub readings: bool,
    /// The fields whose columns and summaries are returned; `None` for all fields.
    pub fields: Option<Arc<[Arc<str>]>>,
    /// A scan with readings may leave out pages that have none of these times, in nanoseconds. The pages that it
    /// returns are whole.
    pub times: Range<i64>,
    /// Whether counts and sums are all that is asked of summaries. Their other figures may then be anything: a store that can pass
    /// over them does not decode them.
    pub only_sums: bool,
}

impl Projection {
    /// All readings and all summaries.
    pub const ALL: Self = Self { readings: true, fields: None, times: i64::MIN..i64::MAX, only_sums: false };
    /// The summaries of all fields.
    pub const SUMMARIES: Self = Self { readings: false, ..Self::ALL };

    /// No field at all: the scan only tells which pages exist.
    #[must_use]
    pub fn places() -> Self {
        Self { fields: Some(Arc::new([])), ..Self::SUMMARIES }
    }

    /// The same with names of its own: threads that count references to one name wait for each other.
    #[must_use]
    pub fn apart(&self) -> Self {
        let apart = |fields: &Arc<[Arc<str>]>| fields.iter().map(|name| Arc::from(&**name)).collect();
        Self { fields: self.fields.as_ref().map(apart), ..self.clone() }
    }

    /// The projected times in whole milliseconds since the epoch, both included; `None` if a scan leaves out no page.
    #[must_use]
    pub fn span_ms(&self) -> Option<(i64, i64)> {
        let is_all = self.times.start == i64::MIN && self.times.end == i64::MAX;
        let ms = |time: i64| time.div_euclid(MILLI_NS);
        (self.readings && !is_all).then(|| (ms(self.times.start), ms(self.times.end.saturating_sub(1))))
    }

    /// Reduces a page's readings to the projected fields.
    #[must_use]
    pub fn of(&self, mut readings: Readings) -> Readings {
        if let Some(fields) = &self.fields {
            readings.keep(|name| fields.iter().any(|field| **field == *name));
        }
        readings
    }

    /// The hours of a part's readings that lie in a range, each as a page, with its readings if these are projected.
    #[must_use]
    pub fn pages_of(&self, readings: Readings, hours: &Range<Hour>) -> Vec<ScannedPage> {
        let page = |(hour, readings): (Hour, Readings)| {
            let (oldest, readings) = (readings.stamps().oldest(), self.of(readings));
            let (summary, readings) = (readings.owned_summaries().into(), self.readings.then_some(readings));
            ScannedPage { hour, number: 0, summary, oldest, readings, is_expired: false }
        };
        by_hour(readings).into_iter().filter(|(hour, _)| hours.contains(hour)).map(page).collect()
    }

    /// The name of a field that is projected, in the projection's own allocation if it has one.
    #[must_use]
    pub fn name_of(&self, name: &str) -> Option<Arc<str>> {
        match &self.fields {
            Some(fields) => fields.iter().find(|field| ***field == *name).cloned(),
            None => Some(Arc::from(name)),
        }
    }

    /// Whether the field is projected.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.fields.as_ref().is_none_or(|fields| fields.iter().any(|field| **field == *name))
    }
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

/// The content of a sensor's document.
#[derive(Debug, Clone, PartialEq)]
pub struct SensorDocument {
    /// The sensor.
    pub sensor: Arc<Sensor>,
    /// The rev that the store holds; 0 for a document never stored. A write succeeds only if the store still holds it,
    /// and increments it.
    pub rev: u64,
    /// Field names with the family of their values, in the order of first appearance.
    pub fields: Vec<(Arc<str>, Family)>,
    /// The earliest reading's time, in nanoseconds.
    pub first_seen: Option<i64>,
    /// The latest reading's time, in nanoseconds.
    pub last_seen: Option<i64>,
    /// The latest readings, in time order, at most `sensors.recent` of them (MongoDB's Subset
    /// pattern). The last of them is the sensor's latest reading.
    pub recent: Vec<Reading>,
    /// Set while hours of the sensor need more than one page.
    pub outlier: Option<Outlier>,
    /// What people say of the sensor.
    pub meta: Meta,
}

impl SensorDocument {
    /// Whether it only remembers metadata that was removed, against older changes that another instance may still store: there
    /// is no such sensor for anybody who asks.
    #[must_use]
    pub fn only_remembers(&self) -> bool {
        self.fields.is_empty() && !self.meta.is_empty() && self.meta.is_without_values()
    }

    /// The document of a sensor of which nothing is known yet.
    #[must_use]
    pub fn new(sensor: Arc<Sensor>) -> Self {
        Self {
            sensor,
            rev: 0,
            fields: Vec::new(),
            first_seen: None,
            last_seen: None,
            recent: Vec::new(),
            outlier: None,
            meta: Meta::default(),
        }
    }
}

/// MongoDB's Outlier pattern: a sensor whose hour outgrew one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlier {
    /// When such an hour was first observed: wall-clock time in nanoseconds.
    pub since: i64,
    /// When such an hour was last observed: wall-clock time in nanoseconds.
    pub seen: i64,
    /// The latest hour of readings that took more than one page.
    pub last_hour: Hour,
    /// The number of pages of that hour.
    pub pages: u32,
}

/// Selects the sensors to list.
#[derive(Debug, Clone, Default)]
pub struct SensorFilter {
    /// Only keys after this one.
    pub after: Option<String>,
    /// Only sensors with an outlier mark.
    pub outliers: bool,
    /// Maximum number of sensors returned.
    pub limit: usize,
}

/// Bytes of a store, as far as they are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreSpace {
    /// What it takes on its disk.
    pub taken: Option<u64>,
    /// What is free on that disk.
    pub free: Option<u64>,
}

/// A store of pages and sensor documents, by database. Every method applies its own deadline.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Writes pages, each group by compare-and-set on the revs of its pages. Returns one outcome per group, in the
    /// order given; groups succeed or fail independently.
    async fn write_pages(&self, database: &str, writes: &[PageWrite<'_>]) -> Vec<Written>;

    /// Reads all pages of each bucket, in the order given; no pages for a bucket that is not stored. `ids` holds no
    /// duplicates. The result contains every write confirmed before the call. Of a bucket with more than `pages_max`
    /// pages, the readings of all pages are left out ([`StoredPage::left_out`]); with 0, of every bucket.
    async fn read_buckets(
        &self,
        database: &str,
        ids: &[BucketId],
        pages_max: usize,
    ) -> Result<Vec<Vec<StoredPage>>, StorageError>;

    /// Reads these pages of a bucket with their readings, in any order; those that are not stored are missing in the
    /// result. The pages may be from different moments: their revs tell.
    async fn read_pages(&self, database: &str, id: &BucketId, numbers: &[u32])
    -> Result<Vec<StoredPage>, StorageError>;

    /// Reads pages of one sensor in hour order, starting at `hours.start`, until `hours.end` or the extent is reached.
    /// Returns whole hours only, all pages of an hour together.
    async fn scan(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned, StorageError>;

    /// Like [`Store::scan`], but backwards from the last hour before `hours.end`: hours in descending order, the pages
    /// of an hour together and in ascending order.
    async fn scan_back(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned, StorageError>;

    /// Reads all pages of several sensors in a range of hours: per sensor in the order given, each in hour order like
    /// [`Store::scan`]. Returns `None` if the stored pages exceed `bytes_max` bytes; the caller then asks for fewer
    /// sensors.
    async fn scan_sensors(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>, StorageError>;

    /// The stored parts of these sensors' days in a range, claims included: the sensor's place in `sensors`, the day and the
    /// part, in any order.
    async fn parts_of(
        &self,
        database: &str,
        sensors: &[&str],
        days: Range<Day>,
    ) -> Result<Vec<(usize, Day, DayPart)>, StorageError>;

    /// Reads parts of days, in the order of `ids`; `None` for those that are not stored.
    async fn read_days(&self, database: &str, ids: &[DayId]) -> Result<Vec<Option<StoredDay>>, StorageError>;

    /// Writes parts of days, each by compare-and-set on its rev. Returns the outcomes in the order given. The months of
    /// days that were written, or may have been, are removed before it returns; where that failed, so has the write.
    async fn write_days(&self, database: &str, days: &[DayWrite<'_>]) -> Vec<Written>;

    /// Reads sensors' months with the totals of the projected fields, in any order; those that are not stored are missing. Of a
    /// month in a form that is not known, or damaged, there is a claim, which can be taken over.
    async fn read_months(
        &self,
        database: &str,
        sensors: &[&str],
        months: Range<Month>,
        projection: &Projection,
    ) -> Result<Vec<(MonthId, StoredMonth)>, StorageError>;

    /// Writes months, each by compare-and-set on its rev. Returns the outcomes in the order given.
    async fn write_months(&self, database: &str, months: &[MonthWrite<'_>]) -> Vec<Written>;

    /// The days and sensors that have chunks, after one of them and before a day, in that order and once each: at most
    /// `most`.
    async fn next_chunks(
        &self,
        database: &str,
        from: &(Day, String),
        until: Day,
        most: usize,
    ) -> Result<Vec<(Day, String)>, StorageError>;

    /// The latest day of which any sensor has a part: it was over, by the clock of who sealed it.
    async fn last_day(&self, database: &str) -> Result<Option<Day>, StorageError>;

    /// Reads the parts of one sensor's days that have some of these hours, until the range or the extent is reached. The
    /// result has a page per hour and part, in order of hours, whole hours only, all at one moment. Call it after a scan of the
    /// same hours: sealing writes a part before it removes pages.
    async fn scan_days(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<DaysScanned, StorageError>;

    /// Reads the parts of several sensors' days: per sensor in the order given, a page per hour and part, in order of hours, all
    /// of a sensor at one moment. Returns `None` if they exceed `bytes_max` bytes.
    async fn scan_days_of(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>, StorageError>;

    /// Removes page 0 of those buckets that the store still holds with this rev, and that have no other page.
    async fn remove_single_pages(&self, database: &str, pages: &[(BucketId, u64)]) -> Result<(), StorageError>;

    /// The hours and sensors of stored buckets after one of them and before an hour, in that order: at most `most`.
    async fn next_buckets(
        &self,
        database: &str,
        from: &(Hour, String),
        until: Hour,
        most: usize,
    ) -> Result<Vec<(Hour, String)>, StorageError>;

    /// Reads the documents of these sensors, in any order; sensors without a document are left out.
    async fn read_sensors(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorDocument>, StorageError>;

    /// Lists sensor documents in key order.
    async fn list_sensors(&self, database: &str, filter: &SensorFilter) -> Result<Vec<SensorDocument>, StorageError>;

    /// Writes sensor documents, each by compare-and-set on its rev. Returns the outcomes in the order given.
    async fn write_sensors(&self, database: &str, documents: &[SensorDocument]) -> Vec<Written>;

    /// Whether pages and days hold copies of metadata, by the rules that the store was opened with.
    fn keeps_copies(&self) -> bool {
        false
    }

    /// What the pages and days of several sensors hold as copies of metadata: per sensor in the order given. Nothing for those
    /// without copies; nothing at all in a store that keeps none.
    async fn held_copies(
        &self,
        _database: &str,
        sensors: &[&str],
        _hours: Range<Hour>,
    ) -> Result<Vec<HeldCopies>, StorageError> {
        Ok(vec![HeldCopies::new(); sensors.len()])
    }

    /// Sets the copies in pages and days of these sensors as their documents say now. Changes nothing else of them, no rev
    /// either: whoever writes readings never writes copies, except into new documents.
    async fn refresh_copies(
        &self,
        _database: &str,
        _sensors: &[&str],
        _scope: CopyScope,
    ) -> Result<CopiesRefreshed, StorageError> {
        Ok(CopiesRefreshed { documents: 0, is_complete: true })
    }

    /// Of the next `most` sensors after a key, those whose documents do not say that all copies are as the metadata; and the
    /// last key that was looked at, if there may be more.
    async fn next_stale_copies(
        &self,
        _database: &str,
        _after: &str,
        _most: usize,
    ) -> Result<(Vec<String>, Option<String>), StorageError> {
        Ok((Vec::new(), None))
    }

    /// Whether sensors stand in groups' documents, by the rules that the store was opened with.
    fn keeps_groups(&self) -> bool {
        false
    }

    /// Sets groups' documents as the documents of some sensors say now that were written or removed through this store and not
    /// looked at since: at most `most` of one database.
    async fn regroup(&self, _most: usize) -> Result<Regrouped, StorageError> {
        Ok(Regrouped::default())
    }

    /// Does the same for the next `most` sensors after a key, whoever wrote them, and for those between them that only groups'
    /// documents know. Also returns the last key that was looked at, if there may be more.
    async fn regroup_after(
        &self,
        _database: &str,
        _after: &str,
        _most: usize,
    ) -> Result<(Regrouped, Option<String>), StorageError> {
        Ok((Regrouped::default(), None))
    }

    /// Makes the indexes of a database that the configuration declares and drops those that it does not declare any more; returns
    /// how many it made and dropped. Takes as long as the store needs, and holds up nobody else.
    async fn settle_indexes(&self, _database: &str) -> Result<u64, StorageError> {
        Ok(0)
    }

    /// Lists the databases in name order.
    async fn databases(&self) -> Result<Vec<String>, StorageError>;

    /// Creates the database. On return it is listed. Idempotent.
    async fn create_database(&self, database: &str) -> Result<(), StorageError>;

    /// Removes the buckets of these sensors and hours in which every cell's stamp is below `before`. An implementation
    /// may leave out buckets of several pages; the caller cuts those page by page. A failed call may have removed some
    /// buckets; calling again continues.
    async fn remove_buckets(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        before: Stamp,
    ) -> Result<(), StorageError>;

    /// Removes the documents of these sensors that exist: those with a rev only if the store still holds it.
    async fn remove_sensors(&self, database: &str, sensors: &[(&str, Option<u64>)]) -> Result<(), StorageError>;

    /// Removes all content of a database, which stays on the list, even if other processes write to it meanwhile.
    async fn drop_database(&self, database: &str) -> Result<(), StorageError>;

    /// Unlists a database without removing its content.
    async fn unlist_database(&self, database: &str) -> Result<(), StorageError>;

    /// Reads the member registry; an empty one if none is stored yet.
    async fn read_registry(&self) -> Result<MemberRegistry, StorageError>;

    /// Writes the member registry by compare-and-set on its rev, which grows by one.
    async fn write_registry(&self, registry: &MemberRegistry) -> Written;

    /// Reads the settings of all databases that have any, in any order.
    async fn read_settings(&self) -> Result<Vec<(String, DatabaseSettings)>, StorageError>;

    /// Replaces the settings of a database by compare-and-set: `held` is the rev that the store must hold, 0 for none;
    /// `None` removes them. The database need not exist.
    async fn write_settings(&self, database: &str, held: u64, settings: Option<&DatabaseSettings>) -> Written;

    /// The store's clock in milliseconds since the epoch; `None` for a store without a clock of its own.
    async fn clock_ms(&self) -> Result<Option<u64>, StorageError> {
        Ok(None)
    }

    /// Drops what this store cached about a database and checks it again, after another process deleted from it.
    async fn revisit(&self, _database: &str) -> Result<(), StorageError> {
        Ok(())
    }

    /// Reads whole buckets exactly as stored, in key order, starting at the cursor: about `pages_max` pages or a few
    /// megabytes, and at least one bucket unless none is left. The pages of a bucket come from one snapshot. An
    /// unreadable document is an error of its own and does not hide others.
    async fn walk_buckets(
        &self,
        database: &str,
        from: Option<&Cursor>,
        pages_max: usize,
    ) -> Result<Walked<RawBucket>, StorageError>;

    /// Like [`Store::walk_buckets`], for at most `max` sensor documents.
    async fn walk_sensors(
        &self,
        database: &str,
        from: Option<&Cursor>,
        max: usize,
    ) -> Result<Walked<RawSensor>, StorageError>;

    /// Like [`Store::walk_sensors`], for at most `max` sealed days, or a few megabytes of them.
    async fn walk_days(
        &self,
        database: &str,
        from: Option<&Cursor>,
        max: usize,
    ) -> Result<Walked<RawDay>, StorageError>;

    /// Looks at about `most` pages for those of another form than this program writes. Unreadable ones
    /// are left out.
    async fn other_forms(&self, database: &str, from: Option<&Cursor>, most: usize)
    -> Result<OtherForms, StorageError>;

    /// The databases that may have documents of an older form: no walk has noted that there are none.
    async fn unmigrated(&self) -> Result<Vec<String>, StorageError>;

    /// Notes that a walk found no document of an older form. Programs that know this form write no others.
    async fn note_migrated(&self, database: &str) -> Result<(), StorageError>;

    /// The approximate number of pages and sealed days in all databases; a walk reports its progress with it.
    async fn estimate_pages(&self) -> Result<u64, StorageError>;

    /// Whether other processes may write to this store at the same time. If so, cached knowledge of a page is only
    /// confirmed by a compare-and-set or a read.
    fn is_shared(&self) -> bool;

    /// Whether the store answers.
    async fn check(&self) -> Result<(), StorageError>;

    /// The space that the store takes and has. May be slow: ask seldom.
    async fn space(&self) -> Result<StoreSpace, StorageError>;

    /// Closes the connection or the file. No method may be called afterwards.
    async fn close(&self);
}
