//! Reads documents into memory, limited by an extent.

use bson::{Document, RawDocumentBuf, doc};
use mongodb::Collection;
use mongodb::action::Find;
use mongodb::error::Error;
use mongodb::options::FindOptions;

use super::causal::CausalClient;
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

/// Decodes a whole document.
pub fn to_document(raw: &RawDocumentBuf) -> Result<Document> {
    Document::try_from(&**raw).map_err(|e| classify(&Error::from(e)))
}

/// Reads one bucket's pages of both collections from one snapshot, in page order. Returns `None` if they exceed
/// `bytes_max` bytes.
pub async fn snapshot(
    client: &CausalClient,
    collections: &Collections,
    query: Query,
    bytes_max: usize,
) -> Result<Option<Vec<RawDocumentBuf>>> {
    let mut reads = client.snapshot();
    let mut pages = Vec::new();
    let mut left = bytes_max;
    for collection in [&collections.buckets, &collections.overflow] {
        let extent = Extent { bytes: left.saturating_add(1), ..Extent::ALL };
        let query = query.clone().sort(doc! { "page": 1 }).limit(extent);
        let query = Query { per_reply: Some(PAGES_PER_REPLY_MAX), ..query };
        let found = reads.find(collection, query).await?;
        let bytes = found.iter().map(|page| page.as_bytes().len()).sum();
        let Some(remaining) = left.checked_sub(bytes) else { return Ok(None) };
        left = remaining;
        pages.extend(found);
    }
    Ok(Some(pages))
}
