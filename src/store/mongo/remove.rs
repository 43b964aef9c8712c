//! Whatever is to go: pages and sensor documents by filters, whole databases.

use std::time::Duration;

use bson::{Document, doc};
use mongodb::Database;
use mongodb::error::{Error, ErrorKind};

use super::outcome::of_updates;
use super::setup::{Collections, databases};
use crate::bucket::StorageError;
use crate::bucket::store::Written;
use crate::reading::Stamp;

/// Of how many sensors pages are removed by one command.
pub const SENSORS: usize = 20;

/// A `delete` command for all documents of a filter, which the server ends after `most`.
pub fn command(collection: &str, filter: Document, most: Duration) -> Document {
    doc! {
        "delete": collection,
        "deletes": [ { "q": filter, "limit": 0 } ],
        "maxTimeMS": i64::try_from(most.as_millis()).unwrap_or(i64::MAX),
        "writeConcern": { "w": "majority", "j": true },
    }
}

/// What became of such a command.
pub enum Removed {
    /// Nothing of the filter is left.
    All,
    /// It ran out of time; there may be more.
    InPart,
    /// It failed, or may have.
    Failed(StorageError),
}

/// What a command's reply says.
pub fn outcome(reply: Result<Document, Error>) -> Removed {
    const MAX_TIME_EXPIRED: i32 = 50;
    let expired = |code: i32| code == MAX_TIME_EXPIRED;
    match &reply {
        Err(error) if matches!(error.kind.as_ref(), ErrorKind::Command(command) if expired(command.code)) => {
            return Removed::InPart;
        }
        Ok(reply) => {
            let errors = reply.get_array("writeErrors").into_iter().flatten().filter_map(|error| error.as_document());
            if errors.into_iter().any(|error| error.get_i32("code").is_ok_and(expired)) {
                return Removed::InPart;
            }
        }
        Err(_) => {}
    }
    match of_updates(reply, 1).pop() {
        Some(Written::Yes) => Removed::All,
        Some(Written::Failed(error)) => Removed::Failed(error),
        Some(Written::Conflict) | None => {
            Removed::Failed(StorageError::Failing { detail: "documents could not be removed".to_owned() })
        }
    }
}

/// What a page has that is not wholly older than a stamp. What a version without stamps wrote last is older than any.
pub fn has_later(before: Stamp) -> Document {
    let before = i64::try_from(before).unwrap_or(i64::MAX);
    doc! { "order.last": { "$gte": before }, "$expr": { "$eq": ["$order.rev", "$rev"] } }
}

/// Drops a database's collections, and then says so.
pub async fn drop_database(mongo: &Database, database: &str, most: Duration) -> Result<(), Error> {
    const NAMESPACE_NOT_FOUND: i32 = 26;
    let collections = Collections::of(mongo, database);
    for collection in [&collections.buckets, &collections.overflow, &collections.sensors] {
        let command = doc! {
            "drop": collection.name(),
            "maxTimeMS": i64::try_from(most.as_millis()).unwrap_or(i64::MAX),
            "writeConcern": { "w": "majority", "j": true },
        };
        match mongo.run_command(command).await {
            Err(error) if matches!(error.kind.as_ref(), ErrorKind::Command(c) if c.code == NAMESPACE_NOT_FOUND) => {}
            dropped => drop(dropped?),
        }
    }
    unlist(mongo, database).await
}

/// Marks a database as dropped. Versions before stamps look at its incarnation to learn of it.
pub async fn unlist(mongo: &Database, database: &str) -> Result<(), Error> {
    let update = doc! { "$inc": { "incarnation": 1_i64 }, "$set": { "dropped": true } };
    databases(mongo).update_one(doc! { "_id": database }, update).await.map(drop)
}
