//! Outlier marks of sensors: removed some time after the sensor last outgrew a page, also from sensors that have gone
//! silent.

use std::sync::Arc;
use std::time::Duration;

use crate::bucket::store::SensorFilter;
use crate::bucket::{SensorDocument, StorageError};
use crate::clock::now_ns;
use crate::store::MergedView;
use crate::telemetry::Metrics;

/// How often expired marks are searched.
const SWEEP_INTERVAL: Duration = Duration::from_secs(3600);
/// Documents per batch.
const BATCH: usize = 500;

/// Removes an expired outlier mark.
pub fn expire(document: &mut SensorDocument, now: i64, ttl_ns: i64) {
    document.outlier = document.outlier.filter(|outlier| now.saturating_sub(outlier.seen) <= ttl_ns);
}

/// Clears a database's expired marks. A document that another writer changes meanwhile keeps its mark until next time.
async fn clear_expired(store: &MergedView, database: &str, now: i64, ttl_ns: i64) -> Result<(), StorageError> {
    let mut filter = SensorFilter { outliers: true, limit: BATCH, after: None };
    loop {
        let outliers = store.list_sensors(database, &filter).await?;
        let Some(last) = outliers.last() else { return Ok(()) };
        filter.after = Some(last.sensor.key.to_string());
        let mut expired = Vec::new();
        for mut document in outliers {
            expire(&mut document, now, ttl_ns);
            expired.extend(document.outlier.is_none().then_some(document));
        }
        if !expired.is_empty() {
            store.raw().write_sensors(database, &expired).await;
        }
    }
}

/// Clears the expired marks of all databases once an hour.
pub async fn sweep(store: Arc<MergedView>, ttl_ns: i64, metrics: Metrics) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let sweep = async {
            for database in store.raw().databases().await? {
                match clear_expired(&*store, &database, now_ns(), ttl_ns).await {
                    Err(error) if error.is_of_store() => return Err(error),
                    // A document or a database that cannot be read keeps its marks and does not stop the others.
                    cleared => cleared.unwrap_or_default(),
                }
            }
            Ok::<(), StorageError>(())
        };
        if let Err(error) = sweep.await {
            metrics.store_error(error.class());
            tracing::warn!(%error, "expired outlier marks could not be cleared; retrying in an hour");
        }
    }
}
