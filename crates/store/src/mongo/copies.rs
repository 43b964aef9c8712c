//! Copies of metadata in pages and parts of days: what new ones get, and how older ones follow a change.

use std::collections::HashMap;

use bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::Collection;

use super::outcome::{checked, classify};
use super::reads::Query;
use super::remove::is_expired;
use super::setup::{Collections, prefix};
use super::{MongoStore, READ_SENSORS, date};
use crate::bucket::{CopyScope, Result, StorageError};
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
    ) -> Result<NewCopies> {
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

    pub(super) async fn sensor_copies(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorCopies>> {
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

    /// Runs updates; returns how many documents they changed, and whether the server's time limit left none out.
    pub(super) async fn mend(
        &self,
        collection: &Collection<RawDocumentBuf>,
        updates: Vec<Bson>,
    ) -> Result<(u64, bool)> {
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
        checked(&reply, "copies of metadata were not set")?;
        if reply.contains_key("writeConcernError") {
            return Err(StorageError::Unknown("copies of metadata are not durable yet".to_owned()));
        }
        let changed = reply.get_i32("nModified").map(i64::from).or_else(|_| reply.get_i64("nModified"));
        Ok((changed.ok().and_then(|changed| u64::try_from(changed).ok()).unwrap_or_default(), true))
    }
}

pub(super) fn needed() -> Document {
    COPIED_FIELDS.iter().map(|field| ((*field).to_owned(), Bson::Int32(1))).collect()
}

pub(super) fn of_document(document: &RawDocumentBuf) -> Result<SensorCopies> {
    let id = || document.get_str("_id").unwrap_or_default().to_owned();
    SensorCopies::of(document).map_err(|detail| StorageError::Unreadable { id: id(), detail })
}

pub(super) fn refreshing(of: &SensorCopies, names: &[&str], scope: CopyScope) -> Result<Bson, String> {
    let update = of.update(names)?;
    let mut filter = doc! { "sensor": &of.sensor };
    if let CopyScope::Since(hour) = scope {
        filter.insert("start", doc! { "$gte": date(hour) });
    }
    Ok(Bson::Document(doc! { "q": filter, "u": update, "multi": true }))
}
