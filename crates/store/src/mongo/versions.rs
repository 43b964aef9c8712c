//! Schema versions. The field `schemaVersion` in `databases` is the latest version that can occur in a database.

use bson::doc;

use super::MongoStore;
use super::outcome::classify;
use super::setup;
use crate::bucket::store::WriteOutcome;
use crate::bucket::{Result, StorageError};
use crate::document::DAY_VERSION;

/// Returns the newest schema version of this program's documents as a BSON integer.
pub fn schema_version() -> i64 {
    i64::try_from(DAY_VERSION).unwrap_or(i64::MAX)
}

impl MongoStore {
    /// Fails if a later version uses the database.
    pub(super) async fn refuse_newer_database(&self, database: &str) -> Result<()> {
        let databases = setup::databases(&self.mongo);
        let filter = doc! { "_id": database, "schemaVersion": { "$gt": schema_version() } };
        let find = async move { databases.find_one(filter).await.map_err(|error| classify(&error)) };
        let Some(found) = self.read(find).await? else { return Ok(()) };
        let version = found.get_i64("schemaVersion").unwrap_or_default();
        let detail = format!("the database has schema version {version}; this program knows {DAY_VERSION}");
        Err(StorageError::Newer { id: format!("{database} of databases"), detail })
    }

    /// Replaces refusals with [`StorageError::Newer`] if a later version uses the database. Its validators may require
    /// fields that this version does not write, so the refused writes wait for that version.
    pub(super) async fn wait_for_newer(&self, database: &str, mut outcomes: Vec<WriteOutcome>) -> Vec<WriteOutcome> {
        let is_refused = |written: &WriteOutcome| matches!(written, WriteOutcome::Failed(StorageError::Refused(_)));
        if outcomes.iter().any(is_refused)
            && let Err(error) = self.refuse_newer_database(database).await
        {
            for refused in outcomes.iter_mut().filter(|written| is_refused(written)) {
                *refused = WriteOutcome::Failed(error.clone());
            }
        }
        outcomes
    }
}
