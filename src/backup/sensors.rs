//! Reads the documents of all sensors of a database in batches.

use std::collections::VecDeque;

use super::digest::SetDigest;
use crate::bucket::store::SensorFilter;
use crate::bucket::{SensorDocument, StorageError};
use crate::store::MergedView;

/// Number of sensors in a batch.
const BATCH_SENSORS: usize = 512;

/// Reads the sensors of a database in the order of their keys.
#[derive(Debug)]
pub struct Sensors<'a> {
    store: &'a MergedView,
    database: &'a str,
    /// The key of the last sensor read.
    after: Option<String>,
    listed: VecDeque<SensorDocument>,
    is_end: bool,
}

impl<'a> Sensors<'a> {
    /// Begins at the first sensor.
    #[must_use]
    pub fn new(store: &'a MergedView, database: &'a str) -> Self {
        Self { store, database, after: None, listed: VecDeque::new(), is_end: false }
    }

    /// Returns the next sensor, or `None` at the end.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn next(&mut self) -> Result<Option<SensorDocument>, StorageError> {
        if self.listed.is_empty() {
            self.listed = self.next_batch().await?.into();
        }
        Ok(self.listed.pop_front())
    }

    /// Returns the next batch, which is empty at the end. Do not mix it with [`Self::next`].
    ///
    /// # Errors
    /// If the store fails.
    pub async fn next_batch(&mut self) -> Result<Vec<SensorDocument>, StorageError> {
        if self.is_end {
            return Ok(Vec::new());
        }
        let filter = SensorFilter { after: self.after.take(), outliers: false, limit: BATCH_SENSORS };
        let listed = self.store.list_sensors(self.database, &filter).await?;
        self.after = listed.last().map(|last| last.sensor.key.to_string());
        self.is_end = listed.is_empty();
        Ok(listed)
    }
}

/// The sensors of a database and the digest of their metadata.
#[derive(Debug, Default)]
pub struct SensorTotals {
    pub sensors: u64,
    pub metadata: SetDigest,
}

/// Counts the sensors of a database, and computes the digest of their metadata.
///
/// # Errors
/// If the store fails.
pub async fn sensor_totals(store: &MergedView, database: &str) -> Result<SensorTotals, StorageError> {
    let mut sensors = Sensors::new(store, database);
    let mut totals = SensorTotals::default();
    while let Some(document) = sensors.next().await? {
        totals.sensors += 1;
        totals.metadata += SetDigest::from_meta(&document.sensor.key, &document.meta);
    }
    Ok(totals)
}
