//! Reads of several documents at once that return all readable ones, even if some are damaged.

use std::collections::HashMap;

use crate::bucket::page::StoredPage;
use crate::bucket::store::BucketId;
use crate::bucket::{Bucket, SensorDocument, StorageError};
use crate::store::MergedView;

/// Maximum number of pages in one read of a part of a bucket.
pub const PAGES_AT_ONCE: usize = 4;
/// The number of attempts to read a part of a bucket that other writers keep changing. Then the whole bucket is read.
const ATTEMPTS: usize = 3;

/// Reads the pages of each bucket, as [`Store::read_buckets`] does. An unreadable page fails only its own bucket.
pub async fn read_buckets_each(
    store: &MergedView,
    database: &str,
    ids: &[BucketId],
    pages_max: usize,
) -> Vec<Result<Vec<StoredPage>, StorageError>> {
    match store.read_buckets(database, ids, pages_max).await {
        Ok(buckets) => buckets.into_iter().map(Ok).collect(),
        Err(error) if error.is_document_error() => {
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

/// Reads a bucket with the readings of at least the pages that `needed` returns.
///
/// # Errors
/// If the store does not answer, or a page is unreadable.
pub async fn read_needed(
    store: &MergedView,
    database: &str,
    id: &BucketId,
    needed: impl Fn(&Bucket) -> Vec<u32>,
) -> Result<Bucket, StorageError> {
    for pages_max in [1; ATTEMPTS].into_iter().chain([usize::MAX]) {
        let read = store.read_buckets(database, std::slice::from_ref(id), pages_max).await?;
        let mut bucket = Bucket::from_stored(read.into_iter().flatten());
        let numbers = needed(&bucket);
        let mut fits = true;
        for numbers in numbers.chunks(PAGES_AT_ONCE) {
            fits = fits && bucket.load(numbers, store.read_pages(database, id, numbers).await?);
        }
        if fits {
            return Ok(bucket);
        }
    }
    Err(StorageError::Contended(id.sensor.key.to_string()))
}

/// Reads the documents of sensors; those without one are left out. An unreadable document fails only its own sensor.
///
/// # Errors
/// If the store does not answer.
pub async fn read_sensors_each(
    store: &MergedView,
    database: &str,
    keys: &[&str],
) -> Result<HashMap<Box<str>, Result<SensorDocument, StorageError>>, StorageError> {
    let by_key = |document: SensorDocument| (document.sensor.key.clone(), Ok(document));
    match store.read_sensors(database, keys).await {
        Ok(documents) => return Ok(documents.into_iter().map(by_key).collect()),
        Err(error) if error.is_document_error() => {}
        Err(error) => return Err(error),
    }
    let mut read = HashMap::new();
    for key in keys {
        match store.read_sensors(database, &[key]).await {
            Ok(documents) => read.extend(documents.into_iter().map(by_key)),
            Err(error) if error.is_document_error() => drop(read.insert((*key).into(), Err(error))),
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}
