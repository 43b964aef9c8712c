//! What is acked and not in the store yet, as queries ask for it.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use super::readings::Readings;
use crate::reading::{Family, Hour, Sensor};

/// Nobody can tell: acked readings are in the log that were not fed to the hot buckets yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("acked readings are still being fed from the log: an answer could not be complete yet")]
pub struct Behind;

/// A sensor and its fields with the family of their values.
#[derive(Debug, Clone)]
pub struct Met {
    /// Whose.
    pub sensor: Arc<Sensor>,
    /// In the order they were first seen.
    pub fields: Vec<(Arc<str>, Family)>,
}

/// Who knows what is acked and not in the store yet. To be asked before the store is: what is
/// flushed in between is then seen twice, which changes nothing, and never missed.
#[async_trait]
pub trait UnflushedReadings: Send + Sync + std::fmt::Debug {
    /// Each of these sensors' unflushed readings in a range of hours, hour by hour, merged among
    /// themselves. They are later than what the store has: laid over it, field by field, they are
    /// what is acked.
    ///
    /// # Errors
    /// When acked readings may be missing from it.
    async fn unflushed(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
    ) -> Result<Vec<Vec<(Hour, Readings)>>, Behind>;

    /// The sensors of a database that were met, in the store or not: all that have unflushed
    /// readings are among them.
    fn met(&self, database: &str) -> Vec<Met>;

    /// The names of the databases that were met, in the store or not.
    fn databases(&self) -> Vec<String>;

    /// Grows whenever what [`UnflushedReadings::met`] answers may have changed.
    ///
    /// # Errors
    /// When there may be sensors that were not met yet.
    fn met_version(&self) -> Result<u64, Behind>;
}
