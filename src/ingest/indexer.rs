//! Makes the indexes that the configuration declares, in the background, and drops those that it does not declare any more.

use std::sync::Arc;
use std::time::Duration;

use crate::bucket::StorageError;
use crate::bucket::store::MongoExtras;

/// The wait between two looks at all databases: a new one has its indexes within this time.
const PAUSE: Duration = Duration::from_secs(10);
/// The wait before a look that failed is repeated.
const RETRY: Duration = Duration::from_secs(30);

/// Runs until it is aborted; without declared indexes, until it has dropped those that were declared once.
pub async fn keep(store: Arc<dyn MongoExtras>, is_declared: bool) {
    loop {
        let settled = settle(&*store).await;
        match &settled {
            Ok(()) if !is_declared => return,
            Ok(()) => {}
            // A store that is away is reported by those who need it.
            Err(error) if error.is_away() => {}
            Err(error) => tracing::warn!(%error, "declared indexes could not be made or dropped; it is tried again"),
        }
        tokio::time::sleep(if settled.is_ok() { PAUSE } else { RETRY }).await;
    }
}

async fn settle(store: &dyn MongoExtras) -> Result<(), StorageError> {
    for database in store.databases().await? {
        store.settle_indexes(&database).await?;
    }
    Ok(())
}
