//! Scans: pages of one sensor in the order of hours, and of many sensors at once, by a few commands beside each other
//! that are decoded where they arrive.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bson::{Document, RawDocumentBuf, doc};
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
    let Some(fields) = fields else { return Some(doc! { "readings": 0, "applied": 0, "tags": 0 }) };
    let mut wanted = doc! { "_id": 1, "schemaVersion": 1, "sensor": 1, "start": 1, "page": 1, "hasOverflow": 1 };
    for field in fields {
        wanted.insert(format!("summary.{}", key(field)), 1);
    }
    Some(wanted)
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
    let mut found = Vec::new();
    while cursor.advance().await.map_err(|e| classify(&e))? {
        let page = cursor.current();
        let Some(place) = page.get_str("sensor").ok().and_then(|sensor| sensors.get(sensor)) else { continue };
        let has_overflow = page.get_bool("hasOverflow").unwrap_or(false);
        found.push(Found { place: *place, page: document::decode_scanned(page, with_readings)?, has_overflow });
    }
    Ok(found)
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
        let projection = (!with_readings).then(|| doc! { "readings": 0, "applied": 0, "tags": 0 });
        let filter = doc! { "sensor": sensor, "start": { "$gte": date(hours.start), "$lt": date(hours.end) } };
        let (collection, asked) = (collections.buckets.clone(), projection.clone());
        let limit = i64::try_from(pages_max).ok();
        let first_pages =
            self.read(async move { find(&collection, filter, doc! { "start": order }, asked, limit).await }).await?;
        let mut pages = Vec::new();
        for first in first_pages {
            if pages.len() >= pages_max {
                break;
            }
            let page = document::decode_scanned(&first, with_readings)?;
            if first.get_bool("hasOverflow").unwrap_or(false) {
                for page in self.spilled(&collections, sensor, page.hour, projection.clone()).await? {
                    pages.push(document::decode_scanned(&page, with_readings)?);
                }
            } else {
                pages.push(page);
            }
        }
        Ok(pages)
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
            for page in self.spilled(&collections, sensors[found.place], found.page.hour, projection.clone()).await? {
                pages[found.place].push(document::decode_scanned(&page, with_readings)?);
            }
        }
        pages.iter_mut().for_each(|pages| pages.sort_by_key(|page| (page.hour, page.number)));
        Ok(pages)
    }
}
