//! The traits that concern the whole file: databases, settings, the registry and disk space.

use std::sync::Arc;

use async_trait::async_trait;
use redb::{Database, ReadableDatabase};
use tokio::task::spawn_blocking;

use super::tables::{self, DATABASES, begin};
use super::{EmbeddedStore, SMALL_WRITE_BYTES, compact, remove};
use crate::bucket::registry::MemberRegistry;
use crate::bucket::store::{Coordination, DatabaseStore, MongoExtras, WriteOutcome};
use crate::bucket::{DatabaseSettings, Result, Store, StoreSpace};
use crate::free_bytes;

impl Store for EmbeddedStore {
    fn mongo_extras(self: Arc<Self>) -> Option<Arc<dyn MongoExtras>> {
        None
    }
}

#[async_trait]
impl DatabaseStore for EmbeddedStore {
    async fn databases(&self) -> Result<Vec<String>> {
        self.read(tables::databases).await
    }

    async fn create_database(&self, database: &str) -> Result<()> {
        let name = database.to_owned();
        self.run(SMALL_WRITE_BYTES, move |db| {
            if db.begin_read()?.open_table(DATABASES)?.get(&*name)?.is_none() {
                let transaction = begin(db)?;
                transaction.open_table(DATABASES)?.insert(&*name, ())?;
                transaction.commit()?;
            }
            Ok(())
        })
        .await
    }

    async fn drop_database(&self, database: &str) -> Result<()> {
        loop {
            let name = database.to_owned();
            if self.run_to_end(move |db| remove::database_rows(db, &name)).await? {
                return Ok(());
            }
        }
    }

    async fn unlist_database(&self, database: &str) -> Result<()> {
        let name = database.to_owned();
        self.run(SMALL_WRITE_BYTES, move |db| {
            let transaction = begin(db)?;
            transaction.open_table(DATABASES)?.remove(&*name)?;
            Ok(transaction.commit()?)
        })
        .await
    }

    async fn read_settings(&self) -> Result<Vec<(String, DatabaseSettings)>> {
        self.read(tables::read_settings).await
    }

    async fn write_settings(&self, database: &str, held: u64, settings: Option<&DatabaseSettings>) -> WriteOutcome {
        let name = database.to_owned();
        let settings = settings.cloned();
        let work = move |db: &Database| tables::write_settings(db, &name, held, settings.as_ref());
        let written = self.run(SMALL_WRITE_BYTES, work).await;
        written.unwrap_or_else(WriteOutcome::Failed)
    }
}

#[async_trait]
impl Coordination for EmbeddedStore {
    async fn read_registry(&self) -> Result<MemberRegistry> {
        self.read(tables::read_registry).await
    }

    async fn write_registry(&self, registry: &MemberRegistry) -> WriteOutcome {
        let registry = registry.clone();
        let written = self.run(SMALL_WRITE_BYTES, move |db| tables::write_registry(db, &registry)).await;
        written.unwrap_or_else(WriteOutcome::Failed)
    }

    /// Always false, because the file is locked for this process.
    fn has_other_writers(&self) -> bool {
        false
    }

    /// Returns `None`: the clock of this machine is the only one.
    async fn clock_ms(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Does nothing, because no other process deletes from the file.
    async fn revisit(&self, _database: &str) -> Result<()> {
        Ok(())
    }

    async fn check(&self) -> Result<()> {
        self.read(|_| Ok(())).await
    }

    async fn space(&self) -> Result<StoreSpace> {
        let path = self.path.clone();
        let measured = tokio::task::spawn_blocking(move || StoreSpace {
            taken: compact::disk_bytes(&path).ok(),
            free: free_bytes(&path).ok(),
        });
        Ok(measured.await.unwrap_or_default())
    }

    async fn close(&self) {
        let file = self.file.clone();
        // Fails only while the runtime shuts down. Nothing is lost then, because acked writes are synced.
        let _ = spawn_blocking(move || file.close()).await;
    }
}
