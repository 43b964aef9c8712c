//! Seals a day that is too large for one part, an hour at a time, so that only an hour's readings are in memory.

use std::sync::Arc;

use super::{Round, Sealer, hours};
use crate::bucket::day::{PartBounds, Unsealable, by_hour, fold};
use crate::bucket::store::{BucketId, Written};
use crate::bucket::{DayId, DayPart, DayWrite, Readings, StorageError, StoredDay, StoredPage};
use crate::faults;
use crate::ingest::catalog::reads::read_buckets_each;
use crate::reading::{Day, Hour, Sensor, Stamp};

/// Most pages of an hour that is sealed.
const PAGES_MAX: usize = 1024;

/// What became of an hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hourly {
    /// Everything of it is in its part now, this many readings.
    Sealed(usize),
    /// It had nothing beside its part.
    Nothing,
    Left(Unsealable),
}

impl Sealer {
    /// Folds a day's pages, its chunks and the part for the whole day, if there is one, into parts by hour. What was not for
    /// one hour only is removed once all hours are sealed.
    pub(super) async fn seal_hours(
        &self,
        database: &str,
        sensor: &Arc<Sensor>,
        day: Day,
        floor: Stamp,
        round: &mut Round,
    ) -> Result<(), StorageError> {
        let id = |part| DayId { sensor: sensor.clone(), day, part };
        let parts = self.context.store.parts_of(database, &[&sensor.key], day..day.next()).await?;
        let whole: Vec<DayId> =
            parts.iter().filter(|(.., part)| !matches!(part, DayPart::Hour(_))).map(|(.., part)| id(*part)).collect();
        let whole = self.read_parts(database, whole).await?;
        if whole.iter().any(|(_, part)| part.expired.is_some()) {
            return Ok(());
        }
        let revs: Vec<(DayId, u64)> = whole.into_iter().map(|(id, part)| (id, part.rev)).collect();
        let (mut readings, mut left) = (0, None);
        for hour in hours(day) {
            match self.seal_hour(database, sensor, hour, &revs, floor).await? {
                Hourly::Sealed(count) => readings += count,
                Hourly::Nothing => {}
                Hourly::Left(why) => left = Some(why),
            }
        }
        round.readings += readings as u64;
        match left {
            None => {
                round.days += u64::from(readings > 0);
                self.remove_parts(database, &revs).await?;
            }
            Some(why) => {
                match why {
                    Unsealable::Large => round.left.large += 1,
                    Unsealable::Unsettled => round.left.unsettled += 1,
                }
                round.skip(day, &sensor.key);
            }
        }
        Ok(())
    }

