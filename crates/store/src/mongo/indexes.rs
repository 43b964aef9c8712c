//! The indexes that hourglass needs. Missing ones are created; an equivalent index of an administrator is accepted.

use bson::{Document, RawDocumentBuf};
use mongodb::error::Error;
use mongodb::options::IndexOptions;
use mongodb::{Collection, IndexModel};

use super::outcome::{classify, has_code};
use crate::bucket::Result;

const OPTIONS_CONFLICT: i32 = 85;
const KEY_SPECS_CONFLICT: i32 = 86;

/// An index that hourglass needs.
#[derive(Debug, Clone)]
pub struct Index {
    /// The keys, in order.
    pub keys: Document,
    /// True if documents without these keys are not indexed.
    pub sparse: bool,
}

/// Creates an index unless the collection has one with the same keys, under any name.
///
/// # Errors
/// If the index cannot be created, or the existing one would refuse or miss documents.
pub async fn create(collection: &Collection<RawDocumentBuf>, index: &Index) -> Result<(), Error> {
    let options = IndexOptions::builder().sparse(index.sparse.then_some(true)).build();
    let model = IndexModel::builder().keys(index.keys.clone()).options(options).build();
    match collection.create_index(model).await {
        // The server has an index with these keys under another name, or another index under this name.
        Err(error) if has_code(&error, &[OPTIONS_CONFLICT, KEY_SPECS_CONFLICT]) => {
            let has_equivalent = list(collection).await?.iter().any(|found| can_replace(found, index));
            if has_equivalent { Ok(()) } else { Err(error) }
        }
        created => created.map(drop),
    }
}

/// Returns true if the collection has this index or an equivalent one, under any name.
///
/// # Errors
/// If the server does not answer or refuses.
pub async fn exists(collection: &Collection<RawDocumentBuf>, index: &Index) -> Result<bool> {
    let indexes = list(collection).await.map_err(|e| classify(&e))?;
    Ok(indexes.iter().any(|found| can_replace(found, index)))
}

/// Lists the indexes of a collection. A missing collection has none.
///
/// # Errors
/// If the server does not answer or refuses.
pub async fn list(collection: &Collection<RawDocumentBuf>) -> Result<Vec<IndexModel>, Error> {
    let mut listed = match collection.list_indexes().await {
        Err(error) if is_no_collection(&error) => return Ok(Vec::new()),
        listed => listed?,
    };
    let mut found = Vec::new();
    while listed.advance().await? {
        found.push(listed.deserialize_current()?);
    }
    Ok(found)
}

/// Returns true if the error means that the collection does not exist.
pub fn is_no_collection(error: &Error) -> bool {
    const NAMESPACE_NOT_FOUND: i32 = 26;
    has_code(error, &[NAMESPACE_NOT_FOUND])
}

/// Returns true if an existing index can replace the wanted one. A unique index would refuse pages, and a partial one
/// would miss documents.
fn can_replace(found: &IndexModel, wanted: &Index) -> bool {
    let options = found.options.clone().unwrap_or_default();
    let is_unique = options.unique == Some(true);
    let is_partial = options.partial_filter_expression.is_some();
    same_keys(&found.keys, &wanted.keys) && !is_unique && !is_partial
}

/// Returns true if two indexes have the same keys in the same order and direction. Directions can be of any number type.
fn same_keys(one: &Document, other: &Document) -> bool {
    let direction = |value: &bson::Bson| match value {
        bson::Bson::Int32(number) => Some(f64::from(*number)),
        bson::Bson::Double(number) => Some(*number),
        // Directions are 1 or -1.
        bson::Bson::Int64(number) => i32::try_from(*number).ok().map(f64::from),
        _ => None,
    };
    let keys = |keys: &Document| -> Option<Vec<(String, f64)>> {
        keys.iter().map(|(key, value)| Some((key.clone(), direction(value)?))).collect()
    };
    keys(one).is_some() && keys(one) == keys(other)
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn found(keys: Document, options: IndexOptions) -> IndexModel {
        IndexModel::builder().keys(keys).options(options).build()
    }

    #[test]
    fn equivalent_indexes_can_have_any_name() {
        let wanted = Index { keys: doc! { "sensor": 1, "start": 1 }, sparse: false };
        let named = || IndexOptions::builder().name("mine".to_owned()).build();
        for keys in [doc! { "sensor": 1, "start": 1 }, doc! { "sensor": 1.0, "start": 1_i64 }] {
            assert!(can_replace(&found(keys, named()), &wanted));
        }
        for keys in [
            doc! { "start": 1, "sensor": 1 },
            doc! { "sensor": 1, "start": -1 },
            doc! { "sensor": 1 },
            doc! { "sensor": "hashed", "start": 1 },
        ] {
            assert!(!can_replace(&found(keys, named()), &wanted));
        }
        let unique = IndexOptions::builder().unique(true).build();
        let partial = IndexOptions::builder().partial_filter_expression(doc! { "page": 0 }).build();
        for options in [unique, partial] {
            assert!(!can_replace(&found(wanted.keys.clone(), options), &wanted));
        }
    }
}
