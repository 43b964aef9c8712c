//! Scans: pages of one sensor in order of hours, and of many sensors at once, with a few concurrent commands whose
//! replies are decoded as they arrive.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bson::{Bson, DateTime, Document, RawDocument, RawDocumentBuf, doc};
use mongodb::Collection;

use super::outcome::classify;
use super::reads::{self, Query};
use super::setup::Collections;
use super::{MongoStore, date};
use crate::bucket::store::{BucketId, Extent, Order, Projection, Scanned, ScannedPage};
use crate::bucket::{Result, StorageError, StoredPage};
use crate::names::key;
use crate::reading::Hour;
use crate::{ScanBudget, document};

/// Sensors per command: enough that the cost per command is small, few enough that a thousand sensors are read by
/// several commands at once.
pub const SENSORS: usize = 250;

/// A page 0, its sensor, and whether its bucket has more pages.
pub struct FoundPage {
    /// Index of the sensor in the request.
    pub place: usize,
    /// The decoded page.
    pub page: ScannedPage,
    /// Whether the bucket has pages in `overflow`.
    pub has_overflow: bool,
}

/// The MongoDB projection of a scan. With readings, the whole page (`None`), because the stamps of all cells are stored
/// together; without, the summaries of the wanted fields.
pub fn sent(projection: &Projection) -> Option<Document> {
    if projection.readings {
        return None;
    }
    let Some(fields) = &projection.fields else { return Some(without_readings()) };
    let mut wanted = doc! {
        "_id": 1, "schemaVersion": 1, "sensor": 1, "start": 1, "page": 1, "rev": 1, "hasOverflow": 1,
        "order.floor": 1, "order.first": 1, "order.last": 1,
    };
    if fields.is_empty() {
        // Projects `summary` to an empty document; without this it would be missing.
        wanted.insert("summary.0.0", 1);
    }
    for field in fields.iter() {
        wanted.insert(format!("summary.{}", key(field)), 1);
    }
    Some(wanted)
}

fn without_readings() -> Document {
    doc! { "readings": 0, "tags": 0, "order.stamps": 0 }
}

/// The first pages of these sensors' buckets, in no order; `None` if they exceed the budget.
pub async fn first_pages(
    collection: Collection<RawDocumentBuf>,
    sensors: Arc<HashMap<String, usize>>,
    asked: Range<usize>,
    hours: Range<Hour>,
    projection: Projection,
    room: ScanBudget,
) -> Result<Option<Vec<FoundPage>>> {
    let keys: Vec<&String> = sensors.iter().filter(|(_, place)| asked.contains(place)).map(|(key, _)| key).collect();
    let filter = doc! { "sensor": { "$in": keys }, "start": { "$gte": date(hours.start), "$lt": date(hours.end) } };
    let (find, _) = Query::of(filter).sending(sent(&projection)).find(&collection);
    let mut cursor = find.batch_size(10_000).await.map_err(|e| classify(&e))?;
    let mut found = Vec::new();
    while cursor.advance().await.map_err(|e| classify(&e))? {
        let page = cursor.current();
        let stored = page.as_bytes().len();
        let Some(place) = page.get_str("sensor").ok().and_then(|sensor| sensors.get(sensor)) else { continue };
        let scanned = document::decode_scanned(page, &projection)?;
        if !room.take(scanned.bytes(stored)) {
            return Ok(None);
        }
        found.push(FoundPage { place: *place, page: scanned, has_overflow: has_overflow(page) });
    }
    Ok(Some(found))
}

/// The projection of a page's marks and size.
pub(super) fn marks() -> Document {
    let mut marks: Document =
        document::PAGE_MARKS.map(|field| (field.to_owned(), Bson::Int32(1))).into_iter().collect();
    marks.insert(document::PAGE_SIZE, doc! { "$bsonSize": "$$ROOT" });
    marks
}

fn has_overflow(page: &RawDocument) -> bool {
    page.get_bool("hasOverflow").unwrap_or(false)
}

