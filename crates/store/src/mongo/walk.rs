//! Walks through all documents of a database in steps, each from one snapshot. The order is by `_id`, which even a damaged
//! document has. Also reads the documents of one sensor, for people.

use std::collections::BTreeMap;
use std::ops::Range;

use async_trait::async_trait;
use bson::{RawDocumentBuf, doc};
use mongodb::Collection;

use super::outcome::classify;
use super::reads::{Query, SnapshotReads};
use super::setup::Collections;
use super::{MongoStore, date};
use crate::bucket::Result;
use crate::bucket::raw::{Cursor, RawBucket, RawDay, RawSensor, WalkStep};
use crate::bucket::store::{DatabaseStore, Extent, ShowStore, ShownDocument, WalkStore};
use crate::document::{decode_raw_day, decode_raw_page, decode_raw_sensor};
use crate::reading::{Hour, Sensor};
use crate::shown::{BUCKETS, DAYS, OVERFLOW, SENSORS, shown};

/// Size in bytes of the documents after which a step ends.
const STEP_BYTES: usize = 8 << 20;
/// Size in bytes after which no further document of a collection is shown.
const SHOWN_BYTES: usize = 1 << 20;

#[async_trait]
impl WalkStore for MongoStore {
    async fn walk_buckets(
        &self,
        database: &str,
        start: Option<&Cursor>,
        pages_max: usize,
    ) -> Result<WalkStep<RawBucket>> {
        let client = self.client.clone();
        let collections = Collections::new(&self.mongo, database);
        let start = start_id(start);
        let mut pages = pages_max.max(1);
        let mut bytes = STEP_BYTES;
        self.read(async move {
            loop {
                let mut reads = client.snapshot();
                let first = walk_collection(&mut reads, &collections.buckets, &start, pages, bytes).await?;
                let overflow = walk_collection(&mut reads, &collections.overflow, &start, pages, bytes).await?;
                let walked = whole_buckets(first, overflow);
                if walked.next.is_none() || !walked.found.is_empty() {
                    return Ok(walked);
                }
                // Not even one bucket fits into the step.
                pages *= 2;
                bytes *= 2;
            }
        })
        .await
    }

    async fn walk_sensors(&self, database: &str, start: Option<&Cursor>, max: usize) -> Result<WalkStep<RawSensor>> {
        let sensors = Collections::new(&self.mongo, database).sensors;
        self.walk(&sensors, start, max, |document, key| decode_raw_sensor(document, key)).await
    }

    async fn walk_days(&self, database: &str, start: Option<&Cursor>, max: usize) -> Result<WalkStep<RawDay>> {
        let days = Collections::new(&self.mongo, database).days;
        self.walk(&days, start, max, |document, _| raw_day(document)).await
    }

    async fn count_outdated_days(&self, database: &str) -> Result<Option<u64>> {
        self.count_outdated(database).await.map(Some)
    }

    async fn walk_outdated_days(&self, database: &str, start: Option<&Cursor>, max: usize) -> Result<WalkStep<RawDay>> {
        self.walk_outdated(database, start, max).await
    }

    async fn note_migrated(&self, _database: &str, _end: Option<&Cursor>) -> Result<()> {
        Ok(())
    }

    async fn estimate_pages(&self) -> Result<u64> {
        let mongo = self.mongo.clone();
        let databases = self.databases().await?;
        self.read(async move {
            let mut pages = 0;
            for database in databases {
                let Collections { buckets, overflow, days, .. } = Collections::new(&mongo, &database);
                for collection in [buckets, overflow, days] {
                    pages += collection.estimated_document_count().await.map_err(|e| classify(&e))?;
                }
            }
            Ok(pages)
        })
        .await
    }
}

#[async_trait]
impl ShowStore for MongoStore {
    async fn show(
        &self,
        database: &str,
        sensor: &Sensor,
        hours: Range<Hour>,
        max: usize,
    ) -> Result<Vec<ShownDocument>> {
        let Collections { sensors, buckets, overflow, days, .. } = Collections::new(&self.mongo, database);
        let parts = doc! { "sensor": &*sensor.key, "start": { "$gte": date(hours.start), "$lt": date(hours.end) } };
        let mut found = Vec::new();
        for (name, collection, filter) in [
            (SENSORS, sensors, doc! { "_id": &*sensor.key }),
            (BUCKETS, buckets, parts.clone()),
            (OVERFLOW, overflow, parts.clone()),
            (DAYS, days, parts),
        ] {
            let extent = Extent { pages: max, bytes: SHOWN_BYTES, hour_bytes: usize::MAX };
            let query = Query::new(filter).sort(doc! { "start": 1, "_id": 1 }).limit(extent);
            for document in &self.find(&collection, query).await? {
                found.push(shown(name, document)?);
            }
        }
        Ok(found)
    }
}

