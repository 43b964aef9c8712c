//! Sealed days in `<db>.days`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use bson::{Bson, Document, doc};

use super::reads::find;
use super::setup::Collections;
use super::writes::{MongoWrite, insertion};
use super::{MongoStore, READ_BUCKETS, date};
use crate::bucket::store::{BucketId, DaysScanned, Extent, Order, Projection, ScannedPage, Written};
use crate::bucket::{DayId, DayWrite, StorageError, StoredDay};
use crate::reading::{Day, Hour};
use crate::store::document;

/// Days per reply of a scan of one sensor.
const DAYS: usize = 32;
/// Pages per command that removes them.
const REMOVED: usize = 50;

impl MongoStore {
    pub(super) async fn stored_days(
        &self,
        database: &str,
        ids: &[DayId],
    ) -> Result<Vec<Option<StoredDay>>, StorageError> {
        let collection = Collections::of(&self.mongo, database).days;
        let mut found: HashMap<String, StoredDay> = HashMap::with_capacity(ids.len());
        let names: Vec<String> = ids.iter().map(|id| document::day_id(&id.sensor.key, id.day)).collect();
        for names in names.chunks(READ_BUCKETS) {
            let (collection, filter) = (collection.clone(), doc! { "_id": { "$in": names } });
            let read =
                self.read(async move { find(&collection, filter, Document::new(), None, Extent::ALL).await }).await?;
            for day in &read {
                found.insert(day.get_str("_id").unwrap_or_default().to_owned(), document::decode_day(day)?);
            }
        }
        Ok(names.iter().map(|name| found.remove(name)).collect())
    }

    pub(super) async fn stored_days_of(
        &self,
        database: &str,
        sensor: &str,
        days: Range<Day>,
    ) -> Result<Vec<Day>, StorageError> {
        let collection = Collections::of(&self.mongo, database).days;
        let filter = doc! { "sensor": sensor, "start": {
            "$gte": date(days.start.hours().start), "$lt": date(days.end.hours().start),
        } };
        let (sort, sent) = (doc! { "start": 1 }, Some(doc! { "start": 1 }));
        let found = self.read(async move { find(&collection, filter, sort, sent, Extent::ALL).await }).await?;
        let of = |day: &bson::RawDocumentBuf| {
            day.get_datetime("start").ok().map(|start| Day::of(Hour::of_ms(start.timestamp_millis())))
        };
        Ok(found.iter().filter_map(of).collect())
    }

