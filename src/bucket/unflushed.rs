//! What is acked and not in the store yet, as queries ask for it.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use super::changes::Changes;
use super::readings::Readings;
use crate::reading::{Family, Hour, Sensor};

/// Nobody can tell: acked readings that this is about are in the log, and not in memory yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("acked readings that the answer must have are still being read back from the log, and were so for query.wait")]
pub struct Behind;

/// A sensor and its fields with the family of their values.
#[derive(Debug, Clone)]
pub struct Met {
    /// Whose.
    pub sensor: Arc<Sensor>,
    /// In the order they were first seen.
    pub fields: Vec<(Arc<str>, Family)>,
}

/// What was met and deleted by a moment, as numbers that grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetVersion {
    /// Sensors and fields met.
    pub met: u64,
    /// Deletions, other instances' included: what was read from the store before may not be there any more.
    pub deletions: u64,
}

/// Who knows what is acked and not in the store yet. To be asked before the store is: what is
/// flushed in between is then seen twice, which changes nothing, and never missed.
#[async_trait]
pub trait UnflushedReadings: Send + Sync + std::fmt::Debug {
    /// Each of these sensors' unflushed readings in a range of hours, hour by hour, merged among
    /// themselves, with their stamps: merged with what the store has they are what is acked.
    ///
    /// # Errors
    /// When acked readings may be missing from it.
    async fn unflushed(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
    ) -> Result<Vec<Vec<(Hour, Readings)>>, Behind>;

    /// The sensors of a database that a list may lack which the store gave after `since`: those that have
    /// unflushed readings, and those whose documents came to the store later.
    fn met(&self, database: &str, since: MetVersion) -> Vec<Met>;

    /// The names of the databases that have unflushed readings.
    fn databases(&self) -> Vec<String>;

    /// What was met and deleted by now.
    ///
    /// # Errors
    /// When there may be sensors of the database, or without one databases, that were not met yet.
    fn met_version(&self, database: Option<&str>) -> Result<MetVersion, Behind>;

    /// What this instance has changed in the store. A change is noted before its readings stop being
    /// unflushed; those of a write whose outcome is not known stay unflushed until it is.
    fn changes(&self) -> &Changes;
}
