//! The view through which queries and ingest read. It hides deleted data that the store still contains, and merges the
//! pages of recent hours with sealed days. Checks read the store directly.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::bucket::day::{duplicate_hours, keep_expired, may_be_sealed, unite};
use crate::bucket::deletions::{Covers, Deletions, Masks, cut};
use crate::bucket::page::StoredPage;
use crate::bucket::store::{BucketId, Extent, Order, Projection, ScanResult, ScannedPage, SensorFilter, WriteOutcome};
#[cfg(doc)]
use crate::bucket::store::{DayStore, PageStore, SensorStore};
use crate::bucket::{DayId, DayWrite, MonthId, Result, SensorDocument, Store, StoredDay, StoredMonth};
use crate::clock::{latest_ns, note_passed, now_ns};
use crate::reading::time::{TIMESTAMP_MAX, TIMESTAMP_MIN};
use crate::reading::{Day, Hour, Month, Sensor};

/// Maximum number of days with chunks for which monthly totals are used. More mean that backfill is under way.
const CHUNK_DAYS_MAX: usize = 512;
/// Maximum size of the page list that is compared with monthly totals, in bytes.
const PAGE_LIST_BYTES_MAX: usize = 4 << 20;

/// All valid timestamps, in nanoseconds.
const ALL_TIMES: Range<i64> = TIMESTAMP_MIN..TIMESTAMP_MAX;

/// A view of a store without deleted data and with pages and sealed days merged.
#[derive(Debug)]
pub struct MergedView {
    store: Arc<dyn Store>,
    masks: Masks,
    keeps_copies: bool,
}

