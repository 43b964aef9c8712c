//! The store as a whole, and the instances that share it.

use async_trait::async_trait;

use super::Result;
use super::pages::Written;
use hourglass_model::bucket::registry::MemberRegistry;

/// Bytes of a store, as far as they are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreSpace {
    /// What it takes on its disk.
    pub taken: Option<u64>,
    /// What is free on that disk.
    pub free: Option<u64>,
}

/// What instances that share a store need to know of each other and of the store itself.
#[async_trait]
pub trait Coordination: Send + Sync {
    /// Reads the member registry; an empty one if none is stored yet.
    async fn read_registry(&self) -> Result<MemberRegistry>;

    /// Writes the member registry by compare-and-set on its rev, which grows by one.
    async fn write_registry(&self, registry: &MemberRegistry) -> Written;

    /// Returns true if other processes may write to this store at the same time. If so, cached knowledge of a page is only
    /// confirmed by a compare-and-set or a read.
    fn has_other_writers(&self) -> bool;

    /// The store's clock in milliseconds since the epoch; `None` for a store without a clock of its own.
    async fn clock_ms(&self) -> Result<Option<u64>>;

    /// Drops what this store cached about a database and checks it again, after another process deleted from it.
    async fn revisit(&self, database: &str) -> Result<()>;

    /// Whether the store answers.
    async fn check(&self) -> Result<()>;

    /// The space that the store takes and has. May be slow: ask seldom.
    async fn space(&self) -> Result<StoreSpace>;

    /// Closes the connection or the file. No method may be called afterwards.
    async fn close(&self);
}
