//! Repairs what the readings determine, by compare-and-set: a page's counts, summaries, stamps and marks, and sensor
//! documents. Also gives a bucket without page 0 one. Never changes or deletes a reading.

use super::finding::{Findings, What};
use super::pages::{check_bucket, is_sound, set_of};
use super::sensors::SeenSensor;
use crate::bucket::raw::{Cursor, DayDocument, RawBucket, RawDay, RawPage};
use crate::bucket::store::{BucketId, PageWrite, Written};
use crate::bucket::{Bucket, Caps, DayWrite, SensorDocument, StorageError, Store, StoredPage};
use crate::clock;
use crate::reading::Hour;
use crate::reading::stamp::first_of;
use crate::reading::time::MILLI_NS;

/// How often a repair of a document is tried while others write to it.
const ATTEMPTS_MAX: usize = 5;

/// Reads the bucket again, all pages at the same moment. A bucket that is gone has no pages.
pub(super) async fn read_again(store: &dyn Store, database: &str, from: &Cursor) -> Result<RawBucket, StorageError> {
    let part = store.walk_buckets(database, Some(from), 1).await?;
    let found = part.found.into_iter().find(|bucket| bucket.from == *from);
    Ok(found.unwrap_or_else(|| RawBucket { from: from.clone(), pages: Vec::new() }))
}

/// Reads a sealed day again; `None` if it is gone.
pub(super) async fn read_day_again(
    store: &dyn Store,
    database: &str,
    from: &Cursor,
) -> Result<Option<RawDay>, StorageError> {
    let part = store.walk_days(database, Some(from), 1).await?;
    Ok(part.found.into_iter().find(|day| day.from == *from))
}

/// Writes a sealed day again from its readings. Somebody else may have written it meanwhile: read it again.
pub(super) async fn mend_day(store: &dyn Store, database: &str, stored: &DayDocument) -> Result<(), StorageError> {
    let DayDocument { id, day, .. } = stored;
    let write = DayWrite {
        id,
        rev: day.rev,
        next_rev: day.rev + 1,
        readings: Some(&day.readings),
        expired: day.expired.as_ref(),
    };
    match store.write_days(database, &[write]).await.pop() {
        Some(Written::Failed(error)) if error.is_away() => Err(error),
        _ => Ok(()),
    }
}

/// Writes the pages that can be repaired, and returns the bucket as it is stored afterwards.
pub(super) async fn mend_bucket(
    store: &dyn Store,
    database: &str,
    mut bucket: RawBucket,
    bounds: &Caps,
) -> Result<RawBucket, StorageError> {
    for _ in 0..ATTEMPTS_MAX {
        let findings = check_bucket(&bucket, bounds);
        let numbers = mendable(&bucket, &findings);
        let sound: Vec<&RawPage> = bucket.pages.iter().flatten().filter(|page| is_sound(page)).collect();
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
                // The bucket is read again, so a page that was not written is found wrong again.
                Written::Yes | Written::Conflict | Written::Failed(_) => {}
            }
        }
        bucket = read_again(store, database, &bucket.from).await?;
    }
    Ok(bucket)
}

fn stored(page: &RawPage) -> StoredPage {
    let mut readings = set_of(page);
    if page.order.is_err() {
        // The ages of the cells are unknown, so they count as older than anything that is written from now on.
        readings.raise_floor(first_of(u64::try_from(clock::now_ns() / MILLI_NS).unwrap_or_default()));
    }
    StoredPage {
        number: page.number,
        rev: page.rev,
        closed: page.closed,
        has_overflow: page.has_overflow,
        readings,
        cut: false,
        left_out: None,
    }
}

/// Creates the missing document of a sensor with pages, or adds the missing fields to it. Returns whether the sensor
/// now has a document with all fields.
pub(super) async fn mend_sensor(
    store: &dyn Store,
    database: &str,
    seen: &SeenSensor,
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

/// A document by what the pages say, with the most recent readings of the latest hour.
async fn new_document(
    store: &dyn Store,
    database: &str,
    seen: &SeenSensor,
    recent: usize,
) -> Result<SensorDocument, StorageError> {
    let mut tail = Vec::new();
    if let Some((_, last)) = seen.times {
        let id = BucketId { sensor: seen.sensor.clone(), hour: Hour::of(last) };
        match store.read_buckets(database, &[id], usize::MAX).await {
            Ok(buckets) => {
                tail = buckets.into_iter().flat_map(|pages| Bucket::from_stored(pages).tail(recent)).collect()
            }
            Err(error) if error.is_away() => return Err(error),
            // Without them the document is behind the pages, which is allowed.
            Err(_) => {}
        }
    }
    Ok(SensorDocument {
        first_seen: seen.times.map(|(first, _)| first),
        last_seen: seen.times.map(|(_, last)| last),
        recent: tail,
        ..SensorDocument::new(seen.sensor.clone())
    })
}

/// The numbers of the sound pages with something that can be repaired.
pub(super) fn mendable(bucket: &RawBucket, findings: &Findings) -> Vec<u32> {
    let is_meant = |key: &str| findings.differences.iter().any(|d| d.what.is_mendable() && d.document == *key);
    let sound = bucket.pages.iter().flatten().filter(|page| is_sound(page));
    sound.filter(|page| is_meant(&page.key)).map(|page| page.number).collect()
}
