//! Reusable space in MongoDB's files, and its return to the disk with `compact`.

use bson::{Document, doc};

use super::MongoStore;
use super::outcome::classify;
use crate::bucket::Result;

/// The disk space of a collection, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectionSpace {
    pub name: String,
    /// Size on the disk, including indexes.
    pub bytes: u64,
    /// Bytes that `compact` could return to the disk.
    pub reusable: u64,
}

impl MongoStore {
    /// Measures the disk space of all collections.
    ///
    /// # Errors
    /// If MongoDB fails.
    pub async fn collection_spaces(&self) -> Result<Vec<CollectionSpace>> {
        let mongo = self.mongo.clone();
        let measure = async move {
            let mut found = Vec::new();
            // Views take no space.
            let collections = mongo.list_collection_names().filter(doc! { "type": "collection" });
            let mut names = collections.await.map_err(|error| classify(&error))?;
            names.sort_unstable();
            for name in names.into_iter().filter(|name| !name.starts_with("system.")) {
                let stages = [doc! { "$collStats": { "storageStats": {} } }];
                let collection = mongo.collection::<Document>(&name);
                let mut cursor = collection.aggregate(stages).await.map_err(|error| classify(&error))?;
                let mut bytes = 0;
                let mut reusable = 0;
                // A sharded collection has a row per shard.
                while cursor.advance().await.map_err(|error| classify(&error))? {
                    let row: Document = cursor.deserialize_current().map_err(|error| classify(&error))?;
                    let Ok(stats) = row.get_document("storageStats") else { continue };
                    bytes += number(stats, "totalSize").unwrap_or(0);
                    reusable += number(stats, "freeStorageSize").unwrap_or(0) + reusable_index_bytes(stats);
                }
                found.push(CollectionSpace { name, bytes, reusable });
            }
            Ok(found)
        };
        self.read(measure).await
    }

    /// Compacts a collection on the primary. Returns the number of bytes freed. Has no deadline.
    ///
    /// # Errors
    /// If MongoDB fails.
    pub async fn compact(&self, collection: &str) -> Result<u64> {
        let done = self.mongo.run_command(doc! { "compact": collection }).await.map_err(|error| classify(&error))?;
        Ok(number(&done, "bytesFreed").unwrap_or(0))
    }
}

/// Returns a field with a size. MongoDB writes sizes with different number types.
pub(super) fn number(document: &Document, name: &str) -> Option<u64> {
    let value = document.get(name)?;
    let as_float = || value.as_f64().map(|value| value as i64);
    let number = value.as_i64().or_else(|| value.as_i32().map(i64::from)).or_else(as_float)?;
    u64::try_from(number).ok()
}

/// Returns the bytes that are available for reuse in the files of a collection's indexes.
fn reusable_index_bytes(stats: &Document) -> u64 {
    let Ok(details) = stats.get_document("indexDetails") else { return 0 };
    let reusable = |details: &bson::Bson| {
        let blocks = details.as_document()?.get_document("block-manager").ok()?;
        number(blocks, "file bytes available for reuse")
    };
    details.values().filter_map(reusable).sum()
}
