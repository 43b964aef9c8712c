//! `unique` metadata: at most one sensor of a kind has a value.
//!
//! A change of such metadata is written into the sensor's document before it is logged, and the unique index decides
//! between instances. The later flush of the logged change writes the same value again.

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::Collection;

use super::super::outcome::{Rule, broken_rules, check_statements, classify, insert_outcomes, rule_of_insert};
use super::super::reads::{Query, to_document};
use super::super::setup::{Collections, prefix};
use super::super::{MongoStore, writes};
use super::{EXEMPT, duplicate_field, with_marks};
use crate::bucket::store::{Extent, UniqueClaim, UniqueOwner, WriteOutcome};
use crate::bucket::{Result, SensorDocument, StorageError};
use crate::document::{self, SENSOR_KIND, copy_field, to_bson};

/// The name prefix of indexes on `unique` metadata.
pub const UNIQUE_PREFIX: &str = "hourglass.unique.";
/// Maximum number of attempts to write a claim.
const ATTEMPTS_MAX: u32 = 6;
/// The wait before the second attempt. Each later one waits longer.
const PAUSE: Duration = Duration::from_millis(20);
/// Names the search for shared values in MongoDB's log. No index serves it, because it makes the unique index possible.
const SHARED_COMMENT: &str = "hourglass: values that several sensors share";
/// Maximum number of shared values per query before an index is created.
const SHARED_MAX: i32 = 1000;

/// Returns the condition for the sensors of a kind that count for a `unique` path.
pub fn counted_sensors(kind: &str, path: &str) -> Document {
    let field = copy_field(path);
    // MongoDB takes a missing field as null.
    doc! { SENSOR_KIND: kind, duplicate_field(&field): Bson::Null, field: { "$exists": true } }
}

/// The outcome of writing a claim.
enum ClaimOutcome {
    Written,
    /// The metadata violates the schema of the kind, which admission accepted.
    Invalid,
    /// Another writer was faster.
    Conflict,
}

impl MongoStore {
    /// Writes the metadata of a claim, unless its kind rejects a value that another sensor has.
    pub(in super::super) async fn claim(&self, database: &str, claim: &UniqueClaim<'_>) -> Result<Option<UniqueOwner>> {
        if claim.is_dry {
            return self.owner(&Collections::new(&self.mongo, database).sensors, claim).await;
        }
        let sensors = self.ensure_created(database).await?.sensors;
        let rejects = self.options.kinds.all().any(|rule| *rule.name == *claim.kind && rule.checks.rejects);
        if rejects {
            self.ensure_unique(database).await?;
        }
        let mut is_exempt = false;
        for attempt in 0..ATTEMPTS_MAX {
            tokio::time::sleep(PAUSE * attempt).await;
            let owner = self.owner(&sensors, claim).await?;
            if owner.is_some() && rejects {
                return Ok(owner);
            }
            match self.write_claim(&sensors, claim, is_exempt).await? {
                ClaimOutcome::Written => {
                    self.note_grouped(database, [&*claim.sensor.key]);
                    return Ok(owner);
                }
                ClaimOutcome::Invalid => is_exempt = true,
                ClaimOutcome::Conflict => {}
            }
        }
        Err(StorageError::Contended(claim.sensor.key.to_string()))
    }

    /// Creates the unique indexes of a database, unless this process knows that they exist. A build that takes longer than
    /// a command may take goes on in the background. If the server refuses an index, claims go on without it, and the job
    /// `index` reports it.
    async fn ensure_unique(&self, database: &str) -> Result<()> {
        if self.unique.lock().contains(database) {
            return Ok(());
        }
        let settled = tokio::time::timeout(self.options.command_timeout, self.settle_unique_indexes(database)).await;
        let building = || StorageError::Unavailable("the index of unique metadata is being built".to_owned());
        settled.map_err(|_| building())??;
        self.unique.lock().insert(database.to_owned());
        Ok(())
    }

    /// Finds another sensor with a value of the claim.
    async fn owner(
        &self,
        sensors: &Collection<RawDocumentBuf>,
        claim: &UniqueClaim<'_>,
    ) -> Result<Option<UniqueOwner>> {
        for (path, value) in claim.values {
            let value = to_bson(path, value)
                .map_err(|detail| StorageError::Unreadable { id: claim.sensor.key.to_string(), detail })?;
            let others = doc! { "_id": { "$ne": &*claim.sensor.key } };
            let filter = doc! { "$and": [counted_sensors(claim.kind, path), { copy_field(path): value }, others] };
            let query = Query::new(filter).project(doc! { "_id": 1 }).limit(Extent::pages(1));
            let found = self.find(sensors, query).await?;
            if let Some(sensor) = found.first().and_then(|found| found.get_str("_id").ok()) {
                return Ok(Some(UniqueOwner { path: (*path).to_owned(), sensor: sensor.to_owned() }));
            }
        }
        Ok(None)
    }

