//! The view through which queries and ingest read. It hides what remembered deletions cover, even where the store still has
//! it, and its scans lay hour pages over what sealed days have of the same hours. Checks read the store itself.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::bucket::day::{in_several, keep_expired, may_be_sealed, unite};
use crate::bucket::deletions::{Covers, Deletions, Masks, cut};
use crate::bucket::page::StoredPage;
use crate::bucket::store::{BucketId, Extent, Order, Projection, Scanned, ScannedPage, SensorFilter, Written};
#[cfg(doc)]
use crate::bucket::store::{DayStore, PageStore, SensorStore};
use crate::bucket::{DayId, DayWrite, MonthId, Result, SensorDocument, Store, StoredDay, StoredMonth};
use crate::clock::{latest_ns, note_passed, now_ns};
use crate::reading::time::{TIMESTAMP_MAX, TIMESTAMP_MIN};
use crate::reading::{Day, Hour, Month, Sensor};

/// Most days with chunks that are listed beside months: with more, backfill is under way.
const CHUNKS_MOST: usize = 512;
/// Most bytes of the pages that are listed beside months.
const PLACES_BYTES: usize = 4 << 20;

/// All times that a reading can have, in nanoseconds.
const ALWAYS: Range<i64> = TIMESTAMP_MIN..TIMESTAMP_MAX;

/// A store seen through the remembered deletions, with hour pages and sealed days as one.
#[derive(Debug)]
pub struct MergedView {
    store: Arc<dyn Store>,
    masks: Masks,
    keeps_copies: bool,
}

