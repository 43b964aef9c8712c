//! Reads of many documents in which an unreadable document hides no other.

use std::collections::HashMap;

use crate::bucket::page::StoredPage;
use crate::bucket::store::BucketId;
use crate::bucket::{Bucket, Reading, SensorDocument, StorageError, Store};

/// Most pages of one bucket that are read as a whole. Of a larger one, only those pages are read that are needed, so that
/// an hour of one sensor takes a bounded amount of memory.
pub const PAGES_MAX: usize = 16;
/// Most pages of a larger bucket that are read at a time.
pub const PAGES_AT_ONCE: usize = 4;

/// The pages of each of these buckets, as [`Store::read_buckets`] returns them. An unreadable page is the error of its
/// own bucket only.
pub async fn read_buckets_each(
    store: &dyn Store,
    database: &str,
    ids: &[BucketId],
    pages_max: usize,
) -> Vec<Result<Vec<StoredPage>, StorageError>> {
    match store.read_buckets(database, ids, pages_max).await {
        Ok(buckets) => buckets.into_iter().map(Ok).collect(),
        Err(StorageError::Unreadable { .. }) => {
            let mut read = Vec::with_capacity(ids.len());
            for id in ids {
                let bucket = store.read_buckets(database, std::slice::from_ref(id), pages_max).await;
                read.push(bucket.map(|mut buckets| buckets.pop().unwrap_or_default()));
            }
            read
        }
        Err(error) => vec![Err(error); ids.len()],
    }
}

/// The latest `count` readings of a bucket that was read, in time order. Reads the pages that have them if their readings
/// were left out.
///
/// # Errors
/// When the store does not answer, or a page is unreadable.
pub async fn tail_of(
    store: &dyn Store,
    database: &str,
    id: &BucketId,
    pages: Vec<StoredPage>,
    count: usize,
) -> Result<Vec<Reading>, StorageError> {
    let mut bucket = Bucket::from_stored(pages);
    let needed = bucket.needed_for_tail(count);
    for numbers in needed.chunks(PAGES_AT_ONCE) {
        // Of a page that another writer changed meanwhile, the reading that this is about is later anyway.
        let _ = bucket.load(numbers, store.read_pages(database, id, numbers).await?);
    }
    Ok(bucket.tail(count))
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