impl MergedView {
    /// Creates a view without remembered deletions.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        let keeps_copies = store.clone().mongo_extras().is_some_and(|extras| extras.keeps_copies());
        Self { store, masks: Masks::default(), keeps_copies }
    }

    /// Returns the remembered deletions that apply to reads.
    #[must_use]
    pub fn masks(&self) -> &Masks {
        &self.masks
    }

    /// Returns true if pages and days in the store contain copies of metadata.
    #[must_use]
    pub fn keeps_copies(&self) -> bool {
        self.keeps_copies
    }

    /// Returns the underlying store, for writes and for reads that must include deleted data.
    #[must_use]
    pub fn raw(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// As [`PageStore::read_buckets`], without deleted readings.
    ///
    /// # Errors
    /// As the store's method.
    pub async fn read_buckets(
        &self,
        database: &str,
        ids: &[BucketId],
        pages_max: usize,
    ) -> Result<Vec<Vec<StoredPage>>> {
        let deletions = self.masks.now();
        let mut buckets = self.store.read_buckets(database, ids, pages_max).await?;
        if deletions.has_database(database) {
            for (id, pages) in ids.iter().zip(&mut buckets) {
                let covers = deletions.covers_for(database, &id.sensor, &(id.hour..id.hour.next()));
                // A page without its readings does not show which of them are deleted.
                if !covers.is_empty() && pages.iter().any(|page| page.left_out.is_some()) {
                    let whole = self.store.read_buckets(database, std::slice::from_ref(id), usize::MAX).await?;
                    *pages = whole.into_iter().next().unwrap_or_default();
                }
                pages.iter_mut().for_each(|page| page.cut |= cut(&mut page.readings, &covers));
            }
        }
        Ok(buckets)
    }

    /// As [`PageStore::read_pages`], without deleted readings.
    ///
    /// # Errors
    /// As the store's method.
    pub async fn read_pages(&self, database: &str, id: &BucketId, numbers: &[u32]) -> Result<Vec<StoredPage>> {
        let deletions = self.masks.now();
        let mut pages = self.store.read_pages(database, id, numbers).await?;
        if deletions.has_database(database) {
            let covers = deletions.covers_for(database, &id.sensor, &(id.hour..id.hour.next()));
            pages.iter_mut().for_each(|page| page.cut |= cut(&mut page.readings, &covers));
        }
        Ok(pages)
    }

    /// As [`PageStore::scan_sensors`], with sealed days and without deleted readings.
    ///
    /// # Errors
    /// As the store's method.
    pub async fn scan_sensors(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>> {
        let deletions = self.masks.now();
        let scanned = self.store.scan_sensors(database, sensors, hours.clone(), projection, bytes_max).await?;
        let Some(scanned) = scanned else { return Ok(None) };
        let days = if can_be_sealed(&hours) {
            self.store.scan_sensor_days(database, sensors, hours.clone(), projection, bytes_max).await?
        } else {
            Some(vec![Vec::new(); sensors.len()])
        };
        let Some(days) = days else { return Ok(None) };
        let mut united = Vec::with_capacity(scanned.len());
        for ((key, pages), days) in sensors.iter().zip(scanned).zip(days) {
            let sensor = SensorRef { database, key };
            let pages = self.mask(&deletions, sensor, &hours, projection, Source::Pages, pages).await?;
            let days = self.mask(&deletions, sensor, &hours, projection, Source::Days, days).await?;
            united.push(self.unite(&deletions, sensor, projection, pages, days).await?);
        }
        Ok(Some(united))
    }

    /// As [`DayStore::read_days`], without deleted readings.
    ///
    /// # Errors
    /// As the store's method.
    pub async fn read_days(&self, database: &str, ids: &[DayId]) -> Result<Vec<Option<StoredDay>>> {
        let deletions = self.masks.now();
        let mut days = self.store.read_days(database, ids).await?;
        if deletions.has_database(database) {
            for (id, day) in ids.iter().zip(&mut days) {
                let covers = deletions.covers_for(database, &id.sensor, &id.hours());
                let Some(day) = day else { continue };
                let floor = day.readings.stamps().floor();
                if let Some(expired) = &mut day.expired {
                    for (range, _) in covers.iter().filter(|(_, before)| floor < *before) {
                        expired.remove(range);
                    }
                } else {
                    cut(&mut day.readings, &covers);
                }
            }
        }
        Ok(days)
    }

    /// As [`DayStore::write_days`]. Also notes that these days are over, in case the clock is set back later.
    pub async fn write_days(&self, database: &str, days: &[DayWrite<'_>]) -> Vec<WriteOutcome> {
        days.iter().for_each(|day| note_passed(day.id.day.hours().end.start_ns()));
        self.store.write_days(database, days).await
    }

    /// As [`DayStore::read_months`], without days that have pages, chunks or deletions which the totals do not include.
    ///
    /// # Errors
    /// As the store's method.
    pub async fn read_months(
        &self,
        database: &str,
        sensors: &[&str],
        months: Range<Month>,
        projection: &Projection,
    ) -> Result<Vec<(MonthId, StoredMonth)>> {
        // Only past months have totals.
        let months = months.start..months.end.min(Month::from_day(Day::from_hour(Hour::from_ns(now_ns()))));
        if months.is_empty() {
            return Ok(Vec::new());
        }
        let hours = months.start.days().start.hours().start..Month(months.end.0 - 1).days().end.hours().start;
        let deletions = self.masks.now();
        // Read pages and chunks before the totals, as `bucket::totals` requires.
        let places = Projection::without_fields();
        let pages = self.store.scan_sensors(database, sensors, hours.clone(), &places, PAGE_LIST_BYTES_MAX).await?;
        let Some(pages) = pages else { return Ok(Vec::new()) };
        let first = months.start.days().start;
        let until = Month(months.end.0 - 1).days().end;
        let chunks = self.store.next_chunks(database, &(first, String::new()), until, CHUNK_DAYS_MAX).await?;
        if chunks.len() == CHUNK_DAYS_MAX {
            return Ok(Vec::new());
        }
        let mut found = self.store.read_months(database, sensors, months, projection).await?;
        let pages_by_sensor: HashMap<&str, Vec<ScannedPage>> =
            sensors.iter().copied().zip(pages).filter(|(_, pages)| !pages.is_empty()).collect();
        let has_deletions = deletions.has_hours(database, &hours);
        for (id, month) in &mut found {
            let Some(totals) = &mut month.totals else { continue };
            let days = id.month.days();
            let sensor = if has_deletions { self.sensor(database, &id.sensor).await? } else { None };
            let covers = sensor.map(|sensor| deletions.covers_for(database, &sensor, &hours)).unwrap_or_default();
            let pages = pages_by_sensor.get(&*id.sensor);
            let with_pages = pages.into_iter().flatten().map(|page| Day::from_hour(page.hour));
            let with_chunks = chunks.iter().filter(|(_, sensor)| **sensor == *id.sensor).map(|(day, _)| *day);
            let covered = covers.iter().flat_map(|(range, _)| overlapped_days(range, &days));
            totals.narrow(&days, with_pages.chain(with_chunks).chain(covered));
        }
        Ok(found)
    }

    /// As [`DayStore::scan_days`], without deleted readings.
    ///
    /// # Errors
    /// As the store's method.
    pub async fn scan_days(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<ScanResult> {
        let deletions = self.masks.now();
        let scanned = self.store.scan_days(database, sensor, hours.clone(), order, projection, extent).await?;
        let sensor = SensorRef { database, key: sensor };
        let pages = self.mask(&deletions, sensor, &hours, projection, Source::Days, scanned.pages).await?;
        Ok(ScanResult { pages, ..scanned })
    }

    /// As [`SensorStore::read_sensors`], without deleted metadata.
    ///
    /// # Errors
    /// As the store's method.
    pub async fn read_sensors(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorDocument>> {
        Ok(self.without_deleted_meta(database, self.store.read_sensors(database, keys).await?))
    }

    /// As [`SensorStore::list_sensors`], without deleted metadata.
    ///
    /// # Errors
    /// As the store's method.
    pub async fn list_sensors(&self, database: &str, filter: &SensorFilter) -> Result<Vec<SensorDocument>> {
        Ok(self.without_deleted_meta(database, self.store.list_sensors(database, filter).await?))
    }

    /// Returns the sensor with this key. Prefers its document, which has the exact measurement and tags, to parsing the key.
    async fn sensor(&self, database: &str, key: &str) -> Result<Option<Arc<Sensor>>> {
        match self.store.read_sensors(database, &[key]).await {
            Ok(found) => {
                let found = found.into_iter().next().map(|document| document.sensor);
                Ok(found.or_else(|| Sensor::from_key(key).map(Arc::new)))
            }
            Err(error) if error.is_document_error() => Ok(Sensor::from_key(key).map(Arc::new)),
            Err(error) => Err(error),
        }
    }

    /// Removes metadata that a deletion of whole sensors covers.
    fn without_deleted_meta(&self, database: &str, mut documents: Vec<SensorDocument>) -> Vec<SensorDocument> {
        let deletions = self.masks.now();
        if deletions.has_database(database) {
            for document in documents.iter_mut().filter(|document| !document.meta.is_empty()) {
                document.meta.cut(deletions.sensor_deleted_below(database, &document.sensor, &ALL_TIMES));
            }
        }
        documents
    }

    /// Removes deleted readings from a sensor's scanned pages. If a deletion overlaps a page without readings, its stored
    /// summary is no longer valid, so the hour is read again with readings.
    async fn mask(
        &self,
        deletions: &Deletions,
        sensor: SensorRef<'_>,
        hours: &Range<Hour>,
        projection: &Projection,
        source: Source,
        pages: Vec<ScannedPage>,
    ) -> Result<Vec<ScannedPage>> {
        if pages.is_empty() || !deletions.has_hours(sensor.database, hours) {
            return Ok(pages);
        }
        let Some(identity) = self.sensor(sensor.database, sensor.key).await? else { return Ok(pages) };
        let covers = deletions.covers_for(sensor.database, &identity, hours);
        if covers.is_empty() {
            return Ok(pages);
        }
        let mut masked = Vec::with_capacity(pages.len());
        for hour_pages in pages.chunk_by(|a, b| a.hour == b.hour) {
            let is_touched = hour_pages.iter().any(|page| is_touched(page, &covers));
            let has_readings = hour_pages.iter().all(|page| page.readings.is_some());
            if !is_touched || has_readings {
                masked.extend(hour_pages.iter().cloned().filter_map(|page| masked_page(page, &covers, true)));
                continue;
            }
            let with_readings = Projection { fields: projection.fields.clone(), ..Projection::ALL };
            let reread = self.read_hour(sensor, hour_pages[0].hour, &with_readings, source).await?;
            masked.extend(reread.into_iter().filter_map(|page| masked_page(page, &covers, false)));
        }
        Ok(masked)
    }

    async fn read_hour(
        &self,
        sensor: SensorRef<'_>,
        hour: Hour,
        projection: &Projection,
        source: Source,
    ) -> Result<Vec<ScannedPage>> {
        let SensorRef { database, key } = sensor;
        let hours = hour..hour.next();
        let scanned = match source {
            Source::Pages => self.store.scan(database, key, hours, Order::Ascending, projection, Extent::ALL).await?,
            Source::Days => {
                self.store.scan_days(database, key, hours, Order::Ascending, projection, Extent::ALL).await?
            }
        };
        Ok(scanned.pages)
    }

    /// Merges a sensor's pages with its sealed days, in hour order. Both inputs are in ascending hour order.
    async fn unite(
        &self,
        deletions: &Deletions,
        sensor: SensorRef<'_>,
        projection: &Projection,
        mut pages: Vec<ScannedPage>,
        mut days: Vec<ScannedPage>,
    ) -> Result<Vec<ScannedPage>> {
        if days.is_empty() {
            return Ok(pages);
        }
        keep_expired(&mut pages, &mut days);
        let both = if projection.readings { Vec::new() } else { duplicate_hours(&pages, &days) };
        // The same reading can be in both, so their summaries cannot be added up. Read these hours again with readings.
        for hour in &both {
            let hours = *hour..hour.next();
            let with_readings = Projection { fields: projection.fields.clone(), ..Projection::ALL };
            for (read, source) in [(&mut pages, Source::Pages), (&mut days, Source::Days)] {
                let reread = self.read_hour(sensor, *hour, &with_readings, source).await?;
                let reread = self.mask(deletions, sensor, &hours, &with_readings, source, reread).await?;
                read.retain(|page| page.hour != *hour);
                read.extend(reread);
                read.sort_by_key(|page| (page.hour, page.number));
            }
        }
        let mut united = unite(pages, days);
        if !projection.readings {
            united.iter_mut().for_each(|page| page.readings = None);
        }
        Ok(united)
    }

    /// As [`PageStore::scan`], with sealed days and without deleted readings.
    ///
    /// # Errors
    /// As the store's method.
    pub async fn scan(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<ScanResult> {
        let deletions = self.masks.now();
        let sensor = SensorRef { database, key: sensor };
        let mut left = hours;
        // A result without pages ends the caller's scan, so go on where a deletion has emptied a step.
        loop {
            let scanned = self.store.scan(database, sensor.key, left.clone(), order, projection, extent).await?;
            let ScanResult { mut pages, mut rest } = scanned;
            let covered = match order {
                Order::Ascending => left.start..rest.start,
                Order::Descending => rest.end..left.end,
            };
            let mut days = Vec::new();
            if can_be_sealed(&covered) {
                let found = self.store.scan_days(database, sensor.key, covered, order, projection, extent).await?;
                days = found.pages;
                if !found.rest.is_empty() {
                    rest = match order {
                        Order::Ascending => found.rest.start..left.end,
                        Order::Descending => left.start..found.rest.end,
                    };
                    pages.retain(|page| !rest.contains(&page.hour));
                    days.retain(|page| !rest.contains(&page.hour));
                }
            }
            let mut pages = self.mask(&deletions, sensor, &left, projection, Source::Pages, pages).await?;
            let mut days = self.mask(&deletions, sensor, &left, projection, Source::Days, days).await?;
            let is_reversed = order == Order::Descending && !days.is_empty();
            if is_reversed {
                // The sort is stable, so the pages of an hour stay in order.
                pages.sort_by_key(|page| page.hour);
                days.sort_by_key(|page| page.hour);
            }
            let mut pages = self.unite(&deletions, sensor, projection, pages, days).await?;
            if is_reversed {
                pages.sort_by_key(|page| Reverse(page.hour));
            }
            if !pages.is_empty() || rest.is_empty() {
                return Ok(ScanResult { pages, rest });
            }
            left = rest;
        }
    }
}

/// A sensor of a database.
#[derive(Debug, Clone, Copy)]
struct SensorRef<'a> {
    database: &'a str,
    key: &'a str,
}

/// The collection that pages were read from.
#[derive(Debug, Clone, Copy)]
enum Source {
    Pages,
    Days,
}

/// Returns the days among `days` that overlap a time range in nanoseconds.
fn overlapped_days(range: &Range<i64>, days: &Range<Day>) -> impl Iterator<Item = Day> + use<> {
    let day = |time: i64| Day::from_hour(Hour::from_ns(time));
    let first = day(range.start).max(days.start);
    let end = day(range.end.saturating_sub(1)).next().min(days.end);
    (first.0..end.0).map(Day)
}

/// Returns true if some of these hours can be in sealed days.
fn can_be_sealed(hours: &Range<Hour>) -> bool {
    !hours.is_empty() && may_be_sealed(hours.start, latest_ns())
}

fn is_touched(page: &ScannedPage, covers: &Covers) -> bool {
    let hour = page.hour.start_ns()..page.hour.end_ns();
    covers.iter().any(|(range, before)| page.oldest < *before && range.start < hour.end && hour.start < range.end)
}

/// Removes deleted readings from a page. Returns `None` if none are left. `keep_readings` is false if they were read only
/// to recompute the summary.
fn masked_page(mut page: ScannedPage, covers: &Covers, keep_readings: bool) -> Option<ScannedPage> {
    if !is_touched(&page, covers) {
        return Some(page);
    }
    let readings = page.readings.as_mut()?;
    if cut(readings, covers) {
        page.summary = readings.summaries().map(|(name, summary)| (name.clone(), summary.clone())).collect();
    }
    let is_empty = readings.is_empty();
    if !keep_readings {
        page.readings = None;
    }
    (!is_empty).then_some(page)
}
