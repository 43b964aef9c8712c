//! Lifetime summaries in sensors' documents: folds over all stored readings, from the totals of months, and from hours
//! where there are no totals.
//!
//! A sensor is folded again if its document or the months show that readings were stored since, or if this process has
//! sealed a day of it. A document is written by compare-and-set on the rev that it had before the readings were read.
//! A deletion removes the summaries that it touches twice: when it hides the readings, and after it has removed them.
//! The second time it changes the rev in any case, so a fold that has read removed readings is not stored afterwards.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::{Run, Sealer};
use crate::bucket::store::{Extent, Order, Projection, ScannedPage};
use crate::bucket::{DaySummaries, Lifetime, LifetimeFold, MonthTotals, Readings, SensorDocument, StorageError};
use crate::buffer::deleter::is_listed;
use crate::buffer::flush::documents::floor_to_millis;
use crate::catalog::deletion::ALL_HOURS;
use crate::catalog::reads::read_sensors_each;
use crate::clock::now_ns;
use crate::faults;
use crate::reading::stamp::stamp_millis;
use crate::reading::time::MILLI_NS;
use crate::reading::{Day, Hour, Month};

/// Maximum number of sensors that are folded together.
const SENSORS: usize = 64;
/// Maximum number of daily summaries in memory, unless one month of one sensor has more.
const SUMMARIES_MAX: usize = 100_000;
/// Maximum number of days in a month.
const MONTH_DAYS: usize = 31;
/// Maximum bytes of hours that are read at once.
const HOURS_BYTES: usize = 16 << 20;
/// Time within which readings are usually stored. A sensor whose last reading is this old at a fold is folded once more.
const ARRIVAL_NS: i64 = 3600 * 1_000 * MILLI_NS;
/// Number of attempts against concurrent writers of a document.
const ATTEMPTS_MAX: usize = 3;

fn day_of(time: i64) -> Day {
    Day::from_hour(Hour::from_ns(time))
}

/// The rules for folding a sensor again.
#[derive(Debug, Clone, Copy)]
pub(super) struct LifetimeRules {
    /// Maximum number of fields; 0 if there are no lifetime summaries.
    pub fields_max: usize,
    /// True if a sensor with readings since its last fold is folded on the same day, too.
    pub is_asked: bool,
    pub now: i64,
}

impl LifetimeRules {
    /// Returns true if a sensor is to be folded, according to its document and the latest rev of its months.
    pub fn is_outdated(self, document: &SensorDocument, month_rev: u64) -> bool {
        let Some(lifetime) = &document.lifetime else { return self.fields_max > 0 && document.first_seen.is_some() };
        let Lifetime { as_of, ref fields, .. } = **lifetime;
        let has_readings = document.last_seen.is_some_and(|last| last.saturating_add(ARRIVAL_NS) >= as_of);
        let is_new_day = self.is_asked || day_of(as_of) < day_of(self.now);
        let as_of_ms = u64::try_from(as_of / MILLI_NS).unwrap_or_default();
        fields.len() > self.fields_max || has_readings && is_new_day || stamp_millis(month_rev) > as_of_ms
    }
}

/// A sensor that is being folded.
struct Folding {
    document: SensorDocument,
    fold: LifetimeFold,
    /// Daily summaries that are not in the fold yet, in order of days.
    days: VecDeque<(Day, DaySummaries)>,
}

impl Folding {
    /// Adds the days before an hour.
    fn add_days(&mut self, end: Hour) {
        let count = self.days.partition_point(|(day, _)| day.hours().start < end);
        for (day, summaries) in self.days.drain(..count) {
            self.fold.add(day.hours(), &summaries);
        }
    }
}

impl Sealer {
    /// Folds the sensors of a database that are noted as outdated.
    ///
    /// # Errors
    /// If the store is away.
    pub(super) async fn fold_noted(&self, database: &str, run: &Run) -> Result<(), StorageError> {
        if self.lifetime_fields == 0 {
            return Ok(());
        }
        self.fold_lifetimes(database, self.context.lifetimes.of(database), run).await
    }

