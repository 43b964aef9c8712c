//! Copies of metadata in pages and parts of days: the copies for new documents, and updates of existing ones.

use std::collections::{BTreeMap, HashMap};

use bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::Collection;

use super::kinds::RULES_MAX;
use super::outcome::{Rule, broken_rules, classify, statement, statement_error, write_errors};
use super::reads::Query;
use super::remove::is_expired;
use super::setup::{Collections, prefix};
use super::{MongoStore, READ_SENSORS_MAX, date};
use crate::bucket::{CopyRefreshProgress, CopyScope, Result, StorageError};
use crate::document::{COPIED_FIELDS, CopyPlan, SensorCopies};
use crate::reading::Sensor;

/// What new documents get, by sensor. Sensors without copies are left out.
pub type NewCopies = HashMap<String, NewCopy>;

/// What new documents of one sensor get.
#[derive(Debug)]
pub struct NewCopy {
    /// The encoded document with these elements.
    pub elements: Vec<u8>,
    /// The sensor's kind, which is one of the elements.
    pub kind: Option<String>,
}

impl MongoStore {
    pub(super) fn copy_plan<'a>(&'a self, database: &'a str) -> CopyPlan<'a> {
        CopyPlan { names: self.options.copies.names(database), kinds: &self.options.kinds }
    }

    /// Reads the copies for pages and parts of these sensors. Call it just before the write: if metadata changes in
    /// between, the refresh after that change corrects the copies.
    pub(super) async fn new_copies<'a>(
        &self,
        database: &str,
        sensors: impl Iterator<Item = &'a Sensor>,
    ) -> Result<NewCopies> {
        let plan = self.copy_plan(database);
        if plan.is_empty() {
            return Ok(NewCopies::new());
        }
        let mut missing: BTreeMap<&str, &Sensor> = sensors.map(|sensor| (&*sensor.key, sensor)).collect();
        let keys: Vec<&str> = missing.keys().copied().collect();
        let mut found = self.sensor_copies(database, &keys).await?;
        missing.retain(|key, _| found.iter().all(|found| found.sensor != *key));
        found.extend(missing.into_values().map(SensorCopies::of_new));
        let copy = |found: SensorCopies| {
            let elements = found.document(&plan)?;
            let kind = found.kind(&plan).map(str::to_owned);
            Some((found.sensor, NewCopy { elements, kind }))
        };
        Ok(found.into_iter().filter_map(copy).collect())
    }

    pub(super) async fn sensor_copies(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorCopies>> {
        let mut found = Vec::with_capacity(keys.len());
        for keys in keys.chunks(READ_SENSORS_MAX) {
            let sensors = Collections::new(&self.mongo, database).sensors;
            let query = Query::new(doc! { "_id": { "$in": keys } }).project(copied_fields());
            for document in self.find(&sensors, query).await? {
                found.push(decode_copies(&document)?);
            }
        }
        Ok(found)
    }

    /// Runs updates of copies in one command. Documents that break the rules of their new kind are marked. Another error
    /// fails the refresh, because its sensors would count as refreshed, but only after all other documents are updated.
    pub(super) async fn run_updates(
        &self,
        collection: &Collection<RawDocumentBuf>,
        mut updates: Vec<Document>,
    ) -> Result<CopyRefreshProgress> {
        let mut progress = CopyRefreshProgress { documents: 0, is_complete: true };
        let time_max = self.options.command_timeout / 2;
        let mut outcome = Ok(());
        for round in 0..RULES_MAX {
            if updates.is_empty() {
                break;
            }
            let command = doc! {
                "update": collection.name(), "updates": updates.clone(), "ordered": false,
                "maxTimeMS": i64::try_from(time_max.as_millis()).unwrap_or(i64::MAX),
                "writeConcern": { "w": "majority", "j": true },
            };
            let mongo = self.mongo.clone();
            let reply = self.run_write(prefix(collection), async move { mongo.run_command(command).await }).await?;
            if is_expired(&reply) {
                progress.is_complete = false;
                break;
            }
            let reply = reply.map_err(|error| classify(&error))?;
            let broken = if round + 1 < RULES_MAX { broken_rules(&reply) } else { Vec::new() };
            let marked = |(index, rule): (usize, Rule)| {
                let mut update = updates.get(index)?.clone();
                update.get_document_mut("u").ok()?.get_document_mut("$set").ok()?.insert(rule.mark(), true);
                Some((index, update))
            };
            let again: Vec<(usize, Document)> = broken.into_iter().filter_map(marked).collect();
            let is_other = |error: &&Document| again.iter().all(|(index, _)| statement(error) != Some(*index));
            if let Some(error) = write_errors(&reply).find(is_other) {
                outcome = Err(statement_error(error, "cannot update copies of metadata"));
            }
            if reply.contains_key("writeConcernError") {
                return Err(StorageError::Unknown("copies of metadata are not durable yet".to_owned()));
            }
            let changed = reply.get_i32("nModified").map(i64::from).or_else(|_| reply.get_i64("nModified"));
            progress.documents += changed.ok().and_then(|changed| u64::try_from(changed).ok()).unwrap_or_default();
            updates = again.into_iter().map(|(_, update)| update).collect();
        }
        outcome.map(|()| progress)
    }
}

/// Returns the projection of [`COPIED_FIELDS`].
pub(super) fn copied_fields() -> Document {
    COPIED_FIELDS.iter().map(|field| ((*field).to_owned(), Bson::Int32(1))).collect()
}

pub(super) fn decode_copies(document: &RawDocumentBuf) -> Result<SensorCopies> {
    let id = || document.get_str("_id").unwrap_or_default().to_owned();
    SensorCopies::from_document(document).map_err(|detail| StorageError::Unreadable { id: id(), detail })
}

/// Returns the statement that updates all copies of a sensor's metadata in a collection's documents with this condition.
pub(super) fn refresh_statement(
    copies: &SensorCopies,
    plan: &CopyPlan<'_>,
    scope: CopyScope,
    condition: &Document,
) -> Result<Document, String> {
    let update = copies.update(plan)?;
    let mut filter = condition.clone();
    filter.insert("sensor", &copies.sensor);
    if let CopyScope::Since(hour) = scope {
        filter.insert("start", doc! { "$gte": date(hour) });
    }
    Ok(doc! { "q": filter, "u": update, "multi": true })
}
