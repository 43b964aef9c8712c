//! Sealed days and monthly totals.

use std::ops::Range;

use async_trait::async_trait;

use super::Result;
use super::pages::{Extent, Order, ScanResult, WriteOutcome};
use hourglass_model::bucket::day::{DayId, DayPart, DayWrite, StoredDay};
use hourglass_model::bucket::stored::{Projection, ScannedPage};
use hourglass_model::bucket::totals::{MonthId, MonthWrite, StoredMonth};
use hourglass_model::reading::{Day, Hour, Month, Stamp};

/// Sealed days and monthly totals, by database. A day is stored in parts ([`DayPart`]), each a document.
#[async_trait]
pub trait DayStore: Send + Sync {
    /// Lists the stored parts of these sensors' days in a range, claims included. An entry is the sensor's index in
    /// `sensors`, the day and the part. The order is arbitrary.
    async fn list_day_parts(
        &self,
        database: &str,
        sensors: &[&str],
        days: Range<Day>,
    ) -> Result<Vec<(usize, Day, DayPart)>>;

    /// Reads parts of days, in the order of `ids`. A part that is not stored is `None`.
    async fn read_days(&self, database: &str, ids: &[DayId]) -> Result<Vec<Option<StoredDay>>>;

    /// Writes parts of days, each by compare-and-set on its rev. Returns the outcomes in the order given.
    ///
    /// Before it returns, it removes the monthly totals of every day that was written or whose outcome is unknown. If that
    /// removal fails, the write counts as failed.
    async fn write_days(&self, database: &str, days: &[DayWrite<'_>]) -> Vec<WriteOutcome>;

    /// Removes the parts of these sensors that lie in a range of hours and have only cells with stamps below `limit`,
    /// without decoding them, and the monthly totals of their days. Other parts stay: their floor, or a chunk's stamp, is
    /// at least `limit`.
    ///
    /// # Errors
    /// If a later version wrote one of the parts. The other ones are removed nevertheless.
    async fn remove_days(&self, database: &str, sensors: &[&str], hours: Range<Hour>, limit: Stamp) -> Result<()>;

    /// Reads one sensor's day parts that overlap `hours`, until the end of the range or the extent is reached. Returns one
    /// page per hour and part, in hour order, from one snapshot. Hours are never split.
    ///
    /// Call it after the scan of the pages of the same hours: sealing writes a part before it removes pages.
    async fn scan_days(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<ScanResult>;

    /// Reads the day parts of several sensors. Returns, per sensor in the order given, one page per hour and part, in hour
    /// order. The pages of one sensor come from one snapshot. Returns `None` if the pages exceed `bytes_max` bytes.
    async fn scan_sensor_days(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>>;

    /// Lists the days and sensors that have chunks, in that order and without duplicates, after `start` and before the day
    /// `end`: at most `max` of them.
    async fn next_chunks(
        &self,
        database: &str,
        start: &(Day, String),
        end: Day,
        max: usize,
    ) -> Result<Vec<(Day, String)>>;

    /// Returns the latest day that any sensor has a part of. The day was over by the clock of the instance that sealed it.
    async fn last_day(&self, database: &str) -> Result<Option<Day>>;

    /// Reads the monthly totals of the projected fields, in any order. Months that are not stored are missing from the
    /// result. A damaged month, or one of an unknown form, is returned without totals, so that it can be overwritten.
    async fn read_months(
        &self,
        database: &str,
        sensors: &[&str],
        months: Range<Month>,
        projection: &Projection,
    ) -> Result<Vec<(MonthId, StoredMonth)>>;

    /// Writes monthly totals, each by compare-and-set on its rev. Returns the outcomes in the order given.
    async fn write_months(&self, database: &str, months: &[MonthWrite<'_>]) -> Vec<WriteOutcome>;
}
