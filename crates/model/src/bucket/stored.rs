//! What a store holds of a sensor, and how pages are read from it: plain data that stores and queries share.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::day::by_hour;
use super::meta::Meta;
use super::readings::{Reading, Readings};
use super::summary::Summary;
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
