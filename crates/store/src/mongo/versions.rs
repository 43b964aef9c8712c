//! Versions of what is stored. In `databases`, `schemaVersion` is the newest that a program may have written to a database.

use bson::doc;

use super::MongoStore;
use super::outcome::classify;
use super::setup;
use crate::bucket::store::Written;
use crate::bucket::{Result, StorageError};
use crate::document::SCHEMA_VERSION;

/// This program's version, as a number of BSON.
pub fn own() -> i64 {
    i64::try_from(SCHEMA_VERSION).unwrap_or(i64::MAX)
}

impl MongoStore {
    /// Fails if a later version uses the database.
    pub(super) async fn refuse_newer_database(&self, database: &str) -> Result<()> {
        let (databases, filter) =
            (setup::databases(&self.mongo), doc! { "_id": database, "schemaVersion": { "$gt": own() } });
        let found = async move { databases.find_one(filter).await.map_err(|error| classify(&error)) };
        let Some(found) = self.read(found).await? else { return Ok(()) };
        let version = found.get_i64("schemaVersion").unwrap_or_default();
        let detail = format!("the database has version {version}, this program knows only {SCHEMA_VERSION}");
        Err(StorageError::Newer { id: format!("{database} of databases"), detail })
    }

    /// What a collection's validator refuses may only lack what a later version requires: it waits for that version.
    pub(super) async fn wait_for_newer(&self, database: &str, mut outcomes: Vec<Written>) -> Vec<Written> {
        let is_refused = |written: &Written| matches!(written, Written::Failed(StorageError::Refused(_)));
        if outcomes.iter().any(is_refused)
            && let Err(error) = self.refuse_newer_database(database).await
        {
            for refused in outcomes.iter_mut().filter(|written| is_refused(written)) {
                *refused = Written::Failed(error.clone());
            }
        }
        outcomes
    }
}
