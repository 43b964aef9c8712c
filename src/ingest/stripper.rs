//! Removes readings that have expired from days of which the summaries are kept longer.
//!
//! `Retention` notes in the database's settings before which day readings have expired, and a stamp above everything that was
//! logged before all instances knew that. Once the floor has passed this stamp, nothing older can come any more: the days are
//! sealed, and each part is written again without its readings, by compare-and-set. A part whose readings have expired says so
//! itself, so whoever stops at any step leaves parts that are whole, each in one of the two forms. One instance does it for all;
//! if two do, one of them loses each compare-and-set.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::catalog::reads::read_sensors_each;
use super::retention::Retention;
use super::sealer::Sealer;
use crate::bucket::settings::ExpiredReadings;
use crate::bucket::store::{Projection, SensorFilter, Written};
use crate::bucket::{DayId, DayPart, DayWrite, ExpiredDay, Readings, SensorDocument, StorageError};
use crate::faults;
use crate::reading::{Day, Hour, Stamp};

/// Sensors that are seen to together.
const SENSORS: usize = 100;
/// Most stored bytes of places that are read at a time.
const PLACES_BYTES: usize = 16 << 20;
/// Parts whose readings are in memory together.
const PARTS: usize = 4;

pub struct Stripper {
    pub sealer: Arc<Sealer>,
    pub retention: Arc<Retention>,
}

/// What is stripped: a database's days.
struct Stripped<'a> {
    database: &'a str,
    days: Range<Day>,
    before: i64,
}

impl Stripper {
    /// Runs until it is aborted.
    pub async fn run(self) {
        let mut failing = false;
        loop {
            tokio::time::sleep(self.retention.pause).await;
            let done = self.round().await;
            if let (Err(error), false) = (&done, failing) {
                tracing::warn!(%error, "readings that have expired could not be removed from days; it is tried again");
            }
            failing = done.is_err();
        }
    }

    async fn round(&self) -> Result<(), StorageError> {
        let settings = self.retention.settings.now();
        let left = |gone: &ExpiredReadings| gone.done < gone.before && gone.stamp < self.floor();
        let waiting: Vec<(&String, ExpiredReadings)> = settings
            .by_database
            .iter()
            .filter_map(|(name, of)| Some((name, of.expired_readings.filter(left)?)))
            .collect();
        if waiting.is_empty() || !self.retention.member.leads().await? {
            return Ok(());
        }
        let (mut failed, stored) = (Ok(()), self.retention.store.databases().await?);
        for (database, gone) in waiting.into_iter().filter(|(name, _)| stored.contains(*name)) {
            match self.strip(database, gone).await {
                Ok(true) => self.retention.note_stripped(database, gone.before).await?,
                Ok(false) => {}
                Err(error) => failed = Err(error),
            }
        }
        failed
    }

    fn floor(&self) -> Stamp {
        self.sealer.context.registry_view.view().floor
    }

    /// Strips everything that has expired; says whether all of it is.
    async fn strip(&self, database: &str, gone: ExpiredReadings) -> Result<bool, StorageError> {
        let days = Day::of(Hour::of(gone.done))..Day::of(Hour::of(gone.before));
        self.sealer.seal_before(database, days.end).await?;
        faults::point("strip_sealed");
        let stripped = Stripped { database, days, before: gone.before };
        let (mut after, mut is_all) = (None, true);
        loop {
            let began = Instant::now();
            let filter = SensorFilter { after: after.take(), outliers: false, limit: SENSORS };
            let documents = self.retention.store.list_sensors(database, &filter).await?;
            let Some(last) = documents.last() else { return Ok(is_all) };
            after = Some(last.sensor.key.to_string());
            is_all &= self.strip_some(&stripped, &documents).await?;
            is_all &= self.forget_recent(&stripped, documents).await?;
            // Flushes and queries have the store for as long as this had it.
            tokio::time::sleep(began.elapsed()).await;
        }
    }

    /// Strips days of some sensors.
    async fn strip_some(&self, of: &Stripped<'_>, documents: &[SensorDocument]) -> Result<bool, StorageError> {
        let context = &self.sealer.context;
        let turn = self.sealer.turns.of(of.database);
        let _turn = turn.lock().await;
        // Before the deletions: what is kept must not have what a deletion below the floor covers.
        let floor = self.floor();
        let keys: Vec<&str> = documents.iter().map(|document| &*document.sensor.key).collect();
        let parts = context.store.parts_of(of.database, &keys, of.days.clone()).await?;
        let hours = of.days.start.hours().start..of.days.end.hours().start;
        let places = context.raw.scan_sensors(of.database, &keys, hours, &Projection::places(), PLACES_BYTES).await?;
        // So much is not sealed that it is not even listed.
        let Some(places) = places else { return Ok(false) };
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
        let mut is_all = unsealed.is_empty();
        for ids in ids.chunks(PARTS) {
            is_all &= self.write_stripped(of.database, ids, floor).await?;
        }
        Ok(is_all)
    }

    async fn write_stripped(&self, database: &str, ids: &[DayId], floor: Stamp) -> Result<bool, StorageError> {
        let store = &self.sealer.context.store;
        let held = store.read_days(database, ids).await?;
        let mut none = Readings::default();
        none.raise_floor(floor);
        // A part without readings is a claim that its writer never came back to.
        let strip = |(id, held): (&'_ DayId, Option<crate::bucket::StoredDay>)| {
            let held = held.filter(|held| held.expired.is_none() && !held.readings.is_empty())?;
            Some((id.clone(), held.rev, ExpiredDay::of(&held.readings)))
        };
        let stripped: Vec<(DayId, u64, ExpiredDay)> = ids.iter().zip(held).filter_map(strip).collect();
        if stripped.is_empty() {
            return Ok(true);
        }
        let writes: Vec<DayWrite<'_>> = stripped
            .iter()
            .map(|(id, rev, expired)| DayWrite {
                id,
                rev: *rev,
                next_rev: rev + 1,
                readings: Some(&none),
                expired: Some(expired),
            })
            .collect();
        let outcomes = store.write_days(database, &writes).await;
        faults::point("stripped");
        let mut is_all = true;
        for written in outcomes {
            match written {
                Written::Yes => {}
                Written::Conflict => is_all = false,
                Written::Failed(error) => return Err(error),
            }
        }
        Ok(is_all)
    }

    /// Removes readings that have expired from sensors' documents.
    async fn forget_recent(&self, of: &Stripped<'_>, documents: Vec<SensorDocument>) -> Result<bool, StorageError> {
        let has_some = |document: &SensorDocument| document.recent.iter().any(|reading| reading.time < of.before);
        let keys: Vec<&str> = documents.iter().filter(|document| has_some(document)).map(|d| &*d.sensor.key).collect();
        if keys.is_empty() {
            return Ok(true);
        }
        let mut changed: Vec<SensorDocument> = Vec::new();
        for document in read_sensors_each(&*self.retention.store, of.database, &keys).await?.into_values() {
            let mut document = document?;
            document.recent.retain(|reading| reading.time >= of.before);
            changed.push(document);
        }
        let mut is_all = true;
        for written in self.retention.store.write_sensors(of.database, &changed).await {
            match written {
                Written::Yes => {}
                Written::Conflict => is_all = false,
                Written::Failed(error) => return Err(error),
            }
        }
        Ok(is_all)
    }
}
