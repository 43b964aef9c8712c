//! The storage traits of MongoDB.

use std::sync::Arc;

use async_trait::async_trait;
use bson::{Document, doc};

use super::outcome::classify;
use super::reads::Query;
use super::setup::Collections;
use super::{MongoStore, remove, settings, setup, space};
use crate::bucket::registry::MemberRegistry;
use crate::bucket::store::{Coordination, DatabaseStore, Extent, MongoExtras, Written};
use crate::bucket::{DatabaseSettings, Result, Store, StoreSpace};
use crate::document::{self, REGISTRY};
use crate::names::collection_prefix;

impl Store for MongoStore {
    fn mongo_extras(self: Arc<Self>) -> Option<Arc<dyn MongoExtras>> {
        Some(self)
    }
}

#[async_trait]
impl DatabaseStore for MongoStore {
    async fn databases(&self) -> Result<Vec<String>> {
        let query = Query::of(doc! { "dropped": { "$ne": true } }).sorted(doc! { "_id": 1 });
        let found = self.find(&setup::databases(&self.mongo).clone_with_type(), query).await?;
        Ok(found.iter().filter_map(|listed| listed.get_str("_id").ok().map(str::to_owned)).collect())
    }

    async fn create_database(&self, database: &str) -> Result<()> {
        self.created(database).await?;
        // Another process may have taken it off the list since this one found its collections.
        let (mongo, name) = (self.mongo.clone(), database.to_owned());
        let list = async move { setup::list(&mongo, &name).await };
        self.run_write(&collection_prefix(database), list).await?.map_err(|e| classify(&e))
    }

    async fn drop_database(&self, database: &str) -> Result<()> {
        let (mongo, name, most) = (self.mongo.clone(), database.to_owned(), self.options.command_timeout / 2);
        self.forget(database);
        self.refuse_newer_database(database).await?;
        let of = collection_prefix(database);
        self.quiet(&of).await?;
        let dropped = async move { remove::drop_database(&mongo, &name, most).await };
        let dropped = self.run_write(&of, dropped).await.and_then(|dropped| dropped.map_err(|e| classify(&e)));
        // Somebody may have created them meanwhile.
        self.forget(database);
        match dropped {
            Ok(()) => Ok(()),
            Err(error) => Err(self.at_rest(error).await),
        }
    }

    async fn unlist_database(&self, database: &str) -> Result<()> {
        let (databases, name) = (setup::databases(&self.mongo), doc! { "_id": database });
        let update = doc! { "$set": { "dropped": true } };
        let unlisted = async move { databases.update_one(name, update).await.map(drop) };
        let unlisted = self.run_write(&collection_prefix(database), unlisted).await?.map_err(|e| classify(&e));
        // The next write lists it again.
        self.forget(database);
        unlisted
    }

    async fn read_settings(&self) -> Result<Vec<(String, DatabaseSettings)>> {
        let collection = settings::collection(&self.mongo);
        let rows = self.read(async move { settings::read(&collection).await }).await?;
        self.seal_forms.note(&rows);
        Ok(rows)
    }

    async fn write_settings(&self, database: &str, held: u64, settings: Option<&DatabaseSettings>) -> Written {
        let collection = settings::collection(&self.mongo);
        let document = settings.map(|settings| document::settings_document(database, settings));
        let id = database.to_owned();
        let write = async move { settings::write_whole(&collection, &id, held, document).await };
        let written = self.run(&self.checks, write).await.unwrap_or_else(Written::Failed);
        self.seal_forms.forget();
        written
    }
}

#[async_trait]
impl Coordination for MongoStore {
    async fn read_registry(&self) -> Result<MemberRegistry> {
        let collection = self.mongo.collection::<Document>(REGISTRY);
        let found = async move { collection.find_one(doc! { "_id": REGISTRY }).await.map_err(|e| classify(&e)) };
        self.read(found).await?.map_or_else(|| Ok(MemberRegistry::default()), |found| document::decode_registry(&found))
    }

    async fn write_registry(&self, registry: &MemberRegistry) -> Written {
        let collection = self.mongo.collection::<Document>(REGISTRY);
        let (held, document) = (registry.rev, document::registry_document(registry));
        let write = async move { settings::write_whole(&collection, REGISTRY, held, Some(document)).await };
        self.run(&self.checks, write).await.unwrap_or_else(Written::Failed)
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
        let buckets = Collections::of(&self.mongo, database).buckets;
        let any = Query::of(doc! {}).sending(doc! { "_id": 1 }).within(Extent::pages(1));
        // If there is a page, another instance wrote to the database before it learned of the drop: list it again.
        if !self.find(&buckets, any).await?.is_empty() {
            self.created(database).await?;
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
        let of = |name: &str| space::number(&stats, name);
        // A sharded cluster tells them by shard only.
        let free = of("fsTotalSize").zip(of("fsUsedSize")).map(|(total, used)| total.saturating_sub(used));
        Ok(StoreSpace { taken: of("totalSize"), free })
    }

    async fn close(&self) {
        self.client.clone().shutdown().immediate(true).await;
    }
}