    pub(super) async fn put_days(&self, database: &str, days: &[DayWrite<'_>]) -> Vec<Written> {
        let collections = match self.created(database).await {
            Ok(collections) => collections,
            Err(error) => return vec![Written::Failed(error); days.len()],
        };
        let outcomes = Mutex::new(vec![Written::Yes; days.len()]);
        let mut changes = Vec::new();
        for (place, day) in days.iter().enumerate() {
            let id = document::day_id(&day.id.sensor.key, day.id.day);
            let change = match day.rev {
                _ if day.readings.is_none() => {
                    let removed = self.remove_day(&collections, &id, day.rev).await;
                    outcomes.lock().unwrap_or_else(PoisonError::into_inner)[place] = removed;
                    continue;
                }
                0 => insertion(document::day_document(day)),
                rev => MongoWrite::Update { id, shard: None, rev, update: document::day_update(day) },
            };
            changes.push((place, change));
        }
        self.write(&collections.days, changes, &outcomes).await;
        outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    async fn remove_day(&self, collections: &Collections, id: &str, rev: u64) -> Written {
        let (days, filter) = (collections.days.clone(), doc! { "_id": id });
        let removed = self.remove(&days, doc! { "_id": id, "rev": i64::try_from(rev).unwrap_or(i64::MAX) }).await;
        if let Err(error) = removed {
            return Written::Failed(error);
        }
        let left = async move { find(&days, filter, Document::new(), Some(doc! { "_id": 1 }), Extent::pages(1)).await };
        match self.read(left).await {
            Ok(left) if left.is_empty() => Written::Yes,
            Ok(_) => Written::Conflict,
            Err(error) => Written::Failed(error),
        }
    }

    pub(super) async fn scanned_days(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<DaysScanned, StorageError> {
        let collection = Collections::of(&self.mongo, database).days;
        let (mut pages, mut bytes, mut rest) = (Vec::new(), 0, Day::of_hours(&hours));
        while !rest.is_empty() && pages.len() < extent.pages && bytes < extent.bytes {
            let filter = doc! { "sensor": sensor, "start": {
                "$gte": date(rest.start.hours().start), "$lt": date(rest.end.hours().start),
            } };
            let sort = doc! { "start": if order == Order::Ascending { 1 } else { -1 } };
            let most = Extent { pages: DAYS, bytes: extent.bytes - bytes, hour_bytes: usize::MAX };
            let (collection, sent) = (collection.clone(), sent(projection));
            let found = self.read(async move { find(&collection, filter, sort, sent, most).await }).await?;
            let is_last =
                found.len() < DAYS && found.iter().map(|day| day.as_bytes().len()).sum::<usize>() < most.bytes;
            for day in &found {
                let number = day.get_datetime("start").map(|start| Day::of(Hour::of_ms(start.timestamp_millis())));
                let mut of_day = document::decode_day_scanned(day, &hours, projection)?;
                bytes += day.as_bytes().len().max(of_day.iter().map(|page| page.bytes(0)).sum());
                if order == Order::Descending {
                    of_day.reverse();
                }
                pages.extend(of_day);
                if let Ok(number) = number {
                    rest = match order {
                        Order::Ascending => number.next()..rest.end,
                        Order::Descending => rest.start..number,
                    };
                }
                if pages.len() >= extent.pages || bytes >= extent.bytes {
                    return Ok(DaysScanned { pages, rest });
                }
            }
            if is_last {
                rest = rest.end..rest.end;
            }
        }
        Ok(DaysScanned { pages, rest })
    }

    pub(super) async fn scanned_days_of(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>, StorageError> {
        let collection = Collections::of(&self.mongo, database).days;
        let days = Day::of_hours(&hours);
        let range = doc! { "$gte": date(days.start.hours().start), "$lt": date(days.end.hours().start) };
        let mut found: Vec<Vec<ScannedPage>> = vec![Vec::new(); sensors.len()];
        let mut left = bytes_max;
        for (lot, keys) in sensors.chunks(super::scan::SENSORS).enumerate() {
            let filter = doc! { "sensor": { "$in": keys }, "start": range.clone() };
            let extent = Extent { bytes: left.saturating_add(1), ..Extent::ALL };
            let (collection, sent) = (collection.clone(), sent(projection));
            let read = self.read(async move { find(&collection, filter, Document::new(), sent, extent).await }).await?;
            let places: HashMap<&str, usize> = keys.iter().enumerate().map(|(place, key)| (*key, place)).collect();
            for day in &read {
                let Some(place) = day.get_str("sensor").ok().and_then(|sensor| places.get(sensor)) else { continue };
                let pages = document::decode_day_scanned(day, &hours, projection)?;
                let bytes = day.as_bytes().len().max(pages.iter().map(|page| page.bytes(0)).sum());
                let Some(less) = left.checked_sub(bytes) else { return Ok(None) };
                left = less;
                found[lot * super::scan::SENSORS + place].extend(pages);
            }
        }
        found.iter_mut().for_each(|pages| pages.sort_by_key(|page| page.hour));
        Ok(Some(found))
    }

    pub(super) async fn remove_sealed(&self, database: &str, pages: &[(BucketId, u64)]) -> Result<(), StorageError> {
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

    pub(super) async fn buckets_after(
        &self,
        database: &str,
        from: &(Hour, String),
        until: Hour,
        most: usize,
    ) -> Result<Vec<(Hour, String)>, StorageError> {
        let buckets = Collections::of(&self.mongo, database).buckets;
        // An id begins with its hour: the first one of an hour sorts behind the hour alone.
        let range = doc! { "$gt": document::page_id(&from.1, from.0, 0), "$lt": document::page_id("", until, 0) };
        let (filter, sent) = (doc! { "_id": range }, doc! { "_id": 1, "sensor": 1, "start": 1 });
        let found = async move { find(&buckets, filter, doc! { "_id": 1 }, Some(sent), Extent::pages(most)).await };
        let of = |page: &bson::RawDocumentBuf| {
            let start = page.get_datetime("start").ok()?.timestamp_millis();
            Some((Hour::of_ms(start), page.get_str("sensor").ok()?.to_owned()))
        };
        Ok(self.read(found).await?.iter().filter_map(of).collect())
    }
}

/// The projection of a scan: with readings the whole day, else its hours.
fn sent(projection: &Projection) -> Option<Document> {
    let fields = || document::day_fields(projection).into_iter().map(|field| (field.into_owned(), Bson::Int32(1)));
    (!projection.readings).then(|| fields().collect())
}
