//! A store wrapper that hides what remembered deletions cover, even where the store still has it: every read of
//! readings and summaries goes through here. Walks do not, so that a check sees the store as it is.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use crate::bucket::deletions::{Covers, Deletions, Masks, cut};
use crate::bucket::page::StoredPage;
use crate::bucket::raw::{Cursor, RawBucket, RawSensor, Walked};
use crate::bucket::registry::MemberRegistry;
use crate::bucket::store::{BucketId, Extent, PageWrite, Projection, Scanned, ScannedPage, SensorFilter, Written};
use crate::bucket::{SensorDocument, StorageError, Store, StoreSpace};
use crate::reading::{Hour, Sensor, Stamp};

/// A store seen through the remembered deletions.
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
            Err(StorageError::Unreadable { .. }) => Ok(Sensor::of_key(key).map(Arc::new)),
            Err(error) => Err(error),
        }
    }

    /// Removes deleted readings from a sensor's scanned pages. If a deletion may touch a page that was read without its
    /// readings, its hour is read again with them, since the stored summary no longer holds.
    async fn mask(
        &self,
        deletions: &Deletions,
        (database, key): (&str, &str),
        hours: &Range<Hour>,
        projection: &Projection,
        pages: Vec<ScannedPage>,
    ) -> Result<Vec<ScannedPage>, StorageError> {
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
            let anew = self.store.scan(database, key, hour..hour.next(), &with_readings, Extent::ALL).await?;
            masked.extend(anew.pages.into_iter().filter_map(|page| masked_page(page, &covers, false)));
        }
        Ok(masked)
    }
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
        let deletions = self.masks.now();
        if !deletions.is_about(database) {
            return self.store.scan(database, sensor, hours, projection, extent).await;
        }
        // A part without pages means that nothing is left, so a part that a deletion emptied is skipped.
        let mut rest = hours.clone();
        loop {
            let scanned = self.store.scan(database, sensor, rest, projection, extent).await?;
            rest = scanned.rest;
            let pages = self.mask(&deletions, (database, sensor), &hours, projection, scanned.pages).await?;
            if !pages.is_empty() || rest.is_empty() {
                return Ok(Scanned { pages, rest });
            }
        }
    }

    async fn scan_back(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned, StorageError> {
        let deletions = self.masks.now();
        if !deletions.is_about(database) {
            return self.store.scan_back(database, sensor, hours, projection, extent).await;
        }
        let mut rest = hours.clone();
        loop {
            let scanned = self.store.scan_back(database, sensor, rest, projection, extent).await?;
            rest = scanned.rest;
            let pages = self.mask(&deletions, (database, sensor), &hours, projection, scanned.pages).await?;
            if !pages.is_empty() || rest.is_empty() {
                return Ok(Scanned { pages, rest });
            }
        }
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
        if !deletions.is_about(database) {
            return Ok(Some(scanned));
        }
        let mut masked = Vec::with_capacity(scanned.len());
        for (sensor, pages) in sensors.iter().zip(scanned) {
            masked.push(self.mask(&deletions, (database, sensor), &hours, projection, pages).await?);
        }
        Ok(Some(masked))
    }

    async fn read_sensors(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorDocument>, StorageError> {
        self.store.read_sensors(database, keys).await
    }

    async fn list_sensors(&self, database: &str, filter: &SensorFilter) -> Result<Vec<SensorDocument>, StorageError> {
        self.store.list_sensors(database, filter).await
    }

    async fn write_sensors(&self, database: &str, documents: &[SensorDocument]) -> Vec<Written> {
        self.store.write_sensors(database, documents).await
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

    async fn remove_sensors(&self, database: &str, keys: &[&str]) -> Result<(), StorageError> {
        self.store.remove_sensors(database, keys).await
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
