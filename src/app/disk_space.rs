//! Measures the space of the WAL's disk and of the store for the metrics. It runs in a task of its own, because scrapes
//! must not wait for a disk or for MongoDB.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::blocking;
use crate::bucket::Store;
use crate::store::free_bytes;
use crate::telemetry::Metrics;

/// Interval at which the disk of the WAL is measured.
const WAL_INTERVAL: Duration = Duration::from_secs(10);
/// Interval at which the store is measured. With MongoDB, this reads the statistics of all collections.
const STORE_INTERVAL: Duration = Duration::from_secs(60);

/// Updates the metrics at an interval. Never returns.
pub async fn watch(store: Arc<dyn Store>, wal_dir: PathBuf, metrics: Metrics) {
    tokio::join!(watch_wal(wal_dir, &metrics), watch_store(store, &metrics));
}

async fn watch_wal(folder: PathBuf, metrics: &Metrics) {
    loop {
        let folder = folder.clone();
        let free = blocking::spawn(move || free_bytes(&folder).ok()).await;
        metrics.wal_disk(free.ok().flatten());
        tokio::time::sleep(WAL_INTERVAL).await;
    }
}

async fn watch_store(store: Arc<dyn Store>, metrics: &Metrics) {
    loop {
        let space = store.space().await.unwrap_or_else(|error| {
            // The health check reports an unavailable store.
            tracing::debug!(%error, "the space of the store is unknown");
            Default::default()
        });
        metrics.store_space(space.taken, space.free);
        tokio::time::sleep(STORE_INTERVAL).await;
    }
}
