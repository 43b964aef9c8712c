//! Features of the MongoDB store only.

use async_trait::async_trait;

use super::{DatabaseStore, Result};
use hourglass_model::bucket::copies::{CopyRefreshProgress, CopyScope};
use hourglass_model::bucket::groups::GroupUpdateProgress;

/// One step of a walk through all sensors for outdated copies of metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StaleCopyStep {
    /// The sensors whose copies may be outdated.
    pub sensors: Vec<String>,
    /// The last key examined, where the next step continues; `None` at the end.
    pub last_key: Option<String>,
}

/// One step of a walk through all sensors that updates group documents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupUpdateStep {
    /// The result of the step.
    pub progress: GroupUpdateProgress,
    /// The last key examined, where the next step continues; `None` at the end.
    pub last_key: Option<String>,
}

/// Features of the MongoDB store only: copies of metadata in pages and days, group documents and declared indexes.
#[async_trait]
pub trait MongoExtras: DatabaseStore {
    /// Returns true if the store was opened with rules that copy metadata into pages and days.
    fn keeps_copies(&self) -> bool;

    /// Updates the metadata copies in pages and days of these sensors from their documents. Changes nothing else, not even
    /// the revs, because writers of readings set copies in new documents only.
    async fn refresh_copies(&self, database: &str, sensors: &[&str], scope: CopyScope) -> Result<CopyRefreshProgress>;

    /// Examines the next `max` sensors after `last_key`.
    async fn next_stale_copies(&self, database: &str, last_key: &str, max: usize) -> Result<StaleCopyStep>;

    /// Returns true if the store was opened with rules that put sensors into group documents.
    fn keeps_groups(&self) -> bool;

    /// Updates the group documents for up to `max` sensors of one database whose documents were written or removed through
    /// this store since the last call.
    async fn regroup(&self, max: usize) -> Result<GroupUpdateProgress>;

    /// Updates the group documents for the next `max` sensors after `last_key`, and for members in that range that no
    /// longer have a document.
    async fn regroup_after(&self, database: &str, last_key: &str, max: usize) -> Result<GroupUpdateStep>;

    /// Creates the declared indexes of a database and drops those that are no longer declared. Returns the number of
    /// indexes created and dropped. Can take long, and blocks no other operation.
    async fn settle_indexes(&self, database: &str) -> Result<u64>;
}
