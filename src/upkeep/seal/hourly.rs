//! Seals a day that is too large for one part, an hour at a time, so that only an hour's readings are in memory.

use std::sync::Arc;
use std::time::Instant;

use super::parts::is_claim;
use super::{Sealing, hours};
use crate::bucket::day::{HOUR_BYTES_MAX, PartBounds, Unsealable, by_hour, fold};
use crate::bucket::store::{BucketId, WriteOutcome};
use crate::bucket::{DayId, DayPart, DayWrite, Readings, StorageError, StoredDay, StoredPage};
use crate::clock::first_rev;
use crate::faults;
use crate::reading::{Day, Hour, Sensor, Stamp};

/// Maximum number of pages of an hour that can be sealed.
const PAGES_MAX: usize = 1024;

/// The result of sealing an hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hourly {
    /// All readings of the hour, this many, are in its part.
    Sealed(usize),
    /// The hour had no readings outside of its part.
    Nothing,
    Left(Unsealable),
}

impl Sealing<'_> {
    /// Folds the pages, the chunks and the part for the whole day, if there is one, into parts by hour. Removes the
    /// chunks and that part once all hours are sealed.
    pub(super) async fn seal_hours(
        &mut self,
        sensor: &Arc<Sensor>,
        day: Day,
        floor: Stamp,
    ) -> Result<(), StorageError> {
        let id = |part| DayId { sensor: sensor.clone(), day, part };
        let parts = self.context.store.raw().list_day_parts(self.database, &[&sensor.key], day..day.next()).await?;
        let whole: Vec<DayId> =
            parts.iter().filter(|(.., part)| !matches!(part, DayPart::Hour(_))).map(|(.., part)| id(*part)).collect();
        let mut revs: Vec<(DayId, u64)> = Vec::new();
        // One at a time: each may be as large as a day.
        for id in whole {
            let read = self.read_parts(vec![id]).await?;
            if read.iter().any(|(_, part)| part.expired.is_some()) {
                return Ok(());
            }
            revs.extend(read.into_iter().map(|(id, part)| (id, part.rev)));
        }
        // Until the part for the whole day is removed, a chunk without readings marks the day, so that a round after a
        // kill finds it.
        if revs.iter().any(|(id, _)| id.part == DayPart::Whole) && !revs.iter().any(|(id, _)| id.part.is_chunk()) {
            let mark = id(DayPart::Chunk { stamp: floor, hour: 0 });
            let claim = self.claim(std::slice::from_ref(&mark), floor).await?.pop().flatten();
            revs.extend(claim.map(|rev| (mark, rev)));
        }
        let (mut readings, mut left) = (0, None);
        for hour in hours(day) {
            match self.seal_hour(sensor, hour, &revs, floor).await? {
                Hourly::Sealed(count) => readings += count,
                Hourly::Nothing => {}
                Hourly::Left(why) => left = Some(why),
            }
        }
        self.round.readings += readings as u64;
        match left {
            None => {
                self.round.days += u64::from(readings > 0);
                self.context.lifetimes.note(self.database, &sensor.key);
                revs.sort_by_key(|(id, _)| id.part.is_chunk());
                let chunks = revs.partition_point(|(id, _)| !id.part.is_chunk());
                self.remove_parts(&revs[..chunks]).await?;
                self.remove_parts(&revs[chunks..]).await?;
            }
            Some(Unsealable::Unsettled) => self.round.leave(day, &sensor.key, |left| left.unsettled += 1),
            Some(Unsealable::Large) => {
                self.sealer.large.lock().insert((self.database.to_owned(), day, sensor.key.clone()), Instant::now());
                self.round.leave(day, &sensor.key, |left| left.large += 1);
            }
        }
        Ok(())
    }

    async fn seal_hour(
        &self,
        sensor: &Arc<Sensor>,
        hour: Hour,
        whole: &[(DayId, u64)],
        floor: Stamp,
    ) -> Result<Hourly, StorageError> {
        let day = Day::from_hour(hour);
        let number = u8::try_from(hour.0 - day.hours().start.0).unwrap_or_default();
        let id = DayId { sensor: sensor.clone(), day, part: DayPart::Hour(number) };
        let held = self.context.store.read_days(self.database, std::slice::from_ref(&id)).await?.pop().flatten();
        if held.as_ref().is_some_and(|held| held.expired.is_some()) {
            return Ok(Hourly::Nothing);
        }
        let mut rev = held.as_ref().map_or(0, |part| part.rev);
        if rev == 0 && self.context.store.raw().has_other_writers() {
            // Before the pages are read: see `bucket::day`.
            match self.claim(std::slice::from_ref(&id), floor).await?.pop().flatten() {
                Some(claim) => rev = claim,
                None => return Ok(Hourly::Left(Unsealable::Unsettled)),
            }
        }
        let bucket = BucketId { sensor: sensor.clone(), hour };
        let left = 'fold: {
            let pages = match self.pages_of(&bucket).await? {
                Ok(pages) => pages,
                Err(why) => break 'fold Hourly::Left(why),
            };
            let others = self.within_hour(whole, hour).await?;
            if pages.is_empty() && others.is_empty() {
                break 'fold Hourly::Nothing;
            }
            let parts = held.iter().map(|part| &part.readings).chain(&others);
            let sets = parts.chain(pages.iter().map(|page| &page.readings));
            let bounds = PartBounds { cells: self.sealer.hour_cells, ..PartBounds::HOUR };
            let folded = match fold(sets, floor, bounds) {
                Ok(folded) if !folded.is_empty() => folded,
                Ok(_) => break 'fold Hourly::Nothing,
                Err(why) => break 'fold Hourly::Left(why),
            };
            if let Some(why) = self.write_hour(&id, rev, &folded).await? {
                break 'fold Hourly::Left(why);
            }
            faults::point("hour_sealed");
            let mut singles = Vec::new();
            if !pages.is_empty() {
                self.remove(vec![(bucket, pages)], &mut singles).await?;
            }
            self.context.store.raw().remove_single_pages(self.database, &singles).await?;
            return Ok(Hourly::Sealed(folded.len()));
        };
        if is_claim(rev, held.as_ref()) {
            self.remove_parts(&[(id, rev)]).await?;
        }
        Ok(left)
    }

    /// Returns the pages of an hour, unless they are too large to be sealed.
    async fn pages_of(&self, bucket: &BucketId) -> Result<Result<Vec<StoredPage>, Unsealable>, StorageError> {
        let store = &*self.context.store;
        // First without readings, to see how many there are.
        let marks = store.read_buckets(self.database, std::slice::from_ref(bucket), 1).await?.pop().unwrap_or_default();
        let left_out = || marks.iter().filter_map(|page| page.left_out);
        let (count, bytes) = left_out().fold((0, 0), |(count, bytes), out| (count + out.count, bytes + out.bytes));
        if marks.len() > PAGES_MAX || count > self.sealer.hour_cells || bytes > 2 * HOUR_BYTES_MAX {
            return Ok(Err(Unsealable::Large));
        }
        if marks.len() <= 1 {
            return Ok(Ok(marks));
        }
        let pages =
            store.read_buckets(self.database, std::slice::from_ref(bucket), PAGES_MAX).await?.pop().unwrap_or_default();
        let is_whole = pages.iter().all(|page| page.left_out.is_none());
        Ok(if is_whole { Ok(pages) } else { Err(Unsealable::Large) })
    }

    /// Returns the readings of an hour in chunks and in the part for the whole day.
    async fn within_hour(&self, whole: &[(DayId, u64)], hour: Hour) -> Result<Vec<Readings>, StorageError> {
        let mut found = Vec::new();
        // One at a time: each may be as large as a day.
        for (id, _) in whole {
            let read = self.context.store.read_days(self.database, std::slice::from_ref(id)).await?.pop().flatten();
            let parts = read.into_iter().flat_map(|StoredDay { readings, .. }| by_hour(readings));
            found.extend(parts.filter(|(of, _)| *of == hour).map(|(_, readings)| readings));
        }
        Ok(found)
    }

    /// Writes the part of an hour. Returns the reason if it is not written: another writer was faster, or the part is
    /// too large for the store.
    async fn write_hour(&self, id: &DayId, rev: u64, readings: &Readings) -> Result<Option<Unsealable>, StorageError> {
        let next_rev = if rev == 0 { first_rev() } else { rev + 1 };
        let write = DayWrite { id, rev, next_rev, readings: Some(readings), expired: None };
        match self.context.store.write_days(self.database, &[write]).await.pop() {
            Some(WriteOutcome::Applied) => Ok(None),
            Some(WriteOutcome::Failed(StorageError::Refused { .. })) => Ok(Some(Unsealable::Large)),
            Some(WriteOutcome::Failed(error)) => Err(error),
            Some(WriteOutcome::Conflict) | None => Ok(Some(Unsealable::Unsettled)),
        }
    }
}
