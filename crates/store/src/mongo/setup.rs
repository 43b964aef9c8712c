//! Creates the collections of a database with their validators, compression and indexes.

use bson::{Document, doc};
use mongodb::error::Error;
use mongodb::options::IndexOptions;
use mongodb::{Collection, Database, IndexModel};

use super::indexes::{self, Index};
use super::kinds::schema;
use super::messages;
use super::outcome::has_code;
use super::versions::{self, OUTDATED, is_outdated};
use crate::bucket::{KindRules, Result};
use crate::names::collection_prefix;

const NAMESPACE_EXISTS: i32 = 48;

/// The collections of one hourglass database.
#[derive(Debug, Clone)]
pub struct Collections {
    /// Pages with number 0.
    pub buckets: Collection<bson::RawDocumentBuf>,
    /// Pages with number 1 and above.
    pub overflow: Collection<bson::RawDocumentBuf>,
    /// Sealed days.
    pub days: Collection<bson::RawDocumentBuf>,
    /// Monthly totals.
    pub months: Collection<bson::RawDocumentBuf>,
    /// Sensor documents.
    pub sensors: Collection<bson::RawDocumentBuf>,
    /// Group documents.
    pub groups: Collection<bson::RawDocumentBuf>,
}

impl Collections {
    /// Returns handles to the collections without creating them.
    pub fn new(mongo: &Database, database: &str) -> Self {
        let prefix = collection_prefix(database);
        Self {
            buckets: mongo.collection(&format!("{prefix}.buckets")),
            overflow: mongo.collection(&format!("{prefix}.overflow")),
            days: mongo.collection(&format!("{prefix}.days")),
            months: mongo.collection(&format!("{prefix}.months")),
            sensors: mongo.collection(&format!("{prefix}.sensors")),
            groups: mongo.collection(&format!("{prefix}.groups")),
        }
    }
}

/// Returns the name prefix that a collection shares with all collections of its database.
pub fn prefix<T: Send + Sync>(collection: &Collection<T>) -> &str {
    collection.name().rsplit_once('.').map_or("", |(prefix, _)| prefix)
}

/// Returns the collection that lists the databases.
pub fn databases(mongo: &Database) -> Collection<Document> {
    mongo.collection("databases")
}

/// Creates missing collections and indexes.
pub async fn create(mongo: &Database, database: &str, kinds: &KindRules) -> Result<(), Error> {
    let collections = Collections::new(mongo, database);
    // Keep the validators of a later version.
    let is_newer = doc! { "_id": database, "schemaVersion": { "$gt": versions::schema_version() } };
    if databases(mongo).find_one(is_newer).await?.is_none() {
        let [buckets, overflow, (sensors, of_sensors)] = kind_validators(mongo, database, kinds);
        let days = (collections.days.clone(), doc! { "$jsonSchema": day_schema() });
        for (collection, validator) in [buckets, overflow, days] {
            // Of an old collection, the job `index` creates it: that can take longer than writes may wait.
            if create_collection(mongo, collection.name(), validator).await? {
                indexes::create(&collection, &by_measurement()).await?;
            }
        }
        let of_months = doc! { "$jsonSchema": schema("sensor start end rev totals") };
        create_collection(mongo, collections.months.name(), of_months).await?;
        create_collection(mongo, sensors.name(), of_sensors).await?;
        create_view(mongo, database).await;
    }
    for (collection, index) in required_indexes(&collections) {
        indexes::create(collection, &index).await?;
    }
    Ok(())
}

/// Returns the collections whose validators depend on the kinds of sensors.
pub fn kind_validators(
    mongo: &Database,
    database: &str,
    kinds: &KindRules,
) -> [(Collection<bson::RawDocumentBuf>, Document); 3] {
    let Collections { buckets, overflow, sensors, .. } = Collections::new(mongo, database);
    let of_pages = schema::of_pages(page_schema(), kinds);
    let of_sensors = schema::of_sensors(self::schema("rev measurement tags fields recent"), kinds);
    [(buckets, of_pages.clone()), (overflow, of_pages), (sensors, of_sensors)]
}

/// The view of a database's single readings.
pub fn view_name(database: &str) -> String {
    format!("{}.recent_readings", collection_prefix(database))
}

