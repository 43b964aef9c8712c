//! Pages of many sensors at once: a few commands beside each other, decoded where they arrive.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bson::{Document, RawDocumentBuf, doc};
use mongodb::Collection;

use super::date;
use super::outcome::classify;
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