    async fn seal_hour(
        &self,
        database: &str,
        sensor: &Arc<Sensor>,
        hour: Hour,
        whole: &[(DayId, u64)],
        floor: Stamp,
    ) -> Result<Hourly, StorageError> {
        let day = Day::of(hour);
        let number = u8::try_from(hour.0 - day.hours().start.0).unwrap_or_default();
        let id = DayId { sensor: sensor.clone(), day, part: DayPart::Hour(number) };
        let held = self.context.store.read_days(database, std::slice::from_ref(&id)).await?.pop().flatten();
        if held.as_ref().is_some_and(|held| held.expired.is_some()) {
            return Ok(Hourly::Nothing);
        }
        let mut rev = held.as_ref().map_or(0, |part| part.rev);
        if rev == 0 && self.context.store.is_shared() {
            // Before the pages are read: see `bucket::day`.
            match self.claim(database, std::slice::from_ref(&id), floor).await?.pop().flatten() {
                Some(claim) => rev = claim,
                None => return Ok(Hourly::Left(Unsealable::Unsettled)),
            }
        }
        let bucket = BucketId { sensor: sensor.clone(), hour };
        let pages = match self.pages_of(database, &bucket).await? {
            Ok(pages) => pages,
            Err(why) => {
                self.give_back(database, &id, rev, held.as_ref()).await?;
                return Ok(Hourly::Left(why));
            }
        };
        let others = self.within_hour(database, whole, hour).await?;
        if pages.is_empty() && others.is_empty() {
            self.give_back(database, &id, rev, held.as_ref()).await?;
            return Ok(Hourly::Nothing);
        }
        let parts = held.iter().map(|part| &part.readings).chain(&others);
        let sets = parts.chain(pages.iter().map(|page| &page.readings));
        let bounds = PartBounds { cells: self.hour_cells, ..PartBounds::HOUR };
        let folded = match fold(sets, floor, bounds) {
            Ok(folded) if !folded.is_empty() => folded,
            Ok(_) => {
                self.give_back(database, &id, rev, held.as_ref()).await?;
                return Ok(Hourly::Nothing);
            }
            Err(why) => {
                self.give_back(database, &id, rev, held.as_ref()).await?;
                return Ok(Hourly::Left(why));
            }
        };
        if !self.write_hour(database, &id, rev, &folded).await? {
            return Ok(Hourly::Left(Unsealable::Unsettled));
        }
        faults::point("hour_sealed");
        let mut singles = Vec::new();
        if !pages.is_empty() {
            self.remove(database, vec![(bucket, pages)], &mut singles).await?;
        }
        self.context.store.remove_single_pages(database, &singles).await?;
        Ok(Hourly::Sealed(folded.len()))
    }

    /// The pages of an hour, if they are few enough.
    async fn pages_of(
        &self,
        database: &str,
        bucket: &BucketId,
    ) -> Result<Result<Vec<StoredPage>, Unsealable>, StorageError> {
        let store = &*self.context.store;
        let count =
            |pages: &[StoredPage]| pages.iter().map(|page| page.left_out.map_or(0, |out| out.count)).sum::<usize>();
        // First without readings, to see how many there are.
        let marks = read_buckets_each(store, database, std::slice::from_ref(bucket), 1).await;
        let marks = marks.into_iter().next().unwrap_or_else(|| Ok(Vec::new()))?;
        if marks.len() > PAGES_MAX || count(&marks) > self.hour_cells {
            return Ok(Err(Unsealable::Large));
        }
        if marks.len() <= 1 {
            return Ok(Ok(marks));
        }
        let pages = read_buckets_each(store, database, std::slice::from_ref(bucket), PAGES_MAX).await;
        let pages = pages.into_iter().next().unwrap_or_else(|| Ok(Vec::new()))?;
        let is_whole = pages.iter().all(|page| page.left_out.is_none());
        Ok(if is_whole { Ok(pages) } else { Err(Unsealable::Large) })
    }

    /// What chunks and the part for the whole day have of an hour.
    async fn within_hour(
        &self,
        database: &str,
        whole: &[(DayId, u64)],
        hour: Hour,
    ) -> Result<Vec<Readings>, StorageError> {
        let mut found = Vec::new();
        // One at a time: each may be as large as a day.
        for (id, _) in whole {
            let read = self.context.store.read_days(database, std::slice::from_ref(id)).await?.pop().flatten();
            let parts = read.into_iter().flat_map(|StoredDay { readings, .. }| by_hour(readings));
            found.extend(parts.filter(|(of, _)| *of == hour).map(|(_, readings)| readings));
        }
        Ok(found)
    }

    /// Whether the part is written; if not, somebody else changed it meanwhile.
    async fn write_hour(
        &self,
        database: &str,
        id: &DayId,
        rev: u64,
        readings: &Readings,
    ) -> Result<bool, StorageError> {
        let next_rev = if rev == 0 { super::first_rev() } else { rev + 1 };
        let write = DayWrite { id, rev, next_rev, readings: Some(readings), expired: None };
        match self.context.store.write_days(database, &[write]).await.pop() {
            Some(Written::Failed(error)) => Err(error),
            written => Ok(written == Some(Written::Yes)),
        }
    }
}
