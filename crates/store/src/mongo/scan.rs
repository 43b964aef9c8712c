//! Scans of pages: of one sensor in hour order, and of many sensors with a few concurrent commands, whose replies are
//! decoded as they arrive.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bson::{Bson, DateTime, Document, RawDocument, RawDocumentBuf, doc};
use mongodb::Collection;

use super::outcome::classify;
use super::reads::{self, CausalClient, Query};
use super::setup::Collections;
use super::{MongoStore, date};
use crate::bucket::store::{BucketId, Extent, Order, Projection, ScanResult, ScannedPage};
use crate::bucket::{Result, StorageError, StoredPage};
use crate::names::key;
use crate::reading::Hour;
use crate::{ScanBudget, document};

/// Maximum number of sensors per command. High enough to amortise the cost of a command, and low enough to read a thousand
/// sensors with several concurrent commands.
pub const SENSORS_MAX: usize = 250;

/// Page 0 of a bucket.
pub struct FoundPage {
    /// Index of the sensor in the request.
    pub sensor: usize,
    pub page: ScannedPage,
    /// True if the bucket has pages in `overflow`.
    pub has_overflow: bool,
}

/// Returns the fields that a scan needs. For readings, these are all fields (`None`), because the stamps of all cells are
/// stored together. Otherwise, these are the summaries of the wanted fields.
pub fn scan_fields(projection: &Projection) -> Option<Document> {
    if projection.readings {
        return None;
    }
    let Some(fields) = &projection.fields else { return Some(without_readings()) };
    let mut wanted = doc! {
        "_id": 1, "schemaVersion": 1, "sensor": 1, "start": 1, "page": 1, "rev": 1, "hasOverflow": 1,
        "order.floor": 1, "order.first": 1, "order.last": 1,
    };
    if fields.is_empty() {
        // Keep an empty `summary`, which would be missing without a projected path below it.
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

/// Reads page 0 of the buckets of a batch of sensors, in any order. `sensors` has the index of each sensor in the request,
/// and `batch` is a range of these indexes. Returns `None` if the pages exceed the budget.
pub async fn first_pages(
    client: CausalClient,
    collection: Collection<RawDocumentBuf>,
    sensors: Arc<HashMap<String, usize>>,
    batch: Range<usize>,
    hours: Range<Hour>,
    projection: Projection,
    budget: ScanBudget,
) -> Result<Option<Vec<FoundPage>>> {
    let keys: Vec<&String> = sensors.iter().filter(|(_, index)| batch.contains(index)).map(|(key, _)| key).collect();
    let filter = doc! { "sensor": { "$in": keys }, "start": { "$gte": date(hours.start), "$lt": date(hours.end) } };
    let (find, _) = Query::new(filter).project(scan_fields(&projection)).find(&collection);
    let mut session = client.session().await.map_err(|e| classify(&e))?;
    let mut cursor = find.batch_size(10_000).session(&mut session).await.map_err(|e| classify(&e))?;
    let mut found = Vec::new();
    while cursor.advance(&mut session).await.map_err(|e| classify(&e))? {
        let page = cursor.current();
        let Some(sensor) = page.get_str("sensor").ok().and_then(|sensor| sensors.get(sensor)) else { continue };
        let scanned = document::decode_scanned(page, &projection)?;
        if !budget.take(scanned.bytes(page.as_bytes().len())) {
            return Ok(None);
        }
        found.push(FoundPage { sensor: *sensor, page: scanned, has_overflow: has_overflow(page) });
    }
    Ok(Some(found))
}

/// Returns the projection of a page's marks and size.
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
    /// Reads all pages of a bucket with overflow, in page order and from one snapshot. Without a snapshot, a page split
    /// between two reads would make the second half appear twice.
    pub(super) async fn read_all_pages(
        &self,
        collections: &Collections,
        sensor: &str,
        hour: Hour,
        projection: Option<Document>,
    ) -> Result<Vec<RawDocumentBuf>> {
        let query = Query::new(doc! { "sensor": sensor, "start": date(hour) }).project(projection);
        let client = self.client.clone();
        let collections = collections.clone();
        let pages = async move { reads::snapshot(&client, &collections, query, usize::MAX).await };
        let pages = self.read(pages).await?;
        Ok(pages.unwrap_or_default())
    }

    /// Reads all pages of a bucket with overflow, without readings if there are more than `pages_max` pages.
    pub(super) async fn decode_all_pages(
        &self,
        collections: &Collections,
        id: &BucketId,
        pages_max: usize,
    ) -> Result<Vec<StoredPage>> {
        let sensor = &*id.sensor.key;
        if pages_max < usize::MAX {
            let pages = self.read_all_pages(collections, sensor, id.hour, Some(marks())).await?;
            if pages.len() > pages_max {
                return pages.iter().map(|page| document::decode_page_marks(page)).collect();
            }
        }
        let pages = self.read_all_pages(collections, sensor, id.hour, None).await?;
        pages.iter().map(|page| document::decode_page(page)).collect()
    }

    /// Reads the pages of a bucket with overflow for a scan, in page order and from one snapshot.
    pub(super) async fn scan_all_pages(
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
        let query = Query::new(filter).project(scan_fields(projection));
        let client = self.client.clone();
        let collections = collections.clone();
        let pages = async move { reads::snapshot(&client, &collections, query, hour_bytes).await };
        let pages = self.read(pages).await?;
        let pages = pages.ok_or(StorageError::HourTooLarge { limit: hour_bytes, hour })?;
        pages.iter().map(|page| document::decode_scanned(page, projection)).collect()
    }

    /// Runs one step of a scan. Returns no pages if all pages of the step were deleted meanwhile.
    pub(super) async fn scan_some(
        &self,
        collections: &Collections,
        sensor: &str,
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<ScanResult> {
        let filter = doc! { "sensor": sensor, "start": { "$gte": date(hours.start), "$lt": date(hours.end) } };
        let sort = doc! { "start": if order == Order::Ascending { 1 } else { -1 } };
        let query = Query::new(filter).sort(sort).project(scan_fields(projection)).limit(extent);
        let first_pages = self.find(&collections.buckets, query).await?;
        let mut found = Vec::with_capacity(first_pages.len());
        let mut bytes = 0;
        for first in &first_pages {
            let page = document::decode_scanned(first, projection)?;
            bytes += page.bytes(first.as_bytes().len());
            found.push((page, has_overflow(first)));
            if bytes >= extent.bytes {
                break;
            }
        }
        let mut pages = Vec::new();
        let mut last = None;
        let mut is_full = bytes >= extent.bytes;
        for (page, has_overflow) in found {
            let hour = page.hour;
            last = Some(hour);
            if has_overflow {
                let hour_bytes = extent.hour_bytes;
                pages.extend(self.scan_all_pages(collections, sensor, hour, projection, hour_bytes).await?);
            } else {
                pages.push(page);
            }
            if pages.len() >= extent.pages {
                is_full = true;
                break;
            }
        }
        let last = last.filter(|_| is_full || first_pages.len() >= extent.pages);
        let rest = match order {
            Order::Ascending => last.map_or(hours.end, Hour::next)..hours.end,
            Order::Descending => hours.start..last.unwrap_or(hours.start),
        };
        Ok(ScanResult { pages, rest })
    }
}