impl MergedView {
    /// Wraps a store of which nothing is known to be deleted.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        let keeps_copies = store.clone().mongo_extras().is_some_and(|extras| extras.keeps_copies());
        Self { store, masks: Masks::default(), keeps_copies }
    }

    /// The remembered deletions that apply to reads.
    #[must_use]
    pub fn masks(&self) -> &Masks {
        &self.masks
    }

    /// Returns true if pages and days of the store hold copies of metadata.
    #[must_use]
    pub fn keeps_copies(&self) -> bool {
        self.keeps_copies
    }

    /// The store as it is, for everything that is not read through this view.
    #[must_use]
    pub fn raw(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// As [`PageStore::read_buckets`], without what remembered deletions cover.
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
                let covers = deletions.of(database, &id.sensor, &(id.hour..id.hour.next()));
                // Without its readings nobody could tell what is left of a page.
                if !covers.is_empty() && pages.iter().any(|page| page.left_out.is_some()) {
                    let whole = self.store.read_buckets(database, std::slice::from_ref(id), usize::MAX).await?;
                    *pages = whole.into_iter().next().unwrap_or_default();
                }
                pages.iter_mut().for_each(|page| page.cut |= cut(&mut page.readings, &covers));
            }
        }
        Ok(buckets)
    }

    /// As [`PageStore::read_pages`], without what remembered deletions cover.
    ///
    /// # Errors
    /// As the store's method.
    pub async fn read_pages(&self, database: &str, id: &BucketId, numbers: &[u32]) -> Result<Vec<StoredPage>> {
        let deletions = self.masks.now();
        let mut pages = self.store.read_pages(database, id, numbers).await?;
        if deletions.has_database(database) {
            let covers = deletions.of(database, &id.sensor, &(id.hour..id.hour.next()));
            pages.iter_mut().for_each(|page| page.cut |= cut(&mut page.readings, &covers));
        }
        Ok(pages)
    }

    /// As [`PageStore::scan_sensors`], with sealed days and without what remembered deletions cover.
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
        let days = match some_may_be_sealed(&hours) {
            true => self.store.scan_days_of(database, sensors, hours.clone(), projection, bytes_max).await?,
            false => Some(vec![Vec::new(); sensors.len()]),
        };
        let Some(days) = days else { return Ok(None) };
        let mut united = Vec::with_capacity(scanned.len());
        for ((sensor, pages), days) in sensors.iter().zip(scanned).zip(days) {
            let of = (database, *sensor);
            let pages = self.mask(&deletions, of, &hours, (projection, Source::Pages), pages).await?;
            let days = self.mask(&deletions, of, &hours, (projection, Source::Days), days).await?;
            united.push(self.unite(&deletions, of, projection, pages, days).await?);
        }
        Ok(Some(united))
    }

    /// As [`DayStore::read_days`], without what remembered deletions cover.
    ///
    /// # Errors
    /// As the store's method.
    pub async fn read_days(&self, database: &str, ids: &[DayId]) -> Result<Vec<Option<StoredDay>>> {
        let deletions = self.masks.now();
        let mut days = self.store.read_days(database, ids).await?;
        if deletions.has_database(database) {
            for (id, day) in ids.iter().zip(&mut days) {
                let covers = deletions.of(database, &id.sensor, &id.hours());
                let Some(day) = day else { continue };
                let floor = day.readings.stamps().floor();
                match &mut day.expired {
                    Some(expired) => {
                        let newer = covers.iter().filter(|(_, before)| floor < *before);
                        newer.for_each(|(range, _)| {
                            expired.remove(range);
                        });
                    }
                    None => {
                        cut(&mut day.readings, &covers);
                    }
                }
            }
        }
        Ok(days)
    }

    /// As [`DayStore::write_days`]; notes that these days are over.
    pub async fn write_days(&self, database: &str, days: &[DayWrite<'_>]) -> Vec<Written> {
        // The clock may be set back later.
        days.iter().for_each(|day| note_passed(day.id.day.hours().end.start_ns()));
        self.store.write_days(database, days).await
    }

    /// As [`DayStore::read_months`], without the days that have something else beside the parts that were added up.
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
        // No other month is over.
        let months = months.start..months.end.min(Month::of(Day::of(Hour::of(now_ns()))));
        if months.is_empty() {
            return Ok(Vec::new());
        }
        let hours = months.start.days().start.hours().start..Month(months.end.0 - 1).days().end.hours().start;
        let (deletions, places) = (self.masks.now(), Projection::without_fields());
        // Before the months, as `bucket::totals` asks for.
        let pages = self.store.scan_sensors(database, sensors, hours.clone(), &places, PLACES_BYTES).await?;
        let Some(pages) = pages else { return Ok(Vec::new()) };
        let (first, until) = (months.start.days().start, Month(months.end.0 - 1).days().end);
        let chunks = self.store.next_chunks(database, &(first, String::new()), until, CHUNKS_MOST).await?;
        if chunks.len() == CHUNKS_MOST {
            return Ok(Vec::new());
        }
        let mut found = self.store.read_months(database, sensors, months, projection).await?;
        let others: HashMap<&str, Vec<ScannedPage>> =
            sensors.iter().copied().zip(pages).filter(|(_, pages)| !pages.is_empty()).collect();
        let are_deletions = deletions.has_hours(database, &hours);
        for (id, month) in &mut found {
            let Some(totals) = &mut month.totals else { continue };
            let (days, pages) = (id.month.days(), others.get(&*id.sensor));
            let sensor = if are_deletions { self.sensor(database, &id.sensor).await? } else { None };
            let covers = sensor.map(|sensor| deletions.of(database, &sensor, &hours)).unwrap_or_default();
            let with_pages = pages.into_iter().flatten().map(|page| Day::of(page.hour));
            let with_chunks = chunks.iter().filter(|(_, sensor)| **sensor == *id.sensor).map(|(day, _)| *day);
            let covered = covers.iter().flat_map(|(range, _)| days_of(range, &days));
            totals.narrow(&days, with_pages.chain(with_chunks).chain(covered));
        }
        Ok(found)
    }

    /// As [`DayStore::scan_days`], without what remembered deletions cover.
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
    ) -> Result<Scanned> {
        let deletions = self.masks.now();
        let scanned = self.store.scan_days(database, sensor, hours.clone(), order, projection, extent).await?;
        let pages =
            self.mask(&deletions, (database, sensor), &hours, (projection, Source::Days), scanned.pages).await?;
        Ok(Scanned { pages, ..scanned })
    }

    /// As [`SensorStore::read_sensors`], without metadata that a remembered deletion covers.
    ///
    /// # Errors
    /// As the store's method.
    pub async fn read_sensors(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorDocument>> {
        Ok(self.without_deleted_meta(database, self.store.read_sensors(database, keys).await?))
    }

    /// As [`SensorStore::list_sensors`], without metadata that a remembered deletion covers.
    ///
    /// # Errors
    /// As the store's method.
    pub async fn list_sensors(&self, database: &str, filter: &SensorFilter) -> Result<Vec<SensorDocument>> {
        Ok(self.without_deleted_meta(database, self.store.list_sensors(database, filter).await?))
    }

    /// The sensor of a key, from its document if there is one: the document has its exact parts.
    async fn sensor(&self, database: &str, key: &str) -> Result<Option<Arc<Sensor>>> {
        match self.store.read_sensors(database, &[key]).await {
            Ok(found) => {
                let found = found.into_iter().next().map(|document| document.sensor);
                Ok(found.or_else(|| Sensor::from_key(key).map(Arc::new)))
            }
            Err(error) if error.is_of_document() => Ok(Sensor::from_key(key).map(Arc::new)),
            Err(error) => Err(error),
        }
    }

    /// Removes the metadata that a deletion of whole sensors covers.
    fn without_deleted_meta(&self, database: &str, mut documents: Vec<SensorDocument>) -> Vec<SensorDocument> {
        let deletions = self.masks.now();
        if deletions.has_database(database) {
            for document in documents.iter_mut().filter(|document| !document.meta.is_empty()) {
                document.meta.cut(deletions.of_sensor(database, &document.sensor, &ALWAYS));
            }
        }
        documents
    }

    /// Removes deleted readings from a sensor's scanned pages. If a deletion may touch a page that was read without its
    /// readings, its hour is read again with them, since the stored summary no longer holds.
    async fn mask(
        &self,
        deletions: &Deletions,
        (database, key): (&str, &str),
        hours: &Range<Hour>,
        (projection, source): (&Projection, Source),
        pages: Vec<ScannedPage>,
    ) -> Result<Vec<ScannedPage>> {
        if pages.is_empty() || !deletions.has_hours(database, hours) {
            return Ok(pages);
        }
        let Some(sensor) = self.sensor(database, key).await? else { return Ok(pages) };
        let covers = deletions.of(database, &sensor, hours);
        if covers.is_empty() {
            return Ok(pages);
        }
        let mut masked = Vec::with_capacity(pages.len());
        for of_hour in pages.chunk_by(|a, b| a.hour == b.hour) {
            let hour = of_hour[0].hour;
            let is_touched = of_hour.iter().any(|page| is_touched(page, &covers));
            let with_readings = of_hour.iter().all(|page| page.readings.is_some());
            if !is_touched || with_readings {
                masked.extend(of_hour.iter().cloned().filter_map(|page| masked_page(page, &covers, true)));
                continue;
            }
            let with_readings = Projection { fields: projection.fields.clone(), ..Projection::ALL };
            let anew = self.read_hour((database, key), hour, &with_readings, source).await?;
            masked.extend(anew.into_iter().filter_map(|page| masked_page(page, &covers, false)));
        }
        Ok(masked)
    }

    async fn read_hour(
        &self,
        (database, key): (&str, &str),
        hour: Hour,
        projection: &Projection,
        source: Source,
    ) -> Result<Vec<ScannedPage>> {
        let hours = hour..hour.next();
        Ok(match source {
            Source::Pages => {
                self.store.scan(database, key, hours, Order::Ascending, projection, Extent::ALL).await?.pages
            }
            Source::Days => {
                self.store.scan_days(database, key, hours, Order::Ascending, projection, Extent::ALL).await?.pages
            }
        })
    }

    /// Lays hour pages over what sealed days have of the same hours, in order of hours.
    async fn unite(
        &self,
        deletions: &Deletions,
        of: (&str, &str),
        projection: &Projection,
        mut pages: Vec<ScannedPage>,
        mut days: Vec<ScannedPage>,
    ) -> Result<Vec<ScannedPage>> {
        if days.is_empty() {
            return Ok(pages);
        }
        keep_expired(&mut pages, &mut days);
        let both = if projection.readings { Vec::new() } else { in_several(&pages, &days) };
        // Their summaries cannot be added up: the same reading may be in both.
        for hour in &both {
            let (hours, whole) =
                (*hour..hour.next(), Projection { fields: projection.fields.clone(), ..Projection::ALL });
            for (read, source) in [(&mut pages, Source::Pages), (&mut days, Source::Days)] {
                let anew = self.read_hour(of, *hour, &whole, source).await?;
                let anew = self.mask(deletions, of, &hours, (&whole, source), anew).await?;
                read.retain(|page| page.hour != *hour);
                read.extend(anew);
                read.sort_by_key(|page| (page.hour, page.number));
            }
        }
        let mut united = unite(pages, days);
        if !projection.readings {
            united.iter_mut().for_each(|page| page.readings = None);
        }
        Ok(united)
    }

    /// As [`PageStore::scan`], with sealed days and without what remembered deletions cover.
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
    ) -> Result<Scanned> {
        let deletions = self.masks.now();
        let of = (database, sensor);
        // A part without pages means that nothing is left, so a part that a deletion emptied is skipped.
        let mut left = hours;
        loop {
            let scanned = self.store.scan(database, sensor, left.clone(), order, projection, extent).await?;
            let Scanned { mut pages, mut rest } = scanned;
            let covered = match order {
                Order::Ascending => left.start..rest.start,
                Order::Descending => rest.end..left.end,
            };
            let mut days = Vec::new();
            if some_may_be_sealed(&covered) {
                let found = self.store.scan_days(database, sensor, covered.clone(), order, projection, extent).await?;
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
            let mut pages = self.mask(&deletions, of, &left, (projection, Source::Pages), pages).await?;
            let mut days = self.mask(&deletions, of, &left, (projection, Source::Days), days).await?;
            let turns = order == Order::Descending && !days.is_empty();
            if turns {
                // Stable: the pages of an hour stay in order.
                pages.sort_by_key(|page| page.hour);
                days.sort_by_key(|page| page.hour);
            }
            let mut pages = self.unite(&deletions, of, projection, pages, days).await?;
            if turns {
                pages.sort_by_key(|page| Reverse(page.hour));
            }
            if !pages.is_empty() || rest.is_empty() {
                return Ok(Scanned { pages, rest });
            }
            left = rest;
        }
    }
}

