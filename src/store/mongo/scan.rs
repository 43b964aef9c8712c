//! Scans: pages of one sensor in the order of hours, and of many sensors at once, by a few commands beside each other
//! that are decoded where they arrive.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bson::{Document, RawDocument, RawDocumentBuf, doc};
use mongodb::Collection;

use super::outcome::classify;
use super::reads::{self, find};
use super::setup::Collections;
use super::{MongoStore, date};
use crate::bucket::StorageError;
use crate::bucket::store::ScannedPage;
use crate::reading::Hour;
use crate::store::document;
use crate::store::names::key;

/// How many sensors one command asks for: enough that a command costs little, few enough that commands for a
/// thousand sensors run beside each other.
pub const SENSORS: usize = 250;

/// A page 0, whose it is, and whether there is more of its bucket.
pub struct Found {
    /// The sensor's place in the question.
    pub place: usize,
    /// The page.
    pub page: ScannedPage,
    /// Whether the bucket has pages in `overflow`.
    pub has_overflow: bool,
}

/// What of a page a scan needs. Summaries of other fields than these are left where they are.
pub fn projection(with_readings: bool, fields: Option<&[&str]>) -> Option<Document> {
    if with_readings {
        return None;
    }
    let Some(fields) = fields else { return Some(without_readings()) };
    let mut wanted = doc! {
        "_id": 1, "schemaVersion": 1, "sensor": 1, "start": 1, "page": 1, "rev": 1, "hasOverflow": 1,
        "order.rev": 1, "order.floor": 1, "order.first": 1, "order.last": 1,
    };
    if fields.is_empty() {
        // An empty document, not none.
        wanted.insert("summary.0.0", 1);
    }
    for field in fields {
        wanted.insert(format!("summary.{}", key(field)), 1);
    }
    Some(wanted)
}

fn without_readings() -> Document {
    doc! { "readings": 0, "applied": 0, "tags": 0, "order.stamps": 0 }
}

/// The first pages of these sensors' buckets, in no order.
pub async fn first_pages(
    collection: Collection<RawDocumentBuf>,
    sensors: Arc<HashMap<String, usize>>,
    asked: Range<usize>,
    hours: Range<Hour>,
    projection: Option<Document>,
    with_readings: bool,
) -> Result<Vec<Found>, StorageError> {
    let keys: Vec<&String> = sensors.iter().filter(|(_, place)| asked.contains(place)).map(|(key, _)| key).collect();
    let filter = doc! { "sensor": { "$in": keys }, "start": { "$gte": date(hours.start), "$lt": date(hours.end) } };
    let mut find = collection.find(filter).batch_size(10_000);
    if let Some(projection) = projection {
        find = find.projection(projection);
    }
    let mut cursor = find.await.map_err(|e| classify(&e))?;
    let (mut found, mut older) = (Vec::new(), Vec::new());
    while cursor.advance().await.map_err(|e| classify(&e))? {
        let page = cursor.current();
        let Some(place) = page.get_str("sensor").ok().and_then(|sensor| sensors.get(sensor)) else { continue };
        match document::decode_scanned(page, with_readings)? {
            Some(scanned) => found.push(Found { place: *place, page: scanned, has_overflow: has_overflow(page) }),
            None => older.extend(page.get_str("_id").ok().map(str::to_owned)),
        }
    }
    let place = |page: &RawDocument| sensors.get(page.get_str("sensor").ok()?).copied();
    found.extend(older_pages(&collection, &older, place).await?);
    Ok(found)
}

/// How many pages are read at a time whose summaries have to be made anew.
const OLDER_PAGES: usize = 100;

/// First pages with sums that an older program has added up, of which the scan left the readings out.
async fn older_pages(
    collection: &Collection<RawDocumentBuf>,
    ids: &[String],
    place: impl Fn(&RawDocument) -> Option<usize>,
) -> Result<Vec<Found>, StorageError> {
    let mut found = Vec::with_capacity(ids.len());
    for ids in ids.chunks(OLDER_PAGES) {
        let pages = find(collection, doc! { "_id": { "$in": ids } }, Document::new(), None, None).await?;
        for page in &pages {
            // With its readings it has an answer.
            if let (Some(place), Some(scanned)) = (place(page), document::decode_scanned(page, false)?) {
                found.push(Found { place, page: scanned, has_overflow: has_overflow(page) });
            }
        }
    }
    Ok(found)
}

fn has_overflow(page: &RawDocument) -> bool {
    page.get_bool("hasOverflow").unwrap_or(false)
}

fn all_scanned(pages: &[RawDocumentBuf], with_readings: bool) -> Result<Option<Vec<ScannedPage>>, StorageError> {
    pages.iter().map(|page| document::decode_scanned(page, with_readings)).collect()
}

