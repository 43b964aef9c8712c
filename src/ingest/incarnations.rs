//! Which databases another instance has deleted something of. Each deletion makes the database's incarnation in
//! the store one more; every instance looks at them again and again, and no longer believes what it knows of the
//! documents there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::catalog::Catalog;
use super::feed::Feed;
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

    /// Looks at them until it is aborted. What was deleted is released from this instance's log, too, as soon as that
    /// can be: a restart would else bring it back.
    pub async fn watch(self: Arc<Self>, store: Arc<dyn Store>, catalog: Arc<Catalog>, feed: Arc<Feed>) {
        loop {
            match store.incarnations().await {
                Ok(all) => {
                    let new = self.learn(&*store, &catalog, all).await;
                    if new {
                        feed.progress.want_released();
                        feed.wake();
                    }
                }
                // Whoever needs the store notices that it is away.
                Err(error) => tracing::debug!(%error, "other instances' deletions are not known at present"),
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Whether there were new ones.
    async fn learn(&self, store: &dyn Store, catalog: &Catalog, all: Vec<(String, u64)>) -> bool {
        let mut any = false;
        for (database, incarnation) in all {
            let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&database).copied();
            if seen.unwrap_or_default() == incarnation {
                continue;
            }
            any = true;
            catalog.doubt(&database, None);
            if let Err(error) = store.revisit(&database).await {
                tracing::warn!(%database, %error, "what another instance deleted of a database is not wholly known yet");
                continue;
            }
            // After the store was looked at: sensors that were met meanwhile may have been known from before.
            catalog.doubt(&database, None);
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(database, incarnation);
        }
        any
    }
}
