//! The sensors' documents, as far as a shard knows better than the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Refreshed, Refreshing, Shard, surroundings};
use crate::bucket::{Reading, SensorDocument, StorageError};
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
        let lay_over = |((place, known), (id, mut document)): ((usize, Arc<KnownSensor>), (u32, SensorDocument))| {
            let unflushed = self.unflushed.get(&database.name);
            let of_sensor = |unflushed: &Unflushed| unflushed.of_sensor(id, &(Hour(i64::MIN)..Hour(i64::MAX)));
            let unflushed = unflushed.map_or_else(Vec::new, of_sensor);
            let readings: Vec<Reading> =
                unflushed.iter().flat_map(|(_, set)| (0..set.len()).map(|i| set.reading(i))).collect();
            if !readings.is_empty() {
                self.lagging.lay_over(&mut document, &known, readings);
            }
            (place, document)
        };
        Ok(rest.into_iter().zip(documents).map(lay_over).collect())
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
