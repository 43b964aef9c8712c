//! A store wrapper through which every read of readings and summaries goes. It hides what remembered deletions cover, even
//! where the store still has it, and its scans lay hour pages over what sealed days have of the same hours. Walks do not,
//! so that a check sees the store as it is.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use crate::bucket::day::{in_several, keep_expired, may_be_sealed, unite};
use crate::bucket::deletions::{Covers, Deletions, Masks, cut};
use crate::bucket::page::StoredPage;
use crate::bucket::raw::{Cursor, OtherForms, RawBucket, RawDay, RawSensor, Walked};
use crate::bucket::registry::MemberRegistry;
use crate::bucket::store::{
    BucketId, DaysScanned, Extent, Order, PageWrite, Projection, Scanned, ScannedPage, SensorFilter, Written,
};
use crate::bucket::{
    CopiesRefreshed, CopyScope, DatabaseSettings, DayId, DayPart, DayWrite, HeldCopies, MonthId, MonthWrite, Regrouped,
    SensorDocument, StorageError, Store, StoreSpace, StoredDay, StoredMonth,
};
use crate::clock::{latest_ns, note_passed, now_ns};
use crate::reading::time::{TIMESTAMP_MAX, TIMESTAMP_MIN};
use crate::reading::{Day, Hour, Month, Sensor, Stamp};

/// Most days with chunks that are listed beside months: with more, backfill is under way.
const CHUNKS_MOST: usize = 512;
/// Most bytes of the pages that are listed beside months.
const PLACES_BYTES: usize = 4 << 20;

/// All times that a reading can have, in nanoseconds.
const ALWAYS: Range<i64> = TIMESTAMP_MIN..TIMESTAMP_MAX;

/// A store seen through the remembered deletions, with hour pages and sealed days as one.
#[derive(Debug)]
pub struct Masked {
    store: Arc<dyn Store>,
    masks: Masks,
}

