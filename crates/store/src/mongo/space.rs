//! What MongoDB's files could give back to the disk, and `compact`, which gives it.

use bson::{Document, doc};

use super::MongoStore;
use super::outcome::classify;
use crate::bucket::Result;

impl MongoStore {
    /// Per collection: its name, its bytes on the disk with indexes, and how many of them its node could give back.
    ///
    /// # Errors
    /// If MongoDB fails.
    pub async fn reusable(&self) -> Result<Vec<(String, u64, u64)>> {
        let mongo = self.mongo.clone();
        let ask = async move {
            let mut found = Vec::new();
            let mut names = mongo.list_collection_names().await.map_err(|error| classify(&error))?;
            names.sort_unstable();
            for name in names.into_iter().filter(|name| !name.starts_with("system.")) {
                let stages = [doc! { "$collStats": { "storageStats": {} } }];
                let collection = mongo.collection::<Document>(&name);
                let mut cursor = collection.aggregate(stages).await.map_err(|error| classify(&error))?;
                let (mut bytes, mut free) = (0, 0);
                // A sharded collection has an answer per shard.
                while cursor.advance().await.map_err(|error| classify(&error))? {
                    let row: Document = cursor.deserialize_current().map_err(|error| classify(&error))?;
                    let Ok(stats) = row.get_document("storageStats") else { continue };
                    bytes += number(stats, "totalSize").unwrap_or(0);
                    free += number(stats, "freeStorageSize").unwrap_or(0) + indexes_free(stats);
                }
                found.push((name, bytes, free));
            }
            Ok(found)
        };
        self.read(ask).await
    }

    /// Has the node that takes writes compact a collection, and returns the bytes that it freed. Takes as long as it takes.
    ///
    /// # Errors
    /// If MongoDB fails.
    pub async fn compact(&self, collection: &str) -> Result<u64> {
        let done = self.mongo.run_command(doc! { "compact": collection }).await.map_err(|error| classify(&error))?;
        Ok(number(&done, "bytesFreed").unwrap_or(0))
    }
}

/// A size, which MongoDB writes as whatever type of number it fits in.
pub(super) fn number(of: &Document, name: &str) -> Option<u64> {
    let value = of.get(name)?;
    let as_float = || value.as_f64().map(|value| value as i64);
    let number = value.as_i64().or_else(|| value.as_i32().map(i64::from)).or_else(as_float)?;
    u64::try_from(number).ok()
}

/// Bytes available for reuse in the files of a collection's indexes.
fn indexes_free(stats: &Document) -> u64 {
    let Ok(details) = stats.get_document("indexDetails") else { return 0 };
    let of_index = |details: &bson::Bson| {
        let blocks = details.as_document()?.get_document("block-manager").ok()?;
        number(blocks, "file bytes available for reuse")
    };
    details.values().filter_map(of_index).sum()
}
