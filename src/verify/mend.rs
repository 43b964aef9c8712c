//! Repairs what the readings determine, by compare-and-set: a page's counts, summaries, stamps and marks, and sensor
//! documents. Also gives a bucket without page 0 one. Never changes or deletes a reading.

use super::finding::{Findings, What};
use super::pages::{check_bucket, is_sound, set_of};
use super::sensors::SeenSensor;
use super::walk::DatabaseCheck;
use crate::bucket::raw::{Cursor, DayDocument, RawBucket, RawDay, RawPage};
use crate::bucket::store::{BucketId, PageWrite, Written};
use crate::bucket::{Bucket, DayWrite, SensorDocument, StorageError, StoredPage};
use crate::clock;
use crate::reading::Hour;
use crate::reading::stamp::first_of;
use crate::reading::time::MILLI_NS;

/// How often a repair of a document is tried while others write to it.
const ATTEMPTS_MAX: usize = 5;

impl DatabaseCheck<'_> {
    /// Reads the bucket again, all pages at the same moment. A bucket that is gone has no pages.
    pub(super) async fn read_again(&self, from: &Cursor) -> Result<RawBucket, StorageError> {
        let part = self.store.walk_buckets(&self.report.name, Some(from), 1).await?;
        let found = part.found.into_iter().find(|bucket| bucket.from == *from);
        Ok(found.unwrap_or_else(|| RawBucket { from: from.clone(), pages: Vec::new() }))
    }

    /// Reads a sealed day again; `None` if it is gone.
    pub(super) async fn read_day_again(&self, from: &Cursor) -> Result<Option<RawDay>, StorageError> {
        let part = self.store.walk_days(&self.report.name, Some(from), 1).await?;
        Ok(part.found.into_iter().find(|day| day.from == *from))
    }

    /// Writes a sealed day again from its readings. Somebody else may have written it meanwhile: read it again.
    pub(super) async fn mend_day(&self, stored: &DayDocument) -> Result<(), StorageError> {
        let DayDocument { id, day, .. } = stored;
        let write = DayWrite::again(id, day.rev, &day.readings, day.expired.as_ref());
        match self.store.write_days(&self.report.name, &[write]).await.pop() {
            Some(Written::Failed(error)) if error.is_away() => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes the pages that can be repaired, and returns the bucket as it is stored afterwards.
    pub(super) async fn mend_bucket(&self, mut bucket: RawBucket) -> Result<RawBucket, StorageError> {
        for _ in 0..ATTEMPTS_MAX {
            let findings = check_bucket(&bucket, &self.options.bounds);
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
                anew.mark_for_rewrite(bucket.pages.len() > 1);
                let places = (0..anew.pages().len()).filter(|p| numbers.contains(&anew.pages()[*p].number));
                places.map(|place| vec![place]).collect()
            };
            let write = |group| PageWrite { id: &id, bucket: &anew, group };
            let writes: Vec<PageWrite<'_>> = groups.into_iter().map(write).collect();
            for written in self.store.write_pages(&self.report.name, &writes).await {
                match written {
                    Written::Failed(error) if error.is_away() => return Err(error),
                    // The bucket is read again, so a page that was not written is found wrong again.
                    Written::Yes | Written::Conflict | Written::Failed(_) => {}
                }
            }
            bucket = self.read_again(&bucket.from).await?;
        }
        Ok(bucket)
    }

    /// Creates the missing document of a sensor with pages, or adds the missing fields to it. Returns whether the sensor
    /// now has a document with all fields.
    pub(super) async fn mend_sensor(&self, seen: &SeenSensor) -> Result<bool, StorageError> {
        for _ in 0..ATTEMPTS_MAX {
            let mut document = match self.store.read_sensors(&self.report.name, &[&seen.sensor.key]).await {
                Ok(found) => match found.into_iter().next() {
                    Some(document) => document,
                    None => self.new_document(seen).await?,
                },
                Err(error) if error.is_away() => return Err(error),
                Err(_) => return Ok(false),
            };
            let missing: Vec<_> = seen.missing_in(&document).map(|(name, family)| (name.clone(), family)).collect();
            if document.rev > 0 && missing.is_empty() {
                return Ok(true);
            }
            document.fields.extend(missing);
            match self.store.write_sensors(&self.report.name, &[document]).await.pop() {
                Some(Written::Yes) => return Ok(true),
                Some(Written::Failed(error)) if error.is_away() => return Err(error),
                Some(Written::Failed(_)) | None => return Ok(false),
                Some(Written::Conflict) => {}
            }
        }
        Ok(false)
    }

    /// A document by what the pages say, with the most recent readings of the latest hour.
    async fn new_document(&self, seen: &SeenSensor) -> Result<SensorDocument, StorageError> {
        let mut recent = Vec::new();
        if let Some((_, last)) = seen.times {
            let id = BucketId { sensor: seen.sensor.clone(), hour: Hour::of(last) };
            match self.store.read_buckets(&self.report.name, &[id], usize::MAX).await {
                Ok(buckets) => {
                    let tail = |pages: Vec<StoredPage>| Bucket::from_stored(pages).tail(self.options.recent);
                    recent = buckets.into_iter().flat_map(tail).collect();
                }
                Err(error) if error.is_away() => return Err(error),
                // Without them the document is behind the pages, which is allowed.
                Err(_) => {}
            }
        }
        Ok(SensorDocument {
            first_seen: seen.times.map(|(first, _)| first),
            last_seen: seen.times.map(|(_, last)| last),
            recent,
            ..SensorDocument::new(seen.sensor.clone())
        })
    }
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

/// The numbers of the sound pages with something that can be repaired.
fn mendable(bucket: &RawBucket, findings: &Findings) -> Vec<u32> {
    let is_meant = |key: &str| findings.differences.iter().any(|d| d.what.is_mendable() && d.document == *key);
    let sound = bucket.pages.iter().flatten().filter(|page| is_sound(page));
    sound.filter(|page| is_meant(&page.key)).map(|page| page.number).collect()
}