impl Masked {
    /// Wraps the store so that these deletions apply to reads.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, masks: Masks) -> Self {
        Self { store, masks }
    }

    /// The sensor of a key, from its document if there is one: the document has its exact parts.
    async fn sensor(&self, database: &str, key: &str) -> Result<Option<Arc<Sensor>>, StorageError> {
        match self.store.read_sensors(database, &[key]).await {
            Ok(found) => {
                let found = found.into_iter().next().map(|document| document.sensor);
                Ok(found.or_else(|| Sensor::of_key(key).map(Arc::new)))
            }
            Err(error) if error.is_of_document() => Ok(Sensor::of_key(key).map(Arc::new)),
            Err(error) => Err(error),
        }
    }

    /// Removes the metadata that a deletion of whole sensors covers.
    fn without_deleted_meta(&self, database: &str, mut documents: Vec<SensorDocument>) -> Vec<SensorDocument> {
        let deletions = self.masks.now();
        if deletions.is_about(database) {
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
    ) -> Result<Vec<ScannedPage>, StorageError> {
        if pages.is_empty() || !deletions.is_about_hours(database, hours) {
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
    ) -> Result<Vec<ScannedPage>, StorageError> {
        let hours = hour..hour.next();
        Ok(match source {
            Source::Pages => self.store.scan(database, key, hours, projection, Extent::ALL).await?.pages,
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
    ) -> Result<Vec<ScannedPage>, StorageError> {
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

    /// A scan of hour pages with the sealed days beside them; in descending order if `order` says so.
    async fn scan_both(
        &self,
        of: (&str, &str),
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned, StorageError> {
        let (deletions, (database, sensor)) = (self.masks.now(), of);
        // A part without pages means that nothing is left, so a part that a deletion emptied is skipped.
        let mut left = hours;
        loop {
            let scanned = match order {
                Order::Ascending => self.store.scan(database, sensor, left.clone(), projection, extent).await?,
                Order::Descending => self.store.scan_back(database, sensor, left.clone(), projection, extent).await?,
            };
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
            let pages = self.mask(&deletions, of, &left, (projection, Source::Pages), pages).await?;
            let days = self.mask(&deletions, of, &left, (projection, Source::Days), days).await?;
            let pages = match order {
                Order::Ascending => self.unite(&deletions, of, projection, pages, days).await?,
                Order::Descending => self.unite_back(&deletions, of, projection, pages, days).await?,
            };
            if !pages.is_empty() || rest.is_empty() {
                return Ok(Scanned { pages, rest });
            }
            left = rest;
        }
    }

    async fn unite_back(
        &self,
        deletions: &Deletions,
        of: (&str, &str),
        projection: &Projection,
        mut pages: Vec<ScannedPage>,
        mut days: Vec<ScannedPage>,
    ) -> Result<Vec<ScannedPage>, StorageError> {
        if days.is_empty() {
            return Ok(pages);
        }
        // Stable: the pages of an hour stay in order.
        pages.sort_by_key(|page| page.hour);
        days.sort_by_key(|page| page.hour);
        let mut united = self.unite(deletions, of, projection, pages, days).await?;
        united.sort_by_key(|page| Reverse(page.hour));
        Ok(united)
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

#[async_trait]
impl Store for Masked {
    async fn write_pages(&self, database: &str, writes: &[PageWrite<'_>]) -> Vec<Written> {
        self.store.write_pages(database, writes).await
    }

    async fn read_buckets(
        &self,
        database: &str,
        ids: &[BucketId],
        pages_max: usize,
    ) -> Result<Vec<Vec<StoredPage>>, StorageError> {
        let deletions = self.masks.now();
        let mut buckets = self.store.read_buckets(database, ids, pages_max).await?;
        if deletions.is_about(database) {
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

    async fn read_pages(
        &self,
        database: &str,
        id: &BucketId,
        numbers: &[u32],
    ) -> Result<Vec<StoredPage>, StorageError> {
        let deletions = self.masks.now();
        let mut pages = self.store.read_pages(database, id, numbers).await?;
        if deletions.is_about(database) {
            let covers = deletions.of(database, &id.sensor, &(id.hour..id.hour.next()));
            pages.iter_mut().for_each(|page| page.cut |= cut(&mut page.readings, &covers));
        }
        Ok(pages)
    }

    async fn scan(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned, StorageError> {
        self.scan_both((database, sensor), hours, Order::Ascending, projection, extent).await
    }

    async fn scan_back(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned, StorageError> {
        self.scan_both((database, sensor), hours, Order::Descending, projection, extent).await
    }

    async fn scan_sensors(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>, StorageError> {
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

    async fn parts_of(
        &self,
        database: &str,
        sensors: &[&str],
        days: Range<Day>,
    ) -> Result<Vec<(usize, Day, DayPart)>, StorageError> {
        self.store.parts_of(database, sensors, days).await
    }

    async fn last_day(&self, database: &str) -> Result<Option<Day>, StorageError> {
        self.store.last_day(database).await
    }

    async fn next_chunks(
        &self,
        database: &str,
        from: &(Day, String),
        until: Day,
        most: usize,
    ) -> Result<Vec<(Day, String)>, StorageError> {
        self.store.next_chunks(database, from, until, most).await
    }

    /// Without what remembered deletions cover.
    async fn read_days(&self, database: &str, ids: &[DayId]) -> Result<Vec<Option<StoredDay>>, StorageError> {
        let deletions = self.masks.now();
        let mut days = self.store.read_days(database, ids).await?;
        if deletions.is_about(database) {
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

    async fn write_days(&self, database: &str, days: &[DayWrite<'_>]) -> Vec<Written> {
        // The clock may be set back later.
        days.iter().for_each(|day| note_passed(day.id.day.hours().end.start_ns()));
        self.store.write_days(database, days).await
    }

    /// Without the days that have something else beside the parts that were added up.
    async fn read_months(
        &self,
        database: &str,
        sensors: &[&str],
        months: Range<Month>,
        projection: &Projection,
    ) -> Result<Vec<(MonthId, StoredMonth)>, StorageError> {
        // No other month is over.
        let months = months.start..months.end.min(Month::of(Day::of(Hour::of(now_ns()))));
        if months.is_empty() {
            return Ok(Vec::new());
        }
        let hours = months.start.days().start.hours().start..Month(months.end.0 - 1).days().end.hours().start;
        let (deletions, places) = (self.masks.now(), Projection::places());
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
        let are_deletions = deletions.is_about_hours(database, &hours);
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

    async fn write_months(&self, database: &str, months: &[MonthWrite<'_>]) -> Vec<Written> {
        self.store.write_months(database, months).await
    }

    async fn scan_days(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<DaysScanned, StorageError> {
        let deletions = self.masks.now();
        let scanned = self.store.scan_days(database, sensor, hours.clone(), order, projection, extent).await?;
        let pages =
            self.mask(&deletions, (database, sensor), &hours, (projection, Source::Days), scanned.pages).await?;
        Ok(DaysScanned { pages, ..scanned })
    }

    async fn scan_days_of(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>, StorageError> {
        self.store.scan_days_of(database, sensors, hours, projection, bytes_max).await
    }

    async fn remove_single_pages(&self, database: &str, pages: &[(BucketId, u64)]) -> Result<(), StorageError> {
        self.store.remove_single_pages(database, pages).await
    }

    async fn next_buckets(
        &self,
        database: &str,
        from: &(Hour, String),
        until: Hour,
        most: usize,
    ) -> Result<Vec<(Hour, String)>, StorageError> {
        self.store.next_buckets(database, from, until, most).await
    }

    async fn read_sensors(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorDocument>, StorageError> {
        Ok(self.without_deleted_meta(database, self.store.read_sensors(database, keys).await?))
    }

    async fn list_sensors(&self, database: &str, filter: &SensorFilter) -> Result<Vec<SensorDocument>, StorageError> {
        Ok(self.without_deleted_meta(database, self.store.list_sensors(database, filter).await?))
    }

    async fn write_sensors(&self, database: &str, documents: &[SensorDocument]) -> Vec<Written> {
        self.store.write_sensors(database, documents).await
    }

    fn keeps_copies(&self) -> bool {
        self.store.keeps_copies()
    }

    async fn held_copies(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
    ) -> Result<Vec<HeldCopies>, StorageError> {
        self.store.held_copies(database, sensors, hours).await
    }

    async fn refresh_copies(
        &self,
        database: &str,
        sensors: &[&str],
        scope: CopyScope,
    ) -> Result<CopiesRefreshed, StorageError> {
        self.store.refresh_copies(database, sensors, scope).await
    }

    async fn next_stale_copies(
        &self,
        database: &str,
        after: &str,
        most: usize,
    ) -> Result<(Vec<String>, Option<String>), StorageError> {
        self.store.next_stale_copies(database, after, most).await
    }

    fn keeps_groups(&self) -> bool {
        self.store.keeps_groups()
    }

    async fn regroup(&self, most: usize) -> Result<Regrouped, StorageError> {
        self.store.regroup(most).await
    }

    async fn regroup_after(
        &self,
        database: &str,
        after: &str,
        most: usize,
    ) -> Result<(Regrouped, Option<String>), StorageError> {
        self.store.regroup_after(database, after, most).await
    }

    async fn settle_indexes(&self, database: &str) -> Result<u64, StorageError> {
        self.store.settle_indexes(database).await
    }

    async fn databases(&self) -> Result<Vec<String>, StorageError> {
        self.store.databases().await
    }

    async fn create_database(&self, database: &str) -> Result<(), StorageError> {
        self.store.create_database(database).await
    }

    async fn remove_buckets(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        before: Stamp,
    ) -> Result<(), StorageError> {
        self.store.remove_buckets(database, sensors, hours, before).await
    }

    async fn remove_sensors(&self, database: &str, sensors: &[(&str, Option<u64>)]) -> Result<(), StorageError> {
        self.store.remove_sensors(database, sensors).await
    }

    async fn drop_database(&self, database: &str) -> Result<(), StorageError> {
        self.store.drop_database(database).await
    }

    async fn unlist_database(&self, database: &str) -> Result<(), StorageError> {
        self.store.unlist_database(database).await
    }

    async fn read_registry(&self) -> Result<MemberRegistry, StorageError> {
        self.store.read_registry().await
    }

    async fn write_registry(&self, registry: &MemberRegistry) -> Written {
        self.store.write_registry(registry).await
    }

    async fn read_settings(&self) -> Result<Vec<(String, DatabaseSettings)>, StorageError> {
        self.store.read_settings().await
    }

    async fn write_settings(&self, database: &str, held: u64, settings: Option<&DatabaseSettings>) -> Written {
        self.store.write_settings(database, held, settings).await
    }

    async fn clock_ms(&self) -> Result<Option<u64>, StorageError> {
        self.store.clock_ms().await
    }

    async fn revisit(&self, database: &str) -> Result<(), StorageError> {
        self.store.revisit(database).await
    }

    async fn walk_buckets(
        &self,
        database: &str,
        from: Option<&Cursor>,
        pages_max: usize,
    ) -> Result<Walked<RawBucket>, StorageError> {
        self.store.walk_buckets(database, from, pages_max).await
    }

    async fn walk_sensors(
        &self,
        database: &str,
        from: Option<&Cursor>,
        max: usize,
    ) -> Result<Walked<RawSensor>, StorageError> {
        self.store.walk_sensors(database, from, max).await
    }

    async fn walk_days(
        &self,
        database: &str,
        from: Option<&Cursor>,
        max: usize,
    ) -> Result<Walked<RawDay>, StorageError> {
        self.store.walk_days(database, from, max).await
    }

    async fn other_forms(
        &self,
        database: &str,
        from: Option<&Cursor>,
        most: usize,
    ) -> Result<OtherForms, StorageError> {
        self.store.other_forms(database, from, most).await
    }

    async fn unmigrated(&self) -> Result<Vec<String>, StorageError> {
        self.store.unmigrated().await
    }

    async fn note_migrated(&self, database: &str) -> Result<(), StorageError> {
        self.store.note_migrated(database).await
    }

    async fn estimate_pages(&self) -> Result<u64, StorageError> {
        self.store.estimate_pages().await
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    async fn check(&self) -> Result<(), StorageError> {
        self.store.check().await
    }

    async fn space(&self) -> Result<StoreSpace, StorageError> {
        self.store.space().await
    }

    async fn close(&self) {
        self.store.close().await;
    }
}
