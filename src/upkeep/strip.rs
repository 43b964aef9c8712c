//! Removes expired readings from days whose summaries are kept longer.
//!
//! The job `expire` notes in the database's settings the day before which readings have expired, and a stamp above
//! every record that was logged before all instances knew it. Once the floor has passed this stamp, no older reading
//! can arrive. Then the days are sealed, and each part is written again without its readings, by compare-and-set. A
//! part records that its readings have expired, so an interruption at any step leaves complete parts, each in one of
//! the two forms. One instance runs this for all. If two do, one of them loses each compare-and-set.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::{Job, JobError, Run};
use super::seal::Sealer;
use crate::bucket::settings::ExpiredReadings;
use crate::bucket::store::{Projection, SensorFilter};
use crate::bucket::{DatabaseSettings, DayId, DayPart, DayWrite, ExpiredDay, Readings, SensorDocument, StorageError};
use crate::catalog::reads::read_sensors_each;
use crate::faults;
use crate::members::retention::Retention;
use crate::reading::{Day, Hour, Stamp};

/// Number of sensors per step.
const SENSORS: usize = 100;
/// Maximum stored bytes of page headers that are read at once.
const PLACES_BYTES: usize = 16 << 20;
/// Number of parts whose readings are in memory at once.
const PARTS: usize = 4;

/// The job that removes expired readings from days whose summaries are kept.
pub struct Strip {
    pub sealer: Arc<Sealer>,
    pub retention: Arc<Retention>,
    pub left: LeftBefore,
}

/// The days of a database that are being stripped.
struct Stripped<'a> {
    database: &'a str,
    days: Range<Day>,
    before: i64,
    left: LeftDays,
}

/// The range of days from the first to the last one that a round could not strip completely.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct LeftDays(Option<Range<Day>>);

impl LeftDays {
    fn add(&mut self, day: Day) {
        let held = self.0.get_or_insert(day..day.next());
        *held = held.start.min(day)..held.end.max(day.next());
    }
}

/// The days that the last rounds left, by database, so that a round does not read all days again while one day cannot
/// be sealed.
type LeftBefore = HashMap<String, (ExpiredReadings, Range<Day>)>;

impl Job for Strip {
    const NAME: &'static str = "strip";

    fn interval(&self) -> Option<Duration> {
        Some(self.retention.options.retention.interval)
    }

    async fn run(&mut self, run: &Run) -> Result<Option<Duration>, JobError> {
        let mut failed = None;
        for (database, gone) in self.waiting().await? {
            let began = Instant::now();
            let all = || Day::from_hour(Hour::from_ns(gone.done))..Day::from_hour(Hour::from_ns(gone.before));
            let days = self.left.get(&database).map_or_else(all, |(_, left)| left.clone());
            let stripped = Stripped { database: &database, days, before: gone.before, left: LeftDays::default() };
            match self.strip(stripped, run).await {
                Ok(LeftDays(None)) => {
                    self.retention.note_stripped(&database, gone.before).await?;
                    run.count("databases", 1);
                }
                Ok(LeftDays(Some(days))) => drop(self.left.insert(database, (gone, days))),
                // A failure in one database does not stop the others.
                Err(error) => failed = Some(error),
            }
            run.pause(began).await;
        }
        failed.map_or(Ok(None), |error| Err(error.into()))
    }
}

impl Strip {
    /// Returns the databases with expired readings for which no older reading can arrive.
    async fn waiting(&mut self) -> Result<Vec<(String, ExpiredReadings)>, StorageError> {
        let settings = self.retention.settings.now();
        // Under another stamp, readings may have arrived for days that were stripped already.
        self.left.retain(|name, (of, _)| settings.for_database(name).expired_readings == Some(*of));
        let floor = self.floor();
        let is_left = |gone: &ExpiredReadings| {
            let is_left = gone.done < gone.before;
            if is_left {
                self.sealer.context.registry_view.await_floor(gone.stamp);
            }
            is_left && gone.stamp < floor
        };
        let waiting =
            |(name, of): (&String, &DatabaseSettings)| Some((name.clone(), of.expired_readings.filter(is_left)?));
        let mut waiting: Vec<(String, ExpiredReadings)> = settings.by_database.iter().filter_map(waiting).collect();
        if waiting.is_empty() || !self.retention.member.leads().await? {
            return Ok(Vec::new());
        }
        let stored = self.retention.store.raw().databases().await?;
        waiting.retain(|(name, _)| stored.contains(name));
        Ok(waiting)
    }

