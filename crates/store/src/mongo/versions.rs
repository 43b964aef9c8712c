//! Schema versions. The field `schemaVersion` in `databases` is the latest version that can occur in a database.

use bson::{Document, doc};
use mongodb::options::Hint;

use super::MongoStore;
use super::declared::join;
use super::outcome::classify;
use super::reads::Query;
use super::setup::{self, Collections};
use super::walk::{raw_day, start_id};
use crate::bucket::day::CELLS_MAX;
use crate::bucket::raw::{Cursor, RawDay, WalkStep};
use crate::bucket::store::{Extent, WriteOutcome};
use crate::bucket::{Result, StorageError};
use crate::document::DAY_VERSION;

/// The name of the index of parts of days in an older form. It is partial, so it is empty once all have the latest form.
pub const OUTDATED: &str = "outdated";
/// Size in bytes of the documents after which a step ends.
const OUTDATED_BYTES: usize = 1 << 20;

/// Returns the newest schema version of this program's documents as a BSON integer.
pub fn schema_version() -> i64 {
    i64::try_from(DAY_VERSION).unwrap_or(i64::MAX)
}

/// Returns the filter for parts of days in an older form.
pub fn is_outdated() -> Document {
    doc! { "schemaVersion": 1 }
}

impl MongoStore {
    /// Counts the parts of days in an older form. Creates their index, which reads the whole collection the first time.
    pub(super) async fn count_outdated(&self, database: &str) -> Result<u64> {
        self.refuse_newer_database(database).await?;
        let mongo = self.mongo.clone();
        let name = database.to_owned();
        // Not under the limit of concurrent commands, because this can take long.
        join(tokio::spawn(async move { setup::prepare_migration(&mongo, &name).await })).await?;
        let days = Collections::new(&self.mongo, database).days;
        let count = async move {
            let count = days.count_documents(is_outdated()).hint(Hint::Name(OUTDATED.to_owned())).await;
            count.map_err(|error| classify(&error))
        };
        self.read(count).await
    }

    /// Reads parts of days in an older form, until they have as many cells as one part may have.
    pub(super) async fn walk_outdated(
        &self,
        database: &str,
        start: Option<&Cursor>,
        max: usize,
    ) -> Result<WalkStep<RawDay>> {
        let mut filter = is_outdated();
        filter.insert("_id", doc! { "$gte": start_id(start) });
        let extent = Extent { bytes: OUTDATED_BYTES, ..Extent::pages(max) };
        let query = Query::new(filter).sort(doc! { "_id": 1 }).hint(OUTDATED).limit(extent);
        let days = Collections::new(&self.mongo, database).days;
        let mut step = WalkStep::default();
        let mut cells = 0;
        for document in &self.find(&days, query).await? {
            if cells > CELLS_MAX {
                break;
            }
            let part = raw_day(document);
            cells += part.document.as_ref().map_or(0, |part| part.day.readings.cell_count());
            // The next greater text. Only an empty step is the last one.
            step.next = Some(Cursor(format!("{}\0", part.key).into_bytes()));
            step.found.push(part);
        }
        Ok(step)
    }

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
