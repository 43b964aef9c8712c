//! The storage traits for databases and coordination.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bson::{Document, doc};

use super::outcome::classify;
use super::reads::{Query, to_document};
use super::setup::Collections;
use super::{MongoStore, remove, settings, setup, space};
use crate::bucket::registry::MemberRegistry;
use crate::bucket::store::{Coordination, DatabaseStore, Extent, MongoExtras, WriteOutcome};
use crate::bucket::{DatabaseSettings, Result, Store, StoreSpace};
use crate::document::{self, REGISTRY};
use crate::faults;
use crate::names::collection_prefix;

impl Store for MongoStore {
    fn mongo_extras(self: Arc<Self>) -> Option<Arc<dyn MongoExtras>> {
        Some(self)
    }
}

impl MongoStore {
    async fn has_page(&self, database: &str) -> Result<bool> {
        let buckets = Collections::new(&self.mongo, database).buckets;
        let any = Query::new(doc! {}).project(doc! { "_id": 1 }).limit(Extent::pages(1));
        Ok(!self.find(&buckets, any).await?.is_empty())
    }
}

#[async_trait]
impl DatabaseStore for MongoStore {
    async fn databases(&self) -> Result<Vec<String>> {
        let query = Query::new(doc! { "dropped": { "$ne": true } }).sort(doc! { "_id": 1 });
        let found = self.find(&setup::databases(&self.mongo).clone_with_type(), query).await?;
        Ok(found.iter().filter_map(|listed| listed.get_str("_id").ok().map(str::to_owned)).collect())
    }

    async fn create_database(&self, database: &str) -> Result<()> {
        self.collections(database).await?;
        // Another process may have unlisted the database since this one listed it.
        self.list(database).await
    }

    async fn drop_database(&self, database: &str) -> Result<()> {
        self.forget(database);
        self.refuse_newer_database(database).await?;
        let prefix = collection_prefix(database);
        self.wait_for_abandoned(&prefix).await?;
        let mongo = self.mongo.clone();
        let name = database.to_owned();
        let time_max = self.options.command_timeout / 2;
        let drop_collections = async move { remove::drop_database(&mongo, &name, time_max).await };
        let dropped = self.run_write(&prefix, drop_collections).await;
        let dropped = dropped.and_then(|dropped| dropped.map_err(|e| classify(&e)));
        // A concurrent write may have noted the collections as existing.
        self.forget(database);
        match dropped {
            Ok(()) => Ok(()),
            Err(error) => Err(self.after_time_limit(error).await),
        }
    }

    async fn unlist_database(&self, database: &str) -> Result<()> {
        let databases = setup::databases(&self.mongo);
        let filter = doc! { "_id": database };
        let update = doc! { "$set": { "dropped": true } };
        let unlist = async move { databases.update_one(filter, update).await.map(drop) };
        let unlisted = self.run_write(&collection_prefix(database), unlist).await?.map_err(|e| classify(&e));
        // Forget the collections, so that the next write lists the database again.
        self.forget(database);
        unlisted
    }

    async fn read_settings(&self) -> Result<Vec<(String, DatabaseSettings)>> {
        self.reread_settings(&BTreeMap::new()).await
    }

    async fn reread_settings(
        &self,
        known: &BTreeMap<String, DatabaseSettings>,
    ) -> Result<Vec<(String, DatabaseSettings)>> {
        let found = self.find(&settings::collection(&self.mongo).clone_with_type(), Query::new(doc! {})).await?;
        let decode = |row| match settings::unchanged(row, known) {
            Some((name, settings)) => Ok((name.clone(), settings.clone())),
            None => document::decode_settings(&to_document(row)?),
        };
        let rows = found.iter().map(decode).collect::<Result<Vec<_>>>()?;
        self.seal_forms.note(&rows);
        Ok(rows)
    }

    async fn write_settings(&self, database: &str, held: u64, settings: Option<&DatabaseSettings>) -> WriteOutcome {
        let collection = settings::collection(&self.mongo);
        let document = settings.map(|settings| document::settings_document(database, settings));
        let id = database.to_owned();
        let client = self.client.clone();
        let write = async move { settings::write_whole(&client, &collection, &id, held, document).await };
        let written = self.run(&self.checks, write).await.unwrap_or_else(WriteOutcome::Failed);
        self.seal_forms.forget();
        written
    }
}

#[async_trait]
impl Coordination for MongoStore {
    async fn read_registry(&self) -> Result<MemberRegistry> {
        let found = self.find(&self.mongo.collection(REGISTRY), Query::new(doc! { "_id": REGISTRY })).await?;
        match found.first() {
            Some(found) => document::decode_registry(&to_document(found)?),
            None => Ok(MemberRegistry::default()),
        }
    }

    async fn write_registry(&self, registry: &MemberRegistry) -> WriteOutcome {
        let collection = self.mongo.collection::<Document>(REGISTRY);
        let held = registry.rev;
        let document = document::registry_document(registry);
        let client = self.client.clone();
        let write = async move { settings::write_whole(&client, &collection, REGISTRY, held, Some(document)).await };
        self.run(&self.checks, write).await.unwrap_or_else(WriteOutcome::Failed)
    }

    fn has_other_writers(&self) -> bool {
        true
    }

    async fn clock_ms(&self) -> Result<Option<u64>> {
        let hello = self.hello().await?;
        let time = hello.get_datetime("localTime").ok();
        Ok(time.and_then(|time| u64::try_from(time.timestamp_millis()).ok()))
    }

    async fn revisit(&self, database: &str) -> Result<()> {
        self.forget(database);
        // If there is a page, another instance wrote to the database before it learned of the drop. List it again.
        if self.has_page(database).await? {
            faults::halt_at("relisting").await;
            self.ensure_created(database).await?;
            // Or the drop removes the page later than this, and may have unlisted the database before it was listed
            // here. Who creates a database writes its settings first.
            let is_set = self.read_settings().await?.iter().any(|(name, _)| name == database);
            if !is_set && !self.has_page(database).await? {
                self.unlist_database(database).await?;
                // Another instance may have written meanwhile. If it writes later, it lists the database after that.
                if self.has_page(database).await? {
                    self.ensure_created(database).await?;
                }
            }
        }
        Ok(())
    }

    async fn check(&self) -> Result<()> {
        self.probe().await
    }

    async fn space(&self) -> Result<StoreSpace> {
        let mongo = self.mongo.clone();
        let stats = async move { mongo.run_command(doc! { "dbStats": 1 }).await.map_err(|e| classify(&e)) };
        let stats = self.read(stats).await?;
        let number = |name: &str| space::number(&stats, name);
        // A sharded cluster reports these sizes per shard only, so they are missing here.
        let free = number("fsTotalSize").zip(number("fsUsedSize")).map(|(total, used)| total.saturating_sub(used));
        Ok(StoreSpace { taken: number("totalSize"), free })
    }

    async fn close(&self) {
        self.client.shut_down().await;
    }
}