/// Creates the view of single readings if it is missing. It is for people: nothing here reads it, so a failure is only
/// logged. A condition on `sensor` or `start` uses the index of each collection.
async fn create_view(mongo: &Database, database: &str) {
    let Collections { buckets, overflow, days, .. } = Collections::new(mongo, database);
    let plain_days = doc! { "coll": days.name(), "pipeline": [{ "$match": { "form": "plain" } }] };
    let pipeline = [
        doc! { "$unionWith": { "coll": overflow.name() } },
        doc! { "$unionWith": plain_days },
        doc! { "$unwind": "$readings" },
        doc! { "$project": {
            "_id": 0, "sensor": 1, "measurement": 1, "tags": 1, "start": 1, "ts": "$readings.ts", "reading": "$readings",
        } },
    ];
    let command = doc! {
        "create": view_name(database),
        "viewOn": buckets.name(),
        "pipeline": pipeline.to_vec(),
        "writeConcern": { "w": "majority" },
    };
    if let Err(error) = mongo.run_command(command).await
        && !has_code(&error, &[NAMESPACE_EXISTS])
    {
        let detail = messages::driver_error(&error);
        tracing::warn!(%database, error = detail, "the view recent_readings cannot be created");
    }
}

/// Creates the collection of group documents if it is missing. Only databases with groups have one.
pub async fn create_groups(mongo: &Database, collections: &Collections) -> Result<(), Error> {
    let groups = &collections.groups;
    let validator = doc! { "$jsonSchema": schema("group value from count members") };
    create_collection(mongo, groups.name(), validator).await?;
    // For users who read the documents of a group and value in member order.
    let by_value = Index { keys: doc! { "group": 1, "value": 1, "from": 1 }, sparse: false };
    // For queries for the groups of a sensor.
    let by_member = Index { keys: doc! { "members.sensor": 1 }, sparse: false };
    for index in [by_value, by_member] {
        indexes::create(groups, &index).await?;
    }
    Ok(())
}

/// Creates the index of parts of days in an older form, and replaces the validator of an older version.
pub async fn prepare_migration(mongo: &Database, database: &str) -> Result<(), Error> {
    let days = Collections::new(mongo, database).days;
    let options = IndexOptions::builder().name(OUTDATED.to_owned()).partial_filter_expression(is_outdated()).build();
    let keys = doc! { "schemaVersion": 1, "_id": 1 };
    days.create_index(IndexModel::builder().keys(keys).options(options).build()).await?;
    restore_validator(mongo, days.name(), doc! { "$jsonSchema": day_schema() }).await
}

/// Adds a database to the list.
pub async fn list(databases: Collection<Document>, database: String) -> Result<(), Error> {
    let listed = doc! { "$max": { "schemaVersion": versions::schema_version() }, "$unset": { "dropped": 1 } };
    databases.update_one(doc! { "_id": database }, listed).upsert(true).await.map(drop)
}

/// Returns a message for each missing index. Collections that do not exist lack all of their indexes.
pub async fn missing_indexes(collections: &Collections) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for (collection, index) in required_indexes(collections) {
        if !indexes::exists(collection, &index).await? {
            let name = collection.name();
            missing.push(format!("collection {name} lacks the index {}; restart hourglass to create it", index.keys));
        }
    }
    Ok(missing)
}

/// Returns the index for users' queries for the sensors of a measurement.
pub fn by_measurement() -> Index {
    Index { keys: doc! { "measurement": 1, "start": 1 }, sparse: false }
}

fn required_indexes(collections: &Collections) -> [(&Collection<bson::RawDocumentBuf>, Index); 5] {
    // For range reads of a sensor, users' queries in `mongosh`, and the shard key of a cluster. Reads of one hour of all
    // sensors and deletion of old hours use `_id`, which begins with the hour.
    let by_sensor = Index { keys: doc! { "sensor": 1, "start": 1 }, sparse: false };
    // Contains only chunks, so that sealing finds them.
    let chunks = Index { keys: doc! { "chunkOf": 1 }, sparse: true };
    // Contains only outliers, so that listing them does not scan all sensors.
    let outliers = Index { keys: doc! { "outlier.since": 1 }, sparse: true };
    [
        (&collections.buckets, by_sensor.clone()),
        (&collections.overflow, by_sensor.clone()),
        (&collections.days, by_sensor),
        (&collections.days, chunks),
        (&collections.sensors, outliers),
    ]
}

