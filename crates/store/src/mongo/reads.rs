//! Reads documents into memory, limited by an extent.

use bson::{Document, RawDocumentBuf, doc};
use mongodb::action::Find;
use mongodb::options::{FindOptions, ReadConcern};
use mongodb::{Client, ClientSession, Collection};

use super::outcome::classify;
use super::setup::Collections;
use crate::bucket::Result;
use crate::bucket::store::Extent;

/// Maximum number of pages per reply. Replies of the server's default size, up to 16 MiB, would take too much memory beside
/// the decoded pages.
const PAGES_PER_REPLY_MAX: u32 = 32;

/// A query for documents of a collection.
#[derive(Debug, Clone)]
pub struct Query {
    filter: Document,
    sort: Document,
    projection: Option<Document>,
    extent: Extent,
    /// Maximum number of documents per reply; `None` for the server's choice.
    per_reply: Option<u32>,
}

impl Query {
    /// Creates a query for all documents that match a filter, with all fields and in any order.
    pub fn new(filter: Document) -> Self {
        Self { filter, sort: Document::new(), projection: None, extent: Extent::ALL, per_reply: None }
    }

    pub fn sort(self, sort: Document) -> Self {
        Self { sort, ..self }
    }

    /// Limits the fields of the documents. `None` returns all fields.
    pub fn project(self, projection: impl Into<Option<Document>>) -> Self {
        Self { projection: projection.into(), ..self }
    }

    /// Limits the number and the total size of the documents. The last document can exceed the size.
    pub fn limit(self, extent: Extent) -> Self {
        Self { extent, ..self }
    }

    /// Builds the driver's query. Also returns the extent, because the caller has to apply its limit on bytes.
    pub fn find<'a>(self, collection: &'a Collection<RawDocumentBuf>) -> (Find<'a, RawDocumentBuf>, Extent) {
        let Self { filter, sort, projection, extent, per_reply } = self;
        let options = FindOptions::builder()
            .sort(sort)
            .projection(projection)
            .limit(i64::try_from(extent.pages).ok())
            .batch_size(per_reply)
            .build();
        (collection.find(filter).with_options(options), extent)
    }
}

/// Reads documents.
pub async fn find(collection: &Collection<RawDocumentBuf>, query: Query) -> Result<Vec<RawDocumentBuf>> {
    let (find, extent) = query.find(collection);
    let mut cursor = find.await.map_err(|e| classify(&e))?;
    let mut documents = Vec::new();
    let mut bytes = 0;
    while bytes < extent.bytes && cursor.advance().await.map_err(|e| classify(&e))? {
        bytes += cursor.current().as_bytes().len();
        documents.push(cursor.current().to_owned());
    }
    Ok(documents)
}

/// Starts a session in which all queries read from one snapshot.
pub async fn snapshot_session(client: &Client) -> Result<ClientSession> {
    client.start_session().snapshot(true).await.map_err(|e| classify(&e))
}

/// As [`find`], from the snapshot of the session.
pub async fn find_in_session(
    session: &mut ClientSession,
    collection: &Collection<RawDocumentBuf>,
    query: Query,
) -> Result<Vec<RawDocumentBuf>> {
    let (find, extent) = query.find(collection);
    // Set the read concern again, because the client's would override the session's.
    let find = find.read_concern(ReadConcern::snapshot());
    let mut cursor = find.session(&mut *session).await.map_err(|e| classify(&e))?;
    let mut documents = Vec::new();
    let mut bytes = 0;
    while bytes < extent.bytes && cursor.advance(&mut *session).await.map_err(|e| classify(&e))? {
        bytes += cursor.current().as_bytes().len();
        documents.push(cursor.current().to_owned());
    }
    Ok(documents)
}

/// Reads one bucket's pages of both collections from one snapshot, in page order. Returns `None` if they exceed
/// `bytes_max` bytes.
pub async fn snapshot(
    client: &Client,
    collections: &Collections,
    query: Query,
    bytes_max: usize,
) -> Result<Option<Vec<RawDocumentBuf>>> {
    let mut session = snapshot_session(client).await?;
    let mut pages = Vec::new();
    let mut left = bytes_max;
    for collection in [&collections.buckets, &collections.overflow] {
        let extent = Extent { bytes: left.saturating_add(1), ..Extent::ALL };
        let query = query.clone().sort(doc! { "page": 1 }).limit(extent);
        let query = Query { per_reply: Some(PAGES_PER_REPLY_MAX), ..query };
        let found = find_in_session(&mut session, collection, query).await?;
        let bytes = found.iter().map(|page| page.as_bytes().len()).sum();
        let Some(remaining) = left.checked_sub(bytes) else { return Ok(None) };
        left = remaining;
        pages.extend(found);
    }
    Ok(Some(pages))
}
