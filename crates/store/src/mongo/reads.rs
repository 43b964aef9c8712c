//! Reads documents into memory, limited by an extent.
//!
//! Reads see every write of this process that the server has acknowledged. After a failover, the snapshot that a majority of the members
//! is known to have may be older than a write that the old primary acknowledged. A read that names the time of that write
//! waits until the new primary's snapshot includes it.

use std::sync::Arc;

use bson::{Document, RawDocumentBuf, Timestamp, doc};
use mongodb::action::Find;
use mongodb::error::Error;
use mongodb::options::{FindOptions, Hint, ReadConcern};
use mongodb::{Client, ClientSession, Collection};
use parking_lot::Mutex;

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
    /// The name of the index to use; `None` for the server's choice.
    hint: Option<&'static str>,
    /// Maximum number of documents per reply; `None` for the server's choice.
    per_reply: Option<u32>,
}

impl Query {
    /// Creates a query for all documents that match a filter, with all fields and in any order.
    pub fn new(filter: Document) -> Self {
        Self { filter, sort: Document::new(), projection: None, extent: Extent::ALL, hint: None, per_reply: None }
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

    /// Fails if the collection has no index of this name.
    pub fn hint(self, index: &'static str) -> Self {
        Self { hint: Some(index), ..self }
    }

    /// Builds the driver's query. Also returns the extent, because the caller has to apply its limit on bytes.
    pub fn find<'a>(self, collection: &'a Collection<RawDocumentBuf>) -> (Find<'a, RawDocumentBuf>, Extent) {
        let Self { filter, sort, projection, extent, hint, per_reply } = self;
        let options = FindOptions::builder()
            .sort(sort)
            .projection(projection)
            .limit(i64::try_from(extent.pages).ok())
            .batch_size(per_reply)
            .hint(hint.map(|index| Hint::Name(index.to_owned())))
            .build();
        (collection.find(filter).with_options(options), extent)
    }
}

/// A client that knows the cluster time of its latest acknowledged write.
#[derive(Debug, Clone)]
pub struct CausalClient {
    client: Client,
    last: Arc<Mutex<Option<Timestamp>>>,
}

impl CausalClient {
    pub fn new(client: Client) -> Self {
        Self { client, last: Arc::default() }
    }

    /// Notes the time of an acknowledged write.
    pub fn note(&self, time: Option<Timestamp>) {
        let mut last = self.last.lock();
        *last = (*last).max(time);
    }

    /// Notes the time in the reply to a write.
    pub fn note_reply(&self, reply: &Document) {
        self.note(reply.get_timestamp("operationTime").ok());
    }

    /// Starts a session whose reads see every write noted so far.
    pub async fn session(&self) -> std::result::Result<ClientSession, Error> {
        let mut session = self.client.start_session().causal_consistency(true).await?;
        let last = *self.last.lock();
        if let Some(time) = last {
            session.advance_operation_time(time);
        }
        Ok(session)
    }

    /// Reads documents that a majority has, limited by the query's extent.
    pub async fn find(&self, collection: &Collection<RawDocumentBuf>, query: Query) -> Result<Vec<RawDocumentBuf>> {
        let mut session = self.session().await.map_err(|e| classify(&e))?;
        find_in_session(&mut session, collection, query, ReadConcern::majority()).await
    }

    /// Starts reads from one snapshot.
    pub fn snapshot(&self) -> SnapshotReads<'_> {
        SnapshotReads { client: self, session: None }
    }

    pub async fn shut_down(&self) {
        self.client.clone().shutdown().immediate(true).await;
    }
}

/// Reads from one snapshot, which includes every write noted before the first read.
pub struct SnapshotReads<'a> {
    client: &'a CausalClient,
    /// `None` before the first read.
    session: Option<ClientSession>,
}

impl SnapshotReads<'_> {
    /// Reads documents, limited by the query's extent.
    pub async fn find(&mut self, collection: &Collection<RawDocumentBuf>, query: Query) -> Result<Vec<RawDocumentBuf>> {
        if let Some(session) = &mut self.session {
            return find_in_session(session, collection, query, ReadConcern::snapshot()).await;
        }
        // Fixed, because on a busy server the latest operation is always ahead of the snapshot.
        let required = *self.client.last.lock();
        // The server chooses the snapshot in the first read.
        loop {
            let session = self.client.client.start_session().snapshot(true).await;
            let mut session = session.map_err(|e| classify(&e))?;
            let found = find_in_session(&mut session, collection, query.clone(), ReadConcern::snapshot()).await?;
            // A missing collection has no time.
            if session.snapshot_time().is_none_or(|time| Some(time) >= required) {
                self.session = Some(session);
                return Ok(found);
            }
            // Only a majority read can wait for a time. Later snapshots are not older than it.
            let one = Query::new(doc! {}).project(doc! { "_id": 1 }).limit(Extent::pages(1));
            self.client.find(collection, one).await?;
        }
    }
}

async fn find_in_session(
    session: &mut ClientSession,
    collection: &Collection<RawDocumentBuf>,
    query: Query,
    concern: ReadConcern,
) -> Result<Vec<RawDocumentBuf>> {
    let (find, extent) = query.find(collection);
    // Set the read concern, because the client's would override that of a snapshot session.
    let mut cursor = find.read_concern(concern).session(&mut *session).await.map_err(|e| classify(&e))?;
    let mut documents = Vec::new();
    let mut bytes = 0;
    while bytes < extent.bytes && cursor.advance(&mut *session).await.map_err(|e| classify(&e))? {
        bytes += cursor.current().as_bytes().len();
        documents.push(cursor.current().to_owned());
    }
    Ok(documents)
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
