//! The seam between the registry and a cluster.

use async_trait::async_trait;

use crate::bucket::registry::{MemberRegistry, PeerEntry, View};

/// What a cluster does with the registry.
#[async_trait]
pub trait ClusterRegistry: Send + Sync {
    /// Waits until the registry should be read again.
    async fn wait_for_read(&self);

    /// Notes that a read of the registry begins.
    async fn begin_read(&self);

    /// Takes a registry that was read, and returns what to write into it. `None` if this instance is over.
    async fn take(&self, registry: &MemberRegistry) -> Option<ClusterChanges>;

    /// Notes the outcome of that write.
    async fn note_written(&self, is_written: bool);
}

/// The changes of the registry by a cluster.
#[derive(Debug, Clone)]
pub struct ClusterChanges {
    pub view: View,
    /// How others reach this instance.
    pub peer: PeerEntry,
    /// The folders that an operator gave up.
    pub given_up: Vec<u64>,
}
