//! Reads documents into memory; filters and extents bound how many.

use bson::{Document, RawDocumentBuf, doc};
use mongodb::options::ReadConcern;
use mongodb::{Client, ClientSession, Collection};

use super::outcome::classify;
use super::setup::Collections;
use crate::bucket::StorageError;
use crate::bucket::store::{Extent, SensorFilter};

/// The documents that match a filter, sorted, up to the extent's pages and bytes.
pub async fn find(
    collection: &Collection<RawDocumentBuf>,
    filter: Document,
    sort: Document,
    projection: Option<Document>,
    extent: Extent,
) -> Result<Vec<RawDocumentBuf>, StorageError> {
    let mut find = collection.find(filter).sort(sort);
    if let Some(projection) = projection {
        find = find.projection(projection);
    }
    if let Ok(limit) = i64::try_from(extent.pages) {
        find = find.limit(limit);
    }
    let mut cursor = find.await.map_err(|e| classify(&e))?;
    let (mut documents, mut bytes) = (Vec::new(), 0);
    while bytes < extent.bytes && cursor.advance().await.map_err(|e| classify(&e))? {
        bytes += cursor.current().as_bytes().len();
        documents.push(cursor.current().to_owned());
    }
    Ok(documents)
}

/// A session in which every find sees the same moment.
pub async fn snapshot_session(client: &Client) -> Result<ClientSession, StorageError> {
    client.start_session().snapshot(true).await.map_err(|e| classify(&e))
}

/// As [`find`], all documents at one moment.
pub async fn find_at_once(
    client: &Client,
    collection: &Collection<RawDocumentBuf>,
    filter: Document,
    sort: Document,
    projection: Option<Document>,
    extent: Extent,
) -> Result<Vec<RawDocumentBuf>, StorageError> {
    let mut session = snapshot_session(client).await?;
    find_in_session(&mut session, collection, (filter, sort, projection, extent)).await
}

/// As [`find`], at the moment of the session.
pub async fn find_in_session(
    session: &mut ClientSession,
    collection: &Collection<RawDocumentBuf>,
    (filter, sort, projection, extent): (Document, Document, Option<Document>, Extent),
) -> Result<Vec<RawDocumentBuf>, StorageError> {
    // Repeated here, because the client's read concern would otherwise override the session's.
    let mut find = collection.find(filter).sort(sort).read_concern(ReadConcern::snapshot());
    if let Some(projection) = projection {
        find = find.projection(projection);
    }
    if let Ok(limit) = i64::try_from(extent.pages) {
        find = find.limit(limit);
    }
    let mut cursor = find.session(&mut *session).await.map_err(|e| classify(&e))?;
    let (mut documents, mut bytes) = (Vec::new(), 0);
    while bytes < extent.bytes && cursor.advance(&mut *session).await.map_err(|e| classify(&e))? {
        bytes += cursor.current().as_bytes().len();
        documents.push(cursor.current().to_owned());
    }
    Ok(documents)
}

/// The sensor documents that pass the filter, in key order.
pub async fn list_sensors(
    collection: &Collection<RawDocumentBuf>,
    filter: &SensorFilter,
) -> Result<Vec<RawDocumentBuf>, StorageError> {
    if filter.limit == 0 {
        // To MongoDB, 0 means no limit.
        return Ok(Vec::new());
    }
    let mut query = Document::new();
    if let Some(after) = &filter.after {
        query.insert("_id", doc! { "$gt": after });
    }
    if filter.outliers {
        query.insert("outlier.since", doc! { "$exists": true });
    }
    find(collection, query, doc! { "_id": 1 }, None, Extent::pages(filter.limit)).await
}

/// One bucket's pages from both collections at one moment (snapshot read), in order of their numbers. `None` if they
/// have more bytes than `bytes_max`.
pub async fn snapshot(
    client: &Client,
    collections: &Collections,
    filter: Document,
    projection: Option<Document>,
    bytes_max: usize,
) -> Result<Option<Vec<RawDocumentBuf>>, StorageError> {
    let mut session = client.start_session().snapshot(true).await.map_err(|e| classify(&e))?;
    let (mut pages, mut left) = (Vec::new(), bytes_max);
    for collection in [&collections.buckets, &collections.overflow] {
        let found = find_in(&mut session, collection, filter.clone(), projection.clone(), left).await?;
        let Some(found) = found else { return Ok(None) };
        left -= found.iter().map(|page| page.as_bytes().len()).sum::<usize>();
        pages.extend(found);
    }
    Ok(Some(pages))
}

/// Pages are large: the server's own choice, up to 16 MiB per reply, would be held beside what is decoded of it.
const PAGES_PER_REPLY: u32 = 32;

/// `None` if the documents have more bytes than `bytes_max`.
async fn find_in(
    session: &mut ClientSession,
    collection: &Collection<RawDocumentBuf>,
    filter: Document,
    projection: Option<Document>,
    bytes_max: usize,
) -> Result<Option<Vec<RawDocumentBuf>>, StorageError> {
    // Repeated here, because the client's read concern would otherwise override the session's.
    let mut find = collection
        .find(filter)
        .read_concern(ReadConcern::snapshot())
        .sort(doc! { "page": 1 })
        .batch_size(PAGES_PER_REPLY);
    if let Some(projection) = projection {
        find = find.projection(projection);
    }
    let mut cursor = find.session(&mut *session).await.map_err(|e| classify(&e))?;
    let (mut documents, mut bytes) = (Vec::new(), 0);
    while cursor.advance(&mut *session).await.map_err(|e| classify(&e))? {
        bytes += cursor.current().as_bytes().len();
        if bytes > bytes_max {
            return Ok(None);
        }
        documents.push(cursor.current().to_owned());
    }
    Ok(Some(documents))
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