/// Where pages were read from.
#[derive(Debug, Clone, Copy)]
enum Source {
    Pages,
    Days,
}

/// The days that a range of times touches, of these.
fn days_of(range: &Range<i64>, days: &Range<Day>) -> impl Iterator<Item = Day> + use<> {
    let day = |time: i64| Day::of(Hour::of(time));
    let (first, behind) = (day(range.start).max(days.start), day(range.end.saturating_sub(1)).next().min(days.end));
    (first.0..behind.0).map(Day)
}

/// Whether some of these hours may be in parts of days.
fn some_may_be_sealed(hours: &Range<Hour>) -> bool {
    !hours.is_empty() && may_be_sealed(hours.start, latest_ns())
}

fn is_touched(page: &ScannedPage, covers: &Covers) -> bool {
    let hour = page.hour.start_ns()..page.hour.end_ns();
    covers.iter().any(|(range, before)| page.oldest < *before && range.start < hour.end && hour.start < range.end)
}

/// Removes deleted readings from a page; `None` when nothing is left.
fn masked_page(mut page: ScannedPage, covers: &Covers, with_readings: bool) -> Option<ScannedPage> {
    if !is_touched(&page, covers) {
        return Some(page);
    }
    let readings = page.readings.as_mut()?;
    if cut(readings, covers) {
        page.summary = readings.summaries().map(|(name, summary)| (name.clone(), summary.clone())).collect();
    }
    let is_empty = readings.is_empty();
    if !with_readings {
        page.readings = None;
    }
    (!is_empty).then_some(page)
}