impl MongoStore {
    /// All pages of one bucket that has several, in order of their numbers and as they were at one
    /// moment: were one split while they are read, its later half would else be there twice.
    pub(super) async fn spilled(
        &self,
        collections: &Collections,
        sensor: &str,
        hour: Hour,
        projection: Option<Document>,
    ) -> Result<Vec<RawDocumentBuf>, StorageError> {
        let filter = doc! { "sensor": sensor, "start": date(hour) };
        let (client, collections) = (self.client.clone(), collections.clone());
        self.read(async move { reads::snapshot(&client, &collections, filter, projection).await }).await
    }

    /// As [`MongoStore::spilled`], for a scan.
    async fn spilled_scanned(
        &self,
        collections: &Collections,
        sensor: &str,
        hour: Hour,
        projection: Option<Document>,
    ) -> Result<Vec<ScannedPage>, StorageError> {
        let with_readings = projection.is_none();
        let pages = self.spilled(collections, sensor, hour, projection).await?;
        if let Some(scanned) = all_scanned(&pages, with_readings)? {
            return Ok(scanned);
        }
        let pages = self.spilled(collections, sensor, hour, None).await?;
        Ok(all_scanned(&pages, with_readings)?.unwrap_or_default())
    }

    /// Pages of one sensor by hour, rising (1) or falling (-1).
    pub(super) async fn scan_sorted(
        &self,
        database: &str,
        sensor: &str,
        hours: Range<Hour>,
        order: i32,
        with_readings: bool,
        pages_max: usize,
    ) -> Result<Vec<ScannedPage>, StorageError> {
        let collections = Collections::of(&self.mongo, database);
        let projection = (!with_readings).then(without_readings);
        let filter = doc! { "sensor": sensor, "start": { "$gte": date(hours.start), "$lt": date(hours.end) } };
        let (collection, asked) = (collections.buckets.clone(), projection.clone());
        let limit = i64::try_from(pages_max).ok();
        let first_pages =
            self.read(async move { find(&collection, filter, doc! { "start": order }, asked, limit).await }).await?;
        let mut found = Vec::with_capacity(first_pages.len());
        for first in &first_pages {
            let id = first.get_str("_id").unwrap_or_default();
            let page = document::decode_scanned(first, with_readings)?;
            found.push((id, page.map(|page| Found { place: 0, page, has_overflow: has_overflow(first) })));
        }
        let older = found.iter().filter(|(_, page)| page.is_none()).map(|(id, _)| (*id).to_owned()).collect();
        let mut older = self.older_of(&collections, sensor, older).await?;
        let mut pages = Vec::new();
        for (id, page) in found {
            if pages.len() >= pages_max {
                break;
            }
            // Neither, when it was deleted meanwhile.
            let Some(page) = page.or_else(|| older.remove(id)) else { continue };
            if page.has_overflow {
                pages.extend(self.spilled_scanned(&collections, sensor, page.page.hour, projection.clone()).await?);
            } else {
                pages.push(page.page);
            }
        }
        Ok(pages)
    }

    /// First pages of a sensor by their ids, read with their readings: see [`older_pages`].
    async fn older_of(
        &self,
        collections: &Collections,
        sensor: &str,
        ids: Vec<String>,
    ) -> Result<HashMap<String, Found>, StorageError> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let collection = collections.buckets.clone();
        let pages = self.read(async move { older_pages(&collection, &ids, |_| Some(0)).await }).await?;
        let id = |page: &Found| document::page_id(sensor, page.page.hour, page.page.number);
        Ok(pages.into_iter().map(|page| (id(&page), page)).collect())
    }

    /// All pages of several sensors, per sensor in the order given.
    pub(super) async fn scan_many(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
        with_readings: bool,
        fields: Option<&[&str]>,
    ) -> Result<Vec<Vec<ScannedPage>>, StorageError> {
        let collections = Collections::of(&self.mongo, database);
        let projection = projection(with_readings, fields);
        let places: HashMap<String, usize> =
            sensors.iter().enumerate().map(|(place, sensor)| ((*sensor).to_owned(), place)).collect();
        let places = Arc::new(places);
        let lots = (0..sensors.len()).step_by(SENSORS).map(|from| {
            let (collection, places) = (collections.buckets.clone(), places.clone());
            let lot = from..from + SENSORS;
            self.read(first_pages(collection, places, lot, hours.clone(), projection.clone(), with_readings))
        });
        let mut pages: Vec<Vec<ScannedPage>> = vec![Vec::new(); sensors.len()];
        for found in futures_util::future::try_join_all(lots).await?.into_iter().flatten() {
            if !found.has_overflow {
                pages[found.place].push(found.page);
                continue;
            }
            let hour = found.page.hour;
            let several = self.spilled_scanned(&collections, sensors[found.place], hour, projection.clone()).await?;
            pages[found.place].extend(several);
        }
        pages.iter_mut().for_each(|pages| pages.sort_by_key(|page| (page.hour, page.number)));
        Ok(pages)
    }
}
