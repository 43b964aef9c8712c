//! Whatever is to go: pages and sensor documents by filters, whole databases with a mark that they were
//! there, by which other processes learn of it.

use std::time::Duration;

use bson::{Document, doc};
use mongodb::Database;
use mongodb::error::Error;
use mongodb::options::ReturnDocument;

use super::setup::{Collections, databases};

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

/// Drops a database's collections, and then says so: whoever wrote to them meanwhile learns of it after
/// the last of them is gone, and makes them anew.
pub async fn drop_database(mongo: &Database, database: &str) -> Result<(), Error> {
    let collections = Collections::of(mongo, database);
    for collection in [&collections.buckets, &collections.overflow, &collections.sensors] {
        collection.drop().await?;
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
