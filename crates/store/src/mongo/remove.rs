//! Removes pages and sensor documents by filter, and whole databases.

use std::time::Duration;

use bson::{Document, doc};
use mongodb::Database;
use mongodb::error::Error;

use super::indexes::is_no_collection;
use super::outcome::{has_code, update_outcomes, write_errors};
use super::setup::{self, Collections};
use crate::bucket::store::WriteOutcome;
use crate::bucket::{Result, StorageError};
use crate::reading::Stamp;

/// Maximum number of sensors per command that removes pages.
pub const SENSORS_MAX: usize = 20;

/// Builds a `delete` command for all documents that match a filter. The server stops it after `time_max`.
pub fn command(collection: &str, filter: Document, time_max: Duration) -> Document {
    doc! {
        "delete": collection,
        "deletes": [ { "q": filter, "limit": 0 } ],
        "maxTimeMS": i64::try_from(time_max.as_millis()).unwrap_or(i64::MAX),
        "writeConcern": { "w": "majority", "j": true },
    }
}

/// Returns true if the server stopped a command at its time limit.
pub fn is_expired(reply: &Result<Document, Error>) -> bool {
    const MAX_TIME_EXPIRED: i32 = 50;
    match reply {
        Err(error) => has_code(error, &[MAX_TIME_EXPIRED]),
        Ok(reply) => write_errors(reply).any(|error| error.get_i32("code").is_ok_and(|code| code == MAX_TIME_EXPIRED)),
    }
}

/// Returns true if the command has removed all matching documents, and false if it reached its time limit before.
pub fn outcome(reply: Result<Document, Error>) -> Result<bool> {
    if is_expired(&reply) {
        return Ok(false);
    }
    match update_outcomes(reply, 1).pop() {
        Some(WriteOutcome::Applied) => Ok(true),
        Some(WriteOutcome::Failed(error)) => Err(error),
        Some(WriteOutcome::Conflict) | None => Err(StorageError::Failing("cannot remove some documents".to_owned())),
    }
}

/// Returns the filter for pages with a cell whose stamp is at least `stamp`.
pub fn has_stamp_at_least(stamp: Stamp) -> Document {
    let stamp = i64::try_from(stamp).unwrap_or(i64::MAX);
    doc! { "order.last": { "$gte": stamp } }
}

/// Returns the filter for parts of days with cells whose stamps are all below `stamp`.
pub fn are_parts_below(stamp: Stamp) -> Document {
    let stamp = i64::try_from(stamp).unwrap_or(i64::MAX);
    doc! { "$or": [
        { "chunk": { "$lt": stamp } },
        { "chunk": { "$exists": false }, "floor": { "$lt": stamp } },
    ] }
}

/// Returns the filter for documents of a schema version above `latest`.
pub fn is_newer(latest: u64) -> Document {
    doc! { "schemaVersion": { "$gt": i64::try_from(latest).unwrap_or(i64::MAX) } }
}

/// Drops a database's collections.
pub async fn drop_database(mongo: &Database, database: &str, time_max: Duration) -> Result<(), Error> {
    let Collections { buckets, overflow, days, months, sensors, groups } = Collections::new(mongo, database);
    let view = setup::view_name(database);
    let collections = [&buckets, &overflow, &days, &months, &sensors, &groups].map(|collection| collection.name());
    for name in collections.into_iter().chain([&*view]) {
        let command = doc! {
            "drop": name,
            "maxTimeMS": i64::try_from(time_max.as_millis()).unwrap_or(i64::MAX),
            "writeConcern": { "w": "majority", "j": true },
        };
        match mongo.run_command(command).await {
            Err(error) if is_no_collection(&error) => {}
            dropped => drop(dropped?),
        }
    }
    Ok(())
}
