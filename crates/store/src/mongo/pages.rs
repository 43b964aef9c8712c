//! Hour pages in `<db>.buckets` and `<db>.overflow`, and documents of sensors in `<db>.sensors`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bson::{Bson, Document, doc};
use parking_lot::Mutex;

use super::connect::COMMANDS_IN_FLIGHT;
use super::days::REMOVED;
use super::reads::Query;
use super::setup::{Collections, prefix};
use super::writes::MongoWrite;
use super::{MongoStore, READ_BUCKETS, READ_SENSORS, REMOVE_SENSORS, date, remove, scan, writes};
use crate::bucket::page::StoredPage;
use crate::bucket::store::{
    BucketId, Extent, Order, PageStore, PageWrite, Projection, Scanned, ScannedPage, SensorFilter, SensorStore, Written,
};
use crate::bucket::{Result, SensorDocument, StorageError, WriteKind};
use crate::reading::{Hour, Stamp};
use crate::{ScanBudget, document};

#[async_trait]
impl PageStore for MongoStore {
    async fn write_pages(&self, database: &str, writes: &[PageWrite<'_>]) -> Vec<Written> {
        let has_pending =
            |write: &PageWrite<'_>, index: usize, kind: WriteKind| write.bucket.pages()[index].pending() == Some(kind);
        let has_new_page =
            |write: &&PageWrite<'_>| write.group.iter().any(|index| has_pending(write, *index, WriteKind::Insert));
        let new = writes.iter().filter(has_new_page).map(|write| &*write.id.sensor.key);
        let prepared =
            async { Ok::<_, StorageError>((self.created(database).await?, self.new_copies(database, new).await?)) };
        let (collections, copies) = match prepared.await {
            Ok(prepared) => prepared,
            Err(error) => return vec![Written::Failed(error); writes.len()],
        };
        let outcomes = Mutex::new(vec![Written::Yes; writes.len()]);
        let (mut buckets, mut overflow, mut together) = (Vec::new(), Vec::new(), Vec::new());
        for (place, write) in writes.iter().enumerate() {
            let in_buckets = |index: &usize| write.bucket.pages()[*index].number == 0;
            match write.group[..] {
                [index] if !has_pending(write, index, WriteKind::Remove) => {
                    let list = if in_buckets(&index) { &mut buckets } else { &mut overflow };
                    list.push((place, writes::page_change(write, index, &copies)));
                }
                _ => together.push(place),
            }
        }
        let together = Mutex::new(together);
        let next = || together.lock().pop();
        let work = || async {
            while let Some(place) = next() {
                let changes = writes::together(&collections, &writes[place], &copies);
                let outcome = self.transact(prefix(&collections.buckets), changes).await;
                outcomes.lock()[place] = outcome;
            }
        };
        let transactions = futures_util::future::join_all((0..COMMANDS_IN_FLIGHT).map(|_| work()));
        tokio::join!(
            self.write(&collections.buckets, buckets, &outcomes),
            self.write(&collections.overflow, overflow, &outcomes),
            transactions
        );
        self.wait_for_newer(database, outcomes.into_inner()).await
    }

    async fn read_buckets(&self, database: &str, ids: &[BucketId], pages_max: usize) -> Result<Vec<Vec<StoredPage>>> {
        let collections = Collections::of(&self.mongo, database);
        let page_ids: Vec<String> = ids.iter().map(|id| document::page_id(&id.sensor.key, id.hour, 0)).collect();
        let mut places: HashMap<String, usize> = HashMap::with_capacity(ids.len());
        let mut buckets: Vec<Vec<StoredPage>> = vec![Vec::new(); ids.len()];
        for (ids, page_ids) in ids.chunks(READ_BUCKETS).zip(page_ids.chunks(READ_BUCKETS)) {
            let offset = places.len();
            places.extend(page_ids.iter().enumerate().map(|(i, id)| (id.clone(), offset + i)));
            let query = Query::of(doc! { "_id": { "$in": page_ids } }).sending((pages_max == 0).then(scan::marks));
            let first_pages = self.find(&collections.buckets, query).await?;
            let mut spilled = Vec::new();
            for first in &first_pages {
                let Some(place) = first.get_str("_id").ok().and_then(|id| places.get(id)).copied() else { continue };
                let id = &ids[place - offset];
                let page = if pages_max == 0 {
                    document::decode_page_marks(first)?
                } else {
                    document::check_owner(first, &id.sensor.key, id.hour)?;
                    document::decode_page(first)?
                };
                if page.has_overflow {
                    spilled.push((&ids[place - offset], place));
                } else {
                    buckets[place].push(page);
                }
            }
            for (id, place) in spilled {
                buckets[place] = self.spilled_pages(&collections, id, pages_max).await?;
            }
        }
        Ok(buckets)
    }

    async fn read_pages(&self, database: &str, id: &BucketId, numbers: &[u32]) -> Result<Vec<StoredPage>> {
        let collections = Collections::of(&self.mongo, database);
        let (first, others): (Vec<u32>, Vec<u32>) = numbers.iter().partition(|number| **number == 0);
        let mut pages = Vec::with_capacity(numbers.len());
        for (collection, numbers) in [(collections.buckets, first), (collections.overflow, others)] {
            if numbers.is_empty() {
                continue;
            }
            let ids: Vec<String> =
                numbers.iter().map(|number| document::page_id(&id.sensor.key, id.hour, *number)).collect();
            for page in &self.find(&collection, Query::of(doc! { "_id": { "$in": ids } })).await? {
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
    ) -> Result<Scanned> {
        let collections = Collections::of(&self.mongo, database);
        let mut rest = hours;
        loop {
            let scanned = self.scan_some(&collections, sensor, rest, order, projection, extent).await?;
            // All pages of this part may have been deleted meanwhile.
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
        let room = ScanBudget::new(bytes_max);
        let collections = Collections::of(&self.mongo, database);
        let places: HashMap<String, usize> =
            sensors.iter().enumerate().map(|(place, sensor)| ((*sensor).to_owned(), place)).collect();
        let places = Arc::new(places);
        let batches = (0..sensors.len()).step_by(scan::SENSORS).map(|from| {
            let (collection, places) = (collections.buckets.clone(), places.clone());
            let lot = from..from + scan::SENSORS;
            self.read(scan::first_pages(collection, places, lot, hours.clone(), projection.clone(), room.clone()))
        });
        let mut pages: Vec<Vec<ScannedPage>> = vec![Vec::new(); sensors.len()];
        let batches = futures_util::future::try_join_all(batches).await?;
        let Some(batches) = batches.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
        for found in batches.into_iter().flatten() {
            if !found.has_overflow {
                pages[found.place].push(found.page);
                continue;
            }
            let hour = found.page.hour;
            let several = self.spilled_scanned(&collections, sensors[found.place], hour, projection, room.left()).await;
            let several = match several {
                Err(StorageError::HourTooLarge { .. }) => return Ok(None),
                several => several?,
            };
            if !room.take(several.iter().map(|page| page.bytes(0)).sum()) {
                return Ok(None);
            }
            pages[found.place].extend(several);
        }
        pages.iter_mut().for_each(|pages| pages.sort_by_key(|page| (page.hour, page.number)));
        Ok(Some(pages))
    }

    async fn remove_single_pages(&self, database: &str, pages: &[(BucketId, u64)]) -> Result<()> {
        let buckets = Collections::of(&self.mongo, database).buckets;
        for lot in pages.chunks(REMOVED) {
            let one = |(id, rev): &(BucketId, u64)| {
                let (id, rev) =
                    (document::page_id(&id.sensor.key, id.hour, 0), i64::try_from(*rev).unwrap_or(i64::MAX));
                Bson::Document(doc! { "_id": id, "rev": rev, "hasOverflow": false })
            };
            self.remove(&buckets, doc! { "$or": lot.iter().map(one).collect::<Vec<_>>() }).await?;
        }
        Ok(())
    }

    async fn next_buckets(
        &self,
        database: &str,
        from: &(Hour, String),
        until: Hour,
        most: usize,
    ) -> Result<Vec<(Hour, String)>> {
        let buckets = Collections::of(&self.mongo, database).buckets;
        // An id begins with its hour: the first one of an hour sorts behind the hour alone.
        let range = doc! { "$gt": document::page_id(&from.1, from.0, 0), "$lt": document::page_id("", until, 0) };
        let sent = doc! { "_id": 1, "sensor": 1, "start": 1 };
        let query = Query::of(doc! { "_id": range }).sorted(doc! { "_id": 1 }).sending(sent);
        let of = |page: &bson::RawDocumentBuf| {
            let start = page.get_datetime("start").ok()?.timestamp_millis();
            Some((Hour::of_ms(start), page.get_str("sensor").ok()?.to_owned()))
        };
        Ok(self.find(&buckets, query.within(Extent::pages(most))).await?.iter().filter_map(of).collect())
    }

    async fn remove_buckets(&self, database: &str, sensors: &[&str], hours: Range<Hour>, before: Stamp) -> Result<()> {
        let collections = Collections::of(&self.mongo, database);
        let hours = doc! { "$gte": date(hours.start), "$lt": date(hours.end) };
        for lot in sensors.chunks(remove::SENSORS) {
            let of = doc! { "sensor": { "$in": lot }, "start": hours.clone() };
            let filter = doc! {
                "sensor": { "$in": lot }, "start": hours.clone(), "hasOverflow": false,
                "$nor": [remove::has_later(before), remove::is_newer()],
            };
            self.remove(&collections.buckets, filter).await?;
            self.refuse_newer(&collections.buckets, of).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl SensorStore for MongoStore {
    async fn read_sensors(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorDocument>> {
        let collection = Collections::of(&self.mongo, database).sensors;
        let mut sensors = Vec::with_capacity(keys.len());
        for keys in keys.chunks(READ_SENSORS) {
            for sensor in self.find(&collection, Query::of(doc! { "_id": { "$in": keys } })).await? {
                sensors.push(document::decode_sensor(&sensor)?);
            }
        }
        Ok(sensors)
    }

    async fn list_sensors(&self, database: &str, filter: &SensorFilter) -> Result<Vec<SensorDocument>> {
        if filter.limit == 0 {
            // To MongoDB, 0 means no limit.
            return Ok(Vec::new());
        }
        let mut wanted = Document::new();
        if let Some(after) = &filter.after {
            wanted.insert("_id", doc! { "$gt": after });
        }
        if filter.outliers {
            wanted.insert("outlier.since", doc! { "$exists": true });
        }
        let query = Query::of(wanted).sorted(doc! { "_id": 1 }).within(Extent::pages(filter.limit));
        let found = self.find(&Collections::of(&self.mongo, database).sensors, query).await?;
        found.iter().map(|sensor| document::decode_sensor(sensor)).collect()
    }

    async fn write_sensors(&self, database: &str, documents: &[SensorDocument]) -> Vec<Written> {
        let collections = match self.created(database).await {
            Ok(collections) => collections,
            Err(error) => return vec![Written::Failed(error); documents.len()],
        };
        let change = |sensor: &SensorDocument| match sensor.rev {
            0 => writes::insertion(document::sensor_document(sensor)),
            rev => {
                let (id, update) = (sensor.sensor.key.to_string(), document::sensor_update(sensor));
                MongoWrite::Update { id, shard: None, rev, update }
            }
        };
        let outcomes = Mutex::new(vec![Written::Yes; documents.len()]);
        self.write(&collections.sensors, documents.iter().map(change).enumerate().collect(), &outcomes).await;
        self.note_grouped(database, documents.iter().map(|document| &*document.sensor.key));
        self.wait_for_newer(database, outcomes.into_inner()).await
    }

    async fn remove_sensors(&self, database: &str, sensors: &[(&str, Option<u64>)]) -> Result<()> {
        let documents = Collections::of(&self.mongo, database).sensors;
        for lot in sensors.chunks(REMOVE_SENSORS) {
            let one = |(key, rev): &(&str, Option<u64>)| match rev {
                Some(rev) => doc! { "_id": key, "rev": i64::try_from(*rev).unwrap_or(i64::MAX) },
                None => doc! { "_id": key },
            };
            let keys: Vec<&str> = lot.iter().map(|(key, _)| *key).collect();
            let any: Vec<Document> = lot.iter().map(one).collect();
            let removed = self.remove(&documents, doc! { "$or": any, "$nor": [remove::is_newer()] }).await;
            self.note_grouped(database, keys.iter().copied());
            removed?;
            self.refuse_newer(&documents, doc! { "_id": { "$in": keys } }).await?;
        }
        Ok(())
    }
}
