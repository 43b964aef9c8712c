//! Sensor documents: stored before the first page that needs them, and brought up to date now
//! and then with first and last seen, recent readings and the outlier mark, always by
//! compare-and-set and by the law.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::catalog::{Database, KnownSensor};
use crate::bucket::hot::HotBuckets;
use crate::bucket::store::{BucketId, Outlier, Written};
use crate::bucket::{Bucket, Reading, SensorDocument, StorageError, Store};
use crate::reading::Hour;
use crate::telemetry::Metrics;

/// How often a document is read and written anew because other instances were faster.
const ATTEMPTS_MAX: usize = 30;
/// How many documents are brought up to date at a time.
const BATCH: usize = 500;

/// What became of a sensor since its document was last written.
#[derive(Debug)]
pub struct Change {
    known: Arc<KnownSensor>,
    /// Times of the earliest and latest reading stored since.
    seen: Option<(i64, i64)>,
    /// The latest hours written to: as many as a document holds readings, since each of them has
    /// at least one, so no earlier hour can matter to the recent ones.
    hours: BTreeSet<Hour>,
    /// The latest hour that took more than one page, and its pages.
    outlier: Option<(Hour, u32)>,
}

/// The sensors of one shard whose documents lag behind.
#[derive(Debug)]
pub struct Lagging {
    changes: HashMap<u32, (Arc<Database>, Change)>,
    /// Sensors whose bucket just outgrew its page: they are to be listed as outliers at once.
    urgent: BTreeSet<u32>,
    recent: usize,
    outlier_ttl_ns: i64,
}

impl Lagging {
    /// None yet; documents hold the `recent` latest readings.
    pub fn new(recent: usize, outlier_ttl: std::time::Duration) -> Self {
        let outlier_ttl_ns = i64::try_from(outlier_ttl.as_nanos()).unwrap_or(i64::MAX);
        Self { changes: HashMap::new(), urgent: BTreeSet::new(), recent, outlier_ttl_ns }
    }

    /// Notes that readings were stored in a bucket, which had so many pages before.
    pub fn note(
        &mut self,
        database: &Arc<Database>,
        known: &Arc<KnownSensor>,
        id: &BucketId,
        bucket: &Bucket,
        pages_before: usize,
    ) {
        let times =
            bucket.pages().iter().filter_map(|p| Some((*p.readings.times().first()?, *p.readings.times().last()?)));
        let Some((first, last)) = times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else { return };
        let new = || Change { known: known.clone(), seen: None, hours: BTreeSet::new(), outlier: None };
        let (_, change) = self.changes.entry(known.id).or_insert_with(|| (database.clone(), new()));
        change.seen = Some(change.seen.map_or((first, last), |(f, l)| (f.min(first), l.max(last))));
        change.hours.insert(id.hour);
        if change.hours.len() > self.recent.max(1) {
            change.hours.pop_first();
        }
        if let (Ok(pages @ 2..), true) =
            (u32::try_from(bucket.pages().len()), change.outlier.is_none_or(|(hour, _)| hour <= id.hour))
        {
            change.outlier = Some((id.hour, pages));
        }
        if pages_before < 2 && bucket.pages().len() > 1 {
            self.urgent.insert(known.id);
        }
    }

    /// How many lag behind.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Writes all lagging documents. What cannot be written stays lagging.
    ///
    /// # Errors
    /// The first failure; the rest is not tried, since the store is away.
    pub async fn write(
        &mut self,
        store: &dyn Store,
        hot: &HotBuckets,
        metrics: &Metrics,
        now: i64,
    ) -> Result<(), StorageError> {
        let all = self.changes.keys().copied().collect();
        self.write_some(store, hot, metrics, now, all).await
    }

    /// Writes the documents of sensors that have just become outliers.
    ///
    /// # Errors
    /// As [`Lagging::write`].
    pub async fn write_urgent(
        &mut self,
        store: &dyn Store,
        hot: &HotBuckets,
        metrics: &Metrics,
        now: i64,
    ) -> Result<(), StorageError> {
        let urgent = std::mem::take(&mut self.urgent);
        self.write_some(store, hot, metrics, now, urgent).await
    }

