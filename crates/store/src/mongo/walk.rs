//! Walks everything the collections of a database hold, as it is stored, in parts, each part at one moment. Walks by
//! `_id`, which exists whatever else a document lacks.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bson::{RawDocumentBuf, doc};
use mongodb::{ClientSession, Collection};

use super::MongoStore;
use super::outcome::classify;
use super::reads::{Query, find_in_session, snapshot_session};
use super::setup::Collections;
use crate::bucket::Result;
use crate::bucket::raw::{Cursor, RawBucket, RawDay, RawSensor, Walked};
use crate::bucket::store::{DatabaseStore, Extent, WalkStore};
use crate::document::{decode_raw_day, decode_raw_page, decode_raw_sensor};

/// A part ends after this many bytes of documents.
const PART_BYTES: usize = 8 << 20;

#[async_trait]
impl WalkStore for MongoStore {
    async fn walk_buckets(&self, database: &str, from: Option<&Cursor>, pages_max: usize) -> Result<Walked<RawBucket>> {
        let (client, collections) = (self.client.clone(), Collections::of(&self.mongo, database));
        let (from, mut pages, mut bytes) = (text_of(from), pages_max.max(1), PART_BYTES);
        self.read(async move {
            loop {
                let mut session = snapshot_session(&client).await?;
                let first = part(&mut session, &collections.buckets, &from, pages, bytes).await?;
                let further = part(&mut session, &collections.overflow, &from, pages, bytes).await?;
                let walked = whole_buckets(first, further);
                if walked.next.is_none() || !walked.found.is_empty() {
                    return Ok(walked);
                }
                // Not even one bucket fits into the part.
                (pages, bytes) = (2 * pages, 2 * bytes);
            }
        })
        .await
    }

    async fn walk_sensors(&self, database: &str, from: Option<&Cursor>, max: usize) -> Result<Walked<RawSensor>> {
        let sensors = Collections::of(&self.mongo, database).sensors;
        self.walk(&sensors, from, max, |document, key| decode_raw_sensor(document, key)).await
    }

    async fn walk_days(&self, database: &str, from: Option<&Cursor>, max: usize) -> Result<Walked<RawDay>> {
        let days = Collections::of(&self.mongo, database).days;
        let day = |document: &RawDocumentBuf, key: String| RawDay {
            from: Cursor(key.clone().into_bytes()),
            document: decode_raw_day(document),
            key,
        };
        self.walk(&days, from, max, day).await
    }

    async fn estimate_pages(&self) -> Result<u64> {
        let (mongo, databases) = (self.mongo.clone(), self.databases().await?);
        self.read(async move {
            let mut pages = 0;
            for database in databases {
                let Collections { buckets, overflow, days, .. } = Collections::of(&mongo, &database);
                for collection in [buckets, overflow, days] {
                    pages += collection.estimated_document_count().await.map_err(|e| classify(&e))?;
                }
            }
            Ok(pages)
        })
        .await
    }
}

impl MongoStore {
    /// Walks a part of a collection by its documents' `_id`s.
    async fn walk<T>(
        &self,
        collection: &Collection<RawDocumentBuf>,
        from: Option<&Cursor>,
        max: usize,
        decode: impl Fn(&RawDocumentBuf, String) -> T,
    ) -> Result<Walked<T>> {
        let extent = Extent { pages: max.max(1), bytes: PART_BYTES, hour_bytes: usize::MAX };
        let query = Query::of(doc! { "_id": { "$gte": text_of(from) } }).sorted(doc! { "_id": 1 }).within(extent);
        let documents = self.find(collection, query).await?;
        let bytes: usize = documents.iter().map(|document| document.as_bytes().len()).sum();
        let is_end = documents.len() < extent.pages && bytes < extent.bytes;
        let key = |document: &RawDocumentBuf| document.get_str("_id").unwrap_or_default().to_owned();
        // The least text behind the last id.
        let next = documents.last().filter(|_| !is_end).map(|last| Cursor(format!("{}\0", key(last)).into_bytes()));
        let found = documents.iter().map(|document| decode(document, key(document))).collect();
        Ok(Walked { found, next })
    }
}

fn text_of(cursor: Option<&Cursor>) -> String {
    cursor.map_or_else(String::new, |cursor| String::from_utf8_lossy(&cursor.0).into_owned())
}

/// Documents of one collection in the order of their `_id`s.
struct CollectionWalk {
    documents: Vec<(String, RawDocumentBuf)>,
    /// The `_id` of the next document, if there is one.
    next: Option<String>,
}