    fn floor(&self) -> Stamp {
        self.sealer.context.registry_view.view().floor
    }

    /// Strips all expired days. Returns the days that are left.
    async fn strip(&self, mut of: Stripped<'_>, run: &Run) -> Result<LeftDays, StorageError> {
        self.sealer.seal_before(of.database, of.days.end, run).await?;
        faults::point("strip_sealed");
        let mut after = None;
        loop {
            let began = Instant::now();
            let filter = SensorFilter { after: after.take(), outliers: false, limit: SENSORS };
            let documents = self.retention.store.list_sensors(of.database, &filter).await?;
            let Some(last) = documents.last() else { return Ok(of.left) };
            after = Some(last.sensor.key.to_string());
            match self.strip_some(&mut of, &documents).await {
                Err(error) if !error.is_away() => self.strip_singly(&mut of, &documents).await?,
                stripped => stripped?,
            }
            if !self.forget_recent(&of, documents).await? {
                // Leave a day, so that the next round visits all documents again.
                of.left.add(of.days.start);
            }
            run.pause(began).await;
        }
    }

    /// Strips the days of each sensor by itself, so that an unreadable sensor does not stop the others.
    async fn strip_singly(&self, of: &mut Stripped<'_>, documents: &[SensorDocument]) -> Result<(), StorageError> {
        for document in documents {
            match self.strip_some(of, std::slice::from_ref(document)).await {
                Err(error) if !error.is_away() => {
                    let (database, sensor) = (of.database, &*document.sensor.key);
                    tracing::debug!(database, sensor, %error, "days of a sensor could not be stripped");
                    // The failed day is unknown, so all days are left.
                    of.left = LeftDays(Some(of.days.clone()));
                }
                stripped => stripped?,
            }
        }
        Ok(())
    }

    /// Strips the days of a batch of sensors.
    async fn strip_some(&self, of: &mut Stripped<'_>, documents: &[SensorDocument]) -> Result<(), StorageError> {
        let context = &self.sealer.context;
        let turn = self.sealer.turns.of(of.database);
        let _turn = turn.lock().await;
        // Read the floor before the deletions, so that the merge knows every deletion below it.
        let floor = self.floor();
        let keys: Vec<&str> = documents.iter().map(|document| &*document.sensor.key).collect();
        let hours = of.days.start.hours().start..of.days.end.hours().start;
        // Read the pages before the parts, so that readings that another instance folds in between are seen in one of
        // both.
        let places = context
            .store
            .raw()
            .scan_sensors(of.database, &keys, hours, &Projection::without_fields(), PLACES_BYTES)
            .await?;
        let parts = context.store.raw().list_day_parts(of.database, &keys, of.days.clone()).await?;
        let Some(places) = places else {
            // There are too many unsealed pages to list.
            of.left = LeftDays(Some(of.days.clone()));
            return Ok(());
        };
        // A day with pages or chunks cannot be stripped, because a stripped part cannot take their readings.
        let mut unsealed: HashSet<(usize, Day)> = HashSet::new();
        for (place, pages) in places.iter().enumerate() {
            unsealed.extend(pages.iter().map(|page| (place, Day::from_hour(page.hour))));
        }
        unsealed.extend(parts.iter().filter(|(.., part)| part.is_chunk()).map(|(place, day, _)| (*place, *day)));
        let by_hour: HashSet<(usize, Day)> = parts
            .iter()
            .filter(|(.., part)| matches!(part, DayPart::Hour(_)))
            .map(|(place, day, _)| (*place, *day))
            .collect();
        // A day with both kinds of parts is being sealed by hour.
        let both =
            parts.iter().filter(|(place, day, part)| *part == DayPart::Whole && by_hour.contains(&(*place, *day)));
        unsealed.extend(both.map(|(place, day, _)| (*place, *day)));
        let is_sealed =
            |(place, day, part): &&(usize, Day, DayPart)| !part.is_chunk() && !unsealed.contains(&(*place, *day));
        let id = |(place, day, part): &(usize, Day, DayPart)| DayId {
            sensor: documents[*place].sensor.clone(),
            day: *day,
            part: *part,
        };
        let ids: Vec<DayId> = parts.iter().filter(is_sealed).map(id).collect();
        unsealed.iter().for_each(|(_, day)| of.left.add(*day));
        faults::halt_at("strip_listed").await;
        for ids in ids.chunks(PARTS) {
            self.write_stripped(of, ids, floor).await?;
        }
        Ok(())
    }