    async fn write_some(
        &mut self,
        store: &dyn Store,
        hot: &HotBuckets,
        metrics: &Metrics,
        now: i64,
        ids: BTreeSet<u32>,
    ) -> Result<(), StorageError> {
        let mut by_database: BTreeMap<Box<str>, Vec<u32>> = BTreeMap::new();
        for id in ids {
            let (database, _) = &self.changes[&id];
            by_database.entry(database.name.clone()).or_default().push(id);
        }
        for (database, ids) in by_database {
            for ids in ids.chunks(BATCH) {
                let mut open = ids.to_vec();
                for _ in 0..ATTEMPTS_MAX {
                    open = self.write_batch(store, hot, &database, open, now).await?;
                    if open.is_empty() {
                        break;
                    }
                }
                metrics.sensor_writes.increment((ids.len() - open.len()) as u64);
            }
        }
        Ok(())
    }

    /// Reads, refreshes and writes some documents; returns those that others changed meanwhile.
    async fn write_batch(
        &mut self,
        store: &dyn Store,
        hot: &HotBuckets,
        database: &str,
        ids: Vec<u32>,
        now: i64,
    ) -> Result<Vec<u32>, StorageError> {
        let known: HashMap<Box<str>, u32> =
            ids.iter().map(|id| (self.changes[id].1.known.sensor.key.clone(), *id)).collect();
        let keys: Vec<&str> = known.keys().map(|key| &**key).collect();
        let stored = store.read_sensors(database, &keys).await?;
        let mut documents: Vec<(u32, SensorDocument)> =
            stored.into_iter().filter_map(|d| Some((*known.get(&d.sensor.key)?, d))).collect();
        for id in &ids {
            if !documents.iter().any(|(found, _)| found == id) {
                documents.push((*id, new_document(&self.changes[id].1.known)));
            }
        }
        self.refresh(store, hot, database, &mut documents, now).await?;
        let (ids, documents): (Vec<u32>, Vec<SensorDocument>) = documents.into_iter().unzip();
        let mut open = Vec::new();
        for (id, written) in ids.into_iter().zip(store.write_sensors(database, &documents).await) {
            match written {
                Written::Yes => drop(self.changes.remove(&id)),
                Written::Conflict => open.push(id),
                Written::Failed(error) => return Err(error),
            }
        }
        Ok(open)
    }

    /// Brings documents up to what was stored since they were written; reads buckets that are not
    /// hot any more.
    ///
    /// # Errors
    /// When those cannot be read.
    pub async fn refresh(
        &self,
        store: &dyn Store,
        hot: &HotBuckets,
        database: &str,
        documents: &mut [(u32, SensorDocument)],
        now: i64,
    ) -> Result<(), StorageError> {
        let lagging = |id: &u32| self.changes.get(id).map(|(_, change)| change);
        let mut cold: Vec<(u32, BucketId)> = Vec::new();
        for (id, change) in documents.iter().filter_map(|(id, _)| Some((id, lagging(id)?))) {
            let missing = change.hours.iter().filter(|hour| hot.get((*id, **hour)).is_none());
            cold.extend(missing.map(|hour| (*id, BucketId { sensor: change.known.sensor.clone(), hour: *hour })));
        }
        let ids: Vec<BucketId> = cold.iter().map(|(_, id)| id.clone()).collect();
        let read = if ids.is_empty() { Vec::new() } else { store.read_buckets(database, &ids).await? };
        let read: HashMap<(u32, Hour), Bucket> =
            cold.iter().zip(read).map(|((id, b), pages)| ((*id, b.hour), Bucket::from_stored(pages))).collect();
        for (id, document) in documents {
            if let Some(change) = lagging(id) {
                let buckets = change.hours.iter().filter_map(|h| hot.get((*id, *h)).or_else(|| read.get(&(*id, *h))));
                self.bring_up_to_date(document, change, buckets, now);
            }
            if document.outlier.is_some_and(|o| now.saturating_sub(o.seen) > self.outlier_ttl_ns) {
                document.outlier = None;
            }
        }
        Ok(())
    }