impl MongoStore {
    /// All pages of one bucket that has several, in order of their numbers, at one moment: if a page were split between
    /// two reads, its later half would appear twice.
    pub(super) async fn spilled(
        &self,
        collections: &Collections,
        sensor: &str,
        hour: Hour,
        projection: Option<Document>,
    ) -> Result<Vec<RawDocumentBuf>> {
        let query = Query::of(doc! { "sensor": sensor, "start": date(hour) }).sending(projection);
        let (client, collections) = (self.client.clone(), collections.clone());
        let pages = self.read(async move { reads::snapshot(&client, &collections, query, usize::MAX).await }).await?;
        Ok(pages.unwrap_or_default())
    }

    /// The pages of a bucket that has several; without their readings if there are more than `pages_max`.
    pub(super) async fn spilled_pages(
        &self,
        collections: &Collections,
        id: &BucketId,
        pages_max: usize,
    ) -> Result<Vec<StoredPage>> {
        let (sensor, hour) = (&*id.sensor.key, id.hour);
        if pages_max < usize::MAX {
            let pages = self.spilled(collections, sensor, hour, Some(marks())).await?;
            if pages.len() > pages_max {
                return pages.iter().map(|page| document::decode_page_marks(page)).collect();
            }
        }
        let pages = self.spilled(collections, sensor, hour, None).await?;
        pages.iter().map(|page| document::decode_page(page)).collect()
    }

    /// As [`MongoStore::spilled`], for a scan.
    pub(super) async fn spilled_scanned(
        &self,
        collections: &Collections,
        sensor: &str,
        hour: Hour,
        projection: &Projection,
        hour_bytes: usize,
    ) -> Result<Vec<ScannedPage>> {
        let mut filter = doc! { "sensor": sensor, "start": date(hour) };
        if let Some((from, to)) = projection.span_ms() {
            filter.insert("last", doc! { "$gte": DateTime::from_millis(from) });
            filter.insert("first", doc! { "$lte": DateTime::from_millis(to) });
        }
        let query = Query::of(filter).sending(sent(projection));
        let (client, collections) = (self.client.clone(), collections.clone());
        let pages = self.read(async move { reads::snapshot(&client, &collections, query, hour_bytes).await }).await?;
        let pages = pages.ok_or(StorageError::HourTooLarge { limit: hour_bytes, hour })?;
        pages.iter().map(|page| document::decode_scanned(page, projection)).collect()
    }

    /// The first of these hours' pages; none if all of them were deleted meanwhile.
    pub(super) async fn scan_some(
        &self,
        collections: &Collections,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned> {
        let filter = doc! { "sensor": sensor, "start": { "$gte": date(hours.start), "$lt": date(hours.end) } };
        let sort = doc! { "start": if order == Order::Ascending { 1 } else { -1 } };
        let query = Query::of(filter).sorted(sort).sending(sent(projection)).within(extent);
        let first_pages = self.find(&collections.buckets, query).await?;
        let (mut found, mut bytes) = (Vec::with_capacity(first_pages.len()), 0);
        for first in &first_pages {
            let page = document::decode_scanned(first, projection)?;
            bytes += page.bytes(first.as_bytes().len());
            found.push((page, has_overflow(first)));
            if bytes >= extent.bytes {
                break;
            }
        }
        let (mut pages, mut last, mut is_filled) = (Vec::new(), None, bytes >= extent.bytes);
        for (page, has_overflow) in found {
            let hour = page.hour;
            last = Some(hour);
            if has_overflow {
                let hour_bytes = extent.hour_bytes;
                pages.extend(self.spilled_scanned(collections, sensor, hour, projection, hour_bytes).await?);
            } else {
                pages.push(page);
            }
            if pages.len() >= extent.pages {
                is_filled = true;
                break;
            }
        }
        let last = last.filter(|_| is_filled || first_pages.len() >= extent.pages);
        let rest = match order {
            Order::Ascending => last.map_or(hours.end, Hour::next)..hours.end,
            Order::Descending => hours.start..last.unwrap_or(hours.start),
        };
        Ok(Scanned { pages, rest })
    }
}
