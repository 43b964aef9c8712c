//! The registry: the only document of the collection `registry`.

use bson::{Document, doc};
use mongodb::Collection;
use mongodb::Database;

use super::outcome::{classify, is_duplicate_key};
use super::writes::durable;
use crate::bucket::StorageError;
use crate::bucket::registry::MemberRegistry;
use crate::bucket::store::Written;
use crate::store::document::{REGISTRY, decode_registry, registry_document};

pub fn collection(mongo: &Database) -> Collection<Document> {
    mongo.collection("registry")
}

/// Reads the registry; an empty one if there is none.
pub async fn read(collection: &Collection<Document>) -> Result<MemberRegistry, StorageError> {
    let found = collection.find_one(doc! { "_id": REGISTRY }).await.map_err(|e| classify(&e))?;
    found.map_or_else(|| Ok(MemberRegistry::default()), |document| decode_registry(&document))
}

/// Writes the registry by compare-and-set on its rev.
pub async fn write(collection: &Collection<Document>, registry: &MemberRegistry) -> Written {
    let document = registry_document(registry);
    let written = if registry.rev == 0 {
        collection.insert_one(document).write_concern(durable()).await.map(|_| true)
    } else {
        let rev = i64::try_from(registry.rev).unwrap_or(i64::MAX);
        let replaced = collection.replace_one(doc! { "_id": REGISTRY, "rev": rev }, document);
        replaced.write_concern(durable()).await.map(|done| done.matched_count == 1)
    };
    match written {
        Ok(true) => Written::Yes,
        Ok(false) => Written::Conflict,
        Err(error) if is_duplicate_key(&error) => Written::Conflict,
        Err(error) => Written::Failed(classify(&error)),
    }
}
