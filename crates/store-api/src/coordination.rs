//! The store as a whole, and the instances that share it.

use async_trait::async_trait;

use super::Result;
use super::pages::WriteOutcome;
use hourglass_model::bucket::registry::MemberRegistry;

/// Disk space of a store. A figure that the store does not report is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreSpace {
    /// Bytes that the store occupies.
    pub taken: Option<u64>,
    /// Bytes that are free on its disk.
    pub free: Option<u64>,
}

/// Coordination of instances that share a store, and the state of the store as a whole.
#[async_trait]
pub trait Coordination: Send + Sync {
    /// Reads the member registry. Returns an empty one if none is stored yet.
    async fn read_registry(&self) -> Result<MemberRegistry>;

    /// Writes the member registry by compare-and-set on its rev, which grows by one.
    async fn write_registry(&self, registry: &MemberRegistry) -> WriteOutcome;

    /// Returns true if other processes can write to this store at the same time. If so, only a compare-and-set or a read
    /// confirms a cached page.
    fn has_other_writers(&self) -> bool;

    /// Returns the store's clock in milliseconds since the epoch, or `None` for a store without a clock of its own.
    async fn clock_ms(&self) -> Result<Option<u64>>;

    /// Drops cached state of a database and checks the database again, after another process deleted from it.
    async fn revisit(&self, database: &str) -> Result<()>;

    /// Checks that the store answers.
    async fn check(&self) -> Result<()>;

    /// Measures the disk space of the store. Can be slow, so call it rarely.
    async fn space(&self) -> Result<StoreSpace>;

    /// Closes the connection or the file. Do not call any method afterwards.
    async fn close(&self);
}
