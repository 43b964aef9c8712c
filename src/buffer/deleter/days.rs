//! Removes what is deleted from parts of days.

use std::sync::Arc;

use super::cells::DeletedCells;
use super::{CONFLICTS_MAX, Deleter};
use crate::bucket::{DayId, DayPart, DayWrite, StorageError, StoredDay};
use crate::faults;
use crate::reading::{Day, Sensor};

/// Most parts rewritten at a time: all of them are in memory.
const DAYS: usize = 4;

impl Deleter {
    /// Removes what is deleted from parts of days, and claims of parts that others are about to fill: stage by stage, each listed
    /// anew once everything before it is cut (`bucket::day`).
    pub(crate) async fn delete_in_days(&self, gone: &DeletedCells<'_>, sensors: &[Sensor]) -> Result<(), StorageError> {
        let keys: Vec<&str> = sensors.iter().map(|sensor| &*sensor.key).collect();
        let shared: Vec<Arc<Sensor>> = sensors.iter().cloned().map(Arc::new).collect();
        let mut next_stage = 0;
        while next_stage <= DayPart::LAST_STAGE {
            let parts =
                self.context.store.raw().list_day_parts(gone.database, &keys, Day::of_hours(&gone.hours())).await?;
            let id = |(place, day, part)| DayId { sensor: Arc::clone(&shared[place]), day, part };
            let is_left = |id: &DayId| next_stage <= id.part.stage() && gone.has_some(&id.sensor.key, &id.hours());
            let mut left: Vec<DayId> = parts.into_iter().map(id).filter(is_left).collect();
            // Nothing can come to a stage from one that is not there.
            let Some(stage) = left.iter().map(|id| id.part.stage()).min() else { return Ok(()) };
            left.retain(|id| id.part.stage() == stage);
            faults::halt_at("deletion_listed").await;
            self.delete_in_parts(gone, left).await?;
            next_stage = stage + 1;
        }
        Ok(())
    }

    async fn delete_in_parts(&self, gone: &DeletedCells<'_>, mut left: Vec<DayId>) -> Result<(), StorageError> {
        for _ in 0..CONFLICTS_MAX {
            let mut conflicts = Vec::new();
            for ids in left.chunks(DAYS) {
                conflicts.extend(self.delete_in(gone, ids).await?);
            }
            left = conflicts;
            if left.is_empty() {
                return Ok(());
            }
        }
        Err(StorageError::Contended(left[0].sensor.key.to_string()))
    }

    /// Removes what is deleted from these parts; returns those that others changed meanwhile. Every part is written, changed or not:
    /// whoever read something before it was cut, and is about to fold it into it, then fails (`bucket::day`).
    async fn delete_in(&self, gone: &DeletedCells<'_>, ids: &[DayId]) -> Result<Vec<DayId>, StorageError> {
        let mut changed: Vec<(&DayId, StoredDay)> = Vec::new();
        let (raw, whole) = (self.context.store.raw(), gone.whole_hours());
        let whole_hours = whole.start.start_ns()..whole.end.start_ns();
        for (id, day) in ids.iter().zip(raw.read_days(gone.database, ids).await?) {
            let Some(mut day) = day else { continue };
            let is_older = day.readings.stamps().floor() < gone.before;
            match &mut day.expired {
                // An hour that the range cuts is older than the deletion's refusal of it: it was cut before its readings expired.
                Some(expired) if is_older => {
                    expired.remove(&whole_hours);
                }
                Some(_) => {}
                None => {
                    gone.cut(&id.sensor.key, &mut day.readings);
                }
            }
            changed.push((id, day));
        }
        let writes: Vec<DayWrite<'_>> =
            changed.iter().map(|(id, day)| DayWrite::again(id, day.rev, &day.readings, day.expired.as_ref())).collect();
        let (mut conflicts, mut emptied) = (Vec::new(), Vec::new());
        for ((id, day), written) in changed.iter().zip(raw.write_days(gone.database, &writes).await) {
            if !written.applied()? {
                conflicts.push(DayId::clone(id));
            } else if day.is_empty() {
                emptied.push((*id, day.rev + 1));
            }
        }
        // Only now, with the totals of their months gone: who tries again after a kill would not find a removed part, and leave
        // totals that still have it.
        let removals: Vec<DayWrite<'_>> = emptied.iter().map(|&(id, rev)| DayWrite::removal(id, rev)).collect();
        for ((id, _), written) in emptied.iter().zip(raw.write_days(gone.database, &removals).await) {
            if !written.applied()? {
                conflicts.push(DayId::clone(id));
            }
        }
        Ok(conflicts)
    }
}
