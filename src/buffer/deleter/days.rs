//! Deletion of readings from parts of days.

use std::sync::Arc;

use super::cells::DeletedCells;
use super::{CONFLICTS_MAX, Deleter};
use crate::bucket::{DayId, DayPart, DayWrite, StorageError, StoredDay};
use crate::faults;
use crate::reading::{Day, Sensor};

/// Maximum number of parts rewritten at a time. All of them are in memory.
const DAYS: usize = 4;

impl Deleter {
    /// Removes deleted cells from parts of days, and the claims on parts that others are about to fill. First removes the
    /// parts that are deleted whole. Then cuts the others stage by stage, and lists the parts of a stage after the
    /// previous stage is done (see `bucket::day`).
    pub(crate) async fn delete_in_days(&self, gone: &DeletedCells<'_>, sensors: &[Sensor]) -> Result<(), StorageError> {
        let keys: Vec<&str> = sensors.iter().map(|sensor| &*sensor.key).collect();
        let shared: Vec<Arc<Sensor>> = sensors.iter().cloned().map(Arc::new).collect();
        let whole = gone.whole_hours();
        if !whole.is_empty() {
            self.context.store.raw().remove_days(gone.database, &keys, whole, gone.before).await?;
        }
        let mut next_stage = 0;
        while next_stage <= DayPart::LAST_STAGE {
            let parts = self
                .context
                .store
                .raw()
                .list_day_parts(gone.database, &keys, Day::range_from_hours(&gone.hours()))
                .await?;
            let id = |(place, day, part)| DayId { sensor: Arc::clone(&shared[place]), day, part };
            let is_left = |id: &DayId| next_stage <= id.part.stage() && gone.has_some(&id.sensor.key, &id.hours());
            let mut left: Vec<DayId> = parts.into_iter().map(id).filter(is_left).collect();
            // If a stage has no parts, none can be folded into the next one.
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

    /// Removes deleted cells from these parts. Returns the parts that others changed meanwhile. Writes unchanged parts
    /// too, so that a writer that is about to fold readings from before the deletion into one fails (see
    /// `bucket::day`).
    async fn delete_in(&self, gone: &DeletedCells<'_>, ids: &[DayId]) -> Result<Vec<DayId>, StorageError> {
        let mut changed: Vec<(&DayId, StoredDay)> = Vec::new();
        let raw = self.context.store.raw();
        let whole = gone.whole_hours();
        let whole_hours = whole.start.start_ns()..whole.end.start_ns();
        for (id, day) in ids.iter().zip(raw.read_days(gone.database, ids).await?) {
            let Some(mut day) = day else { continue };
            let is_older = day.readings.stamps().floor() < gone.before;
            match &mut day.expired {
                // A partly covered hour was cut before its readings expired. Later deletions of parts are refused.
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
        let mut conflicts = Vec::new();
        let mut emptied = Vec::new();
        for ((id, day), written) in changed.iter().zip(raw.write_days(gone.database, &writes).await) {
            if !written.applied()? {
                conflicts.push(DayId::clone(id));
            } else if day.is_empty() {
                emptied.push((*id, day.rev + 1));
            }
        }
        // Remove empty parts only after the writes above have removed the totals of their months. A retry after a kill
        // does not find a removed part, and would leave totals that include it.
        let removals: Vec<DayWrite<'_>> = emptied.iter().map(|&(id, rev)| DayWrite::removal(id, rev)).collect();
        for ((id, _), written) in emptied.iter().zip(raw.write_days(gone.database, &removals).await) {
            if !written.applied()? {
                conflicts.push(DayId::clone(id));
            }
        }
        Ok(conflicts)
    }
}
