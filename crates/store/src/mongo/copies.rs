//! Copies of metadata in pages and parts of days: what new ones get, and how older ones follow a change.

use std::collections::HashMap;

use bson::{Bson, Document, RawDocumentBuf, doc};
use futures_util::future::join_all;
use mongodb::Collection;

use super::outcome::classify;
use super::reads::Query;
use super::remove::is_expired;
use super::setup::{Collections, prefix};
use super::{MongoStore, READ_SENSORS, date};
use crate::bucket::store::Extent;
use crate::bucket::{CopiesRefreshed, CopyScope, StorageError};
use crate::document::{COPIED_FIELDS, SensorCopies};

/// The `meta` of new documents, by sensor, encoded.
pub type NewCopies = HashMap<String, Vec<u8>>;

impl MongoStore {
    /// What new pages and parts of these sensors get. Read just before they are written: what changes meanwhile, the refresh
    /// after that change finds.
    pub(super) async fn new_copies<'a>(
        &self,
        database: &str,
        sensors: impl Iterator<Item = &'a str>,
    ) -> Result<NewCopies, StorageError> {
        let names = self.options.copies.names(database);
        if names.is_empty() {
            return Ok(NewCopies::new());
        }
        let mut keys: Vec<&str> = sensors.collect();
        keys.sort_unstable();
        keys.dedup();
        let found = self.sensor_copies(database, &keys).await?;
        let copies = |of: SensorCopies| of.document(&names).map(|document| (of.sensor, document));
        Ok(found.into_iter().filter_map(copies).collect())
    }

    async fn sensor_copies(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorCopies>, StorageError> {
        let mut found = Vec::with_capacity(keys.len());
        for keys in keys.chunks(READ_SENSORS) {
            let sensors = Collections::of(&self.mongo, database).sensors;
            let query = Query::of(doc! { "_id": { "$in": keys } }).sending(needed());
            for document in self.find(&sensors, query).await? {
                found.push(of_document(&document)?);
            }
        }
        Ok(found)
    }

    pub(super) async fn refreshed_copies(
        &self,
        database: &str,
        sensors: &[&str],
        scope: CopyScope,
    ) -> Result<CopiesRefreshed, StorageError> {
        let names = self.options.copies.names(database);
        let collections = Collections::of(&self.mongo, database);
        let of = if names.is_empty() { Vec::new() } else { self.sensor_copies(database, sensors).await? };
        let mut done = CopiesRefreshed { documents: 0, is_complete: true };
        if of.is_empty() {
            return Ok(done);
        }
        let unreadable = |detail| StorageError::Unreadable { id: database.to_owned(), detail };
        let updates = of.iter().map(|of| refreshing(of, &names, scope)).collect::<Result<Vec<Bson>, _>>();
        let updates = updates.map_err(unreadable)?;
        // Together, so that they wait for the journal once.
        let everywhere = [&collections.buckets, &collections.overflow, &collections.days];
        let mended = everywhere.map(|collection| self.mend(collection, updates.clone()));
        for mended in join_all(mended).await {
            let (changed, is_complete) = mended?;
            done.documents += changed;
            done.is_complete &= is_complete;
        }
        if done.is_complete && scope == CopyScope::All {
            let marks = of.iter().filter(|of| of.is_stale(&names)).map(|of| {
                let update = doc! { "$set": { "copied": of.done(&names) } };
                Bson::Document(doc! { "q": { "_id": &of.sensor }, "u": update })
            });
            self.mend(&collections.sensors, marks.collect()).await?;
        }
        Ok(done)
    }

    /// Runs updates; returns how many documents they changed, and whether the server's time limit left none out.
    async fn mend(
        &self,
        collection: &Collection<RawDocumentBuf>,
        updates: Vec<Bson>,
    ) -> Result<(u64, bool), StorageError> {
        if updates.is_empty() {
            return Ok((0, true));
        }
        let most = self.options.command_timeout / 2;
        let command = doc! {
            "update": collection.name(), "updates": updates, "ordered": false,
            "maxTimeMS": i64::try_from(most.as_millis()).unwrap_or(i64::MAX),
            "writeConcern": { "w": "majority", "j": true },
        };
        let mongo = self.mongo.clone();
        let reply = self.run_write(prefix(collection), async move { mongo.run_command(command).await }).await?;
        if is_expired(&reply) {
            return Ok((0, false));
        }
        let reply = reply.map_err(|error| classify(&error))?;
        if let Some(error) = reply.get_array("writeErrors").ok().and_then(|errors| errors.first()) {
            let detail = format!("copies of metadata were not set: {error}");
            return Err(StorageError::Failing { detail: detail.chars().take(200).collect() });
        }
        if reply.contains_key("writeConcernError") {
            return Err(StorageError::Unknown { detail: "copies of metadata are not durable yet".to_owned() });
        }
        let changed = reply.get_i32("nModified").map(i64::from).or_else(|_| reply.get_i64("nModified"));
        Ok((changed.ok().and_then(|changed| u64::try_from(changed).ok()).unwrap_or_default(), true))
    }

    pub(super) async fn stale_copies_after(
        &self,
        database: &str,
        after: &str,
        most: usize,
    ) -> Result<(Vec<String>, Option<String>), StorageError> {
        let names = self.options.copies.names(database);
        if names.is_empty() {
            return Ok((Vec::new(), None));
        }
        let sensors = Collections::of(&self.mongo, database).sensors;
        // Those without metadata, too: a step takes a bounded time, however many of them follow each other.
        let query = Query::of(doc! { "_id": { "$gt": after } }).sorted(doc! { "_id": 1 }).sending(needed());
        let found = self.find(&sensors, query.within(Extent::pages(most))).await?;
        let found = found.iter().map(of_document).collect::<Result<Vec<_>, _>>()?;
        let last = found.last().filter(|_| found.len() >= most).map(|of| of.sensor.clone());
        Ok((found.into_iter().filter(|of| of.is_stale(&names)).map(|of| of.sensor).collect(), last))
    }
}

fn needed() -> Document {
    COPIED_FIELDS.iter().map(|field| ((*field).to_owned(), Bson::Int32(1))).collect()
}

fn of_document(document: &RawDocumentBuf) -> Result<SensorCopies, StorageError> {
    let id = || document.get_str("_id").unwrap_or_default().to_owned();
    SensorCopies::of(document).map_err(|detail| StorageError::Unreadable { id: id(), detail })
}

fn refreshing(of: &SensorCopies, names: &[&str], scope: CopyScope) -> Result<Bson, String> {
    let update = of.update(names)?;
    let mut filter = doc! { "sensor": &of.sensor };
    if let CopyScope::Since(hour) = scope {
        filter.insert("start", doc! { "$gte": date(hour) });
    }
    Ok(Bson::Document(doc! { "q": filter, "u": update, "multi": true }))
}
