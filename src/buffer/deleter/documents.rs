//! Updates of sensor documents after a deletion of readings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::batches::SensorBatches;
use super::cells::DeletedCells;
use super::{CONFLICTS_MAX, Deleter};
use crate::bucket::store::{Extent, Order, Projection};
use crate::bucket::{Reading, SensorDocument, StorageError};
use crate::buffer::flush::documents::{floor_to_millis, newest};
use crate::catalog::deletion::ALL_HOURS;
use crate::catalog::reads::read_sensors_each;
use crate::faults;
use crate::reading::{Family, Hour, Sensor};

/// Maximum number of pages in memory while the latest readings are looked up.
const PAGES_MAX: usize = 32;

impl Deleter {
    /// Removes deleted readings from the documents of sensors, before they are removed from pages and days, and looks at
    /// nothing else. If a deletion covers all times, removes everything that is older: so the sensors are listed no more,
    /// and later readings may have other types.
    pub(super) async fn hide_in_documents(
        &self,
        deletion: &DeletedCells<'_>,
        mut batches: SensorBatches<'_>,
    ) -> Result<(), StorageError> {
        let raw = &**self.context.store.raw();
        faults::halt_at("hiding").await;
        while let Some(sensors) = batches.next(raw, deletion.database).await? {
            let keys: Vec<&str> = sensors.iter().map(|sensor| &*sensor.key).collect();
            let mut left = keys.clone();
            while !left.is_empty() {
                let read = read_sensors_each(&self.context.store, deletion.database, &left).await?;
                let mut documents = Vec::new();
                // A document that cannot be read stays as it is.
                for mut document in read.into_values().flatten() {
                    let before = document.clone();
                    if deletion.is_all() {
                        document = emptied(&document);
                        document.meta.cut(deletion.before);
                    } else {
                        document.recent.retain(|reading| !deletion.has_time(reading.time));
                        if document.recent != before.recent {
                            document.last_seen = document.recent.last().map(|latest| floor_to_millis(latest.time));
                        }
                        self.remove_lifetime(deletion, &mut document);
                    }
                    if document != before {
                        documents.push(document);
                    }
                }
                let written = raw.write_sensors(deletion.database, &documents).await;
                let mut changed = BTreeSet::new();
                for (document, written) in documents.iter().zip(written) {
                    if !written.applied()? {
                        changed.insert(&*document.sensor.key);
                    }
                }
                left.retain(|key| changed.contains(key));
            }
            if deletion.is_all() {
                // A document without fields lists nothing.
                self.dispatch.catalog.doubt(deletion.database, Some(&keys));
            }
        }
        Ok(())
    }