    /// Folds the lifetime summaries of sensors. Skips sensors that cannot be read.
    ///
    /// # Errors
    /// If the store is away.
    pub(super) async fn fold_lifetimes(
        &self,
        database: &str,
        sensors: Vec<Box<str>>,
        run: &Run,
    ) -> Result<(), StorageError> {
        let mut batches: Vec<Vec<Box<str>>> = sensors.chunks(SENSORS).map(<[_]>::to_vec).collect();
        while let Some(mut batch) = batches.pop() {
            let began = Instant::now();
            // Forget them before they are read: a later note is about a later change.
            self.context.lifetimes.forget(database, &batch);
            for _ in 0..ATTEMPTS_MAX {
                let count = batch.len();
                match self.fold_batch(database, &batch).await {
                    Ok(conflicts) => {
                        batch = conflicts;
                        run.count("lifetimes", (count - batch.len()) as u64);
                    }
                    Err(error) if error.is_away() => {
                        batch.iter().for_each(|sensor| self.context.lifetimes.note(database, sensor));
                        return Err(error);
                    }
                    Err(error) if count == 1 => {
                        let sensor = batch.remove(0);
                        tracing::debug!(database, %sensor, %error, "cannot fold the lifetime summaries of a sensor");
                    }
                    Err(_) => batches.extend(batch.drain(..).map(|sensor| vec![sensor])),
                }
                if batch.is_empty() {
                    break;
                }
            }
            batch.iter().for_each(|sensor| self.context.lifetimes.note(database, sensor));
            run.pause(began).await;
        }
        Ok(())
    }

    /// Folds and writes the summaries of a batch. Returns the sensors whose documents others have changed meanwhile.
    async fn fold_batch(&self, database: &str, sensors: &[Box<str>]) -> Result<Vec<Box<str>>, StorageError> {
        let store = &self.context.store;
        let keys: Vec<&str> = sensors.iter().map(|sensor| &**sensor).collect();
        let as_of = floor_to_millis(now_ns());
        let read = read_sensors_each(store, database, &keys).await?;
        faults::halt_at("lifetime_documents_read").await;
        let new = |document| Folding { document, fold: LifetimeFold::default(), days: VecDeque::new() };
        let mut foldings: Vec<Folding> = read.into_values().flatten().map(new).collect();
        if self.lifetime_fields > 0 {
            self.fold(database, &mut foldings).await?;
        }
        faults::halt_at("lifetimes_folded").await;
        let mut documents = Vec::new();
        for Folding { document, fold, .. } in foldings {
            let lifetime = fold.finish(as_of, self.lifetime_fields).filter(|_| self.lifetime_fields > 0).map(Box::new);
            if lifetime != document.lifetime {
                documents.push(SensorDocument { lifetime, ..document });
            }
        }
        // Keep the database from being dropped in the meantime, because the write would create it again.
        let turn = self.turns.of(database);
        let _turn = turn.lock().await;
        if documents.is_empty() || !is_listed(&**store.raw(), database).await? {
            return Ok(Vec::new());
        }
        let mut conflicts = Vec::new();
        for (document, written) in documents.iter().zip(store.raw().write_sensors(database, &documents).await) {
            if !written.applied()? {
                conflicts.push(document.sensor.key.clone());
            }
        }
        Ok(conflicts)
    }

    /// Folds all stored readings of sensors, some months at a time.
    async fn fold(&self, database: &str, foldings: &mut [Folding]) -> Result<(), StorageError> {
        let fields = foldings.iter().map(|folding| folding.document.fields.len()).max().unwrap_or_default().max(1);
        for foldings in foldings.chunks_mut((SUMMARIES_MAX / MONTH_DAYS / fields).max(1)) {
            let step = SUMMARIES_MAX / MONTH_DAYS / fields / foldings.len();
            let step = i64::try_from(step).unwrap_or(i64::MAX).max(1);
            // Only past months have totals.
            let current = Month::from_day(day_of(now_ns()));
            let first = foldings.iter().filter_map(|folding| folding.document.first_seen).min();
            let mut month = first.map_or(current, |first| Month::from_day(day_of(first)).min(current));
            while month < current {
                let end = Month(month.0.saturating_add(step)).min(current);
                self.fold_months(database, foldings, month..end).await?;
                month = end;
            }
            let all: Vec<usize> = (0..foldings.len()).collect();
            let hours = current.days().start.hours().start..ALL_HOURS.end;
            self.fold_hours(database, foldings, &all, hours).await?;
        }
        Ok(())
    }

