//! The documents of all sensors of a database, some at a time.

use std::collections::VecDeque;

use super::digest::SetDigest;
use crate::bucket::store::SensorFilter;
use crate::bucket::{SensorDocument, StorageError};
use crate::store::MergedView;

/// Sensors that are listed at a time.
const LISTED: usize = 512;

/// The sensors of a database in the order of their keys.
#[derive(Debug)]
pub struct Sensors<'a> {
    store: &'a MergedView,
    database: &'a str,
    /// The last sensor that was listed.
    after: Option<String>,
    listed: VecDeque<SensorDocument>,
    is_end: bool,
}

impl<'a> Sensors<'a> {
    /// Begins to list.
    #[must_use]
    pub fn new(store: &'a MergedView, database: &'a str) -> Self {
        Self { store, database, after: None, listed: VecDeque::new(), is_end: false }
    }

    /// The next sensor; `None` at the end.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn next(&mut self) -> Result<Option<SensorDocument>, StorageError> {
        if self.listed.is_empty() {
            self.listed = self.some().await?.into();
        }
        Ok(self.listed.pop_front())
    }

    /// The next sensors; none at the end. Not to be mixed with [`Self::next`].
    ///
    /// # Errors
    /// If the store fails.
    pub async fn some(&mut self) -> Result<Vec<SensorDocument>, StorageError> {
        if self.is_end {
            return Ok(Vec::new());
        }
        let filter = SensorFilter { after: self.after.take(), outliers: false, limit: LISTED };
        let listed = self.store.list_sensors(self.database, &filter).await?;
        self.after = listed.last().map(|last| last.sensor.key.to_string());
        self.is_end = listed.is_empty();
        Ok(listed)
    }
}

/// How many sensors a database has, and the digest of their metadata.
///
/// # Errors
/// If the store fails.
pub async fn described(store: &MergedView, database: &str) -> Result<(u64, SetDigest), StorageError> {
    let (mut sensors, mut count, mut set) = (Sensors::new(store, database), 0, SetDigest::default());
    while let Some(document) = sensors.next().await? {
        count += 1;
        set += SetDigest::of_meta(&document.sensor.key, &document.meta);
    }
    Ok((count, set))
}