async fn part(
    session: &mut ClientSession,
    collection: &Collection<RawDocumentBuf>,
    from: &str,
    pages: usize,
    bytes: usize,
) -> Result<CollectionWalk> {
    // One more than wanted shows whether there are more.
    let extent = Extent { pages: pages.saturating_add(1), bytes, ..Extent::ALL };
    let query = Query::of(doc! { "_id": { "$gte": from } }).sorted(doc! { "_id": 1 }).within(extent);
    let found = find_in_session(session, collection, query).await?;
    let read: usize = found.iter().map(|document| document.as_bytes().len()).sum();
    let is_cut = found.len() > pages || read >= bytes;
    let with_id = |document: RawDocumentBuf| (document.get_str("_id").unwrap_or_default().to_owned(), document);
    let mut documents: Vec<(String, RawDocumentBuf)> = found.into_iter().map(with_id).collect();
    let next = if is_cut { documents.pop().map(|(id, _)| id) } else { None };
    Ok(CollectionWalk { documents, next })
}

/// The buckets whose pages are all in the two parts, and the cursor to continue from.
fn whole_buckets(first: CollectionWalk, further: CollectionWalk) -> Walked<RawBucket> {
    // Below this `_id` both parts are complete.
    let end = [&first.next, &further.next].into_iter().flatten().min().cloned();
    let mut buckets: BTreeMap<String, RawBucket> = BTreeMap::new();
    let both = [(first, false), (further, true)];
    for (part, in_overflow) in both {
        for (id, document) in part.documents {
            let from = bucket_of(&id).to_owned();
            let new = || RawBucket { from: Cursor(from.clone().into_bytes()), pages: Vec::new() };
            let bucket = buckets.entry(from.clone()).or_insert_with(new);
            bucket.pages.push(decode_raw_page(&document, &id, Some(in_overflow)));
        }
    }
    let Some(end) = end else { return Walked { found: sorted(buckets), next: None } };
    // Keys of two buckets may interleave where a name ends in a backslash.
    let cut = buckets.keys().find(|from| end_of(from) > end).filter(|from| **from < end).unwrap_or(&end).clone();
    buckets.retain(|from, _| end_of(from) <= cut);
    Walked { found: sorted(buckets), next: Some(Cursor(cut.into_bytes())) }
}

fn sorted(buckets: BTreeMap<String, RawBucket>) -> Vec<RawBucket> {
    let mut buckets: Vec<RawBucket> = buckets.into_values().collect();
    for bucket in &mut buckets {
        // Sorted as text, page 10 comes before page 2.
        bucket.pages.sort_by_key(|page| page.as_ref().map_or(u32::MAX, |page| page.number));
    }
    buckets
}

/// The prefix of the ids of all pages of a bucket: the id without the page number. An id without a number is a bucket
/// of its own.
fn bucket_of(id: &str) -> &str {
    let bucket = id.trim_end_matches(|c: char| c.is_ascii_digit());
    if bucket.ends_with(' ') && bucket.len() < id.len() { bucket } else { id }
}

/// The least text greater than all ids of a bucket.
fn end_of(bucket: &str) -> String {
    // `:` follows the digits in ASCII.
    format!("{bucket}{}", if bucket.ends_with(' ') { ':' } else { '\0' })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part_of(ids: &[&str], next: Option<&str>) -> CollectionWalk {
        let document = |id: &str| (id.to_owned(), RawDocumentBuf::try_from(&doc! { "_id": id }).expect("BSON"));
        CollectionWalk { documents: ids.iter().map(|id| document(id)).collect(), next: next.map(str::to_owned) }
    }

    type Next = Option<&'static str>;

    fn walked(first: &[&str], next: Next, further: &[&str], further_next: Next) -> (Vec<String>, Option<String>) {
        let text = |cursor: Cursor| String::from_utf8(cursor.0).expect("UTF-8");
        let walked = whole_buckets(part_of(first, next), part_of(further, further_next));
        let found = walked.found.into_iter().map(|bucket| format!("{}×{}", text(bucket.from), bucket.pages.len()));
        (found.collect(), walked.next.map(text))
    }

    #[test]
    fn only_buckets_with_all_their_pages_are_given() {
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
    fn ids_of_one_bucket_among_those_of_another_are_kept_apart() {
        // A measurement that ends in a backslash, and one with a space.
        let ids = [r"h a\ 0", r"h a\ 1 0", r"h a\ 10", r"h a\ 9"];
        let (found, next) = walked(&ids, None, &[], None);
        assert_eq!((found, next), (vec![r"h a\ ×3".into(), r"h a\ 1 ×1".into()], None));
        assert_eq!(walked(&ids[..2], Some(ids[2]), &[], None), (vec![], Some(r"h a\ ".into())));
    }

    #[test]
    fn an_id_that_names_no_page_stands_alone() {
        let (found, next) = walked(&["12", "h a 0", "h a x", "torso"], Some("z"), &[], None);
        assert_eq!(found, ["12×1", "h a ×1", "h a x×1", "torso×1"]);
        assert_eq!(next.as_deref(), Some("z"));
    }
}
