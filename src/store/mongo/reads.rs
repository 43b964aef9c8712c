//! Documents read whole, in bounded numbers: the filters say how many there can be.

use bson::{Document, RawDocumentBuf, doc};
use mongodb::Collection;

use super::outcome::classify;
use crate::bucket::StorageError;

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

/// The `_id`s of all documents, in order.
pub async fn names(collection: &Collection<Document>) -> Result<Vec<String>, StorageError> {
    let mut cursor = collection.find(Document::new()).sort(doc! { "_id": 1 }).await.map_err(|e| classify(&e))?;
    let mut names = Vec::new();
    while cursor.advance().await.map_err(|e| classify(&e))? {
        names.extend(cursor.current().get_str("_id").map(str::to_owned));
    }
    Ok(names)
}
