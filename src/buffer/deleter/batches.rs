//! The sensors of a deletion, a batch at a time.

use crate::bucket::deletions::SensorTest;
use crate::bucket::store::SensorFilter;
use crate::bucket::{StorageError, Store};
use crate::reading::Sensor;

/// Sensors per batch. Rewriting jobs of the database wait for a batch, and a sweep pauses after each.
const SENSORS: usize = 100;

/// The sensors that are left of a deletion.
pub enum SensorBatches<'a> {
    /// The sensors named in its records.
    Named(std::vec::IntoIter<&'a Sensor>),
    /// The sensors with a document that pass the test; all with a document if there is no test.
    Selected { test: Option<SensorTest>, after: Option<String> },
}

impl<'a> SensorBatches<'a> {
    pub const ALL: Self = Self::Selected { test: None, after: None };

    /// Returns batches of these sensors.
    pub fn of(sensors: impl Iterator<Item = &'a Sensor>) -> Self {
        Self::Named(sensors.collect::<Vec<_>>().into_iter())
    }

    /// Takes the next batch; `None` if none is left. It may be empty.
    ///
    /// # Errors
    /// If the store does not list its documents.
    pub async fn next(&mut self, store: &dyn Store, database: &str) -> Result<Option<Vec<Sensor>>, StorageError> {
        match self {
            Self::Named(left) => {
                let batch: Vec<Sensor> = left.take(SENSORS).cloned().collect();
                Ok((!batch.is_empty()).then_some(batch))
            }
            Self::Selected { test, after } => {
                let filter = SensorFilter { after: after.take(), outliers: false, limit: SENSORS };
                let documents = store.list_sensors(database, &filter).await?;
                let Some(last) = documents.last() else { return Ok(None) };
                *after = Some(last.sensor.key.to_string());
                let sensors = documents.iter().map(|document| &*document.sensor);
                let is_selected = |sensor: &&Sensor| test.as_ref().is_none_or(|test| test(sensor));
                Ok(Some(sensors.filter(is_selected).cloned().collect()))
            }
        }
    }
}
