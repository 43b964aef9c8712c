//! The sensors' documents, as far as a shard knows better than the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Refreshed, Refreshing, Shard, surroundings};
use crate::bucket::store::BucketId;
use crate::bucket::{Reading, Readings, SensorDocument, StorageError};
use crate::ingest::catalog::{Database, KnownSensor};
use crate::ingest::reads::read_sensors_each;
use crate::ingest::unflushed::Unflushed;
use crate::reading::Hour;

impl Shard {
    /// Documents as they are by what this shard has been fed.
    pub(super) async fn refresh(&mut self, database: &Database, documents: Vec<Refreshing>) -> Refreshed {
        let (rest, mut documents): (Vec<_>, Vec<(u32, SensorDocument)>) = documents
            .into_iter()
            .map(|(place, known, document)| ((place, known.clone()), (known.id, document)))
            .unzip();
        self.read_anew(database, &rest, &mut documents).await?;
        let at = surroundings(&self.context, &self.hot);
        self.lagging.refresh(at, &database.name, &mut documents).await?;
        let mut refreshed = Vec::with_capacity(rest.len());
        for ((place, known), (id, mut document)) in rest.into_iter().zip(documents) {
            let all = Hour(i64::MIN)..Hour(i64::MAX);
            let of_sensor = |unflushed: &Unflushed| unflushed.of_sensor(id, &all, &self.context.agreed);
            let unflushed = self.unflushed.get(&database.name).map_or_else(Vec::new, of_sensor);
            let mut readings: Vec<Reading> = Vec::new();
            for (hour, set) in unflushed {
                let set = self.with_stored(database, &document, hour, set).await?;
                readings.extend((0..set.len()).map(|i| set.reading(i)));
            }
            if !readings.is_empty() {
                self.lagging.lay_over(&mut document, &known, readings);
            }
            refreshed.push((place, document));
        }
        Ok(refreshed)
    }

    /// Unflushed readings with what the store has beside them, where a document has readings of the same times: which of two
    /// is later only the pages know.
    async fn with_stored(
        &self,
        database: &Database,
        document: &SensorDocument,
        hour: Hour,
        unflushed: Readings,
    ) -> Result<Readings, StorageError> {
        if !document.recent.iter().any(|reading| unflushed.find(reading.time).is_some()) {
            return Ok(unflushed);
        }
        let id = BucketId { sensor: document.sensor.clone(), hour };
        let mut stored = Readings::default();
        for page in self.context.store.read_buckets(&database.name, &[id]).await?.into_iter().flatten() {
            stored.merge_set(&page.readings);
        }
        stored.merge_set(&unflushed);
        Ok(stored)
    }

    /// Reads those documents again that this shard has written since they were read.
    async fn read_anew(
        &self,
        database: &Database,
        known: &[(usize, Arc<KnownSensor>)],
        documents: &mut [(u32, SensorDocument)],
    ) -> Result<(), StorageError> {
        let written = |known: &KnownSensor| known.written_rev.load(Ordering::Relaxed);
        let (mut keys, mut stale) = (Vec::new(), Vec::new());
        for ((_, known), (_, document)) in known.iter().zip(documents) {
            if document.rev < written(known) {
                keys.push(&*known.sensor.key);
                stale.push(document);
            }
        }
        if keys.is_empty() {
            return Ok(());
        }
        let mut read = read_sensors_each(&*self.context.store, &database.name, &keys).await?;
        for document in stale {
            if let Some(anew) = read.remove(&document.sensor.key) {
                *document = anew?;
            }
        }
        Ok(())
    }

    /// Brings some documents that lag behind up to date; whether there are more that may be written now.
    pub(super) async fn write_some_sensors(&mut self) -> bool {
        self.lagging.write_some(surroundings(&self.context, &self.hot)).await
    }
}
