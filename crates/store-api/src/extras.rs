//! What only MongoDB has.

use async_trait::async_trait;

use super::{DatabaseStore, Result};
use hourglass_model::bucket::copies::{CopiesRefreshed, CopyScope};
use hourglass_model::bucket::groups::Regrouped;

/// What only MongoDB has: copies of metadata in pages and days, groups' documents, declared indexes.
#[async_trait]
pub trait MongoExtras: DatabaseStore {
    /// Whether pages and days hold copies of metadata, by the rules that the store was opened with.
    fn keeps_copies(&self) -> bool;

    /// Sets the copies in pages and days of these sensors as their documents say now. Changes nothing else of them, no rev
    /// either: whoever writes readings never writes copies, except into new documents.
    async fn refresh_copies(&self, database: &str, sensors: &[&str], scope: CopyScope) -> Result<CopiesRefreshed>;

    /// Of the next `most` sensors after a key, those whose documents do not say that all copies are as the metadata; and the
    /// last key that was looked at, if there may be more.
    async fn next_stale_copies(
        &self,
        database: &str,
        after: &str,
        most: usize,
    ) -> Result<(Vec<String>, Option<String>)>;

    /// Whether sensors stand in groups' documents, by the rules that the store was opened with.
    fn keeps_groups(&self) -> bool;

    /// Sets groups' documents as the documents of some sensors say now that were written or removed through this store and not
    /// looked at since: at most `most` of one database.
    async fn regroup(&self, most: usize) -> Result<Regrouped>;

    /// Does the same for the next `most` sensors after a key, whoever wrote them, and for those between them that only groups'
    /// documents know. Also returns the last key that was looked at, if there may be more.
    async fn regroup_after(&self, database: &str, after: &str, most: usize) -> Result<(Regrouped, Option<String>)>;

    /// Makes the indexes of a database that the configuration declares and drops those that it does not declare any more; returns
    /// how many it made and dropped. Takes as long as the store needs, and holds up nobody else.
    async fn settle_indexes(&self, database: &str) -> Result<u64>;
}
