//! Which databases another instance has deleted something of. Each deletion makes the database's incarnation in
//! the store one more; every instance looks at them again and again, and no longer believes what it knows of the
//! documents there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::catalog::Catalog;
use crate::bucket::{StorageError, Store};

/// How often they are looked at: others' deletions are known within 5 s, the store's answer included.
const INTERVAL: Duration = Duration::from_secs(2);

/// The incarnations last seen.
#[derive(Debug, Default)]
pub struct Incarnations(Mutex<HashMap<String, u64>>);

impl Incarnations {
    /// Tells other instances of a deletion, and takes no notice of it here.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn announce(&self, store: &dyn Store, database: &str) -> Result<(), StorageError> {
        let now = store.announce_deletion(database).await?;
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Another one's that came between is still to be noticed.
        if seen.get(database).copied().unwrap_or_default() + 1 == now {
            seen.insert(database.to_owned(), now);
        }
        Ok(())
    }

    /// Looks at them until it is aborted.
    pub async fn watch(self: Arc<Self>, store: Arc<dyn Store>, catalog: Arc<Catalog>) {
        loop {
            // Whoever needs the store notices that it is away.
            if let Err(error) = self.look(&*store, &catalog).await {
                tracing::debug!(%error, "other instances' deletions are not known at present");
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn look(&self, store: &dyn Store, catalog: &Catalog) -> Result<(), StorageError> {
        for (database, incarnation) in store.incarnations().await? {
            let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&database).copied();
            if seen.unwrap_or_default() == incarnation {
                continue;
            }
            catalog.doubt(&database, None);
            store.revisit(&database).await?;
            // After the store was looked at: sensors that were met meanwhile may have been known from before.
            catalog.doubt(&database, None);
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(database, incarnation);
        }
        Ok(())
    }
}
