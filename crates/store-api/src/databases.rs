//! Databases and their settings.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::Result;
use super::pages::WriteOutcome;
use hourglass_model::bucket::settings::DatabaseSettings;

/// The list of databases, and their settings.
#[async_trait]
pub trait DatabaseStore: Send + Sync {
    /// Lists the databases in name order.
    async fn databases(&self) -> Result<Vec<String>>;

    /// Creates a database and adds it to the list. Idempotent.
    async fn create_database(&self, database: &str) -> Result<()>;

    /// Removes all content of a database, even while other processes write to it. The database stays on the list.
    async fn drop_database(&self, database: &str) -> Result<()>;

    /// Removes a database from the list and keeps its content.
    async fn unlist_database(&self, database: &str) -> Result<()>;

    /// Reads the settings of all databases that have any, in any order.
    async fn read_settings(&self) -> Result<Vec<(String, DatabaseSettings)>>;

    /// As [`read_settings`](Self::read_settings). Rows with the rev of a known one may be copied instead of decoded.
    async fn reread_settings(
        &self,
        _known: &BTreeMap<String, DatabaseSettings>,
    ) -> Result<Vec<(String, DatabaseSettings)>> {
        self.read_settings().await
    }

    /// Replaces the settings of a database by compare-and-set. `held` is the rev that the store must hold, or 0 if it holds
    /// none. `None` removes the settings. The database need not exist.
    async fn write_settings(&self, database: &str, held: u64, settings: Option<&DatabaseSettings>) -> WriteOutcome;
}
