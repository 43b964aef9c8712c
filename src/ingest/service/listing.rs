//! What queries need beyond the store: readings, sensors and databases that are acked and not stored yet.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::Ingest;
use crate::bucket::store::SensorFilter;
use crate::bucket::{
    Behind, CatalogSensor, CatalogVersion, HourVersions, Meta, SensorDocument, UnflushedHour, UnflushedReadings,
};
use crate::buffer::flush::documents::Documents;
use crate::buffer::flush::outliers;
use crate::buffer::shard::ShardMessage;
use crate::catalog::{Database, KnownSensor};
use crate::clock::now_ns;
use crate::ingest::error::IngestError;
use crate::reading::Hour;

/// Adds sensors, and adds fields to sensors that are there.
fn unite(sensors: &mut Vec<CatalogSensor>, others: Vec<CatalogSensor>) {
    let places: HashMap<Box<str>, usize> =
        sensors.iter().enumerate().map(|(place, sensors)| (sensors.sensor.key.clone(), place)).collect();
    for other in others {
        let Some(place) = places.get(&other.sensor.key) else {
            sensors.push(other);
            continue;
        };
        let here = &mut sensors[*place].fields;
        let new: Vec<_> =
            other.fields.into_iter().filter(|(name, _)| !here.iter().any(|(known, _)| known == name)).collect();
        here.extend(new);
    }
}

/// Whether lists have a sensor.
fn is_told(document: &SensorDocument) -> bool {
    document.rev > 0 || document.last_seen.is_some() || !document.meta.is_without_values()
}

#[async_trait]
impl UnflushedReadings for Ingest {
    async fn unflushed(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
    ) -> Result<Vec<Vec<UnflushedHour>>, Behind> {
        if !self.member.registry_view.is_known() || self.dispatch.is_behind(database, sensors, &hours) {
            return Err(Behind);
        }
        let mut all = vec![Vec::new(); sensors.len()];
        let Some(database) = self.catalog.database(database) else { return Ok(all) };
        let mut by_shard: Vec<Vec<(usize, u32)>> = vec![Vec::new(); self.options.ingest.shards];
        for (place, sensor) in sensors.iter().enumerate() {
            if let Some(known) = self.catalog.sensor(&database, sensor) {
                by_shard[known.shard].push((place, known.id));
            }
        }
        let mut answers = Vec::new();
        for (shard, ids) in by_shard.into_iter().enumerate().filter(|(_, ids)| !ids.is_empty()) {
            let (reply, answer) = oneshot::channel();
            let database = database.clone();
            self.dispatch.ask(shard, ShardMessage::Unflushed { database, ids, hours: hours.clone(), reply });
            answers.push(answer);
        }
        for answer in answers {
            // If a shard has ended, its readings are available again after the next start.
            for (place, readings) in answer.await.map_err(|_| Behind)? {
                all[place] = readings;
            }
        }
        Ok(all)
    }

    fn catalog_sensors(&self, database: &str, since: CatalogVersion) -> Vec<CatalogSensor> {
        let known = self.catalog.database(database);
        let sensors = known.map(|database| self.catalog.catalog_sensors(&database, since.additions));
        self.with_backlog(database, sensors.unwrap_or_default(), |_| true)
    }

    fn catalog_sensor(&self, database: &str, sensor: &str) -> Option<CatalogSensor> {
        let known = self.catalog.database(database);
        let known = known.and_then(|database| self.catalog.catalog_sensor(&database, sensor));
        self.with_backlog(database, Vec::from_iter(known), |key| key == sensor).pop()
    }

    fn databases(&self) -> Vec<String> {
        let waiting = self.catalog.databases().into_iter().filter(|database| database.has_unflushed());
        let mut names: Vec<String> = waiting.map(|database| database.name.to_string()).collect();
        if !self.dispatch.positions.is_live() {
            names.extend(self.dispatch.backlog.databases());
        }
        names
    }

    fn catalog_version(&self, database: Option<&str>) -> Result<CatalogVersion, Behind> {
        let is_known = self.member.registry_view.is_known() && !self.dispatch.is_unlisted(database);
        if is_known { Ok(self.catalog.version()) } else { Err(Behind) }
    }

    fn changes(&self) -> &HourVersions {
        &self.flushes.changes
    }
}