    fn bring_up_to_date<'a>(
        &self,
        document: &mut SensorDocument,
        change: &Change,
        buckets: impl Iterator<Item = &'a Bucket>,
        now: i64,
    ) {
        let fields = change.known.fields();
        for (name, family) in fields.names.iter().zip(&fields.families) {
            if !document.fields.iter().any(|(known, _)| known == name) {
                document.fields.push((name.clone(), *family));
            }
        }
        if let Some((first, last)) = change.seen {
            document.first_seen = Some(document.first_seen.map_or(first, |seen| seen.min(first)));
            document.last_seen = Some(document.last_seen.map_or(last, |seen| seen.max(last)));
        }
        let mut recent: BTreeMap<i64, Reading> = document.recent.drain(..).map(|r| (r.time, r)).collect();
        for bucket in buckets {
            recent.extend(bucket.tail(self.recent).into_iter().map(|reading| (reading.time, reading)));
        }
        let surplus = recent.len().saturating_sub(self.recent);
        document.recent = recent.into_values().skip(surplus).collect();
        if let Some((hour, pages)) = change.outlier {
            let before = document.outlier.filter(|outlier| outlier.last_hour > hour);
            document.outlier = Some(Outlier {
                since: document.outlier.map_or(now, |outlier| outlier.since),
                seen: now,
                last_hour: before.map_or(hour, |outlier| outlier.last_hour),
                pages: before.map_or(pages, |outlier| outlier.pages),
            });
        }
    }
}

fn new_document(known: &KnownSensor) -> SensorDocument {
    SensorDocument {
        sensor: known.sensor.clone(),
        rev: 0,
        fields: Vec::new(),
        first_seen: None,
        last_seen: None,
        recent: Vec::new(),
        outlier: None,
    }
}

/// Stores the documents of sensors that are new or have new fields, before any page of theirs.
/// Returns those that could not be stored, and why.
pub async fn store_before_pages(
    store: &dyn Store,
    database: &str,
    sensors: Vec<Arc<KnownSensor>>,
    metrics: &Metrics,
) -> HashMap<u32, StorageError> {
    // Most are new: they are inserted unseen, and only what turns out to be there is read.
    let (unseen, seen): (Vec<_>, Vec<_>) = sensors.into_iter().partition(|known| !known.fields().stored);
    let mut failed = HashMap::new();
    let inserts = unseen.iter().map(|known| (known.clone(), new_document(known))).collect();
    let mut open = store_fields(store, database, inserts, metrics, &mut failed).await;
    open.extend(seen);
    for _ in 0..ATTEMPTS_MAX {
        if open.is_empty() {
            return failed;
        }
        let keys: Vec<&str> = open.iter().map(|known| &*known.sensor.key).collect();
        let documents = match store.read_sensors(database, &keys).await {
            Ok(documents) => documents,
            Err(error) => {
                failed.extend(open.iter().map(|known| (known.id, error.clone())));
                return failed;
            }
        };
        let mut stored: HashMap<Box<str>, SensorDocument> =
            documents.into_iter().map(|document| (document.sensor.key.clone(), document)).collect();
        let document_of = |known: Arc<KnownSensor>| {
            let document = stored.remove(&known.sensor.key).unwrap_or_else(|| new_document(&known));
            (known, document)
        };
        let documents = open.into_iter().map(document_of).collect();
        open = store_fields(store, database, documents, metrics, &mut failed).await;
    }
    let detail = "a sensor's document was changed by others again and again".to_owned();
    failed.extend(open.iter().map(|known| (known.id, StorageError::Unavailable { detail: detail.clone() })));
    failed
}

/// Adds each sensor's fields to its document and writes those that gained one; returns those that
/// others changed meanwhile.
async fn store_fields(
    store: &dyn Store,
    database: &str,
    sensors: Vec<(Arc<KnownSensor>, SensorDocument)>,
    metrics: &Metrics,
    failed: &mut HashMap<u32, StorageError>,
) -> Vec<Arc<KnownSensor>> {
    let (mut writers, mut documents) = (Vec::new(), Vec::new());
    for (known, mut document) in sensors {
        let (fields, before) = (known.fields(), document.fields.len());
        for (name, family) in fields.names.iter().zip(&fields.families) {
            if !document.fields.iter().any(|(stored, _)| stored == name) {
                document.fields.push((name.clone(), *family));
            }
        }
        if document.rev > 0 && document.fields.len() == before {
            known.adopt(&document);
        } else {
            writers.push(known);
            documents.push(document);
        }
    }
    if documents.is_empty() {
        return Vec::new();
    }
    let mut open = Vec::new();
    let written = store.write_sensors(database, &documents).await;
    for ((known, document), written) in writers.into_iter().zip(&documents).zip(written) {
        match written {
            Written::Yes => {
                metrics.sensor_writes.increment(1);
                known.adopt(document);
            }
            Written::Conflict => open.push(known),
            Written::Failed(error) => drop(failed.insert(known.id, error)),
        }
    }
    open
}