impl MongoStore {
    /// Walks one step through a collection in `_id` order.
    async fn walk<T>(
        &self,
        collection: &Collection<RawDocumentBuf>,
        start: Option<&Cursor>,
        max: usize,
        decode: impl Fn(&RawDocumentBuf, String) -> T,
    ) -> Result<WalkStep<T>> {
        let extent = Extent { pages: max.max(1), bytes: STEP_BYTES, hour_bytes: usize::MAX };
        let query = Query::new(doc! { "_id": { "$gte": start_id(start) } }).sort(doc! { "_id": 1 }).limit(extent);
        let documents = self.find(collection, query).await?;
        let bytes: usize = documents.iter().map(|document| document.as_bytes().len()).sum();
        let is_end = documents.len() < extent.pages && bytes < extent.bytes;
        let key = |document: &RawDocumentBuf| document.get_str("_id").unwrap_or_default().to_owned();
        // The next greater text after the last id.
        let next = documents.last().filter(|_| !is_end).map(|last| Cursor(format!("{}\0", key(last)).into_bytes()));
        let found = documents.iter().map(|document| decode(document, key(document))).collect();
        Ok(WalkStep { found, next })
    }
}

pub(super) fn raw_day(document: &RawDocumentBuf) -> RawDay {
    let key = document.get_str("_id").unwrap_or_default().to_owned();
    RawDay { cursor: Cursor(key.clone().into_bytes()), document: decode_raw_day(document), key }
}

pub(super) fn start_id(cursor: Option<&Cursor>) -> String {
    cursor.map_or_else(String::new, |cursor| String::from_utf8_lossy(&cursor.0).into_owned())
}

/// One step through a collection.
struct CollectionWalk {
    /// Documents with their `_id`s, in `_id` order.
    documents: Vec<(String, RawDocumentBuf)>,
    /// The `_id` of the next document, or `None` at the end.
    next: Option<String>,
}

async fn walk_collection(
    reads: &mut SnapshotReads<'_>,
    collection: &Collection<RawDocumentBuf>,
    start: &str,
    pages: usize,
    bytes: usize,
) -> Result<CollectionWalk> {
    // Read one document more, which shows whether the step is the last.
    let extent = Extent { pages: pages.saturating_add(1), bytes, ..Extent::ALL };
    let query = Query::new(doc! { "_id": { "$gte": start } }).sort(doc! { "_id": 1 }).limit(extent);
    let found = reads.find(collection, query).await?;
    let read: usize = found.iter().map(|document| document.as_bytes().len()).sum();
    let is_cut = found.len() > pages || read >= bytes;
    let with_id = |document: RawDocumentBuf| (document.get_str("_id").unwrap_or_default().to_owned(), document);
    let mut documents: Vec<(String, RawDocumentBuf)> = found.into_iter().map(with_id).collect();
    let next = if is_cut { documents.pop().map(|(id, _)| id) } else { None };
    Ok(CollectionWalk { documents, next })
}

/// Returns the buckets that have all their pages in the two steps, and the cursor to continue from.
fn whole_buckets(first: CollectionWalk, overflow: CollectionWalk) -> WalkStep<RawBucket> {
    // Both steps are complete below this `_id`.
    let end = [&first.next, &overflow.next].into_iter().flatten().min().cloned();
    let mut buckets: BTreeMap<String, RawBucket> = BTreeMap::new();
    for (step, in_overflow) in [(first, false), (overflow, true)] {
        for (id, document) in step.documents {
            let start = bucket_id(&id).to_owned();
            let new = || RawBucket { cursor: Cursor(start.clone().into_bytes()), pages: Vec::new() };
            let bucket = buckets.entry(start.clone()).or_insert_with(new);
            bucket.pages.push(decode_raw_page(&document, &id, Some(in_overflow)));
        }
    }
    let Some(end) = end else { return WalkStep { found: sorted(buckets), next: None } };
    // The ids of two buckets can interleave if a name ends in a backslash.
    let cut =
        buckets.keys().find(|start| bucket_end(start) > end).filter(|start| **start < end).unwrap_or(&end).clone();
    buckets.retain(|start, _| bucket_end(start) <= cut);
    WalkStep { found: sorted(buckets), next: Some(Cursor(cut.into_bytes())) }
}