impl Ingest {
    /// Known sensors without new metadata that a deletion covers, of another instance too, and with the wanted ones of the
    /// backlog.
    fn with_backlog(
        &self,
        database: &str,
        mut sensors: Vec<CatalogSensor>,
        wanted: impl Fn(&str) -> bool,
    ) -> Vec<CatalogSensor> {
        for sensor in &mut sensors {
            let Some(meta) = &mut sensor.meta else { continue };
            let before = self.member.registry_view.deleted_before(database, &sensor.sensor);
            if meta.entries().any(|(_, entry)| entry.stamp < before) {
                Arc::make_mut(meta).cut(before);
            }
        }
        if !self.dispatch.positions.is_live() {
            unite(&mut sensors, self.dispatch.backlog.catalog_sensors(database, wanted));
        }
        sensors
    }

    /// A page of the list of sensors. Takes what the store returned, and the catalog's version from before that read.
    /// Adds sensors that are not stored yet, and updates every document with what is acked.
    ///
    /// # Errors
    /// When readings must be read and the store fails, or acked readings are still being replayed.
    pub async fn sensors(
        &self,
        database: &str,
        filter: &SensorFilter,
        (stored, since): (Vec<SensorDocument>, CatalogVersion),
    ) -> Result<Vec<SensorDocument>, IngestError> {
        let mut documents: BTreeMap<Box<str>, SensorDocument> =
            stored.into_iter().map(|document| (document.sensor.key.clone(), document)).collect();
        let full = documents.len() >= filter.limit;
        let last = documents.last_key_value().filter(|_| full).map(|(key, _)| key.clone());
        let is_on_page = |key: &str| {
            filter.after.as_deref().is_none_or(|after| key > after) && last.as_deref().is_none_or(|last| key <= last)
        };
        self.check_replayed(database, is_on_page)?;
        for document in documents.values_mut() {
            outliers::expire(document, now_ns());
        }
        let Some(database) = self.catalog.database(database) else { return Ok(documents.into_values().collect()) };
        if !filter.outliers {
            for known in self.catalog.unstored(&database, since.additions, is_on_page) {
                documents.entry(known.sensor.key.clone()).or_insert_with(|| SensorDocument::new(known.sensor.clone()));
            }
        }
        let mut refreshed = self.refresh(&database, documents.into_values().collect()).await?;
        // Sensors that are known but never had an accepted reading.
        refreshed.retain(is_told);
        refreshed.truncate(filter.limit);
        Ok(refreshed)
    }

    /// Fails while acked readings of wanted sensors may have yet to be replayed.
    fn check_replayed(&self, database: &str, is_wanted: impl Fn(&str) -> bool) -> Result<(), Behind> {
        let is_behind = !self.member.registry_view.is_known() || self.dispatch.is_any_behind(database, is_wanted);
        if is_behind { Err(Behind) } else { Ok(()) }
    }