    /// Folds these months of sensors.
    async fn fold_months(
        &self,
        database: &str,
        foldings: &mut [Folding],
        months: Range<Month>,
    ) -> Result<(), StorageError> {
        let sensors: Vec<Arc<_>> = foldings.iter().map(|folding| folding.document.sensor.clone()).collect();
        let keys: Vec<&str> = sensors.iter().map(|sensor| &*sensor.key).collect();
        let read = self.context.store.read_months(database, &keys, months.clone(), &Projection::SUMMARIES).await?;
        let mut by_sensor: HashMap<Arc<str>, BTreeMap<Month, MonthTotals>> = HashMap::new();
        for (id, month) in read {
            if let Some(totals) = month.totals {
                by_sensor.entry(id.sensor).or_default().insert(id.month, totals);
            }
        }
        // Sensors by the hours that the totals lack.
        let mut left: BTreeMap<Vec<(i64, i64)>, Vec<usize>> = BTreeMap::new();
        for (place, folding) in foldings.iter_mut().enumerate() {
            let totals = by_sensor.remove(keys[place]).unwrap_or_default();
            left.entry(hours_without_totals(&totals, months.clone())).or_default().push(place);
            folding.days = totals.into_values().flat_map(|totals| totals.days).collect();
        }
        for (ranges, places) in left {
            for (start, end) in ranges {
                places.iter().for_each(|place| foldings[*place].add_days(Hour(start)));
                self.fold_hours(database, foldings, &places, Hour(start)..Hour(end)).await?;
            }
            places.iter().for_each(|place| foldings[*place].add_days(ALL_HOURS.end));
        }
        Ok(())
    }

    /// Folds the hours of a range of some sensors.
    async fn fold_hours(
        &self,
        database: &str,
        foldings: &mut [Folding],
        places: &[usize],
        hours: Range<Hour>,
    ) -> Result<(), StorageError> {
        let store = &self.context.store;
        let all = &Projection::SUMMARIES;
        let sensors: Vec<Arc<_>> = places.iter().map(|place| foldings[*place].document.sensor.clone()).collect();
        let keys: Vec<&str> = sensors.iter().map(|sensor| &*sensor.key).collect();
        if let Some(found) = store.scan_sensors(database, &keys, hours.clone(), all, HOURS_BYTES).await? {
            for (place, pages) in places.iter().zip(found) {
                self.add_pages(database, &mut foldings[*place], &pages).await?;
            }
            return Ok(());
        }
        let extent = Extent { bytes: HOURS_BYTES, ..Extent::ALL };
        for (place, key) in places.iter().zip(keys) {
            let mut left = hours.clone();
            while !left.is_empty() {
                let scanned = store.scan(database, key, left, Order::Ascending, all, extent).await?;
                self.add_pages(database, &mut foldings[*place], &scanned.pages).await?;
                left = scanned.rest;
            }
        }
        Ok(())
    }

    /// Adds pages, which are in order of hours.
    async fn add_pages(
        &self,
        database: &str,
        folding: &mut Folding,
        pages: &[ScannedPage],
    ) -> Result<(), StorageError> {
        for hour_pages in pages.chunk_by(|a, b| a.hour == b.hour) {
            let hours = hour_pages[0].hour..hour_pages[0].hour.next();
            if let [page] = hour_pages {
                folding.fold.add(hours, &page.summary);
                continue;
            }
            // The readings of pages can alternate, so only the readings tell which value is the first or the last.
            let key = &folding.document.sensor.key;
            let scan =
                self.context.store.scan(database, key, hours.clone(), Order::Ascending, &Projection::ALL, Extent::ALL);
            let mut readings = Readings::default();
            for page in scan.await?.pages.iter().filter_map(|page| page.readings.as_ref()) {
                readings.unite(page);
            }
            folding.fold.add(hours, &readings.owned_summaries());
        }
        Ok(())
    }
}

/// Returns the ranges of hours of which the totals say nothing.
fn hours_without_totals(totals: &BTreeMap<Month, MonthTotals>, months: Range<Month>) -> Vec<(i64, i64)> {
    let mut left: Vec<(i64, i64)> = Vec::new();
    let mut add = |days: Range<Day>| {
        let start = days.start.hours().start.0;
        let end = days.end.hours().start.0;
        match left.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => left.push((start, end)),
        }
    };
    for month in (months.start.0..months.end.0).map(Month) {
        match totals.get(&month) {
            Some(totals) => totals.overlapping.iter().for_each(|day| add(*day..day.next())),
            None => add(month.days()),
        }
    }
    left
}
