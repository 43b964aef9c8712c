//! Repairs everything that follows from readings by compare-and-set: counts, summaries, stamps and marks of pages, and
//! sensor documents. Also creates a missing page 0. Never changes or deletes a reading.

use super::finding::{FindingKind, Findings};
use super::pages::{check_bucket, is_sound, page_readings};
use super::sensors::SeenSensor;
use super::walk::DatabaseCheck;
use crate::bucket::raw::{Cursor, DayDocument, RawBucket, RawDay, RawPage};
use crate::bucket::store::{BucketId, PageWrite, WriteOutcome};
use crate::bucket::{Bucket, DayWrite, SensorDocument, StorageError, StoredPage};
use crate::clock;
use crate::reading::Hour;
use crate::reading::stamp::first_stamp;
use crate::reading::time::MILLI_NS;

/// Maximum number of attempts to repair a document while others write to it.
const ATTEMPTS_MAX: usize = 5;

impl DatabaseCheck<'_> {
    /// Reads all pages of the bucket again, at the same moment. A deleted bucket has no pages.
    pub(super) async fn read_again(&self, cursor: &Cursor) -> Result<RawBucket, StorageError> {
        let part = self.store.walk_buckets(&self.report.name, Some(cursor), 1).await?;
        let found = part.found.into_iter().find(|bucket| bucket.cursor == *cursor);
        Ok(found.unwrap_or_else(|| RawBucket { cursor: cursor.clone(), pages: Vec::new() }))
    }

    /// Reads a sealed day again. Returns `None` if it was deleted.
    pub(super) async fn read_day_again(&self, cursor: &Cursor) -> Result<Option<RawDay>, StorageError> {
        let part = self.store.walk_days(&self.report.name, Some(cursor), 1).await?;
        Ok(part.found.into_iter().find(|day| day.cursor == *cursor))
    }

    /// Writes a sealed day again from its readings. Read it again afterwards, because another instance may have written
    /// it.
    pub(super) async fn repair_day(&self, stored: &DayDocument) -> Result<(), StorageError> {
        let DayDocument { id, day, .. } = stored;
        let write = DayWrite::again(id, day.rev, &day.readings, day.expired.as_ref());
        match self.store.write_days(&self.report.name, &[write]).await.pop() {
            Some(WriteOutcome::Failed(error)) if error.is_away() => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes the repairable pages, and returns the stored bucket afterwards.
    pub(super) async fn repair_bucket(&self, mut bucket: RawBucket) -> Result<RawBucket, StorageError> {
        for _ in 0..ATTEMPTS_MAX {
            let findings = check_bucket(&bucket, &self.options.bounds);
            let numbers = repairable(&bucket, &findings);
            let sound: Vec<&RawPage> = bucket.pages.iter().flatten().filter(|page| is_sound(page)).collect();
            let is_all_sound = sound.len() == bucket.pages.len();
            let Some(first) = sound.first().filter(|_| !numbers.is_empty()) else { break };
            let id = BucketId { sensor: first.sensor.clone(), hour: first.hour() };
            let mut repaired = Bucket::from_stored(sound.into_iter().map(to_stored_page));
            let has = |kind| findings.differences.iter().any(|difference| difference.kind == kind);
            let groups = if has(FindingKind::NoFirst) && !has(FindingKind::TwoPages) && is_all_sound {
                repaired.make_first();
                repaired.next_writes()
            } else {
                repaired.mark_for_rewrite(bucket.pages.len() > 1);
                let indexes = (0..repaired.pages().len()).filter(|p| numbers.contains(&repaired.pages()[*p].number));
                indexes.map(|index| vec![index]).collect()
            };
            let write = |group| PageWrite { id: &id, bucket: &repaired, group };
            let writes: Vec<PageWrite<'_>> = groups.into_iter().map(write).collect();
            for written in self.store.write_pages(&self.report.name, &writes).await {
                match written {
                    WriteOutcome::Failed(error) if error.is_away() => return Err(error),
                    // The bucket is read again, so a page that was not written is found again.
                    WriteOutcome::Applied | WriteOutcome::Conflict | WriteOutcome::Failed(_) => {}
                }
            }
            bucket = self.read_again(&bucket.cursor).await?;
        }
        Ok(bucket)
    }

    /// Creates the missing document of a sensor with pages, or adds the missing fields to it. Returns true if the
    /// sensor has a document with all fields afterwards.
    pub(super) async fn repair_sensor(&self, seen: &SeenSensor) -> Result<bool, StorageError> {
        for _ in 0..ATTEMPTS_MAX {
            let mut document = match self.store.read_sensors(&self.report.name, &[&seen.sensor.key]).await {
                Ok(found) => match found.into_iter().next() {
                    Some(document) => document,
                    None => self.new_document(seen).await?,
                },
                Err(error) if error.is_away() => return Err(error),
                Err(_) => return Ok(false),
            };
            let missing: Vec<_> = seen.missing_fields(&document).map(|(name, family)| (name.clone(), family)).collect();
            if document.rev > 0 && missing.is_empty() {
                return Ok(true);
            }
            document.fields.extend(missing);
            match self.store.write_sensors(&self.report.name, &[document]).await.pop() {
                Some(WriteOutcome::Applied) => return Ok(true),
                Some(WriteOutcome::Failed(error)) if error.is_away() => return Err(error),
                Some(WriteOutcome::Failed(_)) | None => return Ok(false),
                Some(WriteOutcome::Conflict) => {}
            }
        }
        Ok(false)
    }

    /// Builds a document from the pages, with the most recent readings of the latest hour.
    async fn new_document(&self, seen: &SeenSensor) -> Result<SensorDocument, StorageError> {
        let mut recent = Vec::new();
        if let Some((_, last)) = seen.times {
            let id = BucketId { sensor: seen.sensor.clone(), hour: Hour::from_ns(last) };
            match self.store.read_buckets(&self.report.name, &[id], usize::MAX).await {
                Ok(buckets) => {
                    let tail = |pages: Vec<StoredPage>| Bucket::from_stored(pages).tail(self.options.recent);
                    recent = buckets.into_iter().flat_map(tail).collect();
                }
                Err(error) if error.is_away() => return Err(error),
                // Without recent readings, the document lags behind the pages, which is allowed.
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

fn to_stored_page(page: &RawPage) -> StoredPage {
    let mut readings = page_readings(page);
    if page.order.is_err() {
        // The ages of the cells are unknown, so they count as older than all later writes.
        readings.raise_floor(first_stamp(u64::try_from(clock::now_ns() / MILLI_NS).unwrap_or_default()));
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

/// Returns the numbers of the sound pages with a repairable difference.
fn repairable(bucket: &RawBucket, findings: &Findings) -> Vec<u32> {
    let has_repairable = |key: &str| findings.differences.iter().any(|d| d.kind.is_repairable() && d.document == *key);
    let sound = bucket.pages.iter().flatten().filter(|page| is_sound(page));
    sound.filter(|page| has_repairable(&page.key)).map(|page| page.number).collect()
}