fn sorted(buckets: BTreeMap<String, RawBucket>) -> Vec<RawBucket> {
    let mut buckets: Vec<RawBucket> = buckets.into_values().collect();
    for bucket in &mut buckets {
        // Sort by number, because page 10 comes before page 2 in text order.
        bucket.pages.sort_by_key(|page| page.as_ref().map_or(u32::MAX, |page| page.number));
    }
    buckets
}

/// Returns the common prefix of the ids of a bucket's pages, which is the id without the page number. An id without a number
/// counts as a bucket of its own.
fn bucket_id(id: &str) -> &str {
    let bucket = id.trim_end_matches(|c: char| c.is_ascii_digit());
    if bucket.ends_with(' ') && bucket.len() < id.len() { bucket } else { id }
}

/// Returns the least text that is greater than all ids of a bucket.
fn bucket_end(bucket: &str) -> String {
    // `:` follows the digits in ASCII.
    format!("{bucket}{}", if bucket.ends_with(' ') { ':' } else { '\0' })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(ids: &[&str], next: Option<&str>) -> CollectionWalk {
        let document = |id: &str| (id.to_owned(), RawDocumentBuf::try_from(&doc! { "_id": id }).expect("BSON"));
        CollectionWalk { documents: ids.iter().map(|id| document(id)).collect(), next: next.map(str::to_owned) }
    }

    type Next = Option<&'static str>;

    fn walked(first: &[&str], next: Next, overflow: &[&str], overflow_next: Next) -> (Vec<String>, Option<String>) {
        let text = |cursor: Cursor| String::from_utf8(cursor.0).expect("UTF-8");
        let walked = whole_buckets(step(first, next), step(overflow, overflow_next));
        let found = walked.found.into_iter().map(|bucket| format!("{}×{}", text(bucket.cursor), bucket.pages.len()));
        (found.collect(), walked.next.map(text))
    }

    #[test]
    fn only_buckets_with_all_their_pages_are_returned() {
        let all = walked(&["h a 0", "h b 0"], None, &["h a 1", "h c 1"], None);
        assert_eq!(all, (vec!["h a ×2".into(), "h b ×1".into(), "h c ×1".into()], None));
        let cut = walked(&["h a 0", "h b 0"], Some("h c 0"), &["h a 1"], None);
        assert_eq!(cut, (vec!["h a ×2".into(), "h b ×1".into()], Some("h c 0".into())));
        let cut = walked(&["h a 0", "h b 0"], None, &["h a 1", "h a 10"], Some("h a 2"));
        assert_eq!(cut, (vec![], Some("h a ".into())), "page 2 is still to come");
        let ahead = walked(&["h a 0"], Some("h b 0"), &["h d 1"], Some("h d 2"));
        assert_eq!(ahead, (vec!["h a ×1".into()], Some("h b 0".into())), "not beyond what was read");
        let cut = walked(&["h a 0", "h b 0", "h c 0"], None, &["h a 1", "h b 1"], Some("h b 2"));
        assert_eq!(cut, (vec!["h a ×2".into()], Some("h b ".into())));
    }

    #[test]
    fn interleaved_ids_of_two_buckets_are_kept_apart() {
        // A measurement that ends in a backslash, and one with a space.
        let ids = [r"h a\ 0", r"h a\ 1 0", r"h a\ 10", r"h a\ 9"];
        let (found, next) = walked(&ids, None, &[], None);
        assert_eq!((found, next), (vec![r"h a\ ×3".into(), r"h a\ 1 ×1".into()], None));
        assert_eq!(walked(&ids[..2], Some(ids[2]), &[], None), (vec![], Some(r"h a\ ".into())));
    }

    #[test]
    fn an_id_without_a_page_number_is_a_bucket() {
        let (found, next) = walked(&["12", "h a 0", "h a x", "torso"], Some("z"), &[], None);
        assert_eq!(found, ["12×1", "h a ×1", "h a x×1", "torso×1"]);
        assert_eq!(next.as_deref(), Some("z"));
    }
}