    /// Removes the documents of sensors without remaining readings, and updates the others. Returns the keys of the
    /// removed documents.
    pub(super) async fn settle_documents<'s>(
        &self,
        deletion: &DeletedCells<'_>,
        sensors: &'s [Sensor],
    ) -> Result<Vec<&'s str>, StorageError> {
        let store = &*self.context.store;
        let database = deletion.database;
        // If all times are deleted, most sensors have nothing left, and one scan finds them.
        let is_empty = if deletion.is_all() {
            self.are_empty(database, sensors.iter()).await?
        } else {
            vec![false; sensors.len()]
        };
        let mut gone: Vec<(&Sensor, Option<SensorDocument>)> = Vec::new();
        let mut dropped = Vec::new();
        let mut left: Vec<(&Sensor, bool)> = sensors.iter().zip(is_empty).collect();
        for _ in 0..CONFLICTS_MAX {
            // Read the documents before the pages. If another writer stores readings in between, it will write a later
            // `rev` of the document.
            let keys: Vec<&str> = left.iter().map(|(sensor, _)| &*sensor.key).collect();
            let mut read = read_sensors_each(store, database, &keys).await?;
            faults::halt_at("settling").await;
            let mut documents = Vec::new();
            for (sensor, is_empty) in &left {
                let rest = if *is_empty { None } else { self.rest(database, sensor).await? };
                let mut document = read.remove(&sensor.key);
                if let Some(Ok(document)) = document.as_mut().filter(|_| deletion.is_all()) {
                    document.meta.cut(deletion.before);
                }
                match (rest, document) {
                    // Without the document's content, it could not be restored.
                    (None, Some(Err(error @ StorageError::Newer { .. }))) => return Err(error),
                    // Keep metadata that is newer than the deletion, and all metadata unless all times are deleted.
                    (None, Some(Ok(document))) if !document.meta.is_without_values() => {
                        documents.push(SensorDocument { fields: document.fields.clone(), ..emptied(&document) });
                    }
                    // Another writer may be about to insert it.
                    (None, None) => dropped.push(&*sensor.key),
                    (None, Some(document)) => gone.push((sensor, document.ok())),
                    (Some(rest), Some(document)) => {
                        let mut document = document?;
                        rest.describe(&mut document);
                        self.remove_lifetime(deletion, &mut document);
                        if document.fields.is_empty() {
                            document.fields = self.remaining_fields(database, sensor).await?;
                        }
                        documents.push(document);
                    }
                    // The next write creates the missing document.
                    (Some(_), None) => {}
                }
            }
            let mut changed: BTreeSet<Box<str>> = BTreeSet::new();
            for (document, written) in documents.iter().zip(store.raw().write_sensors(database, &documents).await) {
                if !written.applied()? {
                    changed.insert(document.sensor.key.clone());
                } else if deletion.is_all() && store.keeps_copies() {
                    // The remaining pages may have copies of deleted readings.
                    self.context.stale_copies.note(database, &document.sensor.key);
                }
            }
            let gone_keys: Vec<&str> = gone.iter().map(|(sensor, _)| &*sensor.key).collect();
            self.dispatch.catalog.doubt(database, Some(&gone_keys));
            changed.extend(self.remove_documents(database, &gone).await?);
            gone.retain(|(sensor, _)| !changed.contains(&sensor.key));
            self.restore_documents(database, &gone).await?;
            dropped.extend(gone.drain(..).map(|(sensor, _)| &*sensor.key));
            left.retain(|(sensor, _)| changed.contains(&sensor.key));
            if left.is_empty() {
                return Ok(dropped);
            }
        }
        Err(StorageError::Contended(left[0].0.key.to_string()))
    }

    /// Removes lifetime summaries that may include deleted readings.
    fn remove_lifetime(&self, deletion: &DeletedCells<'_>, document: &mut SensorDocument) {
        let key = &*document.sensor.key;
        if document.lifetime.take_if(|lifetime| deletion.has_some(key, &lifetime.hours)).is_some() {
            self.context.lifetimes.note(deletion.database, key);
        }
    }

    /// Removes the documents of sensors without readings, if they are unchanged since they were read. Returns the
    /// sensors whose documents were changed: they may have new metadata, which must not be lost.
    async fn remove_documents(
        &self,
        database: &str,
        gone: &[(&Sensor, Option<SensorDocument>)],
    ) -> Result<Vec<Box<str>>, StorageError> {
        let as_read = |(sensor, document): &'_ (&Sensor, Option<SensorDocument>)| {
            (sensor.key.clone(), document.as_ref().map(|document| document.rev))
        };
        let removed: Vec<(Box<str>, Option<u64>)> = gone.iter().map(as_read).collect();
        let removed: Vec<(&str, Option<u64>)> = removed.iter().map(|(key, rev)| (&**key, *rev)).collect();
        self.context.store.raw().remove_sensors(database, &removed).await?;
        let keys: Vec<&str> = removed.iter().filter(|(_, rev)| rev.is_some()).map(|(key, _)| *key).collect();
        Ok(read_sensors_each(&self.context.store, database, &keys).await?.into_keys().collect())
    }

    /// Restores removed documents of sensors that have a page in the store, even a hidden one. Another writer has
    /// stored the page while the document existed. Sweeps list documents, so they would miss a page without one.
    async fn restore_documents(
        &self,
        database: &str,
        removed: &[(&Sensor, Option<SensorDocument>)],
    ) -> Result<(), StorageError> {
        let is_empty = self.are_empty(database, removed.iter().map(|(sensor, _)| *sensor)).await?;
        let mut documents = Vec::new();
        for ((sensor, document), is_empty) in removed.iter().zip(is_empty) {
            let Some(document) = document.clone().filter(|_| !is_empty) else { continue };
            let mut document = SensorDocument { rev: 0, fields: document.fields.clone(), ..emptied(&document) };
            if let Some(rest) = self.rest(database, sensor).await? {
                rest.describe(&mut document);
            }
            documents.push(document);
        }
        // After a conflict, another writer has restored the document.
        let written = self.context.store.raw().write_sensors(database, &documents).await;
        written.into_iter().try_for_each(|written| written.applied().map(drop))
    }

    /// Returns for each sensor whether it has no page at all, not even a hidden one.
    async fn are_empty(
        &self,
        database: &str,
        sensors: impl Iterator<Item = &Sensor>,
    ) -> Result<Vec<bool>, StorageError> {
        let keys: Vec<&str> = sensors.map(|sensor| &*sensor.key).collect();
        let raw = &**self.context.store.raw();
        let places = Projection::without_fields();
        let pages = raw.scan_sensors(database, &keys, ALL_HOURS, &places, usize::MAX).await?.unwrap_or_default();
        let days = raw.scan_sensor_days(database, &keys, ALL_HOURS, &places, usize::MAX).await?.unwrap_or_default();
        Ok(pages.iter().zip(days).map(|(pages, days)| pages.is_empty() && days.is_empty()).collect())
    }

    /// Returns the fields of a sensor's remaining readings.
    async fn remaining_fields(&self, database: &str, sensor: &Sensor) -> Result<Vec<(Arc<str>, Family)>, StorageError> {
        let mut fields: Vec<(Arc<str>, Family)> = Vec::new();
        let mut hours = ALL_HOURS;
        while !hours.is_empty() {
            let extent = Extent::pages(PAGES_MAX);
            let scanned = self
                .context
                .store
                .scan(database, &sensor.key, hours, Order::Ascending, &Projection::ALL, extent)
                .await?;
            for set in scanned.pages.iter().filter_map(|page| page.readings.as_ref()) {
                for (name, value) in (0..set.len()).flat_map(|index| set.fields(index)) {
                    if !fields.iter().any(|(known, _)| known == name) {
                        fields.push((name.clone(), value.family()));
                    }
                }
            }
            hours = scanned.rest;
        }
        Ok(fields)
    }

    /// Looks up the remaining pages of a sensor.
    async fn rest(&self, database: &str, sensor: &Sensor) -> Result<Option<RemainingPages>, StorageError> {
        let store = &*self.context.store;
        let most = self.context.recent;
        let mut recent: BTreeMap<i64, Reading> = BTreeMap::new();
        let mut hours = ALL_HOURS;
        let mut pages = 1;
        while recent.len() < most.max(1) && !hours.is_empty() {
            let extent = Extent::pages(pages);
            let latest = store.scan(database, &sensor.key, hours, Order::Descending, &Projection::ALL, extent).await?;
            // The latest pages may be hidden by later deletions.
            pages = (pages * 4).min(PAGES_MAX);
            let sets = latest.pages.iter().filter_map(|page| page.readings.as_ref());
            let readings = sets.flat_map(|set| (0..set.len()).rev().take(most.max(1)).map(|i| set.reading(i)));
            recent.extend(readings.map(|reading| (reading.time, reading)));
            hours = latest.rest;
        }
        // If the readings of an hour have expired, only summaries are left, and their times are known to the hour.
        let one = Extent::pages(1);
        let places = Projection::without_fields();
        let first_hour = store
            .scan(database, &sensor.key, ALL_HOURS, Order::Ascending, &places, one)
            .await?
            .pages
            .first()
            .map(|page| page.hour);
        let Some(last) = recent.last_key_value().map(|(time, _)| *time) else {
            let last_hour = store.scan(database, &sensor.key, ALL_HOURS, Order::Descending, &places, one).await?;
            let last_hour = last_hour.pages.first().map(|page| page.hour);
            let between = |(first, last): (Hour, Hour)| (first.start_ns(), last.end_ns() - 1);
            let span = first_hour.zip(last_hour).map(between);
            return Ok(span.map(|(first, last)| RemainingPages { first, last, recent: Vec::new() }));
        };
        let first =
            store.scan(database, &sensor.key, ALL_HOURS, Order::Ascending, &Projection::ALL, Extent::pages(1)).await?;
        let times = first.pages.iter().filter_map(|page| page.readings.as_ref()?.times().first().copied());
        let first = times.min().unwrap_or(last);
        let first = first_hour.filter(|hour| *hour < Hour::from_ns(first)).map_or(first, Hour::start_ns);
        Ok(Some(RemainingPages { first, last, recent: newest(recent, most) }))
    }
}

/// Returns a document with nothing but the metadata.
fn emptied(document: &SensorDocument) -> SensorDocument {
    SensorDocument { rev: document.rev, meta: document.meta.clone(), ..SensorDocument::new(document.sensor.clone()) }
}

/// The time span and the latest of a sensor's remaining readings.
struct RemainingPages {
    first: i64,
    last: i64,
    recent: Vec<Reading>,
}

impl RemainingPages {
    fn describe(&self, document: &mut SensorDocument) {
        document.first_seen = Some(floor_to_millis(self.first));
        document.last_seen = Some(floor_to_millis(self.last));
        document.recent.clone_from(&self.recent);
    }
}
