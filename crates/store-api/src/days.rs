//! Sealed days and totals of months.

use std::ops::Range;

use async_trait::async_trait;

use super::Result;
use super::pages::{Extent, Order, Scanned, Written};
use hourglass_model::bucket::day::{DayId, DayPart, DayWrite, StoredDay};
use hourglass_model::bucket::stored::{Projection, ScannedPage};
use hourglass_model::bucket::totals::{MonthId, MonthWrite, StoredMonth};
use hourglass_model::reading::{Day, Hour, Month};

/// Sealed days and totals of months, by database.
#[async_trait]
pub trait DayStore: Send + Sync {
    /// The stored parts of these sensors' days in a range, claims included: the sensor's place in `sensors`, the day and the
    /// part, in any order.
    async fn parts_of(&self, database: &str, sensors: &[&str], days: Range<Day>) -> Result<Vec<(usize, Day, DayPart)>>;

    /// Reads parts of days, in the order of `ids`; `None` for those that are not stored.
    async fn read_days(&self, database: &str, ids: &[DayId]) -> Result<Vec<Option<StoredDay>>>;

    /// Writes parts of days, each by compare-and-set on its rev. Returns the outcomes in the order given. The months of
    /// days that were written, or may have been, are removed before it returns; where that failed, so has the write.
    async fn write_days(&self, database: &str, days: &[DayWrite<'_>]) -> Vec<Written>;

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
    ) -> Result<Scanned>;

    /// Reads the parts of several sensors' days: per sensor in the order given, a page per hour and part, in order of hours, all
    /// of a sensor at one moment. Returns `None` if they exceed `bytes_max` bytes.
    async fn scan_days_of(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>>;

    /// The days and sensors that have chunks, after one of them and before a day, in that order and once each: at most
    /// `most`.
    async fn next_chunks(
        &self,
        database: &str,
        from: &(Day, String),
        until: Day,
        most: usize,
    ) -> Result<Vec<(Day, String)>>;

    /// The latest day of which any sensor has a part: it was over, by the clock of who sealed it.
    async fn last_day(&self, database: &str) -> Result<Option<Day>>;

    /// Reads sensors' months with the totals of the projected fields, in any order; those that are not stored are missing. Of a
    /// month in a form that is not known, or damaged, there is a claim, which can be taken over.
    async fn read_months(
        &self,
        database: &str,
        sensors: &[&str],
        months: Range<Month>,
        projection: &Projection,
    ) -> Result<Vec<(MonthId, StoredMonth)>>;

    /// Writes months, each by compare-and-set on its rev. Returns the outcomes in the order given.
    async fn write_months(&self, database: &str, months: &[MonthWrite<'_>]) -> Vec<Written>;
}
