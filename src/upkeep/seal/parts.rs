//! The parts of the days of a lot: listed, claimed, written, removed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Sealing;
use super::lot::{Lot, Work};
use crate::bucket::store::{BucketId, WriteOutcome};
use crate::bucket::{Bucket, DayId, DayPart, DayWrite, Readings, StorageError, StoredDay, StoredPage};
use crate::buffer::deleter::pages::write_buckets;
use crate::catalog::deletion::ALWAYS;
use crate::catalog::reads::read_sensors_each;
use crate::clock::{first_rev, now_ns};
use crate::reading::stamp::stamp_millis;
use crate::reading::{Day, Sensor, Stamp};

/// From how many chunks of a day on they are folded, even if more are coming: queries read all of them.
const CHUNKS_MOST: usize = 24;

impl Sealing<'_> {
    /// The parts that are stored of these days: days that are to be sealed whole, and those that are sealed by hour
    /// already.
    pub(super) async fn list(&mut self, days: &[(Day, String)]) -> Result<Lot, StorageError> {
        let store = &*self.context.store;
        let mut keys: Vec<&str> = days.iter().map(|(_, key)| &**key).collect();
        keys.sort_unstable();
        keys.dedup();
        let documents = read_sensors_each(store, self.database, &keys).await?;
        let (Some(first), Some(last)) = (days.iter().map(|day| day.0).min(), days.iter().map(|day| day.0).max()) else {
            return Ok(Lot::default());
        };
        let mut parts: BTreeMap<(Day, &str), Vec<DayPart>> = BTreeMap::new();
        for (place, day, part) in store.raw().list_day_parts(self.database, &keys, first..last.next()).await? {
            parts.entry((day, keys[place])).or_default().push(part);
        }
        let mut lot = Lot { days: days.len(), ..Lot::default() };
        for (place, (day, key)) in days.iter().enumerate() {
            let document = documents.get(&**key).and_then(|document| document.as_ref().ok());
            let sensor = document.map(|document| document.sensor.clone());
            let Some(sensor) = sensor.or_else(|| Sensor::from_key(key).map(Arc::new)) else {
                self.round.skip(*day, key);
                continue;
            };
            if self.sealer.large.lock().contains_key(&(self.database.to_owned(), *day, sensor.key.clone())) {
                self.round.leave(*day, key, |left| left.large += 1);
                continue;
            }
            let parts = parts.remove(&(*day, key)).unwrap_or_default();
            if !self.run.is_asked && is_being_delivered(&parts, self.sealer.quiet) {
                self.round.skip(*day, key);
                continue;
            }
            if parts.iter().any(|part| matches!(part, DayPart::Hour(_))) {
                lot.hourly.push((place, sensor, *day));
                continue;
            }
            let id = DayId { sensor: sensor.clone(), day: *day, part: DayPart::Whole };
            let chunk = |part: &DayPart| DayId { part: *part, ..id.clone() };
            lot.work.push(Work {
                place,
                fields: document.map_or(1, |document| document.fields.len().max(1)),
                is_stored: parts.contains(&DayPart::Whole),
                listed: parts.iter().filter(|part| part.is_chunk()).map(chunk).collect(),
                ..Work::of(id)
            });
        }
        Ok(lot)
    }

    /// Reads parts. Those that no longer exist are left out.
    pub(super) async fn read_parts(&self, ids: Vec<DayId>) -> Result<Vec<(DayId, StoredDay)>, StorageError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let read = self.context.store.read_days(self.database, &ids).await?;
        Ok(ids.into_iter().zip(read).filter_map(|(id, part)| Some((id, part?))).collect())
    }

    /// Reads the stored days. If other instances share the store, claims the days that are not stored.
    pub(super) async fn begin(&self, lot: &mut Lot, floor: Stamp) -> Result<(), StorageError> {
        self.read_held(lot).await?;
        let work = &mut lot.work;
        // No reading can be folded into a day whose readings have expired.
        work.retain(|one| one.held.as_ref().is_none_or(|held| held.expired.is_none()));
        if !self.context.store.raw().has_other_writers() {
            return Ok(());
        }
        let missing: Vec<DayId> = work.iter().filter(|one| one.held.is_none()).map(|one| one.id.clone()).collect();
        let claims = self.claim(&missing, floor).await?;
        let mut claims = claims.into_iter();
        for one in work.iter_mut().filter(|one| one.held.is_none()) {
            one.rev = claims.next().flatten().unwrap_or_default();
        }
        // Drop the days that another instance has claimed or sealed in the meantime.
        work.retain(|one| one.rev > 0);
        Ok(())
    }

    /// Claims parts that are not stored. Returns the rev of each claim, or `None` if another instance was faster.
    pub(super) async fn claim(&self, ids: &[DayId], floor: Stamp) -> Result<Vec<Option<u64>>, StorageError> {
        let mut none = Readings::default();
        none.raise_floor(floor);
        let claim = |(id, next_rev)| DayWrite { id, rev: 0, next_rev, readings: Some(&none), expired: None };
        let claims: Vec<DayWrite<'_>> = ids.iter().zip(first_rev()..).map(claim).collect();
        let outcomes = self.context.store.write_days(self.database, &claims).await;
        let written = claims.iter().zip(outcomes);
        written
            .map(|(claim, written)| written.applied().map(|is_claimed| is_claimed.then_some(claim.next_rev)))
            .collect()
    }

    /// Removes the claims of days that cannot be folded now, all together, because each removal waits for a sync of the
    /// store.
    pub(super) async fn give_back_all(&self, work: &[Work]) -> Result<(), StorageError> {
        let claims = work.iter().filter(|one| is_claim(one.rev, one.held.as_ref()));
        let claims: Vec<(DayId, u64)> = claims.map(|one| (one.id.clone(), one.rev)).collect();
        self.remove_parts(&claims).await
    }

    /// Removes parts that still have these revs.
    pub(super) async fn remove_parts(&self, parts: &[(DayId, u64)]) -> Result<(), StorageError> {
        if parts.is_empty() {
            return Ok(());
        }
        let writes: Vec<DayWrite<'_>> = parts.iter().map(|(id, rev)| DayWrite::removal(id, *rev)).collect();
        let written = self.context.store.write_days(self.database, &writes).await;
        written.into_iter().try_for_each(|written| written.applied().map(drop))
    }

    /// Writes the days. Returns true for each written day, and false if another writer was faster.
    pub(super) async fn write(&self, sealed: &[(Work, Readings)]) -> Result<Vec<bool>, StorageError> {
        let first = first_rev();
        let writes: Vec<DayWrite<'_>> = sealed
            .iter()
            .zip(first..)
            .map(|((one, readings), first)| DayWrite {
                id: &one.id,
                rev: one.rev,
                next_rev: if one.rev == 0 { first } else { one.rev + 1 },
                readings: Some(readings),
                expired: None,
            })
            .collect();
        let outcomes = self.context.store.write_days(self.database, &writes).await;
        outcomes.into_iter().map(WriteOutcome::applied).collect()
    }

    /// Removes the pages of sealed buckets with several pages, and adds buckets with a single page to `singles`.
    pub(super) async fn remove(
        &self,
        buckets: Vec<(BucketId, Vec<StoredPage>)>,
        singles: &mut Vec<(BucketId, u64)>,
    ) -> Result<(), StorageError> {
        let mut several = Vec::new();
        for (id, pages) in buckets {
            match &*pages {
                [only] if only.number == 0 && !only.has_overflow => singles.push((id, only.rev)),
                _ => {
                    let mut bucket = Bucket::from_stored(pages);
                    bucket.delete(&ALWAYS, Stamp::MAX);
                    several.push((id, bucket));
                }
            }
        }
        // Pages that other writers have changed in the meantime stay until the next round.
        write_buckets(&**self.context.store.raw(), self.database, several).await.map(drop)
    }
}

/// Returns true if the stored part with this rev is a claim, which has no content.
pub(super) fn is_claim(rev: u64, held: Option<&StoredDay>) -> bool {
    rev > 0 && held.is_none_or(StoredDay::is_empty)
}

/// Returns true if new chunks of a day are still arriving.
fn is_being_delivered(parts: &[DayPart], quiet: Duration) -> bool {
    let stamps =
        parts.iter().filter_map(|part| if let DayPart::Chunk { stamp, .. } = part { Some(*stamp) } else { None });
    let count = stamps.clone().count();
    let latest = stamps.max().map_or(0, stamp_millis);
    let rested = u64::try_from(now_ns() / 1_000_000).unwrap_or_default().saturating_sub(latest);
    (1..CHUNKS_MOST).contains(&count) && u128::from(rested) < quiet.as_millis()
}
