//! What queries are told beyond what the store says: readings, sensors and databases that were
//! acked and are not there yet.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::catalog::{Database, KnownSensor};
use super::error::IngestError;
use super::refresh::Documents;
use super::shard::Message;
use super::{Ingest, outliers, sensors};
use crate::bucket::store::SensorFilter;
use crate::bucket::{Behind, Changes, Met, MetVersion, SensorDocument, UnflushedHour, UnflushedReadings};
use crate::clock::now_ns;
use crate::reading::Hour;

/// Adds sensors, and fields to those that are there.
fn unite(met: &mut Vec<Met>, others: Vec<Met>) {
    let places: HashMap<Box<str>, usize> =
        met.iter().enumerate().map(|(place, met)| (met.sensor.key.clone(), place)).collect();
    for other in others {
        let Some(place) = places.get(&other.sensor.key) else {
            met.push(other);
            continue;
        };
        let here = &mut met[*place].fields;
        let new: Vec<_> =
            other.fields.into_iter().filter(|(name, _)| !here.iter().any(|(known, _)| known == name)).collect();
        here.extend(new);
    }
}

#[async_trait]
impl UnflushedReadings for Ingest {
    async fn unflushed(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
    ) -> Result<Vec<Vec<UnflushedHour>>, Behind> {
        if !self.member.agreed.is_known() || self.feed.is_behind(database, sensors, &hours) {
            return Err(Behind);
        }
        let mut all = vec![Vec::new(); sensors.len()];
        let Some(database) = self.catalog.database(database) else { return Ok(all) };
        let mut by_shard: Vec<Vec<(usize, u32)>> = vec![Vec::new(); self.options.shards];
        for (place, sensor) in sensors.iter().enumerate() {
            if let Some(known) = self.catalog.sensor(&database, sensor) {
                by_shard[known.shard].push((place, known.id));
            }
        }
        let mut answers = Vec::new();
        for (shard, ids) in by_shard.into_iter().enumerate().filter(|(_, ids)| !ids.is_empty()) {
            let (reply, answer) = oneshot::channel();
            let database = database.clone();
            self.feed.ask(shard, Message::Unflushed { database, ids, hours: hours.clone(), reply });
            answers.push(answer);
        }
        for answer in answers {
            // A shard that has ended leaves its readings to the next start.
            for (place, readings) in answer.await.map_err(|_| Behind)? {
                all[place] = readings;
            }
        }
        Ok(all)
    }

    fn met(&self, database: &str, since: MetVersion) -> Vec<Met> {
        let known = self.catalog.database(database);
        let mut met = known.map(|database| self.catalog.met(&database, since.met)).unwrap_or_default();
        if !self.feed.progress.is_live() {
            unite(&mut met, self.feed.backlog.met(database, |_| true));
        }
        met
    }

    fn met_one(&self, database: &str, sensor: &str) -> Option<Met> {
        let known = self.catalog.database(database);
        let mut met = Vec::from_iter(known.and_then(|database| self.catalog.met_one(&database, sensor)));
        if !self.feed.progress.is_live() {
            unite(&mut met, self.feed.backlog.met(database, |key| key == sensor));
        }
        met.pop()
    }

    fn databases(&self) -> Vec<String> {
        let waiting = self.catalog.databases().into_iter().filter(|database| database.is_waiting());
        let mut names: Vec<String> = waiting.map(|database| database.name.to_string()).collect();
        if !self.feed.progress.is_live() {
            names.extend(self.feed.backlog.databases());
        }
        names
    }

    fn met_version(&self, database: Option<&str>) -> Result<MetVersion, Behind> {
        let is_known = self.member.agreed.is_known() && !self.feed.is_unlisted(database);
        if is_known { Ok(self.catalog.version()) } else { Err(Behind) }
    }

    fn changes(&self) -> &Changes {
        &self.changes
    }
}

impl Ingest {
    /// A page of the list of sensors, given what the store has had of it since this version: with the sensors that are not
    /// in the store yet, and every document brought up to what is acked.
    ///
    /// # Errors
    /// When readings must be read and the store does not answer, or acked ones are still being fed.
    pub async fn sensors(
        &self,
        database: &str,
        filter: &SensorFilter,
        (stored, since): (Vec<SensorDocument>, MetVersion),
    ) -> Result<Vec<SensorDocument>, IngestError> {
        let mut documents: BTreeMap<Box<str>, SensorDocument> =
            stored.into_iter().map(|document| (document.sensor.key.clone(), document)).collect();
        let full = documents.len() >= filter.limit;
        let last = documents.last_key_value().filter(|_| full).map(|(key, _)| key.clone());
        let is_on_page = |key: &str| {
            filter.after.as_deref().is_none_or(|after| key > after) && last.as_deref().is_none_or(|last| key <= last)
        };
        if !self.member.agreed.is_known() || self.feed.is_any_behind(database, is_on_page) {
            return Err(Behind.into());
        }
        for document in documents.values_mut() {
            outliers::expire(document, now_ns(), self.options.outlier_ttl_ns());
        }
        let Some(database) = self.catalog.database(database) else { return Ok(documents.into_values().collect()) };
        if !filter.outliers {
            for known in self.catalog.unstored(&database, since.met, is_on_page) {
                documents.entry(known.sensor.key.clone()).or_insert_with(|| sensors::new_document(&known));
            }
        }
        let mut refreshed = self.refresh(&database, documents.into_values().collect()).await?;
        // Known, but nothing of it was ever kept.
        refreshed.retain(|document| document.rev > 0 || document.last_seen.is_some());
        refreshed.truncate(filter.limit);
        Ok(refreshed)
    }

    /// Brings sensors' documents, as read from the store, up to what this instance has been fed
    /// since they were last written.
    async fn refresh(
        &self,
        database: &Arc<Database>,
        documents: Vec<SensorDocument>,
    ) -> Result<Vec<SensorDocument>, IngestError> {
        let timeout = self.options.ack_timeout;
        let refreshed = tokio::time::timeout(timeout, self.refresh_in_time(database, documents)).await;
        refreshed.map_err(|_| IngestError::Timeout(timeout))?
    }

    async fn refresh_in_time(
        &self,
        database: &Arc<Database>,
        mut documents: Vec<SensorDocument>,
    ) -> Result<Vec<SensorDocument>, IngestError> {
        let mut by_shard: Vec<(Vec<usize>, Vec<Arc<KnownSensor>>)> = vec![Default::default(); self.options.shards];
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
            self.feed.ask(shard, Message::Latest { database, sensors: asked, reply });
            answers.push((places, sensors, answer));
        }
        for (places, sensors, answer) in answers {
            let latest = answer.await.map_err(|_| IngestError::Stopping)?;
            let old = places.iter().map(|place| documents[*place].clone()).collect();
            let fresh =
                Documents::new(&self.options).lay_latest(&*self.store, database, &sensors, (old, latest)).await?;
            for (place, document) in places.into_iter().zip(fresh) {
                documents[place] = document;
            }
        }
        Ok(documents)
    }
}
