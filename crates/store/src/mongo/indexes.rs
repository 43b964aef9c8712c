//! The indexes of a database's collections: made if missing; an equivalent index made by an administrator is accepted.

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
    /// Its keys, in order.
    pub keys: Document,
    /// Whether documents without these keys are left out.
    pub sparse: bool,
}

/// Makes an index, unless there is one with the same keys, whatever its name.
///
/// # Errors
/// The index is missing and cannot be made, or the existing one would refuse or miss documents.
pub async fn create(collection: &Collection<RawDocumentBuf>, index: &Index) -> Result<(), Error> {
    let options = IndexOptions::builder().sparse(index.sparse.then_some(true)).build();
    let model = IndexModel::builder().keys(index.keys.clone()).options(options).build();
    match collection.create_index(model).await {
        // The server has an index with these keys under another name, or another index under this name.
        Err(error) if has_code(&error, &[OPTIONS_CONFLICT, KEY_SPECS_CONFLICT]) => {
            let is_served = list(collection).await?.iter().any(|found| serves(found, index));
            if is_served { Ok(()) } else { Err(error) }
        }
        created => created.map(drop),
    }
}

/// Whether the collection has this index, whatever its name.
///
/// # Errors
/// The server does not answer or refuses.
pub async fn exists(collection: &Collection<RawDocumentBuf>, index: &Index) -> Result<bool> {
    Ok(list(collection).await.map_err(|e| classify(&e))?.iter().any(|found| serves(found, index)))
}

/// The indexes of a collection; none if there is no such collection.
///
/// # Errors
/// The server does not answer or refuses.
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

/// Whether there is no such collection.
pub fn is_no_collection(error: &Error) -> bool {
    const NAMESPACE_NOT_FOUND: i32 = 26;
    has_code(error, &[NAMESPACE_NOT_FOUND])
}

/// Whether an existing index can replace the wanted one. A unique index would refuse pages, and a partial one would
/// miss documents.
fn serves(found: &IndexModel, wanted: &Index) -> bool {
    let options = found.options.clone().unwrap_or_default();
    let is_unique = options.unique == Some(true);
    let is_partial = options.partial_filter_expression.is_some();
    same_keys(&found.keys, &wanted.keys) && !is_unique && !is_partial
}

/// Whether two indexes have the same keys in the same order and direction, whatever number type the direction has.
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
    fn another_name_is_no_other_index() {
        let wanted = Index { keys: doc! { "sensor": 1, "start": 1 }, sparse: false };
        let named = || IndexOptions::builder().name("mine".to_owned()).build();
        for keys in [doc! { "sensor": 1, "start": 1 }, doc! { "sensor": 1.0, "start": 1_i64 }] {
            assert!(serves(&found(keys, named()), &wanted));
        }
        for keys in [
            doc! { "start": 1, "sensor": 1 },
            doc! { "sensor": 1, "start": -1 },
            doc! { "sensor": 1 },
            doc! { "sensor": "hashed", "start": 1 },
        ] {
            assert!(!serves(&found(keys, named()), &wanted));
        }
        let unique = IndexOptions::builder().unique(true).build();
        let partial = IndexOptions::builder().partial_filter_expression(doc! { "page": 0 }).build();
        for options in [unique, partial] {
            assert!(!serves(&found(wanted.keys.clone(), options), &wanted));
        }
    }
}
