//! Reads of many documents in which an unreadable document hides no other.

use std::collections::HashMap;

use crate::bucket::page::StoredPage;
use crate::bucket::store::BucketId;
use crate::bucket::{Bucket, SensorDocument, StorageError};
use crate::store::MergedView;

/// Most pages of a bucket that are read at a time where it is not read as a whole.
pub const PAGES_AT_ONCE: usize = 4;
/// How often those pages are looked for again, because other writers changed them, before the bucket is read as a whole.
const ATTEMPTS: usize = 3;

/// The pages of each of these buckets, as [`Store::read_buckets`] returns them. An unreadable page is the error of its
/// own bucket only.
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

/// A bucket with the readings of those pages that `needed` names, at least.
///
/// # Errors
/// When the store does not answer, or a page is unreadable.
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

/// The documents of those sensors that have one. An unreadable document is the error of its own sensor only.
///
/// # Errors
/// When the store does not answer.
pub async fn read_sensors_each(
    store: &MergedView,
    database: &str,
    keys: &[&str],
) -> Result<HashMap<Box<str>, Result<SensorDocument, StorageError>>, StorageError> {
    let of = |document: SensorDocument| (document.sensor.key.clone(), Ok(document));
    match store.read_sensors(database, keys).await {
        Ok(documents) => return Ok(documents.into_iter().map(of).collect()),
        Err(error) if error.is_document_error() => {}
        Err(error) => return Err(error),
    }
    let mut read = HashMap::new();
    for key in keys {
        match store.read_sensors(database, &[key]).await {
            Ok(documents) => read.extend(documents.into_iter().map(of)),
            Err(error) if error.is_document_error() => drop(read.insert((*key).into(), Err(error))),
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}
