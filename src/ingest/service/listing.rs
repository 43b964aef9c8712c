//! Provides queries with readings, sensors and databases that are acked but not stored yet.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::Ingest;
use crate::bucket::store::SensorFilter;
use crate::bucket::{
    CatalogSensor, CatalogVersion, HourVersions, Meta, SensorDocument, UnflushedError, UnflushedHour, UnflushedReadings,
};
use crate::buffer::flush::documents::Documents;
use crate::buffer::flush::outliers;
use crate::buffer::shard::ShardMessage;
use crate::catalog::{Database, KnownSensor};
use crate::clock::now_ns;
use crate::ingest::admission::owners::OnPage;
use crate::ingest::error::IngestError;
use crate::reading::{Hour, Sensor};

/// Merges sensors into a list, field by field.
pub fn merge_sensors(sensors: &mut Vec<CatalogSensor>, others: Vec<CatalogSensor>) {
    let index_by_key: HashMap<Box<str>, usize> =
        sensors.iter().enumerate().map(|(index, known)| (known.sensor.key.clone(), index)).collect();
    for other in others {
        let Some(index) = index_by_key.get(&other.sensor.key) else {
            sensors.push(other);
            continue;
        };
        let fields = &mut sensors[*index].fields;
        let new_fields: Vec<_> =
            other.fields.into_iter().filter(|(name, _)| !fields.iter().any(|(known, _)| known == name)).collect();
        fields.extend(new_fields);
    }
}

/// Returns true if the sensor has, or had, readings or metadata. Only such sensors are listed.
fn is_listed(document: &SensorDocument) -> bool {
    document.rev > 0 || document.last_seen.is_some() || !document.meta.is_without_values()
}

