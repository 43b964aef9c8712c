//! Features of the MongoDB store only.

use async_trait::async_trait;

use super::{DatabaseStore, Result};
use hourglass_model::bucket::Meta;
use hourglass_model::bucket::copies::{CopyRefreshProgress, CopyScope};
use hourglass_model::bucket::groups::GroupUpdateProgress;
use hourglass_model::reading::Sensor;

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

/// A change of `unique` metadata, before it is logged.
#[derive(Debug)]
pub struct UniqueClaim<'a> {
    /// The sensor that changes.
    pub sensor: &'a Sensor,
    /// The kind after the change.
    pub kind: &'a str,
    /// The change.
    pub change: &'a Meta,
    /// The paths that change, with the values after the change.
    pub values: &'a [(&'a str, &'a serde_json::Value)],
    /// True to find the owner only.
    pub is_dry: bool,
}

/// Another sensor that has a value of `unique` metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniqueOwner {
    /// The metadata path.
    pub path: String,
    /// The key of the sensor that has the value.
    pub sensor: String,
}

/// The result of making the indexes of a database as they are declared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettledIndexes {
    /// The number of indexes created and dropped.
    pub changed: u64,
    /// The indexes that the server refuses to create, with its reasons.
    pub refused: Vec<String>,
    /// The `_id`s of some documents that violate their kind and are exempt.
    pub exempt: Vec<String>,
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

    /// Creates the declared indexes of a database and drops those that are no longer declared. Sets the validators of kinds,
    /// and removes the marks of documents that conform by now. Can take long, and blocks no other operation.
    async fn settle_indexes(&self, database: &str) -> Result<SettledIndexes>;

    /// Writes a change of `unique` metadata into the sensor's document, so that its values count at once. Returns another
    /// sensor that has one of the values. If the kind rejects such a change, nothing is written then.
    async fn claim_unique(&self, database: &str, claim: &UniqueClaim<'_>) -> Result<Option<UniqueOwner>>;
}
