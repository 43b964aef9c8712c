//! Removes readings that have expired from days of which the summaries are kept longer.
//!
//! The job `expire` notes in the database's settings before which day readings have expired, and a stamp above everything that was
//! logged before all instances knew that. Once the floor has passed this stamp, nothing older can come any more: the days are
//! sealed, and each part is written again without its readings, by compare-and-set. A part whose readings have expired says so
//! itself, so whoever stops at any step leaves parts that are whole, each in one of the two forms. One instance does it for all;
//! if two do, one of them loses each compare-and-set.

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

/// Sensors that are seen to together.
const SENSORS: usize = 100;
/// Most stored bytes of places that are read at a time.
const PLACES_BYTES: usize = 16 << 20;
/// Parts whose readings are in memory together.
const PARTS: usize = 4;

/// The job that removes readings that have expired from days whose summaries are kept.
pub struct Strip {
    pub sealer: Arc<Sealer>,
    pub retention: Arc<Retention>,
    pub left: LeftBefore,
}

/// What is stripped: a database's days.
struct Stripped<'a> {
    database: &'a str,
    days: Range<Day>,
    before: i64,
    left: LeftDays,
}

/// The days that a round could not strip wholly, and those between them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct LeftDays(Option<Range<Day>>);

impl LeftDays {
    fn add(&mut self, day: Day) {
        let held = self.0.get_or_insert(day..day.next());
        *held = held.start.min(day)..held.end.max(day.next());
    }
}

/// What the last rounds left, by database: without it each would read everything again while one day cannot be sealed.
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
            let all = || Day::of(Hour::of(gone.done))..Day::of(Hour::of(gone.before));
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
            run.rest(began).await;
        }
        failed.map_or(Ok(None), |error| Err(error.into()))
    }
}

impl Strip {
    /// The databases with readings that have expired and that nothing older can come to any more.
    async fn waiting(&mut self) -> Result<Vec<(String, ExpiredReadings)>, StorageError> {
        let settings = self.retention.settings.now();
        // Another stamp may have let more come to days that were done.
        self.left.retain(|name, (of, _)| settings.of(name).expired_readings == Some(*of));
        let floor = self.floor();
        let is_left = |gone: &ExpiredReadings| gone.done < gone.before && gone.stamp < floor;
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

    /// Strips everything that has expired; returns what is left.
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
                // Whichever day is left, all documents are looked at again.
                of.left.add(of.days.start);
            }
            run.rest(began).await;
        }
    }

    /// Strips days of sensors one by one, after something of one of them could not be read: it hides no other.
    async fn strip_singly(&self, of: &mut Stripped<'_>, documents: &[SensorDocument]) -> Result<(), StorageError> {
        for document in documents {
            match self.strip_some(of, std::slice::from_ref(document)).await {
                Err(error) if !error.is_away() => {
                    let (database, sensor) = (of.database, &*document.sensor.key);
                    tracing::debug!(database, sensor, %error, "days of a sensor could not be stripped");
                    // Whichever of them it is.
                    of.left = LeftDays(Some(of.days.clone()));
                }
                stripped => stripped?,
            }
        }
        Ok(())
    }

    /// Strips days of some sensors.
    async fn strip_some(&self, of: &mut Stripped<'_>, documents: &[SensorDocument]) -> Result<(), StorageError> {
        let context = &self.sealer.context;
        let turn = self.sealer.turns.of(of.database);
        let _turn = turn.lock().await;
        // Before the deletions: what is kept must not have what a deletion below the floor covers.
        let floor = self.floor();
        let keys: Vec<&str> = documents.iter().map(|document| &*document.sensor.key).collect();
        let hours = of.days.start.hours().start..of.days.end.hours().start;
        // Before the parts: what another instance folds in between is in a part, or was seen as a page.
        let places =
            context.store.raw().scan_sensors(of.database, &keys, hours, &Projection::places(), PLACES_BYTES).await?;
        let parts = context.store.raw().list_day_parts(of.database, &keys, of.days.clone()).await?;
        let Some(places) = places else {
            // So much is not sealed that it is not even listed.
            of.left = LeftDays(Some(of.days.clone()));
            return Ok(());
        };
        // Nothing can come beside a part that is stripped.
        let mut unsealed: HashSet<(usize, Day)> = HashSet::new();
        for (place, pages) in places.iter().enumerate() {
            unsealed.extend(pages.iter().map(|page| (place, Day::of(page.hour))));
        }
        unsealed.extend(parts.iter().filter(|(.., part)| part.is_chunk()).map(|(place, day, _)| (*place, *day)));
        let by_hour: HashSet<(usize, Day)> = parts
            .iter()
            .filter(|(.., part)| matches!(part, DayPart::Hour(_)))
            .map(|(place, day, _)| (*place, *day))
            .collect();
        // A day that is about to be sealed by hour.
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
        // Another instance has moved its readings on, to parts that are not listed.
        let moved = ids.iter().zip(&held).filter(|(_, held)| held.is_none());
        moved.for_each(|(id, _)| of.left.add(id.day));
        let mut none = Readings::default();
        none.raise_floor(floor);
        // A part without readings is a claim that its writer never came back to.
        let strip = |(id, held): (&'_ DayId, Option<crate::bucket::StoredDay>)| {
            let held = held.filter(|held| held.expired.is_none() && !held.readings.is_empty())?;
            Some((id.clone(), held.rev, ExpiredDay::of(&held.readings)))
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

    /// Removes readings that have expired from sensors' documents.
    async fn forget_recent(&self, of: &Stripped<'_>, documents: Vec<SensorDocument>) -> Result<bool, StorageError> {
        let has_some = |document: &SensorDocument| document.recent.iter().any(|reading| reading.time < of.before);
        let keys: Vec<&str> = documents.iter().filter(|document| has_some(document)).map(|d| &*d.sensor.key).collect();
        if keys.is_empty() {
            return Ok(true);
        }
        // A database that is dropped meanwhile would be listed again.
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