#[async_trait]
impl UnflushedReadings for Ingest {
    async fn unflushed(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
    ) -> Result<Vec<Vec<UnflushedHour>>, UnflushedError> {
        if !self.member.registry_view.is_known() || self.dispatch.is_behind(database, sensors, &hours) {
            return Err(UnflushedError::Replaying);
        }
        let mut all = vec![Vec::new(); sensors.len()];
        let Some(database) = self.catalog.database(database) else { return Ok(all) };
        // The index in `sensors` and the id of each known sensor, by shard.
        let mut by_shard: Vec<Vec<(usize, u32)>> = vec![Vec::new(); self.options.ingest.shards];
        for (index, sensor) in sensors.iter().enumerate() {
            if let Some(known) = self.catalog.sensor(&database, sensor) {
                by_shard[known.shard].push((index, known.id));
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
            for sensor in answer.await.map_err(|_| UnflushedError::Replaying)? {
                all[sensor.index] = sensor.hours;
            }
        }
        Ok(all)
    }

    fn catalog_sensors(&self, database: &str, since_version: CatalogVersion) -> Vec<CatalogSensor> {
        let known = self.catalog.database(database);
        let sensors = known.map(|database| self.catalog.catalog_sensors(&database, since_version.additions));
        self.with_backlog(database, sensors.unwrap_or_default(), |_| true)
    }

    fn catalog_sensor(&self, database: &str, sensor: &str) -> Option<CatalogSensor> {
        let known = self.catalog.database(database);
        let known = known.and_then(|database| self.catalog.catalog_sensor(&database, sensor));
        self.with_backlog(database, Vec::from_iter(known), |key| key == sensor).pop()
    }

    fn databases(&self) -> Vec<String> {
        let unstored = self.catalog.databases().into_iter().filter(|database| database.has_unflushed());
        let mut names: Vec<String> = unstored.map(|database| database.name.to_string()).collect();
        if !self.dispatch.positions.is_live() {
            names.extend(self.dispatch.backlog.databases());
        }
        names
    }

    fn catalog_version(&self, database: Option<&str>) -> Result<CatalogVersion, UnflushedError> {
        let is_known = self.member.registry_view.is_known() && !self.dispatch.is_unlisted(database);
        if is_known { Ok(self.catalog.version()) } else { Err(UnflushedError::Replaying) }
    }

    fn changes(&self) -> &HourVersions {
        &self.flushes.changes
    }
}

impl Ingest {
    /// Removes new metadata that a deletion of any instance covers, and adds the wanted sensors of the backlog.
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
            merge_sensors(&mut sensors, self.dispatch.backlog.catalog_sensors(database, wanted));
        }
        sensors
    }

    /// Completes a page of the list of sensors. `stored` are the documents that the store returned, and `since` is the
    /// catalog's version before that read. Adds sensors that are not stored yet, and updates every document with acked
    /// readings and metadata.
    ///
    /// # Errors
    /// If readings must be read and the store fails, or acked readings are still being replayed.
    pub async fn sensors(
        &self,
        database: &str,
        filter: &SensorFilter,
        stored: Vec<SensorDocument>,
        since: CatalogVersion,
    ) -> Result<Vec<SensorDocument>, IngestError> {
        let mut documents: BTreeMap<Box<str>, SensorDocument> =
            stored.into_iter().map(|document| (document.sensor.key.clone(), document)).collect();
        let is_full = documents.len() >= filter.limit;
        let last = documents.last_key_value().filter(|_| is_full).map(|(key, _)| key.clone());
        let is_on_page = |key: &str| {
            filter.after.as_deref().is_none_or(|after| key > after) && last.as_deref().is_none_or(|last| key <= last)
        };
        self.check_replayed(database, is_on_page)?;
        for document in documents.values_mut() {
            outliers::expire(document, now_ns());
        }
        let Some(database) = self.catalog.database(database) else { return Ok(documents.into_values().collect()) };
        if !filter.outliers {
            for known in self.catalog.list_unstored(&database, since.additions, is_on_page) {
                documents.entry(known.sensor.key.clone()).or_insert_with(|| SensorDocument::new(known.sensor.clone()));
            }
        }
        let mut refreshed = self.refresh(&database, documents.into_values().collect()).await?;
        if !filter.outliers {
            refreshed = self.complete(&database.name, refreshed, Some(&is_on_page)).await?;
        }
        // Drop sensors that are known but never had an accepted reading.
        refreshed.retain(is_listed);
        refreshed.truncate(filter.limit);
        Ok(refreshed)
    }

    /// Adds what other instances have not stored.
    async fn complete(
        &self,
        database: &str,
        documents: Vec<SensorDocument>,
        on_page: Option<OnPage<'_>>,
    ) -> Result<Vec<SensorDocument>, IngestError> {
        let Some(owners) = self.submitter.owners.get() else { return Ok(documents) };
        let by_key = documents.into_iter().map(|document| (document.sensor.key.clone(), document));
        let mut documents: BTreeMap<Box<str>, SensorDocument> = by_key.collect();
        owners.complete(database, &mut documents, on_page).await?;
        Ok(documents.into_values().collect())
    }

    /// Returns the documents of those of the sensors whose stored ones lack something that this instance has acked.
    ///
    /// # Errors
    /// As [`Ingest::sensors`].
    pub(crate) async fn outdated_documents(
        &self,
        database: &str,
        keys: &[&str],
    ) -> Result<Vec<SensorDocument>, IngestError> {
        let Some(known) = self.catalog.database(database) else { return Ok(Vec::new()) };
        // A document that could not be written within its interval is written with the next one.
        let recent = 3 * i64::try_from(self.options.sensors.write_interval.as_secs()).unwrap_or(i64::MAX / 3);
        let is_outdated = |key: &&str| self.catalog.sensor(&known, key).is_some_and(|known| known.is_outdated(recent));
        let mut outdated: Vec<&str> = keys.iter().copied().filter(is_outdated).collect();
        if !self.dispatch.positions.is_live() {
            outdated = keys.to_vec();
        }
        outdated.sort_unstable();
        self.own_documents(database, &outdated).await
    }

    /// Fails while acked readings of wanted sensors may still have to be replayed.
    pub(super) fn check_replayed(
        &self,
        database: &str,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<(), UnflushedError> {
        let is_behind = !self.member.registry_view.is_known() || self.dispatch.is_any_behind(database, is_wanted);
        if is_behind { Err(UnflushedError::Replaying) } else { Ok(()) }
    }

    /// Returns the documents of those of the sensors that have readings or metadata, updated with acked ones. `keys`
    /// must be sorted.
    ///
    /// # Errors
    /// As [`Ingest::sensors`].
    pub async fn sensor_documents(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorDocument>, IngestError> {
        let mut documents = self.own_documents(database, keys).await?;
        if self.submitter.owners.get().is_some() {
            let missing: Vec<&str> = keys
                .iter()
                .copied()
                .filter(|key| documents.binary_search_by(|known| (*known.sensor.key).cmp(key)).is_err())
                .collect();
            documents.extend(missing.into_iter().filter_map(Sensor::from_key).map(Arc::new).map(SensorDocument::new));
            documents = self.complete(database, documents, None).await?;
            documents.retain(is_listed);
        }
        Ok(documents)
    }

    /// As [`Ingest::sensor_documents`], without what other instances have not stored.
    async fn own_documents(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorDocument>, IngestError> {
        let is_wanted = |key: &str| keys.binary_search(&key).is_ok();
        self.check_replayed(database, is_wanted)?;
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
        refreshed.retain(is_listed);
        Ok(refreshed)
    }

    /// Returns the stored and logged metadata of those of the sensors that are known, by key.
    ///
    /// # Errors
    /// If the store does not answer, or acked changes are still being replayed.
    pub async fn sensor_metas(&self, database: &str, keys: &[&str]) -> Result<HashMap<Box<str>, Meta>, IngestError> {
        self.check_replayed(database, |key| keys.contains(&key))?;
        // Read the catalog before the store, so that a change that is stored in between is not missed.
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

    /// Returns those of the sensors that have readings or metadata. The catalog alone is not enough, because it also
    /// has sensors whose readings were deleted.
    ///
    /// # Errors
    /// If the store does not answer, or acked changes are still being replayed.
    pub(super) async fn existing(&self, database: &str, keys: &[&str]) -> Result<HashSet<Box<str>>, IngestError> {
        self.check_replayed(database, |key| keys.contains(&key))?;
        let mut existing = HashSet::new();
        // Read the catalog before the store, so that a change that is stored in between is not missed.
        if let Some(known) = self.catalog.database(database) {
            let is_here = |key: &&&str| {
                let sensor = self.catalog.catalog_sensor(&known, key);
                let has_meta = || known.meta.get(key).is_some_and(|meta| !meta.is_without_values());
                sensor.is_some_and(|sensor| !sensor.fields.is_empty()) || has_meta()
            };
            existing.extend(keys.iter().filter(is_here).map(|key| Box::from(*key)));
        }
        let documents = self.store.read_sensors(database, keys).await?;
        let with_data = documents.into_iter().filter(|document| !document.is_tombstone());
        existing.extend(with_data.map(|document| document.sensor.key.clone()));
        Ok(existing)
    }

    /// Updates documents that were read from the store with the unflushed readings of the shards.
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
        /// The sensors of one shard, with the indexes of their documents.
        #[derive(Clone, Default)]
        struct ShardSensors {
            indexes: Vec<usize>,
            sensors: Vec<Arc<KnownSensor>>,
        }
        let mut by_shard: Vec<ShardSensors> = vec![ShardSensors::default(); self.options.ingest.shards];
        for (index, document) in documents.iter().enumerate() {
            if let Some(known) = self.catalog.sensor(database, &document.sensor.key) {
                let of_shard = &mut by_shard[known.shard];
                of_shard.indexes.push(index);
                of_shard.sensors.push(known);
            }
        }
        // Ask all shards before waiting for any of them.
        let mut answers = Vec::new();
        for (shard, ShardSensors { indexes, sensors }) in by_shard.into_iter().enumerate() {
            if indexes.is_empty() {
                continue;
            }
            let (reply, answer) = oneshot::channel();
            let message = ShardMessage::Latest { database: database.clone(), sensors: sensors.clone(), reply };
            self.dispatch.ask(shard, message);
            answers.push((indexes, sensors, answer));
        }
        for (indexes, sensors, answer) in answers {
            let latest = answer.await.map_err(|_| IngestError::Stopping)?;
            let old = indexes.iter().map(|index| documents[*index].clone()).collect();
            let updater = Documents { context: &self.flushes, database: &database.name };
            let fresh = updater.apply_latest(&sensors, old, latest).await?;
            for (index, document) in indexes.into_iter().zip(fresh) {
                documents[index] = document;
            }
        }
        Ok(documents)
    }
}
