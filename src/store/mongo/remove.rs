//! Whatever is to go: pages and sensor documents by filters, whole databases with a mark that they were
//! there, by which other processes learn of it.

use std::time::Duration;

use bson::{Document, doc};
use mongodb::Database;
use mongodb::error::{Error, ErrorKind};
use mongodb::options::ReturnDocument;

use super::outcome::of_updates;
use super::setup::{Collections, databases};
use crate::bucket::StorageError;
use crate::bucket::store::Written;

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

/// Drops a database's collections, and then says so: whoever wrote to them meanwhile learns of it after
/// the last of them is gone, and makes them anew.
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
    announce(mongo, database, doc! { "dropped": true }).await.map(drop)
}

/// Makes a database's incarnation one more and sets `marks`; 0 where there is no such database.
pub async fn announce(mongo: &Database, database: &str, marks: Document) -> Result<u64, Error> {
    let mut update = doc! { "$inc": { "incarnation": 1_i64 } };
    if !marks.is_empty() {
        update.insert("$set", marks);
    }
    let found = databases(mongo)
        .find_one_and_update(doc! { "_id": database }, update)
        .return_document(ReturnDocument::After)
        .await?;
    let incarnation = found.and_then(|found| found.get_i64("incarnation").ok()).unwrap_or_default();
    Ok(u64::try_from(incarnation).unwrap_or_default())
}
