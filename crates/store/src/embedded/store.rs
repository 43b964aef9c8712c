//! The databases of the embedded store, and what else is about the whole file. `pages`, `days` and `sensors` implement the other traits.

use std::sync::Arc;

use async_trait::async_trait;
use redb::ReadableDatabase;
use tokio::task::spawn_blocking;

use super::tables::{self, DATABASES, begin};
use super::{EmbeddedStore, SMALL_BYTES, compact, remove};
use crate::bucket::registry::MemberRegistry;
use crate::bucket::store::{Coordination, DatabaseStore, MongoExtras, Written};
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
        self.run(SMALL_BYTES, move |db| {
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
            if self.run_to_its_end(move |db| remove::part_of_database(db, &name)).await? {
                return Ok(());
            }
        }
    }

    async fn unlist_database(&self, database: &str) -> Result<()> {
        let name = database.to_owned();
        self.run(SMALL_BYTES, move |db| {
            let transaction = begin(db)?;
            transaction.open_table(DATABASES)?.remove(&*name)?;
            Ok(transaction.commit()?)
        })
        .await
    }

    async fn read_settings(&self) -> Result<Vec<(String, DatabaseSettings)>> {
        self.read(tables::read_settings).await
    }

    async fn write_settings(&self, database: &str, held: u64, settings: Option<&DatabaseSettings>) -> Written {
        let (name, settings) = (database.to_owned(), settings.cloned());
        let written = self.run(SMALL_BYTES, move |db| tables::write_settings(db, &name, held, settings.as_ref())).await;
        written.unwrap_or_else(Written::Failed)
    }
}

#[async_trait]
impl Coordination for EmbeddedStore {
    async fn read_registry(&self) -> Result<MemberRegistry> {
        self.read(tables::read_registry).await
    }

    async fn write_registry(&self, registry: &MemberRegistry) -> Written {
        let registry = registry.clone();
        let written = self.run(SMALL_BYTES, move |db| tables::write_registry(db, &registry)).await;
        written.unwrap_or_else(Written::Failed)
    }

    /// The file is locked for this process.
    fn has_other_writers(&self) -> bool {
        false
    }

    /// The clock of this machine is the only one.
    async fn clock_ms(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Nobody else deletes from the file.
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
        // Confirmed writes are on the disk already, so nothing is lost if the runtime is shutting down.
        let _ = spawn_blocking(move || file.close()).await;
    }
}
