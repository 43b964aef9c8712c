//! Measures the space of the log's disk and of the store, for the metrics: apart from scrapes, which must not wait for a
//! disk or for MongoDB.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::bucket::Store;
use crate::store::free_bytes;
use crate::telemetry::Metrics;

/// How often the log's disk is looked at.
const WAL_INTERVAL: Duration = Duration::from_secs(10);
/// How often the store is asked, which makes MongoDB look at all of its collections.
const STORE_INTERVAL: Duration = Duration::from_secs(60);

/// Sets the metrics again and again.
pub async fn watch(store: Arc<dyn Store>, wal_dir: PathBuf, metrics: Metrics) {
    tokio::join!(watch_wal(wal_dir, &metrics), watch_store(store, &metrics));
}

async fn watch_wal(folder: PathBuf, metrics: &Metrics) {
    loop {
        let folder = folder.clone();
        let free = tokio::task::spawn_blocking(move || free_bytes(&folder).ok()).await;
        metrics.wal_disk(free.ok().flatten());
        tokio::time::sleep(WAL_INTERVAL).await;
    }
}

async fn watch_store(store: Arc<dyn Store>, metrics: &Metrics) {
    loop {
        let space = store.space().await.unwrap_or_else(|error| {
            // The health check tells of a store that is away.
            tracing::debug!(%error, "the store's space is not known");
            Default::default()
        });
        metrics.store_space(space.taken, space.free);
        tokio::time::sleep(STORE_INTERVAL).await;
    }
}
