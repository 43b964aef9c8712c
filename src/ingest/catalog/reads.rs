//! Reads of many documents in which an unreadable document hides no other.

use std::collections::HashMap;

use crate::bucket::page::StoredPage;
use crate::bucket::store::BucketId;
use crate::bucket::{SensorDocument, StorageError, Store};

/// The pages of each of these buckets. An unreadable page is the error of its own bucket only.
pub async fn read_buckets_each(
    store: &dyn Store,
    database: &str,
    ids: &[BucketId],
) -> Vec<Result<Vec<StoredPage>, StorageError>> {
    match store.read_buckets(database, ids).await {
        Ok(buckets) => buckets.into_iter().map(Ok).collect(),
        Err(StorageError::Unreadable { .. }) => {
            let mut read = Vec::with_capacity(ids.len());
            for id in ids {
                let bucket = store.read_buckets(database, std::slice::from_ref(id)).await;
                read.push(bucket.map(|mut buckets| buckets.pop().unwrap_or_default()));
            }
            read
        }
        Err(error) => vec![Err(error); ids.len()],
    }
}

/// The documents of those sensors that have one. An unreadable document is the error of its own sensor only.
///
/// # Errors
/// When the store does not answer.
pub async fn read_sensors_each(
    store: &dyn Store,
    database: &str,
    keys: &[&str],
) -> Result<HashMap<Box<str>, Result<SensorDocument, StorageError>>, StorageError> {
    let of = |document: SensorDocument| (document.sensor.key.clone(), Ok(document));
    match store.read_sensors(database, keys).await {
        Ok(documents) => return Ok(documents.into_iter().map(of).collect()),
        Err(StorageError::Unreadable { .. }) => {}
        Err(error) => return Err(error),
    }
    let mut read = HashMap::new();
    for key in keys {
        match store.read_sensors(database, &[key]).await {
            Ok(documents) => read.extend(documents.into_iter().map(of)),
            Err(error @ StorageError::Unreadable { .. }) => drop(read.insert((*key).into(), Err(error))),
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}
