//! Makes anew what can be, by compare-and-set: what a page says of its readings, marks, and sensors'
//! documents; and gives a bucket a page 0 that has none. No reading is changed or deleted.

use super::finding::What;
use super::pages::{PageBounds, check_bucket, is_sound, set_of};
use super::sensors::Seen;
use super::walk::mendable;
use crate::bucket::kept::{Cursor, KeptBucket, KeptPage};
use crate::bucket::store::{BucketId, PageWrite, Written};
use crate::bucket::{Bucket, SensorDocument, StorageError, Store, StoredPage};
use crate::clock;
use crate::reading::Hour;
use crate::reading::stamp::first_of;
use crate::reading::time::MILLI_NS;

/// How often others may be faster before a document is left as it is.
const ATTEMPTS_MAX: usize = 5;

/// The bucket as it is now, all pages of one moment; without pages when it is gone.
pub(super) async fn read_again(store: &dyn Store, database: &str, from: &Cursor) -> Result<KeptBucket, StorageError> {
    let part = store.walk_buckets(database, Some(from), 1).await?;
    let found = part.found.into_iter().find(|bucket| bucket.from == *from);
    Ok(found.unwrap_or_else(|| KeptBucket { from: from.clone(), pages: Vec::new() }))
}

/// Writes the pages of which something can be made anew, and gives the bucket as it is then.
pub(super) async fn mend_bucket(
    store: &dyn Store,
    database: &str,
    mut bucket: KeptBucket,
    bounds: &PageBounds,
) -> Result<KeptBucket, StorageError> {
    for _ in 0..ATTEMPTS_MAX {
        let findings = check_bucket(&bucket, bounds);
        let numbers = mendable(&bucket, &findings);
        let sound: Vec<&KeptPage> = bucket.pages.iter().flatten().filter(|page| is_sound(page)).collect();
        let sound_all = sound.len() == bucket.pages.len();
        let Some(first) = sound.first().filter(|_| !numbers.is_empty()) else { break };
        let id = BucketId { sensor: first.sensor.clone(), hour: first.hour() };
        let mut anew = Bucket::from_stored(sound.into_iter().map(stored));
        let has = |what| findings.differences.iter().any(|difference| difference.what == what);
        let groups = if has(What::NoFirst) && !has(What::TwoPages) && sound_all {
            anew.make_first();
            anew.next_writes()
        } else {
            anew.mark_anew(bucket.pages.len() > 1);
            let places = (0..anew.pages().len()).filter(|p| numbers.contains(&anew.pages()[*p].number));
            places.map(|place| vec![place]).collect()
        };
        let write = |group| PageWrite { id: &id, bucket: &anew, group };
        let writes: Vec<PageWrite<'_>> = groups.into_iter().map(write).collect();
        for written in store.write_pages(database, &writes).await {
            match written {
                Written::Failed(error) if error.is_away() => return Err(error),
                // What was not written is still wrong when it is read again.
                Written::Yes | Written::Conflict | Written::Failed(_) => {}
            }
        }
        bucket = read_again(store, database, &bucket.from).await?;
    }
    Ok(bucket)
}

fn stored(page: &KeptPage) -> StoredPage {
    let mut readings = set_of(page);
    if page.order.is_err() {
        // Nobody knows how old its cells are: what is written from now on is later.
        readings.raise_floor(first_of(u64::try_from(clock::now_ns() / MILLI_NS).unwrap_or_default()));
    }
    StoredPage {
        number: page.number,
        rev: page.rev,
        closed: page.closed,
        has_overflow: page.has_overflow,
        readings,
        applied: page.applied.clone(),
        cut: false,
    }
}

/// Makes the document that a sensor with pages lacks, or adds the fields that it lacks; whether
/// there is one with all of them at the end.
pub(super) async fn mend_sensor(
    store: &dyn Store,
    database: &str,
    seen: &Seen,
    recent: usize,
) -> Result<bool, StorageError> {
    for _ in 0..ATTEMPTS_MAX {
        let mut document = match store.read_sensors(database, &[&seen.sensor.key]).await {
            Ok(found) => match found.into_iter().next() {
                Some(document) => document,
                None => new_document(store, database, seen, recent).await?,
            },
            Err(error) if error.is_away() => return Err(error),
            Err(_) => return Ok(false),
        };
        let missing: Vec<_> = seen.missing_in(&document).map(|(name, family)| (name.clone(), family)).collect();
        if document.rev > 0 && missing.is_empty() {
            return Ok(true);
        }
        document.fields.extend(missing);
        match store.write_sensors(database, &[document]).await.pop() {
            Some(Written::Yes) => return Ok(true),
            Some(Written::Failed(error)) if error.is_away() => return Err(error),
            Some(Written::Failed(_)) | None => return Ok(false),
            Some(Written::Conflict) => {}
        }
    }
    Ok(false)
}

/// What the pages say, with the latest readings of the latest hour.
async fn new_document(
    store: &dyn Store,
    database: &str,
    seen: &Seen,
    recent: usize,
) -> Result<SensorDocument, StorageError> {
    let mut tail = Vec::new();
    if let Some((_, last)) = seen.times {
        let id = BucketId { sensor: seen.sensor.clone(), hour: Hour::of(last) };
        match store.read_buckets(database, &[id]).await {
            Ok(buckets) => {
                tail = buckets.into_iter().flat_map(|pages| Bucket::from_stored(pages).tail(recent)).collect()
            }
            Err(error) if error.is_away() => return Err(error),
            // Without them the document lags behind, which is lawful.
            Err(_) => {}
        }
    }
    Ok(SensorDocument {
        sensor: seen.sensor.clone(),
        rev: 0,
        fields: Vec::new(),
        first_seen: seen.times.map(|(first, _)| first),
        last_seen: seen.times.map(|(_, last)| last),
        recent: tail,
        outlier: None,
    })
}
