//! Reads stored sensors under their present names (`bucket::relabel`): a name may unite several stored sensors, each for a part of
//! time. Where several have a value of a field at the same time, that of the sensor stored under the present name counts, else that of
//! the least key: an order that neither flushing nor sealing changes, as stamps do not stay.
//!
//! Summaries stay exact: an hour of which only one stored sensor has readings is answered from its summaries, any other hour from
//! its readings. What is not flushed is read here, too, before the store.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::hours::{UnflushedSensor, overlay};
use super::{Engine, hours_of};
use crate::bucket::relabel::UnitedPart;
use crate::bucket::store::{Extent, Order, Projection, Scanned, ScannedPage};
use crate::bucket::{Behind, Readings, Relabels, StorageError};
use crate::clock::now_ns;
use crate::query::QueryError;
use crate::reading::{Hour, Sensor, Stamp};

/// Hours whose readings are read together where summaries are not enough.
const HOURS_TOGETHER: i64 = 24;

/// Why a scan has no result.
#[derive(Debug)]
pub enum ScanFailure {
    Storage(StorageError),
    Behind(Behind),
}

impl From<StorageError> for ScanFailure {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl From<Behind> for ScanFailure {
    fn from(behind: Behind) -> Self {
        Self::Behind(behind)
    }
}

impl From<ScanFailure> for QueryError {
    fn from(failure: ScanFailure) -> Self {
        match failure {
            ScanFailure::Storage(error) => error.into(),
            ScanFailure::Behind(behind) => behind.into(),
        }
    }
}

/// What a stored sensor has of some hours: pages in any order, and what is not flushed.
type PartRead = (Vec<ScannedPage>, UnflushedSensor);

/// What the parts have of an hour, by their places.
#[derive(Default)]
struct UnitedHour {
    pages: BTreeMap<usize, Vec<ScannedPage>>,
    unflushed: BTreeMap<usize, Readings>,
}

impl Engine {
    /// The relabels of a database, if it has some.
    #[must_use]
    pub fn relabels(&self, database: &str) -> Option<Relabels> {
        self.settings.now().relabels(database).cloned()
    }

    /// The stored sensors that are read under a name; `None` if only the one of that name.
    pub(super) fn parts(&self, database: &str, key: &str) -> Option<Vec<UnitedPart>> {
        self.shown_parts(database, &self.relabels(database)?, key)
    }

    /// The stored sensors that are read under a name by these relabels, with the times at which they are shown now.
    fn shown_parts(&self, database: &str, relabels: &Relabels, key: &str) -> Option<Vec<UnitedPart>> {
        let parts = parts_in(relabels, key)?;
        let Some(from) = self.settings.now().readings_from(database, now_ns()) else { return Some(parts) };
        Some(parts.into_iter().map(|part| part.shown_with_readings_from(from)).collect())
    }

    /// The names under which a key is read in a range of times, in nanoseconds: parts of the range, in order.
    #[must_use]
    pub fn names_within(&self, database: &str, key: &str, range: &Range<i64>) -> Vec<(Range<i64>, String)> {
        let asked = self.relabels(database).zip(sensor_of(key));
        let Some((relabels, asked)) = asked else { return vec![(range.clone(), key.to_owned())] };
        let within = |(times, name): (Range<i64>, Arc<Sensor>)| {
            let times = times.start.max(range.start)..times.end.min(range.end);
            (!times.is_empty()).then(|| (times, name.key.to_string()))
        };
        relabels.names_of(&asked).into_iter().filter_map(within).collect()
    }

    /// Whether something else is read under a name than the sensor that is stored under it.
    #[must_use]
    pub fn is_united(&self, database: &str, key: &str) -> bool {
        self.parts(database, key).is_some()
    }

    /// Which of these names are read as they are stored.
    #[must_use]
    pub fn plain(&self, database: &str, keys: &[&str]) -> Vec<bool> {
        plain_in(self.relabels(database).as_ref(), keys)
    }