    /// The documents of these sensors, updated with what is acked; only of those that have readings or metadata.
    ///
    /// # Errors
    /// As [`Ingest::sensors`].
    pub async fn sensor_documents(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorDocument>, IngestError> {
        let is_asked = |key: &str| keys.binary_search(&key).is_ok();
        self.check_replayed(database, is_asked)?;
        let known = self.catalog.database(database);
        let sensor = |key: &&&str| self.catalog.sensor(known.as_ref()?, key);
        let unstored: Vec<Arc<KnownSensor>> = keys.iter().filter_map(|key| sensor(&key)).collect();
        let mut documents: BTreeMap<Box<str>, SensorDocument> = BTreeMap::new();
        for mut document in self.store.read_sensors(database, keys).await? {
            outliers::expire(&mut document, now_ns());
            documents.insert(document.sensor.key.clone(), document);
        }
        let Some(database) = known else { return Ok(documents.into_values().collect()) };
        for known in unstored {
            documents.entry(known.sensor.key.clone()).or_insert_with(|| SensorDocument::new(known.sensor.clone()));
        }
        let mut refreshed = self.refresh(&database, documents.into_values().collect()).await?;
        refreshed.retain(is_told);
        Ok(refreshed)
    }

    /// What is said of these sensors, as far as they are known: what the store has, and what is logged.
    ///
    /// # Errors
    /// If the store does not answer, or acked changes are still being replayed.
    pub async fn sensor_metas(&self, database: &str, keys: &[&str]) -> Result<HashMap<Box<str>, Meta>, IngestError> {
        self.check_replayed(database, |key| keys.contains(&key))?;
        // Before the store is read: what is stored in between is then found in both.
        let mut metas: HashMap<Box<str>, Meta> = HashMap::new();
        if let Some(known) = self.catalog.database(database) {
            for sensor in keys.iter().filter_map(|key| self.catalog.sensor(&known, key)) {
                let mut meta = known.meta.get(&sensor.sensor.key).map(|meta| Meta::clone(&meta)).unwrap_or_default();
                meta.cut(self.member.registry_view.deleted_before(database, &sensor.sensor));
                metas.insert(sensor.sensor.key.clone(), meta);
            }
        }
        for document in self.store.read_sensors(database, keys).await? {
            metas.entry(document.sensor.key.clone()).or_default().merge(&document.meta);
        }
        Ok(metas)
    }

    /// The sensors among these that have readings or metadata. The catalog alone does not tell: it also knows sensors
    /// whose readings were deleted.
    ///
    /// # Errors
    /// If the store does not answer, or acked changes are still being replayed.
    pub(super) async fn existing(&self, database: &str, keys: &[&str]) -> Result<HashSet<Box<str>>, IngestError> {
        self.check_replayed(database, |key| keys.contains(&key))?;
        let mut existing = HashSet::new();
        // Before the store is read: what is stored in between is then found in both.
        if let Some(known) = self.catalog.database(database) {
            let is_here = |key: &&&str| {
                let sensor = self.catalog.catalog_sensor(&known, key);
                let has_meta = || known.meta.get(key).is_some_and(|meta| !meta.is_without_values());
                sensor.is_some_and(|sensor| !sensor.fields.is_empty()) || has_meta()
            };
            existing.extend(keys.iter().filter(is_here).map(|key| Box::from(*key)));
        }
        let documents = self.store.read_sensors(database, keys).await?;
        existing.extend(documents.into_iter().filter(|of| !of.is_tombstone()).map(|of| of.sensor.key.clone()));
        Ok(existing)
    }

    /// Updates documents read from the store with the readings that the shards have since their last write.
    async fn refresh(
        &self,
        database: &Arc<Database>,
        documents: Vec<SensorDocument>,
    ) -> Result<Vec<SensorDocument>, IngestError> {
        let timeout = self.options.ingest.ack_timeout;
        let refreshed = tokio::time::timeout(timeout, self.refresh_in_time(database, documents)).await;
        refreshed.map_err(|_| IngestError::Timeout { waited: timeout, key: "ingest.ack_timeout" })?
    }

    async fn refresh_in_time(
        &self,
        database: &Arc<Database>,
        mut documents: Vec<SensorDocument>,
    ) -> Result<Vec<SensorDocument>, IngestError> {
        let mut by_shard: Vec<(Vec<usize>, Vec<Arc<KnownSensor>>)> =
            vec![Default::default(); self.options.ingest.shards];
        for (place, document) in documents.iter().enumerate() {
            if let Some(known) = self.catalog.sensor(database, &document.sensor.key) {
                let (places, sensors) = &mut by_shard[known.shard];
                places.push(place);
                sensors.push(known);
            }
        }
        let mut answers = Vec::new();
        for (shard, (places, sensors)) in by_shard.into_iter().enumerate().filter(|(_, (places, _))| !places.is_empty())
        {
            let (reply, answer) = oneshot::channel();
            let (database, asked) = (database.clone(), sensors.clone());
            self.dispatch.ask(shard, ShardMessage::Latest { database, sensors: asked, reply });
            answers.push((places, sensors, answer));
        }
        for (places, sensors, answer) in answers {
            let latest = answer.await.map_err(|_| IngestError::Stopping)?;
            let old = places.iter().map(|place| documents[*place].clone()).collect();
            let of = Documents { context: &self.flushes, database: &database.name };
            let fresh = of.apply_latest(&sensors, old, latest).await?;
            for (place, document) in places.into_iter().zip(fresh) {
                documents[place] = document;
            }
        }
        Ok(documents)
    }
}
