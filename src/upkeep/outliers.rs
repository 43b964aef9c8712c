//! Removes outlier marks some time after a sensor last outgrew a page, even if the sensor sends nothing more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::{Job, JobError, Run};
use crate::bucket::StorageError;
use crate::bucket::store::SensorFilter;
use crate::buffer::flush::outliers::expire;
use crate::clock::now_ns;
use crate::store::MergedView;

/// The interval at which all databases are checked.
const PAUSE: Duration = Duration::from_secs(3600);
/// Number of documents per step.
const BATCH_DOCUMENTS: usize = 500;

/// The job that removes expired outlier marks.
pub struct Outliers {
    pub store: Arc<MergedView>,
}

impl Outliers {
    /// Clears the expired marks of a batch of sensors. Returns the last sensor of the batch. A document that another
    /// writer changes at the same time keeps its mark until the next run.
    async fn clear(&self, database: &str, after: Option<String>, run: &Run) -> Result<Option<String>, StorageError> {
        let filter = SensorFilter { outliers: true, limit: BATCH_DOCUMENTS, after };
        let outliers = self.store.list_sensors(database, &filter).await?;
        let last = outliers.last().map(|document| document.sensor.key.to_string());
        let now = now_ns();
        let mut expired = Vec::new();
        for mut document in outliers {
            expire(&mut document, now);
            expired.extend(document.outlier.is_none().then_some(document));
        }
        if !expired.is_empty() {
            self.store.raw().write_sensors(database, &expired).await;
            run.count("marks", expired.len() as u64);
        }
        Ok(last)
    }
}

impl Job for Outliers {
    const NAME: &'static str = "outliers";

    fn interval(&self) -> Option<Duration> {
        Some(PAUSE)
    }

    async fn run(&mut self, run: &Run) -> Result<Option<Duration>, JobError> {
        for database in self.store.raw().databases().await? {
            let mut after = None;
            loop {
                let began = Instant::now();
                after = match self.clear(&database, after, run).await {
                    Err(error) if error.is_store_unreachable() => return Err(error.into()),
                    // An unreadable document or database keeps its marks, and does not stop the others.
                    last => last.unwrap_or_default(),
                };
                run.pause(began).await;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(None)
    }
}