    async fn write_stripped(&self, of: &mut Stripped<'_>, ids: &[DayId], floor: Stamp) -> Result<(), StorageError> {
        let store = &self.sealer.context.store;
        let held = store.read_days(of.database, ids).await?;
        // Another instance has moved the readings of missing parts to parts that are not listed here.
        let moved = ids.iter().zip(&held).filter(|(_, held)| held.is_none());
        moved.for_each(|(id, _)| of.left.add(id.day));
        let mut none = Readings::default();
        none.raise_floor(floor);
        // Skip a part without readings, which is an abandoned claim.
        let strip = |(id, held): (&'_ DayId, Option<crate::bucket::StoredDay>)| {
            let held = held.filter(|held| held.expired.is_none() && !held.readings.is_empty())?;
            Some((id.clone(), held.rev, ExpiredDay::from_readings(&held.readings)))
        };
        let stripped: Vec<(DayId, u64, ExpiredDay)> = ids.iter().zip(held).filter_map(strip).collect();
        if stripped.is_empty() {
            return Ok(());
        }
        let writes: Vec<DayWrite<'_>> =
            stripped.iter().map(|(id, rev, expired)| DayWrite::again(id, *rev, &none, Some(expired))).collect();
        let outcomes = store.write_days(of.database, &writes).await;
        faults::point("stripped");
        for ((id, ..), written) in stripped.iter().zip(outcomes) {
            if !written.applied()? {
                of.left.add(id.day);
            }
        }
        Ok(())
    }

    /// Removes expired readings from sensors' documents. Returns false if another writer was faster for some of them.
    async fn forget_recent(&self, of: &Stripped<'_>, documents: Vec<SensorDocument>) -> Result<bool, StorageError> {
        let has_some = |document: &SensorDocument| document.recent.iter().any(|reading| reading.time < of.before);
        let keys: Vec<&str> = documents.iter().filter(|document| has_some(document)).map(|d| &*d.sensor.key).collect();
        if keys.is_empty() {
            return Ok(true);
        }
        // Keep the database from being dropped in the meantime, because the write would create it again.
        let turn = self.sealer.turns.of(of.database);
        let _turn = turn.lock().await;
        let mut changed: Vec<SensorDocument> = Vec::new();
        for document in read_sensors_each(&self.retention.store, of.database, &keys).await?.into_values() {
            let mut document = document?;
            document.recent.retain(|reading| reading.time >= of.before);
            changed.push(document);
        }
        if changed.is_empty() {
            return Ok(true);
        }
        let mut is_all = true;
        for written in self.retention.store.raw().write_sensors(of.database, &changed).await {
            is_all &= written.applied()?;
        }
        Ok(is_all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_reaches_from_the_first_to_the_last_of_its_days() {
        let mut left = LeftDays::default();
        for (day, expected) in [(5, 5..6), (5, 5..6), (9, 5..10), (7, 5..10), (-2, -2..10)] {
            left.add(Day(day));
            assert_eq!(left, LeftDays(Some(Day(expected.start)..Day(expected.end))), "{day}");
        }
    }
}
