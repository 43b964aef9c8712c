//! Documents read whole, in bounded numbers: the filters say how many there can be.

use std::collections::HashMap;

use bson::{Document, RawDocumentBuf, doc};
use mongodb::options::ReadConcern;
use mongodb::{Client, ClientSession, Collection};

use super::outcome::classify;
use super::setup::Collections;
use crate::bucket::StorageError;
use crate::bucket::store::{BucketId, SensorFilter};
use crate::store::document::decode_header;

/// All documents of a filter, sorted.
pub async fn find(
    collection: &Collection<RawDocumentBuf>,
    filter: Document,
    sort: Document,
    projection: Option<Document>,
    limit: Option<i64>,
) -> Result<Vec<RawDocumentBuf>, StorageError> {
    let mut find = collection.find(filter).sort(sort);
    if let Some(projection) = projection {
        find = find.projection(projection);
    }
    if let Some(limit) = limit {
        find = find.limit(limit);
    }
    let mut cursor = find.await.map_err(|e| classify(&e))?;
    let mut documents = Vec::new();
    while cursor.advance().await.map_err(|e| classify(&e))? {
        documents.push(cursor.current().to_owned());
    }
    Ok(documents)
}

/// The sensors' documents that pass the filter, in key order.
pub async fn list_sensors(
    collection: &Collection<RawDocumentBuf>,
    filter: &SensorFilter,
) -> Result<Vec<RawDocumentBuf>, StorageError> {
    if filter.limit == 0 {
        // MongoDB takes it for no limit at all.
        return Ok(Vec::new());
    }
    let mut query = Document::new();
    if let Some(after) = &filter.after {
        query.insert("_id", doc! { "$gt": after });
    }
    if filter.outliers {
        query.insert("outlier.since", doc! { "$exists": true });
    }
    find(collection, query, doc! { "_id": 1 }, None, i64::try_from(filter.limit).ok()).await
}

/// One bucket's pages in both collections as they were at one moment, in order of their numbers.
pub async fn snapshot(
    client: &Client,
    collections: &Collections,
    filter: Document,
    projection: Option<Document>,
) -> Result<Vec<RawDocumentBuf>, StorageError> {
    let mut session = client.start_session().snapshot(true).await.map_err(|e| classify(&e))?;
    let mut pages = Vec::new();
    for collection in [&collections.buckets, &collections.overflow] {
        pages.extend(find_in(&mut session, collection, filter.clone(), projection.clone()).await?);
    }
    Ok(pages)
}

async fn find_in(
    session: &mut ClientSession,
    collection: &Collection<RawDocumentBuf>,
    filter: Document,
    projection: Option<Document>,
) -> Result<Vec<RawDocumentBuf>, StorageError> {
    // Said here once more: the client's own read concern would else win over the session's.
    let mut find = collection.find(filter).read_concern(ReadConcern::snapshot()).sort(doc! { "page": 1 });
    if let Some(projection) = projection {
        find = find.projection(projection);
    }
    let mut cursor = find.session(&mut *session).await.map_err(|e| classify(&e))?;
    let mut documents = Vec::new();
    while cursor.advance(&mut *session).await.map_err(|e| classify(&e))? {
        documents.push(cursor.current().to_owned());
    }
    Ok(documents)
}

/// Pages without their readings and summaries: enough for [`Revs::add`].
pub async fn headers(
    collection: &Collection<RawDocumentBuf>,
    filter: Document,
) -> Result<Vec<RawDocumentBuf>, StorageError> {
    let projection = doc! { "schemaVersion": 1, "sensor": 1, "start": 1, "page": 1, "rev": 1, "hasOverflow": 1 };
    find(collection, filter, Document::new(), Some(projection), None).await
}

/// Numbers and revs of pages, by bucket.
#[derive(Default)]
pub struct Revs {
    revs: HashMap<(String, i64), Vec<(u32, u64)>>,
    /// Filters for the buckets that have pages in `overflow` too.
    pub spilled: Vec<Document>,
}

impl Revs {
    /// Takes pages in, as [`headers`] read them.
    pub fn add(&mut self, pages: &[RawDocumentBuf]) -> Result<(), StorageError> {
        for page in pages {
            let header = decode_header(page)?;
            let start_ms = header.hour.start_ms();
            if header.has_overflow {
                let start = bson::DateTime::from_millis(start_ms);
                self.spilled.push(doc! { "sensor": &header.sensor, "start": start });
            }
            self.revs.entry((header.sensor, start_ms)).or_default().push((header.number, header.rev));
        }
        Ok(())
    }

    /// The pages of one bucket.
    pub fn take(&mut self, id: &BucketId) -> Vec<(u32, u64)> {
        self.revs.remove(&(id.sensor.key.to_string(), id.hour.start_ms())).unwrap_or_default()
    }
}

/// The names of all databases that are not dropped, in order.
pub async fn names(databases: &Collection<Document>) -> Result<Vec<String>, StorageError> {
    let there = doc! { "dropped": { "$ne": true } };
    let mut cursor = databases.find(there).sort(doc! { "_id": 1 }).await.map_err(|e| classify(&e))?;
    let mut names = Vec::new();
    while cursor.advance().await.map_err(|e| classify(&e))? {
        names.extend(cursor.current().get_str("_id").map(str::to_owned));
    }
    Ok(names)
}

/// The incarnation of every database, dropped or not.
pub async fn incarnations(databases: &Collection<Document>) -> Result<Vec<(String, u64)>, StorageError> {
    let mut cursor = databases.find(Document::new()).await.map_err(|e| classify(&e))?;
    let mut incarnations = Vec::new();
    while cursor.advance().await.map_err(|e| classify(&e))? {
        let (document, name) = (cursor.current(), cursor.current().get_str("_id"));
        let incarnation = document.get_i64("incarnation").ok().and_then(|of| u64::try_from(of).ok());
        incarnations.extend(name.ok().map(|name| (name.to_owned(), incarnation.unwrap_or_default())));
    }
    Ok(incarnations)
}