/// Returns true if the collection is new.
async fn create_collection(mongo: &Database, name: &str, validator: Document) -> Result<bool, Error> {
    let with_zstd = doc! { "wiredTiger": { "configString": "block_compressor=zstd" } };
    let command = |engine: Option<Document>| {
        let mut command = doc! {
            "create": name,
            "validator": validator.clone(),
            "validationLevel": "moderate",
            "writeConcern": { "w": "majority", "j": true },
        };
        if let Some(engine) = engine {
            command.insert("storageEngine", engine);
        }
        command
    };
    let result = match mongo.run_command(command(Some(with_zstd))).await {
        Err(error) if refuses_engine_options(&error) => mongo.run_command(command(None)).await,
        result => result,
    };
    match result {
        // A restored collection can lack its validator.
        Err(error) if has_code(&error, &[NAMESPACE_EXISTS]) => {
            restore_validator(mongo, name, validator).await.map(|()| false)
        }
        result => result.map(|_| true),
    }
}

/// Sets the validator of a collection if it differs. Does nothing without the collection. This needs a privilege that the role `readWrite` lacks. Without a validator,
/// `remove_torsos` removes the incomplete documents that updates of deleted pages create.
pub async fn restore_validator(mongo: &Database, name: &str, validator: Document) -> Result<(), Error> {
    let mut found = mongo.list_collections().filter(doc! { "name": name }).await?;
    if !found.advance().await? || found.deserialize_current()?.options.validator.as_ref() == Some(&validator) {
        return Ok(());
    }
    let command = doc! {
        "collMod": name,
        "validator": validator,
        "validationLevel": "moderate",
        "writeConcern": { "w": "majority" },
    };
    if let Err(error) = mongo.run_command(command).await {
        let detail = messages::driver_error(&error);
        tracing::warn!(
            collection = name,
            error = detail,
            "setting the validator failed; grant collMod or set it by hand"
        );
    }
    Ok(())
}

/// Returns true if the server rejects storage options, as shared Atlas tiers and strict API versions do. The collection is
/// then created with the server's defaults.
fn refuses_engine_options(error: &Error) -> bool {
    const INVALID_OPTIONS: i32 = 72;
    const API_STRICT: i32 = 323;
    const ATLAS: i32 = 8000;
    has_code(error, &[INVALID_OPTIONS, API_STRICT, ATLAS])
}

/// Returns a validator that requires `_id`, `schemaVersion` and the given fields, each with its type.
fn schema(fields: &str) -> Document {
    let required: Vec<&str> = ["_id", "schemaVersion"].into_iter().chain(fields.split(' ')).collect();
    let properties: Document = required.iter().map(|name| ((*name).to_owned(), property(name).into())).collect();
    doc! { "bsonType": "object", "required": required, "properties": properties }
}

/// Returns the type of a field, which is the same in all collections except `days`.
fn property(name: &str) -> Document {
    let whole = |minimum: i32| doc! { "bsonType": ["int", "long"], "minimum": minimum };
    let kind = match name {
        "schemaVersion" => return doc! { "bsonType": ["int", "long"] },
        "page" => return whole(0),
        "rev" | "count" => return whole(1),
        "start" | "end" | "first" | "last" => "date",
        "closed" | "hasOverflow" => "bool",
        "tags" | "fields" | "summary" | "order" | "day" | "hours" => "object",
        "readings" | "recent" | "members" => "array",
        "floor" => "long",
        "totals" => "binData",
        _ => "string",
    };
    doc! { "bsonType": kind }
}

/// Returns the validator of pages. It requires every field, and updates set only some of them, so an update cannot recreate
/// a deleted page as an incomplete document. Readings are not validated one by one, which would make writes about a third
/// more expensive.
fn page_schema() -> Document {
    schema("sensor measurement tags start end page rev closed count first last hasOverflow readings summary order")
}

fn day_schema() -> Document {
    let mut schema = schema("form sensor measurement tags start end rev count first last floor");
    if let Ok(properties) = schema.get_document_mut("properties") {
        properties.insert("count", doc! { "bsonType": ["int", "long"], "minimum": 0 });
        properties.insert("readings", doc! { "bsonType": ["array", "binData"] });
    }
    schema
}
