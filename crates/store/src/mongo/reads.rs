//! Reads documents into memory; filters and extents bound how many.

use bson::{Document, RawDocumentBuf, doc};
use mongodb::action::Find;
use mongodb::options::{FindOptions, ReadConcern};
use mongodb::{Client, ClientSession, Collection};

use super::outcome::classify;
use super::setup::Collections;
use crate::bucket::Result;
use crate::bucket::store::Extent;

/// Pages are large: the server's own choice, up to 16 MiB per reply, would be held beside what is decoded of it.
const PAGES_PER_REPLY: u32 = 32;

/// Which documents are read, what of them, and how many.
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
    /// All documents that match a filter, whole and in no order.
    pub fn of(filter: Document) -> Self {
        Self { filter, sort: Document::new(), projection: None, extent: Extent::ALL, per_reply: None }
    }

    pub fn sorted(self, sort: Document) -> Self {
        Self { sort, ..self }
    }

    /// Only these parts of the documents; whole ones for `None`.
    pub fn sending(self, projection: impl Into<Option<Document>>) -> Self {
        Self { projection: projection.into(), ..self }
    }

    /// At most as many as this extent has pages and bytes; the last one may exceed its bytes.
    pub fn within(self, extent: Extent) -> Self {
        Self { extent, ..self }
    }

    /// The search, and its extent, whose bytes the driver does not know.
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
    let (mut documents, mut bytes) = (Vec::new(), 0);
    while bytes < extent.bytes && cursor.advance().await.map_err(|e| classify(&e))? {
        bytes += cursor.current().as_bytes().len();
        documents.push(cursor.current().to_owned());
    }
    Ok(documents)
}

/// A session in which every find sees the same moment.
pub async fn snapshot_session(client: &Client) -> Result<ClientSession> {
    client.start_session().snapshot(true).await.map_err(|e| classify(&e))
}

/// As [`find`], at the moment of the session.
pub async fn find_in_session(
    session: &mut ClientSession,
    collection: &Collection<RawDocumentBuf>,
    query: Query,
) -> Result<Vec<RawDocumentBuf>> {
    let (find, extent) = query.find(collection);
    // Repeated here, because the client's read concern would otherwise override the session's.
    let find = find.read_concern(ReadConcern::snapshot());
    let mut cursor = find.session(&mut *session).await.map_err(|e| classify(&e))?;
    let (mut documents, mut bytes) = (Vec::new(), 0);
    while bytes < extent.bytes && cursor.advance(&mut *session).await.map_err(|e| classify(&e))? {
        bytes += cursor.current().as_bytes().len();
        documents.push(cursor.current().to_owned());
    }
    Ok(documents)
}

/// One bucket's pages from both collections at one moment (snapshot read), in order of their numbers. `None` if they
/// have more bytes than `bytes_max`.
pub async fn snapshot(
    client: &Client,
    collections: &Collections,
    query: Query,
    bytes_max: usize,
) -> Result<Option<Vec<RawDocumentBuf>>> {
    let mut session = snapshot_session(client).await?;
    let (mut pages, mut left) = (Vec::new(), bytes_max);
    for collection in [&collections.buckets, &collections.overflow] {
        let extent = Extent { bytes: left.saturating_add(1), ..Extent::ALL };
        let query = query.clone().sorted(doc! { "page": 1 }).within(extent);
        let query = Query { per_reply: Some(PAGES_PER_REPLY), ..query };
        let found = find_in_session(&mut session, collection, query).await?;
        let bytes = found.iter().map(|page| page.as_bytes().len()).sum();
        let Some(less) = left.checked_sub(bytes) else { return Ok(None) };
        left = less;
        pages.extend(found);
    }
    Ok(Some(pages))
}
