//! Pages in `<db>.buckets` and `<db>.overflow`, and sensor documents in `<db>.sensors`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bson::{Bson, Document, doc};
use parking_lot::Mutex;

use super::connect::CONCURRENT_COMMANDS_MAX;
use super::days::REMOVED_MAX;
use super::reads::Query;
use super::setup::{Collections, prefix};
use super::writes::MongoWrite;
use super::{MongoStore, READ_BUCKETS_MAX, READ_SENSORS_MAX, REMOVE_SENSORS_MAX, date, remove, scan, writes};
use crate::bucket::page::StoredPage;
use crate::bucket::store::{
    BucketId, Extent, Order, PageStore, PageWrite, Projection, ScanResult, ScannedPage, SensorFilter, SensorStore,
    WriteOutcome,
};
use crate::bucket::{Result, SensorDocument, StorageError, WriteKind};
use crate::reading::{Hour, Stamp};
use crate::{ScanBudget, document};

#[async_trait]
impl PageStore for MongoStore {
    async fn write_pages(&self, database: &str, writes: &[PageWrite<'_>]) -> Vec<WriteOutcome> {
        let has_pending =
            |write: &PageWrite<'_>, page: usize, kind: WriteKind| write.bucket.pages()[page].pending() == Some(kind);
        let has_new_page =
            |write: &&PageWrite<'_>| write.group.iter().any(|page| has_pending(write, *page, WriteKind::Insert));
        let new = writes.iter().filter(has_new_page).map(|write| &*write.id.sensor);
        let has_new = writes.iter().any(|write| has_new_page(&write));
        let is_first = has_new && !self.is_listed(database);
        let collections = match self.collections_for(database, has_new).await {
            Ok(collections) => collections,
            Err(error) => return vec![WriteOutcome::Failed(error); writes.len()],
        };
        let copies = match self.new_copies(database, new).await {
            Ok(copies) => copies,
            Err(error) => return vec![WriteOutcome::Failed(error); writes.len()],
        };
        let outcomes = Mutex::new(vec![WriteOutcome::Applied; writes.len()]);
        // Single pages go into shared commands. Groups and removals need a transaction each.
        let mut buckets = Vec::new();
        let mut overflow = Vec::new();
        let mut groups = Vec::new();
        for (index, write) in writes.iter().enumerate() {
            match write.group[..] {
                [page] if !has_pending(write, page, WriteKind::Remove) => {
                    let is_first = write.bucket.pages()[page].number == 0;
                    let list = if is_first { &mut buckets } else { &mut overflow };
                    list.push((index, writes::page_change(write, page, &copies)));
                }
                _ => groups.push(index),
            }
        }
        let groups = Mutex::new(groups);
        let next = || groups.lock().pop();
        let work = || async {
            while let Some(index) = next() {
                let changes = writes::transaction_writes(&collections, &writes[index], &copies);
                let outcome = self.transact(prefix(&collections.buckets), changes).await;
                outcomes.lock()[index] = outcome;
            }
        };
        let transactions = futures_util::future::join_all((0..CONCURRENT_COMMANDS_MAX).map(|_| work()));
        tokio::join!(
            self.write(&collections.buckets, buckets, &outcomes),
            self.write(&collections.overflow, overflow, &outcomes),
            transactions
        );
        // An instance that learned late of a drop may have unlisted the database before the pages were there.
        if is_first && let Err(error) = self.list(database).await {
            self.forget(database);
            return vec![WriteOutcome::Failed(error); writes.len()];
        }
        self.wait_for_newer(database, outcomes.into_inner()).await
    }

    async fn read_buckets(&self, database: &str, ids: &[BucketId], pages_max: usize) -> Result<Vec<Vec<StoredPage>>> {
        let collections = Collections::new(&self.mongo, database);
        let page_ids: Vec<String> = ids.iter().map(|id| document::page_id(&id.sensor.key, id.hour, 0)).collect();
        let mut indexes: HashMap<String, usize> = HashMap::with_capacity(ids.len());
        let mut buckets: Vec<Vec<StoredPage>> = vec![Vec::new(); ids.len()];
        for (ids, page_ids) in ids.chunks(READ_BUCKETS_MAX).zip(page_ids.chunks(READ_BUCKETS_MAX)) {
            let offset = indexes.len();
            indexes.extend(page_ids.iter().enumerate().map(|(i, id)| (id.clone(), offset + i)));
            let query = Query::new(doc! { "_id": { "$in": page_ids } }).project((pages_max == 0).then(scan::marks));
            let first_pages = self.find(&collections.buckets, query).await?;
            let mut with_overflow = Vec::new();
            for first in &first_pages {
                let Some(index) = first.get_str("_id").ok().and_then(|id| indexes.get(id)).copied() else { continue };
                let id = &ids[index - offset];
                let page = if pages_max == 0 {
                    document::decode_page_marks(first)?
                } else {
                    document::check_owner(first, &id.sensor.key, id.hour)?;
                    document::decode_page(first)?
                };
                if page.has_overflow {
                    with_overflow.push((id, index));
                } else {
                    buckets[index].push(page);
                }
            }
            for (id, index) in with_overflow {
                buckets[index] = self.decode_all_pages(&collections, id, pages_max).await?;
            }
        }
        Ok(buckets)
    }

    async fn read_pages(&self, database: &str, id: &BucketId, numbers: &[u32]) -> Result<Vec<StoredPage>> {
        let collections = Collections::new(&self.mongo, database);
        let (first, others): (Vec<u32>, Vec<u32>) = numbers.iter().partition(|number| **number == 0);
        let mut pages = Vec::with_capacity(numbers.len());
        for (collection, numbers) in [(collections.buckets, first), (collections.overflow, others)] {
            if numbers.is_empty() {
                continue;
            }
            let ids: Vec<String> =
                numbers.iter().map(|number| document::page_id(&id.sensor.key, id.hour, *number)).collect();
            for page in &self.find(&collection, Query::new(doc! { "_id": { "$in": ids } })).await? {
                document::check_owner(page, &id.sensor.key, id.hour)?;
                pages.push(document::decode_page(page)?);
            }
        }
        Ok(pages)
    }

    async fn scan(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<ScanResult> {
        let collections = Collections::new(&self.mongo, database);
        let mut rest = hours;
        loop {
            let scanned = self.scan_some(&collections, sensor, rest, order, projection, extent).await?;
            // Go on if all pages of this step were deleted meanwhile.
            if !scanned.pages.is_empty() || scanned.rest.is_empty() {
                return Ok(scanned);
            }
            rest = scanned.rest;
        }
    }

    async fn scan_sensors(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>> {
        let budget = ScanBudget::new(bytes_max);
        let collections = Collections::new(&self.mongo, database);
        let indexes: HashMap<String, usize> =
            sensors.iter().enumerate().map(|(index, sensor)| ((*sensor).to_owned(), index)).collect();
        let indexes = Arc::new(indexes);
        let batches = (0..sensors.len()).step_by(scan::SENSORS_MAX).map(|from| {
            let collection = collections.buckets.clone();
            let batch = from..from + scan::SENSORS_MAX;
            let client = self.client.clone();
            let indexes = indexes.clone();
            let projection = projection.clone();
            self.read(scan::first_pages(client, collection, indexes, batch, hours.clone(), projection, budget.clone()))
        });
        let mut pages: Vec<Vec<ScannedPage>> = vec![Vec::new(); sensors.len()];
        let batches = futures_util::future::try_join_all(batches).await?;
        let Some(batches) = batches.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
        for found in batches.into_iter().flatten() {
            if !found.has_overflow {
                pages[found.sensor].push(found.page);
                continue;
            }
            let sensor = sensors[found.sensor];
            let scanned = self.scan_all_pages(&collections, sensor, found.page.hour, projection, budget.left()).await;
            let bucket = match scanned {
                Err(StorageError::HourTooLarge { .. }) => return Ok(None),
                scanned => scanned?,
            };
            if !budget.take(bucket.iter().map(|page| page.bytes(0)).sum()) {
                return Ok(None);
            }
            pages[found.sensor].extend(bucket);
        }
        pages.iter_mut().for_each(|pages| pages.sort_by_key(|page| (page.hour, page.number)));
        Ok(Some(pages))
    }

    async fn remove_single_pages(&self, database: &str, pages: &[(BucketId, u64)]) -> Result<()> {
        let buckets = Collections::new(&self.mongo, database).buckets;
        for batch in pages.chunks(REMOVED_MAX) {
            let filter = |(id, rev): &(BucketId, u64)| {
                let id = document::page_id(&id.sensor.key, id.hour, 0);
                let rev = i64::try_from(*rev).unwrap_or(i64::MAX);
                Bson::Document(doc! { "_id": id, "rev": rev, "hasOverflow": false })
            };
            self.remove(&buckets, doc! { "$or": batch.iter().map(filter).collect::<Vec<_>>() }).await?;
        }
        Ok(())
    }

    async fn next_buckets(
        &self,
        database: &str,
        start: &(Hour, String),
        end: Hour,
        max: usize,
    ) -> Result<Vec<(Hour, String)>> {
        let buckets = Collections::new(&self.mongo, database).buckets;
        let (hour, sensor) = start;
        // Ids begin with the hour, and the id of an empty key sorts before all other ids of its hour.
        let range = doc! { "$gt": document::page_id(sensor, *hour, 0), "$lt": document::page_id("", end, 0) };
        let fields = doc! { "_id": 1, "sensor": 1, "start": 1 };
        let query = Query::new(doc! { "_id": range }).sort(doc! { "_id": 1 }).project(fields);
        let entry = |page: &bson::RawDocumentBuf| {
            let start = page.get_datetime("start").ok()?.timestamp_millis();
            Some((Hour::from_ms(start), page.get_str("sensor").ok()?.to_owned()))
        };
        Ok(self.find(&buckets, query.limit(Extent::pages(max))).await?.iter().filter_map(entry).collect())
    }

    async fn remove_buckets(&self, database: &str, sensors: &[&str], hours: Range<Hour>, limit: Stamp) -> Result<()> {
        let collections = Collections::new(&self.mongo, database);
        let hours = doc! { "$gte": date(hours.start), "$lt": date(hours.end) };
        for batch in sensors.chunks(remove::SENSORS_MAX) {
            let filter = doc! {
                "sensor": { "$in": batch }, "start": hours.clone(), "hasOverflow": false,
                "$nor": [remove::has_stamp_at_least(limit), remove::is_newer(document::SCHEMA_VERSION)],
            };
            self.remove(&collections.buckets, filter).await?;
            let range = doc! { "sensor": { "$in": batch }, "start": hours.clone() };
            self.refuse_newer(&collections.buckets, range, document::SCHEMA_VERSION).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl SensorStore for MongoStore {
    async fn read_sensors(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorDocument>> {
        let collection = Collections::new(&self.mongo, database).sensors;
        let mut sensors = Vec::with_capacity(keys.len());
        for keys in keys.chunks(READ_SENSORS_MAX) {
            for sensor in self.find(&collection, Query::new(doc! { "_id": { "$in": keys } })).await? {
                sensors.push(document::decode_sensor(&sensor)?);
            }
        }
        Ok(sensors)
    }

    async fn list_sensors(&self, database: &str, filter: &SensorFilter) -> Result<Vec<SensorDocument>> {
        if filter.limit == 0 {
            // MongoDB takes 0 for no limit.
            return Ok(Vec::new());
        }
        let mut wanted = Document::new();
        if let Some(after) = &filter.after {
            wanted.insert("_id", doc! { "$gt": after });
        }
        if filter.outliers {
            wanted.insert("outlier.since", doc! { "$exists": true });
        }
        let query = Query::new(wanted).sort(doc! { "_id": 1 }).limit(Extent::pages(filter.limit));
        let found = self.find(&Collections::new(&self.mongo, database).sensors, query).await?;
        found.iter().map(|sensor| document::decode_sensor(sensor)).collect()
    }

    async fn write_sensors(&self, database: &str, documents: &[SensorDocument]) -> Vec<WriteOutcome> {
        let has_new = documents.iter().any(|document| document.rev == 0);
        let collections = match self.collections_for(database, has_new).await {
            Ok(collections) => collections,
            Err(error) => return vec![WriteOutcome::Failed(error); documents.len()],
        };
        let change = |sensor: &SensorDocument| {
            let kind = document::kind_of(&self.options.kinds, &sensor.sensor.measurement, &sensor.meta);
            match sensor.rev {
                0 => writes::insertion(document::sensor_document(sensor, kind)),
                rev => {
                    let id = sensor.sensor.key.to_string();
                    MongoWrite::Update { id, shard: None, rev, update: document::sensor_update(sensor, kind) }
                }
            }
        };
        let outcomes = Mutex::new(vec![WriteOutcome::Applied; documents.len()]);
        self.write(&collections.sensors, documents.iter().map(change).enumerate().collect(), &outcomes).await;
        self.note_grouped(database, documents.iter().map(|document| &*document.sensor.key));
        self.wait_for_newer(database, outcomes.into_inner()).await
    }

    async fn remove_sensors(&self, database: &str, sensors: &[(&str, Option<u64>)]) -> Result<()> {
        let documents = Collections::new(&self.mongo, database).sensors;
        for batch in sensors.chunks(REMOVE_SENSORS_MAX) {
            let filter = |(key, rev): &(&str, Option<u64>)| match rev {
                Some(rev) => doc! { "_id": key, "rev": i64::try_from(*rev).unwrap_or(i64::MAX) },
                None => doc! { "_id": key },
            };
            let keys: Vec<&str> = batch.iter().map(|(key, _)| *key).collect();
            let filters: Vec<Document> = batch.iter().map(filter).collect();
            let removed = self
                .remove(&documents, doc! { "$or": filters, "$nor": [remove::is_newer(document::SCHEMA_VERSION)] })
                .await;
            self.note_grouped(database, keys.iter().copied());
            removed?;
            self.refuse_newer(&documents, doc! { "_id": { "$in": keys } }, document::SCHEMA_VERSION).await?;
        }
        Ok(())
    }
}
