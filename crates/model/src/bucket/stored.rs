//! Sensor documents, and the pages and projections of scans: plain data that stores and queries share.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::day::by_hour;
use super::meta::Meta;
use super::readings::{Reading, Readings};
use super::summary::Summary;
use super::summary::lifetime::Lifetime;
use crate::reading::time::{MILLI_NS, write_seconds};
use crate::reading::{Family, Hour, Sensor, Stamp};

/// Identifies a bucket: a sensor and an hour.
#[derive(Debug, Clone, PartialEq)]
pub struct BucketId {
    /// The sensor whose readings the bucket holds.
    pub sensor: Arc<Sensor>,
    /// The hour that the readings lie in.
    pub hour: Hour,
}

/// The prefix of the `_id` of every page of a bucket: the hour and the sensor's key. Hours have four-digit years, so
/// ids sort by time.
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

/// The summaries of a page, by field. Most queries read one field, which is stored inline, so that no heap memory is
/// freed on another thread.
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
    /// A lower bound of the cells' stamps. Only a deletion with a greater stamp can cover a cell of the page.
    pub oldest: Stamp,
    /// The readings; `None` if the projection has summaries only.
    pub readings: Option<Readings>,
    /// True if the readings have expired. Nothing can be added to the summaries then.
    pub is_expired: bool,
}

impl ScannedPage {
    /// The size in bytes that an `Extent` counts for a page of `stored` stored bytes: the greater of `stored` and the
    /// memory of its readings divided by [`GROWTH`]. The latter is greater for sparse readings with many columns.
    #[must_use]
    pub fn bytes(&self, stored: usize) -> usize {
        stored.max(self.readings.as_ref().map_or(0, Readings::memory) / GROWTH)
    }
}

/// The typical ratio of decoded to stored bytes of readings.
pub const GROWTH: usize = 4;

/// The parts of each page that a scan returns.
#[derive(Debug, Clone)]
pub struct Projection {
    /// True if the scan returns readings; without them it returns summaries only.
    pub readings: bool,
    /// The fields whose columns and summaries are returned; `None` for all fields.
    pub fields: Option<Arc<[Arc<str>]>>,
    /// The range of times in nanoseconds. A scan with readings may omit pages without any time in the range. The pages
    /// that it returns are complete.
    pub times: Range<i64>,
    /// True if the caller uses only counts and sums of summaries. The other figures are then unspecified, so that a
    /// store can skip them without decoding.
    pub only_sums: bool,
    /// True if the summaries of fields with bounds have their distributions.
    pub distributions: bool,
}

impl Projection {
    /// All readings and all summaries.
    pub const ALL: Self =
        Self { readings: true, fields: None, times: i64::MIN..i64::MAX, only_sums: false, distributions: true };
    /// The summaries of all fields.
    pub const SUMMARIES: Self = Self { readings: false, ..Self::ALL };

    /// A projection without fields, for scans that only need to know which pages exist.
    #[must_use]
    pub fn without_fields() -> Self {
        Self { fields: Some(Arc::new([])), ..Self::SUMMARIES }
    }

    /// A copy with names of its own. Threads that share a name contend for its reference count.
    #[must_use]
    pub fn with_own_names(&self) -> Self {
        let copied = |fields: &Arc<[Arc<str>]>| fields.iter().map(|name| Arc::from(&**name)).collect();
        Self { fields: self.fields.as_ref().map(copied), ..self.clone() }
    }

    /// The projected times in whole milliseconds since the epoch, both ends included; `None` if scans omit no page.
    #[must_use]
    pub fn span_ms(&self) -> Option<(i64, i64)> {
        let is_all = self.times.start == i64::MIN && self.times.end == i64::MAX;
        let ms = |time: i64| time.div_euclid(MILLI_NS);
        (self.readings && !is_all).then(|| (ms(self.times.start), ms(self.times.end.saturating_sub(1))))
    }

    /// Reduces a page's readings to the projected fields.
    #[must_use]
    pub fn project(&self, mut readings: Readings) -> Readings {
        if let Some(fields) = &self.fields {
            readings.keep(|name| fields.iter().any(|field| **field == *name));
        }
        readings
    }

    /// Divides a part's readings into one page per hour, for the hours in a range. The pages have readings if these are
    /// projected.
    #[must_use]
    pub fn hour_pages(&self, readings: Readings, hours: &Range<Hour>) -> Vec<ScannedPage> {
        let page = |(hour, readings): (Hour, Readings)| {
            let oldest = readings.stamps().oldest();
            let projected = self.project(readings);
            let summary = projected.owned_summaries().into();
            let readings = self.readings.then_some(projected);
            ScannedPage { hour, number: 0, summary, oldest, readings, is_expired: false }
        };
        by_hour(readings).into_iter().filter(|(hour, _)| hours.contains(hour)).map(page).collect()
    }

    /// The name of a projected field, shared with the projection if it lists fields; `None` for other fields.
    #[must_use]
    pub fn shared_name(&self, name: &str) -> Option<Arc<str>> {
        match &self.fields {
            Some(fields) => fields.iter().find(|field| ***field == *name).cloned(),
            None => Some(Arc::from(name)),
        }
    }

    /// Returns true if the field is projected.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.fields.as_ref().is_none_or(|fields| fields.iter().any(|field| **field == *name))
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
    /// The latest readings, in time order, at most `sensors.recent` of them (MongoDB's Subset pattern). The last one is
    /// the sensor's latest reading.
    pub recent: Vec<Reading>,
    /// Set while hours of the sensor need more than one page.
    pub outlier: Option<Outlier>,
    /// The lifetime summaries; `None` until they are folded, and after a deletion until they are folded again.
    pub lifetime: Option<Box<Lifetime>>,
    /// The sensor's metadata.
    pub meta: Meta,
}

impl SensorDocument {
    /// Returns true if the document only remembers removed metadata, against older changes that another instance may
    /// still store, or names a sensor whose readings are hidden. Such a sensor does not exist for clients.
    #[must_use]
    pub fn is_tombstone(&self) -> bool {
        self.fields.is_empty() && self.meta.is_without_values()
    }

    /// A new document without fields, readings and metadata.
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
            lifetime: None,
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