    /// As [`crate::store::MergedView::scan`], of everything that is read under a name. Pages of a name that unites sensors have what is
    /// not flushed, too.
    ///
    /// # Errors
    /// If the store does not answer, or acked readings are still being read back.
    pub async fn scan(
        &self,
        (database, key): (&str, &str),
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned, ScanFailure> {
        let Some(parts) = self.parts(database, key) else {
            return Ok(self.store.scan(database, key, hours, order, projection, extent).await?);
        };
        // A part without pages would mean that nothing is left.
        let mut left = hours;
        loop {
            let scanned = self.scan_parts((database, &parts), left, order, projection, extent).await?;
            if !scanned.pages.is_empty() || scanned.rest.is_empty() {
                return Ok(scanned);
            }
            left = scanned.rest;
        }
    }

    async fn scan_parts(
        &self,
        (database, parts): (&str, &[UnitedPart]),
        hours: Range<Hour>,
        order: Order,
        projection: &Projection,
        extent: Extent,
    ) -> Result<Scanned, ScanFailure> {
        let unflushed = self.unflushed_parts(database, parts, &hours).await?;
        let extent = Extent { bytes: (extent.bytes / parts.len().max(1)).max(1), ..extent };
        let (mut covered, mut read) = (hours.clone(), Vec::with_capacity(parts.len()));
        for (part, unflushed) in parts.iter().zip(unflushed) {
            let own = hours_in(part, &hours);
            let mut pages = Vec::new();
            if !own.is_empty() {
                let scanned = self.store.scan(database, &part.sensor.key, own, order, projection, extent).await?;
                pages = scanned.pages;
                match order {
                    _ if scanned.rest.is_empty() => {}
                    Order::Ascending => covered.end = covered.end.min(scanned.rest.start),
                    Order::Descending => covered.start = covered.start.max(scanned.rest.end),
                }
            }
            read.push((pages, unflushed));
        }
        for (pages, unflushed) in &mut read {
            pages.retain(|page| covered.contains(&page.hour));
            unflushed.retain(|hour, _| covered.contains(hour));
        }
        let rest = match order {
            Order::Ascending => covered.end..hours.end,
            Order::Descending => hours.start..covered.start,
        };
        let mut pages = self.unite((database, parts), projection, read).await?;
        if order == Order::Descending {
            pages.sort_by_key(|page| Reverse(page.hour));
        }
        Ok(Scanned { pages, rest })
    }

    /// As [`crate::store::MergedView::scan_sensors`], of everything that is read under each name.
    ///
    /// # Errors
    /// If the store does not answer, or acked readings are still being read back.
    pub async fn scan_sensors(
        &self,
        database: &str,
        keys: &[&str],
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>, ScanFailure> {
        let relabels = self.relabels(database);
        self.scan_sensors_by(relabels.as_ref(), (database, keys), hours, projection, bytes_max).await
    }

    /// As [`Engine::scan_sensors`], by these relabels. A caller that caches the answer decides by the same relabels, not by those in force when the scan ends.
    ///
    /// # Errors
    /// The same.
    pub async fn scan_sensors_by(
        &self,
        relabels: Option<&Relabels>,
        (database, keys): (&str, &[&str]),
        hours: Range<Hour>,
        projection: &Projection,
        bytes_max: usize,
    ) -> Result<Option<Vec<Vec<ScannedPage>>>, ScanFailure> {
        let parts = |key: &&str| relabels.and_then(|relabels| self.shown_parts(database, relabels, key));
        let united: Vec<Option<Vec<UnitedPart>>> = keys.iter().map(parts).collect();
        if united.iter().all(Option::is_none) {
            return Ok(self.store.scan_sensors(database, keys, hours, projection, bytes_max).await?);
        }
        let mut unflushed = Vec::with_capacity(keys.len());
        for parts in &united {
            unflushed.push(match parts {
                Some(parts) => self.unflushed_parts(database, parts, &hours).await?,
                None => Vec::new(),
            });
        }
        // Each stored sensor once, though several names may read it.
        let mut stored: Vec<&str> = Vec::new();
        for (key, parts) in keys.iter().zip(&united) {
            match parts {
                Some(parts) => stored.extend(parts.iter().map(|part| &*part.sensor.key)),
                None => stored.push(key),
            }
        }
        stored.sort_unstable();
        stored.dedup();
        let scanned = self.store.scan_sensors(database, &stored, hours.clone(), projection, bytes_max).await?;
        let Some(scanned) = scanned else { return Ok(None) };
        let scanned: HashMap<&str, Vec<ScannedPage>> = stored.into_iter().zip(scanned).collect();
        let pages_of = |key: &str| scanned.get(key).cloned().unwrap_or_default();
        let mut all = Vec::with_capacity(keys.len());
        for ((key, parts), unflushed) in keys.iter().zip(&united).zip(unflushed) {
            let Some(parts) = parts else {
                all.push(pages_of(key));
                continue;
            };
            let read = parts.iter().map(|part| pages_of(&part.sensor.key)).zip(unflushed).collect();
            all.push(self.unite((database, parts), projection, read).await?);
        }
        Ok(Some(all))
    }

    async fn unflushed_parts(
        &self,
        database: &str,
        parts: &[UnitedPart],
        hours: &Range<Hour>,
    ) -> Result<Vec<UnflushedSensor>, Behind> {
        let keys: Vec<&str> = parts.iter().map(|part| &*part.sensor.key).collect();
        let unflushed = self.memtables.unflushed(database, &keys, hours.clone()).await?;
        let by_hour =
            |hours: Vec<_>| hours.into_iter().map(|hour: crate::bucket::UnflushedHour| (hour.hour, hour)).collect();
        Ok(unflushed.into_iter().map(by_hour).collect())
    }

    /// The pages of a name, from those of its parts, in the order of hours.
    async fn unite(
        &self,
        (database, parts): (&str, &[UnitedPart]),
        projection: &Projection,
        read: Vec<PartRead>,
    ) -> Result<Vec<ScannedPage>, ScanFailure> {
        let mut hours = by_hour(parts, read);
        if !projection.readings {
            let without: Vec<Hour> =
                hours.iter().filter(|(hour, of)| !of.is_alone(**hour, parts)).map(|(hour, _)| *hour).collect();
            for run in runs(&without) {
                self.read_whole((database, parts), projection, &run, &mut hours).await?;
            }
        }
        let mut united = Vec::new();
        for (hour, of) in hours {
            match of.is_alone(hour, parts) {
                true => united.extend(of.pages.into_values().flatten()),
                false => united.extend(of.merged(hour, parts, projection)),
            }
        }
        Ok(united)
    }

    /// Reads some hours' pages again, with their readings.
    async fn read_whole(
        &self,
        (database, parts): (&str, &[UnitedPart]),
        projection: &Projection,
        run: &Range<Hour>,
        hours: &mut BTreeMap<Hour, UnitedHour>,
    ) -> Result<(), ScanFailure> {
        let whole = Projection { fields: projection.fields.clone(), ..Projection::ALL };
        for (place, part) in parts.iter().enumerate() {
            let own = hours_in(part, run);
            if !hours.range(run.clone()).any(|(_, of)| of.pages.contains_key(&place)) {
                continue;
            }
            hours.range_mut(run.clone()).for_each(|(_, of)| drop(of.pages.remove(&place)));
            let mut left = own;
            while !left.is_empty() {
                let scanned =
                    self.store.scan(database, &part.sensor.key, left, Order::Ascending, &whole, Extent::ALL).await?;
                for page in scanned.pages {
                    if let Some(of) = hours.get_mut(&page.hour) {
                        of.pages.entry(place).or_default().push(page);
                    }
                }
                left = scanned.rest;
            }
        }
        Ok(())
    }
}

/// Which of these names are read as they are stored.
pub(super) fn plain_in(relabels: Option<&Relabels>, keys: &[&str]) -> Vec<bool> {
    match relabels {
        None => vec![true; keys.len()],
        Some(relabels) => keys.iter().map(|key| parts_in(relabels, key).is_none()).collect(),
    }
}

/// See [`Relabels::parts_of`].
fn parts_in(relabels: &Relabels, key: &str) -> Option<Vec<UnitedPart>> {
    relabels.parts_of(&sensor_of(key)?)
}

/// The sensor of a key; `None` for one that can be read in two ways, which has no other name.
pub fn sensor_of(key: &str) -> Option<Arc<Sensor>> {
    Sensor::of_key(key).filter(|sensor| *sensor.key == *key).map(Arc::new)
}

/// The hours that a part may have, of some.
fn hours_in(part: &UnitedPart, hours: &Range<Hour>) -> Range<Hour> {
    let (Some(first), Some(last)) = (part.times.first(), part.times.last()) else { return hours.start..hours.start };
    let own = hours_of(&(first.start..last.end));
    own.start.max(hours.start)..own.end.min(hours.end)
}

/// Sorts pages and unflushed readings by hour; leaves out what lies outside of the times of its part.
fn by_hour(parts: &[UnitedPart], read: Vec<PartRead>) -> BTreeMap<Hour, UnitedHour> {
    let mut hours: BTreeMap<Hour, UnitedHour> = BTreeMap::new();
    for (place, (pages, unflushed)) in read.into_iter().enumerate() {
        let times = &parts[place].times;
        for page in pages.into_iter().filter(|page| has(times, page)) {
            hours.entry(page.hour).or_default().pages.entry(place).or_default().push(page);
        }
        for (hour, unflushed) in unflushed.into_iter().filter(|(hour, _)| overlaps(times, *hour)) {
            hours.entry(hour).or_default().unflushed.insert(place, unflushed.readings());
        }
    }
    hours
}

/// Whether a page may have readings at these times. An hour of which only summaries are left has the name that it began with
/// (`UnitedPart::shown_with_readings_from`; an instance whose clock is behind learns that they have expired from the page).
fn has(times: &[Range<i64>], page: &ScannedPage) -> bool {
    match page.is_expired {
        true => times.iter().any(|times| times.contains(&page.hour.start_ns())),
        false => overlaps(times, page.hour),
    }
}

fn overlaps(times: &[Range<i64>], hour: Hour) -> bool {
    times.iter().any(|times| times.start < hour.end_ns() && hour.start_ns() < times.end)
}

/// Hours in order as ranges of at most [`HOURS_TOGETHER`].
fn runs(hours: &[Hour]) -> Vec<Range<Hour>> {
    let mut runs: Vec<Range<Hour>> = Vec::new();
    for hour in hours {
        match runs.last_mut() {
            Some(run) if run.end == *hour && hour.0 - run.start.0 < HOURS_TOGETHER => run.end = hour.next(),
            _ => runs.push(*hour..hour.next()),
        }
    }
    runs
}

impl UnitedHour {
    /// Whether the pages of the hour can be passed on as they are.
    fn is_alone(&self, hour: Hour, parts: &[UnitedPart]) -> bool {
        let is_whole = |(place, pages): (&usize, &Vec<ScannedPage>)| {
            let covers = |times: &Range<i64>| times.start <= hour.start_ns() && hour.end_ns() <= times.end;
            pages.iter().all(|page| page.is_expired) || parts[*place].times.iter().any(covers)
        };
        let with_readings = self.pages.values().filter(|pages| pages.iter().any(|page| !page.is_expired)).count();
        self.unflushed.is_empty() && with_readings <= 1 && self.pages.iter().all(is_whole)
    }

    /// The readings of all parts as one page; before it, what is left of those that have expired.
    fn merged(mut self, hour: Hour, parts: &[UnitedPart], projection: &Projection) -> Vec<ScannedPage> {
        let mut merged = Readings::default();
        let mut left = Vec::new();
        // The one that counts comes last, with the greatest stamp.
        for (place, part) in parts.iter().enumerate().rev() {
            let mut pages = self.pages.remove(&place).unwrap_or_default();
            left.extend(pages.extract_if(.., |page| page.is_expired));
            let mut readings = overlay(&pages, None).into_owned();
            if let Some(unflushed) = self.unflushed.remove(&place) {
                readings.merge_set(&unflushed);
            }
            let is_other = |time: i64| !part.times.iter().any(|times| times.contains(&time));
            readings.delete_at(is_other, Stamp::MAX);
            lay(&mut merged, &projection.of(readings), Stamp::try_from(parts.len() - place).unwrap_or(Stamp::MAX));
        }
        if !merged.is_empty() {
            let summary = merged.owned_summaries().into();
            let readings = projection.readings.then_some(merged);
            left.push(ScannedPage { hour, number: 0, summary, oldest: 0, readings, is_expired: false });
        }
        left
    }
}

/// Lays readings over others: where both have a value, that of the greater stamp counts, which all of these get.
fn lay(under: &mut Readings, over: &Readings, stamp: Stamp) {
    let mut changed = false;
    for (row, time) in over.times().iter().enumerate() {
        match under.find(*time) {
            Some(index) => {
                under.merge(index, stamp, over.fields(row));
                changed = true;
            }
            None => under.push(*time, stamp, over.fields(row)),
        }
    }
    under.settle(changed);
}