    /// Writes the sensor's document with the metadata of a claim. Its values count from then on.
    async fn write_claim(
        &self,
        sensors: &Collection<RawDocumentBuf>,
        claim: &UniqueClaim<'_>,
        is_exempt: bool,
    ) -> Result<ClaimOutcome> {
        let key = &*claim.sensor.key;
        let found = self.find(sensors, Query::new(doc! { "_id": key })).await?;
        let mut document = match found.first() {
            Some(found) => document::decode_sensor(found)?,
            None => SensorDocument::new(Arc::new(claim.sensor.clone())),
        };
        document.meta.merge(claim.change);
        let stamp =
            |name: &str| document.meta.entries().find(|(known, _)| *known == name).map(|(_, entry)| entry.stamp);
        if claim.change.entries().any(|(name, entry)| stamp(name) > Some(entry.stamp)) {
            return Err(StorageError::Busy(format!("another instance has just changed the metadata of {key}")));
        }
        let kind = document::kind_of(&self.options.kinds, &claim.sensor.measurement, &document.meta);
        if document.rev == 0 {
            return self.insert_claim(sensors, document::sensor_document(&document, kind), is_exempt).await;
        }
        let encoded = document::sensor_update(&document, kind);
        let mut update = to_document(&RawDocumentBuf::from_bytes(encoded).unwrap_or_default())?;
        if is_exempt && let Ok(set) = update.get_document_mut("$set") {
            set.insert(EXEMPT, true);
        }
        let unset = update.entry("$unset".to_owned()).or_insert_with(|| doc! {}.into());
        if let Bson::Document(unset) = unset {
            unset.extend(claim.values.iter().map(|(path, _)| (duplicate_field(&copy_field(path)), 1.into())));
        }
        if update.get_document("$unset").is_ok_and(Document::is_empty) {
            update.remove("$unset");
        }
        let filter = doc! { "_id": key, "rev": i64::try_from(document.rev).unwrap_or(i64::MAX) };
        let reply = self.run_statements(sensors, vec![doc! { "q": filter, "u": update }]).await?;
        match broken_rules(&reply).pop() {
            Some((_, Rule::Schema)) if !is_exempt => return Ok(ClaimOutcome::Invalid),
            Some((_, Rule::Unique(_))) => return Ok(ClaimOutcome::Conflict),
            _ => check_statements(&reply, "cannot write unique metadata")?,
        }
        Ok(if reply.get_i32("n").is_ok_and(|matched| matched == 1) {
            ClaimOutcome::Written
        } else {
            ClaimOutcome::Conflict
        })
    }

    async fn insert_claim(
        &self,
        sensors: &Collection<RawDocumentBuf>,
        document: Vec<u8>,
        is_exempt: bool,
    ) -> Result<ClaimOutcome> {
        let document = RawDocumentBuf::from_bytes(document).unwrap_or_default();
        let documents = [if is_exempt { with_marks(&document, &[Rule::Schema]) } else { document }];
        let client = self.client.clone();
        let target = sensors.clone();
        let insert = async move { writes::insert(&client, &target, &documents).await };
        let inserted = self.run_write(prefix(sensors), insert).await?;
        if !is_exempt && rule_of_insert(&inserted) == Some(Rule::Schema) {
            return Ok(ClaimOutcome::Invalid);
        }
        match insert_outcomes(inserted, 1).pop() {
            Some(WriteOutcome::Applied) => Ok(ClaimOutcome::Written),
            Some(WriteOutcome::Failed(error)) => Err(error),
            Some(WriteOutcome::Conflict) | None => Ok(ClaimOutcome::Conflict),
        }
    }

    /// Marks all but one of the sensors that share a value, so that the unique index can be created.
    pub(in super::super) async fn mark_duplicates(
        &self,
        sensors: &Collection<RawDocumentBuf>,
        counted: &Document,
        field: &str,
    ) -> Result<()> {
        let path = format!("${field}");
        let shared = vec![
            doc! { "$match": counted.clone() },
            doc! { "$unwind": &path },
            doc! { "$group": { "_id": { "value": &path, "sensor": "$_id" } } },
            doc! { "$group": { "_id": "$_id.value", "first": { "$min": "$_id.sensor" }, "count": { "$sum": 1 } } },
            doc! { "$match": { "count": { "$gt": 1 } } },
            doc! { "$limit": SHARED_MAX },
        ];
        loop {
            let target = sensors.clone_with_type::<Document>();
            let pipeline = shared.clone();
            let found = self.read(async move {
                let search = target.aggregate(pipeline).comment(SHARED_COMMENT).await;
                let mut cursor = search.map_err(|e| classify(&e))?;
                let mut found = Vec::new();
                while cursor.advance().await.map_err(|e| classify(&e))? {
                    found.push(cursor.deserialize_current().map_err(|e| classify(&e))?);
                }
                Ok(found)
            });
            let mark = |shared: Document| {
                let others = doc! { "_id": { "$ne": shared.get("first").cloned().unwrap_or(Bson::Null) } };
                let value = shared.get("_id").cloned().unwrap_or(Bson::Null);
                let filter = doc! { "$and": [counted.clone(), { field: value }, others] };
                doc! { "q": filter, "u": { "$set": { duplicate_field(field): true } }, "multi": true }
            };
            let updates: Vec<Document> = found.await?.into_iter().map(mark).collect();
            if updates.is_empty() {
                return Ok(());
            }
            let reply = self.run_statements(sensors, updates).await?;
            check_statements(&reply, "cannot mark sensors with the same unique metadata")?;
        }
    }
}
